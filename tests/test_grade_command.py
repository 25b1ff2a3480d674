"""`python -m minibatch grade`: the table, the reports, the exit codes, and masters that cannot be used."""

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "grading"
sys.path.insert(0, str(FOLDER))

from tiny_lab import CELLS, Submission, lab  # noqa: E402

from minibatch.commands import grade as command  # noqa: E402
from minibatch.grade import report  # noqa: E402
from minibatch.grade.notebook import Lab, NotGradable  # noqa: E402


@pytest.fixture
def master(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    return Submission().write(tmp_path / "solutions" / "tiny.ipynb")


def test_the_table_exactly(master, tmp_path):
    """Two folders with the same file name, a name that a spreadsheet would run, a stray file; reports beside it."""
    Submission().write(tmp_path / "anna" / "lab 1, final.ipynb")
    Submission().blank().write(tmp_path / "bohuš" / "lab 1, final.ipynb")
    (tmp_path / "=1+1.ipynb").write_text("{}")
    call = [sys.executable, "-m", "minibatch", "grade", str(master), "anna", "bohuš", "=1+1.ipynb", "--report", "out"]
    ran = subprocess.run(call, capture_output=True, cwd=tmp_path)
    assert ran.returncode == 1 and ran.stderr == b"", ran.stderr
    anna, bohus = Path("anna", "lab 1, final.ipynb"), Path("bohuš", "lab 1, final.ipynb")
    assert ran.stdout.decode().split("\r\n") == [
        "file,total_right,total_unchanged,longest_right,total,of,notes",
        f'"{anna}",2,1.5,3,6.5,6.5,',
        f'"{bohus}",0,0,0,0,6.5,',
        "./=1+1.ipynb,0,0,0,0,6.5,not graded: not a notebook: it has no list of cells",
        "",
    ]
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert sorted(pages) == ["=1+1.md", "anna__lab 1, final.md", "bohuš__lab 1, final.md"]
    assert pages["anna__lab 1, final.md"].startswith("# tiny: 6.5 of 6.5 points\n")


def test_json_and_a_file_for_the_table(master, tmp_path):
    path = Submission().blank().write(tmp_path / "one.ipynb")
    assert called(master, path, "--json", "--out", tmp_path / "grades.json") == 0
    found = json.loads((tmp_path / "grades.json").read_text(encoding="utf-8"))
    assert found[0]["checks"]["total_right"] == {
        "points": 0,
        "of": 2,
        "result": "not yet",
        "said": "total([2, 4, 2]) raised NotImplementedError",
    }


def called(*options):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(option) for option in options]))


def test_bad_usage_ends_with_2_and_says_what_to_do(master, tmp_path, capsys):
    good = Submission().write(tmp_path / "good.ipynb")
    stub = Submission().blank().write(tmp_path / "stub.ipynb")
    ungraded = tmp_path / "ungraded.ipynb"
    ungraded.write_text(json.dumps(lab(CELLS[:3])))
    (tmp_path / "empty").mkdir()
    for options, words in [
        ([tmp_path / "no.ipynb", good], "No such file"),
        ([ungraded, good], "has no graded cell"),
        ([stub, good], "itself fails total_right here (not yet"),
        ([master, tmp_path / "no.ipynb"], "no such file"),
        ([master, tmp_path / "empty"], "no notebook in this folder"),
        ([master, good, "--jobs", 0], "--jobs 0: must be at least 1"),
        ([master, good, "--memory", 10], "--memory 10: must be at least 256 MiB"),
        ([master, good, "--cell-seconds", 0], "--cell-seconds 0: must be more than 0"),
    ]:
        assert called(*options) == 2
        out, error = capsys.readouterr()
        assert words in error and out == ""


def test_a_master_that_cannot_be_used_is_refused(tmp_path):
    path = tmp_path / "m.ipynb"
    for change, words in [
        (lambda told, cell: told.update(points=None), "has None points"),
        (lambda told, cell: told.update(grade_id="total"), "two cells have the grade id 'total'"),
        (lambda told, cell: told.update(solution=True), "graded by hand"),
        (lambda told, cell: cell.update(source="check("), "is not Python"),
    ]:
        notebook = json.loads(json.dumps(lab()))
        cell = next(each for each in notebook["cells"] if each["metadata"].get("nbgrader", {}).get("points"))
        change(cell["metadata"]["nbgrader"], cell)
        path.write_text(json.dumps(notebook))
        with pytest.raises(NotGradable, match=words):
            Lab.read(path)


def test_rows_are_what_a_spreadsheet_reads_back(master):
    grade = report.Grade(Lab.read(master), Path('a "b"\nc.ipynb'), notes=["x, y", "z"])
    out = io.StringIO(newline="")
    csv.writer(out).writerow(report.row(grade))
    assert next(csv.reader(io.StringIO(out.getvalue(), newline=""))) == [
        'a "b"?c.ipynb',
        *"000",
        "0",
        "6.5",
        "x, y; z",
    ]


def test_patterns_and_folders_name_their_notebooks(tmp_path):
    for name in ("b/1.ipynb", "a/2.ipynb", "a/.ipynb_checkpoints/2-checkpoint.ipynb", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert command._submissions([str(tmp_path)]) == [tmp_path / "a" / "2.ipynb", tmp_path / "b" / "1.ipynb"]
    assert command._submissions([str(tmp_path / "*" / "1.ipynb"), str(tmp_path / "b")]) == [tmp_path / "b" / "1.ipynb"]
