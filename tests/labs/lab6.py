"""Right and wrong answers to lab 6. Read by tests/test_labs.py, which says the format."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from minibatch.checks.lab6 import (
    check_attention_across_blocks,
    check_attention_in_a_block,
    check_attention_in_groups,
    check_attention_large_scores,
    check_engine,
    check_locate,
)
from minibatch.checks.lab6_kernels import check_address, check_meeting, check_merge, check_merge_edges
from minibatch.cuda.backends import missing

LAB = "lab6"
NO_COMPILER = "; ".join(missing("checked"))  # these two questions compile what they are given
SKIP = {"address": NO_COMPILER, "meeting": NO_COMPILER}


def named(name, answer):
    answer.__name__ = name
    return answer


def lines(name, text):
    """An answer that is lines of CUDA C++."""
    return named(name, lambda: text)


# ---- locate


def by_divmod(position, block_table, block_size):
    entry, offset = divmod(position, block_size)
    return [block_table[entry], offset]


def by_walking(position, block_table, block_size):
    for block in block_table:
        if position < block_size:
            return np.int64(block), position
        position -= block_size


WRONG_PLACES = [
    (named("forgets_the_table", lambda p, table, size: (p // size, p % size)), "no entry of the table is 0"),
    (named("offset_first", lambda p, table, size: (p % size, table[p // size])), "the block comes first"),
    (named("always_the_last_block", lambda p, table, size: (table[-1], p % size)), "which entry"),
    (named("rounds_up", lambda p, table, size: (table[-(-p // size)], p % size)), "IndexError"),
    (named("a_flat_slot", lambda p, table, size: table[p // size] * size + p % size), "return two numbers"),
    (named("offset_in_the_sequence", lambda p, table, size: (table[p // size], p)), "has no offset 4"),
    (named("counts_from_one", lambda p, table, size: (table[p // size], (p + 1) % size)), "how far into"),
    (named("blocks_of_four", lambda p, table, size: (table[p // 4], p % 4)), "first offset is 0"),
]

# ---- attention


def by_flat_slots(q, k_cache, v_cache, block_table, context_len, scale):
    """All slots in a row, one product for all heads of a group."""
    size, kv_heads = k_cache.shape[1:3]
    slots = (torch.tensor(block_table)[:, None] * size + torch.arange(size)).flatten()[:context_len]
    k, v = (cache.flatten(0, 1).index_select(0, slots).transpose(0, 1) for cache in (k_cache, v_cache))
    grouped = q.reshape(kv_heads, -1, q.shape[-1])
    return ((grouped @ k.transpose(1, 2) * scale).softmax(-1) @ v).reshape(q.shape)


def by_torchs_own(q, k_cache, v_cache, block_table, context_len, scale):
    k, v = (cache[block_table].flatten(0, 1)[:context_len].transpose(0, 1)[None] for cache in (k_cache, v_cache))
    return F.scaled_dot_product_attention(q[None, :, None], k, v, scale=scale, enable_gqa=True)[0, :, 0]


def in_one_pass(q, k_cache, v_cache, block_table, context_len, scale):
    """Online softmax, in float64."""
    out, size, group = torch.zeros(q.shape, dtype=torch.float64), k_cache.shape[1], len(q) // k_cache.shape[2]
    for head in range(len(q)):
        top, total = -torch.inf, 0.0
        for position in range(context_len):
            at = block_table[position // size], position % size, head // group
            score = float(q[head].double() @ k_cache[at].double()) * scale
            old, top = top, max(top, score)
            total = total * math.exp(old - top) + math.exp(score - top)
            out[head] = out[head] * math.exp(old - top) + math.exp(score - top) * v_cache[at]
        out[head] /= total
    return out


def attention(
    name,
    where=lambda p, table, size: (table[p // size], p % size),
    seen=lambda n, size: n,
    kv_head=lambda head, group, kv_heads: head // group,
    factor=lambda scale: scale,
    weigh=lambda scores: scores.softmax(0),
):
    """The right one, but for what is named."""

    def paged_attention(q, k_cache, v_cache, block_table, context_len, scale):
        size, kv_heads = k_cache.shape[1:3]
        places = [where(p, block_table, size) for p in range(seen(context_len, size))]
        k, v = (torch.stack([cache[place] for place in places]) for cache in (k_cache, v_cache))
        out = torch.empty_like(q)
        for head in range(len(q)):
            kv = kv_head(head, len(q) // kv_heads, kv_heads)
            out[head] = weigh(k[:, kv] @ q[head] * factor(scale)) @ v[:, kv]
        return out

    return named(name, paged_attention)


def masks_what_it_has_read(q, k_cache, v_cache, block_table, context_len, scale):
    k, v = (cache[block_table].flatten(0, 1).transpose(0, 1) for cache in (k_cache, v_cache))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    scores = (k @ q[:, :, None])[..., 0] * scale
    scores[:, context_len:] = -torch.inf
    return (scores.softmax(-1)[:, None] @ v)[:, 0]


def for_the_other_layout(q, k_cache, v_cache, *rest):
    return attention("")(q, k_cache.transpose(1, 2), v_cache.transpose(1, 2), *rest)


WRONG_ATTENTION = [
    (
        attention("forgets_the_table", where=lambda p, table, size: (p // size, p % size)),
        "holds nothing of the context",
    ),
    (attention("swaps_block_and_offset", where=lambda p, table, size: (p % size, table[p // size])), "holds nothing"),
    (attention("reads_the_whole_last_block", seen=lambda n, size: -(-n // size) * size), "beyond the context"),
    (attention("one_position_too_many", seen=lambda n, size: n + 1), "beyond the context"),
    (attention("one_position_too_few", seen=lambda n, size: max(n - 1, 1)), "last position were missing"),
    (masks_what_it_has_read, "0 times NaN"),
    (attention("no_scale", factor=lambda scale: 1), "not been multiplied by `scale`"),
    (attention("scales_twice", factor=lambda scale: scale**2), "twice"),
    (attention("scales_by_the_head", factor=lambda scale: 8**-0.5), "not by `scale`"),
    (attention("scales_by_the_head_too", factor=lambda scale: scale * 8**-0.5), "`scale` is all there is"),
    (attention("never_divides", weigh=lambda scores: scores.exp()), "did not add up to 1"),
    (attention("no_largest_score", weigh=lambda scores: scores.exp() / scores.exp().sum()), "exp(89)"),
    (attention("kv_heads_in_turn", kv_head=lambda head, group, kv_heads: head % kv_heads), "share a KV head"),
    (attention("divides_by_kv_heads", kv_head=lambda head, group, kv_heads: head // kv_heads), "a wrong result"),
    (attention("one_kv_head_for_all", kv_head=lambda head, group, kv_heads: 0), "a wrong result"),
    (for_the_other_layout, "this cache is [block, offset, KV head, element]"),
    (named("a_list", lambda q, *rest: q.tolist()), "return a tensor"),
    (named("flattened", lambda q, *rest: q.flatten()), "[heads, head_dim] is"),
]

# ---- merge


def by_numpy(one, other):
    tops = np.array([one[0], other[0]])
    factors = np.where(np.isinf(tops), 0, np.exp(tops - max(tops.max(), -1e300)))
    acc = factors @ np.array([one[2], other[2]])
    return tops.max(), factors @ np.array([one[1], other[1]]), list(acc)


def the_lower_comes_down(one, other):
    low, high = sorted([one, other])
    if low[0] == -math.inf:
        return high
    fix = math.exp(low[0] - high[0])
    return [high[0], high[1] + low[1] * fix, tuple(b + a * fix for a, b in zip(low[2], high[2]))]


def merging(
    name, factor=lambda part, top: math.exp(part[0] - top), acc_factor=None, finish=lambda top, s, acc: (top, s, acc)
):
    """Right but for empty parts, and for what is named."""

    def merge(one, other):
        top = max(one[0], other[0])
        total = sum(part[1] * factor(part, top) for part in (one, other))
        fixes = [(acc_factor or factor)(part, top) for part in (one, other)]
        return finish(top, total, [a * fixes[0] + b * fixes[1] for a, b in zip(one[2], other[2])])

    return named(name, merge)


WRONG_MERGES = [
    (merging("adds", factor=lambda part, top: 1), "different tops"),
    (merging("averages", factor=lambda part, top: 0.5), "both tops are the same"),
    (merging("weights_without_a_top", factor=lambda part, top: math.exp(part[0])), "both tops are the same"),
    (named("takes_the_larger", lambda one, other: max(one, other)), "both tops are the same"),
    (merging("leaves_acc_alone", acc_factor=lambda part, top: 1), "by the same factor"),
    (merging("the_wrong_way", factor=lambda part, top: math.exp(top - part[0])), "when the top is raised"),
    (merging("divides", finish=lambda top, s, acc: (top, s, [a / s for a in acc])), "nobody divides"),
    (merging("adds_the_tops", finish=lambda top, s, acc: (2 * top, s, acc)), "largest score"),
    (merging("a_quotient", factor=lambda part, top: math.exp(part[0]) / math.exp(top)), "OverflowError"),
    (merging("of_two_empty_parts"), "NaN"),  # -inf - -inf
    (merging("drops_the_top", finish=lambda top, s, acc: (s, acc)), "three things"),
]

# ---- lines of CUDA

IN_ONE_LINE = """
  int64_t at = ((int64_t(block_table[position / block_size]) * block_size + position % block_size) * kv_heads
                + head * kv_heads / heads) * 32;
