"""What a client asks (`Request`, immutable) and a request being served (`Sequence`, the only mutable state).

This room imports nothing of ours. Introduced in notebook 00.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class RequestRefused(ValueError):
    """A request that cannot be served, refused at submit. `field` and `value` say what is wrong with it."""

    def __init__(self, request_id: str, field: str, value: object, why: str):
        super().__init__(f"request {request_id!r} refused: {field}={value!r}: {why}")
        self.request_id, self.field, self.value = request_id, field, value


class Status(Enum):
    """Where a sequence stands. WAITING and PREEMPTED hold no slot, RUNNING holds one."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(Enum):
    """Every request ends in exactly one of these."""

    STOP = "stop"  # it produced one of its stop tokens (EOS)
    LENGTH = "length"  # it produced max_new_tokens
    REFUSED = "refused"  # it could never be served, so it never entered the queue
    ABORTED = "aborted"  # the client went away
    FAILED = "failed"  # the step that computed it raised


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose the next token, and when to stop.

    `temperature` 0 is greedy (the default: then a batch writes the same text as a request alone, which is
    the course's main test). `top_k` 0 and `top_p` 1 keep every token. A `seed` of None means one derived
    from the request's id, so a run repeats; two requests with one seed and one prompt write one text.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()  # kept in the output; empty means: run to max_new_tokens

    def problem(self) -> tuple[str, object, str] | None:
        """The first field that makes no sense as (field, value, why), or None. Told when a request is submitted."""
        if not _is_int(self.max_new_tokens) or self.max_new_tokens < 1:
            return "max_new_tokens", self.max_new_tokens, "must be a whole number, at least 1"
        if not _is_number(self.temperature) or self.temperature < 0:
            return "temperature", self.temperature, "must be a finite number, 0 (greedy) or more"
        if not _is_int(self.top_k) or self.top_k < 0:
            return "top_k", self.top_k, "must be a whole number, 0 (off) or more"
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            return "top_p", self.top_p, "must be above 0 and at most 1"
        if self.seed is not None and not _is_int(self.seed):
            return "seed", self.seed, "must be a whole number or None"
        return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks: token ids in, at most `max_new_tokens` ids out. `arrival` is in seconds.

    A lower `priority` goes first, where the scheduler looks at it. `fork_of` names a request with the same prompt,
    whose K and V of that prompt this one may share while both are open (notebook 06).

    >>> Request("A", prompt=(5, 6, 7), sampling=SamplingParams(max_new_tokens=2)).kv_need
    4
    """

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    arrival: float = 0.0  # planned, not sent: a stall of the server counts against the server
    priority: int = 0
    fork_of: str | None = None

    def __post_init__(self):
        object.__setattr__(self, "prompt", tuple(self.prompt))

    @property
    def kv_need(self) -> int:
        """Positions stored if it runs to the end: P + N - 1, for the last token is never fed back."""
        return len(self.prompt) + self.sampling.max_new_tokens - 1


@dataclass(slots=True, eq=False)
class Sequence:
    """A request being served. One invariant explains its whole life:

        num_computed_tokens (tokens whose K and V are stored)  chases  num_tokens (prompt + output so far)

    Prefill, a chunk of it, a decode step and recomputation after preemption are all "compute tokens
    [start, start + count)". A step that computes the last known token yields one new token.
    """

    request: Request
    status: Status = Status.WAITING
    output: list[int] = field(default_factory=list)  # EOS included
    num_computed_tokens: int = 0
    slot: int | None = None
    region: range | None = None  # K/V positions held, when memory is contiguous
    block_table: list[int] = field(default_factory=list)  # blocks held, when memory is paged: in order of position
    parent: "Sequence | None" = None  # the open sequence it is a fork of
    order: int = 0  # place in line, by submission
    cached_tokens: int = 0  # tokens whose K and V it found stored when it was first admitted
    preemptions: int = 0
    ends: Callable[[int], bool] | None = None  # asked about each new token: does the answer end with it?
    times_passed: int = 0  # how often a later one was admitted while it waited
    token_times: list[float] = field(default_factory=list)  # one a token of `output`, in seconds
    first_scheduled: float | None = None
    finished_at: float | None = None
    finish_reason: FinishReason | None = None
    error: BaseException | None = None  # why it failed, when it did

    @property
    def request_id(self) -> str:
        """The id the client chose."""
        return self.request.request_id

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt and output."""
        return len(self.request.prompt) + len(self.output)

    @property
    def is_finished(self) -> bool:
        """True once it has ended, for whatever reason."""
        return self.status is Status.FINISHED

    def tokens(self, start: int, count: int) -> tuple[int, ...]:
        """Token ids [start, start + count) of prompt and output laid end to end."""
        prompt = self.request.prompt
        if start + count <= len(prompt):
            return prompt[start : start + count]
        from_output = slice(max(start - len(prompt), 0), max(start + count - len(prompt), 0))
        return prompt[start : start + count] + tuple(self.output[from_output])

    def append(self, token: int, now: float) -> FinishReason | None:
        """Take a new token; says why the sequence ends with it, or None. Stop wins over length."""
        self.output.append(token)
        self.token_times.append(now)
        if token in self.request.sampling.stop_token_ids or (self.ends and self.ends(token)):
            return FinishReason.STOP
        if len(self.output) >= self.request.sampling.max_new_tokens:
            return FinishReason.LENGTH
        return None

    def finish(self, reason: FinishReason, now: float, error: BaseException | None = None) -> None:
        """End it. Slot and memory are the scheduler's to take back."""
        self.status, self.finish_reason, self.finished_at, self.error = Status.FINISHED, reason, now, error
