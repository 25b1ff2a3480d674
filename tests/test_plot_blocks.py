"""Pictures of memory: the books read off events are the memory's own, and every block stands where it was."""

import base64
import random
from dataclasses import replace

import pytest
from matplotlib.text import Text
from test_plot import ITERATION, STATIC, drawn, label_of

from minibatch import Engine, Request, SamplingParams, plot
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.plot import colours
from minibatch.plot.bars import OWNED, SHARED, preemptions
from minibatch.plot.ownership import block_bars, books, layout, name_of, num_blocks
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import MemoryUse, StepRecord, Trace

PICTURES = [plot.blocks, plot.blocks_alt, plot.blocks_caption]


def asked(name: str, prompt: range, new_tokens: int, arrival: float = 0.0, fork_of: str | None = None) -> Request:
    return Request(name, tuple(prompt), SamplingParams(new_tokens), arrival, fork_of=fork_of)


def serve(requests: list[Request], memory: PagedMemory | ContiguousMemory, max_num_seqs: int = 8, **policies) -> Trace:
    return Engine(IterationScheduler(max_num_seqs, memory, **policies), ScriptedExecutor()).run(requests)


def crowd(count: int, seed: int) -> list[Request]:
    """Prompts of which some begin alike, and a fork now and then."""
    draw, requests = random.Random(seed), []
    for index in range(count):
        parent = draw.choice(requests) if requests and draw.random() < 0.3 else None
        prompt = parent.prompt if parent else range(draw.randint(1, 23))
        fork_of = parent.request_id if parent else None
        requests.append(asked(f"R{index}", prompt, draw.randint(1, 20), draw.choice([0.0, 3.0, 9.0]), fork_of))
    return requests


PLAIN = serve([asked("A", range(10), 8), asked("B", range(6), 12), asked("C", range(5), 4)], PagedMemory(12, 4))
FORKED = serve([asked("A", range(6), 5), *(asked(name, range(6), 5, fork_of="A") for name in "BC")], PagedMemory(9, 4))
SQUEEZED = serve([asked("A", range(6), 8), asked("B", range(6), 8)], PagedMemory(5, 4))
CROWD = serve(crowd(24, seed=1), PagedMemory(40, 4, prefix_cache=True))
BIG = serve([asked(f"R{index}", range(index, 20 + 7 * index), 40) for index in range(24)], PagedMemory(64, 16))
EVERY = [PLAIN, FORKED, SQUEEZED, CROWD, BIG, [PLAIN, FORKED], {"a": BIG, "b": CROWD}]


# The books


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("reserve", ["prompt", "full"])
@pytest.mark.parametrize("swap", [False, True])
def test_replayed_events_are_the_memorys_own_books(seed, reserve, swap):
    memory = PagedMemory(18, 4, prefix_cache=seed % 2 == 0, host_blocks=12)
    engine = Engine(IterationScheduler(5, memory, reserve=reserve, evict=Evict(swap=swap)), ScriptedExecutor())
    seen = []

    def look(plan):
        rows = {chunk.sequence.request_id: chunk for chunk in plan.chunks}
        tables = {name: list(chunk.sequence.block_table) for name, chunk in rows.items()}
        seen.append((tables, dict(memory.pool.owners), {name: c.start + c.count for name, c in rows.items()}))
        return 1.0

    engine.executor.seconds_per_step = look
    trace = engine.run(crowd(20, seed))
    assert len(seen) == len(trace.steps) > 10
    for step, ((tables, owners, ends), state) in enumerate(zip(seen, books(trace)), 1):
        assert {name: state.tables[name] for name in tables} == tables
        assert {block: len(names) for block, names in state.owners.items()} == owners
        for name, table in tables.items():
            assert layout(trace, name, step)[2:4] == (table, ends[name])


def test_bars_cover_each_owned_step_and_block_exactly_once():
    for trace in (PLAIN, FORKED, SQUEEZED, CROWD, BIG):
        owned = {
            (record.step, block, name_of(names))
            for record, state in zip(trace.steps, books(trace))
            for block, names in state.owners.items()
        }
        covered = [(s, bar.slot, bar.request_id) for bar in block_bars(trace) for s in range(bar.first, bar.last + 1)]
        assert len(covered) == len(set(covered)) and set(covered) == owned


