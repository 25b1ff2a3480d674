"""What each way of reserving K/V memory makes of one card: how many requests run, which rate it carries, what is used.

The vLLM paper (Kwon et al., SOSP 2023, arXiv 2309.06180), section 6.2, figures 2, 12 and 13: OPT-13B on an A100 of
40 GB with 12 GiB for K and V, 15,728 positions.
"""

import math
from dataclasses import replace

from minibatch.engine import Engine
from minibatch.headlines.base import FAR, Finding, Headline
from minibatch.headlines.curves import SLOW_HOST, arriving, crossing, serve
from minibatch.headlines.rates import saturated
from minibatch.memory.arithmetic import MODELS, GiB, tokens_that_fit
from minibatch.memory.waste import mean_split
from minibatch.schedulers.systems import system
from minibatch.simulate.cards import Deployment
from minibatch.simulate.executor import SimulatedExecutor
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.streaming import StreamingTrace
from minibatch.step import StepPlan
from minibatch.workload import Planned, alpaca_like, bare_requests, sharegpt_like

POSITIONS = tokens_that_fit(MODELS["OPT-13B"], 12 * GiB)
SLOTS = 512  # so many that memory alone decides
LABELS = {
    "triton": "static batch of 7",
    "orca-max": "Orca (Max)",
    "orca-pow2": "Orca (Pow2)",
    "orca-oracle": "Orca (Oracle)",
    "vllm-v0": "vLLM",
}
POLICIES = ("orca-max", "orca-pow2", "orca-oracle", "vllm-v0")
SHAREGPT, ALPACA = "ShareGPT-like, 2 requests/s", "Alpaca-like, 30 requests/s"
BATCHED = {SHAREGPT: (7.00, 9.81, 13.62, 30.42), ALPACA: (7.00, 43.24, 72.75, 132.44)}  # figure 13
SPLITS = {  # figure 2: token, reserved, internal, external and others; of vLLM's it gives the first alone
    "orca-max": (0.204, 0.133, 0.573, 0.089),
    "orca-pow2": (0.268, 0.179, 0.136, 0.416),
    "orca-oracle": (0.382, 0.252, 0.0, 0.366),
    "vllm-v0": (0.963, None, None, None),
}
KINDS = ("used", "reserved", "internal", "external")
BOUND = 0.1  # seconds a token: about four times what a request alone takes
SHARES = (0.4, 0.7, 0.85, 0.95, 1.05, 1.25, 1.5)  # of the saturated rate
PAPER = "vLLM paper, "


def card(host_seconds: float = 4e-3) -> Roofline:
    """OPT-13B on an A100 of 40 GB, with so much host work a step."""
    return replace(Roofline(Deployment("A100-40", "OPT-13B")), overhead=host_seconds)


def memory_policies(requests: int = 1000, seconds: float = 400, seed: int = 0) -> Headline:
    """Both questions of section 6.2 on one figure: `batched_requests` and `rates_at_equal_latency`.

    `requests` ShareGPT-like ones at 2 a second, six times as many Alpaca-like ones at 30; `seconds` of arrivals for a
    point of the latency curves. About a minute on one core.
    """
    batched, found = batched_requests(requests, seed)
    rates, rate_findings = rates_at_equal_latency(seconds, seed)
    question = "How many run at once, and what rate is carried, by how K/V memory is reserved?"
    ours = {
        row["system"]: row["batched"] for row in batched if row["workload"] == SHAREGPT and row["host"] == SLOW_HOST
    }
    gains = dict(zip(("oracle", "max", "static"), (finding.ours for finding in rate_findings)))
    sentence = (
        f"The same 12 GiB hold {ours['orca-max']:.1f} running requests if each gets room for 2,048 tokens, "
        f"{ours['orca-oracle']:.1f} if its length is known, and {ours['vllm-v0']:.1f} in blocks of 16; at {BOUND:g} s "
        f"a token blocks carry {gains['oracle']:.1f} times the oracle's rate, {gains['max']:.1f} times that of Max "
        f"and {gains['static']:.0f} times that of a static batch."
    )
    return Headline("memory_policies", question, (*batched, *rates), (*found, *rate_findings), sentence)


def batched_requests(requests: int = 1000, seed: int = 0) -> tuple[list[dict], list[Finding]]:
    """Sequences in a step that decodes, on average over the run, as in figure 13.

    Each policy once with our host work a step, and once with that of the time, `SLOW_HOST`.
    """
    loads = {
        SHAREGPT: arriving(sharegpt_like(requests, seed), 2, seed),
        ALPACA: arriving(alpaca_like(6 * requests, seed), 30, seed),
    }
    rows, findings = [], []
    for workload, planned in loads.items():
        for name, published in zip(POLICIES, BATCHED[workload]):
            ours, then = (_batched(name, workload, planned, host, published) for host in (card().overhead, SLOW_HOST))
            rows += [ours, then]
            what, source = f"{LABELS[name]}: batched requests, {workload}", PAPER + "figure 13"
            findings.append(Finding(what, ours["batched"], published, source, _why_batched(ours, then)))
    return rows, findings


