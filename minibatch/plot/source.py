"""`show_source`: the package's own code, read where it lives and never copied into a notebook."""

import inspect
from pathlib import Path
from textwrap import dedent
from types import ModuleType

from minibatch.plot.output import in_ipython

ROOT = Path(__file__).parents[2]  # the folder that holds the package


def show_source(obj: object, begin: str = "", end: str = "") -> None:
    """Show the source of a class, function, method or module, with its file and lines; highlighted in a notebook.

    A `Path` is a file of C++: from its first line that contains `begin` to the next that contains `end`, both shown;
    by default from its first line, and to its last.
    """
    cpp = isinstance(obj, Path)
    header, code, first = part_of(obj, begin, end) if cpp else source_of(obj)
    text = f"{'//' if cpp else '#'} {header}\n{code}"
    if not in_ipython():
        print(text, end="")
        return
    from IPython.display import display

    page = _html(header, code, first, "cuda" if cpp else "python")
    display({"text/html": page, "text/plain": text.rstrip("\n")}, raw=True)


def source_of(obj: object) -> tuple[str, str, int]:
    """Where it stands ("minibatch/trace.py, lines 15 to 22"), its source, and its first line."""
    if isinstance(obj, property):
        obj = obj.fget
    obj = inspect.unwrap(obj) if callable(obj) else obj
    if not (isinstance(obj, ModuleType) or inspect.isclass(obj) or inspect.isroutine(obj)):
        raise TypeError(
            f"obj={obj!r}: show_source takes a class, a function, a method or a module; "
            f"for an instance, try show_source({type(obj).__name__})"
        )
    try:
        lines, first = inspect.getsourcelines(obj)
        path = Path(inspect.getsourcefile(obj) or "").resolve()
    except (OSError, TypeError) as error:
        raise TypeError(f"obj={obj!r}: it has no Python source to show ({error})") from None
    return _cut(path, lines, max(first, 1))


def part_of(path: Path, begin: str = "", end: str = "") -> tuple[str, str, int]:
    """As `source_of`, of the lines of a text file that `show_source` takes."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if begin in line), None)
    if start is None:
        raise ValueError(f"begin={begin!r}: no line of {path.name} contains it")
    stop = next((i for i, line in enumerate(lines) if i > start and end in line), None) if end else len(lines) - 1
    if stop is None:
        raise ValueError(f"end={end!r}: no line of {path.name} contains it, from line {start + 1} on")
    return _cut(path.resolve(), lines[start : stop + 1], start + 1)


def _cut(path: Path, lines: list[str], first: int) -> tuple[str, str, int]:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return f"{name}, lines {first} to {first + len(lines) - 1}", dedent("".join(lines)).rstrip() + "\n", first


def _html(header: str, code: str, first: int, language: str) -> str:
    """Highlighted on a white ground, styles inline; where styles are stripped, plain text with line numbers stays."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    # JupyterLab breaks lines anywhere, within a word too, if it is not told otherwise; and its dark theme has
    # colours of its own for `pre` (and for `code`).
    shape = "margin:0;background:#fff;color:#222;font-family:monospace;word-break:normal"
    look = {"style": "friendly", "noclasses": True, "nobackground": True, "prestyles": shape}
    body = highlight(code, get_lexer_by_name(language), HtmlFormatter(linenos="inline", linenostart=first, **look))
    ground = "background:#fff;color:#1a1a1a;padding:0.5em;border:1px solid #d9dce0;overflow-x:auto"
    return f'<div style="{ground}"><b>{header}</b>{body}</div>'
