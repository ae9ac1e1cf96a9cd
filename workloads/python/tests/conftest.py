"""Where the tests find what arms import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORKLOADS = Path(__file__).parents[1]
WORKER = WORKLOADS.parents[1] / "core" / "python"
sys.path[:0] = [str(WORKLOADS), str(WORKER), str(WORKER / "testing")]


@pytest.fixture(name="sizes")
def sizes_for_transformers() -> Callable[[Any], dict[str, Any]]:
    """Of a Llama or what is made of one, with weights that make attention and positions matter."""
    from gpulift_work import llama

    return lambda size: {
        "vocab_size": size.vocabulary,
        "hidden_size": size.width,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_heads,
        "max_position_embeddings": size.tokens,
        "rms_norm_eps": llama.NORM_EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": llama.ROTARY_BASE},
        "tie_word_embeddings": True,
        "initializer_range": 0.1,
    }
