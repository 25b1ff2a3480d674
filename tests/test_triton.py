"""Triton's dynamic batcher: sizes, delays, levels and limits of the queue, with the examples of its document."""

import pytest
from fake_kv import FakeKV
from helpers import AuditedEngine, request, serve

from minibatch import RequestRefused
from minibatch.request import Sequence
from minibatch.schedulers.systems import system


def build(slots=8, **knobs):
    return system("triton").build(slots * 16, 16, max_num_seqs=slots, **knobs)


def arriving(times, output=1, **options):
    return [request(f"R{i}", output, at, prompt=2, **options) for i, at in enumerate(times)]


def batches(scheduler, requests):
    """(start of the batch in seconds, request ids), for each batch; steps last a second."""
    trace = serve(scheduler, requests)
    return [(step.start, step.admitted) for step in trace.steps if step.admitted]


def sizes(scheduler, requests):
    return [(start, len(names)) for start, names in batches(scheduler, requests)]


def test_without_a_delay_whoever_is_there_is_sent_at_once():
    assert sizes(build(4), arriving([0, 0.5, 0.5, 2])) == [(0, 1), (1, 2), (2, 1)]
    assert sizes(build(4), arriving([0] * 9)) == [(0, 4), (1, 4), (2, 1)]


@pytest.mark.parametrize("there, sent", [(9, [8, 1]), (7, [4, 3]), (4, [4]), (3, [3]), (12, [8, 4])])
def test_the_largest_preferred_size_that_can_be_formed(there, sent):
    assert [size for _, size in sizes(build(8, preferred_sizes=[4, 8]), arriving([0] * there))] == sent


def test_three_wait_for_the_delay_of_the_oldest_or_for_the_fourth():
    knobs = {"preferred_sizes": (4, 8), "max_queue_delay": 1e-4}
    assert sizes(build(8, **knobs), arriving([0, 3e-5, 6e-5])) == [(1e-4, 3)]
    assert sizes(build(8, **knobs), arriving([0, 3e-5, 6e-5, 8e-5])) == [(8e-5, 4)]
    assert sizes(build(8, **knobs), arriving([0, 3e-5, 6e-5, 2e-4])) == [(1e-4, 3), (1 + 1e-4, 1)]


def test_with_a_delay_and_no_preferred_size_the_full_batch_is_awaited():
    assert sizes(build(4, max_queue_delay=5), arriving([0, 1, 2, 3, 4])) == [(3, 4), (9, 1)]


def test_a_batch_is_one_unit():
    """R2 arrives while the first batch runs and a slot is dead."""
    trace = serve(build(4), [*arriving([0, 0.5]), request("long", 4, 0.0)])
    assert [(step.start, step.admitted) for step in trace.steps if step.admitted] == [(0, ("R0", "long")), (4, ("R1",))]
    assert sum(len(step.dead) for step in trace.steps) == 3


def levels(*priorities):
    return [request(f"P{level}.{i}", 1, prompt=2, priority=level) for i, level in enumerate(priorities)]


def test_a_higher_level_goes_first_and_within_one_who_came_first():
    scheduler = build(2, priority_levels=3, default_priority_level=2)
    sent = [names for _, names in batches(scheduler, levels(3, 0, 1, 2, 1))]
    assert sent == [("P1.2", "P1.4"), ("P0.1", "P2.3"), ("P3.0",)], "0 is the default level"


def test_without_levels_the_priority_is_not_looked_at():
    assert [names for _, names in batches(build(2), levels(3, 1))] == [("P3.0", "P1.1")]


def test_an_unknown_level_is_refused():
    scheduler = build(2, priority_levels=2)
    engine = AuditedEngine(scheduler, FakeKV(scheduler.memory))
    for level in (-1, 3):
        with pytest.raises(RequestRefused, match=f"priority={level}: levels are 1 .* to 2"):
            engine.submit(request("A", 1, priority=level))


def test_a_full_queue_refuses_the_next_in_its_own_level():
    scheduler = build(2, max_queue_size=1, priority_levels=2)
    engine = AuditedEngine(scheduler, FakeKV(scheduler.memory))
    engine.submit(request("A", 1, priority=1))
    with pytest.raises(RequestRefused, match="max_queue_size=1.*later"):
        engine.submit(request("B", 1, priority=1))
    engine.submit(request("C", 1, priority=2))
    engine.step()
    engine.submit(request("D", 1, priority=1))
    assert set(engine.open) == {"D"}


def test_who_waits_too_long_is_rejected():
    """A runs 4 s; B, from second 0.5, may wait 2 s, and C comes late enough to be served."""
    scheduler = build(2, timeout=2.0)
    trace = serve(scheduler, [request("A", 4), request("B", 1, 0.5), request("C", 1, 2.5)])
    ends = {name: (one.finish_reason, one.finished_at) for name, one in trace.requests.items()}
    assert ends == {"A": ("length", 4), "B": ("aborted", 3), "C": ("length", 5)}


def test_expire_says_how_long_it_waited_and_is_due_to_the_moment():
    scheduler, one = build(2, timeout=2.0), Sequence(request("B", 1, 0.1))
    scheduler.submit(one)
    assert scheduler.wake_at() == 2.1 and scheduler.expire(2.0999) == []
    assert scheduler.expire(2.1) == [one] and not scheduler.waiting
    assert str(one.error) == "timeout=2.0: waited 2 s for a batch"


def test_a_lone_request_that_would_wait_longer_than_it_may_is_rejected_on_time():
    trace = serve(build(4, timeout=2.0, max_queue_delay=5.0), arriving([1.0]))
    assert (trace.requests["R0"].finish_reason, trace.requests["R0"].finished_at) == ("aborted", 3.0)


def test_or_who_waits_too_long_is_set_behind_the_others_of_its_level():
    asked = [request("A", 4), *(request(name, 1, at) for name, at in [("B", 0.5), ("C", 1.0), ("D", 3.0), ("E", 3.5)])]
    late = build(1, timeout=2.0, timeout_action="delay")
    assert [names[0] for _, names in batches(late, asked)] == ["A", "D", "E", "B", "C"]
    asked = [request("A", 4, priority=1), request("B", 1, 0.5, priority=1), request("C", 1, 3.0, priority=2)]
    late = build(1, timeout=2.0, timeout_action="delay", priority_levels=2)
    assert [names[0] for _, names in batches(late, asked)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "words, knobs",
    [
        (r"preferred_sizes=\(0, 4\)", {"preferred_sizes": (4, 0)}),
        (r"preferred_sizes=\(9,\).*1 to max_num_seqs=8", {"preferred_sizes": (9,)}),
        ("max_queue_delay=-1", {"max_queue_delay": -1}),
        ("priority_levels=-1", {"priority_levels": -1}),
        ("default_priority_level=3: must be 1 to 2", {"priority_levels": 2, "default_priority_level": 3}),
        ("max_queue_size=-2", {"max_queue_size": -2}),
        ("timeout=-0.5", {"timeout": -0.5}),
        ("timeout_action='drop': choose one of reject, delay", {"timeout_action": "drop"}),
    ],
)
def test_impossible_settings_are_refused_by_name(words, knobs):
    with pytest.raises(ValueError, match=words):
        build(8, **knobs)
