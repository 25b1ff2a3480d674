"""Headline 11, small: all its numbers are there, a batch waits where a continuous server does not; the picture."""

from concurrent.futures import ThreadPoolExecutor

from minibatch.headlines.systems_on_traces import SHOWN, TRACES, systems_on_traces
from minibatch.plot.headline_systems import alt, draw


def test_systems_on_traces():
    with ThreadPoolExecutor(1) as pool:
        headline = systems_on_traces(12, 6, ("triton", "vllm-v1"), precision=1.0, executor=pool)
    assert [(row["trace"], row["label"]) for row in headline.rows] == [
        (trace, name) for trace in TRACES for name in ("triton", "vllm-v1", "vllm-v1, token_budget=8192")
    ]
    by = {(row["trace"], row["label"]): row for row in headline.rows}
    for trace in TRACES:
        triton, vllm = by[trace, "triton"], by[trace, "vllm-v1"]
        assert triton["ttft_p95"] > vllm["ttft_p95"] and triton["limit"] < vllm["limit"] and set(SHOWN) <= set(vllm)
        assert vllm["targets"] in headline.sentence and triton["why_not_more"]
    figure = draw(headline)
    assert len(figure.axes) == 6 and figure.axes[5].texts[0].get_text() == f" {headline.rows[3]['limit']:.3g}"
    assert alt(headline).count("TTFT p95") == 6
    assert "triton: TTFT p95, s" in headline.table()
