"""Parameters that make no sense are refused where they are given, by field and value."""

import math


def check(ok: bool, field: str, value: object, why: str) -> None:
    """Raise ValueError unless `ok`."""
    if not ok:
        raise ValueError(f"{field}={value!r}: {why}")


def check_tokens(field: str, value: object, least: int = 1) -> None:
    """A number of tokens."""
    check(is_whole(value) and value >= least, field, value, f"must be a whole number of tokens, at least {least}")


def check_known(name: str, table: dict[str, str], what: str) -> str:
    """The entry of that name."""
    check(name in table, "name", name, f"no such {what}; there is {', '.join(map(repr, table))}")
    return table[name]


def is_whole(value: object) -> bool:
    """A whole number, and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """A number, neither infinite nor NaN, and not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
