"""What a teacher does: a folder of a right, a wrong, a blank, an endless and a vandalised submission to lab 1."""

import copy
import csv
import io
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
WRONG = """def bill(lengths, num_slots):
    return sum(lengths), 0
"""
ENDLESS = """def bill(lengths, num_slots):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""


def id_of(cell) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def answered(**other):
    """The student's notebook with the solution's answers, but for those given."""
    notebook = nbformat.read(LABS / "lab1.ipynb", as_version=4)
    solution = nbformat.read(LABS / "solutions" / "lab1.ipynb", as_version=4)
    answers = {id_of(cell): cell.source for cell in solution.cells} | other
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell["source"] = answers[id_of(cell)]
    return notebook


def vandalised():
    """Right answers among broken built-ins, an emptied check, one twice, one gone, and a checker that likes all."""
    notebook = answered()
    checks = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    checks[0]["source"] = "pass"
    twin = copy.deepcopy(checks[1])
    twin["id"] = "twin"
    notebook.cells.insert(notebook.cells.index(checks[1]), twin)
    notebook.cells.remove(checks[3])
    broken = nbformat.v4.new_code_cell("import builtins\nbuiltins.sum = None\nlist = 5")
    notebook.cells.insert(notebook.cells.index(checks[0]), broken)
    liked = "import minibatch.checks.base as base\nbase.same = lambda *given: True"
    notebook.cells.append(nbformat.v4.new_code_cell(liked))
    return notebook


@pytest.mark.slow
def test_a_folder_of_five(tmp_path):
    given = tmp_path / "submissions"
    given.mkdir()
    blank = nbformat.read(LABS / "lab1.ipynb", as_version=4)
    made = {"blank": blank, "right": answered(), "wrong": answered(bill=WRONG), "endless": answered(bill=ENDLESS)}
    for name, notebook in (made | {"vandalised": vandalised()}).items():
        nbformat.write(notebook, given / f"{name}.ipynb")
    command = [sys.executable, "-m", "minibatch", "grade", str(LABS / "solutions" / "lab1.ipynb"), str(given)]
    command += ["--report", str(tmp_path / "reports")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    rows = {Path(row["file"]).stem: row for row in csv.DictReader(io.StringIO(ran.stdout))}
    # The bill has 3 points: 1 for what is useful, which the wrong one has.
    assert {name: row["total"] for name, row in rows.items()} == {
        "blank": "0", "right": "19", "wrong": "17", "endless": "16", "vandalised": "19"
    }  # fmt: skip
    assert "longer than" in rows["endless"]["notes"]
    assert len(list((tmp_path / "reports").iterdir())) == 5
