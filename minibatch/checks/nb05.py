"""Checks for the exercises of notebook 05: sequences on a card, a pool split in four, first fit broken."""

import numbers
from collections.abc import Callable

from minibatch.checks.base import call, expect, need
from minibatch.memory.arithmetic import GB, ModelSpec, kv_pool_bytes, sequences_that_fit, tokens_that_fit
from minibatch.memory.placement import FirstFit

_CARDS = [  # layers, kv_heads, head_dim, parameters, memory_bytes, length
    (32, 32, 128, 6.738e9, 80 * GB, 2048),
    (32, 8, 128, 8.03e9, 80 * GB, 2048),
    (32, 32, 128, 6.738e9, 80 * GB, 4096),
    (2, 1, 4, 100.0, 1000, 3),
    (2, 1, 4, 100.0, 1000, 25),
    (2, 1, 4, 100.0, 1000, 26),
    (2, 1, 4, 100.0, 199, 1),
    (2, 1, 4, 100.0, 200, 1),
    (80, 8, 128, 70e9, 80 * GB, 2048),
    (28, 4, 96, 3e9, 24 * GB, 1500),
]


def check_most_sequences(function: Callable) -> None:
    """`function(layers, kv_heads, head_dim, parameters, memory_bytes, length)`: whole sequences beside the weights."""
    for case in _CARDS:
        expect(function, *case, want=_most(*case), hint=_most_hint)


def _most(layers: int, kv_heads: int, head_dim: int, parameters: float, memory_bytes: float, length: int) -> int:
    model = ModelSpec(layers, kv_heads, head_dim, parameters)
    if model.weight_bytes > memory_bytes:
        return 0
    return sequences_that_fit(model, kv_pool_bytes(model, memory_bytes), length)


def _most_hint(got: object, *case: object) -> str:
    layers, kv_heads, head_dim, parameters, memory_bytes, length = case
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        return "return one number"
    model = ModelSpec(layers, kv_heads, head_dim, parameters)
    if model.weight_bytes > memory_bytes:
        return "the weights alone do not fit: then there is room for no sequence"
    if got != int(got):
        return "only whole sequences count"
    pool = kv_pool_bytes(model, memory_bytes)
    if got == tokens_that_fit(model, pool):
        return "that is tokens; how many sequences of this length?"
    a_sequence = model.kv_bytes_per_token * length
    mistakes = {
        memory_bytes // a_sequence: "the weights lie in the same memory, two bytes each",
        (memory_bytes - parameters) // a_sequence: "each weight takes two bytes",
        2 * pool // a_sequence: "there are a K and a V, and each of their values takes two bytes",
        4 * pool // a_sequence: "there are a K and a V, and each of their values takes two bytes",
        pool // (a_sequence // layers): "every layer keeps its own K and V",
        -(-pool // a_sequence): "the last one does not fit as a whole",
    }
    return mistakes.get(got, "how many bytes does one token take, and how many bytes are left?")


_POOLS = [  # positions, regions as (length, filled now, filled at the end)
    (16, [(8, 3, 5)]),
    (16, []),
    (16, [(8, 8, 8), (8, 1, 8)]),
    (1024, [(128, 40, 103), (128, 90, 91), (128, 31, 34)]),
    (100, [(10, 0, 0), (20, 5, 20), (30, 30, 30), (7, 6, 7)]),
    (15728, [(2048, 161, 499)] * 7),
]


def check_split(function: Callable) -> None:
    """`function(pool, regions)`: (used, reserved, internal, external), in positions."""
    for pool, regions in _POOLS:
        expect(function, pool, regions, want=list(_split(regions, pool)), hint=_split_hint)


def _split(regions: list[tuple[int, int, int]], pool: int) -> tuple[int, int, int, int]:
    taken, used, filled = (sum(region[i] for region in regions) for i in (0, 1, 2))
    return used, filled - used, taken - filled, pool - taken


def _split_hint(got: object, pool: int, regions: list[tuple[int, int, int]]) -> str:
    if not isinstance(got, (list, tuple)) or len(got) != 4:
        return "return four numbers: used, reserved, internal, external"
    if not all(isinstance(each, numbers.Real) and not isinstance(each, bool) for each in got):
        return "return four numbers: used, reserved, internal, external"
    want = _split(regions, pool)
    if abs(sum(got) - 1) < 1e-6 and pool > 1:
        return "count positions, not shares"
    if sum(got) != pool:
        return f"the four must add up to the whole pool; yours add up to {sum(got)}"
    wrong = [
        name for name, mine, right in zip(("used", "reserved", "internal", "external"), got, want) if mine != right
    ]
    return f"{' and '.join(wrong)}: reserved will be filled by its holder, internal never, external is in no region"


def check_fragment(function: Callable) -> None:
    """`function(pool)`: lengths and leavers after which 90 % is free and no tenth of the pool fits in one piece."""
    for pool in (100, 109, 500, 1024, 1999, 2000):
        got = call(function, pool)
        where = f"with {pool} positions"
        pair = isinstance(got, (list, tuple)) and len(got) == 2
        need(pair, f"{where}: return two lists, the lengths and the indices of those given back")
        lengths, leaving = (list(each) if hasattr(each, "__iter__") else [None] for each in got)
        whole = all(isinstance(x, numbers.Integral) and not isinstance(x, bool) for x in (*lengths, *leaving))
        need(whole, f"{where}: lengths and indices are whole numbers")
        need(lengths != [] and min(lengths) >= 1, f"{where}: there must be regions, each of at least one position")
        known = len(set(leaving)) == len(leaving) and set(leaving) <= set(range(len(lengths)))
        need(known, f"{where}: an index is that of a region, counted from 0, and each is given back once")
        _judge(where, pool, lengths, leaving)


def _judge(where: str, pool: int, lengths: list[int], leaving: list[int]) -> None:
    placement = FirstFit(pool)
    starts = [placement.take(length) for length in lengths]
    need(None not in starts, f"{where}: the regions do not all fit into the empty pool")
    for index in leaving:
        placement.give_back(range(starts[index], starts[index] + lengths[index]))
    gaps = [len(gap) for gap in placement.free()]
    free, tenth = sum(gaps), pool // 10
    need(10 * free >= 9 * pool, f"{where}: only {free} positions are free in the end. How short can those be who stay?")
    longest = max(gaps)
    need(
        longest < tenth,
        f"{where}: a gap of {longest} positions is left, so {tenth} fit. Who could stand in the middle?",
    )
