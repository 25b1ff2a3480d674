"""Published figures, reproduced or refuted: each a function, a picture, a number beside the published one, a sentence.

`HEADLINES[name]` is (compute, draw): `draw(compute())` is the picture. Nothing is imported before it is called for.
`committed(name)` is what compute() found when `python -m minibatch figures` was last run: it takes minutes, this none.
"""

from collections.abc import Callable
from importlib import import_module

_MODULES = {  # where it is computed, where it is drawn; in the order in which notebook 09 tells them
    "dead_slots": ("dead_slots", "dead_slots"),
    "gain_by_variance": ("gain_by_variance", "gain_by_variance"),
    "orca_latency_bound": ("orca_latency_bound", "orca_latency_bound"),
    "memory_policies": ("memory_policies", "memory_policies"),
    "kv_use": ("memory_policies", "kv_use"),
    "anyscale": ("anyscale", "anyscale"),
    "chunked": ("chunked", "chunked"),
    "swap_or_recompute": ("swap_or_recompute", "swap_or_recompute"),
    "goodput_both_ways": ("goodput_both_ways", "goodput_both_ways"),
    "preemption_tail": ("preemption_tail", "preemption_tail"),
    "systems_on_traces": ("systems_on_traces", "systems"),
    "decomposition": ("decomposition", "decomposition"),
}


def _later(module: str, function: str) -> Callable:
    def call(*args, **options):
        return getattr(import_module(module), function)(*args, **options)

    return call


HEADLINES: dict[str, tuple[Callable, Callable]] = {
    name: (_later(f"minibatch.headlines.{module}", name), _later(f"minibatch.plot.headline_{picture}", "draw"))
    for name, (module, picture) in _MODULES.items()
}


def committed(name: str):
    """A `Headline` as it lies in the package. Raises ValueError with the known names."""
    from minibatch.headlines.store import read
    from minibatch.simulate.cards import known

    return known("headline", name, read())


__all__ = ["HEADLINES", "committed"]
