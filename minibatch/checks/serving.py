"""A reader's scheduler under the engine, every plan looked over. For the checks of the labs.

What it looks at is what any right scheduler must do, however it is written: the rules of a plan, not the insides.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from string import ascii_uppercase

from minibatch.checks.base import CheckFailed, NotYet, need
from minibatch.engine import Engine, EngineError, Executor
from minibatch.request import Request, SamplingParams, Status
from minibatch.schedulers import Scheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan
from minibatch.trace import StepRecord, Trace


def requests_of(
    lengths: Sequence[int], arrivals: Sequence[float] | None = None, prompts: int | Sequence[int] = 1
) -> list[Request]:
    """Requests "A", "B", ... that write `lengths` tokens. `arrivals` in seconds (all 0); `prompts` in tokens."""
    each = [prompts] * len(lengths) if isinstance(prompts, int) else prompts
    came = arrivals or [0.0] * len(lengths)
    some = zip(_names(), lengths, came, each)
    return [Request(name, (1,) * prompt, SamplingParams(length), at) for name, length, at, prompt in some]


def serve(
    scheduler: Scheduler,
    requests: Iterable[Request],
    executor: Executor | None = None,
    told: str = "",
    most_steps: int = 2000,
) -> Trace:
    """Serve all requests with a reader's scheduler; a step lasts a second unless `executor` says otherwise.

    Raises NotYet for a stub and CheckFailed for the first thing that no scheduler may do, in words; `told` says which
    case it was ("lengths [2, 4, 2] on 2 slots"). The failure carries the trace so far.
    """
    watch = _Watch(scheduler, executor or ScriptedExecutor(), most_steps)
    failed: CheckFailed | None = None
    try:
        watch.run(requests)
    except CheckFailed as raised:
        failed = raised
    except NotImplementedError:
        failed = NotYet("raise NotImplementedError is still there")
    except EngineError:
        failed = CheckFailed(_stuck(watch.engine))
    except Exception as error:
        text = " ".join(str(error).split())[:120]
        failed = CheckFailed(f"{watch.where} your code raised {type(error).__name__}: {text}")
    if failed:  # outside the except block, or a traceback would show both errors
        where = f"{told}: " if told else ""
        raise type(failed)(f"{where}{failed}", failed.call, failed.expected, watch.engine.trace)
    return watch.engine.trace


def _stuck(engine: Engine) -> str:
    if engine.scheduler.wake_at() is not None:
        return f"at {engine.now:g} s nobody is scheduled, and wake_at() says that somebody would be"
    held = ", ".join(name for name, sequence in engine.open.items() if sequence.slot is not None)
    slots = f", though {held} hold{'' if ',' in held else 's'} a slot" if held else ""
    return f"nobody is scheduled any more, and {', '.join(engine.open)} never ended{slots}"


class _Watch:
    def __init__(self, scheduler: Scheduler, executor: Executor, most_steps: int):
        need(isinstance(scheduler, Scheduler), f"a subclass of Scheduler is wanted, not {type(scheduler).__name__}")
        self.engine, self.most_steps = Engine(scheduler, executor), most_steps
        self.schedule = scheduler.schedule

    @property
    def where(self) -> str:
        return f"in step {len(self.engine.trace.steps) + 1}"

    def run(self, requests: Iterable[Request]) -> None:
        scheduler = self.engine.scheduler
        scheduler.schedule = self._schedule  # of this one object, for as long as it is watched
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of refused requests: they are told below
                self.engine.run(requests, self._count)
        finally:
            del scheduler.schedule
        for record in self.engine.trace.requests.values():
            reason = record.finish_reason
            need(reason in ("stop", "length"), f"{record.request_id} was turned away or dropped: it is {reason}")
        reserved = scheduler.memory.use().reserved
        need(not reserved, f"everybody has ended, and {reserved} K/V positions are still taken")

    def _count(self, record: StepRecord) -> None:
        need(record.step < self.most_steps, f"not done after {self.most_steps:,} steps")

    def _schedule(self, now: float) -> StepPlan:
        plan = self.schedule(now)
        if plan is None:
            raise NotYet("schedule() returned None")
        need(isinstance(plan, StepPlan), f"schedule() returned {type(plan).__name__}; a StepPlan is wanted")
        for rule in (_rows, _chunks, _slots):
            rule(plan, self.engine.scheduler, self.where)
        return plan


def _rows(plan: StepPlan, scheduler: Scheduler, where: str) -> None:
    for field in ("chunks", "dead", "admitted"):
        given = getattr(plan, field)
        need(isinstance(given, tuple), f"{where} {field} of the plan is a {type(given).__name__}; a tuple is wanted")
    for row in plan.rows:
        need(isinstance(row, Chunk), f"{where} the plan holds a {type(row).__name__}; a Chunk is wanted")
    for dead in plan.dead:
        need(dead.sequence.is_finished, f"{where} {_name(dead)} is said to be dead and has not ended")
    names = [_name(row) for row in plan.rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    need(not twice, f"{where} {', '.join(twice)} stands in the plan more than once")


def _chunks(plan: StepPlan, scheduler: Scheduler, where: str) -> None:
    for sequence, _, start, size in plan.chunks:
        name, stored, known = sequence.request_id, sequence.num_computed_tokens, sequence.num_tokens
        need(not sequence.is_finished, f"{where} {name} is computed, and it has ended")
        need(sequence.status is Status.RUNNING, f"{where} {name} is computed without having been given a slot")
        need(start == stored, f"{where} {name} computes from position {start}, and {stored} of its tokens are stored")
        need(size >= 1, f"{where} {name} gets a chunk of {size} tokens")
        need(start + size <= known, f"{where} {name} computes up to position {start + size}, and has {known} tokens")


def _slots(plan: StepPlan, scheduler: Scheduler, where: str) -> None:
    taken: dict[int, str] = {}
    for row in plan.rows:
        name, slot = _name(row), row.slot
        need(slot in range(scheduler.max_num_seqs), f"{where} {name} is in slot {slot}, which there is not")
        need(slot not in taken, f"{where} {name} and {taken.get(slot)} are both in slot {slot}")
        need(slot == row.sequence.slot, f"{where} {name} is planned for slot {slot} and holds {row.sequence.slot}")
        taken[slot] = name


def _name(row: Chunk) -> str:
    return row.sequence.request_id


def _names() -> Iterator[str]:
    """A to Z, then A1, B1, ..."""
    for turn in count():
        yield from (letter + (str(turn) if turn else "") for letter in ascii_uppercase)
