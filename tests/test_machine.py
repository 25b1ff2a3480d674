"""Random schedules: whatever comes, in whatever order, under whatever policy, the books hold after every step.

Every answer is compared with what the request writes alone, and `FakeKV` notices any K and V that are not its own.
"""

from collections import Counter

import pytest
from fake_kv import FakeKV, answer
from helpers import AuditedEngine, assert_drained, request
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from minibatch import RequestRefused
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import VICTIMS, Evict
from minibatch.schedulers.join import ByPriority, LongestPrefix, SmallOnesPass
from minibatch.schedulers.mix import Chunked, PrefillFirst
from minibatch.schedulers.reserve import NewTokenRatio, Profiled, PromptOnly

VOCABULARY = 40  # so small that an answer often ends by its stop token
STOP = 0

SMALL = st.integers(0, 2)
JOINS = st.one_of(
    st.just("fcfs"),
    st.builds(SmallOnesPass, max_passes=SMALL),
    st.builds(ByPriority, max_passes=SMALL),
    st.builds(LongestPrefix, longest_queue=st.integers(1, 9), shared_tokens=st.integers(0, 4)),
)
TOKENS = st.integers(1, 9)
MIXES = st.one_of(
    st.just("whole"),
    st.builds(PrefillFirst, token_budget=st.none() | TOKENS),
    st.builds(Chunked, token_budget=TOKENS, chunk_cap=st.none() | TOKENS),
)
RESERVES = st.one_of(
    st.just("full"),
    *[st.just("prompt")] * 4,  # where most is preempted
    st.builds(PromptOnly, watermark=st.sampled_from([0.1, 0.9])),
    st.builds(NewTokenRatio, decay_steps=st.integers(1, 20)),
    st.builds(Profiled, quantile=st.sampled_from([0.1, 0.9]), window=st.just(4), least=st.integers(1, 4)),
)
EVICTS = st.builds(Evict, victim=st.sampled_from(sorted(VICTIMS)), swap=st.sampled_from([False, True, True]))

ARRIVALS = st.tuples(
    st.integers(0, 2),  # the family: its prompts begin alike
    st.integers(0, 4),  # a prompt of so many blocks,
    st.integers(-1, 1),  # one token less, or one more
    st.integers(1, 16),  # max_new_tokens
    st.integers(0, 2),  # priority
    st.sampled_from([0, 0, 1, 2]),  # forks
    st.integers(0, 3),  # seed
)


class Breakable(FakeKV):
    """Raises if told so: before or after the next step, or before the next one in which blocks move."""

    breaks = None

    def execute(self, plan):
        if not self.breaks or (self.breaks == "moving" and not plan.moves):
            return super().execute(plan)
        breaks, self.breaks = self.breaks, None
        if breaks == "after":
            super().execute(plan)
        raise ZeroDivisionError("the model broke")


