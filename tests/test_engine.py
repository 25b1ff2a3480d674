"""The loop and its edges: bad requests, stopping, aborting, failing, streaming, the clock."""

import math
import random

import numpy as np
import pytest
from helpers import AuditedEngine, assert_drained, request, serve

from minibatch import Engine, EngineError, Request, RequestRefused, SamplingParams
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import latency, summarise
from minibatch.schedulers import SCHEDULERS, IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor
from minibatch.step import StepPlan
from minibatch.trace import Trace

EVERY = pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS.keys())
BOTH = pytest.mark.parametrize(
    "memory", [lambda: ContiguousMemory(64, 32), lambda: PagedMemory(16, 4)], ids=["contiguous", "paged"]
)

BAD = [
    ("prompt", Request("bad", ())),
    ("prompt", Request("bad", (1, -1))),
    ("prompt", Request("bad", (1, 1000))),
    ("prompt", Request("bad", (1, 2.5))),
    ("prompt", Request("bad", (1,) * 60)),
    ("max_new_tokens", request("bad", 0)),
    ("max_new_tokens", request("bad", -1)),
    ("max_new_tokens", request("bad", 2.5)),
    ("max_new_tokens", request("bad", 60)),
    ("temperature", request("bad", 4, temperature=-1)),
    ("temperature", request("bad", 4, temperature=math.nan)),
    ("temperature", request("bad", 4, temperature=math.inf)),
    ("top_p", request("bad", 4, top_p=0)),
    ("top_p", request("bad", 4, top_p=1.5)),
    ("top_p", request("bad", 4, top_p=math.nan)),
    ("top_k", request("bad", 4, top_k=-3)),
    ("seed", request("bad", 4, seed="seven")),
]


@pytest.mark.parametrize("field, bad", BAD, ids=[f"{field}-{i}" for i, (field, _) in enumerate(BAD)])
def test_a_bad_request_is_refused_by_name_and_touches_no_other(field, bad):
    """cases.md A16."""
    engine = AuditedEngine(IterationScheduler(2), ScriptedExecutor(max_model_len=50))
    good = engine.submit(request("good", 5))
    engine.step()
    with pytest.raises(RequestRefused, match=f"request 'bad' refused: {field}=") as refused:
        engine.submit(bad)
    assert refused.value.field == field
    assert engine.scheduler.memory.use().used == 1 and list(engine.open) == ["good"]
    trace = engine.run([request("next", 2)])
    assert len(good.output) == 5 and len(trace.requests["next"].tokens) == 2
    assert trace.requests["bad"].finish_reason == "refused"


def test_run_serves_the_good_ones_and_warns_of_the_refused():
    engine = AuditedEngine(IterationScheduler(2), ScriptedExecutor())
    with pytest.warns(UserWarning, match=r"1 request\(s\) refused; the first: request 'bad' refused: prompt=\(\)"):
        trace = engine.run([request("good", 2), Request("bad", ())])
    assert trace.requests["good"].finish_reason == "length" and trace.requests["bad"].finish_reason == "refused"


def test_an_id_may_be_reused_after_its_end_but_not_before():
    """cases.md A17."""
    engine = AuditedEngine(IterationScheduler(2), ScriptedExecutor({"a": [1, 2, 3]}))
    first = engine.submit(request("a", 3))
    engine.step()
    with pytest.raises(RequestRefused, match="request_id='a'.*being served already"):
        engine.submit(request("a", 3))
    assert engine.trace.requests["a"].finish_reason is None, "the record of the first is untouched"
    engine.step(), engine.step()
    assert first.output == [1, 2, 3]
    second = engine.submit(request("a", 2))
    assert engine.abort("a") and list(engine.stream(request("a", 3))) == [1, 2, 3]
    assert second.output == []


STOPS = [
    ("EOS first", [1], 8, (1,), [1], "stop"),
    ("one token", [9], 1, (1,), [9], "length"),
    ("stop wins over length", [1], 1, (1,), [1], "stop"),
    ("no stop tokens", [1, 1, 1], 3, (), [1, 1, 1], "length"),
]


