"""What every driver shares: it loads its engine, says so, and then serves the workload once for each line it is sent.

A driver is a process of its own, so that engines may live in different virtual environments and none pays for another's
threads. It needs nothing but its engine and the standard library. Messages are JSON, a line each: out comes
{"ready": versions}; in goes {"slots": 8}; out comes {"seconds", "cpu_seconds", "outputs"}.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple


class Job(NamedTuple):
    """A prompt, and exactly how many tokens to write after it. No EOS ends it earlier."""

    prompt: list[int]
    new_tokens: int


Serve = Callable[[list[Job], int], list[list[int]]]  # (jobs, slots) -> the tokens of each job


def main(load: Callable[[argparse.Namespace], Serve], *packages: str) -> None:
    """Run a driver: `load(args)` returns its `serve`; `packages` are those whose versions the table names."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the engine prints goes to the log
    args = _arguments()
    serve = load(args)
    jobs = [Job(job["prompt"], job["new_tokens"]) for job in json.loads(args.jobs.read_text())["jobs"]]
    for slots in args.slots:
        serve([job._replace(new_tokens=3) for job in jobs[: slots + 1]], slots)  # buffers, kernels, threads
    print(json.dumps({"ready": {name: version(name) for name in packages}}), file=channel)
    for line in sys.stdin:
        cpu, started = time.process_time(), time.perf_counter()
        outputs = serve(jobs, json.loads(line)["slots"])
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "outputs": outputs}), file=channel)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="folder with the weights in every engine's form")
    parser.add_argument("--jobs", type=Path, required=True, help="JSON file of prompts and lengths")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), required=True)
    parser.add_argument("--slots", type=int, nargs="+", required=True, help="numbers of slots that runs will ask for")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True, help="positions that the longest job needs")
    parser.add_argument("--mode", help="how the engine batches, where one engine knows several ways")
    return parser.parse_args()
