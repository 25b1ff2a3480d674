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

from minibatch.grade.machine import Memory, environment, font_lists, kernel_cache, root
from minibatch.grade.notebook import Plan

MOST_STARTS = 20
START_SECONDS = 180  # until the lab's own imports are done, on a slow disk
LOOK_SECONDS = 0.25  # between two looks at memory and clock
START = "import sys; sys.path.append({root!r}); from minibatch.grade.child import main; main()"
HUNG = "an endless loop?"


class Stopped(Exception):
    """Somebody pressed ctrl-C."""


@dataclass(frozen=True)
class Limits:
    """Seconds a cell, seconds a submission, MiB of memory."""

    cell_seconds: float = 30
    seconds: float = 300
    memory: int = 3072

    def a_cell(self, hung: bool) -> float:
        """Seconds for a cell. Where one has hung, all checks of that answer may; those wait less, if not too little."""
        return min(self.cell_seconds, max(2.0, self.cell_seconds / 3)) if hung else self.cell_seconds


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
            outcome.verdicts[number] = Verdict("not run", f"was not reached: {over}")
    return outcome


class Child:
    """One process, and what it says. It works in `folder`/work, and its home is `folder`/home, both empty."""

    def __init__(self, plan: Plan, limits: Limits, outcome: Outcome, folder: Path):
        self.plan, self.limits, self.outcome = plan, limits, outcome
        self.key = secrets.token_hex(16)
        self.now: int | None = None  # the cell that runs, or ran last
        self.seconds = limits.a_cell(any(HUNG in why for why in outcome.left_out.values()))
        self.since, self.ready = time.monotonic(), False  # since: the last event
        self.lines: queue.Queue[dict | None] = queue.Queue()
        self.folder, work, home = folder, folder / "work", folder / "home"
        work.mkdir()
        home.mkdir()
        for fonts in font_lists():  # else matplotlib looks at every font of the machine, for each submission
            shutil.copy(fonts, home)
        self.complaint = folder / "stderr"
        with self.complaint.open("wb") as complaint:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-B", "-X", "utf8", "-c", START.format(root=root())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaint,
                cwd=work,
                env=environment(home),
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
            "cache": kernel_cache(),
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
        match kind:
            case "ready":
                self.ready = True
            case "refused":
                self.outcome.refused.append(event["said"])
            case "begin":
                self.now = number
            case "end":
                self._cell_ended(number, event["error"])
            case "verdict":
                self.outcome.verdicts[number] = Verdict(event["result"], event["said"])

    def _cell_ended(self, number: int, error: str) -> None:
        self.outcome.errors.pop(number, None)
        if error:
            self.outcome.errors[number] = error
        if error and not self.ready:
            self.outcome.broken = f"a cell of the lab itself failed: {error}"

    def _too_much(self) -> str:
        waited = time.monotonic() - self.since
        if self.ready and waited > self.seconds:
            return f"took longer than {self.seconds:g} s: {HUNG}"
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


def _code(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"
