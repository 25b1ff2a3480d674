"""Which cells run when a submission is graded, in which order, and whose copy of each.

The lab's own cells (imports, constants, checks) come from the master; of a submission only its answers and the cells it
adds are run. A copy is known by its grade id or, where the metadata is gone, by its text.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MOST_BYTES = 50_000_000  # of a submission; with its outputs a lab has a few hundred thousand
# What no answer needs, and what one that looks at the checks, at other files or at the grader does.
LOOK = re.compile(
    r"minibatch\.(?:checks|grade)|\.ipynb|\bsys\.modules|\b__builtins__|\bbuiltins\b|\b_getframe\b|\bcurrentframe\b"
    r"|\bctypes\b|\baddaudithook\b|\b__subclasses__\b|\b__code__\b|\bgc\.get_\w+|\bsettrace\b|\bsetprofile\b|\b_posixsubprocess\b"
)


class NotGradable(ValueError):
    """A file that is no submission to this lab, or a master that is none. The message says why."""


@dataclass(frozen=True)
class Cell:
    """A code cell. `kind`: "locked", "check", "shows" (only draws, and is not run), "answer", or "extra", a student's
    own. `name` is its grade id, or "". `points` are those of a check."""

    kind: str
    name: str
    source: str
    points: float = 0

    @property
    def begins(self) -> str:
        """What a student knows the cell by."""
        lines = [line.strip() for line in self.source.splitlines() if line.strip()]
        return (lines[0] if len(lines[0]) <= 60 else lines[0][:59] + "…") if lines else ""


@dataclass(frozen=True)
class Lab:
    """The code cells of a master, in order."""

    name: str
    cells: tuple[Cell, ...]

    @classmethod
    def read(cls, path: Path) -> "Lab":
        """Raises NotGradable if the notebook has no graded cell, or one that cannot be used."""
        cells = tuple(Cell(*_grading(raw), _source(raw), _points(raw)) for raw in code_cells(path))
        lab = cls(path.stem, cells)
        if not lab.checks:
            raise NotGradable("has no graded cell; the master is notebooks/labs/solutions/labN.ipynb")
        names = [cell.name for cell in cells if cell.name]
        for cell in lab.checks:
            if names.count(cell.name) > 1:
                raise NotGradable(f"two cells have the grade id {cell.name!r}")
            if not isinstance(cell.points, (int, float)) or isinstance(cell.points, bool) or not 0 <= cell.points < 1e6:
                raise NotGradable(f"the graded cell {cell.name!r} has {cell.points!r} points")
            try:
                ast.parse(cell.source)
            except SyntaxError as error:
                raise NotGradable(f"the graded cell {cell.name!r} is not Python: {error.msg}") from error
        return lab

    @cached_property
    def checks(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.kind == "check"]

    @property
    def of(self) -> float:
        """Points of the whole lab."""
        return sum(cell.points for cell in self.checks)

    @cached_property
    def opening(self) -> list[Cell]:
        """The lab's own cells before the first answer: imports and constants."""
        first = next((i for i, cell in enumerate(self.cells) if cell.kind == "answer"), len(self.cells))
        return [cell for cell in self.cells[:first] if cell.kind == "locked"]

    @cached_property
    def answers(self) -> set[str]:
        """The names that answer cells define: what a check takes from the student, and nothing else."""
        return {name for cell in self.cells if cell.kind == "answer" for name in _defined(cell.source)}

    def find(self, raw: dict) -> Cell | None:
        """The cell of the lab that a submission's cell is a copy of."""
        name, source = _nbgrader(raw).get("grade_id"), _source(raw).strip()
        by_name = next((cell for cell in self.cells if cell.name and cell.name == name), None)
        if by_name or not source:
            return by_name
        return next((cell for cell in self.cells if cell.kind != "answer" and cell.source.strip() == source), None)

    def looks_like(self, cells: list[dict]) -> int:
        """How many of a notebook's cells are answers or checks of this lab."""
        found = (self.find(raw) for raw in cells)
        return len({cell.name for cell in found if cell and cell.kind in ("answer", "check")})


@dataclass(frozen=True)
class Plan:
    """The cells to run, the first `opening` of which are the lab's own, and what is worth a word about the file."""

    cells: list[Cell]
    opening: int
    answers: set[str]
    notes: list[str]


