"""`show_source`: the package's own code, read where it lives and never copied into a notebook."""

import inspect
from pathlib import Path
from textwrap import dedent
from types import ModuleType

from minibatch.plot.output import in_ipython

ROOT = Path(__file__).parents[2]  # the folder that holds the package


def show_source(obj: object) -> None:
    """Show the source of a class, function, method or module, with its file and lines; highlighted in a notebook."""
    header, code, first = source_of(obj)
    text = f"# {header}\n{code}"
    if not in_ipython():
        print(text, end="")
        return
    from IPython.display import display

    display({"text/html": _html(header, code, first), "text/plain": text.rstrip("\n")}, raw=True)


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
    first = max(first, 1)
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return f"{name}, lines {first} to {first + len(lines) - 1}", dedent("".join(lines)).rstrip() + "\n", first


def _html(header: str, code: str, first: int) -> str:
    """Highlighted on a white ground, styles inline; where styles are stripped, plain text with line numbers stays."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    look = {"style": "friendly", "noclasses": True, "nobackground": True, "prestyles": "margin:0;font-family:monospace"}
    body = highlight(code, PythonLexer(), HtmlFormatter(linenos="inline", linenostart=first, **look))
    ground = "background:#fff;color:#1a1a1a;padding:0.5em;border:1px solid #d9dce0;overflow-x:auto"
    return f'<div style="{ground}"><code>{header}</code>{body}</div>'