def test_bars_of_three_forks():
    """Prompt of 6: block 0 stays shared, block 1 is copied by B and C, and A goes on in it."""
    assert [(bar.slot, bar.request_id, bar.kind, bar.first, bar.last) for bar in block_bars(FORKED)] == [
        (0, "A", OWNED, 1, 1),
        (0, "A+2 more", SHARED, 2, 5),
        (0, "B+C", SHARED, 6, 6),
        (1, "A", OWNED, 1, 5),
        (2, "B", OWNED, 2, 6),
        (3, "C", OWNED, 2, 6),
        (4, "A", OWNED, 4, 5),
        (5, "B", OWNED, 5, 6),
        (6, "C", OWNED, 5, 6),
    ]
    assert [name_of(names) for names in (("A",), ("A", "B"), ("A", "B", "C"))] == ["A", "A+B", "A+2 more"]


# The figures


@pytest.mark.parametrize("traces", EVERY)
@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_axis_limits_hold_every_block(traces, axis):
    figure = plot.blocks(traces, axis=axis)
    pairs = colours.named(traces)
    for (_, trace), axes in zip(pairs, drawn(figure, "blocks"), strict=True):
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert bottom == num_blocks(trace) and top == 0
        assert len(axes.patches) == len(block_bars(trace))
        for patch in axes.patches:
            assert left <= patch.get_x() and patch.get_x() + patch.get_width() <= right + 1e-9
            assert top <= patch.get_y() and patch.get_y() + patch.get_height() <= bottom
    for (_, trace), axes in zip(pairs, drawn(figure, "memory"), strict=True):
        assert axes.get_ylim()[1] >= max(record.memory.reserved for record in trace.steps)


def words_inside(figure) -> None:
    page = figure.bbox
    figure.draw_without_rendering()
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text():
            box = text.get_window_extent()
            assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text


@pytest.mark.parametrize("traces", EVERY)
@pytest.mark.parametrize("width", [5.0, 10.0])
def test_no_word_is_cut_off(traces, width):
    words_inside(plot.blocks(traces, title="A title", width=width))
    words_inside(plot.memory(traces, title="A title", width=width))
    words_inside(plot.slots(traces, title="A title", width=width))


def test_shared_blocks_alone_are_hatched_and_the_legend_says_so():
    for trace in (PLAIN, FORKED, CROWD):
        figure = plot.blocks(trace)
        (axes,), (legend,) = drawn(figure, "blocks"), drawn(figure, "legend")
        hatched = [patch for patch in axes.patches if patch.get_hatch()]
        shared = [bar for bar in block_bars(trace) if bar.kind == SHARED]
        assert sum(patch.get_width() for patch in hatched) == sum(bar.right - bar.left for bar in shared)
        assert any("shared" in text.get_text() for text in legend.texts) == bool(shared)


def test_a_block_has_the_colour_of_its_request_in_the_slot_picture():
    (axes,) = drawn(plot.blocks(FORKED), "blocks")
    for bar, patch in zip(block_bars(FORKED), axes.patches, strict=True):
        wanted = plot.colour_of(bar.request_id[0], FORKED)
        got = patch.get_edgecolor() if bar.kind == SHARED else patch.get_facecolor()
        assert tuple(round(255 * part) for part in got[:3]) == tuple(int(wanted[i : i + 2], 16) for i in (1, 3, 5))


def test_memory_is_drawn_for_contiguous_traces_too():
    trace = serve([asked("A", range(6), 8)], ContiguousMemory(64, 32))
    (axes,) = drawn(plot.memory(trace), "memory")
    assert axes.get_yticklabels()[-1].get_text() == "64"
    taken, used = axes.collections[:2]
    assert taken.get_datalim(axes.transData).ymax == 32 and used.get_datalim(axes.transData).ymax == 13
    assert plot.memory_caption(trace) == (
        "iteration: 8 steps, 1.00 sequences at once on average, 30% of taken positions used, 15% of the pool used."
    )


@pytest.mark.parametrize("picture", PICTURES)
def test_a_map_of_contiguous_memory_is_refused(picture):
    with pytest.raises(ValueError, match="'static' has no blocks"):
        picture(STATIC)


def test_an_empty_trace_has_pictures_too():
    nothing = Trace("iteration", 2, block_size=4)
    for figure in (plot.blocks(nothing), plot.memory(nothing)):
        assert plot.png(figure).startswith(b"\x89PNG")
    assert "at most 0 taken" in plot.blocks_alt(nothing) and "no step has run" in plot.memory_alt(nothing)


def test_the_same_trace_gives_the_same_bytes():
    assert plot.png(plot.blocks(CROWD)) == plot.png(plot.blocks(Trace.from_json(CROWD.to_json())))


