"""Checks of lab 1, what can be reckoned: the bill of a static batcher, padding, when its door closes.

The constants that a teacher may change are arguments; the lab says what each rule means. Its batcher and the record
of a run are checked in `lab1_batcher`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from minibatch.checks.base import CheckFailed, call, call_text, need, same, short

_QUEUES = [([1], 1), ([2, 4, 3], 2), ([20, 900], 2), ([3, 1, 9, 2, 2, 6], 3), ([5, 5, 5], 3), ([7], 4)]
_QUEUES += [([2, 4, 2], 2), ([1, 8, 8, 1], 2), ([6, 2, 4, 1, 3], 1), ([9, 1, 1, 1, 5, 5, 2, 10, 3, 4], 4)]


def check_useful(function: Callable) -> None:
    """`function(lengths, num_slots)[0]`: slot-steps that brought a token."""
    for lengths, slots in _QUEUES:
        expect_part(function, (lengths, slots), 0, sum(lengths), _useful_hint)


def check_wasted(function: Callable, rows: str = "held") -> None:
    """`function(lengths, num_slots)[1]`: slot-steps computed for nobody; empty ones too with `rows` "all"."""
    for lengths, slots in _QUEUES:
        want = _wasted(lengths, slots, rows)
        expect_part(function, (lengths, slots), 1, want, partial(_wasted_hint, rows=rows))


def expect_part(function: Callable, args: tuple, part: int, want: float, hint: Callable[..., str]) -> None:
    """One of the two numbers that `function(*args)` returns; `hint(number, *args)` says what is wrong with another."""
    got, text = _plain(call(function, *args)), call_text(function, args)
    need(isinstance(got, list) and len(got) == 2, f"{text} returned {short(got)}: a pair of numbers is wanted")
    if not same(got[part], want):
        why = "are the two in their order?" if same(got[1 - part], want) else hint(got[part], *args)
        raise CheckFailed(f"{text} returned {short(tuple(got))}: {why}", text, want)


def _plain(value: object) -> object:
    """Lists for tuples, arrays and tensors, at every depth."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _useful_hint(got: object, lengths: list[int], slots: int) -> str:
    total = sum(lengths)
    if got in (total - len(lengths), total + len(lengths)):
        return "the step that computes the prompt brings the first token; how many steps is an answer of n tokens?"
    if got == sum(max(batch) for batch in _batches(lengths, slots)):
        return "those are steps; a step has a slot-step for each slot"
    if got in (_wasted(lengths, slots, "held") + total, _wasted(lengths, slots, "all") + total):
        return "those are all slot-steps; a useful one brought a token that somebody wanted"
    if isinstance(got, float) and 0 < got <= 1:
        return "that is a share; slot-steps are wanted"
    return "(the first of the two) a slot-step is useful if it brought a token that somebody wanted, in any batch"


def _batches(lengths: list[int], slots: int) -> list[list[int]]:
    return [lengths[i : i + slots] for i in range(0, len(lengths), slots)]


def _wasted(lengths: list[int], slots: int, rows: str) -> int:
    batches = _batches(lengths, slots)
    return sum(max(batch) * (slots if rows == "all" else len(batch)) for batch in batches) - sum(lengths)


