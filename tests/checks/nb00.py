"""Right and wrong answers to the exercises of notebook 00. Read by tests/test_checks.py, which says the format."""

from minibatch.checks.nb00 import check_output_of, check_positions_needed, check_request_times
from minibatch.engine import Engine
from minibatch.request import FinishReason, Request, SamplingParams
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor

NOTEBOOK = "00_start_here"


def stored_one_by_one(prompt, new):
    stored, known = 0, prompt
    for _ in range(new):
        stored, known = known, known + 1
    return stored


def by_slices(script, stops, limit):
    ends = [place for place, token in enumerate(script[:limit]) if token in stops]
    return (script[: ends[0] + 1], FinishReason.STOP) if ends else (script[:limit], FinishReason.LENGTH)


def through_the_engine(script, stops, limit):
    request = Request("A", (1,), SamplingParams(max_new_tokens=limit, stop_token_ids=stops))
    (record,) = Engine(IterationScheduler(1), ScriptedExecutor({"A": script})).run([request]).finished
    return record.tokens, record.finish_reason


def loop(script, stops, limit, first="stop", keep=True):
    """The right loop, with the mistakes a reader may make in it."""
    output = []
    for token in script:
        if not keep and token in stops:
            return output, "stop"
        output.append(token)
        full = len(output) >= limit
        if token in stops or full:
            both = token in stops and full
            return output, first if both else "length" if full else "stop"


def times_with_a_loop(arrival, times):
    waits, before = [], arrival
    for time in times:
        waits.append(time - before)
        before = time
    return [waits[0], waits[1:]]


def gaps(times):
    return [b - a for a, b in zip(times, times[1:])]


TABLE = {
    "positions_needed": {
        "check": check_positions_needed,
        "right": [stored_one_by_one, lambda p, n: len(range(p)) + len(range(1, n)), lambda p, n: float(p + n - 1)],
        "wrong": [
            (lambda p, n: p + n, "read by any later step"),
            (lambda p, n: p, "fed back"),
            (lambda p, n: p + n - 2, "one too few"),
            (lambda p, n: 44, "computed"),  # the visible example
            (lambda p, n: p * n, "computed"),
            (lambda p, n: 2 * (p + n - 1), "computed"),  # counts K and V apart
            (lambda p, n: n, "computed"),
            (lambda p: p, "TypeError"),
        ],
    },
    "output_of": {
        "check": check_output_of,
        "right": [by_slices, through_the_engine, loop],
        "wrong": [
            (lambda *args: loop(*args, first="length"), "two could be given"),
            (lambda *args: loop(*args, keep=False), "kept in the list"),
            (lambda script, stops, limit: loop(script, stops, limit + 1), "more tokens"),
            (lambda script, stops, limit: loop(script, stops, max(limit - 1, 1)), "room for more"),
            (lambda script, stops, limit: loop(script, stops[:1], limit), "goes on after"),
            (lambda script, stops, limit: (script[:limit], "length"), "goes on after"),
            (lambda script, stops, limit: loop(script, (2,), limit), "goes on after"),  # stops hard-coded
            (lambda script, stops, limit: (by_slices(script, stops, limit)[0], "stop"), "what ended it"),
            (lambda script, stops, limit: by_slices(script, stops, limit)[0], "two things"),
            (lambda script, stops, limit: ([9, 4, 2], "stop"), ""),  # the first example
        ],
    },
    "request_times": {
        "check": check_request_times,
        "right": [times_with_a_loop, lambda a, t: (t[0] - a, tuple(t[i + 1] - t[i] for i in range(len(t) - 1)))],
        "wrong": [
            (lambda a, t: (t[0], gaps(t)), "from the arrival"),
            (lambda a, t: (t[-1] - a, gaps(t)), "E2E"),
            (lambda a, t: (t[0] - a, gaps([a, *t])), "n - 1 gaps"),
            (lambda a, t: (t[0] - a, (t[-1] - t[0]) / max(len(t) - 1, 1)), "a list"),  # TPOT
            (lambda a, t: (1000 * (t[0] - a), [1000 * gap for gap in gaps(t)]), "seconds"),
            (lambda a, t: (t[0] - a, sorted(gaps(t))[::-1]), "order"),
            (lambda a, t: [t[0] - a, *gaps(t)], "two things"),
            (lambda a, t: (t[0] - a, gaps(t[:-1])), "gaps"),
        ],
    },
}
