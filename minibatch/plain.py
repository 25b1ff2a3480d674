"""From the values that JSON knows to dataclasses and named tuples, each value checked against its annotation."""

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Union, get_args, get_origin, get_type_hints

WORDS = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false"}


def read(kind: Any, value: object, where: str = "") -> Any:
    """`value` as a `kind`: a dataclass, a named tuple, a list, tuple or dict of them, a plain type or None.

    A union of named tuples is told by length. Raises ValueError for the first value that is not what it should be,
    with the way to it: "steps[3].live[0].slot: 'a' is not a whole number".
    """
    if kind in WORDS or kind is type(None):
        return _plain(kind, value, where)
    if is_dataclass(kind):
        return _fields(kind, value, where)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return _named_tuple(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return read(_which(inner, value), value, where)
    if origin is dict:
        _expect(isinstance(value, dict), where, value, "an object")
        return {key: read(inner[1], one, f"{where}[{key!r}]") for key, one in value.items()}
    _expect(isinstance(value, list), where, value, "a list")  # list[x] or tuple[x, ...]
    return origin(read(inner[0], one, f"{where}[{place}]") for place, one in enumerate(value))


def _plain(kind: type, value: object, where: str) -> object:
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        _expect(number and isfinite(value), where, value, WORDS[float])
    else:
        _expect(type(value) is kind, where, value, WORDS.get(kind, "null"))
    return value


def _fields(kind: type, value: object, where: str) -> object:
    _expect(isinstance(value, dict), where, value, "an object")
    hints, needed = _hints(kind), _needed(kind)
    for name in value:
        _expect(name in hints, where, name, f"a field (they are {', '.join(hints)})")
    for name in needed - value.keys():
        raise ValueError(f"{where}.{name}".lstrip(".") + ": is missing")
    return kind(**{name: read(hints[name], one, f"{where}.{name}".lstrip(".")) for name, one in value.items()})


def _named_tuple(kind: type, value: object, where: str) -> object:
    hints = _hints(kind)
    _expect(isinstance(value, list) and len(value) == len(hints), where, value, f"a list of {', '.join(hints)}")
    return kind(*(read(hint, one, f"{where}.{name}") for one, (name, hint) in zip(value, hints.items())))


def _which(kinds: tuple, value: object) -> Any:
    """The member of a union that a value can only be."""
    if value is None and type(None) in kinds:
        return type(None)
    others = [kind for kind in kinds if kind is not type(None)]
    lengths = {len(kind._fields): kind for kind in others if hasattr(kind, "_fields")}
    return lengths.get(len(value), others[0]) if lengths and isinstance(value, list) else others[0]


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@lru_cache
def _needed(kind: type) -> frozenset[str]:
    """The fields without a default."""
    return frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _expect(ok: bool, where: str, value: object, what: str) -> None:
    if not ok:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        raise ValueError(f"{where}: {shown} is not {what}".removeprefix(": "))
