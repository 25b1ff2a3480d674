"""Contiguous regions: where they go (first fit, buddy), what comes back, and the books after every move."""

import json

import pytest
from helpers import AuditedEngine, request
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minibatch import RequestRefused
from minibatch.memory import ContiguousMemory
from minibatch.memory.placement import PLACEMENTS, Buddy, FirstFit, next_power_of_two
from minibatch.request import Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.step import RegionEvent
from minibatch.trace import Trace

BOTH = pytest.mark.parametrize("placement", PLACEMENTS)


def sequence(name, output, prompt=1):
    return Sequence(request(name, output, prompt=prompt))


@pytest.mark.parametrize("n, power", [(1, 1), (2, 2), (3, 4), (15, 16), (16, 16), (17, 32), (2047, 2048), (2049, 4096)])
def test_next_power_of_two(n, power):
    assert next_power_of_two(n) == power


def test_first_fit_takes_the_lowest_gap_that_is_long_enough_to_the_position():
    placement = FirstFit(16)
    assert [placement.take(length) for length in (4, 3, 5, 4)] == [0, 4, 7, 12]
    assert placement.take(1) is None and placement.free() == []
    placement.give_back(range(4, 7))
    placement.give_back(range(12, 16))
    assert [placement.take(4), placement.take(4), placement.take(3)] == [12, None, 4]


def test_gaps_of_first_fit_grow_together_on_both_sides():
    placement = FirstFit(12)
    for _ in range(4):
        placement.take(3)
    for region in (range(0, 3), range(6, 9), range(3, 6)):
        placement.give_back(region)
    assert placement.free() == [range(0, 9)]
    placement.give_back(range(9, 12))
    assert placement.free() == [range(0, 12)] and placement.take(12) == 0


def test_half_of_the_pool_free_and_no_place():
    placement = FirstFit(16)
    for _ in range(4):
        placement.take(4)
    for region in (range(0, 4), range(8, 12)):
        placement.give_back(region)
    assert sum(map(len, placement.free())) == 8 and placement.take(5) is None


def test_the_buddy_halves_and_heals():
    placement = Buddy(16)
    assert [placement.take(5), placement.take(3), placement.take(5)] == [0, 8, None]
    assert placement.free() == [range(12, 16)]
    placement.give_back(range(8, 11))
    assert placement.free() == [range(8, 16)]
    placement.give_back(range(0, 5))
    assert placement.free() == [range(0, 16)] and placement.take(9) == 0


def test_neighbours_that_are_not_buddies_stay_apart():
    """[4, 8) and [8, 12) lie side by side, but are halves of different pieces."""
    placement = Buddy(16)
    assert [placement.take(4) for _ in range(4)] == [0, 4, 8, 12]
    placement.give_back(range(4, 8))
    placement.give_back(range(8, 12))
    assert placement.free() == [range(4, 8), range(8, 12)] and placement.take(8) is None


def test_the_buddy_takes_the_smallest_piece_that_holds_it():
    placement = Buddy(16)
    assert placement.take(4) == 0 and placement.take(2) == 4 and placement.take(8) == 8
    placement.give_back(range(8, 16))
    assert placement.take(2) == 6, "not a half of a half of the larger piece"


@pytest.mark.parametrize("k", [1, 2, 5])
def test_lengths_around_a_power_of_two(k):
    for length, span in ((2**k - 1, 2**k if k > 1 else 1), (2**k, 2**k), (2**k + 1, 2 ** (k + 1))):
        placement = Buddy(64)
        start = placement.take(length)
        assert len(placement.span(range(start, start + length))) == span
        assert sum(map(len, placement.free())) == 64 - span


def test_a_pool_of_any_size_begins_as_powers_of_two_and_seven_times_2048_fit_into_the_papers():
    placement = Buddy(15_728)
    assert [len(piece) for piece in placement.free()] == [8192, 4096, 2048, 1024, 256, 64, 32, 16]
    starts = [placement.take(2048) for _ in range(8)]
    assert sorted(starts[:7]) == list(range(0, 7 * 2048, 2048)) and starts[7] is None
    for start in starts[:7]:
        placement.give_back(range(start, start + 2048))
    assert [len(piece) for piece in placement.free()] == [8192, 4096, 2048, 1024, 256, 64, 32, 16]


@BOTH
def test_a_failed_attempt_changes_nothing(placement):
    memory = ContiguousMemory(16, 16, "exact", placement)
    first, second = sequence("A", 9), sequence("B", 9)
    assert memory.admit(first) and not memory.admit(second)
    assert second.region is None and not memory.holds(second) and memory.use().reserved == 9
    memory.check_integrity()
    memory.release(first)
    assert memory.admit(second) and second.region == range(0, 9)


@BOTH
def test_taking_twice_and_giving_back_twice_are_refused(placement):
    memory, one = ContiguousMemory(16, 16, "exact", placement), sequence("A", 4)
    memory.admit(one)
    with pytest.raises(ValueError, match="'A' holds a region already"):
        memory.admit(one)
    memory.release(one)
    with pytest.raises(ValueError, match="'A' holds no region"):
        memory.release(one)


def test_an_unknown_placement_is_refused():
    with pytest.raises(ValueError, match="placement='best_fit': choose one of first_fit, buddy"):
        ContiguousMemory(16, 16, "max", "best_fit")


