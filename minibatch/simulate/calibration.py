"""The cost model against steps that were measured: fitted to half of them, asked for the other half. Notebook 09.

`compare` has a row for each step, `errors` sums them up, `reached` looks into the steps. On the two CPU cores of the
stored measurement, what the roofline leaves out is this:

* Taking turns. It lets all reading overlap all computing. Here a step reads, then computes: the sum of the two ("in
  turn") predicts better than the longer of them with as many fitted numbers, most of all where both are large, in
  decodes of many sequences and in mixed steps. On any machine the products of a layer and its attention run one after
  the other ("by kernel"), so a chunk of a prompt does not hide the reading of other sequences' K and V.
* Small shapes. It has one share of the bandwidth and one of the arithmetic for all. Attention of one sequence over 16
  positions reaches about a hundredth of what 64 over 1,000 reach, because thirty layers of calls from Python cost the
  same however little they read. Products reach nearly three times as much of the arithmetic with 1,024 tokens as with
  16 in float32, and seven times as much in bfloat16, whose matrix unit wants many rows.
* Work that is neither: norms, rotation, activation functions, copies between them, sampling. It counts as nothing and
  is half a millisecond a token of a long prompt here in float32, a fifth of the step or more. Servers on a GPU fuse
  most of it.
* Where numbers lie. Contexts that fit a cache are read faster than others. K and V here are contiguous; gathering
  them from blocks costs more, unless a kernel reads the blocks where they are (notebook 08).

One more limit is the fit's: with a single model, `overhead` and the reading of its weights are two names of one
constant, so only their sum is known, and the numbers do not carry over to another model.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minibatch.bench.report import ITEM_BYTES
from minibatch.bench.step_report import StepReport, StepRow, stored_steps
from minibatch.memory.arithmetic import MODELS
from minibatch.simulate.cards import Deployment, measured_cpu
from minibatch.simulate.roofline import Roofline

MODEL = "SmolLM2-135M"
LEAST, MOST = (1e-3, 1e-3, 1e-3), (1.0, 1.0, 1.0)  # overhead in seconds, and the two shares: where the fit looks
POINTS, ROUNDS = 17, 8  # of the grid, along each side; each is a third as wide as the one before


class Parts(NamedTuple):
    """Seconds of some steps at the machine's full speed, each float64[n]."""

    weights: np.ndarray  # reading them
    stored: np.ndarray  # reading K and V
    products: np.ndarray  # computing with the weights
    attention: np.ndarray  # computing with K and V


class Fitted(NamedTuple):
    """The three numbers of a `Roofline` that belong to a machine and what runs on it."""

    overhead: float
    bandwidth_share: float
    flops_share: float


Way = Callable[[Parts, np.ndarray, np.ndarray], np.ndarray]


def roofline(parts: Parts, bandwidth: np.ndarray, flops: np.ndarray) -> np.ndarray:
    """`Roofline`: all reading and all computing at the same time."""
    return np.maximum((parts.weights + parts.stored) / bandwidth, (parts.products + parts.attention) / flops)


def by_kernel(parts: Parts, bandwidth: np.ndarray, flops: np.ndarray) -> np.ndarray:
    """Two rooflines, products and attention, one after the other as the model runs them."""
    products = np.maximum(parts.weights / bandwidth, parts.products / flops)
    return products + np.maximum(parts.stored / bandwidth, parts.attention / flops)


def in_turn(parts: Parts, bandwidth: np.ndarray, flops: np.ndarray) -> np.ndarray:
    """First read, then compute: nothing at the same time."""
    return (parts.weights + parts.stored) / bandwidth + (parts.products + parts.attention) / flops


WAYS: dict[str, Way] = {"roofline": roofline, "by kernel": by_kernel, "in turn": in_turn}


def full_speed(dtype: str) -> Roofline:
    """SmolLM2 in `dtype` on this machine, without overhead and with shares of 1."""
    if dtype not in ITEM_BYTES:
        raise ValueError(f"dtype={dtype!r}: choose one of {', '.join(ITEM_BYTES)}")
    item = ITEM_BYTES[dtype]
    model = replace(MODELS[MODEL], bytes_per_weight=item, bytes_per_value=item)
    return Roofline(Deployment(measured_cpu(dtype), model), overhead=0.0, bandwidth_share=1.0, flops_share=1.0)


