"""What `doctor` finds: a fact, and if something is wrong with it, how bad that is and what to do."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

FINE, REMARK, PROBLEM = "fine", "remark", "problem"  # remark: a part of the course suffers; problem: all of it


class Finding(NamedTuple):
    """One line. `cure` says what to do, for anything that is not fine."""

    what: str
    state: str
    level: str = FINE
    cure: str = ""


Check = Callable[[], Iterator[Finding]]


def findings(checks: list[tuple[str, Check]]) -> Iterator[Finding]:
    """All that the checks find. One that breaks is a finding itself, and does not hide the others."""
    for what, check in checks:
        try:
            yield from check()
        except ModuleNotFoundError as error:
            yield Finding(what, f"not looked at, {error.name} is missing")
        except Exception as error:  # whatever this machine came up with: said, and on to the next
            yield Finding(what, f"{type(error).__name__}: {error}", REMARK, "please report this")