# One block table


@pytest.mark.parametrize(("trace", "request_id", "step"), [(PLAIN, "B", 9), (FORKED, "A", 4), (BIG, "R9", 60)])
@pytest.mark.parametrize("width", [5.0, 10.0])
def test_a_table_names_each_filled_position_twice_and_stays_on_the_page(trace, request_id, step, width):
    figure = plot.block_table(trace, request_id, step, width)
    words_inside(figure)
    (axes,) = figure.axes
    (right, bottom), seen = (axes.get_xlim()[1], axes.get_ylim()[0]), layout(trace, request_id, step)
    for patch in axes.patches:
        assert 0 <= patch.get_x() and patch.get_x() + patch.get_width() <= right + 1e-9
        assert 0 <= patch.get_y() and patch.get_y() + patch.get_height() <= bottom
    assert len(axes.lines) == len(seen.table)
    numbers = sorted(int(text.get_text()) for text in axes.texts if text.get_text().isdecimal())
    if trace.block_size == 4 and width == 10.0:
        assert numbers == sorted(2 * [*range(seen.filled)])


def test_table_in_words():
    assert plot.table_caption(FORKED, "B", 3) == (
        "Step 3: the table of B is [0, 2], with 7 of 8 positions filled; shared: 0."
    )
    assert "logical block 0 in block 0 and logical block 1 in block 2" in plot.table_alt(FORKED, "B", 3)


@pytest.mark.parametrize(("step", "message"), [(0, "step=0: .*1 to 6"), (1, "'B': holds no block in step 1")])
def test_a_table_that_is_not_there_is_refused(step, message):
    with pytest.raises(ValueError, match=message):
        plot.block_table(FORKED, "B", step)


# Preemptions in the slot picture


def test_a_preemption_is_marked_where_the_slot_was_lost():
    (lost,) = preemptions(SQUEEZED)
    assert (lost.request_id, lost.slot) == ("B", 1) and "B" in SQUEEZED.steps[lost.step - 1].preempted
    before = SQUEEZED.steps[lost.step - 2]
    assert any(work.request_id == "B" and work.slot == 1 for work in before.live)
    (seconds,) = preemptions(SQUEEZED, "seconds")
    assert lost.at == lost.step - 1 and seconds.at == SQUEEZED.steps[lost.step - 1].start
    figure = plot.slots(SQUEEZED)
    (axes,), (legend,) = drawn(figure), drawn(figure, "legend")
    (cross,) = [line for line in axes.lines if line.get_marker() == "X"]
    assert cross.get_xydata().tolist() == [[lost.at, 1.5]]
    assert any("preempted" in text.get_text() for text in legend.texts)


def test_a_run_without_preemption_says_nothing_of_it():
    figure = plot.slots(ITERATION)
    said = [text.get_text() for text in figure.findobj(Text)]
    said += [plot.alt(ITERATION), plot.caption(ITERATION), plot.slots_svg(ITERATION), plot.slots_text(ITERATION)]
    assert not any("preempt" in words for words in said)


def test_a_preemption_is_told_in_words():
    (lost,) = preemptions(SQUEEZED)
    assert plot.caption(SQUEEZED).split()[-9:] == "of 8 slots live on average and 1 preemption.".split()
    assert f"Preempted, marked by a cross: B in step {lost.step}." in plot.alt(SQUEEZED)
    assert ", 1 preemption\n" in plot.slots_text(SQUEEZED)
    svg = plot.slots_svg(SQUEEZED, lost.step)
    assert label_of(svg).endswith("; B preempted") and svg.count('stroke-width="2.5"') == 4  # the cross, the legend's
    assert plot.slots_svg(SQUEEZED, lost.step - 1).count('stroke-width="2.5"') == 2


def test_one_preempted_before_it_computed_anything_leaves_no_mark():
    nothing = StepRecord(1, 0.0, 1.0, (), (), ("A",), (), 1, 0, MemoryUse(0, 0, 8), preempted=("A",))
    trace = Trace("iteration", 1, 4, [nothing, replace(nothing, step=2, start=1.0, end=2.0)])
    assert preemptions(trace) == []
    assert plot.png(plot.slots(trace)).startswith(b"\x89PNG")


def test_the_player_shows_a_preemption():
    still = plot.Player(SQUEEZED)._repr_mimebundle_()[0]["image/png"]
    assert base64.b64decode(still) == plot.png(plot.slots(SQUEEZED))
