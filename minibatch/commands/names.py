"""Names as people type them: any case, and with the nearest spelling where nobody goes by that name."""

import ast
from collections.abc import Iterable

from minibatch.schedulers.systems import SYSTEMS
from minibatch.simulate.cards import known


def canonical(field: str, choice: str, table: Iterable[str]) -> str:
    """The name as it stands in a table. Raises ValueError with the known ones and the nearest."""
    names = {name.lower(): name for name in table}
    return known(field, names.get(choice.lower(), choice), {name: name for name in names.values()})


def systems_of(choice: str | None) -> list[str]:
    """Systems by names that are separated by commas; all of them by default."""
    if choice is None:
        return list(SYSTEMS)
    return list(dict.fromkeys(canonical("system", name.strip(), SYSTEMS) for name in choice.split(",")))


def knobs_of(settings: list[str], systems: list[str]) -> dict[str, tuple[tuple[str, object], ...]]:
    """What `--set name=value` sets, for each system those that it has. Raises ValueError for one that none has."""
    pairs = dict(_pair(text) for text in settings)
    names = {knob.name: knob for name in systems for knob in SYSTEMS[name].knobs}
    chosen = {canonical("--set", name, names): value for name, value in pairs.items()}
    has = {name: {knob.name for knob in SYSTEMS[name].knobs} for name in systems}
    return {name: tuple((knob, value) for knob, value in chosen.items() if knob in has[name]) for name in systems}


def _pair(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"--set {text!r}: write it as in token_budget=512")
    return name.strip().replace("-", "_"), _value(value.strip())


def _value(text: str) -> object:
    """A number, True, None, a tuple; anything else is a word."""
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
