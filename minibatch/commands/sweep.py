"""What load does each system carry within latency targets? Simulated, on a card and a trace of your choice."""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

from minibatch.commands.names import canonical, knobs_of, systems_of
from minibatch.memory.arithmetic import MODELS
from minibatch.simulate import CARDS, Deployment
from minibatch.simulate.limit import Limit, limit_among, operating_limits
from minibatch.simulate.rows import write_csv
from minibatch.simulate.scenario import TRACES, Scenario
from minibatch.simulate.slo import SLO
from minibatch.simulate.sweep import run_all

HEADS = ("system", "limit", "tokens/s", "TTFT p95", "ITL p99", "KV use", "preempted", "why not more")
REQUESTS = 500  # of the trace: about a minute on two cores for all systems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sweep`."""
    parser.add_argument("--trace", default="azure-conv", help=f"{', '.join(TRACES)} (default azure-conv)")
    parser.add_argument("--gpu", default="A100-80", metavar="CARD", help=f"{', '.join(CARDS)} (default A100-80)")
    parser.add_argument("--model", default="Llama-3-8B", help=f"{', '.join(MODELS)} (default Llama-3-8B)")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="cards (default 1)")
    parser.add_argument("--slo", default="ttft_p95=2,itl_p99=0.2", help="seconds (default ttft_p95=2,itl_p99=0.2)")
    parser.add_argument("--systems", metavar="A,B", help="of `python -m minibatch systems` (default: all)")
    parser.add_argument("--rates", metavar="R,R", help="try these loads, requests/s, instead of a search")
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"the first so many (default {REQUESTS})")
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="a knob of those that have it")
    parser.add_argument("--seed", type=int, default=0, help="of traces that are drawn: sharegpt, alpaca")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep rows there, and do not run these again")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="folder for sweep.png and sweep.csv")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, draw. Ends with 1 if a simulation failed."""
    slo, scenarios = SLO.parse(arguments.slo), _scenarios(arguments)
    rates = _rates(arguments.rates) if arguments.rates else None
    if arguments.jobs is not None and arguments.jobs < 1:
        raise ValueError(f"--jobs {arguments.jobs}: must be at least 1")
    with _pool(arguments.jobs) as pool:
        if rates:
            rows = run_all([one.at(rate) for one in scenarios for rate in rates], slo, pool, resume=arguments.resume)
            each = [rows[i : i + len(rates)] for i in range(0, len(rows), len(rates))]
            limits = [limit_among(one, slo, found) for one, found in zip(scenarios, each)]
        else:
            limits = operating_limits(scenarios, slo, pool, resume=arguments.resume)
    files = _files(arguments, limits)
    if arguments.json:
        print(json.dumps(_as_json(limits), indent=1))
    else:
        print(_report(arguments, scenarios, limits))
        print(*files, sep="\n")
    return 1 if any(row["error"] for limit in limits for row in limit.rows) else 0


def _scenarios(arguments: argparse.Namespace) -> list[Scenario]:
    systems = systems_of(arguments.systems)
    knobs = knobs_of(arguments.set, systems)
    card = canonical("--gpu", arguments.gpu, CARDS)
    model = canonical("--model", arguments.model, MODELS)
    trace = canonical("--trace", arguments.trace, TRACES)
    if arguments.requests < 2:
        raise ValueError(f"--requests {arguments.requests}: a load needs at least 2")
    fixed = (card, model, arguments.tensor_parallel, trace, None, arguments.requests, arguments.seed)
    return [Scenario(name, *fixed, knobs=knobs[name]) for name in systems]


def _rates(text: str) -> list[float]:
    try:
        return sorted({float(part) for part in text.split(",")})
    except ValueError as error:
        raise ValueError(f"--rates {text!r}: write it as in 1,2,4 (requests/s)") from error


def _pool(jobs: int | None):
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) if jobs else nullcontext()


def _report(arguments: argparse.Namespace, scenarios: list[Scenario], limits: list[Limit]) -> str:
    one, planned = scenarios[0], scenarios[0].planned()
    deployment = Deployment(one.card, one.model, one.tensor_parallel)
    cards = f"{one.tensor_parallel} x {one.card}" if one.tensor_parallel > 1 else one.card
    head = [
        f"{one.model} on {cards}, simulated: room for {deployment.kv_tokens:,} K/V positions",
        f"{one.trace}, its first {len(planned):,} requests, their arrivals stretched to each load",
        f"targets {limits[0].slo}, in seconds; a limit is the highest load, in requests/s, that meets them",
        *_settings(scenarios),
        "",
        _cells(*HEADS),
    ]
    return "\n".join(head + [_row(limit) for limit in limits])


def _settings(scenarios: list[Scenario]) -> list[str]:
    """What `--set` set, and for whom."""
    by_knob: dict[tuple, list[str]] = {}
    for one in scenarios:
        for pair in one.knobs:
            by_knob.setdefault(pair, []).append(one.system)
    return [f"{name}={value!r} for {', '.join(systems)}" for (name, value), systems in by_knob.items()]


def _row(limit: Limit) -> str:
    at, name = limit.at, limit.scenario.system
    if at is None:
        return _cells(name, "none", *[""] * 5, limit.reason)
    rate = f"{'' if limit.bounded else '>'}{limit.rate:.3g}/s"
    use = "-" if at["kv_use"] is None else f"{at['kv_use']:.0%}"
    latency = (_seconds(at["ttft_p95"]), _seconds(at["itl_p99"]))
    return _cells(name, rate, _count(at["tokens_per_second"]), *latency, use, at["preempted_requests"], limit.reason)


def _cells(name: str, *values: object) -> str:
    """A line of the table; the last cell, the reason, is as long as it is."""
    *numbers, reason = values
    return f"{name:23}" + "".join(f"{value:>10}" for value in numbers) + f"  {reason}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} s"


def _as_json(limits: list[Limit]) -> dict:
    found = [
        {
            "system": one.scenario.system,
            "rate": one.rate,
            "bounded": one.bounded,
            "reason": one.reason,
            "rows": one.rows,
        }
        for one in limits
    ]
    return {"slo": limits[0].slo, "limits": found}


def _files(arguments: argparse.Namespace, limits: list[Limit]) -> list[Path]:
    from minibatch.plot import save
    from minibatch.plot.sweep import Line, sweep_curves

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture, table = arguments.out / "sweep.png", arguments.out / "sweep.csv"
    write_csv((row for limit in limits for row in limit.rows), table)
    one = limits[0].scenario
    lines = [Line(each.scenario.system, each.rate, each.rows) for each in limits]
    title = f"{one.model} on {one.card}, {one.trace}, {len(one.planned()):,} requests; targets {limits[0].slo}"
    save(sweep_curves(lines, limits[0].slo, title), picture, dpi=110)
    return [picture, table]
