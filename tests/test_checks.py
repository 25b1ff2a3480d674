"""Every exercise: its check refuses the stub and typical wrong answers, and passes right ones however written.

Each tests/checks/nbNN.py says `NOTEBOOK = "NN_name"` and gives a TABLE: the function's name, as in the notebook's
stub and in notebooks/solutions/NN_name.py, to

    {"check": check_x, "right": [two or more functions], "wrong": [(function, word of the message), five or more]}

and, if it needs what a machine may lack, SKIP, the reason why its exercises are left out or "".

The stub is taken out of the notebook's source and the reference out of the solutions, so neither can be forgotten.
"""

import ast
import importlib.util
import math
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from minibatch.checks.base import CheckFailed, NotYet, attempt, call, expect, same

ROOT = Path(__file__).resolve().parents[1]


ODD = ["?", [], True, object(), {"a": 1}]  # no hint may trip over what a reader returns


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"table_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marks_of(table):
    """A table may say in SKIP why its checks cannot run on this machine."""
    reason = getattr(table, "SKIP", "")
    return [pytest.mark.skip(reason=reason)] if reason else []


TABLES = [load(path) for path in sorted((ROOT / "tests" / "checks").glob("nb*.py"))]
EXERCISES = [
    pytest.param(table.NOTEBOOK, name, answers, id=f"{table.NOTEBOOK}-{name}", marks=marks_of(table))
    for table in TABLES
    for name, answers in table.TABLE.items()
]


def stub(notebook: str, name: str):
    """The function as the reader finds it: from the notebook's source, with the notebook's imports."""
    tree = ast.parse((ROOT / "notebooks" / "source" / f"{notebook}.py").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(found) == 1, f"{notebook}: {len(found)} functions named {name}"
    namespace = {}
    exec(compile(ast.Module(imports + found, type_ignores=[]), notebook, "exec"), namespace)
    return namespace[name]


def reference(notebook: str, name: str):
    return runpy.run_path(str(ROOT / "notebooks" / "solutions" / f"{notebook}.py"))[name]


def noisy(value):
    """The same answer as another reader would give it: float noise of 1e-9, tuples for lists."""
    if isinstance(value, list):
        return tuple(noisy(each) for each in value)
    if isinstance(value, tuple):
        return [noisy(each) for each in value]
    return value * (1 + 1e-9) if isinstance(value, float) else value


def raising(*_):
    raise KeyError("a\nkey")


@pytest.mark.parametrize("notebook, name, answers", EXERCISES)
def test_right_answers_pass(notebook, name, answers):
    solution = reference(notebook, name)
    assert len(answers["right"]) >= 2
    for right in [solution, lambda *args: noisy(solution(*args)), *answers["right"]]:
        answers["check"](right)


@pytest.mark.parametrize("notebook, name, answers", EXERCISES)
def test_stub_is_told_apart(notebook, name, answers):
    with pytest.raises(NotYet):
        answers["check"](stub(notebook, name))


@pytest.mark.parametrize("notebook, name, answers", EXERCISES)
def test_wrong_answers_fail_in_one_helpful_line(notebook, name, answers):
    assert len(answers["wrong"]) >= 5
    odd = [(raising, "KeyError"), (lambda *_: math.nan, "NaN"), *((lambda *_, odd=odd: odd, "") for odd in ODD)]
    for wrong, word in [*answers["wrong"], *odd]:
        with pytest.raises(CheckFailed) as failed:
            answers["check"](wrong)
        message = str(failed.value)
        assert word in message and "\n" not in message, message
        assert len(message) < 400, message
        assert_answer_is_not_told(failed.value)


def assert_answer_is_not_told(failed: CheckFailed) -> None:
    """The right value occurs nowhere but, by chance, among the arguments of the call."""
    if failed.expected is None:
        return
    rest = str(failed).replace(failed.call, "")
    rest = re.sub(r"returned .*?(: |$)", "", rest, count=1)  # the reader's own, wrong value
    assert not re.search(rf"(?<![\w.]){re.escape(str(failed.expected))}(?![\w.]*\w)", rest), str(failed)


def test_every_notebook_has_a_table():
    notebooks = {path.stem for path in (ROOT / "notebooks" / "source").glob("*.py")}
    assert {table.NOTEBOOK for table in TABLES} == notebooks
    assert all(len(table.TABLE) >= 3 for table in TABLES)


def test_checks_import_no_pictures():
    modules = sorted(path.stem for path in (ROOT / "minibatch" / "checks").glob("*.py"))
    imports = "; ".join(f"import minibatch.checks.{name}" for name in modules if name != "__init__")
    code = f"{imports}; import sys; print(*sorted({{'matplotlib', 'ipywidgets', 'IPython'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_attempt_prints_one_line_and_never_raises(capsys):
    def check(function):
        expect(function, 2, want=4, hint="it should be even")

    def double(x):
        return 2 * x

    for function in (double, lambda x: None, lambda x: 5, raising):
        attempt(check, function)
    assert capsys.readouterr().out.splitlines() == [
        "OK: double",
        "NOT YET: your function(2) returned None",
        "CHECK FAILED: your function(2) returned 5: it should be even",
        "CHECK FAILED: raising(2) raised KeyError: 'a\\nkey'",
    ]


def test_ipython_shows_one_line():
    assert CheckFailed("wrong")._render_traceback_() == ["CHECK FAILED: wrong"]


def test_same_compares_values_not_types():
    assert same((1, 2.0000000001), [1, 2]) and same({"a": 1.0}, {"a": 1})
    assert not same([1], [1, 2]) and not same("1", 1) and not same(True, 1) and not same(None, 0)
    assert not same(1.1, 1) and not same({"a": 1}, {"b": 1}) and not same(math.nan, 1)


def test_arguments_are_safe_from_the_function_that_is_checked():
    given = [3, 1, 2]
    call(lambda x: x.sort() or 1, given)
    assert given == [3, 1, 2]


def test_expected_value_in_a_message_is_noticed():
    with pytest.raises(AssertionError, match="returned 5: no, 8"):
        assert_answer_is_not_told(CheckFailed("f(8) returned 5: no, 8", "f(8)", 8))
    assert_answer_is_not_told(CheckFailed("f(8) returned 5: no", "f(8)", 8))
