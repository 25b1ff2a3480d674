"""The process in which one submission runs, cell after cell as in a notebook. Started by run.py, never by hand.

It reads one JSON object on standard input (see `run.Child`) and answers with a JSON line for each event:

    {"key": ..., "event": "ready"}                                 the lab's imports and constants are there
    {"event": "begin", "cell": 4}, {"event": "end", "cell": 4, "error": "NameError: ..."}
    {"event": "verdict", "cell": 5, "result": "wrong", "said": "double(2) returned 5: ..."}
    {"event": "refused", "said": "the network"}                    what a cell tried
    {"event": "done"}

`key` was drawn by the parent; a line without it is not from here. What cells print goes nowhere.
"""

import ast
import builtins
import copy
import json
import os
import sys
from collections.abc import Callable
from types import CodeType

from IPython.core.async_helpers import get_asyncio_loop
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from minibatch.checks.base import CheckFailed, NotYet
from minibatch.grade import guard
from minibatch.grade.restore import first_things, remember

MOST = 400  # characters of a message
MOST_REFUSED = 10  # attempts that are told
PLAIN = (list, dict, set, tuple, bytearray)


class Shell(InteractiveShell):
    """A notebook's kernel without a front end: magics, `display` and `await` work, and nothing is drawn or printed."""

    def enable_gui(self, gui: object = None) -> None:
        """`%gui`: there is no window to serve."""

    def enable_matplotlib(self, gui: object = None) -> tuple[None, str]:
        """`%matplotlib inline` and the like leave pictures where they are, in memory."""
        return None, "agg"

    def showtraceback(self, *_: object, **__: object) -> None:
        """Nobody would see it."""

    showsyntaxerror = showtraceback


class Runner:
    """Runs cells and judges checks. `tell` sends one event."""

    def __init__(self, shell: Shell, answers: set[str], rules: guard.Rules, tell: Callable[..., None]):
        self.shell, self.answers, self.rules, self.tell = shell, answers, rules, tell
        self.space, self.usual = shell.user_ns, dict(shell.user_ns)  # `exit` and `open` are the shell's own
        self.run_cell = shell.run_cell
        self.given: dict[str, object] = {}  # names that the lab's own cells made, and what they were
        self.settle = first_things()  # neither the shell nor this file works without the built-in functions
        self.put_back: Callable[[], list[str]] = list
        self.kinds = [
            (NotYet, "not yet"),
            (NotImplementedError, "not yet"),
            (CheckFailed, "wrong"),
            (NameError, "missing"),
        ]

    def run(self, number: int, cell: dict) -> bool:
        """Run one cell; False if it is a check that failed."""
        self.tell("begin", cell=number)
        if cell["kind"] == "check":
            result, said = self.judge(cell["code"])
            if result != "right" and self.right_without_hiding(cell["code"]):
                result, said = "right", ""
            self.tell("verdict", cell=number, result=result, said=said)
            return result == "right"
        error = self.lab_cell(cell["source"]) if cell["kind"] == "locked" else self.student_cell(cell["source"])
        self.tell("end", cell=number, error=error)
        return True

    def student_cell(self, source: str) -> str:
        """The error it raised, in a line, or ""."""
        try:
            result = self.run_cell(source, store_history=False)
            error = result.error_before_exec or result.error_in_exec
        except BaseException as failed:  # a shell that a student's cell has damaged
            error = failed
        self.settle()
        return in_a_line(error) if error is not None else ""

    def lab_cell(self, source: str) -> str:
        """The same for a cell of the lab, which finds the built-in functions under their names."""
        hiding = self.unhide()
        before = dict(self.space)
        error = self.student_cell(source)
        for name, value in self.space.items():
            if name[:1] != "_" and name not in self.answers and before.get(name, self) is not value:
                self.given[name] = handed(value)
        self.space.update({name: value for name, value in hiding.items() if name not in self.space})
        return error

    def right_without_hiding(self, code: CodeType) -> bool:
        """`sum = 0` in some cell breaks each answer that adds up; whether the answer is right is another question."""
        hiding = self.unhide()
        right = bool(hiding) and self.judge(code)[0] == "right"
        self.space.update(hiding)
        return right

    def unhide(self) -> dict[str, object]:
        """Take the names that hide built-in functions out of the notebook, and return them."""
        return {name: self.space.pop(name) for name in list(self.space) if self.hides(name)}

    def hides(self, name: object) -> bool:
        known = isinstance(name, str) and hasattr(builtins, name) and name[:2] != "__"
        return known and name not in self.answers and self.space[name] is not self.usual.get(name, self)

    def judge(self, code: CodeType) -> tuple[str, str]:
        """Call the check with the student's answers and with everything else as the lab made it."""
        self.put_back()
        names = {name: value for name, value in self.space.items() if not self.hides(name)}
        names |= {name: handed(value) for name, value in self.given.items()}
        names["__builtins__"] = builtins
        failed = None
        self.rules.checking = True
        try:
            exec(code, names)
        except BaseException as error:  # SystemExit too
            failed = error
        self.rules.checking = False
        changed = self.put_back()
        if failed is not None:
            return next((name for kind, name in self.kinds if isinstance(failed, kind)), "error"), words(failed)
        if changed:
            return "wrong", f"while it was checked it put something else in the place of {changed[0]}"
        return "right", ""


