"""The grader: right, wrong, broken and hostile submissions to a lab invented for it, and files that are none."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "grading"
sys.path.insert(0, str(FOLDER))

from grade_cases import CASES, ENDLESS  # noqa: E402
from tiny_lab import CELLS, NAMES, Submission, lab  # noqa: E402

from minibatch.commands.grade import grade_one  # noqa: E402
from minibatch.grade import report, run  # noqa: E402
from minibatch.grade.notebook import Lab, plan  # noqa: E402
from minibatch.grade.run import Limits  # noqa: E402

USUAL = Limits()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def tiny(folder):
    return Lab.read(Submission().write(folder / "solutions" / "tiny.ipynb"))


@pytest.fixture(scope="module")
def grade(tiny):
    """The function that grades a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FOLDER))
        patch.setenv("TEACHERS_TOKEN", "x")
        yield lambda path, limits=USUAL, others=(): grade_one(tiny, list(others), path, limits, threading.Event())


@pytest.fixture(scope="module")
def graded(folder, grade):
    """All cases, two at a time: starting Python is what this costs."""

    def grade_case(name):
        path = CASES[name].submission.write(folder / "cases" / f"{name}.ipynb")
        if name == "no metadata":
            path.write_text(json.dumps(without_metadata(json.loads(path.read_text()))))
        return grade(path, CASES[name].limits)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(grade_case, CASES)))


def without_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
    return notebook


@pytest.mark.parametrize("name", CASES)
def test_points_notes_and_report(graded, name):
    case, one = CASES[name], graded[name]
    row = dict(zip(report.header(one.lab), report.row(one)))
    assert [row[check] for check in NAMES] == case.points.split(), report.as_json(one)
    assert float(row["total"]) == sum(map(float, case.points.split())) and row["of"] == "6.5"
    page = report.page(one)
    assert all(note in row["notes"] for note in case.notes), row["notes"]
    assert case.notes or not row["notes"], row["notes"]
    assert ("ended the Python process" in row["notes"]) == ("ended the Python process" in str(case.notes)), row["notes"]
    assert all(words in page for words in case.said), page


def test_a_file_outside_is_neither_written_nor_removed(folder, grade):
    victim = folder / "victim.txt"
    victim.write_text("as it was")
    name, new = repr(str(victim)), repr(str(folder / "new"))
    tries = [f"open({name}, 'w')", f"os.remove({name})", f"os.rename({name}, 'x')", f"os.chmod({name}, 0)"]
    tries += [f"os.symlink({str(folder)!r}, 'here')", "open('here/victim.txt', 'w')", f"os.truncate({name}, 0)"]
    tries += [f"os.link({name}, 'inside')", "open('inside', 'w')", f"os.mkdir({new})", f"sqlite3.connect({new})"]
    tries += [f"shutil.rmtree({str(folder)!r}, ignore_errors=True)", f"os.utime({name}, (0, 0))"]
    submission, before, changed = Submission(), sorted(folder.rglob("*")), victim.stat().st_mtime_ns
    for line in tries:
        submission.before("longest", f"import os, shutil, sqlite3\n{line}")
    path = submission.write(folder / "outside.ipynb")
    one = grade(path)
    assert victim.read_text() == "as it was" and victim.stat().st_mtime_ns == changed
    assert sorted(folder.rglob("*")) == sorted([*before, path])
    assert one.total == 6.5 and sum("changing a file outside" in note for note in one.notes) >= 3


def test_native_code_has_no_network_where_the_system_allows_it(folder, grade):
    code = "from minibatch.grade.guard import leave_the_network; print(leave_the_network())"
    allowed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    if allowed != "True":
        pytest.skip("this machine lets nobody out of its network")
    code = "lines = open('/proc/net/dev').read().splitlines()[2:]\nraise ValueError([l.split(':')[0] for l in lines])"
    one = grade(Submission().before("total", code).write(folder / "native.ipynb"))
    assert [why for _, why in one.cells] == ["ValueError: [' lo']"]


