"""Requests known by their lengths only, drawn by law."""

from random import Random
from typing import NamedTuple

from minibatch.workload.arrivals import Arrivals, burst
from minibatch.workload.check import check, is_whole
from minibatch.workload.lengths import Lengths, equal, lognormal, uniform


class Planned(NamedTuple):
    """A request known by its lengths only: planned arrival in seconds, prompt and output in tokens.

    `hash_ids`, where a trace has them, name the blocks of the prompt: two prompts whose ids begin alike begin alike.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def synthetic(
    n: int,
    seed: int = 0,
    prompt: Lengths | None = None,
    output: Lengths | None = None,
    arrivals: Arrivals | None = None,
) -> list[Planned]:
    """`n` planned requests in order of arrival, the same for the same seed.

    Unless told otherwise prompts are equal(32), outputs uniform(1, 128) as Orca's, and arrivals a burst().

    >>> [one.output_tokens for one in synthetic(3, prompt=equal(5), output=equal(7))]
    [7, 7, 7]
    """
    check(is_whole(n) and n >= 0, "n", n, "must be a whole number of requests, 0 or more")
    check(is_whole(seed), "seed", seed, "must be a whole number")
    prompt, output, arrivals = prompt or equal(32), output or uniform(1, 128), arrivals or burst()
    times = arrivals(Random(f"{seed} arrivals"), n)
    prompts, outputs = Random(f"{seed} prompt"), Random(f"{seed} output")
    return [Planned(time, prompt(prompts), output(outputs)) for time in times]


def sharegpt_like(n: int, seed: int = 0) -> list[Planned]:
    """`n` requests, all at second 0, with lengths like those of ShareGPT in the vLLM paper (section 6.1).

    The paper gives the means, 161.31 tokens in and 337.99 out, and its model takes 2,048 in all; ShareGPT itself is
    not ours to ship. So: log-normal lengths with these means, spread as in Azure's conversations (log deviations 0.99
    in, 0.86 out), no prompt above 1,024 (vLLM's benchmark drops those) and no request above 2,048.
    """
    return _within(2048, n, seed, lognormal(108, 0.99, cap=1024), lognormal(249, 0.86, cap=2048))


def alpaca_like(n: int, seed: int = 0) -> list[Planned]:
    """`n` requests, all at second 0, with lengths like those of Alpaca in the vLLM paper (section 6.1).

    The paper gives the means, 19.31 tokens in and 58.45 out, and calls Alpaca's lengths less spread than ShareGPT's;
    no more of it is known here, and its texts are not ours to ship. So: log-normal lengths with these means and the
    log deviations of `sharegpt_like`, whose absolute spread is then smaller in the same ratio; none above 2,048 in all.
    """
    return _within(2048, n, seed, lognormal(11.8, 0.99, cap=1024), lognormal(40.4, 0.86, cap=2048))


def _within(most: int, n: int, seed: int, prompt: Lengths, output: Lengths) -> list[Planned]:
    """The first `n` of those drawn that have at most so many tokens in all."""
    draws = synthetic(2 * n + 20, seed, prompt=prompt, output=output)
    return [one for one in draws if one.prompt_tokens + one.output_tokens <= most][:n]
