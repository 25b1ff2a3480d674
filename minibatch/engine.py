"""The loop: schedule, execute, update, record. Nothing else happens in a serving engine. Introduced in notebook 02."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from minibatch.request import FinishReason, Request, RequestRefused, Sequence
from minibatch.schedulers import Scheduler
from minibatch.step import StepPlan, StepResult
from minibatch.trace import StepRecord, Trace


class EngineError(RuntimeError):
    """A request could not be served to its end; the cause is chained."""


class Arrivals:
    """Requests still to come, the next one known. `time` is its arrival, infinite if there is none."""

    def __init__(self, requests: Iterable[Request]):
        if not isinstance(requests, Iterator):
            requests = iter(sorted(requests, key=lambda request: request.arrival))  # stable: a tie keeps its order
        self._rest, self._next, self.time = requests, None, 0.0
        self.next()

    def next(self) -> Request | None:
        """Take the next one."""
        taken, self._next = self._next, next(self._rest, None)
        before, self.time = self.time, self._next.arrival if self._next else math.inf
        if self.time < before and taken:
            late, early = taken.request_id, self._next.request_id
            raise ValueError(f"requests: {early!r} arrives before {late!r}, which an iterator gave first")
        return taken


class Executor(Protocol):
    """Whatever turns a plan into tokens and seconds: a model, or a rule that stands in for one."""

    vocab_size: int
    max_model_len: int  # positions a sequence may have

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute one step."""