def handed(value: object) -> object:
    """Plain data as a copy, so that a cell cannot change the lab's constants; anything else as it is."""
    if type(value) not in PLAIN:
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # holds what cannot be copied
        return value


def words(error: BaseException) -> str:
    """What a student reads about a check that failed."""
    if type(error) is NotImplementedError:
        return ""  # the stub
    if isinstance(error, CheckFailed):
        return clean(error)
    if isinstance(error, NameError) and getattr(error, "name", None):
        return f"{error.name} is not defined: the cell that defines it is missing, or did not run"
    return f"it raised {in_a_line(error)}"


def in_a_line(error: BaseException) -> str:
    """Kind and message, and the line of the cell for a syntax error."""
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        return clean(f"{name}: {error.msg} (line {error.lineno} of the cell)")
    said = clean(error)
    return f"{name}: {said}" if said else name


def clean(value: object) -> str:
    """On one line, not longer than MOST, without control characters; a message that cannot be made is none."""
    try:
        text = " ".join(str(value).split())
    except BaseException:
        return ""
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def private_channel() -> int:
    """Keep standard output for events, and give the cells one that goes nowhere."""
    channel = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    sys.stdin = open(os.devnull, encoding="utf-8")
    sys.stdout = sys.__stdout__ = open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.__stderr__ = open(os.devnull, "w", encoding="utf-8")
    return channel


def teller(channel: int, key: str) -> Callable[..., None]:
    """The function that sends an event. One that cannot be sent ends the process: the parent sees that."""
    encode, write, leave = json.JSONEncoder().encode, os.write, os._exit

    def tell(event: str, **rest: object) -> None:
        try:
            line = encode({"key": key, "event": event, **rest}).encode() + b"\n"
            while line:
                line = line[write(channel, line) :]
        except BaseException:
            leave(70)

    return tell


def new_shell() -> Shell:
    """Without a history file; the event loop of `await` exists already when sockets become forbidden."""
    quiet = Config()
    quiet.HistoryManager.enabled = False
    quiet.InteractiveShell.colors = "nocolor"
    shell = Shell.instance(config=quiet)
    get_asyncio_loop()
    return shell


def main() -> None:
    """Run the job on standard input, and end without waiting for threads that cells left behind."""
    job = json.loads(sys.stdin.buffer.read())
    tell = teller(private_channel(), job["key"])
    guard.limit(job["memory"])
    guard.leave_the_network()
    sys.path.append("")  # modules that a cell writes beside the notebook
    cells, skip = job["cells"], set(job["skip"])
    for cell in cells:
        if cell["kind"] == "check":
            cell["code"] = compile(ast.parse(cell["source"]), "<check>", "exec")
    told: set[str] = set()

    def refused(what: str) -> None:
        if what not in told and len(told) < MOST_REFUSED:
            told.add(what)
            tell("refused", said=what)

    rules = guard.Rules(job["folder"], job["cache"], refused)
    runner = Runner(new_shell(), set(job["answers"]), rules, tell)
    for number, cell in enumerate(cells[: job["opening"]]):
        runner.run(number, cell)
    guard.install(rules)
    runner.put_back = remember({getattr(value, "__module__", None) or "" for value in runner.given.values()})
    for name in [name for name in sys.modules if name.startswith("minibatch.grade")]:
        del sys.modules[name]  # who imports them gets others than these
    tell("ready")
    again = []
    for number, cell in enumerate(cells):
        if number >= job["opening"] and number not in skip and not runner.run(number, cell):
            again.append(number)
    for number in again:
        if any(cell["kind"] in ("answer", "extra") for cell in cells[number:]):
            runner.run(number, cells[number])  # the answer may stand below the check
    tell("done")
    os._exit(0)