def test_what_no_piece_of_a_buddy_pool_holds_is_refused_at_submit():
    """A pool of 24 begins as 16 and 8: a region of 17 would wait for ever."""
    engine = AuditedEngine(IterationScheduler(2, ContiguousMemory(24, 24, "exact", "buddy")), ScriptedExecutor())
    with pytest.raises(RequestRefused, match="needs 17 K/V positions.*the whole pool has 24, its longest piece 16"):
        engine.submit(request("R1", 17))
    trace = engine.run([request("R2", 16)])
    assert trace.requests["R2"].finish_reason == "length"
    assert ContiguousMemory(24, 24, "exact").refusal(request("R1", 17)) is None


@BOTH
@pytest.mark.parametrize("reserve", ["max", "pow2", "exact"])
def test_no_region_is_too_short_for_its_request(reserve, placement):
    memory = ContiguousMemory(64, 16, reserve, placement)
    assert memory.refusal(request("R", 8, prompt=9)) is None
    assert "needs 17 K/V positions, max_model_len is 16" in memory.refusal(request("R", 9, prompt=9))


def test_events_say_who_holds_which_region_while_each_step_runs():
    engine = AuditedEngine(IterationScheduler(2, ContiguousMemory(8, 8, "exact")), ScriptedExecutor())
    trace = engine.run([request("A", 1, prompt=4), request("B", 2, prompt=3), request("C", 1, prompt=2)])
    assert [step.memory_events for step in trace.steps] == [
        (RegionEvent("take", "A", 0, 4), RegionEvent("take", "B", 4, 4)),
        (RegionEvent("give", "A", 0, 4), RegionEvent("take", "C", 0, 2)),
    ]
    assert Trace.from_json(trace.to_json()) == trace and json.loads(trace.to_json())["block_size"] is None


@BOTH
def test_the_audit_sees_lost_and_doubled_positions(placement):
    memory = ContiguousMemory(16, 8, "exact", placement)
    one, other = sequence("A", 4), sequence("B", 4)
    assert memory.admit(one) and memory.admit(other)
    other.region = range(2, 6)
    with pytest.raises(AssertionError, match="the region of 'B' starts at 2, inside what ends at 4"):
        memory.check_integrity()
    other.region = range(12, 16)
    with pytest.raises(AssertionError, match="positions 4 to 7 are neither held nor free"):
        memory.check_integrity()
    other.region = range(4, 8)
    memory.check_integrity()
    del memory._holders[other]
    with pytest.raises(AssertionError, match="positions 4 to 7 are neither held nor free"):
        memory.check_integrity()


class AnyOrder(RuleBasedStateMachine):
    """Regions of any length come and go; after every move the pool is tiled by what is held and what is free."""

    placement_name = "first_fit"

    def __init__(self):
        super().__init__()
        self.memory = ContiguousMemory(77, 40, "exact", self.placement_name)
        self.holders, self.count = [], 0

    @rule(length=st.integers(1, 40))
    def take(self, length):
        one = sequence(f"S{self.count}", length)
        self.count += 1
        free = self.memory.placement.free()
        want = next_power_of_two(length) if self.placement_name == "buddy" else length
        fits = any(len(piece) >= want for piece in free)
        assert self.memory.admit(one) == fits
        if fits:
            self.holders.append(one)
        else:
            assert self.memory.placement.free() == free

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_back(self, data):
        self.memory.release(self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1))))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def compute(self, data):
        one = data.draw(st.sampled_from(self.holders))
        one.num_computed_tokens = min(one.num_computed_tokens + 1, len(one.region))

    @invariant()
    def books(self):
        self.memory.check_integrity()
        for region in (one.region for one in self.holders):
            span = self.memory.placement.span(region)
            assert span.start == region.start and span.stop >= region.stop
            if self.placement_name == "buddy":
                assert span.start % len(span) == 0 and len(span) < 2 * len(region)
        assert self.memory.use().reserved == sum(len(one.region) for one in self.holders)

    def teardown(self):
        for one in self.holders:
            self.memory.release(one)
        fresh = PLACEMENTS[self.placement_name](77)
        assert self.memory.placement.free() == fresh.free(), "an empty pool is as it was at first"


class AnyOrderOfBuddies(AnyOrder):
    """The same with pieces of powers of two."""

    placement_name = "buddy"


TestFirstFit, TestBuddy = AnyOrder.TestCase, AnyOrderOfBuddies.TestCase
TestFirstFit.settings = TestBuddy.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@BOTH
@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=20),
    reserve=st.sampled_from(["max", "pow2", "exact"]),
    pool=st.integers(32, 90),
)
def test_any_queue_is_served_whatever_the_placement(placement, lengths, reserve, pool):
    requests = [request(f"R{i}", n, prompt=p) for i, (p, n) in enumerate(lengths)]
    memory = ContiguousMemory(pool, 20, reserve, placement)
    trace = AuditedEngine(IterationScheduler(6, memory), ScriptedExecutor()).run(requests)
    assert [len(trace.requests[f"R{i}"].tokens) for i in range(len(lengths))] == [n for _, n in lengths]
    assert memory.placement.free() == PLACEMENTS[placement](pool).free()
