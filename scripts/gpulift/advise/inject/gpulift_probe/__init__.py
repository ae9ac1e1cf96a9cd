"""Measures a training from inside its process: what `gpulift advise` puts into scripts."""

from __future__ import annotations


def start() -> None:
    """Hooks torch, which was just imported; what it is to do stands in the environment."""
    from . import anchors, constructed, course, exchange, said

    plan, say = said.plan(), said.Said()
    say.imported()
    constructed.change_loaders(plan)
    exchange.change_wrappers(plan)
    constructed.copy_unwaited(plan)
    constructed.search_algorithms(plan)
    probe = anchors.Anchors(say, ends_epochs=bool(plan.get("ends_epochs")))
    probe.follow(course.of(plan, probe, say))
