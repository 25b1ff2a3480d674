"""What a long prompt does to the gaps between everybody else's tokens, and what cutting it into chunks does about it.

Sarathi-Serve (Agrawal et al., OSDI 2024, arXiv 2403.02310): Mistral-7B on one A100 of 80 GB for the capacities, Yi-34B
on two for the parts. TBT, time between tokens, is our ITL.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.curves import arriving, crossing
from minibatch.memory import PagedMemory
from minibatch.memory.arithmetic import ModelSpec
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.mix import Chunked, Mix, PrefillFirst, WholePrefills, _decodes
from minibatch.simulate.cards import Deployment
from minibatch.simulate.result import Result, summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import replay
from minibatch.workload import Planned, bare_requests, lognormal, synthetic

MISTRAL = ModelSpec(32, 8, 128, 7.242e9, heads=32)  # v0.2, whose attention sees everything
YI = ModelSpec(60, 8, 128, 34.39e9, heads=56)
LONGEST = 8192  # tokens of a request
SLOTS = 128  # as in the paper's own runs
STRICT, RELAXED = 0.1, 0.5  # seconds, of the P99 of TBT: 5 and 25 times a decode step
PATIENCE = 2.0  # seconds of queueing that the median may have
BUSY = 3.0  # requests/s, at which the sentence looks
RATES = (0.3, 0.6, 0.9, 1.2, 1.8, 2.4, 3.0, 3.4, 3.8, 4.2)  # requests/s
PAPER = "Sarathi-Serve, "
PENALTY = 1.15  # what small chunks cost Sarathi-Serve's kernels beyond what a roofline knows: 1.19 / 1.04
WHOLE, FINE = "prompts first", "chunked, 512"
MIXES: dict[str, Callable[[], Mix]] = {
    WHOLE: lambda: PrefillFirst(LONGEST),
    "whole, mixed": WholePrefills,
    "chunked, 2,048": lambda: Chunked(2048),
    FINE: lambda: Chunked(512),
}
Curve = list[tuple[float, Result]]  # by rate


@dataclass
class Alternating:
    """A chunk of prompts, then a decode of everyone, in turn: chunks without mixing, the ablation's third policy."""

    token_budget: int = 512
    chunk_cap = None
    decodes_next: bool = field(default=False, init=False)

    def fill(self, draft: Draft) -> None:
        """Prompts if it is their turn and there are any, else a decode."""
        if not (self.decodes_next and any(map(_decodes, draft.running))):
            for sequence in draft.running:
                if not _decodes(sequence):
                    draft.compute(sequence)
            while not draft.preempted and draft.admit():
                pass
        self.decodes_next = bool(draft.chunks)
        if not draft.chunks:
            draft.budget = len(draft.running)
            for sequence in filter(_decodes, draft.running):
                draft.compute(sequence)


def openchat_like(n: int, seed: int = 0) -> list[Planned]:
    """`n` requests, all at second 0, with lengths like those of openchat_sharegpt4 in the paper's table 2.

    It gives medians of 1,730 tokens in and 415 out and ninetieth percentiles of 5,696 and 834: log-normal lengths
    with these. None above 8,192 tokens in all, as there.
    """
    prompt, output = lognormal(1730, 0.930, cap=LONGEST), lognormal(415, 0.545, cap=LONGEST)
    drawn = synthetic(2 * n + 20, seed, prompt=prompt, output=output)
    return [one for one in drawn if one.prompt_tokens + one.output_tokens <= LONGEST][:n]


def chunked(requests: int = 450, ablation_requests: int = 128, seeds: tuple[int, ...] = (0, 1, 2, 3)) -> Headline:
    """P99 of TBT against the rate for four mixes, the rates they carry within two limits, and the paper's ablation.

    `requests` a point. The ablation is the paper's: 128 requests at 1 a second, chunks of 512; ours is the mean over
    seeds. About a minute on one core.
    """
    curves = {name: _curve(mix, requests) for name, mix in MIXES.items()}
    capacity = {(name, limit): _capacity(curves[name], limit) for name in MIXES for limit in (STRICT, RELAXED)}
    dearer = _capacity(_curve(MIXES[FINE], requests, PENALTY, RATES[5:]), STRICT)
    parts = ablation(ablation_requests, seeds)
    rows = [
        {"part": "curve", "mix": name, "rate": rate, **_times(found)}
        for name, curve in curves.items()
        for rate, found in curve
    ]
    rows += [
        {"part": "capacity", "mix": name, "limit": limit, "rate": rate} for (name, limit), rate in capacity.items()
    ]
    rows += [{"part": "ablation", "mix": name, **times} for name, times in parts.items()]
    findings = (*_capacities(capacity, dearer), *_ablation_findings(parts), _chunk_finding())
    question = "How long are the gaps between tokens while others' prompts are computed?"
    return Headline("chunked", question, tuple(rows), findings, _sentence(rows, capacity))


def _curve(mix: Callable[[], Mix], requests: int, penalty: float = 1.0, rates: Sequence[float] = RATES) -> Curve:
    """Mistral-7B on one card at each rate; a `penalty` above 1 makes all its arithmetic so much slower."""
    cost = Roofline(Deployment("A100-80", MISTRAL))
    cost = replace(cost, flops_share=cost.flops_share / penalty)
    return [(rate, _run(cost, mix(), requests, rate, 0)) for rate in rates]