@EVERY
@BOTH
@pytest.mark.parametrize("_, script, most, stops, tokens, reason", STOPS, ids=[case[0] for case in STOPS])
def test_ending_at_the_first_token(scheduler, memory, _, script, most, stops, tokens, reason):
    """cases.md A18."""
    requests = [request("R", most, prompt=3, stop_token_ids=stops)]
    engine = AuditedEngine(scheduler(1, memory()), ScriptedExecutor({"R": script}))
    left = []
    trace = engine.run(requests, on_step=lambda record: left.append(engine.scheduler.memory.use().reserved))
    record = trace.requests["R"]
    assert (record.tokens, record.finish_reason) == (tokens, reason)
    assert len(trace.steps) == len(tokens) and left[-1] == 0, "memory is free in the step of the last token"
    assert trace.steps[-1].memory.used == 3 + len(tokens) - 1, "the record is of the step, not of what it left"
    if len(tokens) == 1:
        times = latency(record)
        assert times.ttft is not None and times.itl == () and times.tpot is None


@EVERY
@BOTH
def test_abort_in_every_state_is_one_end_and_returns_everything(scheduler, memory):
    engine = AuditedEngine(scheduler(2, memory()), ScriptedExecutor({f"R{i}": [i] * 9 for i in range(6)}))
    for i in range(6):
        engine.submit(request(f"R{i}", 4 + i))
    assert engine.abort("R5"), "before anything ran"
    engine.step()
    assert engine.abort("R4"), "waiting"
    assert engine.abort("R1"), "after its first step"
    delivered = len(engine.trace.requests["R1"].tokens)
    engine.step()
    assert engine.abort("R1") is False and engine.abort("nobody") is False
    trace = engine.run([])
    assert engine.abort("R0") is False, "already finished"
    assert len(trace.requests["R1"].tokens) == delivered, "no token after the abort"
    assert {name: r.finish_reason for name, r in trace.requests.items()} == dict.fromkeys(
        ["R0", "R2", "R3"], "length"
    ) | dict.fromkeys(["R1", "R4", "R5"], "aborted")
    assert trace.requests["R2"].tokens == [2] * 6 and trace.requests["R3"].tokens == [3] * 7
    assert_drained(engine.scheduler)


class Breaks(ScriptedExecutor):
    """Raises in one of its steps."""

    def __init__(self, at):
        super().__init__()
        self.steps_left = at

    def execute(self, plan):
        self.steps_left -= 1
        if self.steps_left == 0:
            raise ZeroDivisionError("the model broke")
        return super().execute(plan)


@EVERY
@BOTH
def test_a_step_that_raises_fails_what_was_in_it_and_nothing_else(scheduler, memory):
    engine = AuditedEngine(scheduler(2, memory()), Breaks(at=3))
    trace = engine.run([request("A", 2), request("B", 5), request("C", 5), request("D", 3)])
    failed = {name for name, record in trace.requests.items() if record.finish_reason == "failed"}
    in_step = {work.request_id for work in trace.steps[2].live}
    assert failed == in_step and trace.requests["A"].finish_reason == "length"
    assert {trace.requests[name].finish_reason for name in set("ABCD") - failed} == {"length"}
    assert trace.steps[2].error == "ZeroDivisionError('the model broke')" and not engine.open
    assert_drained(engine.scheduler)


def test_streams_interleave_and_yield_each_token_once():
    engine = AuditedEngine(IterationScheduler(2), ScriptedExecutor({"A": [1, 2, 3], "B": [4, 5, 6, 7]}))
    a, b = engine.stream(request("A", 3)), engine.stream(request("B", 4))
    assert [next(a), next(b), next(b), next(b)] == [1, 4, 5, 6]
    assert list(a) == [2, 3] and list(b) == [7]
    assert len(engine.trace.steps) == 4, "one step served both"


def test_leaving_a_stream_aborts_its_request():
    engine = AuditedEngine(IterationScheduler(1), ScriptedExecutor())
    for _ in engine.stream(request("A", 100)):
        break
    assert engine.trace.requests["A"].finish_reason == "aborted" and not engine.open


def test_a_stream_whose_step_raises_says_so_with_its_cause():
    engine = AuditedEngine(IterationScheduler(1), Breaks(at=2))
    with pytest.raises(EngineError, match="request 'A' failed after 1 tokens") as raised:
        list(engine.stream(request("A", 5)))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert list(engine.stream(request("B", 2))) == [7, 7], "the engine goes on"


