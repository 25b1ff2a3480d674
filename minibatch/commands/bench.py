"""Measure: `bench model`, a step's time for batch 1 to 64; `bench scheduler`, a decision's; `bench kernels`, CUDA's."""

import argparse
import dataclasses
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument("what", choices=["model", "scheduler", "kernels"])
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="B")
    parser.add_argument("--context", type=int, default=128, help="positions each sequence looks back at (default 128)")
    parser.add_argument("--repeats", type=int, default=12, help="blocks of steps for each batch size (default 12)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    # of `scheduler`
    parser.add_argument("--running", type=int, nargs="+", metavar="N", help="running sequences (16 256 1024 4096)")
    parser.add_argument("--blocks", type=int, nargs="+", metavar="N", help="blocks in the pool (1000 100000 1000000)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    return {"model": _model, "scheduler": _scheduler, "kernels": _kernels}[arguments.what](arguments)


def _model(arguments: argparse.Namespace) -> int:
    from minibatch.bench import format_table
    from minibatch.bench.model import bench_model
    from minibatch.model import load_model

    command = f"python -m minibatch bench model --dtype {' '.join(arguments.dtype)} --context {arguments.context}"
    models = (load_model(arguments.model, dtype) for dtype in arguments.dtype)
    report = bench_model(models, arguments.batches, arguments.context, arguments.repeats, command)
    print(report.to_json() if arguments.json else format_table(report))
    return 0


def _scheduler(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from minibatch.bench.machine import machine
    from minibatch.bench.scheduler import BLOCKS, RUNNING, bench_scheduler, format_scheduler_table

    measured = bench_scheduler(arguments.running or RUNNING, arguments.blocks or BLOCKS)
    rows = list(tqdm(measured, desc="bench scheduler", unit="row", disable=None))
    if not rows:
        raise ValueError(f"--blocks {arguments.blocks}: too few for any of the running sequences")
    if arguments.json:
        print(json.dumps({"machine": machine(), "rows": [dataclasses.asdict(row) for row in rows]}, indent=1))
    else:
        print(format_scheduler_table(rows))
    return 0


def _kernels(arguments: argparse.Namespace) -> int:
    import torch
    from tqdm import tqdm

    from minibatch.bench.kernels import RUNGS, bench_kernels, format_kernel_table, torch_ms
    from minibatch.bench.machine import machine

    torch.set_num_threads(1)  # as the emulator's
    rows = list(tqdm(bench_kernels(), desc="bench kernels", total=len(RUNGS), unit="rung", disable=None))
    if arguments.json:
        rows = [dataclasses.asdict(row) for row in rows]
        print(json.dumps({"machine": machine(), "torch_ms": torch_ms(), "rows": rows}, indent=1))
    else:
        print(format_kernel_table(rows, torch_ms()))
    return 0
