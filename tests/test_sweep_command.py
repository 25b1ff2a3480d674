"""`python -m minibatch systems | sweep | bench simulate`, and the pictures of a sweep."""

import argparse
import csv
import json

import pytest

from minibatch.bench import simulate as bench_simulate
from minibatch.commands import sweep, systems
from minibatch.commands.names import canonical, knobs_of, systems_of
from minibatch.plot.sweep import Line, sweep_alt, sweep_curves
from minibatch.schedulers.systems import SYSTEMS
from minibatch.simulate import CARDS


def called(command, *options):
    """Run a command's module as `__main__` would."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(option) for option in options]))


@pytest.fixture
def threads(monkeypatch):
    """No processes: a thread does as well here and starts at once."""
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(sweep, "_pool", lambda jobs: ThreadPoolExecutor(1))


def test_the_table_has_every_system_and_its_words(capsys):
    assert called(systems) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in SYSTEMS)
    assert "out of memory" in out and max(map(len, out.splitlines())) <= 120
    assert called(systems, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(SYSTEMS)
    assert rows[0]["join"] == SYSTEMS["static"].join and rows[0]["knobs"][0]["theirs"] == "batch size"


def test_the_knobs_of_one_system(capsys):
    assert called(systems, "--knobs", "VLLM-v1") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("token_budget"))
    assert line.split()[:3] == ["token_budget", "--max-num-batched-tokens", "2048"]
    with pytest.raises(ValueError, match="Did you mean 'vllm-v0'"):
        called(systems, "--knobs", "vllm0")


SMALL = [
    "--trace",
    "Azure-Code",
    "--gpu",
    "h100",
    "--model",
    "LLAMA-3-8b",
    "--requests",
    12,
    "--systems",
    "triton,vLLM-V1",
]


def test_the_limit_of_each_system_a_picture_and_a_table(tmp_path, capsys, threads):
    assert called(sweep, *SMALL, "--slo", "ttft_p95=2,itl_p99=0.5", "--out", tmp_path) == 0
    printed = capsys.readouterr()
    assert "Llama-3-8B on H100, simulated: room for" in printed.out
    assert "azure-code, its first 12 requests" in printed.out and "simulate" in printed.err
    limits = {line.split()[0]: line.split()[1] for line in printed.out.splitlines() if "/s " in line}
    assert float(limits["triton"][:-2]) < float(limits["vllm-v1"].strip(">")[:-2])
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "sweep.csv").open()))
    assert {row["system"] for row in rows} == {"triton", "vllm-v1"} and {row["card"] for row in rows} == {"H100"}


def test_loads_that_are_given_json_and_a_knob(tmp_path, capsys, threads):
    options = ["--rates", "4,1", "--set", "token-budget=512", "--json", "--resume", tmp_path / "rows.jsonl"]
    assert called(sweep, *SMALL, *options, "--out", tmp_path) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["system"] for one in found["limits"]] == ["triton", "vllm-v1"]
    rows = [row for one in found["limits"] for row in one["rows"]]
    assert [row["rate"] for row in rows] == [1.0, 4.0, 1.0, 4.0]
    assert [row["knobs"] for row in rows] == ["", "", "token_budget=512", "token_budget=512"]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 4


def test_a_simulation_that_fails_ends_it_badly(tmp_path, capsys, threads, monkeypatch):
    def burns(scenario, window=None):
        raise RuntimeError("the card is on fire")

    monkeypatch.setattr("minibatch.simulate.rows.simulate", burns)
    assert called(sweep, *SMALL, "--out", tmp_path) == 1
    assert capsys.readouterr().out.count("RuntimeError: the card is on fire") == 2


@pytest.mark.parametrize(
    "options, message",
    [
        (["--gpu", "a100"], "--gpu='a100': there is A100-40, .* Did you mean 'A100-40'"),
        (["--model", "lama-3-8b"], "--model='lama-3-8b': .* Did you mean 'Llama-3-8B'"),
        (["--trace", "azur-code"], "--trace='azur-code': .* Did you mean 'azure-code'"),
        (["--systems", "vllm-v1,tgj"], "system='tgj': .* Did you mean 'tgi'"),
        (["--gpu", "l4", "--model", "opt-13b"], "the weights take 25.7 GB, and of 1 x 24 GB x 0.9 = 21.6 GB"),
        (["--set", "token_budget"], "--set 'token_budget': write it as in token_budget=512"),
        (["--set", "tokens_budget=5"], "--set='tokens_budget': .* Did you mean 'token_budget'"),
        (["--set", "max_num_seqs=0"], "max_num_seqs=0: must be at least 1"),
        (["--slo", "ttft=2"], "write it as in ttft_p95=2"),
        (["--rates", "1,x"], "--rates '1,x'"),
        (["--rates", "-1"], "rate=-1.0"),
        (["--requests", "1"], "--requests 1"),
        (["--jobs", "0"], "--jobs 0"),
        (["--tensor-parallel", "3"], "tensor_parallel=3: must divide"),
    ],
)
def test_bad_input_is_refused_in_words(options, message, tmp_path, threads):
    with pytest.raises(ValueError, match=message):
        called(sweep, *SMALL, *options, "--out", tmp_path)


def test_names_in_any_case_and_values_of_knobs():
    assert canonical("--gpu", "a100-80", CARDS) == "A100-80"
    assert systems_of(None) == list(SYSTEMS) and systems_of("TGI, tgi ,static") == ["tgi", "static"]
    both = ["vllm-v1", "static"]
    assert knobs_of(["token_budget=64", "prefix_cache=true"], both) == {
        "vllm-v1": (("token_budget", 64), ("prefix_cache", True)),
        "static": (),
    }
    assert knobs_of(["policy=priority", "chunk_cap=none"], both)["vllm-v1"] == (
        ("policy", "priority"),
        ("chunk_cap", None),
    )


def point(rate, ttft):
    """A row, as far as the picture reads it."""
    return {"rate": rate, "ttft_p95": ttft, "itl_p99": 0.1, "tokens_per_second": 100 * rate}


def test_the_picture_has_a_bar_and_a_ring_for_each_limit():
    lines = [Line("a", 2.0, [point(1.0, 0.5), point(2.0, 1.0), point(4.0, 9.0)]), Line("b", 0.0, [point(0.01, None)])]
    figure = sweep_curves(lines, "ttft_p95=2,itl_p99=0.2", "title")
    bars, *curves = figure.axes
    assert [text.get_text() for text in bars.texts] == ["2/s", "no load"]
    assert [patch.get_width() for patch in bars.patches] == [2.0, 0.0]
    rings = [[tuple(line.get_xydata()[0]) for line in axes.lines if line.get_markersize() == 9] for axes in curves]
    assert rings == [[(2.0, 1.0)], [(2.0, 0.1)], [(2.0, 200.0)]]
    assert [axes.get_xlim()[0] > 0.5 for axes in curves] == [True] * 3, "a load that nobody bears makes no axis"
    assert sweep_alt(lines, "ttft_p95=2").startswith(
        "The highest load within ttft_p95=2 of each system: a: 2 requests/s; b: no"
    )
    with pytest.raises(ValueError, match="lines is empty"):
        sweep_curves([], "ttft_p95=2")


def test_a_million_requests_are_measured_by_tenths_here_with_a_hundred():
    row, tenths = bench_simulate.measure_synthetic(105, "vllm-v1")
    assert row.requests == 105 and len(tenths) == 10
    assert sum(tenth.steps for tenth in tenths) == row.steps and all(tenth.running >= 1 for tenth in tenths)
    assert "us a sequence" in bench_simulate.format_tenths(tenths)
    with pytest.raises(ValueError, match="requests=9"):
        bench_simulate.bench_synthetic(9)


def test_a_system_s_row_of_the_bench():
    from minibatch.simulate.scenario import Scenario

    row = bench_simulate.measure_system(Scenario("tgi", requests=5))
    assert (row.system, row.requests) == ("tgi", 5) and row.output_tokens > 100
    assert "requests/CPU s" in bench_simulate.format_simulate_table([row])