def plan(lab: Lab, path: Path, others: list[Lab] = ()) -> Plan:
    """What to run of a submission. Raises NotGradable; if it belongs to one of the `others`, that is said."""
    submitted = code_cells(path)
    if not lab.looks_like(submitted):
        best = max(others, key=lambda other: other.looks_like(submitted), default=None)
        if best and best.looks_like(submitted):
            raise NotGradable(f"this is {best.name}, not {lab.name}")
        raise NotGradable(f"no cell of {lab.name} is in it")
    cells, notes, met = list(lab.opening), [], []
    for raw in submitted:
        found, source = lab.find(raw), _source(raw)
        met.append(found)
        if found is None or found.kind == "answer":
            name = found.name if found else ""
            cells.append(Cell("answer" if found else "extra", name, source))
            notes += _worth_a_look(source, found.source if found else "", name)
            continue
        if found.kind != "shows" and source.strip() != found.source.strip():
            notes.append(f"{found.name}: changed by the student, the lab's own was used")
        if found.kind != "shows" and found not in cells:
            cells.append(found)
    for cell in lab.cells:
        if cell.kind in ("locked", "check") and cell not in met:
            notes.append(f"{cell.name}: deleted by the student, the lab's own was used")
        if cell.kind in ("locked", "check") and cell not in cells:
            cells.insert(_place(lab, cell, cells), cell)
    return Plan(cells, len(lab.opening), lab.answers, list(dict.fromkeys(notes)))


def _place(lab: Lab, missing: Cell, cells: list[Cell]) -> int:
    """A check whose cell is gone comes at the end; a locked cell before the first cell that follows it in the lab."""
    if missing.kind == "check":
        return len(cells)
    later = {cell.name for cell in lab.cells[lab.cells.index(missing) :] if cell.name}
    return next((i for i, cell in enumerate(cells) if cell.name in later), len(cells))


def _worth_a_look(source: str, given: str, name: str) -> Iterator[str]:
    for word in dict.fromkeys(LOOK.findall(source)):
        if word not in given:
            yield f"look: {name or 'an added cell'} uses {word}"


def code_cells(path: Path) -> list[dict]:
    """The code cells of a notebook file as they are written there. Raises NotGradable if it is not a notebook."""
    if path.stat().st_size > MOST_BYTES:
        raise NotGradable(f"larger than {MOST_BYTES // 10**6} MB: clear the outputs and save it again")
    content = path.read_bytes()
    if not content.strip():
        raise NotGradable("an empty file")
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        cut = " (cut off?)" if content.lstrip()[:1] == b"{" else ""
        raise NotGradable(f"not a notebook: it is not JSON{cut}") from error
    if isinstance(notebook, dict) and "worksheets" in notebook:
        raise NotGradable("a notebook in the format of before 2015: open it in JupyterLab and save it again")
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotGradable("not a notebook: it has no list of cells")
    return [cell for cell in cells if cell.get("cell_type") == "code"]


def _source(raw: dict) -> str:
    source = raw.get("source", "")
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str)).replace("\r\n", "\n")


def _metadata(raw: dict) -> dict:
    found = raw.get("metadata")
    return found if isinstance(found, dict) else {}


def _nbgrader(raw: dict) -> dict:
    found = _metadata(raw).get("nbgrader")
    return found if isinstance(found, dict) else {}


def _points(raw: dict) -> float:
    return _nbgrader(raw).get("points", 0)


def _grading(raw: dict) -> tuple[str, str]:
    """Kind and grade id of a master's cell."""
    told = _nbgrader(raw)
    if told.get("solution"):
        if told.get("grade"):
            raise NotGradable(f"{told.get('grade_id')!r} is to be graded by hand, which this grader cannot do")
        return "answer", told.get("grade_id", "")
    shows = "shows" in _metadata(raw).get("tags", [])
    kind = "check" if told.get("grade") else "shows" if shows else "locked"
    return kind, told.get("grade_id", "")


def _defined(source: str) -> Iterator[str]:
    """The names that a cell defines or assigns at its top; imports are not answers."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # magics
        return
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield from (
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            )
