"""notebooks/labs/source/labN.py -> the student's notebook and the solution.

    python notebooks/build.py labs [labN ...]                        notebooks/labs/labN.ipynb and solutions/labN.ipynb
    python notebooks/build.py labs --check [labN ...]                build again and say what differs
    python notebooks/build.py labs --variant 1 --out FOLDER          other constants, other right answers
    python notebooks/build.py labs --course FOLDER [--variant 1]     a course folder for nbgrader

The source holds the solutions. A cell marked `answer="ID"` has a region between `### BEGIN SOLUTION` and `### END
SOLUTION`, which the student's version has not; one marked `check="ID" points=N` is graded. A line `NAME = value
# variant: value other` is a constant a teacher may change; `{NAME}` in the text stands for its value. Every code cell
carries the metadata of nbgrader, so the solution is its source file and the student's version is what it releases.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from frozen import check, execute, freeze
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

LABS = Path(__file__).resolve().parent / "labs"
REGION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION", re.S | re.M)
CONSTANT = re.compile(r"^(\w+) = (.+?)  # variant: (.+)$", re.M)
CONFIG = """c = get_config()
c.CourseDirectory.course_id = "minibatch"
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\\nraise NotImplementedError()"}
c.ExecutePreprocessor.timeout = 120  # seconds a cell
"""


class LabError(ValueError):
    """A source that is not a lab; says where and why."""


def read(source: Path, variant: int = 0) -> NotebookNode:
    """The lab with its solutions, not executed, its constants at their alternatives number `variant`."""
    notebook = jupytext.read(source)
    _choose(notebook, variant)
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"{source.stem}-{index:02d}"
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            grading = _grading(cell)
            if grading["grade"] or "shows" in tags:
                tags = [*tags, "raises-exception"]  # "Run All" goes on although this one fails
            cell["metadata"] = NotebookNode(nbgrader=NotebookNode(grading))
        else:
            cell["metadata"] = NotebookNode()
        if tags:
            cell.metadata["tags"] = tags
    _refuse_mistakes(source.name, notebook)
    return notebook


def student(notebook: NotebookNode, name: str) -> NotebookNode:
    """The same lab without the solutions. The argument is changed and returned."""
    for cell in notebook.cells:
        cell["source"] = REGION.sub(r"\1# YOUR CODE HERE\n\1raise NotImplementedError()", cell.source)
    freeze(notebook, name)
    return notebook


def solution(notebook: NotebookNode, name: str) -> NotebookNode:
    """The lab executed and frozen. Raises LabError if a cell fails. The argument is changed and returned."""
    execute(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":  # in a graded cell: it may raise, but not here
                raise LabError(f"{name}: {cell.metadata.nbgrader.grade_id}: {output.ename}: {output.evalue}")
    freeze(notebook, name)
    return notebook


def constants(notebook: NotebookNode) -> dict[str, list[object]]:
    """What a teacher may change: name to its alternatives, the first of them the one that is published."""
    found = {}
    for cell in notebook.cells:
        for name, value, others in CONSTANT.findall(cell.source if cell.cell_type == "code" else ""):
            found[name] = [ast.literal_eval(word) for word in re.findall(r"\"[^\"]*\"|\S+", others)]
            if found[name][0] != ast.literal_eval(value):
                raise LabError(f"{name} = {value}: its first alternative is {found[name][0]!r}")
    return found


def _choose(notebook: NotebookNode, variant: int) -> None:
    chosen = {name: values[variant % len(values)] for name, values in constants(notebook).items()}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["source"] = CONSTANT.sub(lambda line: _assignment(line[1], chosen[line[1]]), cell.source)
            continue
        for name, value in chosen.items():
            cell["source"] = cell.source.replace(f"{{{name}}}", str(value))


def _assignment(name: str, value: object) -> str:
    quoted = f'"{value}"' if isinstance(value, str) else repr(value)
    return f"{name} = {quoted}"


def _grading(cell: NotebookNode) -> dict[str, object]:
    """What nbgrader wants to know of a code cell. One that is neither answered nor graded is locked: as it was."""
    answer, graded = cell.metadata.get("answer"), cell.metadata.get("check")
    grading = {
        "grade": graded is not None,
        "grade_id": graded or answer or cell.id,
        "locked": answer is None,
        "schema_version": 3,
        "solution": answer is not None,
        "task": False,
    }
    return grading | {"points": cell.metadata.get("points")} if graded else grading


def _refuse_mistakes(name: str, notebook: NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    ids = [cell.metadata.nbgrader.grade_id for cell in code]
    total = 0
    for cell in code:
        grading, regions = cell.metadata.nbgrader, len(REGION.findall(cell.source))
        where = f"{name}: {grading.grade_id}"
        if ids.count(grading.grade_id) > 1:
            raise LabError(f"{where}: two cells have this id")
        if bool(regions) != grading.solution or "SOLUTION" in REGION.sub("", cell.source):
            raise LabError(f"{where}: an answer cell, and no other, has a region from BEGIN to END SOLUTION")
        if grading.grade and not grading.points:
            raise LabError(f"{where}: points=N is missing")
        total += grading.get("points", 0)
    if f"{total} points." not in notebook.cells[0].source:
        raise LabError(f"{name}: the first cell must say '{total} points.'")


def _outputs(names: list[str], variant: int, out: Path) -> Iterator[tuple[Path, NotebookNode]]:
    for name in names:
        source = LABS / "source" / f"{name}.py"
        yield out / f"{name}.ipynb", student(read(source, variant), name)
        yield out / "solutions" / f"{name}.ipynb", solution(read(source, variant), name)


def _course(names: list[str], variant: int, folder: Path) -> Iterator[tuple[Path, NotebookNode]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    for name in names:
        yield folder / "source" / name / f"{name}.ipynb", read(LABS / "source" / f"{name}.py", variant)


def main(arguments: list[str]) -> int:
    """The command line after `labs`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="build.py labs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="labN", help="default: all")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    parser.add_argument("--variant", type=int, default=0, metavar="K", help="each constant's alternative number K")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="instead of notebooks/labs")
    parser.add_argument("--course", type=Path, metavar="FOLDER", help="sources of an nbgrader course, not executed")
    options = parser.parse_args(arguments)
    known = sorted(path.stem for path in (LABS / "source").glob("*.py"))
    names = [Path(name).stem for name in options.names] or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such lab: {', '.join(unknown)}; there is {', '.join(known)}")
    if options.variant and not (options.out or options.course):
        parser.error("--variant makes other labs than the published ones: say where with --out or --course")
    if options.check and (options.variant or options.out or options.course):
        parser.error("--check compares the published labs; it goes with no other option")
    made = (
        _course(names, options.variant, options.course)
        if options.course
        else _outputs(names, options.variant, options.out or LABS)
    )
    try:
        wrong = sum([_write_or_check(path, notebook, options.check) for path, notebook in made])
    except (LabError, CellExecutionError) as error:
        print(f"error: {error}")
        return 1
    if options.check and not wrong:
        print("nothing differs")
    return 1 if wrong else 0


def _write_or_check(path: Path, notebook: NotebookNode, only_check: bool) -> bool:
    """True if something is wrong."""
    nbformat.validate(notebook)
    found = check(path, notebook) if only_check else []
    if not only_check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"{path.parent.name}/{path.name}: {'; '.join(found) or 'ok'}", flush=True)
    return bool(found)