def parts_of(rows: Sequence[StepRow]) -> Parts:
    """What the steps of these rows, all of one dtype, read and compute."""
    full = full_speed(rows[0].dtype)
    tokens, positions, pairs = np.array([(r.shape.tokens, r.shape.positions, r.shape.pairs) for r in rows]).T
    weights = np.full(len(rows), full.weights_seconds)
    return Parts(weights, positions * full.position_seconds, tokens * full.token_seconds, pairs * full.pair_seconds)


def fit(rows: Sequence[StepRow], way: Way = roofline) -> Fitted:
    """The three numbers with the least mean square of log(predicted / measured) over rows of one dtype.

    The longer of two is no smooth function, so a grid is searched, then a finer one about its best point, and so on.
    """
    parts, measured = parts_of(rows), np.log([row.ms / 1e3 for row in rows])
    least, most = np.log(LEAST), np.log(MOST)
    low, high = least, most
    for _ in range(ROUNDS):
        grid = np.stack(np.meshgrid(*np.linspace(low, high, POINTS).T, indexing="ij"), axis=-1)
        overhead, bandwidth, flops = np.moveaxis(np.exp(grid), -1, 0)[..., None]
        off = np.log(overhead + way(parts, bandwidth, flops)) - measured
        best = np.unravel_index((off**2).mean(-1).argmin(), off.shape[:-1])
        reach = (high - low) / 6
        low, high = np.maximum(grid[best] - reach, least), np.minimum(grid[best] + reach, most)
    return Fitted(*np.exp(grid[best]).tolist())


@lru_cache
def calibrated(dtype: str = "float32") -> Roofline:
    """The cost model of SmolLM2 on this machine, fitted to every second row of the stored measurement."""
    full = full_speed(dtype)
    return replace(full, **fit(_of(stored_steps(), dtype)[::2])._asdict())


def compare(report: StepReport | None = None) -> list[dict]:
    """Predicted beside measured, a row for each measured shape and way: plain numbers and words.

    `error` is predicted / measured - 1. Of the rows of a dtype every second is `fitted`; the rest was not seen before.
    """
    found = []
    for dtype in ITEM_BYTES:
        rows = _of(report or stored_steps(), dtype)
        for name, way in WAYS.items():
            overhead, bandwidth, flops = fit(rows[::2], way)
            predicted = 1e3 * (overhead + way(parts_of(rows), bandwidth, flops))
            for index, (row, ms) in enumerate(zip(rows, predicted.tolist())):
                shape = {"dtype": dtype, "kind": row.shape.kind, **asdict(row.shape)}
                numbers = {"measured_ms": row.ms, "predicted_ms": ms, "error": ms / row.ms - 1}
                found.append({"way": name, **shape, **numbers, "fitted": index % 2 == 0})
    return found


def errors(rows: Sequence[dict]) -> list[dict]:
    """Of the rows that no fit saw: how many, the median error and the worst, both without sign, by way, dtype, kind."""
    unseen = [row for row in rows if not row["fitted"]]
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in unseen:
        for kind in (row["kind"], "all"):
            groups.setdefault((row["way"], row["dtype"], kind), []).append(abs(row["error"]))
    return [
        {"way": way, "dtype": dtype, "kind": kind, "n": len(off), "median": float(np.median(off)), "worst": max(off)}
        for (way, dtype, kind), off in groups.items()
    ]


def reached(report: StepReport | None = None) -> list[dict]:
    """What single parts of a step reached of the machine, a row for each measured shape.

    Shares of the bandwidth (weights in the products, K and V in attention), of the arithmetic (products), and what is
    neither products nor attention, in ms: norms, rotation, activations, sampling, Python.
    """
    found = []
    for dtype in ITEM_BYTES:
        rows = _of(report or stored_steps(), dtype)
        parts = parts_of(rows)
        for index, row in enumerate(rows):
            products, attention = row.ms / 1e3 * row.linear_share, row.ms / 1e3 * row.attention_share
            numbers = {
                "weights_of_bandwidth": parts.weights[index] / products,
                "stored_of_bandwidth": parts.stored[index] / attention,
                "products_of_flops": parts.products[index] / products,
                "rest_ms": row.ms * (1 - row.linear_share - row.attention_share),
            }
            shape = {"dtype": dtype, "kind": row.shape.kind, **asdict(row.shape)}
            found.append(shape | {name: float(value) for name, value in numbers.items()})
    return found


def _of(report: StepReport, dtype: str) -> list[StepRow]:
    rows = [row for row in report.rows if row.dtype == dtype]
    if len(rows) < 2:
        raise ValueError(f"dtype={dtype!r}: the report has {len(rows)} rows of it; half of two or more are fitted")
    return rows