def _run(cost: Roofline, mix: Mix | Alternating, requests: int, rate: float, seed: int) -> Result:
    memory = PagedMemory(cost.deployment.kv_tokens // 16, 16, events=False)
    planned = arriving(openchat_like(requests, seed), rate, seed)
    scheduler = IterationScheduler(SLOTS, memory, mix=mix)
    return summary(replay(bare_requests(planned), scheduler, cost, max_model_len=LONGEST))


def _times(found: Result) -> dict[str, float]:
    return {
        "ttft_p50": found.ttft_p50,
        "itl_p50": found.itl_p50,
        "itl_p99": found.itl_p99,
        "queue_p50": found.queue_p50,
    }


def _capacity(curve: Curve, limit: float) -> float:
    """Where the P99 of TBT passes the limit or the median queueing time two seconds, whichever comes first."""
    return crossing([(rate, max(found.itl_p99 / limit, found.queue_p50 / PATIENCE)) for rate, found in curve], 1.0)


def ablation(requests: int, seeds: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Median TTFT and P99 of TBT, in seconds, with mixing alone, chunks alone and both; means over seeds."""
    mixes = {"mixing only": lambda: Chunked(LONGEST), "chunks only": Alternating, "both": lambda: Chunked(512)}
    cost = Roofline(Deployment("A100-80", YI, 2))
    found = {name: [_run(cost, mix(), requests, 1.0, seed) for seed in seeds] for name, mix in mixes.items()}
    return {
        name: {key: fmean(getattr(each, key) for each in runs) for key in ("ttft_p50", "itl_p99")}
        for name, runs in found.items()
    }


def overhead(chunk: int, prompt: int = 4096) -> float:
    """How much longer a prompt of Yi-34B takes in chunks than at once, alone on the cards, as a share."""
    cost = Roofline(Deployment("A100-80", YI, 2))
    starts = range(0, prompt, chunk)
    pieces = (cost.computing(chunk, start + chunk, start * chunk + chunk * (chunk + 1) // 2) for start in starts)
    return sum(pieces) / cost.computing(prompt, prompt, prompt * (prompt + 1) // 2) - 1


def _capacities(capacity: dict[tuple[str, float], float], dearer: float) -> list[Finding]:
    whole = capacity[WHOLE, STRICT]
    why = (
        f"Small chunks cost them more than us: a prompt of 4,096 takes 19 % longer in chunks of 512 there, "
        f"{100 * overhead(512):.0f} % here. With {100 * PENALTY - 100:.0f} % more for every chunk the ratio is "
        f"{dearer / whole:.1f}."
    )
    return [
        Finding(
            f"rate within {STRICT:g} s: chunks of 512 / prompts first",
            capacity[FINE, STRICT] / whole,
            (2.15, 3.5),
            PAPER + "figures 10 and 12, Mistral-7B",
            why,
        ),
        Finding(
            f"rate within {RELAXED:g} s: chunks of 2,048 / prompts first",
            capacity["chunked, 2,048", RELAXED] / capacity[WHOLE, RELAXED],
            1.65,
            PAPER + "figure 12, there Yi-34B within 1 s",
        ),
    ]


def _ablation_findings(parts: dict[str, dict[str, float]]) -> list[Finding]:
    published = {"mixing only": (0.53, 0.68), "chunks only": (1.04, 0.17), "both": (0.76, 0.14)}
    source = PAPER + "table 4, Yi-34B on two A100"
    found = []
    for name, (ttft, tbt) in published.items():
        found.append(Finding(f"{name}: median TTFT, s", parts[name]["ttft_p50"], ttft, source))
        found.append(Finding(f"{name}: P99 of TBT, s", parts[name]["itl_p99"], tbt, source))
    return found


def _chunk_finding() -> Finding:
    return Finding(
        "a prompt of 4,096 in chunks of 512: share of time added",
        overhead(512),
        0.19,
        PAPER + "figure 14; osdi-experiments/figure-9/chunking-overhead.csv of microsoft/sarathi-serve",
        "Ours is what a roofline knows: K and V read again, and one overhead a chunk. Kernels also reach less of the "
        "peak for 512 tokens than for 4,096, and less again where a chunk does not fill its tiles (257 tokens took "
        "32 % longer than 256). No such loss is modelled; of the 19 % it is all but what stands here.",
    )


def _sentence(rows: list[dict], capacity: dict[tuple[str, float], float]) -> str:
    whole, fine = (
        next(row for row in rows if row.get("mix") == mix and row.get("rate") == BUSY) for mix in (WHOLE, FINE)
    )
    return (
        f"At {BUSY:g} requests/s one gap in a hundred is longer than {whole['itl_p99']:.2f} s if prompts are computed "
        f"first and whole, and than {fine['itl_p99']:.2f} s in chunks of 512, which let the median first token wait "
        f"{fine['ttft_p50'] - whole['ttft_p50']:.2f} s longer; within {STRICT:g} s chunks carry "
        f"{capacity[FINE, STRICT] / capacity[WHOLE, STRICT]:.1f} times the rate."
    )
