"""Headline 11: every system of the table on Azure's two traces, at the recorded load and at its limit. Notebook 09."""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace

from minibatch.headlines.base import Finding, Headline
from minibatch.schedulers.systems import SYSTEMS
from minibatch.simulate.limit import Limit, operating_limits
from minibatch.simulate.scenario import Scenario
from minibatch.simulate.sweep import run_all

CARD, MODEL = "H100", "Llama-3-8B"  # one card on which a server of today bears both traces as recorded
TARGETS = "ttft_p95=2,itl_p99=0.1"
TRACES = ("azure-conv", "azure-code")
MORE = 4
H100_BUDGET = (("token_budget", 8192),)  # vLLM V1's default on this card; its row has that of an A100, 2,048
SHOWN = (
    "ttft_p50 ttft_p95 ttft_p99 itl_p99 e2e_p50 requests_per_second tokens_per_second queue_p95 peak_waiting kv_use "
    "kv_taken preemptions recomputed_tokens not_served"
).split()


def systems_on_traces(
    requests: int = 800,
    requests_of_limit: int = 400,
    systems: tuple[str, ...] = tuple(SYSTEMS),
    precision: float = 0.1,
    executor: Executor | None = None,
    progress: bool = False,
) -> Headline:
    """A row for each trace and system: the first `requests` at their recorded times, and the operating limit.

    The limit is that of the first `requests_of_limit`, stretched; of `MORE` times as many where these do not fill the
    server. `executor` as for `sweep.sweep`: the rows are the same whichever it is.
    """
    base = Scenario(card=CARD, model=MODEL, requests=requests)
    served = [replace(base, system=name) for name in systems] + [replace(base, knobs=H100_BUDGET)]
    each = [replace(one, trace=trace) for trace in TRACES for one in served]
    recorded = run_all(each, TARGETS, executor, progress)
    few = [replace(one, requests=requests_of_limit) for one in each]
    limits = operating_limits(few, TARGETS, executor, progress, precision=precision)
    more = [replace(one.scenario, requests=MORE * requests_of_limit) for one in limits if one.is_short]
    longer = iter(operating_limits(more, TARGETS, executor, progress, precision=precision))
    limits = [next(longer) if one.is_short else one for one in limits]
    rows = tuple(_row(row, limit) for row, limit in zip(recorded, limits))
    return Headline(
        name="systems_on_traces",
        question="What does each system make of the same hour of production, and how much more could it bear?",
        rows=rows,
        findings=tuple(_findings(rows)),
        sentence=_sentence(rows),
    )


def _row(recorded: dict, limit: Limit) -> dict:
    if recorded["error"]:
        raise RuntimeError(f"{recorded['system']} on {recorded['trace']}: {recorded['error']}")
    names = {name: recorded[name] for name in ("trace", "system", "knobs")}
    names["label"] = f"{names['system']}, {names['knobs']}" if names["knobs"] else names["system"]
    numbers = {name: recorded[name] for name in SHOWN}
    found = {
        "limit": limit.rate,
        "limit_requests": limit.scenario.requests,
        "why_not_more": limit.reason,
        "limit_bounded": limit.bounded,
        "targets": TARGETS,
    }
    return names | numbers | found


def _findings(rows: tuple[dict, ...]) -> Iterator[Finding]:
    """Nobody published these: the traces come without the servers' answers."""
    for row in rows:
        if row["system"] in ("triton", "vllm-v0", "vllm-v1"):
            yield Finding(f"{row['trace']}, {row['label']}: TTFT p95, s", row["ttft_p95"])
            yield Finding(f"{row['trace']}, {row['label']}: limit, /s", row["limit"])


def _sentence(rows: tuple[dict, ...]) -> str:
    said = []
    for trace in TRACES:
        best = max((row for row in rows if row["trace"] == trace), key=lambda row: row["limit"])
        said.append(f"{best['limit']:.3g} requests/s of {trace} ({best['label']})")
    return (
        f"One {CARD} with {MODEL} carries up to {' and '.join(said)} within {TARGETS}. Who decides anew at every step "
        "differs by the longest step it allows, which is a setting: see vLLM V1 with 8,192 tokens in a step instead of "
        "2,048. Who waits for a batch to end differs by the queue."
    )
