"""Memory is a third empty on average, and still somebody is thrown out: the tail that preemption makes.

Llumnix (Sun et al., OSDI 2024, arXiv 2406.03243), section 3: 2,000 requests to a LLaMA-7B under vLLM; with 62 % of the
K/V memory in use on average 8 % of the requests are preempted, and the P99 of seconds a token is 3.8 times the P50.
"""

from random import Random

import numpy as np

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.curves import arriving, crossing, serve
from minibatch.simulate.cards import Card, Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.streaming import StreamingTrace
from minibatch.workload import Lengths, Planned, sharegpt_like, synthetic

A10 = Card("A10", 24e9, 600e9, 125e12, 25e9, 25e9, "NVIDIA A10 data sheet")
LONGEST = 8192
MOST = 6144  # tokens of a prompt, and of an answer
USE = 0.62  # share of the pool that holds tokens, on average over the steps
HEAVY, SHAREGPT = "power law", "ShareGPT-like"
RATES = {HEAVY: (0.5, 0.7, 0.9, 1.0, 1.1, 1.2, 1.4), SHAREGPT: (0.8, 1.1, 1.25, 1.4, 1.6)}  # requests/s
PAPER = "Llumnix, section 3"


def power_law(mean: float, exponent: float, cap: int) -> Lengths:
    """Whole numbers from 1 whose tail falls like length ** -exponent (Lomax); `mean` is that before the cap.

    A length above `cap` is drawn again. Raises ValueError for an exponent that has no mean.
    """
    if not exponent > 1:
        raise ValueError(f"exponent={exponent!r}: must be above 1, else there is no mean")
    scale = mean * (exponent - 1)

    def draw(rng: Random) -> int:
        length = cap + 1
        while length > cap:
            length = 1 + int(scale * ((1 - rng.random()) ** (-1 / exponent) - 1))
        return length

    return draw


def heavy(n: int, seed: int = 0) -> list[Planned]:
    """`n` requests, all at second 0, prompts and answers by one power law with about 260 tokens on average.

    Llumnix draws its lengths from power laws too; their exponents are not known here.
    """
    law = power_law(mean=310, exponent=1.5, cap=MOST)
    drawn = synthetic(2 * n + 20, seed, prompt=law, output=law)
    return [one for one in drawn if one.prompt_tokens + one.output_tokens <= LONGEST][:n]


def preemption_tail(requests: int = 2000, seed: int = 0) -> Headline:
    """Share of requests preempted, and P99 / P50 of seconds a token, by the mean use of the pool under vLLM V0.

    A Llama-2-7B on an A10 of 24 GB, at several rates for a heavy tail of lengths and for ShareGPT-like ones. What is
    read off at 62 % lies on the line between two of them. About a minute on one core.
    """
    cost = Roofline(Deployment(A10, "Llama-2-7B"))
    rows = []
    for lengths, drawn in ((HEAVY, heavy(requests, seed)), (SHAREGPT, sharegpt_like(requests, seed))):
        for rate in RATES[lengths]:
            trace = serve("vllm-v0", arriving(drawn, rate, seed), cost, cost.deployment.kv_tokens, LONGEST)
            rows.append({"lengths": lengths, "rate": rate, **_numbers(trace)})
    at = {(lengths, what): _at_use(rows, lengths, what) for lengths in RATES for what in ("preempted", "tail")}
    question = "Who is thrown out, and what does it cost, when memory is far from full on average?"
    return Headline("preemption_tail", question, tuple(rows), _findings(at), _sentence(at))


def _numbers(trace: StreamingTrace) -> dict[str, float]:
    """Seconds a token are those after the first, stalls included: TPOT."""
    used, _, capacity = trace.kv_always
    preempted = trace.column("preemptions") > 0
    per_token, longest = trace.column("tpot"), trace.itl.largest
    median, last = np.nanpercentile(per_token, [50, 99], method="inverted_cdf")
    return {
        "use": float(used / capacity),
        "preempted": float(preempted.mean()),
        "tail": float(last / median),
        "per_token_p50": float(median),
        "per_token_p99": float(last),
        "longest_gap": longest,
    }


def _at_use(rows: list[dict], lengths: str, what: str) -> float:
    """The number at a mean use of 62 %: where use, read along the rates, gets there."""
    mine = [row for row in rows if row["lengths"] == lengths]
    rate = crossing([(row["rate"], row["use"]) for row in mine], USE)
    return float(np.interp(rate, [row["rate"] for row in mine], [row[what] for row in mine]))


def _findings(at: dict[tuple[str, str], float]) -> tuple[Finding, ...]:
    why = "Lengths decide: with ShareGPT-like ones, whose longest are 2,048 tokens, it is {:.3g} at the same use."
    return (
        Finding(
            f"requests preempted at {USE:.0%} mean use, {HEAVY}",
            at[HEAVY, "preempted"],
            0.08,
            PAPER,
            why.format(at[SHAREGPT, "preempted"]),
        ),
        Finding(f"requests preempted at {USE:.0%} mean use, {SHAREGPT}", at[SHAREGPT, "preempted"]),
        Finding(
            f"P99 / P50 of seconds a token, {HEAVY}", at[HEAVY, "tail"], 3.8, PAPER, why.format(at[SHAREGPT, "tail"])
        ),
        Finding(f"P99 / P50 of seconds a token, {SHAREGPT}", at[SHAREGPT, "tail"]),
    )


def _sentence(at: dict[tuple[str, str], float]) -> str:
    return (
        f"With {USE:.0%} of the pool in use on average, {at[HEAVY, 'preempted']:.0%} of the requests are preempted "
        f"and one in a hundred takes {at[HEAVY, 'tail']:.1f} times as long a token as the median, if a few lengths "
        f"are very long; with ShareGPT-like ones {at[SHAREGPT, 'preempted']:.1%} and {at[SHAREGPT, 'tail']:.1f} times."
    )