def test_time_and_starts_have_a_bound(folder, grade, monkeypatch):
    path = Submission().set("total", ENDLESS).write(folder / "long.ipynb")
    one = grade(path, Limits(cell_seconds=60, seconds=4))
    assert one.total == 0 and "the 4 s of the whole submission were over" in one.verdicts["total_right"].said
    assert one.verdicts["longest_right"].said == "was not reached: the whole submission took longer than 4 s"
    monkeypatch.setattr(run, "MOST_STARTS", 2)
    one = grade(Submission().set("total", "import os\ndef total(x):\n    os._exit(1)").write(folder / "often.ipynb"))
    assert one.total == 0 and "had to be started 2 times" in "; ".join(one.stopped)


def test_after_a_cell_that_hung_the_others_wait_less():
    assert [Limits(30).a_cell(hung) for hung in (False, True)] == [30, 10]
    assert [Limits(3).a_cell(hung) for hung in (False, True)] == [3, 2]
    assert [Limits(1).a_cell(hung) for hung in (False, True)] == [1, 1]


def test_a_lab_that_cannot_start_is_the_graders_fault(tiny, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder))  # tiny_checks is not there
    one = grade_one(tiny, [], Submission().write(folder / "start.ipynb"), USUAL, threading.Event())
    assert one.failed == "a cell of the lab itself failed: ModuleNotFoundError: No module named 'tiny_checks'"
    monkeypatch.setattr(run, "START", "import no_such_module")
    one = grade_one(tiny, [], Submission().write(folder / "start.ipynb"), USUAL, threading.Event())
    assert one.failed.startswith("the grading process did not start (exit code 1) ModuleNotFoundError")


FILES = {
    "empty": (b"", "an empty file"),
    "truncated": (json.dumps(lab()).encode()[:-40], "it is not JSON (cut off?)"),
    "text": (b"hello", "it is not JSON"),
    "binary": (b"PK\x03\x04\xff\x00", "it is not JSON"),
    "list": (b"[1, 2]", "it has no list of cells"),
    "cells": (b'{"cells": [1]}', "it has no list of cells"),
    "old": (b'{"worksheets": []}', "before 2015"),
    "nothing": (b'{"cells": []}', "no cell of tiny is in it"),
    "deep": (b"[" * 100_000, "it is not JSON"),
    "other": (json.dumps(lab(prefix="b_")).encode(), "this is other, not tiny"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_submission_says_why(name, grade, tmp_path):
    content, why = FILES[name]
    path = tmp_path / f"{name}.ipynb"
    path.write_bytes(content)
    stray = [(name, source.replace("total", "b"), *rest) for name, source, *rest in CELLS]
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "other.ipynb").write_text(json.dumps(lab(stray, prefix="b_")))
    if name == "other":
        path.write_text(json.dumps(lab(stray[2:4], prefix="b_")))
    one = grade(path, others=[Lab.read(tmp_path / "o" / "other.ipynb")])
    assert why in one.failed and one.total == 0 and report.row(one)[-1] == f"not graded: {one.failed}"
    assert one.failed in report.page(one)


def test_odd_cells_are_read(tmp_path, tiny):
    """CR LF, a byte order mark, sources that are one string or hold a lone surrogate, metadata that is nonsense."""
    notebook = json.loads(json.dumps(lab()))
    notebook["cells"] += [
        {"cell_type": "code", "source": "x = '\ud800'", "metadata": None},
        {"cell_type": "code", "metadata": {"nbgrader": 3}},
        {"cell_type": "code", "source": ["a\n", 5, "b"], "metadata": {"tags": 1}},
        {"source": "no type"},
    ]
    path = tmp_path / "odd.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(notebook).replace("\\n", "\\r\\n").encode())
    cells = plan(tiny, path).cells
    assert [cell.source for cell in cells[-3:]] == ["x = '\ud800'", "", "a\nb"]
    assert [cell.kind for cell in cells][:5] == ["locked", "locked", "answer", "check", "check"]