class Serving(RuleBasedStateMachine):
    """An engine, and clients that do what they like."""

    seen: Counter[str] = Counter()  # over all examples: what was really exercised

    @initialize(
        slots=st.integers(2, 6),
        block_size=st.integers(1, 5),
        blocks=st.integers(4, 12),
        host=st.sampled_from([0, 1, 2, 6, 12]),
        cache=st.sampled_from([False, "hash", "radix"]),
        paged=st.sampled_from([True] * 9 + [False]),
        policies=st.fixed_dictionaries({"join": JOINS, "mix": MIXES, "reserve": RESERVES, "evict": EVICTS}),
    )
    def open(self, slots, block_size, blocks, host, cache, paged, policies):
        self.size = block_size
        if not cache and isinstance(policies["join"], LongestPrefix):
            policies = {**policies, "join": "fcfs"}  # it has nothing to look into
        if paged:
            memory = PagedMemory(blocks, block_size, cache, host)
        else:
            memory, policies = ContiguousMemory(blocks * block_size, blocks * block_size, "exact"), {}
        self.engine = AuditedEngine(
            IterationScheduler(slots, memory, **policies), Breakable(memory, vocab_size=VOCABULARY)
        )
        self.requests = {}

    @rule(burst=st.lists(ARRIVALS, min_size=1, max_size=5))
    def arrive(self, burst):
        """Some at once, and the forks of each."""
        for family, blocks, more, output, priority, forks, seed in burst:
            length = max(1, blocks * self.size + more)
            prompt = tuple(1 + (family + i * (family + 1)) % 9 for i in range(length))
            name = f"R{len(self.requests)}"
            self._submit(name, output, prompt, priority, seed)
            for twin in range(forks if name in self.engine.open else 0):
                self._submit(f"{name}.{twin}", output, prompt, priority, twin, fork_of=name)

    @precondition(lambda self: self.engine.open)
    @rule(which=st.integers(0, 100), output=st.integers(1, 12), seed=st.integers(0, 3))
    def fork(self, which, output, seed):
        """Another answer to a prompt that is being served already, in whatever state."""
        parent = list(self.engine.open.values())[which % len(self.engine.open)].request
        name = f"F{len(self.requests)}"
        self._submit(name, output, parent.prompt, parent.priority, seed, fork_of=parent.request_id)

    def _submit(self, name, output, prompt, priority, seed, fork_of=None):
        some = request(name, output, 0.0, prompt, priority, fork_of, seed=seed, stop_token_ids=(STOP,))
        self.requests[name] = some
        fits = some.kv_need <= self.engine.scheduler.memory.num_positions
        try:
            self.engine.submit(some)
            assert fits
        except RequestRefused as refused:
            assert not fits, refused

    @rule(steps=st.integers(1, 8))
    def run(self, steps):
        """Some steps."""
        for _ in range(steps):
            self.engine.step()

    @precondition(lambda self: len(self.engine.open) > 2)
    @rule(which=st.integers(0, 100), rather_preempted=st.booleans())
    def abort(self, which, rather_preempted):
        """A client goes away, wherever its request stands."""
        names = list(self.engine.open)
        preempted = [one.request_id for one in self.engine.scheduler.waiting if one.preemptions]
        names = preempted if rather_preempted and preempted else names
        assert self.engine.abort(names[which % len(names)])

    @precondition(lambda self: len(self.engine.open) > 4)
    @rule(when=st.sampled_from(["before", "after", "moving"]))
    def break_next_step(self, when):
        """The model is going to raise."""
        self.engine.executor.breaks = when

    def teardown(self):
        """Everybody ends, with the right answer, and nothing is left behind."""
        if not hasattr(self, "engine"):
            return
        engine, scheduler = self.engine, self.engine.scheduler
        tokens = sum(sequence.request.kv_need for sequence in engine.open.values())
        last = len(engine.trace.steps) + 3 * tokens  # one token a step at worst, and what preemption throws away
        while engine.open:
            engine.step()
            assert len(engine.trace.steps) <= last, f"livelock: {len(engine.open)} requests are still open"
        assert_drained(scheduler)
        for name, record in engine.trace.requests.items():
            right = answer(self.requests[name], VOCABULARY)
            whole = record.finish_reason in ("stop", "length")
            assert record.tokens == (right if whole else right[: len(record.tokens)]), f"the answer of {name!r}"
        self._count()

    def _count(self):
        trace, scheduler = self.engine.trace, self.engine.scheduler
        Serving.seen.update(record.finish_reason for record in trace.requests.values())
        Serving.seen.update(scheduler.counts)
        Serving.seen["steps"] += len(trace.steps)
        Serving.seen["copied"] += sum(step.blocks_copied for step in trace.steps)
        Serving.seen["hit_tokens"] += getattr(scheduler.memory, "hit_tokens", 0)


def explore(examples):
    """Run that many random lives of a server, the same ones each time. Returns the steps taken.

    Fails where the lives are too quiet to test anything.
    """
    Serving.seen.clear()
    run_state_machine_as_test(
        Serving,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    kinds = "recomputed swapped swap_refused copied hit_tokens length stop refused aborted failed".split()
    assert all(Serving.seen[kind] >= examples / 50 for kind in kinds), Serving.seen
    return Serving.seen["steps"]


def test_ten_thousand_random_steps():
    assert explore(examples=200) >= 10_000


@pytest.mark.slow
def test_a_hundred_thousand_random_steps():
    assert explore(examples=2_000) >= 100_000