def _wasted_hint(got: object, lengths: list[int], slots: int, rows: str) -> str:
    batches, ordered = _batches(lengths, slots), sorted(lengths)
    if got == _wasted(lengths, slots, "held" if rows == "all" else "all"):
        if rows == "held":
            return "that counts empty slots as well; in this lab no row is computed for them"
        return "in this lab every step computes num_slots rows, also where the last batch has fewer answers"
    if got == sum(lengths) + _wasted(lengths, slots, rows):
        return "those are all slot-steps; the useful ones are not wasted"
    if got == sum(x - min(batch) for batch in batches for x in batch):
        return "a batch runs as long as its longest answer, not its shortest"
    if len(batches) > 1 and got == max(lengths) * len(lengths) - sum(lengths):
        return "each batch has its own longest answer"
    if got in [_wasted(each, slots, rows) for each in (ordered, ordered[::-1])]:
        return "batches are filled in order of arrival, not by length"
    if got == sum(max(batch) - min(batch) for batch in batches):
        return "those are steps; two slots that are dead in one step are two slot-steps"
    if isinstance(got, float) and 0 < got < 1:
        return "that is a share; slot-steps are wanted"
    if got == _wasted([x for batch in batches if len(batch) == slots for x in batch], slots, rows):
        return "the last batch runs too, though it is not full"
    return "(the second of the two) a slot is dead from the step after its answer's end to the end of the batch"


_PROMPTS = [([[4]], 0), ([[5, 6, 7], [8]], 0), ([[1, 2], [3, 4]], 0), ([[9], [8, 7], [6, 5, 4]], 99)]
_PROMPTS += [([[9, 0, 9, 9], [3, 0]], 0), ([[2, 2], [2, 7, 1, 2], [2]], 2)]


def check_rows(function: Callable, pad_side: str = "left") -> None:
    """`function(prompts, pad_id)`: `tokens` and `real` of the rectangle, padded on `pad_side`."""
    for prompts, pad in _PROMPTS:
        (tokens, real, _, _), text = _rectangle(function, prompts, pad)
        rows, mask, _ = _padded(prompts, pad, pad_side)
        if tokens != rows:
            why = _tokens_hint(tokens, prompts, pad, pad_side)
            raise CheckFailed(f"{text} returned tokens={short(tokens)}: {why}", text, rows)
        if real != mask:  # 1 and 0 will do
            by_id = real == [[token != pad for token in row] for row in rows]
            why = "a prompt may hold the pad id" if by_id else "it is True where a prompt's token stands, as in tokens"
            raise CheckFailed(f"{text} returned real={short(real)}: {why}", text, mask)


def check_positions(function: Callable, pad_side: str = "left") -> None:
    """`function(prompts, pad_id)`: `positions` of the real tokens, and the column of each row's `last` one."""
    for prompts, pad in _PROMPTS:
        (_, _, positions, last), text = _rectangle(function, prompts, pad)
        rows, _, ends = _padded(prompts, pad, pad_side)
        for prompt, end, row in zip(prompts, ends, _shaped(positions, rows, text)):
            seen, columns = row[end + 1 - len(prompt) : end + 1], list(range(len(row)))
            if seen != list(range(len(prompt))):
                why = "those are columns; p" if row == columns else "p"
                said = f"{text} returned positions={short(positions)}: {why}osition 0 is a prompt's own first token"
                raise CheckFailed(f"{said}; look at {prompt}", text)
            if not all(isinstance(each, int) and each >= 0 for each in row):
                raise CheckFailed(f"{text} returned positions={short(positions)}: one is not a whole number from 0 on")
        if last != ends:
            raise CheckFailed(f"{text} returned last={short(last)}: {_last_hint(last, prompts, rows)}", text, ends)


def _padded(prompts: list[list[int]], pad: int, side: str) -> tuple[list[list[int]], list[list[bool]], list[int]]:
    """Tokens, real, last."""
    width = max(map(len, prompts))
    if side == "right":
        rows = [prompt + [pad] * (width - len(prompt)) for prompt in prompts]
        return rows, [[column < len(p) for column in range(width)] for p in prompts], [len(p) - 1 for p in prompts]
    rows = [[pad] * (width - len(prompt)) + prompt for prompt in prompts]
    return rows, [[column >= width - len(p) for column in range(width)] for p in prompts], [width - 1] * len(prompts)


def _rectangle(function: Callable, prompts: list[list[int]], pad: int) -> tuple[list, str]:
    """Its four parts as plain lists, and the call as text."""
    got, text = _plain(call(function, prompts, pad)), call_text(function, (prompts, pad))
    need(isinstance(got, list) and len(got) == 4, f"{text} returned {short(got)}: a Rectangle is wanted")
    return got, text