class Engine:
    """Serves requests, one step after the other. `now` is the time in seconds: a number the engine carries.

    A step adds as many seconds as its executor says it took, so a model and a simulation run through the
    same loop, and arrivals are replayed against that clock.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, trace: Trace | None = None):
        if getattr(executor, "memory", scheduler.memory) is not scheduler.memory:
            raise ValueError("executor: built for another memory than the scheduler's; give both the same object")
        self.scheduler, self.executor = scheduler, executor
        self.now = 0.0
        self.open: dict[str, Sequence] = {}  # submitted and not ended, by request id
        block_size = getattr(scheduler.memory, "block_size", None)
        self.trace = trace or Trace(scheduler.name, scheduler.max_num_seqs, block_size)

    def step(self) -> StepRecord | None:
        """One iteration; None if there is nothing to do at this moment.

        A step that raises fails the requests that were in it, and only those: their memory returns, the
        record says why, and the engine goes on.
        """
        for sequence in self.scheduler.expire(self.now):
            self._close(sequence)
        plan = self.scheduler.schedule(self.now)
        if not plan.chunks:
            return None
        memory, start, waiting, error = self.scheduler.memory, self.now, len(self.scheduler.waiting), None
        events, use = memory.take_events(), memory.use()
        try:
            result = self.executor.execute(plan)
        except Exception as raised:
            error = raised
            done = self.scheduler.fail(plan, raised, self.now)
        else:
            self.now += result.seconds
            done = self.scheduler.update(plan, result, self.now)
        for sequence in done:
            self._close(sequence)
        use = use if error else use._replace(used=use.used + plan.num_tokens)  # before those who are done left
        return self.trace.record(plan, start, self.now, done, waiting, use, error, events)

    def submit(self, request: Request, ends: Callable[[int], bool] | None = None) -> Sequence:
        """Put a request in the queue. Raises RequestRefused for one that can never be served; no other is touched.

        `ends`, which must not raise, is asked about each new token whether the answer ends with it (`stop_text.py`).
        """
        problem = self._problem(request)
        if problem:
            refused = RequestRefused(request.request_id, *problem)
            if request.request_id not in self.open:  # a second "a" must not overwrite the record of the first
                sequence = Sequence(request)
                sequence.finish(FinishReason.REFUSED, self.now, refused)
                self.trace.record_request(sequence)
            raise refused
        sequence = Sequence(request, parent=self.open.get(request.fork_of), ends=ends)
        self.open[request.request_id] = sequence
        self.trace.record_request(sequence)
        self.scheduler.submit(sequence)
        return sequence

    def abort(self, request_id: str) -> bool:
        """Stop serving a request, wherever it stands; False if it is unknown or has already ended."""
        sequence = self.open.get(request_id)
        if sequence is None:
            return False
        self.scheduler.abort(sequence, self.now)
        self._close(sequence)
        return True

    def run(self, requests: Iterable[Request], on_step: Callable[[StepRecord], None] | None = None) -> Trace:
        """Serve all of them, each from its arrival on; returns the trace. Refused ones are recorded, and warned of.

        An iterator is read as time goes by and must be in order of arrival; any other collection may be in any order.
        """
        coming = Arrivals(requests)
        refused, first = 0, None
        while True:
            while coming.time <= self.now:
                try:
                    self.submit(coming.next())
                except RequestRefused as why:
                    refused, first = refused + 1, first or why
            self.scheduler.more_coming = coming.time < math.inf
            record = self.step()
            if record is None and not self._sleep(coming.time):
                break
            if record and on_step:
                on_step(record)
        if refused:
            warnings.warn(f"{refused} request(s) refused; the first: {first}", stacklevel=2)
        return self.trace

    def stream(self, request: Request, ends: Callable[[int], bool] | None = None) -> Iterator[int]:
        """Submit a request, arriving now, and yield its tokens as they come; whatever else is open is served along.

        Leaving the loop early aborts the request. Raises EngineError if it fails or is aborted.
        """
        return self._stream(self.submit(replace(request, arrival=self.now), ends))

    def _stream(self, sequence: Sequence) -> Iterator[int]:
        sent = 0
        try:
            while sent < len(sequence.output) or not sequence.is_finished:
                if sent == len(sequence.output) and self.step() is None:
                    self._sleep(math.inf)
                for token in sequence.output[sent:]:
                    sent += 1
                    yield token
            raise_if_broken(sequence)
        finally:
            if not sequence.is_finished:
                self.abort(sequence.request_id)

    def _sleep(self, next_arrival: float) -> bool:
        """Nothing to do: move the clock to the next thing that can happen. False if nothing ever will."""
        wake = self.scheduler.wake_at()
        soonest = next_arrival if wake is None else min(next_arrival, wake)
        if self.now < soonest < math.inf:
            self.now = soonest
        elif self.open:  # at the same moment it would decide the same again, for ever
            said = f", and wake_at() says {soonest:g} s at {self.now:g} s" if soonest < math.inf else ""
            raise EngineError(
                f"scheduler {self.scheduler.name!r} is stuck: {len(self.open)} requests open, none scheduled{said}"
            )
        return soonest < math.inf

    def _close(self, sequence: Sequence) -> None:
        del self.open[sequence.request_id]
        self.trace.record_request(sequence)

    def _problem(self, request: Request) -> tuple[str, object, str] | None:
        """Why this request can never be served, as (field, value, why)."""
        prompt, limit, vocab = request.prompt, self.executor.max_model_len, self.executor.vocab_size
        if request.request_id in self.open:
            return "request_id", request.request_id, "is being served already; wait for it to end or choose another id"
        if not prompt:
            return "prompt", prompt, "is empty; give at least one token"
        if wrong := _not_an_id(prompt, vocab):
            return "prompt", *wrong, f"is not a token id; ids run from 0 to {vocab - 1}"
        if problem := request.sampling.problem():
            return problem
        parent = self.open.get(request.fork_of)
        if parent is not None and parent.request.prompt != prompt:
            return "fork_of", request.fork_of, "has another prompt; a fork shares the whole prompt"
        if len(prompt) > limit:
            return "prompt", f"{len(prompt)} tokens", f"is longer than the {limit} positions of a sequence"
        if request.kv_need > limit:
            most = limit - len(prompt) + 1
            return "max_new_tokens", request.sampling.max_new_tokens, f"with this prompt it can be {most} at most"
        return self.scheduler.refusal(request)


def _not_an_id(prompt: tuple[int, ...], vocab: int) -> list[object]:
    """The first of a prompt's tokens that is no token id, if there is one. In most prompts all are, told fast."""
    if {int}.issuperset(map(type, prompt)) and min(prompt) >= 0 and max(prompt) < vocab:
        return []
    return [token for token in prompt if not isinstance(token, int) or not 0 <= token < vocab][:1]


def raise_if_broken(sequence: Sequence) -> None:
    """Raise EngineError, cause chained, for a sequence that was not served to its end."""
    reason = sequence.finish_reason
    if reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise EngineError(f"request {sequence.request_id!r} {reason.value} after {len(sequence.output)} tokens") from (
            sequence.error
        )
