"""`slots_text`: the slot picture for a terminal, a row a slot and a character a step (or several steps)."""

import math
from collections import Counter
from collections.abc import Sequence
from string import ascii_uppercase
from textwrap import wrap
from typing import NamedTuple

from minibatch.plot.bars import DEAD, DECODE, FAILED, PREFILL, cells, last_step, step_ticks
from minibatch.plot.colours import Traces, named
from minibatch.plot.words import numbers
from minibatch.trace import Trace

NARROWEST = 40


class _Marks(NamedTuple):
    dead: str
    empty: str
    failed: str


UTF8, ASCII = _Marks("░", "·", "×"), _Marks("-", ".", "!")


def slots_text(traces: Traces, width: int = 100, ascii: bool = False) -> str:
    """Slots over steps in at most `width` characters a line; `ascii` for terminals without UTF-8.

        static: 6 steps, 2 dead slot-steps, 1.33 of 2 slots live on average
        step     123456
        slot 0   aA░░cC
        slot 1   bBBB··
        waiting  1111··

    Lower case is prefill, upper case decode. A long run is scaled: a character then stands for several steps.
    """
    if width < NARROWEST:
        raise ValueError(f"width={width!r}: must be at least {NARROWEST} characters")
    marks, pairs = ASCII if ascii else UTF8, named(traces)
    letters = _letters(list(dict.fromkeys(request_id for _, trace in pairs for request_id in trace.requests)))
    margin = 2 + max(len("waiting"), *(len(f"slot {trace.num_slots - 1}") for _, trace in pairs))
    each = max(1, math.ceil(last_step(traces) / (width - margin)))  # steps a character
    most_waiting = max((record.waiting for _, trace in pairs for record in trace.steps), default=0)
    lines = []
    for name, trace in pairs:
        rows = {"step": _ruler(len(trace.steps), each)}
        rows |= {f"slot {slot}": _row(trace, slot, each, letters, marks) for slot in range(trace.num_slots)}
        rows["waiting"] = _waiting(trace, each, most_waiting, marks)
        lines += [f"{name}: {', '.join(numbers(trace))}"]
        lines += [f"{label:<{margin}}{row}".rstrip() for label, row in rows.items()] + [""]
    if any(record.error for _, trace in pairs for record in trace.steps):
        lines += [f"{marks.failed} a step that failed: nothing was computed"]
    return "\n".join(lines + _legend(letters, marks, each, most_waiting, width)) + "\n"


def _letters(ids: Sequence[str]) -> dict[str, str]:
    """A capital for every request: its own id where all ids are such letters, else A to Z in order, over and over."""
    if all(len(request_id) == 1 and request_id in ascii_uppercase for request_id in ids):
        return {request_id: request_id for request_id in ids}
    return {request_id: ascii_uppercase[index % 26] for index, request_id in enumerate(ids)}


def _row(trace: Trace, slot: int, each: int, letters: dict[str, str], marks: _Marks) -> str:
    """One slot. A character that stands for several steps shows what fills most of them (the earliest, if equal)."""
    drawn = []
    for record in trace.steps:
        request_id, kind = cells(record).get(slot, ("", ""))
        letter = letters.get(request_id, "")
        drawn.append(
            {PREFILL: letter.lower(), DECODE: letter, DEAD: marks.dead, FAILED: marks.failed}.get(kind, marks.empty)
        )
    columns = [drawn[start : start + each] for start in range(0, len(drawn), each)]
    return "".join(Counter(column).most_common(1)[0][0] for column in columns)


def _waiting(trace: Trace, each: int, most: int, marks: _Marks) -> str:
    """The queue's longest in each column as a digit: the count itself up to 9, else in ninths of the longest."""
    counts = [record.waiting for record in trace.steps]
    longest = [max(counts[start : start + each]) for start in range(0, len(counts), each)]
    digits = (count if most <= 9 else math.ceil(9 * count / most) for count in longest)
    return "".join(str(digit) if digit else marks.empty for digit in digits)


def _ruler(steps: int, each: int) -> str:
    """Step numbers, each with its first digit over the column of its step."""
    columns, ruler = math.ceil(steps / each), ""
    every = 1 if steps <= 9 else len(str(steps)) + 2
    for step in step_ticks(steps, columns // every) if steps else []:
        at = (step - 1) // each
        if not ruler or (at > len(ruler) or steps <= 9) and at + len(str(step)) <= columns:
            ruler = ruler.ljust(at) + str(step)
    return ruler


def _legend(letters: dict[str, str], marks: _Marks, each: int, most_waiting: int, width: int) -> list[str]:
    signs = f"a prefill, A decode, {marks.dead} dead (finished, its slot still held), {marks.empty} empty"
    if each > 1:
        signs += f"; a character is {each} steps and shows what fills most of them"
    if most_waiting > 9:
        signs += f"; waiting in ninths: 9 is {most_waiting}"
    lines = wrap(signs, width)
    if any(request_id != letter for request_id, letter in letters.items()):
        lines += wrap(", ".join(f"{letter}={request_id}" for request_id, letter in letters.items()), width)
    return lines
