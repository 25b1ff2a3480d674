"""Run a submission in a process of its own, watch it, and start over without the cell that hung or crashed."""

import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import minibatch
from minibatch.grade.notebook import Plan

MOST_STARTS = 20
START_SECONDS = 180  # until the lab's own imports are done, on a slow disk
LOOK_SECONDS = 0.25  # between two looks at memory and clock
KEPT = (  # of the environment; whatever else a teacher has there is not a student's business
    *("PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "LANG", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "CONDA_PREFIX", "CXX", "NUMBER_OF_PROCESSORS"),
)
HOMES = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
HOMES += ("MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
START = "import sys; sys.path.append({root!r}); from minibatch.grade.child import main; main()"
NEVER = "was not reached"


class Stopped(Exception):
    """Somebody pressed ctrl-C."""


@dataclass(frozen=True)
class Limits:
    """Seconds a cell, seconds a submission, MiB of memory."""

    cell_seconds: float = 30
    seconds: float = 300
    memory: int = 3072


@dataclass(frozen=True)
class Verdict:
    """`result` is "right", "not yet", "wrong", "missing", "error", "stopped" or "not run"; `said` is why."""

    result: str
    said: str = ""


@dataclass
class Outcome:
    """What came of a submission: cell number to verdict, to the error it raised, to why it was left out."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    broken: str = ""  # why the grader itself could not go on


def run(plan: Plan, limits: Limits, stop: threading.Event) -> Outcome:
    """Run a plan until all its cells have been reached, within the limits. Raises Stopped once `stop` is set."""
    outcome, ends = Outcome(), time.monotonic() + limits.seconds
    over = f"the whole submission took longer than {limits.seconds:g} s"
    for _ in range(MOST_STARTS):
        with tempfile.TemporaryDirectory(prefix="minibatch-grade-", ignore_cleanup_errors=True) as folder:
            child = Child(plan, limits, outcome, Path(folder))
            try:
                complete = child.watch(ends, stop)
            finally:
                child.kill()
        if complete or outcome.broken or time.monotonic() >= ends:
            break
    else:
        over = f"the Python process had to be started {MOST_STARTS} times"
    for number, cell in enumerate(plan.cells):
        if cell.kind == "check" and number not in outcome.verdicts:
            outcome.verdicts[number] = Verdict("not run", f"{NEVER}: {over}")
    return outcome


class Child:
    """One process, and what it says. It works in `folder`/work, and its home is `folder`/home, both empty."""

    def __init__(self, plan: Plan, limits: Limits, outcome: Outcome, folder: Path):
        self.plan, self.limits, self.outcome = plan, limits, outcome
        self.key = secrets.token_hex(16)
        self.now: int | None = None  # the cell that runs, or ran last
        self.since, self.ready = time.monotonic(), False  # since: the last event
        self.lines: queue.Queue[dict | None] = queue.Queue()
        self.folder, work, home = folder, folder / "work", folder / "home"
        work.mkdir()
        home.mkdir()
        for fonts in _font_lists():  # else matplotlib looks at every font of the machine, for each submission
            shutil.copy(fonts, home)
        self.complaint = folder / "stderr"
        with self.complaint.open("wb") as complaint:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-B", "-X", "utf8", "-c", START.format(root=_root())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaint,
                cwd=work,
                env=_environment(home),
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        self.memory = Memory(self.process.pid)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.process.stdin.write(json.dumps(self._job()).encode())
            self.process.stdin.close()
        except OSError:  # it has ended already; `watch` finds out
            pass

    def _job(self) -> dict[str, object]:
        done = {n for n, verdict in self.outcome.verdicts.items() if verdict.result in ("right", "stopped")}
        return {
            "key": self.key,
            "cells": [{"kind": cell.kind, "source": cell.source} for cell in self.plan.cells],
            "opening": self.plan.opening,
            "answers": sorted(self.plan.answers),
            "skip": sorted(done | self.outcome.left_out.keys()),
            "memory": self.limits.memory,
            "folder": str(self.folder),
            "cache": _kernel_cache(),
        }

    def _read(self) -> None:
        """Lines of the child become events; what is no line of its own is thrown away."""
        with self.process.stdout as stream:
            while line := stream.readline(65536):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict) and event.get("key") == self.key:
                    self.lines.put(event)
        self.lines.put(None)

    def watch(self, ends: float, stop: threading.Event) -> bool:
        """Follow the process to its end. False if it has to be started again, or time is up."""
        while True:
            try:
                event = self.lines.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                event = {"event": "nothing"}
            if stop.is_set():
                raise Stopped
            if event is None:
                return self._ended()
            if event["event"] == "done":
                return True
            self._note(event)
            why = self._too_much()
            if not why and time.monotonic() >= ends:
                why = f"it ran when the {self.limits.seconds:g} s of the whole submission were over"
            if why:
                self._blame(why)
            if why or self.outcome.broken:
                return False

    def _note(self, event: dict) -> None:
        kind, number = event["event"], event.get("cell")
        self.since = self.since if kind == "nothing" else time.monotonic()
        if kind == "ready":
            self.ready = True
        elif kind == "refused":
            self.outcome.refused.append(event["said"])
        elif kind == "begin":
            self.now = number
        elif kind == "end":
            self.outcome.errors.pop(number, None)
            if event["error"]:
                self.outcome.errors[number] = event["error"]
            if event["error"] and not self.ready:
                self.outcome.broken = f"a cell of the lab itself failed: {event['error']}"
        elif kind == "verdict":
            self.outcome.verdicts[number] = Verdict(event["result"], event["said"])

    def _too_much(self) -> str:
        waited = time.monotonic() - self.since
        if self.ready and waited > self.limits.cell_seconds:
            return f"took longer than {self.limits.cell_seconds:g} s: an endless loop?"
        if not self.ready and waited > START_SECONDS:
            return f"the lab's own cells took longer than {START_SECONDS} s"
        if self.memory.used() > self.limits.memory * 2**20:
            return f"used more than {self.limits.memory} MiB of memory"
        return ""

    def _blame(self, why: str) -> None:
        """The cell that runs, or ran last, is left out from now on."""
        if not self.ready or self.now is None or self.now < self.plan.opening:
            self.outcome.broken = self.outcome.broken or why
            return
        self.outcome.left_out[self.now] = why
        if self.plan.cells[self.now].kind == "check":
            self.outcome.verdicts[self.now] = Verdict("stopped", why)

    def _ended(self) -> bool:
        """It ended by itself, before it was done."""
        code = self.process.wait()
        why = f"ended the Python process ({_code(code)})"
        if not self.ready:
            lines = self.complaint.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            why = f"the grading process did not start ({_code(code)}) {last}".strip()
        self._blame(why)
        return False

    def kill(self) -> None:
        """With everything it has started."""
        children = self.memory.children()
        if hasattr(os, "killpg"):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        self.process.kill()
        for child in children:
            child.kill()
        self.process.wait()


class Memory:
    """What a process and its children hold, in bytes."""

    def __init__(self, pid: int):
        import psutil  # comes with ipykernel; the command has looked for it

        self.gone = psutil.Error
        try:
            self.process = psutil.Process(pid)
        except psutil.Error:
            self.process = None

    def children(self) -> list:
        try:
            return self.process.children(recursive=True) if self.process else []
        except self.gone:
            return []

    def used(self) -> int:
        total = 0
        for process in [self.process, *self.children()]:
            try:
                total += process.memory_info().rss if process else 0
            except self.gone:
                continue
        return total


def _code(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _root() -> str:
    return str(Path(minibatch.__file__).resolve().parents[1])


def _kernel_cache() -> str:
    """Where minibatch/cuda keeps what it has compiled; lab 6 would else compile everything for each submission."""
    from platformdirs import user_cache_path

    return os.environ.get("MINIBATCH_CACHE") or str(user_cache_path("minibatch", appauthor=False))


def _font_lists() -> list[Path]:
    """matplotlib's, if it has been used on this account."""
    named, cache = os.environ.get("MPLCONFIGDIR"), os.environ.get("XDG_CACHE_HOME")
    folders = (
        [Path(named)] if named else [Path(cache or Path.home() / ".cache", "matplotlib"), Path.home() / ".matplotlib"]
    )
    return next(filter(None, (sorted(folder.glob("fontlist-*.json")) for folder in folders)), [])


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return (
        kept
        | dict.fromkeys(HOMES, str(home))
        | {
            "MINIBATCH_CACHE": _kernel_cache(),
            "MPLBACKEND": "Agg",
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
