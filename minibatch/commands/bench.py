"""Measure this machine: `bench model` gives step time and tokens/s for batch 1 to 64."""

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench`."""
    parser.add_argument("what", choices=["model"])
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, or a model folder")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="B")
    parser.add_argument(
        "--context", type=int, default=128, help="tokens already stored for each sequence (default 128)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    from minibatch.bench.model import format_table, machine, measure_model
    from minibatch.model import load_model

    model = load_model(arguments.model, dtype=arguments.dtype)
    rows = measure_model(model, arguments.batches, arguments.context)
    if arguments.json:
        print(
            json.dumps(
                {"machine": machine(), "model": arguments.model, "dtype": arguments.dtype, "rows": rows}, indent=1
            )
        )
    else:
        print(format_table(rows))
    return 0
