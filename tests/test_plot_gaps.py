"""Pictures of notebook 04: gaps between tokens, tokens in a step. The figure holds what the trace says."""

from dataclasses import replace

import pytest
from helpers import request
from matplotlib.patches import Rectangle

from minibatch import Engine
from minibatch.metrics import latency
from minibatch.plot import png
from minibatch.plot.gaps import Gap, gaps, gaps_alt, gaps_of
from minibatch.plot.tokens import step_tokens, step_tokens_alt, tokens
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import Trace


def run(mix, requests=None):
    """A second for each token that a step computes."""
    executor = ScriptedExecutor(seconds_per_step=lambda plan: plan.num_tokens)
    asked = requests or [request("A", 4, prompt=2), request("B", 2, prompt=7, arrival=2.5)]
    return Engine(IterationScheduler(2, mix=mix), executor).run(asked)


WHOLE, CHUNKED = run("whole"), run(Chunked(3))
BOTH = {"whole": WHOLE, "chunked": CHUNKED}
LONE = run("whole", [request("A", 1)])


def axes_of(figure, label):
    return [axes for axes in figure.axes if axes.get_label() == label]


def bars_of(axes):
    """(left, bottom, height, hatched) of what is drawn."""
    found = [patch for patch in axes.get_children() if isinstance(patch, Rectangle) and patch is not axes.patch]
    return [(*bar.get_xy(), bar.get_height(), bool(bar.get_hatch())) for bar in found]


def test_gaps_of_a_run_are_its_itl():
    assert gaps_of(WHOLE) == [Gap("A", 3, 1), Gap("A", 11, 8), Gap("A", 13, 2), Gap("B", 13, 2)]
    for trace in BOTH.values():
        each = {name: tuple(gap.seconds for gap in gaps_of(trace) if gap.request_id == name) for name in "AB"}
        assert each == {name: latency(record).itl for name, record in trace.requests.items()}
    assert gaps_of(LONE) == []


def test_every_token_has_its_tick_and_every_moment_its_longest_gap():
    figure = gaps(BOTH, {"chunked": 3.0})
    for trace, rows, needles in zip(BOTH.values(), axes_of(figure, "tokens"), axes_of(figure, "gaps"), strict=True):
        ticks = [sorted(line[0][0] for line in lines.get_segments()) for lines in rows.collections[1:]]
        assert ticks == [record.token_times for record in trace.requests.values()]
        assert [text.get_text() for text in rows.get_yticklabels()] == list(trace.requests)
        drawn = dict(zip(*needles.lines[0].get_data()))
        longest = {
            gap.at: max(other.seconds for other in gaps_of(trace) if other.at == gap.at) for gap in gaps_of(trace)
        }
        assert drawn == longest
    assert [len(axes.lines) for axes in axes_of(figure, "gaps")] == [1, 2], "the bound is drawn where there is one"
    assert axes_of(figure, "gaps")[1].lines[1].get_ydata() == [3, 3]


def test_all_gaps_and_bounds_lie_within_the_axis():
    low, high = axes_of(gaps(BOTH, {"chunked": 50.0}), "gaps")[0].get_ylim()
    assert low < 1 and high > 50


def test_a_bar_a_chunk_decodes_below_prompts():
    first, second = axes_of(step_tokens(BOTH, {"chunked": 3}), "tokens")
    assert [bar[1:] for bar in bars_of(first)] == [
        (0, 2, True),
        (0, 1, False),
        (0, 1, False),
        (1, 7, True),
        (0, 1, False),
        (1, 1, False),
    ]
    assert [int(bar[0]) for bar in bars_of(first)] == [0, 1, 2, 2, 3, 3]
    for axes, trace in ((first, WHOLE), (second, CHUNKED)):
        for index, step in enumerate(trace.steps):
            assert sum(bar[2] for bar in bars_of(axes) if int(bar[0]) == index) == sum(tokens(step))
    assert not [line for line in first.collections if len(line.get_segments()) == 1]
    assert [line.get_segments()[0][0][1] for line in second.collections if len(line.get_segments()) == 1] == [3]


def test_a_step_that_failed_computed_nothing():
    trace = Trace.from_json(WHOLE.to_json())
    trace.steps[2] = replace(trace.steps[2], error="RuntimeError()")
    assert [tokens(step) for step in trace.steps] == [(0, 2), (1, 0), (0, 0), (2, 0)]
    assert 2 not in [int(bar[0]) for bar in bars_of(axes_of(step_tokens(trace), "tokens")[0])]


def test_ids_are_written_where_they_fit():
    many = run("whole", [request(f"request {i}", 300) for i in range(2)])
    assert not axes_of(step_tokens(many), "tokens")[0].texts
    assert [text.get_text() for text in axes_of(step_tokens(WHOLE), "tokens")[0].texts] == ["A", "B"]


def test_words_carry_the_numbers():
    assert gaps_alt(BOTH, {"chunked": 3.0}).endswith(
        "whole: 4 gaps, median 2.00 s, longest 8.00 s. chunked: 4 gaps, median 1.00 s, longest 3.00 s, bound 3.00 s."
    )
    assert gaps_alt(LONE).endswith("iteration: no gaps.")
    assert "whole: 4 steps, 1 mixed, at most 8 tokens a step. chunked: " in step_tokens_alt(BOTH, {"chunked": 3})
    assert step_tokens_alt(BOTH, {"chunked": 3}).endswith("at most 3 tokens a step, budget 3.")
    assert step_tokens_alt(Trace("empty", 2)).endswith("empty: 0 steps, 0 mixed, at most 0 tokens a step.")


@pytest.mark.parametrize("draw", [gaps, step_tokens])
def test_a_pure_function_of_the_trace(draw):
    before = WHOLE.to_json()
    assert png(draw(WHOLE)) == png(draw(Trace.from_json(before)))
    assert WHOLE.to_json() == before


def test_many_requests_and_none():
    crowd = run("whole", [request(f"R{i}", 2) for i in range(80)])
    assert not axes_of(gaps(crowd), "tokens")[0].get_yticklabels(), "no room for the ids"
    assert gaps(crowd).get_figheight() < 5
    assert png(step_tokens(Trace("empty", 2)))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"bounds names \['other'\].*whole"):
        gaps(BOTH, {"other": 1.0})
    with pytest.raises(ValueError, match=r"budgets names \['other'\].*whole"):
        step_tokens(BOTH, {"other": 1})
    with pytest.raises(ValueError, match="no gap to draw"):
        gaps(LONE)
    for draw in (gaps, step_tokens):
        with pytest.raises(ValueError, match="width=3"):
            draw(BOTH, width=3)
