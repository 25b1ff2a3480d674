"""Used, reserved, internal, external: the four are the whole pool in every step, and figure 2 comes out."""

import pytest
from helpers import request
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch import Engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.memory.waste import Split, mean_split, splits
from minibatch.plot import png
from minibatch.plot.regions import regions, regions_alt, stays
from minibatch.plot.waste import waste, waste_alt
from minibatch.schedulers import SCHEDULERS, IterationScheduler, StaticBatcher
from minibatch.schedulers.mix import Chunked
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import Trace
from minibatch.workload import sharegpt_like, to_requests


def run(memory, requests, scheduler=IterationScheduler, slots=8, executor=None):
    return Engine(scheduler(slots, memory), executor or ScriptedExecutor()).run(requests)


def test_one_request_by_hand():
    """P=3, N=4 in a region of 10 of a pool of 16: 6 positions are ever filled."""
    trace = run(ContiguousMemory(16, 10), [request("R", 4, prompt=3)])
    assert splits(trace) == [(3, 3, 4, 6), (4, 2, 4, 6), (5, 1, 4, 6), (6, 0, 4, 6)]


def test_an_answer_that_stops_early_was_never_going_to_fill_its_region():
    stopping = request("R", 7, prompt=3, stop_token_ids=(5,))
    trace = run(ContiguousMemory(16, 16, "exact"), [stopping], executor=ScriptedExecutor({"R": [7, 5]}))
    assert splits(trace) == [(3, 1, 5, 7), (4, 0, 5, 7)]


@pytest.mark.parametrize("prompt", [3, 4, 5, 7, 8, 9])
def test_paged_waste_is_what_the_last_block_lacks(prompt):
    """Prompts k * block - 1, k * block and k * block + 1, one token more."""
    trace = run(PagedMemory(num_blocks=4, block_size=4), [request("R", 2, prompt=prompt)])
    for split, stored in zip(splits(trace), (prompt, prompt + 1)):
        held = -(-stored // 4) * 4
        will = min(prompt + 1, held)
        assert split == (stored, will - stored, held - will, 16 - held)


def test_dead_rows_hold_tokens():
    trace = run(ContiguousMemory(32, 16, "exact"), [request("A", 1), request("B", 3)], StaticBatcher, slots=2)
    assert [split.used for split in splits(trace)] == [2, 3, 4]


def test_recomputed_sequences_and_failed_steps_are_counted():
    memory = PagedMemory(num_blocks=6, block_size=4)
    trace = run(memory, [request(f"R{i}", 9, prompt=8) for i in range(3)])
    assert sum(len(step.preempted) for step in trace.steps) > 0
    audit(trace)

    class FailsWithTwo(ScriptedExecutor):
        def execute(self, plan):
            if len(plan.chunks) == 2:
                raise RuntimeError("broken")
            return super().execute(plan)

    two = [request("A", 5), request("B", 2, arrival=2), request("C", 2, arrival=9)]
    audit(run(ContiguousMemory(32, 8), two, executor=FailsWithTwo()))


def test_one_that_was_preempted_has_stored_nothing_when_the_step_of_its_return_fails():
    class FailsOnReturn(ScriptedExecutor):
        def execute(self, plan):
            if any(chunk.sequence.preemptions for chunk in plan.chunks):
                raise RuntimeError("broken")
            return super().execute(plan)

    requests = [request(f"R{i}", 9, prompt=8) for i in range(2)]
    trace = run(PagedMemory(num_blocks=6, block_size=4), requests, executor=FailsOnReturn())
    assert [step.error is not None for step in trace.steps].count(True) == 1
    audit(trace)


def test_one_that_is_aborted_in_its_recomputation_had_once_filled_more():
    scheduler = IterationScheduler(2, PagedMemory(num_blocks=6, block_size=4), mix=Chunked(token_budget=4))
    engine, most = Engine(scheduler, ScriptedExecutor()), {}

    def abort(record):
        for work in record.live:
            end = work.start + work.count
            if end < most.get(work.request_id, 0):
                engine.abort(work.request_id)
            most[work.request_id] = max(end, most.get(work.request_id, 0))

    trace = engine.run([request(f"R{i}", 9, prompt=8) for i in range(2)], on_step=abort)
    assert "aborted" in [record.finish_reason for record in trace.requests.values()]
    audit(trace)


def audit(trace):
    for split, record in zip(splits(trace), trace.steps, strict=True):
        assert sum(split) == record.memory.capacity and min(split) >= 0
        assert split.used == record.memory.used
        assert split.used + split.reserved + split.internal == record.memory.reserved


@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 30)), min_size=1, max_size=20),
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    reserve=st.sampled_from(["max", "pow2", "exact", None]),
    placement=st.sampled_from(["first_fit", "buddy"]),
)
def test_the_four_are_the_whole_pool_in_every_step(lengths, scheduler, reserve, placement):
    paged = scheduler == "iteration" and reserve is None
    memory = PagedMemory(12, 4) if paged else ContiguousMemory(48, 20, reserve or "max", placement)
    requests = [request(f"R{i}", n, float(at), prompt=p) for i, (p, n, at) in enumerate(lengths)]
    trace = run(memory, requests, SCHEDULERS[scheduler], slots=5)
    audit(trace)
    assert splits(Trace.from_json(trace.to_json())) == splits(trace)


