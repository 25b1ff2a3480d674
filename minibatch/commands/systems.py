"""The table of real systems: when a request joins, what a step holds, what is reserved, what gives way; knobs."""

import argparse
import json
import textwrap
from collections.abc import Iterable
from itertools import zip_longest

from minibatch.commands.names import canonical
from minibatch.schedulers.systems import SYSTEMS, System

NAMES = 24  # characters
COLUMNS = {"join": 30, "mix": 25, "reserve": 21, "evict": 20}
HEADS = {"join": "joins when, in which order", "mix": "a step holds", "reserve": "reserved at joining"}
HEADS["evict"] = "out of memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `systems`."""
    parser.add_argument("--knobs", metavar="NAME", help="the knobs of one system: our name, theirs, the default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or the knobs of one row."""
    if arguments.knobs:
        row = SYSTEMS[canonical("system", arguments.knobs, SYSTEMS)]
        print(json.dumps(_as_json(row), indent=1) if arguments.json else _knobs(row))
    elif arguments.json:
        print(json.dumps([_as_json(row) for row in SYSTEMS.values()], indent=1))
    else:
        print(_table(list(SYSTEMS.values())))
    return 0


def _table(rows: list[System]) -> str:
    lines = [f"{'system':{NAMES}}" + "".join(f"{HEADS[name]:{width}}" for name, width in COLUMNS.items()).rstrip()]
    lines.append("-" * (NAMES + sum(COLUMNS.values())))
    for row in rows:
        cells = [[row.name, *textwrap.wrap(f"({row.label})", NAMES - 2)]]
        cells += [textwrap.wrap(getattr(row, name), width - 2) for name, width in COLUMNS.items()]
        lines += [_line(parts) for parts in zip_longest(*cells, fillvalue="")] + [""]
    return "\n".join([*lines, "One system's knobs: python -m minibatch systems --knobs vllm-v1"])


def _line(parts: Iterable[str]) -> str:
    return "".join(f"{text:{width}}" for text, width in zip(parts, (NAMES, *COLUMNS.values()))).rstrip()


def _knobs(row: System) -> str:
    knobs = [(knob.name, knob.theirs, repr(knob.default), knob.note) for knob in row.knobs]
    cells = [("here", "there", "default", "note"), *knobs]
    widths = [max(len(line[column]) for line in cells) + 2 for column in range(3)] + [0]
    lines = ["".join(f"{text:{width}}" for text, width in zip(line, widths)).rstrip() for line in cells]
    about = [f"{row.label}, as of {row.as_of}", f"source: {row.source}"] + ([f"note: {row.note}"] if row.note else [])
    return "\n".join([*(line for text in about for line in textwrap.wrap(text, 120)), "", *lines])


def _as_json(row: System) -> dict:
    words = {name: getattr(row, name) for name in ("name", "label", *COLUMNS, "as_of", "source", "note")}
    return words | {"knobs": [vars(knob) for knob in row.knobs]}
