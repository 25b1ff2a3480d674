"""A lab of two questions and seven points, invented for the tests of the grader, and submissions to it."""

import copy
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

IMPORTS = "from tiny_checks import check_longest, check_total, check_unchanged"
CONSTANTS = 'UNIT = "tokens"\nEXAMPLE = [2, 4, 2]'
TOTAL = "def total(lengths):\n    return sum(lengths)"
LONGEST = "def longest(lengths):\n    return max(lengths)"
STUB = "    # YOUR CODE HERE\n    raise NotImplementedError()"
SHOWS = "raise RuntimeError('this cell only draws')"

CELLS = [  # grade id, source, points, kind
    ("imports", IMPORTS, 0, "locked"),
    ("constants", CONSTANTS, 0, "locked"),
    ("total", TOTAL, 0, "answer"),
    ("total_right", "check_total(total, unit=UNIT)", 2, "check"),
    ("total_unchanged", "check_unchanged(total)", 1.5, "check"),
    ("picture", SHOWS, 0, "shows"),
    ("between", "MOST = len(EXAMPLE) + 1", 0, "locked"),
    ("longest", LONGEST, 0, "answer"),
    ("longest_right", "check_longest(longest, most=MOST)", 3, "check"),
]
NAMES = [name for name, _, _, kind in CELLS if kind == "check"]


def cell(source, name="", points=0, kind="extra"):
    made = new_code_cell(source)
    if kind == "extra":
        return made
    told = {"grade": kind == "check", "grade_id": name, "locked": kind != "answer"}
    told |= {"schema_version": 3, "solution": kind == "answer", "task": False}
    made.metadata["nbgrader"] = told | ({"points": points} if kind == "check" else {})
    if kind == "shows":
        made.metadata["tags"] = ["shows", "raises-exception"]
    return made


def lab(cells=CELLS, prefix=""):
    """As a notebook; with a prefix, another lab."""
    made = [cell(source, prefix + name, points, kind) for name, source, points, kind in cells]
    return new_notebook(cells=[new_markdown_cell("# A tiny lab"), *made])


class Submission:
    """The lab as handed in: all answers right, until something is changed. Each change returns the submission."""

    def __init__(self):
        self.cells = lab().cells

    def at(self, name):
        return next(i for i, each in enumerate(self.cells) if each.metadata.get("nbgrader", {}).get("grade_id") == name)

    def set(self, name, source):
        self.cells[self.at(name)].source = source
        return self

    def blank(self):
        return self.set("total", f"def total(lengths):\n{STUB}").set("longest", f"def longest(lengths):\n{STUB}")

    def before(self, name, source):
        self.cells.insert(self.at(name), cell(source))
        return self

    def after(self, name, source):
        self.cells.insert(self.at(name) + 1, cell(source))
        return self

    def end(self, source):
        self.cells.append(cell(source))
        return self

    def delete(self, name):
        del self.cells[self.at(name)]
        return self

    def move(self, name, to):
        self.cells.insert(to, self.cells.pop(self.at(name)))
        return self

    def double(self, name):
        self.cells.insert(self.at(name), copy.deepcopy(self.cells[self.at(name)]))
        self.cells[self.at(name)]["id"] = f"copy-of-{name}"
        return self

    def write(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(new_notebook(cells=self.cells), path)
        return path
