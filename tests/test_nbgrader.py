"""The labs in nbgrader, as they are: what it releases is our student's version, and it gives the points we give.

`pytest -m nbgrader` needs `pip install -e .[nbgrader]`, or an interpreter that has nbgrader and this package:

    NBGRADER_PYTHON=PATH/bin/python python -m pytest -m nbgrader -n 0
"""

import copy
import csv
import os
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest

from minibatch.commands.grade import grade_one
from minibatch.grade.notebook import Lab
from minibatch.grade.run import Limits

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
PYTHON = os.environ.get("NBGRADER_PYTHON") or sys.executable
HAS_NBGRADER = "import importlib.util, sys; sys.exit(importlib.util.find_spec('nbgrader') is None)"
CONFIG = """c = get_config()
c.ExecutePreprocessor.timeout = 300  # seconds a cell, on a busy machine; all else as nbgrader has it
"""
pytestmark = pytest.mark.nbgrader


def nbgrader(course: Path, *command: str) -> str:
    """Run a command of nbgrader in a course folder; what it says, as a failure too."""
    settings = {name: str(course / ".jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    path = f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"  # it calls alembic by its bare name
    environment = os.environ | settings | {"OMP_NUM_THREADS": "1", "PATH": path}
    ran = subprocess.run(
        [PYTHON, "-m", "nbgrader", *command],
        cwd=course,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    return ran.stdout


def grade_id(cell) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def answered(student, solution, names: list[str]):
    """Our student's version with the answers of these cells filled in from the solution."""
    filled, answers = copy.deepcopy(student), {grade_id(cell): cell.source for cell in solution.cells}
    for cell in filled.cells:
        if grade_id(cell) in names:
            cell["source"] = answers[grade_id(cell)]
    return filled


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course with one lab, released, and three students: nothing answered, one question, all."""
    if subprocess.run([PYTHON, "-c", HAS_NBGRADER]).returncode:
        pytest.skip("nbgrader is not installed: pip install -e .[nbgrader], or set NBGRADER_PYTHON")
    folder = tmp_path_factory.mktemp("course")
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    student = nbformat.read(LABS / "lab1.ipynb", as_version=4)
    solution = nbformat.read(LABS / "solutions" / "lab1.ipynb", as_version=4)
    names = [grade_id(cell) for cell in solution.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    submissions = {"blank": [], "one": names[:1], "all": names}
    for who, which in submissions.items():
        path = folder / "submitted" / who / "lab1" / "lab1.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(answered(student, solution, which), path)
    source = folder / "source" / "lab1" / "lab1.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes((LABS / "solutions" / "lab1.ipynb").read_bytes())
    nbgrader(folder, "generate_assignment", "lab1", "--create")
    return folder


def test_nbgrader_releases_the_students_version(course):
    released = nbformat.read(course / "release" / "lab1" / "lab1.ipynb", as_version=4)
    student = nbformat.read(LABS / "lab1.ipynb", as_version=4)
    assert [(cell.cell_type, cell.source) for cell in released.cells] == [
        (cell.cell_type, cell.source) for cell in student.cells
    ]


def test_nbgrader_gives_the_points_that_we_give(course):
    nbgrader(course, "autograde", "lab1", "--create")
    nbgrader(course, "export", "--to", "grades.csv")
    with (course / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    theirs = {who: float(row["score"]) for who, row in rows.items()}
    lab = Lab.read(LABS / "solutions" / "lab1.ipynb")
    ours = {
        who: grade_one(lab, [], course / "submitted" / who / "lab1" / "lab1.ipynb", Limits(), threading.Event()).total
        for who in rows
    }
    assert theirs == ours
    assert ours["blank"] == 0 < ours["one"] < ours["all"] == lab.of == float(rows["all"]["max_score"])
