"""The comparison of prefix caches: by hand, at its bound, and on the Mooncake slice."""

import dataclasses

import pytest

from minibatch.simulate.prefix_study import SECONDS_PER_BLOCK, prefix_study, reuse_bound, serve
from minibatch.workload import Planned, azure_trace, mooncake_trace


def ask(time, *ids, output=1):
    return Planned(time, 512 * len(ids) - 1, output, ids)


def test_three_requests_by_hand():
    """The second finds two blocks (its last one never counts), and waits for the first to be computed."""
    row = serve([ask(0.0, 1, 2, 3), ask(0.0, 1, 2, 3), ask(60.0, 8, 9)], "hash", "fcfs", blocks=20)
    assert row.hit_share == 2 / 8
    assert row.ttft_mean == pytest.approx(SECONDS_PER_BLOCK * (3 + 4 + 2) / 3)
    assert (row.requests, row.refused, row.gib) == (3, 0, 20 / 16)


def test_who_is_larger_than_the_pool_is_counted_and_the_others_go_on():
    row = serve([ask(0.0, *range(9)), ask(0.0, 1, 2)], "radix", "fcfs", blocks=3)
    assert row.refused == 1 and row.ttft_mean == 2 * SECONDS_PER_BLOCK


def test_memory_makes_the_next_one_wait_until_an_answer_has_ended():
    """Four blocks; each holds three for its 100 tokens' 3 s."""
    row = serve([ask(0.0, 1, 2, output=100), ask(0.0, 3, 4, output=100)], "hash", "fcfs", blocks=4)
    assert row.ttft_mean == pytest.approx((0.03 + (0.03 + 3.0 + 0.03)) / 2)


def test_the_longest_prefix_goes_before_the_earlier_one():
    asked = [ask(0.0, 1, 2, 3, 4), ask(0.001, 7, 8, 9, 10), ask(0.002, 1, 2, 3, 5)]
    rows = list(prefix_study(asked, sizes=[20], caches=["radix"]))
    assert [row.order for row in rows] == ["fcfs", "longest_prefix"]
    assert rows[0].hit_share == rows[1].hit_share == 3 / 12
    assert rows[1].ttft_mean < rows[0].ttft_mean


def test_the_bound_on_the_slice_and_a_pool_of_everything_reaches_it():
    planned = mooncake_trace()
    assert reuse_bound(planned) == (25_332 / 80_619, 25_307 / 80_619)
    some = planned[:800]
    everything = len({block for one in some for block in one.hash_ids}) + 5 * len(some)
    for cache in ("hash", "radix"):
        assert serve(some, cache, "fcfs", everything).hit_share == reuse_bound(some)[1]


def test_more_memory_finds_more_and_the_same_run_gives_the_same_row():
    planned = mooncake_trace()[:300]
    rows = list(prefix_study(planned, sizes=[1000, 4000, 16_000], orders=["fcfs"]))
    assert rows == list(prefix_study(planned, sizes=[1000, 4000, 16_000], orders=["fcfs"]))
    by_cache = {name: [row.hit_share for row in rows if row.cache == name] for name in ("hash", "radix")}
    assert all(shares == sorted(shares) and shares[0] < shares[2] for shares in by_cache.values())
    assert all(share <= reuse_bound(planned)[1] for shares in by_cache.values() for share in shares)
    assert set(dataclasses.asdict(rows[0])) >= {"cache", "order", "blocks", "hit_share"}


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("no request has hash_ids", lambda: reuse_bound(azure_trace("code")[:3])),
        ("request 1 has no hash_ids", lambda: serve(azure_trace("code")[:3], "hash", "fcfs", 10)),
        ("order='lifo': choose one of fcfs, longest_prefix", lambda: serve([ask(0.0, 1)], "hash", "lifo", 10)),
        ("prefix_cache='lru': choose one of hash, radix", lambda: serve([ask(0.0, 1)], "lru", "fcfs", 10)),
        ("blocks=1: none of 1 requests fits", lambda: serve([ask(0.0, 1, 2)], "hash", "fcfs", 1)),
    ],
)
def test_what_cannot_be_studied_is_refused(said, call):
    with pytest.raises(ValueError, match=said):
        call()