def _shaped(positions: object, rows: list[list[int]], text: str) -> list[list]:
    lists = isinstance(positions, list) and all(isinstance(row, list) for row in positions)
    good = lists and [len(row) for row in positions] == [len(row) for row in rows]
    need(good, f"{text} returned positions={short(positions)}: one is wanted for each of tokens")
    return positions


def _tokens_hint(got: object, prompts: list[list[int]], pad: int, side: str) -> str:
    if not isinstance(got, list) or not all(isinstance(row, list) for row in got):
        return "a list of rows is wanted"
    if len({len(row) for row in got}) > 1:
        return "the rows of a rectangle are equally long"
    if {len(row) for row in got} != {max(map(len, prompts))}:
        return "the rectangle is as wide as its longest prompt"
    if got == _padded(prompts, pad, "right" if side == "left" else "left")[0]:
        return f"in this lab padding stands on the {side}"
    if got in [_padded(sorted(prompts, key=len, reverse=turn), pad, side)[0] for turn in (False, True)]:
        return "the rows are in another order than the prompts, and each answer would go to another client"
    return "a row is a prompt and as many pad ids as it lacks"


def _last_hint(got: object, prompts: list[list[int]], rows: list[list[int]]) -> str:
    if got == [len(row) - 1 for row in rows]:
        return "in some row the last column holds padding; the next token is chosen from the last real one"
    if got == [len(prompt) - 1 for prompt in prompts]:
        return "those are positions; padding on the left moves the column"
    return "for each row, the column, counted from 0, of its last real token"


def check_door(function: Callable, closes: str = "oldest", max_wait: float = 2.0) -> None:
    """`function(arrivals, now, num_slots, more_coming)`: may a batch start? `max_wait` in seconds."""
    w = max_wait
    cases = [([0.0], 0.0, 1, True), ([0.0], 0.0, 2, True), ([0.0, 0.0, 0.0], 0.0, 2, True), ([0.0], 0.0, 2, False)]
    cases += [([0.0], w, 2, True), ([0.0], w - 0.5, 2, True), ([3.0], w + 1, 2, True), ([0.0], 50.0, 4, True)]
    cases += [([0.0, w - 0.5], w, 4, True), ([1.0, w, w + 0.5], w + 1, 4, True), ([4.0, 4.5], 4.5, 4, False)]
    cases += [([0.0, 0.5, 1.0], w - 0.5, 4, True), ([5.0, 6.0], 6.0, 2, False), ([1.0, w], w + 8, 3, False)]
    for args in cases:
        want, why = _door(*args, closes, w)
        got, text = _plain(call(function, *args)), call_text(function, args)
        need(isinstance(got, int), f"{text} returned {short(got)}: True or False is wanted")
        need(bool(got) == want, f"{text} returned {short(got)}: {why}")
    call(function, [], 0.0, 2, True)  # an engine asks with an empty queue too


def _door(arrivals: Sequence[float], now: float, slots: int, more: bool, closes: str, wait: float) -> tuple[bool, str]:
    """What is right, and what to say to who thinks otherwise."""
    if len(arrivals) >= slots:
        return True, f"the batch is full: num_slots={slots}, and {len(arrivals)} in the queue"
    if closes == "nobody":
        if more:
            return False, "the batch is not full and more are coming; this lab's rule has no clock"
        return True, "nobody else is coming, so there is nothing to wait for"
    waited = now - arrivals[0]
    if waited >= wait:
        others = ", whoever came after it" if len(arrivals) > 1 else ""
        return True, f"the oldest has waited {waited:g} s of {wait:g}{others}"
    unknown = "" if more else "; a server does not know that nobody else will come"
    return False, f"the batch is not full, and the oldest has waited {waited:g} s of {wait:g}{unknown}"
