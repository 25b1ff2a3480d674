"""One word, two numbers: good requests a second at a load, and the highest load at which nine in ten are good.

The first is what vLLM's and GenAI-Perf's benchmarks print. The second is DistServe's (Zhong et al., OSDI 2024, arXiv
2401.09670), whose figure 1 says what sharing a card costs: a 13B on an A100 of 80 GB, 512 tokens in and 64 out, TTFT
within 0.4 s and TPOT within 0.04 s for 90 % of the requests.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from minibatch.headlines.base import FAR, Finding, Headline
from minibatch.headlines.curves import SLOW_HOST, arriving, crossing, serve
from minibatch.simulate.cards import Deployment
from minibatch.simulate.result import attainment, goodput
from minibatch.simulate.roofline import Roofline
from minibatch.step import StepPlan
from minibatch.workload import Planned, equal, sharegpt_like, synthetic

ENOUGH = 0.9  # share of requests within both targets
SLOW_FLOPS = 0.43  # of the peak, instead of 0.55; found like SLOW_HOST: prompts alone then carry the published 5.6/s
FIGURE_1, CHAT = "512 in, 64 out", "ShareGPT-like chat"
TARGETS = {FIGURE_1: (0.4, 0.04), CHAT: (0.2, 0.1)}  # TTFT, TPOT in seconds; chat: DistServe's table 1, OPT-13B
RATES = {
    FIGURE_1: (1.0, 2.0, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0),
    CHAT: (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
}
PAPER = "DistServe, figure 1"


class DecodesAlone(Roofline):
    """A card that gets K and V of every prompt ready made: it decodes, and prompts cost it nothing."""

    def seconds(self, plan: StepPlan) -> float:
        """A step of those who decode."""
        positions = [start + 1 for _, _, start, count in plan.rows if count == 1]
        return self.computing(len(positions), sum(positions), sum(positions)) if positions else 0.0


def goodput_both_ways(requests: int = 1500, seconds: float = 240, seed: int = 0) -> Headline:
    """Both numbers against the rate under vLLM V0, OPT-13B on an A100 of 80 GB, for figure 1's requests and for chat.

    `requests` a point of the first; `seconds` of arrivals a point of the chat. About a minute on one core.
    """
    cost = Roofline(Deployment("A100-80", "OPT-13B"))
    workloads: dict[str, Callable[[float], list[Planned]]] = {
        FIGURE_1: lambda rate: arriving(figure_1(requests), rate, seed),
        CHAT: lambda rate: arriving(sharegpt_like(math.ceil(rate * seconds), seed), rate, seed),
    }
    rows = [_row(name, rate, planned(rate), cost) for name, planned in workloads.items() for rate in RATES[name]]
    best = {name: _highest(rows, name) for name in workloads}
    findings = (
        *_figure_1_findings(best[FIGURE_1], requests, seed),
        _chat_finding(best[CHAT]),
        *_disagreement(rows, best),
    )
    question = "What load can this card carry? Two numbers that are both called goodput"
    return Headline("goodput_both_ways", question, tuple(rows), findings, _sentence(rows, best))


def figure_1(requests: int, output: int = 64) -> list[Planned]:
    """512 tokens in, and so many out."""
    return synthetic(requests, prompt=equal(512), output=equal(output))


def _row(workload: str, rate: float, planned: list[Planned], cost: Roofline) -> dict:
    ttft, tpot = TARGETS[workload]
    trace = serve("vllm-v0", planned, cost, cost.deployment.kv_tokens)
    return {
        "workload": workload,
        "rate": rate,
        "attained": attainment(trace, ttft, tpot),
        "goodput": goodput(trace, ttft, tpot),
        "ttft_p90": trace.percentile("ttft", 90),
        "tpot_p90": trace.percentile("tpot", 90),
    }


def _highest(rows: list[dict], workload: str) -> float:
    return crossing([(row["rate"], row["attained"]) for row in rows if row["workload"] == workload], ENOUGH)


def limit(cost: Roofline, planned: list[Planned], low: float = 0.25, high: float = 32.0, seed: int = 0) -> float:
    """DistServe's goodput for figure 1's targets, by bisection to 3 %: requests a second. 0 if `low` is too many."""
    least = low
    while high > 1.03 * low:
        rate = (low * high) ** 0.5
        trace = serve("vllm-v0", arriving(planned, rate, seed), cost, cost.deployment.kv_tokens)
        low, high = (rate, high) if attainment(trace, *TARGETS[FIGURE_1]) >= ENOUGH else (low, rate)
    return low if low > least else 0.0


def _figure_1_findings(shared: float, requests: int, seed: int) -> list[Finding]:
    """Sharing, prompts alone, decodes alone: ours, and with the slower machine that their numbers speak of."""
    deployment = Deployment("A100-80", "OPT-13B")
    whole, prompts = figure_1(requests), figure_1(requests, output=1)
    slow = replace(Roofline(deployment), overhead=SLOW_HOST, flops_share=SLOW_FLOPS)
    ours = (
        shared,
        limit(Roofline(deployment), prompts, seed=seed),
        limit(DecodesAlone(deployment), whole, seed=seed),
    )
    theirs = (
        limit(replace(slow, flops_share=0.55), whole, seed=seed),
        limit(slow, prompts, seed=seed),
        limit(DecodesAlone(deployment, overhead=SLOW_HOST), whole, seed=seed),
    )
    changed = (
        f"{1e3 * SLOW_HOST:.0f} ms of host work a step instead of 4",
        f"the same, and {SLOW_FLOPS:.0%} of the peak in prompts instead of 55 %,",
        f"{1e3 * SLOW_HOST:.0f} ms of host work",
    )
    names = ("prompts and decodes on one card", "prompts alone", "decodes alone")
    return [
        Finding(f"{name}: highest rate, 512 in, 64 out", here, published, PAPER, _why(here, published, change, there))
        for name, here, published, change, there in zip(names, ours, (1.6, 5.6, 10.0), changed, theirs)
    ]


def _why(ours: float, published: float, change: str, there: float) -> str:
    if abs(ours / published - 1) <= FAR:
        return ""
    rest = "" if abs(there / published - 1) <= FAR else " The rest we cannot account for."
    return f"Our machine is quicker than theirs: with {change} the rate is {there:.1f}.{rest}"


def _chat_finding(best: float) -> Finding:
    return Finding(f"chat within 0.2 s and 0.1 s: highest rate with {ENOUGH:.0%}", best)


def _disagreement(rows: list[dict], best: dict[str, float]) -> list[Finding]:
    found = []
    for name in best:
        most = max((row for row in rows if row["workload"] == name), key=lambda row: row["goodput"])
        found.append(Finding(f"{name}: most good requests/s at any load", most["goodput"]))
        found.append(Finding(f"{name}: share that is good at that load ({most['rate']:g}/s)", most["attained"]))
    return found


def _sentence(rows: list[dict], best: dict[str, float]) -> str:
    mine = [row for row in rows if row["workload"] == FIGURE_1]
    over = next(row for row in mine if row["rate"] > 1.1 * best[FIGURE_1])
    same = min(
        (row for row in mine if row["attained"] >= ENOUGH), key=lambda row: abs(row["goodput"] - over["goodput"])
    )
    return (
        f"At a load of {over['rate']:g}/s there are {over['goodput']:.1f} good requests a second, about as many as at "
        f"{same['rate']:g}/s ({same['goodput']:.1f}); but there {1 - over['attained']:.0%} of the requests miss a "
        f"target, here {1 - same['attained']:.0%}. DistServe's goodput tells the two apart: {best[FIGURE_1]:.1f}/s, "
        f"the highest load at which at most {1 - ENOUGH:.0%} do."
    )
