"""What every check is made of: call the reader's function, compare, fail in one line.

`check_x(function)` raises CheckFailed and is what tests and graders use. A notebook says
`attempt(check_x, function)`, which prints one line and never raises, so that "Run All" does not stop at an
exercise that nobody has solved yet:

    NOT YET: positions_needed(5, 3) returned None
    CHECK FAILED: positions_needed(5, 3) returned 8: is the last token ever fed back?
    OK: positions_needed
"""

import copy
import math
import numbers
from collections.abc import Callable, Mapping

from minibatch.trace import Trace


class CheckFailed(AssertionError):
    """An answer that is not right. `call` is the failed call as text, `expected` the value that no message shows.

    `trace` is the run in which it was seen, if there was one.
    """

    label = "CHECK FAILED"

    def __init__(self, message: str, call: str = "", expected: object = None, trace: Trace | None = None):
        super().__init__(message)
        self.call, self.expected, self.trace = call, expected, trace

    def _render_traceback_(self) -> list[str]:
        """IPython asks for this: one line where a traceback would stand, and the run so far as text."""
        if not (self.trace and self.trace.steps):
            return [f"{self.label}: {self}"]
        from minibatch.plot.text import slots_text  # here, for a check must not import pictures

        return [f"{self.label}: {self}", "", slots_text(self.trace)]


class NotYet(CheckFailed):
    """The function is still the stub: it returns nothing, or raises NotImplementedError."""

    label = "NOT YET"


def attempt(check: Callable[[Callable], None], function: Callable) -> None:
    """Run a check and print one line: OK, NOT YET, or CHECK FAILED and why. For notebook cells."""
    try:
        check(function)
    except CheckFailed as failed:
        print(f"{failed.label}: {failed}")
    else:
        print(f"OK: {_name(function)}")


def need(condition: bool, message: str) -> None:
    """Raise CheckFailed with this one line unless the condition holds."""
    if not condition:
        raise CheckFailed(message)


def expect(
    function: Callable,
    *args: object,
    want: object,
    hint: str | Callable[..., str] = "",
    tolerance: float = 1e-6,
) -> object:
    """Call `function(*args)`, compare with `want`, return what it returned.

    `hint` points at the mistake: a text, or a function that makes one from the wrong result and `args`. It must
    not give the answer. `tolerance` is relative and absolute.
    """
    got, text = call(function, *args), call_text(function, args)
    if not same(got, want, tolerance):
        why = hint(_plain(got), *args) if callable(hint) else hint
        raise CheckFailed(f"{text} returned {short(got)}" + (f": {why}" if why else ""), text, want)
    return got


def call(function: Callable, *args: object) -> object:
    """What the reader's function returns for copies of `args`; an exception, None or NaN becomes one line."""
    text, failed = call_text(function, args), None
    try:
        got = function(*copy.deepcopy(args))
    except NotImplementedError:
        failed = NotYet(f"{text} raised NotImplementedError", text)
    except Exception as error:
        failed = CheckFailed(f"{text} raised {type(error).__name__}: {short(str(error), quote=False)}", text)
    if failed:
        raise failed  # outside the except block, or a traceback would show both errors
    if got is None:
        raise NotYet(f"{text} returned None", text)
    if _has_nan(got):
        raise CheckFailed(f"{text} returned NaN, which is not a number", text)
    return got


def same(got: object, want: object, tolerance: float = 1e-6) -> bool:
    """Equal in value: numbers within the tolerance, a tuple or an array for a list, element by element."""
    got, want = _plain(got), _plain(want)
    if isinstance(want, bool) or isinstance(got, bool) or want is None or isinstance(want, str):
        return type(got) is type(want) and got == want
    if isinstance(want, numbers.Real):
        close = isinstance(got, numbers.Real) and math.isclose(got, want, rel_tol=tolerance, abs_tol=tolerance)
        return bool(close)
    if isinstance(want, Mapping):
        return (
            isinstance(got, Mapping)
            and got.keys() == want.keys()
            and all(same(got[key], want[key], tolerance) for key in want)
        )
    if isinstance(want, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(got) == len(want)
            and all(same(one, other, tolerance) for one, other in zip(got, want))
        )
    return got == want


def _plain(value: object) -> object:
    """numpy's and torch's scalars and arrays as Python's own."""
    return value.tolist() if hasattr(value, "tolist") else value


def _has_nan(value: object) -> bool:
    value = _plain(value)
    if isinstance(value, (list, tuple)):
        return any(_has_nan(each) for each in value)
    return isinstance(value, float) and math.isnan(value)


def _name(function: Callable) -> str:
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else "your function"


def call_text(function: Callable, args: tuple) -> str:
    """The call as a reader would write it, for a message."""
    return f"{_name(function)}({', '.join(short(each) for each in args)})"


def short(value: object, quote: bool = True, most: int = 100) -> str:
    """On one line, and not longer than `most` characters."""
    text = " ".join((repr(value) if quote else str(value)).split())
    return text if len(text) <= most else text[: most - 1] + "…"