@EVERY
def test_a_lone_stream_does_not_wait_for_company_that_never_comes(scheduler):
    assert list(AuditedEngine(scheduler(4), ScriptedExecutor()).stream(request("A", 2))) == [7, 7]


class NeverSchedules(Scheduler):
    """Forgets its queue."""

    def schedule(self, now):
        return StepPlan(())


def test_a_scheduler_that_schedules_nothing_is_reported_and_does_not_hang():
    engine = AuditedEngine(NeverSchedules(1), ScriptedExecutor())
    with pytest.raises(EngineError, match="stuck: 1 requests open"):
        engine.run([request("A", 1)])


def test_time_is_carried_and_idle_time_is_skipped():
    trace = serve(IterationScheduler(2), [request("A", 2, arrival=5), request("B", 1, arrival=100)])
    assert [(step.start, step.end) for step in trace.steps] == [(5, 6), (6, 7), (100, 101)]
    assert latency(trace.requests["B"]).ttft == 1
    assert summarise(trace).seconds == 96


def test_queue_time_and_waiting_are_recorded():
    trace = serve(IterationScheduler(1), [request("A", 3), request("B", 1), request("C", 1)])
    assert [step.waiting for step in trace.steps] == [2, 2, 2, 1, 0]
    assert latency(trace.requests["C"]).queue == 4 and latency(trace.requests["C"]).ttft == 5


def test_a_burst_keeps_its_order():
    lengths = [5, 1, 4, 2, 3]
    trace = serve(IterationScheduler(1), [request(f"R{i}", n) for i, n in enumerate(lengths)])
    assert [name for step in trace.steps for name in step.admitted] == [f"R{i}" for i in range(5)]


def test_a_trace_survives_json():
    trace = serve(StaticBatcher(2), [request("A", 2, prompt=3), request("B", 4), request("C", 2, arrival=1.5)])
    assert Trace.from_json(trace.to_json()) == trace


def test_nobodys_random_state_moves():
    states = random.getstate(), np.random.get_state()[1].tolist()
    engine = AuditedEngine(IterationScheduler(1), ScriptedExecutor())
    engine.run([Request("A", (1,), SamplingParams(max_new_tokens=3, temperature=1.0))])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states


def test_a_fork_of_another_prompt_is_refused_and_a_fork_of_nobody_is_a_request_like_any_other():
    engine = AuditedEngine(IterationScheduler(2, PagedMemory(8, 4)), ScriptedExecutor())
    engine.submit(request("parent", 3, prompt=5))
    with pytest.raises(RequestRefused, match="fork_of='parent'.*another prompt"):
        engine.submit(request("child", 3, prompt=6, fork_of="parent"))
    trace = engine.run([request("orphan", 3, prompt=5, fork_of="long gone")])
    assert trace.requests["orphan"].tokens == [7] * 3 and trace.requests["child"].finish_reason == "refused"


def test_books_and_tensors_must_be_of_one_memory(tiny):
    memory = PagedMemory(4, 4)
    with pytest.raises(ValueError, match="executor: built for another memory"):
        Engine(IterationScheduler(2, ContiguousMemory(16, 16)), tiny.executor(memory))
    assert Engine(IterationScheduler(2, memory), tiny.executor(memory)).executor.memory is memory


def test_an_iterator_of_requests_is_read_as_time_goes_by():
    engine, read = Engine(IterationScheduler(1), ScriptedExecutor()), []

    def coming():
        for at in (0.0, 1.0, 50.0, 60.0):
            read.append((at, engine.now))
            yield request(f"R{at}", 3, arrival=at)

    trace = engine.run(coming())
    assert len(trace.finished) == 4
    assert read == [(0.0, 0.0), (1.0, 0.0), (50.0, 1.0), (60.0, 50.0)], "one ahead, no more"


def test_an_iterator_out_of_order_is_refused():
    engine = Engine(IterationScheduler(1), ScriptedExecutor())
    with pytest.raises(ValueError, match="requests: 'B' arrives before 'A'"):
        engine.run(iter([request("A", 3, arrival=2.0), request("B", 3, arrival=1.0)]))
