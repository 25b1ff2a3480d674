"""The explorer: what its controls do, in words and pictures; and the pictures it is made of."""

import io
import re
import sys

import pytest
from PIL import Image

from minibatch import Engine, Request, SamplingParams
from minibatch.explorer import Explorer, points
from minibatch.explorer.points import ceiling, explore, knob_value, limit_of, sliced, verdict
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.plot import blocks, slots
from minibatch.plot.load import load_alt, load_curves
from minibatch.plot.ownership import books
from minibatch.plot.pool import owners_map, pool, pool_alt
from minibatch.plot.regions import stays
from minibatch.plot.window import cut
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.simulate.scenario import Scenario
from minibatch.simulate.slo import SLO

SMALL = Scenario(card="A100-40", model="OPT-13B", trace="azure-code")
SLO_TEXT = "ttft_p95=4,itl_p99=0.5"


@pytest.fixture(autouse=True, scope="module")
def few_requests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "REQUESTS", 12)
        yield


@pytest.fixture
def explorer():
    return Explorer(SMALL, SLO_TEXT)


def served(memory, requests=8):
    asked = [Request(f"R{i}", (5,) * (3 + 2 * i), SamplingParams(4 + i), float(2 * i)) for i in range(requests)]
    return Engine(IterationScheduler(4, memory), ScriptedExecutor()).run(asked)


PAGED, REGIONS = served(PagedMemory(12, 4)), served(ContiguousMemory(120, 30))


# A window of a run


@pytest.mark.parametrize("first", range(1, len(PAGED.steps), 3))
def test_a_window_knows_who_held_what_before_it(first):
    part = cut(PAGED, first, len(PAGED.steps))
    want = [dict(state.owners) for state in books(PAGED)][first - 1 :]
    whole = [{block: set(who) for block, who in owners.items()} for owners in want]
    assert [{block: set(who) for block, who in state.owners.items()} for state in books(part)] == whole


def test_a_window_of_contiguous_memory_keeps_its_regions():
    part = cut(REGIONS, 9, 12)
    before, within = ({stay.request_id: (stay.start, stay.length) for stay in stays(t)} for t in (REGIONS, part))
    assert within and within.items() <= before.items()
    assert set(within) >= {work.request_id for step in REGIONS.steps[8:12] for work in step.live}


def test_a_window_counts_from_one_and_leaves_out_who_is_not_there():
    part = cut(PAGED, 5, 8)
    assert [step.step for step in part.steps] == [1, 2, 3, 4]
    assert [step.start for step in part.steps] == [step.start for step in PAGED.steps[4:8]]
    assert (
        {work.request_id for step in part.steps for work in step.live} <= part.requests.keys() < PAGED.requests.keys()
    )
    assert part.num_slots <= PAGED.num_slots
    slots(part), blocks(part)  # both pictures take it


@pytest.mark.parametrize("first, last", [(0, 3), (4, 3), (1, 10_000)])
def test_a_window_outside_the_run_is_refused(first, last):
    with pytest.raises(ValueError, match="steps run from 1"):
        cut(PAGED, first, last)


# Pictures


def test_the_pool_map_is_the_books():
    drawn = owners_map(PAGED)
    for column, state in enumerate(books(PAGED)):
        assert {row: name[column] for row, name in enumerate(drawn) if name[column]} == {
            block: owners[0] for block, owners in state.owners.items()
        }
    assert pool(PAGED).axes and "12 blocks of 4" in pool_alt(PAGED)


def test_a_large_pool_says_which_blocks_it_draws():
    large = served(PagedMemory(1000, 4))
    assert len(owners_map(large)) == 334 and "one block in 3 drawn" in pool_alt(large)


