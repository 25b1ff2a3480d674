"""Measure a step (`bench model`, `bench steps`), a decision (`scheduler`), CUDA (`kernels`), a run (`simulate`)."""

import argparse
import dataclasses
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument("what", choices=["model", "steps", "scheduler", "kernels", "simulate"])
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--native", action="store_true", help="operations compiled for this CPU: needs g++")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="B")
    parser.add_argument("--context", type=int, default=128, help="positions each sequence looks back at (default 128)")
    parser.add_argument("--repeats", type=int, help="blocks of steps for each batch size (12) or shape (4)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    # of `scheduler`
    parser.add_argument("--running", type=int, nargs="+", metavar="N", help="running sequences (16 256 1024 4096)")
    parser.add_argument("--blocks", type=int, nargs="+", metavar="N", help="blocks in the pool (1000 100000 1000000)")
    # of `simulate`
    parser.add_argument("--systems", metavar="A,B", help="of `python -m minibatch systems` (default: all)")
    parser.add_argument("--requests", type=int, help="the conversation trace's first so many (default: all 19,366)")
    parser.add_argument("--synthetic", type=int, metavar="N", help="one run of N synthetic requests instead, by tenths")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    measure = {"model": _model, "steps": _steps, "scheduler": _scheduler, "kernels": _kernels, "simulate": _simulate}
    return measure[arguments.what](arguments)


def _model(arguments: argparse.Namespace) -> int:
    from minibatch.bench import format_table
    from minibatch.bench.model import bench_model
    from minibatch.model import load_model

    command = f"python -m minibatch bench model --dtype {' '.join(arguments.dtype)} --context {arguments.context}"
    command += " --native" * arguments.native
    models = (load_model(arguments.model, dtype, native=arguments.native) for dtype in arguments.dtype)
    repeats = 12 if arguments.repeats is None else arguments.repeats
    report = bench_model(models, arguments.batches, arguments.context, repeats, command)
    print(report.to_json() if arguments.json else format_table(report))
    return 0


def _steps(arguments: argparse.Namespace) -> int:
    from minibatch.bench.step_report import format_steps_table
    from minibatch.bench.steps import bench_steps
    from minibatch.model import load_model

    repeats = 4 if arguments.repeats is None else arguments.repeats
    models = (load_model(arguments.model, dtype, native=arguments.native) for dtype in arguments.dtype)
    command = f"python -m minibatch bench steps --dtype {' '.join(arguments.dtype)} --repeats {repeats} --json"
    command += " --native" * arguments.native
    report = bench_steps(models, repeats=repeats, command=command)
    print(report.to_json() if arguments.json else format_steps_table(report))
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


def _simulate(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from minibatch.bench.machine import machine
    from minibatch.bench.simulate import bench_simulate, bench_synthetic, format_simulate_table, format_tenths
    from minibatch.commands.names import systems_of

    tenths = []
    if arguments.synthetic is not None:
        row, tenths = bench_synthetic(arguments.synthetic)
        rows = [row]
    else:
        systems = systems_of(arguments.systems)
        measured = bench_simulate(systems, arguments.requests)
        rows = list(tqdm(measured, desc="bench simulate", total=len(systems), unit="system", disable=None))
    if arguments.json:
        found = {"rows": rows, "tenths": tenths}
        found = {name: [dataclasses.asdict(row) for row in part] for name, part in found.items()}
        print(json.dumps({"machine": machine()} | found, indent=1))
    else:
        print(format_simulate_table(rows), *([format_tenths(tenths)] if tenths else []), sep="\n\n")
    return 0
