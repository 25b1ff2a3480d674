"""Serve the same requests through several batchers: one table, the pictures, the same texts."""

import argparse
import dataclasses
import hashlib
import json
from pathlib import Path
from random import Random

from tqdm import tqdm

from minibatch.build import build_engine
from minibatch.metrics import Summary, summarise, too_few
from minibatch.request import Request
from minibatch.schedulers import SCHEDULERS
from minibatch.trace import Trace
from minibatch.workload import chat_prompts, poisson

# (heading, width, how to print it) of the table's columns
COLUMNS = [
    ("batcher", 10, lambda row: row.scheduler),
    ("tokens/s", 9, lambda row: f"{row.tokens_per_second:.0f}"),
    ("live slots", 11, lambda row: f"{row.mean_live_slots:.1f}"),
    ("dead slot-steps", 16, lambda row: str(row.dead_slot_steps)),
    ("steps", 6, lambda row: str(row.steps)),
    ("TTFT p50", 9, lambda row: _seconds(row.ttft_p50)),
    ("p95", 6, lambda row: _seconds(row.ttft_p95)),
    ("E2E p50", 8, lambda row: _seconds(row.e2e_p50)),
    ("p95", 6, lambda row: _seconds(row.e2e_p95)),
    ("n", 4, lambda row: str(row.n)),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--schedulers", nargs="+", default=list(SCHEDULERS), choices=list(SCHEDULERS), metavar="NAME")
    parser.add_argument("--requests", type=int, default=24, help="how many prompts, 1 to 24 (default 24)")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--max-num-seqs", type=int, default=8, help="slots (default 8)")
    parser.add_argument("--rate", type=float, help="Poisson arrivals a second (default: all arrive at once)")
    parser.add_argument("--reserve", default="max", help="K/V region of a sequence: max, pow2 or exact")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="folder for the pictures")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Serve, print, draw. Ends with 1 if the texts differ."""
    from minibatch.model import load_model

    prompts = chat_prompts("tiny" if arguments.model == "tiny" else "smollm2")
    if not 1 <= arguments.requests <= len(prompts):
        raise ValueError(f"--requests {arguments.requests}: must be between 1 and {len(prompts)}")
    if arguments.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={arguments.max_new_tokens}: must be at least 1")
    model = load_model(arguments.model, dtype=arguments.dtype)
    arrivals = [0.0] * len(prompts)
    if arguments.rate is not None:
        arrivals = poisson(arguments.rate)(Random(0), len(prompts))
    requests = [
        model.request(name, text, arrival, max_new_tokens=arguments.max_new_tokens)
        for (name, text), arrival in zip(prompts[: arguments.requests], arrivals)
    ]
    _serve(model, requests[:2], arguments, "iteration", short=True)  # first calls of a kernel are slow: not counted
    traces = [_serve(model, requests, arguments, scheduler) for scheduler in arguments.schedulers]
    texts = [
        {name: model.tokenizer.decode(record.tokens) for name, record in trace.requests.items()} for trace in traces
    ]
    same = all(text == texts[0] for text in texts)
    if arguments.json:
        print(json.dumps(_as_json(arguments, traces, texts), indent=1))
    else:
        _print_table(arguments, traces, same)
        for path in _draw(traces, arguments.out):
            print(path)
    return 0 if same else 1


def _serve(model, requests: list[Request], arguments: argparse.Namespace, scheduler: str, short: bool = False) -> Trace:
    """One run of one batcher, with a bar that counts finished requests."""
    longest = max(len(request.prompt) for request in requests) + arguments.max_new_tokens - 1
    engine = build_engine(model, scheduler, arguments.max_num_seqs, longest, arguments.reserve)
    if short:
        requests = [
            dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, max_new_tokens=2)) for r in requests
        ]
    with tqdm(total=len(requests), desc=f"{scheduler:>10}", unit="request", disable=short or None) as bar:
        return engine.run(requests, on_step=lambda record: bar.update(len(record.finished)))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _print_table(arguments: argparse.Namespace, traces: list[Trace], same: bool) -> None:
    rows = [summarise(trace) for trace in traces]
    print(
        f"{arguments.model} in {arguments.dtype}, {len(traces[0].requests)} requests, {arguments.max_num_seqs} slots;"
    )
    print("seconds from arrival; tokens are output tokens of finished requests")
    print()
    print("".join(f"{heading:>{width + 1}}" for heading, width, _ in COLUMNS))
    for row in rows:
        print("".join(f"{cell(row):>{width + 1}}" for _, width, cell in COLUMNS))
    print()
    for line in _remarks(arguments, rows, same):
        print(line)


def _remarks(arguments: argparse.Namespace, rows: list[Summary], same: bool) -> list[str]:
    """What the table cannot say by itself."""
    by_name = {row.scheduler: row for row in rows}
    lines = ["The texts are identical." if same else "THE TEXTS DIFFER: in float32, that is a defect."]
    if {"static", "iteration"} <= by_name.keys():
        static, iteration = by_name["static"], by_name["iteration"]
        lines.append(
            f"Iteration-level scheduling took {iteration.steps} steps where the static batch took {static.steps} "
            f"({static.steps / iteration.steps:.2f}x), and {iteration.dead_slot_steps} dead slot-steps "
            f"against {static.dead_slot_steps}."
        )
    if arguments.rate is None and "dynamic" in by_name:
        lines.append("All requests arrive at once, so the dynamic batcher's window hardly matters; try --rate 2.")
    if too_few(rows[0].n, 95):
        lines.append(f"With n={rows[0].n}, p95 is simply the slowest request.")
    return lines


def _draw(traces: list[Trace], folder: Path) -> list[Path]:
    """All batchers on one axis of steps, and on one of seconds."""
    from minibatch.plot import save, slots

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for axis in ("steps", "seconds"):
        paths.append(folder / f"compare_{axis}.png")
        save(slots(traces, axis=axis), paths[-1])
    return paths


def _as_json(arguments: argparse.Namespace, traces: list[Trace], texts: list[dict[str, str]]) -> dict:
    fields = ("steps", "dead_slot_steps", "mean_live_slots", "useful_tokens", "seconds")
    fields += ("ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95", "n")
    runs = []
    for trace, text in zip(traces, texts):
        row = summarise(trace)
        digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
        run = {"scheduler": trace.scheduler, "memory": "contiguous"}
        runs.append(run | {field: getattr(row, field) for field in fields} | {"texts_sha256": digest})
    return {"model": arguments.model, "requests": len(traces[0].requests), "runs": runs}
