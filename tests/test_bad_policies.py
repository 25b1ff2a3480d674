"""Impossible configurations are refused when they are built, and the field is named."""

import pytest

from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.join import ByPriority, LongestPrefix, SmallOnesPass
from minibatch.schedulers.mix import Chunked, PrefillFirst
from minibatch.schedulers.reserve import NewTokenRatio, Profiled, PromptOnly

IMPOSSIBLE = [
    ("block_size=0", lambda: PagedMemory(4, 0)),
    ("num_blocks=0", lambda: PagedMemory(0, 4)),
    ("host_blocks=-1", lambda: PagedMemory(4, 4, host_blocks=-1)),
    ("prefix_cache='lru': choose one of hash, radix", lambda: PagedMemory(4, 4, prefix_cache="lru")),
    ("longest_prefix.*needs a PagedMemory with a prefix_cache", lambda: IterationScheduler(join="longest_prefix")),
    ("needs a PagedMemory with", lambda: IterationScheduler(2, PagedMemory(4, 4), join="longest_prefix")),
    ("longest_queue=-1", lambda: LongestPrefix(longest_queue=-1)),
    ("shared_tokens=-1", lambda: LongestPrefix(shared_tokens=-1)),
    ("token_budget=0", lambda: Chunked(0)),
    ("chunk_cap=0", lambda: Chunked(8, 0)),
    ("token_budget=-1", lambda: PrefillFirst(-1)),
    ("watermark=1.0", lambda: IterationScheduler(2, PagedMemory(4, 4), reserve=PromptOnly(1.0))),
    ("watermark=-0.1", lambda: IterationScheduler(2, PagedMemory(4, 4), reserve=PromptOnly(-0.1))),
    (
        "swap=True needs a PagedMemory with host_blocks",
        lambda: IterationScheduler(2, PagedMemory(4), evict=Evict(swap=True)),
    ),
    ("victim='oldest'", lambda: Evict("oldest")),
    ("mix='chunky'.*whole, prefill_first, chunked", lambda: IterationScheduler(2, mix="chunky")),
    ("join='lifo'", lambda: IterationScheduler(2, join="lifo")),
    ("reserve='half'", lambda: IterationScheduler(2, reserve="half")),
    ("max_passes=-1", lambda: SmallOnesPass(-1)),
    ("max_passes=-2", lambda: ByPriority(-2)),
    ("floor=0.5, initial=0.4", lambda: NewTokenRatio(initial=0.4, floor=0.5)),
    ("decay_steps=0", lambda: NewTokenRatio(decay_steps=0)),
    ("quantile=0", lambda: Profiled(quantile=0)),
    ("least=9, window=8", lambda: Profiled(window=8, least=9)),
]


@pytest.mark.parametrize("words, build", IMPOSSIBLE, ids=[words for words, _ in IMPOSSIBLE])
def test_an_impossible_configuration_is_refused_at_construction_and_the_field_named(words, build):
    with pytest.raises(ValueError, match=words):
        build()
