"""What the tests of single systems use: serve on a row, or step through it, and say what was in each step."""

from fake_kv import FakeKV
from helpers import AuditedEngine, serve

from minibatch.schedulers.systems import system


def run(name, positions, requests, longest=None, **knobs):
    """Serve on a row with so many K/V positions; returns the trace."""
    return serve(system(name).build(positions, longest or positions, **knobs), requests)


def stepper(name, positions, requests=(), longest=None, **knobs):
    """An audited engine on a row, to be stepped by hand."""
    scheduler = system(name).build(positions, longest or positions, **knobs)
    engine = AuditedEngine(scheduler, FakeKV(scheduler.memory))
    for one in requests:
        engine.submit(one)
    return engine


def chunks(trace):
    """For each step, request -> tokens computed."""
    return [{work.request_id: work.count for work in step.live} for step in trace.steps]


def steps_of(trace, field):
    """{step number: request ids} where there are any."""
    return {step.step: getattr(step, field) for step in trace.steps if getattr(step, field)}
