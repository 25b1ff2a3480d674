"""Checks of lab 6, questions 3 to 5: partial softmaxes in numbers, and two holes in CUDA kernels.

The lines are put into a kernel, which runs under the checker and is compared with float64. That needs a C++ compiler
(`minibatch.cuda.backends.missing("checked")` says which) and no GPU.
"""

import math
from collections.abc import Callable

import torch

from minibatch.checks.base import CheckFailed, call, expect, need, same
from minibatch.checks.lab6 import LAYOUTS, Case, Drawn, close, draw, scatter
from minibatch.checks.typed_kernel import HOLE, Kernel, on_one_line
from minibatch.cuda.simulated import Array

Part = tuple[float, float, list[float]]

# ---- Question 3: partial softmaxes


def part(scores: list[float], values: list[list[float]], base: str = "e") -> Part:
    """What somebody who saw these positions leaves: the largest score, the sum of weights, the sum of weight * V."""
    top = max(scores, default=-math.inf)
    weights = [_power(base, score - top) for score in scores]
    acc = [sum((weight * value[d] for weight, value in zip(weights, values)), 0.0) for d in range(2)]
    return top, sum(weights, 0.0), acc


def _power(base: str, x: float) -> float:
    return math.exp(x) if base == "e" else math.exp2(x)


def check_merge(function: Callable[[Part, Part], Part], base: str = "e") -> None:
    """`function(one, other)` returns the part of whoever saw the positions of both."""
    cases = [([2.0], [2.0]), ([3.0], [5.0]), ([5.0], [3.0]), ([1.0, 4.0], [0.0, 2.0, 3.0]), ([-7.0], [-6.5, -9.0])]
    for ones, others in cases:
        _check_merge(function, ones, others, base)


def check_merge_edges(function: Callable[[Part, Part], Part], base: str = "e") -> None:
    """Scores of thousands, and parts that saw nothing."""
    for ones, others in [([2000.0], [1999.0]), ([-2000.0], [-1999.0]), ([], [3.0, 1.0]), ([3.0], []), ([], [])]:
        _check_merge(function, ones, others, base)


def _check_merge(function: Callable, ones: list[float], others: list[float], base: str) -> None:
    """V is 10, 20, ... in one element and 1 in the other, so that acc[1] must be the sum again."""
    values = [[10.0 * n, 1.0] for n in range(1, len(ones) + len(others) + 1)]
    one, other = part(ones, values[: len(ones)], base), part(others, values[len(ones) :], base)
    want = part(ones + others, values, base)
    expect(function, one, other, want=want, hint=lambda got, *parts: _merge_hint(got, *parts, base))


def _merge_hint(got: object, one: Part, other: Part, base: str) -> str:
    if not (isinstance(got, (list, tuple)) and len(got) == 3 and hasattr(got[2], "__len__")):
        return "return three things: top, sum, and the list acc"
    (top, total, acc), higher = (got[0], got[1], list(got[2])), abs(one[0] - other[0])
    if not same(top, max(one[0], other[0])):
        return "top is the largest score that either has seen"
    if one[0] == other[0] and not same(total, one[1] + other[1]):
        return "both tops are the same. What becomes of the two sums then?"
    if one[0] != other[0] and same(total, one[1] + other[1]):
        return "sums taken relative to different tops were added; bring both to one top first"
    if 0 < higher < math.inf and same(total, 1 + _power("2" if base == "e" else "e", -higher)):
        return f"weights are powers of {base} here"
    if len(acc) != 2 or same(acc[1], 1):
        return "acc stays a list of sums of weight * V; nobody divides before everybody has been merged"
    if same(total, acc[1]):
        return "sum and acc agree with each other. What is a weight worth when the top is raised?"
    return "acc is a sum of weight * V: where the sum of weights changes, it changes by the same factor"


# ---- Questions 4 and 5: lines of CUDA C++

ONE_WARP = f"""\
// A warp for each query head of one sequence; head_dim is 32, an element a lane.
// k and v are LAYOUT, without gaps.
__global__ void one_warp(float* out, const float* q, const float* k, const float* v,
                         const int* block_table, int context_len, int block_size,
                         int heads, int kv_heads, float scale) {{
  int head = blockIdx.x, lane = threadIdx.x;
  float q_lane = q[head * 32 + lane] * scale;

  Softmax<1> state;
  for (int position = 0; position < context_len; ++position) {{
{HOLE}
    float score = sum_over<32>(q_lane * k[at + lane]);
    state.raise_to(score);
    state.acc[0] += state.weigh(score) * v[at + lane];
  }}
  out[head * 32 + lane] = state.value(0);
}}
"""

FOUR_WARPS = f"""\
// Four warps for each query head: warp w takes positions w, w + 4, w + 8, ...
__global__ void four_warps(float* out, Queries<float> rows, PagedKV<float> kv) {{
  __shared__ float top[WARPS], sum[WARPS], acc[WARPS][32];
  int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int kv_head = head / (rows.heads / kv.kv_heads);
  float q_lane = rows.row(0, head)[lane] * rows.scale;

  Softmax<1> state;
  for (int position = warp; position < rows.context_len[0]; position += WARPS) {{
    int64_t at = kv.offset(0, position, kv_head);
    float score = sum_over<32>(q_lane * kv.k[at + lane]);
    state.raise_to(score);
    state.acc[0] += state.weigh(score) * kv.v[at + lane];
  }}

  Softmax<1> whole;
{HOLE}
  if (warp == 0) out[head * 32 + lane] = whole.value(0);
}}
"""