class Decoding(StreamingTrace):
    """Counts those who decode together. V0 computes prompts in steps of their own, for which everybody else waits."""

    decodes = sequences = 0

    def record(self, plan: StepPlan, *rest: object, **more: object):
        """As ever, and one step more if somebody decodes in it."""
        if any(chunk.start >= len(chunk.sequence.request.prompt) for chunk in plan.chunks):
            self.decodes += 1
            self.sequences += len(plan.chunks)
        return super().record(plan, *rest, **more)


def _batched(name: str, workload: str, planned: list[Planned], host: float, published: float) -> dict:
    scheduler = system(name).build(POSITIONS, 2048, events=False, max_num_seqs=SLOTS)
    trace = Decoding.of(scheduler)
    Engine(scheduler, SimulatedExecutor(card(host), 2048), trace=trace).run(bare_requests(planned))
    return {
        "part": "batched",
        "workload": workload,
        "system": name,
        "label": LABELS[name],
        "host": host,
        "batched": trace.sequences / trace.decodes,
        "published": published,
        "per_token": summary(trace).per_token_mean,
        "preemptions": trace.preemptions,
    }


def _why_batched(ours: dict, then: dict) -> str:
    if abs(ours["batched"] / ours["published"] - 1) <= FAR:
        return ""
    return (
        "Hardly anybody waits for memory here, so what runs is rate x time of an answer, and our steps are shorter "
        f"than theirs: with {1e3 * then['host']:.0f} ms of host work a step instead of {1e3 * ours['host']:.0f} it is "
        f"{then['batched']:.1f}. The same {1e3 * then['host']:.0f} ms explain goodput_both_ways."
    )


def rates_at_equal_latency(seconds: float = 400, seed: int = 0) -> tuple[list[dict], list[Finding]]:
    """Mean of E2E / output tokens against the rate, ShareGPT-like, and the rates at which each system reaches `BOUND`.

    The static batch is FasterTransformer's of the paper: the earliest requests, as many as the memory holds whole.
    Every point has arrivals for as many `seconds`, so that a queue has the same time to grow.
    """
    rows, at = [], {}
    for name, label in LABELS.items():
        knobs = {} if name == "triton" else {"max_num_seqs": SLOTS}
        most = saturated(sharegpt_like(400, seed), lambda name=name: system(name).build(POSITIONS, 2048), card())
        curve = []
        for rate in (share * most for share in SHARES):
            planned = arriving(sharegpt_like(math.ceil(rate * seconds), seed), rate, seed)
            curve.append((rate, summary(serve(name, planned, card(), POSITIONS, **knobs)).per_token_mean))
        at[name] = crossing(curve, BOUND)
        rows += [{"part": "rates", "system": name, "label": label, "rate": x, "per_token": y} for x, y in curve]
    ranges = {"orca-oracle": (1.7, 2.7), "orca-max": (2.7, 8.0), "triton": (1.0, 22.0)}
    source = PAPER + "section 6.2, over three models and two workloads"
    findings = [
        Finding(f"vLLM / {LABELS[name]}, rates at {BOUND:g} s a token", at["vllm-v0"] / at[name], published, source)
        for name, published in ranges.items()
    ]
    rows += [{"part": "at bound", "system": name, "label": LABELS[name], "rate": rate} for name, rate in at.items()]
    return rows, findings


def kv_use(requests: int = 600, rate: float = 2.0, skip: int = 500, seed: int = 0) -> Headline:
    """Figure 2: what the K/V pool holds while requests wait, `requests` ShareGPT-like ones, after `skip` steps.

    With the host work of the time (`SLOW_HOST`), for with ours vLLM has no queue at 2 requests/s. Ten seconds on one
    core.
    """
    planned, rows, findings = arriving(sharegpt_like(requests, seed), rate, seed), [], []
    for name in POLICIES:
        trace = serve(name, planned, card(SLOW_HOST), POSITIONS, whole=True, max_num_seqs=SLOTS)
        split, published = mean_split(trace.kept, skip), SPLITS[name]
        theirs = {f"published_{kind}": share for kind, share in zip(KINDS, published)}
        rows.append({"system": name, "label": LABELS[name], **split._asdict(), **theirs})
        findings += _use_findings(LABELS[name], split._asdict(), dict(zip(KINDS, published)))
    used = {row["system"]: 100 * row["used"] for row in rows}
    sentence = (
        f"Of the memory that requests wait for, {used['orca-max']:.0f} % holds a token if everyone gets room for the "
        f"longest, {used['orca-oracle']:.0f} % even if lengths were known, {used['vllm-v0']:.0f} % in blocks of 16."
    )
    return Headline(
        "kv_use", "What does the K/V pool hold while requests wait for it?", tuple(rows), tuple(findings), sentence
    )


def _use_findings(label: str, ours: dict[str, float], published: dict[str, float | None]) -> list[Finding]:
    """All four kinds where the paper gives them; shares of the pool."""
    source, found = PAPER + "figure 2", []
    for kind in KINDS:
        if published[kind] is None:
            continue
        if not published[kind]:
            found.append(Finding(f"{label}: {kind}", ours[kind]))
        else:
            found.append(Finding(f"{label}: {kind}", ours[kind], published[kind], source))
    return found
