"""The record of a run, step by step. Pictures and metrics read this and nothing else.

Introduced in notebook 02. Steps count from 1, as the articles do. A trace survives JSON unchanged: `trace.save(path)`,
`load_trace(path)`.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from minibatch.plain import read
from minibatch.request import FinishReason, Sequence
from minibatch.step import Chunk, MemoryEvent, RegionEvent, StepPlan


FORMAT, VERSION = "minibatch trace", 1  # how a saved one begins; the version changes with the meaning of a field


class Work(NamedTuple):
    """What one slot did in one step: computed tokens [start, start + count) of a request."""

    request_id: str
    slot: int
    start: int
    count: int
    prefill: bool  # True while prompt tokens are among them


class MemoryUse(NamedTuple):
    """K/V positions: holding a token, taken from the pool, in the pool."""

    used: int
    reserved: int
    capacity: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as it happened. Times in seconds on the engine's clock."""

    step: int
    start: float
    end: float
    live: tuple[Work, ...]
    dead: tuple[Work, ...]
    admitted: tuple[str, ...]
    finished: tuple[str, ...]
    waiting: int  # queue length while the step ran
    padding_tokens: int
    memory: MemoryUse
    error: str | None = None  # the step raised: nothing was computed
    preempted: tuple[str, ...] = ()
    blocks_copied: int = 0  # to be written by one owner only
    blocks_out: int = 0  # to host memory
    blocks_in: int = 0
    memory_events: tuple[MemoryEvent | RegionEvent, ...] = ()  # since the step before ran, until this one did


@dataclass(slots=True)
class RequestRecord:
    """One request's life. `token_times` and `tokens` run in parallel."""

    request_id: str
    arrival: float
    prompt_tokens: int
    first_scheduled: float | None = None
    tokens: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    finished_at: float | None = None
    finish_reason: str | None = None
    cached_tokens: int = 0  # of its prompt, found stored when it was first admitted
    preemptions: int = 0


@dataclass(slots=True)
class Trace:
    """All steps and all requests of one run. `block_size` is None where memory is not paged."""

    scheduler: str
    num_slots: int
    block_size: int | None = None
    steps: list[StepRecord] = field(default_factory=list)
    requests: dict[str, RequestRecord] = field(default_factory=dict)  # in order of submission

    def record_request(self, sequence: Sequence) -> None:
        """Note a request at submit, and again when it ends (a later record of the same id replaces the earlier)."""
        request = sequence.request
        self.requests[request.request_id] = RequestRecord(
            request.request_id,
            request.arrival,
            len(request.prompt),
            sequence.first_scheduled,
            sequence.output,
            sequence.token_times,
            sequence.finished_at,
            sequence.finish_reason.value if sequence.finish_reason else None,
            sequence.cached_tokens,
            sequence.preemptions,
        )

    def record(
        self,
        plan: StepPlan,
        start: float,
        end: float,
        finished: Iterable[Sequence],
        waiting: int,
        memory: MemoryUse,
        error: BaseException | None = None,
        memory_events: tuple[MemoryEvent | RegionEvent, ...] = (),
    ) -> StepRecord:
        """Append what one step did."""
        record = StepRecord(
            step=len(self.steps) + 1,
            start=start,
            end=end,
            live=tuple(_work(chunk) for chunk in plan.chunks),
            dead=tuple(_work(chunk) for chunk in plan.dead),
            admitted=plan.admitted,
            finished=tuple(sequence.request_id for sequence in finished),
            waiting=waiting,
            padding_tokens=plan.num_padding_tokens,
            memory=memory,
            error=repr(error) if error else None,
            preempted=plan.preempted,
            blocks_copied=sum(move.kind == "copy" for move in plan.moves),
            blocks_out=sum(move.kind == "out" for move in plan.moves),
            blocks_in=sum(move.kind == "in" for move in plan.moves),
            memory_events=memory_events,
        )
        self.steps.append(record)
        return record

    @property
    def finished(self) -> list[RequestRecord]:
        """Requests that were served to their end (stop or length)."""
        served = (FinishReason.STOP.value, FinishReason.LENGTH.value)
        return [record for record in self.requests.values() if record.finish_reason in served]

    def arrival_steps(self) -> dict[str, int]:
        """For each request, the first step that ran, or began, at or after its arrival (1 if it was there before)."""
        steps, found, index = self.steps, {}, 0
        for record in sorted(self.requests.values(), key=lambda r: r.arrival):
            while index < len(steps) - 1 and steps[index].end <= record.arrival:
                index += 1
            found[record.request_id] = index + 1
        return found

    def to_json(self) -> str:
        """The whole trace as JSON text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """The trace that `to_json` wrote. Raises ValueError for any other text, with what is wrong and where."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON, or not all of it ({error})") from error
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError("is not a trace: save one with trace.save(path), or let `compare` do so")
        if (version := data.pop("version", None)) != VERSION:
            raise ValueError(f"version={version!r}: this minibatch reads version {VERSION}; save the trace anew with it")
        trace = read(cls, data)
        trace.check()
        return trace

    def check(self) -> None:
        """Raise ValueError where a trace contradicts itself: nobody can draw or count that."""
        if self.num_slots < 1:
            raise ValueError(f"num_slots={self.num_slots}: must be at least 1")
        for name, record in self.requests.items():
            if record.request_id != name or len(record.tokens) != len(record.token_times):
                raise ValueError(f"requests[{name!r}]: has another request_id, or not a time for each token")
        for number, record in enumerate(self.steps, 1):
            _check_step(record, number, self)
        for before, after in pairwise(self.steps):
            if after.start < before.end:
                raise ValueError(f"steps[{after.step - 1}].start={after.start}: lies before the end of the step before")

    def save(self, path: str | Path) -> None:
        """Write it to a file, which `load_trace` reads."""
        Path(path).write_text(self.to_json(), encoding="utf-8")


def load_trace(path: str | Path) -> Trace:
    """The trace that `save` wrote. Raises ValueError for a wrong or damaged file: which, where in it, and why."""
    try:
        return Trace.from_json(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not text, so it is no trace") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_step(record: StepRecord, number: int, trace: Trace) -> None:
    where, rows = f"steps[{number - 1}]", record.live + record.dead
    if record.step != number:
        raise ValueError(f"{where}.step={record.step}: must be {number}; steps count from 1, without a gap")
    if record.end < record.start:
        raise ValueError(f"{where}.end={record.end}: lies before its start, {record.start}")
    if len({work.slot for work in rows}) < len(rows):
        raise ValueError(f"{where}: a slot is given twice")
    for work in rows:
        if not 0 <= work.slot < trace.num_slots:
            raise ValueError(f"{where}: slot {work.slot} is not one of the {trace.num_slots} slots")
    for name in (*(work.request_id for work in rows), *record.preempted):
        if name not in trace.requests:
            raise ValueError(f"{where}: request {name!r} is not among the requests")


def _work(chunk: Chunk) -> Work:
    sequence = chunk.sequence
    return Work(sequence.request_id, chunk.slot, chunk.start, chunk.count, chunk.start < len(sequence.request.prompt))
