"""Serve the same requests through several batchers, or on two kinds of memory: one table, pictures, the same texts."""

import argparse
import dataclasses
import hashlib
import json
from pathlib import Path
from random import Random

from tqdm import tqdm

from minibatch.build import build_engine
from minibatch.commands.compare_report import draw, print_report
from minibatch.metrics import kv_use_while_waiting, summarise
from minibatch.request import Request
from minibatch.schedulers import SCHEDULERS
from minibatch.trace import Trace
from minibatch.workload import chat_prompts, poisson


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--native", action="store_true", help="operations compiled for this CPU: faster, needs g++")
    parser.add_argument(
        "--schedulers",
        nargs="+",
        choices=list(SCHEDULERS),
        metavar="NAME",
        help=f"of {', '.join(SCHEDULERS)} (default: all; with --memory paged: iteration)",
    )
    parser.add_argument("--requests", type=int, default=24, help="how many prompts, 1 to 24 (default 24)")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument(
        "--max-num-seqs",
        type=int,
        help="slots, each with a K/V region (default 8; with --memory paged 3, tiny 2: few, so that memory is short)",
    )
    parser.add_argument("--rate", type=float, help="Poisson arrivals a second (default: all arrive at once)")
    parser.add_argument("--reserve", default="max", help="K/V region of a sequence: max, pow2 or exact")
    parser.add_argument(
        "--memory",
        choices=["contiguous", "paged"],
        help="paged: each batcher on contiguous regions, then on as many positions in blocks, with a slot a request",
    )
    parser.add_argument(
        "--block-size",
        type=int,
        help="K/V positions of a block, with --memory paged (default 4, for these answers are short; servers take 16)",
    )
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="folder for pictures and traces")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Serve, print, draw. Ends with 1 if the texts differ."""
    from minibatch.model import load_model

    _settle(arguments)
    prompts = chat_prompts("tiny" if arguments.model == "tiny" else "smollm2")
    if not 1 <= arguments.requests <= len(prompts):
        raise ValueError(f"--requests {arguments.requests}: must be between 1 and {len(prompts)}")
    if arguments.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={arguments.max_new_tokens}: must be at least 1")
    model = load_model(arguments.model, arguments.dtype, native=arguments.native)
    arrivals = [0.0] * len(prompts)
    if arguments.rate is not None:
        arrivals = poisson(arguments.rate)(Random(0), len(prompts))
    requests = [
        model.request(name, text, arrival, max_new_tokens=arguments.max_new_tokens)
        for (name, text), arrival in zip(prompts[: arguments.requests], arrivals)
    ]
    memories = ["contiguous", "paged"] if arguments.memory == "paged" else ["contiguous"]
    _serve(model, requests[:2], arguments, "iteration", short=True)  # first calls of a kernel are slow: not counted
    traces = [_serve(model, requests, arguments, name, memory) for name in arguments.schedulers for memory in memories]
    texts = [
        {name: model.tokenizer.decode(record.tokens) for name, record in trace.requests.items()} for trace in traces
    ]
    same = all(text == texts[0] for text in texts)
    if arguments.json:
        print(json.dumps(_as_json(arguments, traces, texts), indent=1))
    else:
        position_bytes = model.config.kv_bytes_per_token * model.llama.dtype.itemsize // 4
        print_report(arguments, traces, same, position_bytes)
        for path in draw(arguments, traces):
            print(path)
        print(f"{arguments.out / 'compare_*.trace.json'}: the runs, for python -m minibatch player")
    return 0 if same else 1


def _settle(arguments: argparse.Namespace) -> None:
    """Put in what was not given and depends on the kind of memory."""
    paged = arguments.memory == "paged"
    if arguments.block_size is not None and not paged:
        raise ValueError(f"--block-size {arguments.block_size}: contiguous memory has no blocks; add --memory paged")
    if arguments.block_size is None:
        arguments.block_size = 4
    if arguments.schedulers is None:
        arguments.schedulers = ["iteration"] if paged else list(SCHEDULERS)
    if arguments.max_num_seqs is None:
        few = 2 if arguments.model == "tiny" else 3
        arguments.max_num_seqs = few if paged else 8


def _serve(
    model,
    requests: list[Request],
    arguments: argparse.Namespace,
    scheduler: str,
    memory: str = "contiguous",
    short: bool = False,
) -> Trace:
    """One run of one batcher, with a bar that counts finished requests."""
    longest = max(len(request.prompt) for request in requests) + arguments.max_new_tokens - 1
    if memory == "paged":
        pool = {"num_positions": arguments.max_num_seqs * longest, "block_size": arguments.block_size}
        engine = build_engine(model, scheduler, len(requests), longest, memory=memory, **pool)
    else:
        engine = build_engine(model, scheduler, arguments.max_num_seqs, longest, arguments.reserve)
    if short:
        requests = [
            dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, max_new_tokens=2)) for r in requests
        ]
    with tqdm(total=len(requests), desc=f"{scheduler:>10} {memory}", unit="request", disable=short or None) as bar:
        return engine.run(requests, on_step=lambda record: bar.update(len(record.finished)))


def _as_json(arguments: argparse.Namespace, traces: list[Trace], texts: list[dict[str, str]]) -> dict:
    fields = ("steps", "dead_slot_steps", "mean_live_slots", "useful_tokens", "seconds")
    fields += ("ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95", "n")
    runs = []
    for trace, text in zip(traces, texts):
        row = summarise(trace)
        digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()
        run = {"scheduler": trace.scheduler, "memory": "paged" if trace.block_size else "contiguous"}
        run |= {field: getattr(row, field) for field in fields} | {"texts_sha256": digest}
        runs.append(run | (_memory_fields(trace) if arguments.memory else {}))
    return {"model": arguments.model, "native": arguments.native, "requests": len(traces[0].requests), "runs": runs}


def _memory_fields(trace: Trace) -> dict[str, float | int | None]:
    """KV use: the share of all positions that hold a token; taken: that are a region's or stand in a block table."""
    use, taken = kv_use_while_waiting(trace) or (None, None)
    return {
        "kv_positions": trace.steps[0].memory.capacity,
        "peak_running": max(len(step.live) for step in trace.steps),
        "kv_use_queued": use,
        "kv_taken_queued": taken,
        "preemptions": sum(len(step.preempted) for step in trace.steps),
    }
