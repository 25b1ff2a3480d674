"""The operating limit: a search whose answers are known, on made-up servers; then on simulated ones."""

from dataclasses import replace

import pytest

from minibatch.simulate import limit as limit_module
from minibatch.simulate.limit import (
    SimulationFailed,
    highest_rate_with,
    limit_among,
    operating_limit,
    operating_limits,
)
from minibatch.simulate.objective import Attainment
from minibatch.simulate.rows import COLUMNS, OF_RESULT, labels, measure
from minibatch.simulate.scenario import Scenario
from minibatch.simulate.slo import SLO

BASE = Scenario(trace="azure-code", requests=25, rate=2.0)  # the search begins at 2/s
TARGETS = "ttft_p95=2,itl_p99=0.5"


def made_up(missed, **values):
    """A server by rule: `missed(rate)` in words; `values` of its rows may depend on the rate."""

    def server(scenario, slo):
        row = dict.fromkeys(COLUMNS, "") | dict.fromkeys(OF_RESULT, 1.0) | labels(scenario, slo)
        row |= {"n": 25, "seconds": 25 / scenario.rate + 1, "mean_running": 4.0, "e2e_p50": 0.001}
        row |= {name: value(scenario.rate) for name, value in values.items()}
        return row | {"missed": missed(scenario.rate)}

    return server


@pytest.fixture
def serve(monkeypatch):
    """Put a made-up server in the place of the simulator; returns the loads that are tried."""

    def put(missed, **values):
        tried, server = [], made_up(missed, **values)
        monkeypatch.setattr(
            limit_module, "measure", lambda scenario, slo: tried.append(scenario.rate) or server(scenario, slo)
        )
        return tried

    return put


@pytest.mark.parametrize("true", [0.031, 0.5, 1.99, 2.0, 2.01, 7.3, 30.0])
@pytest.mark.parametrize("precision", [0.05, 0.01])
def test_it_is_found_to_the_precision(serve, true, precision):
    tried = serve(lambda rate: "" if rate <= true else "ttft_p95 is 9 s, above 2 s")
    found = operating_limit(BASE, TARGETS, precision=precision)
    assert found.rate <= true < found.rate * (1 + precision) and found.bounded
    assert found.reason.endswith("ttft_p95 is 9 s, above 2 s") and found.reason.startswith("at ")
    assert [row["rate"] for row in found.rows] == sorted(tried) and len(set(tried)) == len(tried) <= 15
    assert found.at["rate"] == found.rate


def test_strain_ends_it_as_a_missed_target_does(serve):
    serve(lambda rate: "", strain=lambda rate: "the queue grows: 3 on average" if rate > 5 else "")
    found = operating_limit(BASE, TARGETS)
    assert 4.7 < found.rate <= 5 and "the queue grows" in found.reason


def test_targets_that_no_load_meets_are_answered_so(serve):
    tried = serve(
        lambda rate: "itl_p99 is 0.6 s, above 0.5 s", mean_running=lambda rate: 1 + rate, queue_p95=lambda _: 0
    )
    found = operating_limit(BASE, TARGETS)
    assert found.rate == 0 and found.bounded and found.at is None
    assert tried == [2.0, 0.5, 0.125, 0.03125], "where requests hardly meet, a lower load is of no use"
    assert found.reason == "none of 0.0312 to 2/s meets the targets: at 0.0312/s itl_p99 is 0.6 s, above 0.5 s"


def test_the_way_down_ends_even_if_requests_always_meet(serve):
    tried = serve(lambda rate: "itl_p99 is 0.6 s, above 0.5 s")
    assert operating_limit(BASE, TARGETS).rate == 0 and len(tried) == 6 and min(tried) < 0.001 * 2


def test_nothing_served_ends_it_at_once(serve):
    tried = serve(lambda rate: "25 requests not served", n=lambda rate: 0, e2e_p50=lambda rate: None)
    assert operating_limit(BASE, TARGETS).reason == "none of 2/s meets the targets: at 2/s 25 requests not served"
    assert tried == [2.0]


def test_a_batch_that_waits_until_it_is_full_may_do_better_at_a_higher_load(serve):
    serve(lambda rate: "" if 3 < rate < 9 else "too slow", ttft_p95=lambda rate: 8 / rate)
    found = operating_limit(BASE, TARGETS)
    assert 8.5 < found.rate < 9


def test_but_not_where_the_queue_grows_already(serve):
    tried = serve(lambda rate: "too slow", ttft_p95=lambda rate: 8 / rate, strain=lambda rate: "the queue grows")
    assert operating_limit(BASE, TARGETS).rate == 0 and max(tried) == 2.0


def test_a_trace_that_is_too_short_is_said_to_be(serve):
    tried = serve(lambda rate: "")
    found = operating_limit(BASE, TARGETS)
    assert not found.bounded and found.rate == max(tried) == 512.0
    assert found.reason == "none found: 25 requests are too few to load it, even within 0.0488 s; take more"


