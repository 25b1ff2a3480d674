"""Headlines 1, 2, 3, 6 and the decomposition, made small: the shapes that their sentences claim. And the claims."""

import re
from collections import Counter
from math import inf, prod
from pathlib import Path

import pytest

from minibatch.commands import figures
from minibatch.headlines import HEADLINES, claims_1, claims_2, claims_3, committed, store
from minibatch.headlines import decomposition as parts
from minibatch.headlines import gain_by_variance as variance
from minibatch.headlines import orca_latency_bound as orca
from minibatch.headlines.anyscale import CAP, PAGED, STATIC, anyscale
from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.claims import NOTEBOOKS, Claim, claims, claims_page
from minibatch.headlines.dead_slots import dead_slots, sampling_error, served
from minibatch.headlines.facts import facts
from minibatch.headlines.rates import at_random, rate_within, rates, saturated, unloaded
from minibatch.memory import ContiguousMemory
from minibatch.metrics import dead_slot_factor
from minibatch.plot import (
    headline_anyscale,
    headline_dead_slots,
    headline_decomposition,
    headline_gain_by_variance,
    headline_orca_latency_bound,
)
from minibatch.plot.output import png
from minibatch.schedulers import IterationScheduler
from minibatch.simulate.cards import Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.workload import equal, synthetic, uniform

ROOT = Path(__file__).resolve().parents[1]
COST = Roofline(Deployment("A100-40", "OPT-13B"))


def drawn(picture, headline) -> str:
    """Its alt text, once it has been drawn."""
    assert png(picture.draw(headline)).startswith(b"\x89PNG")
    return picture.alt(headline)


# Rates


def eight():
    return IterationScheduler(8, ContiguousMemory(8 * 256, 256))


def test_the_saturated_rate_of_equal_requests_is_slots_over_steps():
    planned = synthetic(80, prompt=equal(1), output=equal(100))
    step = COST.computing(8, 8 * 50, 8 * 50)  # the mean context is half of it
    assert saturated(planned, eight, COST) == pytest.approx(8 / (100 * step), rel=0.02)


def test_a_bound_that_everybody_keeps_gives_the_highest_rate_tried_and_one_that_nobody_can_gives_none():
    planned = at_random(synthetic(40, prompt=equal(16), output=equal(20)))
    most = saturated(planned, eight, COST)
    assert rate_within(inf, planned, eight, COST, most) == pytest.approx(1.25 * most, rel=0.02)
    assert rate_within(unloaded(planned, COST) / 2, planned, eight, COST, most) == 0


def test_a_looser_bound_is_never_a_lower_rate():
    planned = at_random(synthetic(60, prompt=equal(16), output=uniform(1, 40)))
    alone = unloaded(planned, COST)
    found = [rates(planned, eight, COST, times * alone).within for times in (1.1, 1.5, 3)]
    assert found == sorted(found) and found[0] < found[-1]


# Headlines


def test_a_static_batcher_runs_the_steps_of_its_longest():
    assert served([5, 1, 1, 1, 2, 2, 2, 2], 4) == (5 + 2) * 4 / 16


@pytest.mark.parametrize("batch", [8, 32])
def test_the_closed_form_is_what_a_static_batcher_does(batch):
    lengths = [one.output_tokens for one in synthetic(640, output=uniform(1, 60))]
    assert abs(served(lengths, batch) - dead_slot_factor(range(1, 61), batch)) < 2 * sampling_error(lengths, batch)


def test_dead_slots_grow_with_the_batch_and_with_the_spread(monkeypatch):
    monkeypatch.setattr("minibatch.headlines.dead_slots.CHECKED", (8,))  # served in small batches only
    found = dead_slots(tokens=2000)
    at = {(row["trace"], row["batch"]): row["factor"] for row in found.rows}
    for trace in {row["trace"] for row in found.rows}:
        factors = [at[trace, batch] for batch in (1, 2, 4, 8, 16, 32, 64)]
        assert factors[0] == pytest.approx(1) and factors == sorted(factors)
    assert at["Orca: U(1, 128)", 64] < 2 < at["Azure conversation", 32] < at["Azure code", 32]
    assert "11.8" in drawn(headline_dead_slots, found)


def test_equal_lengths_gain_less_than_a_fifth_and_unequal_ones_more():
    planned = variance.workloads(160)
    row = {name: variance._row(name, planned[name]) for name in (variance.ALL_EQUAL, variance.UNIFORM, variance.CODE)}
    assert row[variance.ALL_EQUAL]["gain_in_steps"] == 1
    assert row[variance.ALL_EQUAL]["gain_in_time"] < 1.2 < 1.5 < row[variance.UNIFORM]["gain_in_time"]
    assert row[variance.UNIFORM]["gain_in_steps"] < 2 < row[variance.CODE]["gain_in_steps"]
    assert row[variance.CODE]["gain_in_time"] < row[variance.CODE]["gain_in_steps"]  # prompts, which both compute


def test_orcas_gain_is_the_product_of_its_parts_and_goes_with_equal_lengths():
    found = orca.orca_latency_bound(requests=40)
    gain = {row["lengths"]: row for row in found.rows if row["scheduler"] == "gain"}
    mixed, alike = gain["Orca's lengths"], gain["all alike"]
    for row in gain.values():
        assert row["slots_refilled"] * row["more_slots"] * row["latency_bound"] == pytest.approx(row["total"])
    assert alike["total"] < 1.25 < 3 < mixed["total"]
    assert mixed["slots_refilled"] > 1.5 and mixed["latency_bound"] > 1.2
    assert "static with 8 slots" in drawn(headline_orca_latency_bound, found)


