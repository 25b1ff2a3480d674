"""Grade submissions to a lab: points to a table, and a report a student can read."""

import argparse
import csv
import glob
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tqdm import tqdm

from minibatch.grade import report
from minibatch.grade.notebook import Lab, NotGradable, plan
from minibatch.grade.report import Grade
from minibatch.grade.run import Limits, Stopped
from minibatch.grade.run import run as run_plan

LEAST_MEMORY = 256  # MiB: Python and a notebook's shell take half of it


class Usage(ValueError):
    """The command was called the wrong way: exit code 2."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `grade`."""
    parser.add_argument("master", type=Path, metavar="MASTER", help="notebooks/labs/solutions/labN.ipynb")
    parser.add_argument("submissions", nargs="+", metavar="SUBMISSION", help="notebooks, or folders of them")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there, not to standard output")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="a report in Markdown for each submission")
    parser.add_argument("--json", action="store_true", help="instead of the table: every check and its sentence")
    parser.add_argument(
        "--cell-seconds",
        type=float,
        default=30,
        metavar="S",
        help="a cell may take (default 30; after the first that took longer, a third of it)",
    )
    parser.add_argument("--seconds", type=float, default=300, metavar="S", help="a submission may take (default 300)")
    parser.add_argument("--memory", type=int, default=3072, metavar="MIB", help="a submission may hold (default 3072)")
    parser.add_argument("--jobs", type=int, metavar="N", help="submissions at a time (half the cores, at least 2)")


def run(arguments: argparse.Namespace) -> int:
    """0: all were graded. 1: some could not be, their rows say why. 2: called the wrong way, nothing was graded."""
    try:
        limits, jobs = _limits(arguments)
        lab, others = _labs(arguments.master)
        paths = _submissions(arguments.submissions)
        _try_the_solution(lab, arguments.master, limits)
    except Usage as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    names = report.file_names(paths)
    if arguments.report:
        arguments.report.mkdir(parents=True, exist_ok=True)
    well, found = True, []
    with _output(arguments.out) as out:
        writer = csv.writer(out)
        if not arguments.json:
            writer.writerow(report.header(lab))
        for name, grade in zip(names, _grades(lab, others, paths, limits, jobs)):
            well = well and not grade.failed
            found.append(report.as_json(grade))
            if not arguments.json:
                writer.writerow(report.row(grade))
                out.flush()
            if arguments.report:
                (arguments.report / name).write_text(report.page(grade), encoding="utf-8")
        if arguments.json:
            json.dump(found, out, indent=1)
    return 0 if well else 1


def _grades(lab: Lab, others: list[Lab], paths: list[Path], limits: Limits, jobs: int) -> Iterator[Grade]:
    """In the order of the paths, each as soon as it and those before it are there."""
    stop = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(grade_one, lab, others, path, limits, stop) for path in paths]
        try:
            for one in tqdm(waiting, unit="file", disable=not sys.stderr.isatty()):
                yield one.result()
        finally:  # ctrl-C, or a full disk: no child is left behind
            stop.set()
            pool.shutdown(cancel_futures=True)


def grade_one(lab: Lab, others: list[Lab], path: Path, limits: Limits, stop: threading.Event) -> Grade:
    """Grade one submission. What is wrong with it is said in the grade, never raised."""
    try:
        todo = plan(lab, path, others)
        return Grade.of_outcome(lab, path, todo, run_plan(todo, limits, stop))
    except NotGradable as error:
        return Grade(lab, path, failed=str(error))
    except Stopped:
        return Grade(lab, path, failed="interrupted")
    except OSError as error:
        return Grade(lab, path, failed=f"{type(error).__name__}: {error.strerror or error}")


def _limits(arguments: argparse.Namespace) -> tuple[Limits, int]:
    if importlib.util.find_spec("psutil") is None:
        raise Usage("grading needs psutil, which watches memory: python -m pip install psutil")
    for option in ("cell_seconds", "seconds"):
        if not getattr(arguments, option) > 0:
            raise Usage(f"--{option.replace('_', '-')} {getattr(arguments, option):g}: must be more than 0")
    if arguments.memory < LEAST_MEMORY:
        raise Usage(f"--memory {arguments.memory}: must be at least {LEAST_MEMORY} MiB")
    jobs = max(2, (os.cpu_count() or 1) // 2) if arguments.jobs is None else arguments.jobs
    if jobs < 1:
        raise Usage(f"--jobs {jobs}: must be at least 1")
    return Limits(arguments.cell_seconds, arguments.seconds, arguments.memory), jobs


def _labs(master: Path) -> tuple[Lab, list[Lab]]:
    """The lab, and its neighbours in the same folder, to say of which one a stray submission is."""
    try:
        lab = Lab.read(master)
    except (NotGradable, OSError) as error:
        raise Usage(f"{master}: {getattr(error, 'strerror', None) or error}") from error
    others = []
    for path in sorted(master.parent.glob("*.ipynb")):
        try:
            others += [] if path.samefile(master) else [Lab.read(path)]
        except (NotGradable, OSError):
            continue  # some other notebook
    return lab, others


def _submissions(given: list[str]) -> list[Path]:
    """Files, all notebooks of folders, and patterns, which the shell of Windows leaves to the program."""
    found: list[Path] = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            below = sorted(each for each in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in each.parts)
            if not below:
                raise Usage(f"{text}: no notebook in this folder")
            found += below
        elif path.exists():
            found.append(path)
        elif matches := sorted(glob.glob(text, recursive=True)):
            found += map(Path, matches)
        else:
            raise Usage(f"{text}: no such file")
    return list(dict.fromkeys(found))


def _try_the_solution(lab: Lab, master: Path, limits: Limits) -> None:
    """What the solution cannot have here, a compiler's or a slow machine's fault, no student can have either."""
    grade = grade_one(lab, [], master, limits, threading.Event())
    if grade.failed:
        raise Usage(f"{master}: {grade.failed}")
    for check in lab.checks:
        verdict = grade.verdicts[check.name]
        if verdict.result != "right":
            raise Usage(
                f"{master} itself fails {check.name} here ({verdict.result}: {verdict.said}); is it the solution?"
            )


def _output(path: Path | None):
    """Standard output or a file, in UTF-8 and with the line ends that csv writes."""
    if path is not None:
        return path.open("w", encoding="utf-8", newline="")
    sys.stdout.reconfigure(encoding="utf-8", newline="", errors="backslashreplace")
    return nullcontext(sys.stdout)
