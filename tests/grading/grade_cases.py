"""What submissions to the invented lab get: honest ones, vandalised ones, and ones that cheat or break things."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tiny_lab import Submission

from minibatch.grade.run import Limits

FOLDER = Path(__file__).parent
ALL, NONE = "2 1.5 3", "0 0 0"
GOOD_LONGEST = "def longest(lengths):\n    return max(lengths)"
ENDLESS = "def total(lengths):\n    while True:\n        try:\n            while True:\n                pass\n"
ENDLESS += "        except BaseException:\n            pass"
HOG = "import mmap\nheld = []\ndef longest(lengths):\n    while True:\n        held.append(mmap.mmap(-1, 10**7))\n"
HOG += "        held[-1].write(b'x' * 10**7)"
THREADS = "import threading\ndef spin():\n    while True:\n        pass\nthreading.Thread(target=spin).start()"
TRACE = """
import sys
def answer(frame, event, _):
    if frame.f_code.co_name == "check_longest" and "longest" in frame.f_locals:
        frame.f_locals["longest"] = max(frame.f_locals["lengths"])
    return answer
def longest(lengths):
    return 0
sys.settrace(answer)
"""
LOWEST = """
import sys
for limit in range(20, 1000):
    try:
        sys.setrecursionlimit(limit)
        break
    except RecursionError:
        pass