def test_anyscales_throughput_falls_and_ours_rises_with_the_cap():
    found = anyscale(requests=60)
    at = {(row["system"], row["cap"]): row for row in found.rows if "system" in row}
    assert at[PAGED, 32]["theirs"] > 1.5 * at[PAGED, 1536]["theirs"]
    assert at[PAGED, 32]["outputs"] < at[PAGED, 1536]["outputs"]
    assert at[PAGED, 1536]["theirs"] > at[CAP, 1536]["theirs"] > at[STATIC, 1536]["theirs"]
    assert at[CAP, 1536]["running"] < 7.7  # 15,728 positions / 2,048
    drawn(headline_anyscale, found)


def test_the_decomposition_multiplies_to_its_total():
    setting = parts.settings(80)["Orca's lengths"]
    row = parts._row("Orca's lengths", setting, seed=0)
    assert prod(row[factor] for factor in parts.FACTORS) == pytest.approx(row["total"])
    assert row["total"] == pytest.approx(row["paged"] / row["static"])
    assert row["slots_refilled"] > 1.3 and row["memory_freed"] > 1.3
    headline = Headline("decomposition", "?", (row,), (), "")
    assert f"total {row['total']:.1f}" in drawn(headline_decomposition, headline)


def test_a_factor_below_one_is_drawn_backwards():
    row = {"workload": "w", "model": "m", "card": "c", "total": 1.0}
    row |= {"slots_refilled": 2.0, "memory_freed": 1.0, "latency_bound": 0.5}
    axes = headline_decomposition.draw(Headline("d", "?", (row,), (), "")).axes[0]
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches if bar.get_height() > 0.7]
    assert [span for span in spans if span[1] - span[0] == 1] == [(1, 2), (1, 2)]  # there, and back


def test_the_variance_picture_says_both_gains():
    row = {"answers": "all, equal", "variation": 0.5, "gain_in_steps": 9.4, "gain_in_time": 3.9}
    assert "9.4 in steps, 3.9 in time" in drawn(headline_gain_by_variance, Headline("g", "?", (row,), (), ""))


# The claims of the articles

EVERY = [*claims_1.CLAIMS, *claims_2.CLAIMS, *claims_3.CLAIMS]


def test_the_facts_are_those_of_the_articles():
    found = facts()
    assert found["dead slot-steps of 20 and 900"] == 880
    assert (found["C ends, static"], found["C ends, iteration"]) == (6, 4)
    assert found["GB free beside 7B"] == pytest.approx(66.5, abs=0.05)
    assert found["tokens beside 7B"] == 126_884


def test_every_claim_is_answered_with_numbers_of_the_committed_headlines():
    found = claims()
    assert len(found) == len(EVERY) and not any("{" in one.why or "nan" in one.why for one in found)
    assert {one.article for one in found} == {1, 2, 3}
    assert all(count > 2 for count in Counter(one.verdict for one in found).values())


def test_the_committed_page_is_what_the_committed_headlines_say():
    assert (ROOT / "figures" / "claims.md").read_text("utf-8") == claims_page()


def test_the_numbers_of_a_claim_come_from_the_headline_that_it_names():
    for one in EVERY:
        named = set(re.findall(r"{(\w+)\[", one.why)) - {"facts"}
        shown = set(re.findall(r"headline (\w+)", one.where))
        assert named <= shown or not shown, f"{one.claim!r}: numbers of {named}, shown by {one.where!r}"


@pytest.mark.parametrize("place", sorted({place for one in EVERY for place in one.where.split("; ")}))
def test_every_place_that_a_claim_names_exists(place):
    kind, _, rest = place.partition(" ")
    if kind == "notebook":
        number, section = re.fullmatch(r"(\d\d), section (\d+)", rest).groups()
        text = (ROOT / "notebooks" / "source" / f"{NOTEBOOKS[number]}.py").read_text("utf-8")
        assert f"\n# ## {section}. " in text
    elif kind == "command":
        assert (ROOT / "minibatch" / "commands" / f"{rest}.py").exists()
    else:
        assert kind == "headline" and rest in HEADLINES


def test_a_claim_has_one_of_three_verdicts():
    with pytest.raises(ValueError, match="verdict='maybe'"):
        Claim(1, "s", "c", "maybe", "w", "notebook 01, section 1")


# Kept as JSON


def test_a_headline_comes_back_from_json_as_it_was():
    findings = (Finding("a", 1.0), Finding("b", 2.0, (1.0, 3.0), "s"), Finding("c", 2.0, 4.0, "s", "because"))
    headline = Headline("n", "q?", ({"x": 1, "y": None, "z": "w"},), findings, "So.")
    assert store.from_plain(store.as_plain(headline)) == headline


def test_committed_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'dead_slots'"):
        committed("dead_slot")


def test_every_headline_is_committed_with_its_picture():
    assert list(store.read()) == sorted(HEADLINES)
    there = {path.stem for path in (ROOT / "figures").iterdir()}  # a .png; the player is a page
    assert not {*HEADLINES, *figures.DRAWN} - there