# Each with its host's line. Arrays and numbers come in the order in which the checks below give them.
_four_warps = Kernel(
    FOUR_WARPS,
    """
    Queries<float> rows{(float*)a[1], nullptr, (int*)a[5], 0, 32, 1, n[0], 0.25f};
    PagedKV<float> kv{(float*)a[2], (float*)a[3], (int*)a[4], n[2] * n[1] * 32, n[1] * 32, 32, n[2], n[1], n[3]};
    launch("four_warps", dim3(n[0]), dim3(128), 0, nullptr, four_warps, (float*)a[0], rows, kv);
    """,
)


def one_warp(layout: str = "NHD") -> str:
    """The kernel of question 4, for a cache in this order of dimensions."""
    return ONE_WARP.replace("LAYOUT", LAYOUTS[layout])


def check_address(function: Callable[[], str], layout: str = "NHD") -> None:
    """`function()` returns the lines that declare `at`, where the position's K and V begin, in elements."""
    host = """launch("one_warp", dim3(n[0]), dim3(32), 0, nullptr, one_warp, (float*)a[0], (float*)a[1], (float*)a[2],
                     (float*)a[3], (int*)a[4], n[3], n[2], n[0], n[1], 0.25f);"""
    lines, kernel = _lines(function), Kernel(one_warp(layout), host)
    for case in (
        _case(1, [2]),
        _case(6, [5, 2]),
        _case(7, [5, 2, 8], 3, 2, 2),
        _case(9, [6, 1, 4], 4, 4, 2),
        _case(5, [7, 3], 4, 6, 3),
    ):
        arrays, drawn = _arrays(case, layout)
        del arrays["context_len"]
        out = _run(kernel, lines, case, arrays, [case.heads, case.kv_heads, case.block_size, case.context])
        need(close(out, drawn.attend(case.scale)), f"{case}: wrong numbers. {_address_hint(out, drawn, case)}")


def _address_hint(out: torch.Tensor, drawn: Drawn, case: Case) -> str:
    if close(out, drawn.attend(case.scale, in_turn=True)):
        return "Query heads that are neighbours share a KV head"
    return "Every read was lawful: was it this position's, and this query head's KV head?"


def check_meeting(function: Callable[[], str]) -> None:
    """`function()` returns the lines after which `whole`, in warp 0, holds what all four warps have seen."""
    lines = _lines(function)
    for case in (_case(1, [2]), _case(5, [5, 2]), _case(9, [6, 1, 4], 4, 4, 2), _case(33, [0, 1, 3, 9, 8, 7, 6, 5, 4])):
        arrays, drawn = _arrays(case, "NHD")
        out = _run(_four_warps, lines, case, arrays, [case.heads, case.kv_heads, case.block_size, len(case.table)])
        need(close(out, drawn.attend(case.scale)), f"{case}: wrong numbers. {_meeting_hint(out, drawn, case)}")


def _meeting_hint(out: torch.Tensor, drawn: Drawn, case: Case) -> str:
    positions = {warp: list(range(warp, case.context, 4)) for warp in range(4)}
    for warp, mine in positions.items():
        if close(out, drawn.attend(case.scale, mine)):
            return f"It is what warp {warp} has seen alone"
        others = [position for position in range(case.context) if position not in mine]
        if others and close(out, drawn.attend(case.scale, others)):
            return f"What warp {warp} has seen is missing"
    if case.context == 1:
        return "Only warp 0 has seen a position; `whole` must be its state, element by element"
    return "Sums that are relative to different tops must be brought to one top before they are added"


def _run(kernel: Kernel, lines: str, case: Case, arrays: dict[str, Array], numbers: list[int]) -> torch.Tensor:
    """What the kernel wrote. A complaint of the checker says which case it was."""
    failed = None
    try:
        return kernel.run(lines, arrays, numbers)
    except CheckFailed as raised:
        failed = raised
    where = f"{case}: " if "thread (" in str(failed) else ""  # not where it does not compile
    raise CheckFailed(on_one_line(f"{where}{failed}"))  # outside the except block, or a traceback would show both


def _lines(function: Callable[[], str]) -> str:
    lines = call(function)
    need(isinstance(lines, str), "return the lines as one string of CUDA C++")
    return lines


def _case(context: int, table: list[int], block_size: int = 4, heads: int = 1, kv_heads: int = 1) -> Case:
    return Case(context, table, block_size, heads, kv_heads, head_dim=32)


def _arrays(case: Case, layout: str) -> tuple[dict[str, Array], Drawn]:
    """In the order of the launches. To the checker nothing of K and V is written but the case's positions."""
    drawn = draw(case)
    k, v = (scatter(case, each, layout) for each in drawn[1:])
    arrays = {"out": Array(torch.zeros(case.heads, 32), written=False), "q": Array(drawn.q)}
    arrays |= {"k": Array(k, ~k.isnan()), "v": Array(v, ~v.isnan())}
    ints = {"block_table": case.table, "context_len": [case.context]}
    return arrays | {name: Array(torch.tensor(x, dtype=torch.int32)) for name, x in ints.items()}, drawn
