"""Gauges in Prometheus' text format."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpulift.ground.errors import GpuliftError
from gpulift.ground.gauges import Gauges

NAMES = {"a_seconds": "How long.", "b": "Of nothing.", "c_bytes": "How much."}


def test_prometheus_reads_them_in_their_order_with_their_labels() -> None:
    gauges = Gauges(NAMES)
    gauges.add("c_bytes", {"of": 'x"\\\n\x1b', "in": "y"}, 1e20)
    gauges.add("a_seconds", {}, 0.1)
    gauges.add("c_bytes", {"of": "z", "in": "y"}, None)
    a, c = text_string_to_metric_families(gauges.text())
    assert [(one.name, one.type, one.documentation) for one in (a, c)] == [
        ("a_seconds", "gauge", "How long."),
        ("c_bytes", "gauge", "How much."),
    ]
    assert (a.samples[0].value, c.samples[0].value) == (0.1, 1e20)
    assert c.samples[0].labels == {"of": 'x"\\\\n\\x1b', "in": "y"}
    assert len(c.samples) == 1


def test_the_same_labels_have_one_value() -> None:
    gauges = Gauges(NAMES)
    gauges.add("b", {"of": "x"}, 1.0)
    gauges.add("b", {"of": "x"}, 1.0)
    with pytest.raises(GpuliftError, match='hold of="x": export them one by one'):
        gauges.add("b", {"of": "x"}, 2.0)
