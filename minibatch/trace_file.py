"""`load_trace`: a trace back from its file, refused where it is damaged or contradicts itself."""

from itertools import pairwise
from pathlib import Path

from minibatch.step import MemoryEvent, RegionEvent
from minibatch.trace import StepRecord, Trace


def load_trace(path: str | Path) -> Trace:
    """The trace that `trace.save(path)` wrote. Raises ValueError for a wrong or damaged file: where in it, and why."""
    try:
        trace = Trace.from_json(Path(path).read_text(encoding="utf-8"))
        check_trace(trace)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not text, so it is no trace") from error
    except RecursionError as error:
        raise ValueError(f"{path}: is nested too deeply for a trace") from error
    except ValueError as error:  # json's own errors are ValueErrors, and say the line
        raise ValueError(f"{path}: {error}") from error
    return trace


def check_trace(trace: Trace) -> None:
    """Raise ValueError where a trace contradicts itself, so that no picture and no number could be right."""
    if trace.num_slots < 1:
        raise ValueError(f"num_slots={trace.num_slots}: must be at least 1")
    for name, record in trace.requests.items():
        if record.request_id != name:
            raise ValueError(f"requests[{name!r}].request_id={record.request_id!r}: must be the name it is kept under")
        if len(record.tokens) != len(record.token_times):
            times = len(record.token_times)
            raise ValueError(f"requests[{name!r}]: has {len(record.tokens)} tokens and {times} token_times")
    for place, record in enumerate(trace.steps):
        _check_step(record, place, trace)
    for before, after in pairwise(trace.steps):
        if after.start < before.end:
            place = after.step - 1
            raise ValueError(f"steps[{place}].start={after.start}: before the step before ends, at {before.end}")


def _check_step(record: StepRecord, place: int, trace: Trace) -> None:
    where, rows = f"steps[{place}]", record.live + record.dead
    if record.step != place + 1:
        raise ValueError(f"{where}.step={record.step}: must be {place + 1}; steps count from 1, without a gap")
    if record.end < record.start:
        raise ValueError(f"{where}.end={record.end}: lies before its start, {record.start}")
    if len({work.slot for work in rows}) < len(rows):
        raise ValueError(f"{where}: one slot is given twice")
    for work in rows:
        if not 0 <= work.slot < trace.num_slots:
            raise ValueError(f"{where}: slot {work.slot} is none of the {trace.num_slots} slots")
    kind = MemoryEvent if trace.block_size else RegionEvent
    for event in record.memory_events:
        if not isinstance(event, kind):
            raise ValueError(f"{where}.memory_events: {tuple(event)} is none of a block_size={trace.block_size} memory")
    for name in (*(work.request_id for work in rows), *record.preempted):
        if name not in trace.requests:
            raise ValueError(f"{where}: request {name!r} is not among the requests")