def test_load_curves_ring_the_limit():
    rows = [
        {"rate": rate, "ttft_p95": rate, "ttft_p50": rate / 2, "itl_p99": 0.1, "tokens_per_second": 9}
        for rate in (1, 2)
    ]
    figure = load_curves({"a": rows, "b": rows}, {"a": 1, "b": None}, "ttft_p95=2")
    rings = [line for axes in figure.axes for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert len(rings) == 3 and all(list(ring.get_xdata()) == [1] for ring in rings)
    assert "a: within the targets 1 requests/s" in load_alt({"a": rows}, {"a": 1}, "ttft_p95=2")
    with pytest.raises(ValueError, match="one to 3"):
        load_curves({}, {}, "ttft_p95=2")


# What it computes


def test_loads_rise_and_stop_after_two_that_miss():
    few = sliced(SMALL)
    impossible = explore(few, SLO.parse("itl_p99=0.001"))
    assert len(impossible) == 3 and limit_of(impossible) is None
    assert verdict(impossible, SLO.parse("itl_p99=0.001")).startswith("No load meets")
    easy = explore(few, SLO.parse("e2e_p99=9999"))
    rates = [row["rate"] for row in easy]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(1.1 * ceiling(few), rel=0.05)


def test_a_load_above_a_miss_does_not_count():
    rows = [
        {"rate": rate, "missed": missed, "strain": "", "error": ""} for rate, missed in ((1, ""), (2, "x"), (3, ""))
    ]
    assert limit_of(rows) == 1


def test_the_ceiling_is_above_what_any_system_serves():
    few = sliced(Scenario(card="A100-40", model="OPT-13B", trace="sharegpt"))
    served_most = max(row["requests_per_second"] for row in explore(few, SLO.parse("e2e_p99=9999")))
    assert served_most < ceiling(few)


@pytest.mark.parametrize(
    "text, default, value", [("512", 2048, 512), ("None", 1, "?"), ("fcfs", "x", "fcfs"), ("True", False, True)]
)
def test_knob_values(text, default, value):
    if value == "?":
        with pytest.raises(ValueError, match="takes a number"):
            knob_value(text, default)
    else:
        assert knob_value(text, default) == value


# What it shows


def test_every_control_has_a_name(explorer):
    controls = [*explorer.choices.values(), explorer.knob, explorer.value, *explorer.targets]
    controls += [explorer.load, explorer.where, explorer.steps]
    assert all(control.description for control in controls)


def test_each_tab_is_a_picture_with_words(explorer):
    for index, name in enumerate(explorer.pictures):
        explorer.tabs.selected_index = index
        words = re.search(r'(?:alt|aria-label)="([^"]+)"', explorer.pictures[name].value)[1]
        assert len(words) > 30


def test_a_change_is_simulated_and_compared_with_the_choice_before(explorer):
    before = explorer.rows
    explorer.choices["system"].value = "static"
    assert explorer.scenario.system == "static" and explorer.before == before != explorer.rows
    assert "batch size" in explorer.about.value
    explorer.value.value = "2"
    assert explorer.scenario.knobs == (("max_num_seqs", 2),)
    assert "the one before" in explorer.pictures["curves"].value


def test_targets_are_those_of_the_boxes(explorer):
    explorer.targets[0].value = 1000.0
    assert str(explorer.slo) == "ttft_p95=1000,itl_p99=0.5" and "ttft_p95=1000" in explorer.said.value


def test_what_cannot_be_is_said_and_mended(explorer):
    explorer.choices["model"].value = "Llama-2-70B"
    assert "the weights take 138.0 GB" in explorer.said.value and explorer.pictures["curves"].value == ""
    explorer.choices["model"].value = "OPT-13B"
    assert "requests/s" in explorer.said.value and "<img" in explorer.pictures["curves"].value
    for wrong, words in (("many", "takes a number"), ("0", "at least 1")):
        explorer.value.value = wrong
        assert words in explorer.said.value


def test_contiguous_memory_has_a_picture_too(explorer):
    explorer.choices["system"].value = "llama-cpp"
    explorer.tabs.selected_index = 2
    assert "K/V positions over time" in explorer.pictures["memory"].value


def test_without_a_kernel_there_is_the_still(explorer):
    data, metadata = explorer._repr_mimebundle_()
    assert data["text/plain"] == metadata["image/png"]["alt"] == repr(explorer)
    image = Image.open(io.BytesIO(explorer.still))
    assert image.height > 600


def test_without_ipywidgets_it_is_the_still_alone(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    alone = Explorer(SMALL, SLO_TEXT)
    assert alone.view is None and set(alone._repr_mimebundle_()[0]) == {"image/png", "text/plain"}