"""


def address(name, block="block_table[position / block_size]", kv="head / (heads / kv_heads)", at="NHD"):
    inside = {
        "NHD": "((block * block_size + position % block_size) * kv_heads + kv_head) * 32",
        "HND": "((block * kv_heads + kv_head) * block_size + position % block_size) * 32",
    }
    return lines(name, f"int64_t block = {block}, kv_head = {kv};\nint64_t at = {inside.get(at, at)};")


WRONG_ADDRESSES = [
    (address("forgets_the_table", block="position / block_size"), "uninitialised read at line"),
    (address("swaps", at="((position % block_size * block_size + block) * kv_heads + kv_head) * 32"), "uninitialised"),
    (address("kv_heads_in_turn", kv="head % kv_heads"), "share a KV head"),
    (address("every_head_its_own", kv="head"), "k["),
    (address("for_the_other_layout", at="HND"), "k["),
    (address("in_vectors", at="(block * block_size + position % block_size) * kv_heads + kv_head"), "k["),
    (address("no_division", block="block_table[position]"), "block_table"),
    (lines("undeclared", "at = 0;"), "does not compile"),
    (named("a_number", lambda: 7), "one string"),
]

WRITE = "if (lane == 0) { top[warp] = state.top; sum[warp] = state.sum; }\nacc[warp][lane] = state.acc[0];\n"
MEET = "__syncthreads();\n"
READ = "for (int w = 0; w < WARPS; ++w) whole.merge(top[w], sum[w], &acc[w][lane]);\n"
BY_ALL_LANES = "top[warp] = state.top, sum[warp] = state.sum, acc[warp][lane] = state.acc[0];\n"
WARP_0_FIRST = """
  if (warp != 0) { if (lane == 31) top[warp] = state.top, sum[warp] = state.sum; acc[warp][lane] = state.acc[0]; }
  __syncthreads();
  if (warp == 0) {
    whole = state;
    for (int w = WARPS - 1; w > 0; --w) whole.merge(top[w], sum[w], acc[w] + lane);
  }
