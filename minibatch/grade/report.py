"""What came of a submission: a row of the table for the teacher, a page for the student."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from minibatch.grade.notebook import Cell, Lab, Plan
from minibatch.grade.run import Outcome, Verdict

LABELS = {
    "right": "right",
    "not yet": "not yet answered",
    "missing": "nothing to check",
    "wrong": "not right",
    "error": "not right",
    "stopped": "stopped",
    "not run": "not run",
}
MOST_CELLS = 10  # that a report names as having failed


@dataclass
class Grade:
    """A graded submission. `failed` says why it could not be graded; it then has no points."""

    lab: Lab
    path: Path
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by grade id
    cells: list[tuple[Cell, str]] = field(default_factory=list)  # that did not run to their end, and why
    stopped: list[str] = field(default_factory=list)  # what ran too long, crashed, or was not reached
    notes: list[str] = field(default_factory=list)
    failed: str = ""

    @classmethod
    def of_outcome(cls, lab: Lab, path: Path, plan: Plan, outcome: Outcome) -> "Grade":
        grade = cls(lab, path, failed=outcome.broken)
        if outcome.broken:
            return grade
        for number, cell in enumerate(plan.cells):
            if cell.kind == "check":
                grade.verdicts[cell.name] = outcome.verdicts[number]
            elif why := outcome.left_out.get(number) or outcome.errors.get(number):
                grade.cells.append((cell, why))
        grade.stopped = [f"{cell.name or 'an added cell'}: {why}" for cell, why in _stopped(plan, outcome)]
        grade.notes = [f"refused: {what}" for what in dict.fromkeys(outcome.refused)] + plan.notes
        return grade

    def points(self, check: Cell) -> float:
        verdict = self.verdicts.get(check.name)
        return check.points if verdict and verdict.result == "right" else 0

    @property
    def total(self) -> float:
        return sum(self.points(check) for check in self.lab.checks)


def _stopped(plan: Plan, outcome: Outcome) -> list[tuple[Cell, str]]:
    stopped = [(plan.cells[number], why) for number, why in sorted(outcome.left_out.items())]
    not_run = {verdict.said for verdict in outcome.verdicts.values() if verdict.result == "not run"}
    return stopped + [(Cell("check", "some checks", ""), why) for why in sorted(not_run)]


def header(lab: Lab) -> list[str]:
    """The first row of the table."""
    return ["file", *(check.name for check in lab.checks), "total", "of", "notes"]


def row(grade: Grade) -> list[object]:
    """A submission's row of the table, in the order of `header`."""
    points = [number(grade.points(check)) for check in grade.lab.checks]
    notes = [f"not graded: {grade.failed}"] if grade.failed else grade.stopped + grade.notes
    return [_cell(str(grade.path)), *points, number(grade.total), number(grade.lab.of), _cell("; ".join(notes))]


def number(points: float) -> str:
    """3, 2.5: as short as it is exact."""
    return f"{round(points, 6):.15g}"


def _cell(text: str) -> str:
    """One line; a spreadsheet must not take a file's name for a formula."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return f"./{text}" if text[:1] in ("=", "+", "-", "@") else text


def as_json(grade: Grade) -> dict[str, object]:
    """The same with every check's sentence."""
    checks = {
        check.name: {"points": grade.points(check), "of": check.points, **_verdict(grade, check)}
        for check in grade.lab.checks
    }
    told = {"total": grade.total, "of": grade.lab.of, "notes": grade.stopped + grade.notes, "failed": grade.failed}
    return {"file": str(grade.path), "checks": checks, **told}


def _verdict(grade: Grade, check: Cell) -> dict[str, str]:
    verdict = grade.verdicts.get(check.name, Verdict("not run"))
    return {"result": verdict.result, "said": verdict.said}


def page(grade: Grade) -> str:
    """The report in Markdown."""
    lab, head = grade.lab, [f"# {grade.lab.name}: {number(grade.total)} of {number(grade.lab.of)} points", ""]
    head += [f"File: {_code(str(grade.path))}", ""]
    if grade.failed:
        return "\n".join([*head, f"This file could not be graded: {grade.failed}.", ""])
    lines = [line for check in lab.checks for line in _check_lines(grade, check)]
    return "\n".join([*head, *lines, *_cell_lines(grade), *_note_lines(grade)])


def _check_lines(grade: Grade, check: Cell) -> list[str]:
    verdict = grade.verdicts[check.name]
    lines = [f"## {check.name}: {number(grade.points(check))} of {number(check.points)}", ""]
    lines += [f"{LABELS[verdict.result].capitalize()}: {_code(check.source)}", ""]
    return [*lines, *([f"> {_code(verdict.said)}", ""] if verdict.said else [])]


def _cell_lines(grade: Grade) -> list[str]:
    if not grade.cells:
        return []
    lines = ["## Cells that did not run to their end", ""]
    lines.append("What such a cell would have defined is missing in the cells below it.")
    lines.append("")
    for cell, why in grade.cells[:MOST_CELLS]:
        name = f"answer {_code(cell.name)}" if cell.kind == "answer" else "the cell"
        lines.append(f"* {name} that begins {_code(cell.begins)}: {_code(why)}")
    more = len(grade.cells) - MOST_CELLS
    return [*lines, *([f"* and {more} more"] if more > 0 else []), ""]


def _note_lines(grade: Grade) -> list[str]:
    notes = [note for note in grade.notes if not note.startswith("look:")]  # those are for the teacher
    return ["## Also", "", *(f"* {_code(note)}" for note in notes), ""] if notes else []


def _code(text: str) -> str:
    """Shown as it is, whatever a student wrote."""
    text = " ".join(text.split())
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def file_names(paths: list[Path]) -> list[str]:
    """A name for each report: the submission's path below the folder that all have in common."""
    parents = [path.resolve().parent for path in paths]
    common = Path(*_common([parent.parts for parent in parents]))
    names: dict[str, int] = {}
    found = []
    for path, parent in zip(paths, parents):
        name = "__".join([*parent.relative_to(common).parts, path.stem])
        names[name] = names.get(name, 0) + 1
        found.append(f"{name}.md" if names[name] == 1 else f"{name} ({names[name]}).md")
    return found


def _common(parts: list[tuple[str, ...]]) -> list[str]:
    common = []
    for each in zip(*parts):
        if len(set(each)) > 1:
            break
        common.append(each[0])
    return common
