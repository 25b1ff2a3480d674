"""What a picture shows, in words: the caption, the alt text, one step read aloud."""

from collections.abc import Sequence
from textwrap import fill

from minibatch.metrics import summarise
from minibatch.plot.bars import DEAD, DECODE, FAILED, PREFILL, Bar, bars, cells
from minibatch.plot.colours import Traces, named
from minibatch.trace import Trace

DOES = {
    PREFILL: "prefills {}",
    DECODE: "decodes {}",
    DEAD: "is dead ({})",
    FAILED: "was computing {} when the step failed",
}
SPELT_OUT = 12  # alt text lists every bar up to this many


def plural(count: int, noun: str) -> str:
    """Count and noun: 1 step, 1,234 steps."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def numbers(trace: Trace) -> list[str]:
    """What every slot picture carries: steps, dead slot-steps, mean live slots; and preemptions, if any."""
    summary = summarise(trace)
    live = f"{summary.mean_live_slots:.2f} of {trace.num_slots} slots live on average"
    preempted = sum(len(record.preempted) for record in trace.steps)
    more = [plural(preempted, "preemption")] if preempted else []
    return [plural(summary.steps, "step"), plural(summary.dead_slot_steps, "dead slot-step"), live, *more]


def listing(words: Sequence[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def caption(traces: Traces) -> str:
    """One sentence with the numbers the figure shows, a line a run, none so long that a notebook breaks its words."""
    pairs = named(traces)
    first = pairs[0][1].requests
    named_numbers = [(name, numbers(trace)) for name, trace in pairs]
    said = [f"{name} takes {steps} with {listing(rest)}" for name, (steps, *rest) in named_numbers]
    if all(trace.requests.keys() == first.keys() for _, trace in pairs):
        said[0] = f"For {'the same ' if len(pairs) > 1 else ''}{plural(len(first), 'request')}, {said[0]}"
    return "\n".join(fill(line, 100) for line in (";\n".join(said) + ".").splitlines())


def alt(traces: Traces) -> str:
    """The slot picture in words, for who does not see it."""
    pairs = named(traces)
    opening = "Slots over time, a bar for each request in the slot that served it: prefill hatched, decode plain, "
    opening += "dead slots grey, empty slots white; below, arrivals and the queue length."
    return " ".join([opening] + [_described(name, trace) for name, trace in pairs])


def step_words(traces: Traces, step: int) -> str:
    """One step, slot by slot: "Step 13: slot 0 decodes R4, slot 1 is dead (R2), slot 2 is free; 3 waiting"."""
    pairs = named(traces)
    said = [_step_of(trace, step) for _, trace in pairs]
    if len(pairs) > 1:
        said = [f"{name}, {words}" for (name, _), words in zip(pairs, said)]
    return f"Step {step}: " + ". ".join(said)


def _step_of(trace: Trace, step: int) -> str:
    if not 1 <= step <= len(trace.steps):
        return f"nothing runs, the last step was {len(trace.steps)}" if trace.steps else "nothing has run"
    record = trace.steps[step - 1]
    doing = {slot: DOES[kind].format(request_id) for slot, (request_id, kind) in cells(record).items()}
    slots = ", ".join(f"slot {slot} {doing.get(slot, 'is free')}" for slot in range(trace.num_slots))
    lost = f"; {listing(record.preempted)} preempted" if record.preempted else ""
    return f"{slots}; {record.waiting} waiting{lost}"


def _described(name: str, trace: Trace) -> str:
    if not trace.steps:
        return f"{name}: no step has run."
    served = f"{plural(len(trace.requests), 'request')} on {plural(trace.num_slots, 'slot')}"
    words = f"{name}: {served}, {', '.join(numbers(trace))}."
    all_bars = bars(trace)
    if len(all_bars) <= SPELT_OUT:
        by_slot = [[bar for bar in all_bars if bar.slot == slot] for slot in range(trace.num_slots)]
        listed = [f"slot {slot}: " + (", ".join(map(_bar, row)) or "empty") for slot, row in enumerate(by_slot)]
        words += f" {'; '.join(listed)}.".replace("slot", "Slot", 1)
    return f"{words}{_lost(trace)} {_queue(trace)}"


def _lost(trace: Trace) -> str:
    """The first preemptions, by name."""
    lost = [f"{name} in step {record.step}" for record in trace.steps for name in record.preempted]
    if not lost:
        return ""
    more = ["others"] if len(lost) > SPELT_OUT else []
    return f" Preempted, marked by a cross: {listing(lost[:SPELT_OUT] + more)}."


def _bar(bar: Bar) -> str:
    return f"{bar.request_id} {bar.kind} {bar.first}" + (f" to {bar.last}" if bar.last > bar.first else "")


def _queue(trace: Trace) -> str:
    most = max(record.waiting for record in trace.steps)
    if not most:
        return "Nobody waits."
    last = max(record.step for record in trace.steps if record.waiting)
    return f"At most {most:,} waiting, {'to the end' if last == len(trace.steps) else f'nobody after step {last:,}'}."
