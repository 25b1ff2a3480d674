"""Every lab: its checks refuse the stub and the mistakes of the field, and pass right answers however written.

`pytest -m labs` prints the matrix. Each tests/labs/labN.py gives LAB, and TABLE, for each answer cell of the lab

    "schedule": {"name": what the cell defines, "checks": {graded cell: check}, "right": [two or more answers],
                 "wrong": [(answer, word of the message), six or more]}

and OTHER_YEAR, [(graded cell, constants of another variant, an answer right for the published one, word)]; if it needs
what a machine may lack, SKIP, {answer cell: the reason why it is left out, or ""}. The stub comes from the student's
version and the reference from the solution, so neither can be forgotten.
"""

import importlib.util
import re
from copy import deepcopy
from functools import cache
from pathlib import Path

import build_labs
import jupytext
import nbformat
import pytest

from minibatch.checks.base import CheckFailed, NotYet

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(build_labs.LABS.glob("source/lab*.py"))
VARIANTS = (0, 1, 2)  # every alternative of every constant that has up to three
pytestmark = pytest.mark.labs


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"table_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = [load(path) for path in sorted((ROOT / "tests" / "labs").glob("lab*.py"))]


@cache
def notebook(lab: str, variant: int = 0):
    return build_labs.read(build_labs.LABS / "source" / f"{lab}.py", variant)


def cells(lab: str, variant: int = 0, blank: bool = False):
    """What a grader runs: no cell that only shows something."""
    found = build_labs.student(deepcopy(notebook(lab, variant)), lab) if blank else notebook(lab, variant)
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    return [cell for cell in code if "shows" not in cell.metadata.get("tags", [])]


@cache
def namespace(lab: str, variant: int = 0, blank: bool = False) -> dict:
    """Everything that the lab's cells define."""
    names = {"__name__": lab}
    for cell in cells(lab, variant, blank):
        if not cell.metadata.nbgrader.grade:
            exec(compile(cell.source, cell.id, "exec"), names)
    return names


def skipped(table, question: str) -> list:
    reason = getattr(table, "SKIP", {}).get(question, "")
    return [pytest.mark.skip(reason=reason)] if reason else []


QUESTIONS = [
    pytest.param(table.LAB, question, row, id=f"{table.LAB}-{question}", marks=skipped(table, question))
    for table in TABLES
    for question, row in table.TABLE.items()
]
OTHER_YEAR = [
    pytest.param(table, *case, id=f"{table.LAB}-{case[0]}", marks=skipped(table, question))
    for table in TABLES
    for case in table.OTHER_YEAR
    for question, row in table.TABLE.items()
    if case[0] in row["checks"]
]


def judge(checks: dict, answer) -> tuple[str, CheckFailed] | None:
    """The first graded cell that refuses the answer, and its words."""
    for cell, check in checks.items():
        try:
            check(answer)
        except CheckFailed as failed:
            return cell, failed
    return None


def name_of(answer) -> str:
    return getattr(answer, "__name__", type(answer).__name__)


@pytest.mark.parametrize("lab, question, row", QUESTIONS)
def test_right_answers_pass(lab, question, row, record_property):
    assert len(row["right"]) >= 2
    for answer in [namespace(lab)[row["name"]], *row["right"]]:
        refused = judge(row["checks"], answer)
        assert not refused, f"{name_of(answer)}: {refused[0]}: {refused[1]}"
        record_property("labs", (lab, question, "right", name_of(answer), ""))


@pytest.mark.parametrize("lab, question, row", QUESTIONS)
def test_the_stub_is_told_apart(lab, question, row, record_property):
    for cell, check in row["checks"].items():
        with pytest.raises(NotYet):
            check(namespace(lab, blank=True)[row["name"]])
        record_property("labs", (lab, question, "stub", cell, "not yet"))


@pytest.mark.parametrize("lab, question, row", QUESTIONS)
def test_mistakes_are_refused_in_one_helpful_sentence(lab, question, row, record_property):
    assert len(row["wrong"]) >= 6
    for answer, word in row["wrong"]:
        refused = judge(row["checks"], answer)
        assert refused, f"{name_of(answer)} passed"
        message = str(refused[1])
        assert word in message and "\n" not in message and len(message) < 400, f"{name_of(answer)}: {message}"
        assert_answer_is_not_told(refused[1])
        record_property("labs", (lab, question, "wrong", name_of(answer), message))


@pytest.mark.parametrize("table, cell, constants, answer, word", OTHER_YEAR)
def test_the_answer_of_another_year_is_refused(table, cell, constants, answer, word):
    check = next(row["checks"][cell] for row in table.TABLE.values() if cell in row["checks"])
    with pytest.raises(CheckFailed, match=re.escape(word)):
        check(answer, **constants)


def assert_answer_is_not_told(failed: CheckFailed) -> None:
    """The right value occurs nowhere but, by chance, among the arguments of the call or in what was returned."""
    if failed.expected is None:
        return
    rest = re.sub(r"returned .*?(: |$)", "", str(failed).replace(failed.call, ""), count=1)
    assert not re.search(rf"(?<![\w.]){re.escape(str(failed.expected))}(?![\w.]*\w)", rest), str(failed)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.LAB)
def test_the_solution_is_right_for_every_variant(table, variant):
    """Run as the grader does: the graded cells themselves, with that variant's constants."""
    left_out = {cell for question, row in table.TABLE.items() if skipped(table, question) for cell in row["checks"]}
    names = namespace(table.LAB, variant)
    for cell in cells(table.LAB, variant):
        if cell.metadata.nbgrader.grade and cell.metadata.nbgrader.grade_id not in left_out:
            exec(compile(cell.source, cell.id, "exec"), dict(names))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_lab_and_its_table_name_the_same_cells(source):
    table = next(table for table in TABLES if source.stem == table.LAB)
    found = [cell.metadata.nbgrader for cell in cells(source.stem)]
    assert {g.grade_id for g in found if g.solution} == set(table.TABLE)
    assert {g.grade_id for g in found if g.grade} == {cell for row in table.TABLE.values() for cell in row["checks"]}
    assert table.OTHER_YEAR and all(len(values) >= 2 for values in build_labs.constants(jupytext.read(source)).values())
    assert 10 <= sum(g.points for g in found if g.grade) <= 20


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_students_version_is_the_sources(source):
    committed = nbformat.read(build_labs.LABS / f"{source.stem}.ipynb", as_version=4)
    fresh = build_labs.student(build_labs.read(source), source.stem)
    assert committed.cells == fresh.cells, f"run: python notebooks/build.py labs {source.stem}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_solution_runs_and_prints_what_was_committed(source):
    fresh = build_labs.solution(build_labs.read(source), source.stem)
    assert build_labs.check(build_labs.LABS / "solutions" / f"{source.stem}.ipynb", fresh) == []


def test_there_are_six_labs():
    assert [path.stem for path in SOURCES] == [f"lab{n}" for n in range(1, 7)] == [table.LAB for table in TABLES]