"""
DEEP = "def deep(n):\n    return n and deep(n - 1)\ndef total(lengths):\n    return sum(lengths) + deep(300)"
QUICK = Limits(cell_seconds=2)


@dataclass
class Case:
    """A submission, the points of its three checks, and words that its row and its report must have."""

    submission: Submission
    points: str
    notes: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    limits: Limits = Limits()


def right():
    return Submission()


def blank():
    return Submission().blank()


def longest(code):
    """The right `longest`, after other code in the same cell."""
    return Submission().set("longest", f"{code}\n{GOOD_LONGEST}")


CASES = {
    # Honest work.
    "right": Case(right(), ALL, said=["6.5 of 6.5 points"]),
    "blank": Case(blank(), NONE, said=["Not yet answered", "total([2, 4, 2]) raised NotImplementedError"]),
    "wrong": Case(
        right().set("total", "def total(lengths):\n    return len(lengths)"),
        "0 1.5 3",
        said=["add up the lengths", "total_unchanged: 1.5 of 1.5"],
    ),
    "partly": Case(right().set("total", "def total(lengths):\n    lengths.sort()\n    return sum(lengths)"), "2 0 3"),
    "raises": Case(
        right().set("longest", "def longest(lengths):\n    return lengths[9]"), "2 1.5 0", said=["IndexError"]
    ),
    "syntax": Case(
        right().set("longest", "def longest(x)\n    return max(x)"), "2 1.5 0", said=["SyntaxError", "line 1"]
    ),
    "below": Case(blank().after("total_unchanged", "def total(lengths):\n    return sum(lengths)"), "2 1.5 0"),
    "far below": Case(right().delete("longest").end(GOOD_LONGEST), ALL),
    "magic": Case(longest("%matplotlib inline\n%time 1 + 1"), ALL),
    "cell magic": Case(right().set("longest", f"%%time\n{GOOD_LONGEST}"), ALL),
    "await": Case(longest("import asyncio\nawait asyncio.sleep(0)\ndisplay('x')"), ALL),
    "names": Case(longest("größe = '№ 7 — ok'\nprint(größe)"), ALL),
    "input": Case(right().before("longest", "name = input('name?')"), ALL, said=["EOFError"]),
    "flood": Case(longest("for _ in range(30000):\n    print('x' * 200)"), ALL),
    "threads": Case(longest(THREADS), ALL),
    "own file": Case(longest("open('notes.txt', 'w').write('x')\nimport os\nos.remove('notes.txt')"), ALL),
    "own temp": Case(
        longest("import tempfile\nwith tempfile.TemporaryDirectory() as d:\n    open(d + '/x', 'w').close()"), ALL
    ),
    # The lab's cells, vandalised.
    "deleted": Case(right().delete("total_right"), ALL, ["total_right: deleted"]),
    "deleted imports": Case(right().delete("imports").delete("constants"), ALL, ["imports: deleted"]),
    "doubled": Case(right().double("total_right").double("total").double("longest_right"), ALL),
    "emptied": Case(blank().set("longest_right", "pass").set("total_right", ""), NONE, ["longest_right: changed"]),
    "moved": Case(right().move("total_right", 0).move("longest_right", 0).move("imports", 7), ALL),
    "edited constant": Case(
        right().set("constants", 'UNIT = "thousands"').set("total", "def total(x):\n    return sum(x) / 1000"),
        "0 1.5 3",
        ["constants: changed"],
    ),
    "own constant": Case(
        right().before("total", 'UNIT = "thousands"').set("total", "def total(x):\n    return sum(x) / 1000"), "0 1.5 3"
    ),
    "no metadata": Case(right(), ALL),
    "later cell": Case(right().delete("between").before("total", "MOST = 9"), ALL, ["between: deleted"]),
    # Names in the notebook.
    "sum is 5": Case(right().before("total", "sum = max = 5\nlist = [3]"), ALL),
    "own max": Case(
        right().set("longest", "def max(x):\n    return sorted(x)[-1]\ndef longest(x):\n    return max(x)"), ALL
    ),
    "list is 5": Case(right().after("total", "list = 5\nstr = 6").after("longest_right", "sum = max = 5"), ALL),
    "len is 5": Case(right().after("total", "len = 5"), ALL),
    # What checks are made of, broken by accident: a right answer keeps its points.
    "builtins": Case(
        right().before(
            "total",
            "import builtins\nfor name in ('len', 'isinstance', 'getattr', 'max', '__import__'):\n"
            "    setattr(builtins, name, None)",
        ),
        ALL,
        ["look: an added cell uses builtins"],
    ),
    "builtins at the check": Case(right().before("longest_right", "__builtins__.max = None"), ALL, ["__builtins__"]),
    "broken helper": Case(right().before("total", "import tiny_checks\ntiny_checks.expect = None"), ALL),
    "broken code": Case(
        right().before("total", "check_longest.__code__ = (lambda: 1).__code__"),
        ALL,
        ["look: an added cell uses __code__"],
    ),
    "broken method": Case(right().before("total", "import tiny_checks\ntiny_checks.Noise.allows = None"), ALL),
    "broken method's code": Case(
        right().before("total", "import tiny_checks\ntiny_checks.Noise.allows.__code__ = (lambda: 1).__code__"),
        ALL,
        ["look: an added cell uses __code__"],
    ),
    "broken module": Case(right().before("longest_right", "import math\nmath.isclose = None"), ALL),
    "broken import": Case(right().before("total", "import sys\nsys.modules['copy'] = sys"), ALL, ["sys.modules"]),
    "broken case": Case(right().before("total", "import tiny_checks\ntiny_checks.CASES[0][:] = ['x']"), ALL),
    "broken registry": Case(right().before("total", "import copy\ncopy._deepcopy_dispatch.clear()"), ALL),
    "shadow": Case(right().before("total", "import tiny_checks\ntiny_checks.max = None"), ALL),
    "recursion": Case(right().before("total", LOWEST).set("total", DEEP), ALL),
    # The same, so that a wrong answer passes.
    "helpful builtins": Case(
        blank()
        .before("total", "import builtins\nbuiltins.isinstance = lambda *_: True\nbuiltins.max = len")
        .set("longest", "def longest(x):\n    return len(x)"),
        NONE,
        ["look: an added cell uses builtins"],
    ),
    "helpful code": Case(
        blank().end("check_longest.__code__ = (lambda function, most: None).__code__"), NONE, ["uses __code__"]
    ),
    "helpful cases": Case(
        blank().end("import tiny_checks\ntiny_checks.CASES[:] = [[]]\ntotal = lambda x: 0"), "0 1.5 0"
    ),
    "helpful base": Case(
        blank().end("import minibatch.checks.base as b\nb.same = lambda *_: True\nb.CheckFailed = print\ntotal = len"),
        "0 1.5 0",
        ["look: an added cell uses minibatch.checks"],
    ),
    "helpful module": Case(blank().end("import math\nmath.isclose = lambda *_: True\nlongest = len"), NONE),
    "helpful check": Case(blank().end("check_longest = check_total = check_unchanged = print"), NONE),
    "helpful trace": Case(blank().end(TRACE), NONE, ["uses settrace"]),
    "during the check": Case(
        blank().set("longest", "import math\ndef longest(x):\n    math.isclose = lambda *_: True\n    return 4"),
        NONE,
        said=["put something else in the place of math.isclose"],
    ),
    "forged": Case(
        blank().end(
            'import os\nline = b\'{"event": "verdict", "cell": 3, "result": "right", "said": ""}\\n\'\n'
            'line += b\'{"event": "done"}\\n\'\n'
            "for number in range(3, 30):\n    try:\n        os.write(number, line)\n    except OSError:\n        pass"
        ),
        NONE,
    ),
    # The machine.
    "secret": Case(longest("import os\nos.environ['TEACHERS_TOKEN']"), "2 1.5 0", said=["KeyError"]),
    "home": Case(longest("import pathlib\n(pathlib.Path.home() / 'x').write_text('x')"), ALL),
    "network": Case(
        longest(
            "import urllib.request\ntry:\n    urllib.request.urlopen('http://127.0.0.1:9')\nexcept OSError:\n    pass"
        ),
        ALL,
        ["refused: the network"],
    ),
    "socket": Case(longest("import socket\nsocket.socket().connect(('127.0.0.1', 9))"), "2 1.5 0", ["the network"]),
    "shell": Case(longest("!echo x"), "2 1.5 0", ["refused: starting a program"]),
    "system": Case(longest("import os\nos.system('true')"), "2 1.5 0", ["starting a program"]),
    "program": Case(longest("import subprocess\nsubprocess.run(['true'])"), "2 1.5 0", ["starting a program (true)"]),
    "fork": Case(longest("import os\nos.fork()"), "2 1.5 0", ["starting a program"] if hasattr(os, "fork") else []),
    "kill": Case(longest("import os\nos.kill(os.getppid(), 0)"), "2 1.5 0", ["ending another process"]),
    "solution": Case(longest(f"open({str(FOLDER / 'no.ipynb')!r})"), "2 1.5 0", ["reading another notebook"]),
    "exit": Case(right().before("longest", "import sys\nsys.exit(3)"), ALL, said=["SystemExit"]),
    "exit in a check": Case(right().set("longest", "def longest(x):\n    raise SystemExit"), "2 1.5 0"),
    "crash": Case(longest("import os\nos._exit(5)"), "2 1.5 0", ["longest: ended the Python process (exit code 5)"]),
    "crash in a check": Case(
        right().set("total", "import os\ndef total(x):\n    os._exit(0)"),
        "0 0 3",
        ["total_unchanged: ended the Python process"],
    ),
    "segfault": Case(
        longest("import ctypes\nctypes.string_at(0)"), "2 1.5 0", ["longest: ended the Python process", "uses ctypes"]
    ),
    "endless": Case(right().set("total", ENDLESS), "0 0 3", ["total_right: took longer than 2 s"], limits=QUICK),
    "endless cell": Case(
        longest("while True:\n    pass"),
        "2 1.5 0",
        ["longest: took longer than 2 s"],
        ["longest is not defined"],
        limits=QUICK,
    ),
    "memory": Case(right().set("longest", HOG), "2 1.5 0", ["used more than 400 MiB"], limits=Limits(memory=400)),
}
if sys.platform == "linux":
    CASES["memory at once"] = Case(longest("x = bytearray(5 * 10**9)"), "2 1.5 0", said=["MemoryError"])