def test_a_limit_at_which_the_server_was_hardly_filled_says_so(serve):
    serve(lambda rate: "" if rate < 3 else "too slow", e2e_p50=lambda rate: 2.0)
    found = operating_limit(BASE, TARGETS)
    assert found.is_short and "25 requests within 8.4" in found.reason and "one takes 2 s" in found.reason
    serve(lambda rate: "" if rate < 3 else "too slow", e2e_p50=lambda rate: 1.0)
    assert not operating_limit(BASE, TARGETS).is_short


def test_low_and_high_bound_the_search(serve):
    tried = serve(lambda rate: "" if rate < 1 else "too slow")
    assert operating_limit(BASE, TARGETS, low=1.5).rate == 0 and tried == [1.5]
    tried = serve(lambda rate: "")
    found = operating_limit(BASE, TARGETS, high=5.0)
    assert (
        tried == [2.0, 4.0, 5.0]
        and found.rate == 5.0
        and not found.bounded
        and "the highest load asked" in found.reason
    )
    tried = serve(lambda rate: "" if rate < 1 else "too slow")
    assert 0.95 < operating_limit(BASE, TARGETS, high=1.5).rate < 1 and max(tried) == 1.5


@pytest.mark.parametrize(
    "options, message",
    [
        ({"low": 0}, "low=0"),
        ({"high": float("inf")}, "high=inf"),
        ({"low": 3, "high": 2}, "must not be above high"),
        ({"precision": 0}, "precision=0"),
    ],
)
def test_bad_bounds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        operating_limit(BASE, TARGETS, **options)


def test_every_point_is_shown_as_it_comes(serve):
    shown = []
    serve(lambda rate: "" if rate < 3 else "too slow")
    found = operating_limit(BASE, TARGETS, on_point=shown.append)
    assert sorted(shown, key=lambda row: row["rate"]) == list(found.rows) and shown[0]["rate"] == 2.0


def test_a_simulation_that_raises_is_told_with_its_scenario(serve):
    serve(lambda rate: "", error=lambda rate: "RuntimeError: on fire" if rate > 3 else "")
    with pytest.raises(SimulationFailed, match=r"Scenario\(system='vllm-v1'.*rate=4.0.*on fire"):
        operating_limit(BASE, TARGETS)


class Here:
    """An executor that runs at once, on a made-up server."""

    def __init__(self, server):
        self.server = server

    def submit(self, call, *arguments):
        from concurrent.futures import Future

        assert call is measure
        done = Future()
        done.set_result(self.server(*arguments))
        return done


def test_many_limits_side_by_side_are_those_of_each_alone(serve):
    def rule(rate):
        return "" if rate < 3.3 else "too slow"

    def server(scenario, slo):
        broken = scenario.system == "triton" and scenario.rate > 3
        return made_up(rule, error=lambda rate: "RuntimeError: on fire" if broken else "")(scenario, slo)

    serve(rule)
    scenarios = [replace(BASE, system=name) for name in ("vllm-v1", "triton", "tgi")]
    first, broken, last = operating_limits(scenarios, TARGETS, Here(server), progress=False)
    assert (first, last) == tuple(operating_limit(one, TARGETS) for one in (scenarios[0], scenarios[2]))
    assert broken.rate == 0 and broken.reason == "failed at 4/s: RuntimeError: on fire"


def test_the_highest_of_loads_that_were_given():
    server, slo = made_up(lambda rate: "" if rate < 3 else "too slow"), SLO.parse(TARGETS)
    found = limit_among(BASE, TARGETS, [server(BASE.at(rate), slo) for rate in (4.0, 1.0, 2.0, 8.0)])
    assert found.rate == 2.0 and found.reason == "at 4/s too slow"
    found = limit_among(BASE, TARGETS, [server(BASE.at(rate), slo) for rate in (1.0, 2.0)])
    assert found.rate == 2.0 and not found.bounded
    assert limit_among(BASE, TARGETS, [server(BASE.at(5.0), slo)]).rate == 0


def test_of_simulated_servers_a_continuous_batch_carries_more():
    static, triton, vllm = (
        operating_limit(replace(BASE, system=name), TARGETS, precision=0.6) for name in ("static", "triton", "vllm-v1")
    )
    assert static.rate < triton.rate < vllm.rate and vllm.bounded
    again = operating_limit(replace(BASE, system="vllm-v1"), TARGETS, precision=0.6)
    assert again == vllm, "the same question, the same answer"


def test_impossible_targets_on_a_simulated_server():
    found = operating_limit(replace(BASE, requests=15), "itl_p99=0.001")
    assert found.rate == 0 and "itl_p99 is" in found.reason and "above 0.001 s" in found.reason


def test_distserve_s_goodput_is_the_rate_at_which_a_share_is_within_both_limits():
    strict = highest_rate_with(BASE, 0.9, ttft=1.0, tpot=0.2, precision=0.6)
    lax = highest_rate_with(BASE, 0.5, ttft=1.0, tpot=0.2, precision=0.6)
    assert 0 < strict.rate < lax.rate and strict.slo == "attainment=0.9,ttft=1,tpot=0.2"
    assert "of the requests are within TTFT 1 s and TPOT 0.2 s, not 90%" in strict.reason


@pytest.mark.parametrize("bad", [{"share": 0}, {"share": 1.1}, {"ttft": 0}, {"tpot": -1}])
def test_bad_shares_and_limits_are_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        Attainment(**bad)
