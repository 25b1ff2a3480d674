"""Measure this machine: `bench model` gives step time and tokens/s for batch 1 to 64, under its roofline."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument("what", choices=["model"])
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="B")
    parser.add_argument("--context", type=int, default=128, help="positions each sequence looks back at (default 128)")
    parser.add_argument("--repeats", type=int, default=12, help="blocks of steps for each batch size (default 12)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    from minibatch.bench import format_table
    from minibatch.bench.model import bench_model
    from minibatch.model import load_model

    command = f"python -m minibatch bench model --dtype {' '.join(arguments.dtype)} --context {arguments.context}"
    models = (load_model(arguments.model, dtype) for dtype in arguments.dtype)
    report = bench_model(models, arguments.batches, arguments.context, arguments.repeats, command)
    print(report.to_json() if arguments.json else format_table(report))
    return 0