"""
PLAIN_SUMS = "whole.top = 0;\nfor (int w = 0; w < WARPS; ++w) whole.sum += sum[w], whole.acc[0] += acc[w][lane];\n"

WRONG_MEETINGS = [
    (lines("no_barrier", WRITE + READ), "at line"),
    (lines("a_warps_barrier", WRITE + "__syncwarp();\n" + READ), "at line"),
    (lines("meets_before_writing", MEET + WRITE + READ), "at line"),
    (lines("barrier_of_one_warp", WRITE + "if (warp == 0) {\n" + MEET + READ + "}"), "__syncthreads"),
    (lines("idle_warps_stay_away", "if (warp < rows.context_len[0]) {\n" + WRITE + MEET + "}\n" + READ), "at line"),
    (lines("adds", WRITE + MEET + PLAIN_SUMS), "brought to one top"),
    (lines("a_warp_too_few", WRITE + MEET + READ.replace("WARPS", "WARPS - 1")), "warp 3 has seen is missing"),
    (lines("alone", WRITE + MEET + "whole = state;"), "warp 0 has seen alone"),
    (lines("one_element_for_all", WRITE + MEET + READ.replace("[lane]", "[0]")), "element by element"),
    (lines("the_threads_index", WRITE.replace("[lane]", "[threadIdx.x]") + MEET + READ), "array index"),
    (lines("no_semicolon", WRITE + "__syncthreads()\n" + READ), "does not compile"),
]

TABLE = {
    "locate": {
        "name": "locate",
        "checks": {"locate_places": check_locate},
        "right": [by_divmod, by_walking],
        "wrong": WRONG_PLACES,
    },
    "attention": {
        "name": "paged_attention",
        "checks": {
            "attention_in_a_block": check_attention_in_a_block,
            "attention_across_blocks": check_attention_across_blocks,
            "attention_in_groups": check_attention_in_groups,
            "attention_large_scores": check_attention_large_scores,
            "attention_in_the_engine": check_engine,
        },
        "right": [by_flat_slots, by_torchs_own, in_one_pass],
        "wrong": WRONG_ATTENTION,
    },
    "merge": {
        "name": "merge",
        "checks": {"merge_numbers": check_merge, "merge_edges": check_merge_edges},
        "right": [by_numpy, the_lower_comes_down],
        "wrong": WRONG_MERGES,
    },
    "address": {
        "name": "address",
        "checks": {"address_lines": check_address},
        "right": [lines("in_one_line", IN_ONE_LINE), address("in_two_lines")],
        "wrong": WRONG_ADDRESSES,
    },
    "meeting": {
        "name": "meeting",
        "checks": {"meeting_lines": check_meeting},
        "right": [lines("warp_0_keeps_its_own", WARP_0_FIRST), lines("everybody_merges", WRITE + MEET + READ)],
        "wrong": WRONG_MEETINGS,
    },
}

OTHER_YEAR = [
    ("attention_in_a_block", {"layout": "HND"}, by_flat_slots, "this cache is [block, KV head, offset, element]"),
    ("attention_in_groups", {"layout": "HND"}, by_torchs_own, "this cache is [block, KV head, offset, element]"),
    ("attention_in_the_engine", {"layout": "HND"}, by_flat_slots, "this cache is [block, KV head, offset, element]"),
    ("address_lines", {"layout": "HND"}, address("in_two_lines"), "k["),
    ("merge_numbers", {"base": "2"}, the_lower_comes_down, "powers of 2"),
]
