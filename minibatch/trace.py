"""The record of a run, step by step. Pictures and metrics read this and nothing else.

Introduced in notebook 02. Steps count from 1, as the articles do. A trace survives JSON unchanged: see
`trace_file.py`.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
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
        """The trace that `to_json` wrote. Raises ValueError for any other text."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError("is not a trace: save one with trace.save(path), or let `compare` do so")
        if (version := data.pop("version", None)) != VERSION:
            raise ValueError(f"version={version!r}: this minibatch reads version {VERSION}; save it anew")
        return read(cls, data)

    def save(self, path: str | Path) -> None:
        """Write it to a file, which `load_trace` reads."""
        Path(path).write_text(self.to_json(), encoding="utf-8")


def _work(chunk: Chunk) -> Work:
    sequence = chunk.sequence
    return Work(sequence.request_id, chunk.slot, chunk.start, chunk.count, chunk.start < len(sequence.request.prompt))
