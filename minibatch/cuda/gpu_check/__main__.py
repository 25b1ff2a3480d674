"""Check and time the kernels on the GPU of this machine, in one command and under four minutes.

    python -m minibatch.cuda.gpu_check --out DIR

Needs torch and nvcc. Where they are installed it also uses compute-sanitizer, ncu, matplotlib, FlashInfer and
flash-attn. Exit code: 0 all is right, 1 a kernel is wrong, 2 there is no GPU to run on.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import torch

from minibatch.cuda import backends
from minibatch.cuda.compilers import nvcc
from minibatch.cuda.errors import KernelUnavailable, LaunchError
from minibatch.cuda.gpu_check import correct, report, shapes, timing, tools
from minibatch.cuda.gpu_check.timing import Row
from minibatch.cuda.library import load
from minibatch.cuda.scene import Scene

TIMING_ENDS, ALL_ENDS = 130.0, 225.0  # seconds from the start


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code (see above)."""
    parser = argparse.ArgumentParser(prog="python -m minibatch.cuda.gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for gpu_check.json, .md and .png")
    parser.add_argument("--store", action="store_true", help="emulate, and keep what the GPU is compared with; no GPU")
    parser.add_argument("--launch", action="append", choices=("stored", "traced"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.store:
        torch.save(correct.emulate(), correct.STORED)
        return 0
    if arguments.out is None and not arguments.launch:
        parser.error("--out DIR is needed")
    try:
        lacking = backends.missing("cuda")
        if lacking:
            raise KernelUnavailable("; ".join(lacking))
        return _launch(arguments.launch) if arguments.launch else _check(arguments.out)
    except KernelUnavailable as error:
        print(f"gpu_check cannot run: {error}", file=sys.stderr)
        return 2


def _check(folder: Path) -> int:
    started = time.monotonic()

    def left(end: float = ALL_ENDS) -> float:
        return end - (time.monotonic() - started)

    findings = report.Findings(_machine(f"python -m minibatch.cuda.gpu_check --out {folder}"))
    stages = [_correctness, _speed, _sanitizers, _counters]
    for stage in stages:
        try:
            for said in stage(findings, left):
                print(f"{time.monotonic() - started:6.1f} s  {said}", flush=True)
        except (ArithmeticError, LaunchError) as error:  # a wrong result, or a launch that failed
            findings.failed.append(str(error))
            print(error, file=sys.stderr)
        report.write(findings, folder)  # after each: what was found is kept if the next stage dies
    findings.machine["seconds"] = f"{time.monotonic() - started:.0f}"
    for path in report.write(findings, folder):
        print(path)
    return 0 if findings.correct else 1


def _correctness(findings: report.Findings, left) -> Iterator[str]:
    libraries = correct.build_all(backends.architecture())
    yield f"built {len(libraries)} libraries for {backends.architecture()}"
    for (dtype, head_dim), library in libraries.items():
        checks = correct.check(dtype, head_dim, correct.launch_with(library))
        findings.checks += checks
        wrong = sum(check.failed + check.emulated_failed for check in checks)
        yield f"{dtype}, head_dim {head_dim}: {sum(check.launches for check in checks)} launches, {wrong} wrong"


def _speed(findings: report.Findings, left) -> Iterator[str]:
    if not findings.correct:
        findings.remarks.append("not timed: a kernel is wrong")
        return
    fits, too_large = shapes.timed_shapes(torch.cuda.mem_get_info()[0])
    findings.remarks += too_large
    clock, latest = timing.Clock(), {}
    copy = clock.copy_bandwidth()
    findings.copy_gb_s = round(copy / 1e9, 1)
    yield f"a copy moves {findings.copy_gb_s:,.0f} GB/s"
    pool = timing.make_pool(max(batch * context for batch, context in fits))
    for batch, context in fits:
        if left(TIMING_ENDS) < 0:
            findings.remarks.append(f"batch {batch}, context {context}: not timed, the time was up")
            continue
        scene = timing.decode_scene(batch, context, pool)
        rows = list(_rows(findings, scene, clock, latest, copy))
        findings.rows += rows
        best = max(rows, key=lambda r: r.percent)
        yield f"batch {batch}, context {context}: best {best.name}, {best.percent:.0f} % of the copy"
    findings.rows.sort(key=lambda r: (not r.name.startswith("rung"), r.name, r.batch, r.context))


def _rows(findings: report.Findings, scene: Scene, clock: timing.Clock, latest: dict, copy: float) -> Iterator[Row]:
    """Rungs and others on one scene; what did not run becomes a remark."""
    batch, context = len(scene.q), int(scene.context_len[0])
    for name, seconds, count in timing.time_rungs(scene, clock, latest):
        yield timing.row(name, batch, context, seconds, count, copy)
    for name, seconds, count in timing.time_others(scene, clock, (batch, context) in shapes.AIMS):
        if count:
            yield timing.row(name, batch, context, seconds, count, copy)
        else:
            findings.remarks.append(f"batch {batch}, context {context}, {name}: {seconds}")


def _sanitizers(findings: report.Findings, left) -> Iterator[str]:
    torch.cuda.empty_cache()
    for tool in tools.SANITIZERS:
        findings.sanitizer[tool] = tools.sanitize(tool, max(1.0, left() / 3))
        yield f"compute-sanitizer {tool}: {findings.sanitizer[tool]}"


def _counters(findings: report.Findings, left) -> Iterator[str]:
    findings.predicted = torch.load(correct.STORED, weights_only=True)["predicted"]
    findings.counted = tools.profile(max(1.0, left()))
    yield f"ncu: {findings.counted if isinstance(findings.counted, str) else 'counted'}"


def _launch(scenes: list[str]) -> int:
    """Every rung once, for a tool that watches. Two scenes, none of them large."""
    made = {"stored": lambda: shapes.stored_scene(torch.float16, 128), "traced": shapes.traced_scene}
    for scene in (made[name]() for name in scenes):
        library = load("cuda", scene.q.dtype, scene.q.shape[2], backends.architecture())
        launch = correct.launch_with(library)
        for rung in shapes.RUNGS:
            launch(scene, rung)
    return 0


def _machine(command: str) -> dict[str, str]:
    from minibatch.cuda.doctor import cards, driver

    compiler = nvcc()
    return {
        "card": cards(),
        "driver": driver(),
        "torch": torch.__version__,
        "nvcc": ".".join(map(str, compiler.version)),
        "python": sys.version.split()[0],
        "date": date.today().isoformat(),
        "command": command,
    }


if __name__ == "__main__":
    sys.exit(main())
