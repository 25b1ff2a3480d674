"""From planned requests to those an engine serves: prompts of tokens, random, bare, or beginning alike."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, repeat
from random import Random

from minibatch.request import Request, SamplingParams
from minibatch.workload.check import check, is_whole
from minibatch.workload.planned import Planned
from minibatch.workload.traces import MOONCAKE_BLOCK

_FIRST_PROMPT_ID = 3  # the ids below are special tokens (begin, end, padding) in most vocabularies
_KEPT_PROMPT = 4096  # tokens; all bare prompts up to this length together are 64 MiB, of longer ones each is made anew


def to_requests(planned: Iterable[Planned], vocab_size: int, seed: int = 0) -> list[Request]:
    """Requests "R1", "R2", … in order of arrival, with random prompt ids in [3, vocab_size) and no stop tokens.

    Without stop tokens each writes exactly its planned output, whatever the model would say.
    """
    check(
        is_whole(vocab_size) and vocab_size > _FIRST_PROMPT_ID, "vocab_size", vocab_size, "must be a whole number > 3"
    )
    check(is_whole(seed), "seed", seed, "must be a whole number")
    rng = Random(f"{seed} prompt ids")
    ids = list(range(_FIRST_PROMPT_ID, vocab_size))  # a list, so that prompts share the same few int objects
    return [
        Request(f"R{i}", tuple(rng.choices(ids, k=one.prompt_tokens)), SamplingParams(one.output_tokens), one.arrival)
        for i, one in enumerate(sorted(planned, key=lambda one: one.arrival), 1)
    ]


def bare_requests(planned: Iterable[Planned]) -> Iterator[Request]:
    """Requests "R1", "R2", … for a cost model, which looks at no token: every prompt is one token over and over.

    One at a time, so an engine that reads them as they arrive can be given a million. Prompts of equal length (up to
    4,096 tokens) are one and the same tuple, so they take no memory of their own. Not for a memory with a prefix
    cache: all prompts begin alike. Raises ValueError, when it comes to it, for a request planned before the one
    ahead of it.
    """
    prompts: dict[int, tuple[int, ...]] = {}
    for i, one in _in_order(planned):
        prompt = prompts.get(one.prompt_tokens) or (_FIRST_PROMPT_ID,) * one.prompt_tokens
        if one.prompt_tokens <= _KEPT_PROMPT:
            prompts[one.prompt_tokens] = prompt
        yield Request(f"R{i}", prompt, _limit(one.output_tokens), one.arrival)


def mooncake_requests(planned: Iterable[Planned]) -> Iterator[Request]:
    """Requests "R1", "R2", … whose prompts begin alike wherever their `hash_ids` do. One at a time, as above.

    Each block of 512 tokens is one token, 3 + its hash id, over and over. That is enough: a prefix cache asks whether
    two prompts are equal up to a point, and these are exactly as far as the recorded ones. Ids are as large as the
    trace's, so this is for an executor without a real vocabulary. Raises ValueError for a request without hash ids.
    """
    for i, one in _in_order(planned):
        blocks, size = one.hash_ids, MOONCAKE_BLOCK
        check(len(blocks) == -(-one.prompt_tokens // size), "hash_ids", blocks[:3], f"request {i} needs one a block")
        tokens = chain.from_iterable(repeat(_FIRST_PROMPT_ID + block, size) for block in blocks)
        prompt = tuple(islice(tokens, one.prompt_tokens))  # the last block may be shorter
        yield Request(f"R{i}", prompt, _limit(one.output_tokens), one.arrival)


@lru_cache(maxsize=4096)
def _limit(output_tokens: int) -> SamplingParams:
    return SamplingParams(output_tokens)


def _in_order(planned: Iterable[Planned]) -> Iterator[tuple[int, Planned]]:
    """Numbered from 1."""
    before = float("-inf")
    for i, one in enumerate(planned, 1):
        check(one.arrival >= before, "arrival", one.arrival, f"request {i} comes before the one ahead of it; sort them")
        before = one.arrival
        yield i, one
