"""notebooks/source/NAME.py -> notebooks/NAME.ipynb, executed in a fresh kernel and frozen.

    python notebooks/build.py [NAME ...]            build these, or all
    python notebooks/build.py --check [NAME ...]    execute again and say what differs from the committed files
    python notebooks/build.py labs [--check] ...    the labs, see build_labs.py

A cell tagged `local` shows what it measures on the reader's machine: it is executed, its output is not kept.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jupytext
import nbformat
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))  # its neighbours, wherever it is called from

import build_labs  # noqa: E402
from frozen import check, execute, freeze  # noqa: E402


def build(source: Path) -> NotebookNode:
    """The executed, frozen notebook of one source file."""
    notebook = jupytext.read(source)
    execute(notebook)
    freeze(notebook, source.stem)
    nbformat.validate(notebook)
    return notebook


def _build_or_check(name: str, only_check: bool) -> tuple[str, list[str], float]:
    """One notebook: its name, what is wrong with it, the seconds it took."""
    started = time.perf_counter()
    try:
        notebook = build(FOLDER / "source" / f"{name}.py")
        found = check(FOLDER / f"{name}.ipynb", notebook) if only_check else []
    except CellExecutionError as error:
        found = [f"a cell fails\n{error}"]
    if not found and not only_check:
        (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return name, found, time.perf_counter() - started


def main() -> int:
    """The command line; returns the exit code."""
    if sys.argv[1:2] == ["labs"]:
        return build_labs.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="for example 00_start_here; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing, say what drifted")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="notebooks at a time (default 1)")
    options = parser.parse_args()
    known = sorted(path.stem for path in (FOLDER / "source").glob("*.py"))
    names = [Path(name).stem for name in options.names] or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such notebook: {', '.join(unknown)}; there is {', '.join(known)}")
    wrong = 0
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        for name, found, seconds in pool.map(partial(_build_or_check, only_check=options.check), names):
            wrong += bool(found)
            print(f"{name}: {'; '.join(found) or 'ok'} ({seconds:.0f} s)", flush=True)
    if options.check and not options.names:
        for orphan in sorted(path.name for path in FOLDER.glob("*.ipynb") if path.stem not in known):
            print(f"{orphan}: has no source")
            wrong += 1
    if options.check or wrong:
        print(
            f"{wrong} of {len(names)} notebooks {'drifted' if options.check else 'failed'}"
            if wrong
            else "nothing drifted"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
