"""minibatch beside other engines: the same prompts, lengths, weights, precision and threads. See benchmarks/README.md.

    python benchmarks/peers.py --python transformers=VENV/bin/python --python vllm=VENV/bin/python

Every engine is a process of its own, loaded and warmed up before the clock starts; then all take turns, round after
round. Each finished run is written down at once, so an interrupted measurement goes on where it stopped.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tqdm.auto import tqdm
from weights import prepare

from minibatch import Request, SamplingParams
from minibatch.bench.machine import busy_seconds, machine
from minibatch.build import build_engine
from minibatch.model import load_model
from minibatch.workload import chat_prompts

HERE = Path(__file__).parent
ENGINES = {  # name: driver, its --mode, the package it cannot do without
    "ours, static": ("ours", "static", "minibatch"),
    "ours, iteration": ("ours", "iteration", "minibatch"),
    "ours, iteration, native": ("ours", "iteration+native", "minibatch"),
    "transformers generate, static": ("with_transformers", "static", "transformers"),
    "transformers continuous batching": ("with_transformers", "continuous", "transformers"),
    "llama.cpp": ("with_llama_cpp", "continuous", "llama_cpp"),
    "vLLM, CPU backend": ("with_vllm", "continuous", "vllm"),
}
OURS = "ours, iteration"  # what the ratios refer to
FOREIGN = 0.12  # of one core used by others: above it a run does not count as quiet


class Driver:
    """An engine in its own process, loaded and warm."""

    def __init__(self, name: str, args: argparse.Namespace, dtype: str, jobs: Path, context: int):
        script, mode, package = ENGINES[name]
        self.name, self.log = name, args.work / f"{script}-{mode}-{dtype}.log"
        command = [args.python.get(package, sys.executable), str(HERE / "engines" / f"{script}.py"), "--mode", mode]
        command += ["--work", str(args.work), "--jobs", str(jobs), "--dtype", dtype, "--context", str(context)]
        command += ["--threads", str(args.threads), "--slots", *map(str, args.slots)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log.open("w"), "text": True}
        self.process = subprocess.Popen(command, env=_environment(args.threads), **pipes)
        self.versions = self._answer()["ready"]

    def run(self, slots: int) -> dict:
        """Serve the workload once: seconds, CPU seconds, the tokens of every job, and what others took of the CPU."""
        before = busy_seconds()
        print(json.dumps({"slots": slots}), file=self.process.stdin, flush=True)
        found = self._answer()
        others = max(0.0, busy_seconds() - before - found["cpu_seconds"])
        return found | {"foreign": others / found["seconds"]}

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{self.name} ended: {''.join(tail)} (all of it: {self.log})")
        return json.loads(line)


def _environment(threads: int) -> dict[str, str]:
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "HF_HUB_OFFLINE": "1",
    }


def make_jobs(args: argparse.Namespace) -> tuple[Path, list[list[int]], int]:
    """The prompts, each with the length of its own greedy float32 answer: every engine then does the same work."""
    path = args.work / f"jobs-{args.requests}x{args.max_new_tokens}.json"
    if not path.exists():
        model = load_model("smollm2")
        stop = model.tokenizer.eos_token_ids
        limits = SamplingParams(max_new_tokens=args.max_new_tokens, stop_token_ids=stop)
        prompts = [tuple(model.tokenizer.chat(text)) for _, text in chat_prompts("smollm2")[: args.requests]]
        requests = [Request(f"R{index}", prompt, limits) for index, prompt in enumerate(prompts)]
        longest = max(map(len, prompts)) + args.max_new_tokens
        with tqdm(desc="reference answers", unit=" steps") as bar:
            engine = build_engine(model, max_num_seqs=8, max_model_len=longest)
            trace = engine.run(requests, on_step=lambda step: bar.update())
        answers = [record.tokens for record in trace.requests.values()]
        jobs = [{"prompt": p, "new_tokens": len(a), "tokens": a} for p, a in zip(prompts, answers)]
        path.write_text(json.dumps({"jobs": jobs}))
    jobs = json.loads(path.read_text())["jobs"]
    context = max(len(job["prompt"]) + job["new_tokens"] for job in jobs)
    return path, [job["tokens"] for job in jobs], (context + 31) // 16 * 16


def measure(args: argparse.Namespace) -> list[dict]:
    """All runs that are not on record yet, engine after engine within a round."""
    engines, (jobs, reference, context) = available(args), make_jobs(args)
    record = args.work / f"runs-{args.requests}x{args.max_new_tokens}-{args.threads}threads.jsonl"
    if args.fresh:
        record.unlink(missing_ok=True)
    runs = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    have = {_key(run) for run in runs}
    for dtype in args.dtypes:
        prepare(args.work, dtype)
        keys = [(n, dtype, s, r) for r in range(args.rounds) for s in args.slots for n in engines]
        todo = [key for key in keys if key not in have]
        drivers = dict(_start({key[0] for key in todo}, args, dtype, jobs, context))
        for name, _, slots, turn in tqdm([key for key in todo if key[0] in drivers], desc=dtype):
            found = drivers[name].run(slots)
            same = sum(got == want for got, want in zip(found.pop("outputs"), reference, strict=True))
            run = {"engine": name, "dtype": dtype, "slots": slots, "round": turn, **found, "same": same}
            run |= {"tokens": sum(map(len, reference)), "requests": len(reference)}
            run |= {"versions": drivers[name].versions, "machine": machine()}
            runs.append(run)
            with record.open("a") as file:
                print(json.dumps(run), file=file)
        for driver in drivers.values():
            driver.close()
    return runs


def _key(run: dict) -> tuple:
    return run["engine"], run["dtype"], run["slots"], run["round"]


def available(args: argparse.Namespace) -> list[str]:
    """The engines asked for whose package is installed where --python says; each of the others is named."""
    found = []
    for name in args.engines:
        package = ENGINES[name][2]
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
        if subprocess.run([args.python.get(package, sys.executable), "-c", probe]).returncode:
            print(f"{name}: not measured, no {package} here (--python {package}=PATH names another)", file=sys.stderr)
        else:
            found.append(name)
    return found


def _start(names: set[str], args: argparse.Namespace, dtype: str, jobs: Path, context: int) -> Iterator:
    for name in tqdm([name for name in ENGINES if name in names], desc=f"{dtype}: loading"):
        try:
            yield name, Driver(name, args, dtype, jobs, context)
        except RuntimeError as error:
            print(error, file=sys.stderr)


def summary(runs: list[dict]) -> list[dict]:
    """A row for each dtype, number of slots and engine: medians of the quiet runs (of all, and marked, if none was)."""
    groups: dict[tuple, list[dict]] = {}
    for run in sorted(runs, key=lambda run: (run["dtype"], run["slots"], list(ENGINES).index(run["engine"]))):
        groups.setdefault((run["dtype"], run["slots"], run["engine"]), []).append(run)
    rows = [_row(found) for found in groups.values()]
    ours = {(row["dtype"], row["slots"]): row["tokens_per_s"] for row in rows if row["engine"] == OURS}
    for row in rows:
        base = ours.get((row["dtype"], row["slots"]))
        row["ratio"] = base and row["tokens_per_s"] / base
    return rows


def _row(runs: list[dict]) -> dict:
    quiet = [run for run in runs if run["foreign"] < FOREIGN]
    seconds = median(run["seconds"] for run in quiet or runs)
    row = {name: runs[-1][name] for name in ("dtype", "slots", "engine", "versions", "requests")}
    row |= {"seconds": seconds, "tokens_per_s": runs[-1]["tokens"] / seconds}
    return row | {"runs": len(runs), "quiet": len(quiet), "same": min(run["same"] for run in runs)}


def markdown(rows: list[dict]) -> str:
    """The summary as a table. `ratio`: tokens/s over those of ours, iteration."""
    lines = [
        "| dtype | slots | engine | s | tokens/s | ratio | same | quiet runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        star, ratio = "" if row["quiet"] else " *", "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        cells = [row["dtype"], row["slots"], f"{row['engine']} ({versions})", f"{row['seconds']:.2f}{star}"]
        cells += [
            f"{row['tokens_per_s']:.0f}",
            ratio,
            f"{row['same']}/{row['requests']}",
            f"{row['quiet']}/{row['runs']}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, write the summary as JSON, print it as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=24, help="the first so many of the 24 chat prompts")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PATH", help="an engine's own Python")
    parser.add_argument("--work", type=Path, default=HERE / "out", help="weights, records and logs (about 2 GB)")
    parser.add_argument("--fresh", action="store_true", help="forget the runs on record")
    args = parser.parse_args()
    args.work = args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    args.python = dict(pair.split("=", 1) for pair in args.python)
    runs = measure(args)
    rows = summary(runs)
    command = " ".join(["python benchmarks/peers.py", *(re.sub(r"[^=\s]*/.*", "PATH", arg) for arg in sys.argv[1:])])
    result = {"command": command, "machine": machine(), "rows": rows}
    (args.work / "peers.json").write_text(json.dumps(result, indent=1))
    print(markdown(rows))


if __name__ == "__main__":
    main()