def test_means_are_over_steps_with_a_queue():
    trace = run(ContiguousMemory(8, 8), [request("A", 2, prompt=3), request("B", 2, prompt=5)])
    assert [step.waiting for step in trace.steps] == [1, 1, 0, 0]
    assert mean_split(trace) == (3.5 / 8, 0.5 / 8, 4 / 8, 0)
    assert mean_split(trace, skip=1) == (4 / 8, 0, 4 / 8, 0)
    with pytest.raises(ValueError, match="skip=2: in no step after it did a request wait; 4 steps in all"):
        mean_split(trace, skip=2)


def test_shared_blocks_are_refused():
    same = [request("A", 3, prompt=9), request("B", 3, prompt=9)]
    with pytest.raises(ValueError, match="'B' shares block 0"):
        splits(run(PagedMemory(16, 4, prefix_cache=True), same, slots=1))


FIGURE_2 = {  # the vLLM paper: shares of figure 2, sequences of figure 13 (ShareGPT, 2 requests/s)
    "max": ((0.204, 0.133, 0.573, 0.089), 7.00),
    "pow2": ((0.268, 0.179, 0.136, 0.416), 9.81),
    "exact": ((0.382, 0.252, 0.000, 0.366), 13.62),
    "paged": ((0.963, None, None, None), 30.42),
}


@pytest.mark.parametrize("name", FIGURE_2)
def test_figure_2_of_the_vllm_paper(name):
    """Within two points (Pow2: seven), and the batch within a tenth: 15,728 positions, ShareGPT-like lengths."""
    contiguous = name != "paged"
    memory = ContiguousMemory(15_728, 2048, name, "buddy") if contiguous else PagedMemory(983, 16)
    trace = run(memory, to_requests(sharegpt_like(200), vocab_size=10), slots=256)
    shares, sequences = FIGURE_2[name]
    for mine, theirs in zip(mean_split(trace, skip=500), shares):
        assert theirs is None or mine == pytest.approx(theirs, abs=0.07 if name == "pow2" else 0.025)
    crowded = [len(record.live) for record in trace.steps[500:] if record.waiting]
    assert sum(crowded) / len(crowded) == pytest.approx(sequences, rel=0.1)


def test_sharegpt_like_lengths_have_the_papers_means():
    planned = sharegpt_like(20_000, seed=1)
    assert len(planned) == 20_000 and planned[:50] == sharegpt_like(50, seed=1)
    assert sum(one.prompt_tokens for one in planned) / 20_000 == pytest.approx(161.31, rel=0.02)
    assert sum(one.output_tokens for one in planned) / 20_000 == pytest.approx(337.99, rel=0.02)
    assert max(one.prompt_tokens + one.output_tokens for one in planned) <= 2048
    assert max(one.prompt_tokens for one in planned) <= 1024


def test_stays_are_the_regions_step_by_step():
    trace = run(ContiguousMemory(8, 8, "exact"), [request("A", 2, prompt=3), request("B", 1, prompt=5)])
    assert [(stay.request_id, stay.start, stay.length, stay.stored) for stay in stays(trace)] == [
        ("A", 0, 4, [3, 4]),
        ("B", 0, 5, [5]),
    ]
    static = run(ContiguousMemory(8, 4, "exact"), [request("A", 1), request("B", 3)], StaticBatcher, slots=2)
    assert [stay.stored for stay in stays(static)] == [[1, 1, 1], [1, 2, 3]], "a dead row keeps what it stored"
    with pytest.raises(ValueError, match="block_size=4: memory is paged"):
        stays(run(PagedMemory(4, 4), [request("A", 2)]))


def test_the_pictures_hold_everything_and_are_the_same_twice():
    trace = run(ContiguousMemory(24, 12), [request(f"R{i}", 3 + i, prompt=3) for i in range(5)])
    picture = regions(trace)
    pool = next(axes for axes in picture.axes if axes.get_label() == "pool")
    assert pool.get_ylim() == (24, 0) and pool.get_xlim() == (0, len(trace.steps))
    assert {text.get_text() for text in pool.texts} == {f"R{i}" for i in range(5)}
    assert png(picture) == png(regions(trace)) and "at most 2 sequences at once" in regions_alt(trace)
    shares = {"one": Split(0.5, 0.25, 0.05, 0.2), "other": Split(0.963, 0.0, 0.0, 0.037)}
    assert png(waste(shares, together=2)) == png(waste(shares, together=2))
    labels = {text.get_text() for text in waste(shares).axes[0].texts}
    assert labels == {"50.0", "25.0", "5.0", "20.0", "96.3", "3.7"}
    assert "one: 50.0 % used, 25.0 % reserved" in waste_alt(shares)
    with pytest.raises(ValueError, match="shares is empty"):
        waste({})
