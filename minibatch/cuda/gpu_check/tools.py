"""NVIDIA's own tools, where they are: compute-sanitizer, and ncu, whose counters the tracer has predicted."""

import csv
import io
import os
import re
import shutil
import signal
import subprocess
import sys

from minibatch.cuda.gpu_check.shapes import RUNGS

SANITIZERS = ("memcheck", "racecheck")
METRICS = {
    "requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
}
KERNEL = re.compile(r"\bk([1-7])_\w+")


def launches_of(*scenes: str) -> list[str]:
    """The command of a process that launches every rung once on scenes ("stored", "traced") and does nothing else."""
    named = [word for scene in scenes for word in ("--launch", scene)]
    return [sys.executable, "-m", "minibatch.cuda.gpu_check", *named]


def sanitize(tool: str, seconds: float) -> str:
    """The verdict of a tool of compute-sanitizer on every rung on two small scenes, or a sentence why there is none."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return "not run: compute-sanitizer is not on the PATH"
    said = _run([program, "--tool", tool, *launches_of("stored", "traced")], seconds)
    return said if said.startswith("not finished") else verdict(said)


def verdict(said: str) -> str:
    """What compute-sanitizer concludes, such as "0 errors"; if it does not, the last thing it says."""
    concluded = re.findall(r"SUMMARY: (.+)", said)
    if concluded:
        return concluded[-1].strip()
    lines = [line.strip("= ") for line in said.splitlines() if line.strip("= ")]
    return f"gave no verdict; it said: {lines[-1] if lines else 'nothing'}"


def profile(seconds: float) -> dict[int, dict[str, int]] | str:
    """What ncu counts for each rung on the traced scene: reads of global memory, in requests and sectors."""
    program = shutil.which("ncu")
    if program is None:
        return "not run: ncu is not on the PATH"
    command = [program, "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name", "regex:^k[1-7]_", *launches_of("traced")]
    said = _run(command, seconds)
    lines = said.strip().splitlines() or ["nothing"]
    return said if said.startswith("not finished") else read_ncu(said) or f"gave no counters; it said: {lines[-1]}"


def read_ncu(text: str) -> dict[int, dict[str, int]]:
    """ncu's CSV: a row for each kernel and metric, after lines of other output. Kernels of a rung are added up.

    k6_merge follows both rung 6 and rung 7: it is counted with the rung launched before it.
    """
    start = text.find('"ID"')
    counted: dict[int, dict[str, int]] = {}
    latest = 0
    for line in csv.DictReader(io.StringIO(text[start:])) if start >= 0 else ():
        found = KERNEL.search(line["Kernel Name"])
        if found is None:
            continue
        rung = int(found[1]) if "merge" not in found[0] else latest
        latest = rung
        name = next(name for name, metric in METRICS.items() if metric == line["Metric Name"])
        each = counted.setdefault(rung, dict.fromkeys(METRICS, 0))
        each[name] += int(float(line["Metric Value"].replace(",", "")))
    return {rung: counted[rung] for rung in RUNGS if rung in counted}


def _run(command: list[str], seconds: float) -> str:
    """What a command prints; a sentence if it takes longer than `seconds`. Then it ends, with all it has started."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"not finished in {seconds:.0f} s"
