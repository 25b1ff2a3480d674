"""Checks of lab 6: attention through a block table, against float64 and in the engine.

What no sequence has written holds NaN, so that nobody reads it unseen. A `layout` has the name FlashInfer gives it.
Questions 3 to 5 are in `lab6_kernels.py`.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from minibatch import Engine, Trace, build_engine, load_model
from minibatch.checks.base import CheckFailed, NotYet, expect, need, same
from minibatch.checks.typed_kernel import on_one_line
from minibatch.model.kv_cache import write_places
from minibatch.model.load import Model
from minibatch.model.paged_kv import PagedKVCache
from minibatch.step import Chunk
from minibatch.workload import chat_prompts

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, list[int], int, float], torch.Tensor]
LAYOUTS = {"NHD": "[block, offset, KV head, element]", "HND": "[block, KV head, offset, element]"}
POOL = 10  # blocks of a cache here


# ---- Question 1: where a position lies


def check_locate(function: Callable[[int, list[int], int], tuple[int, int]]) -> None:
    """`function(position, block_table, block_size)` returns (block, offset)."""
    cases = [(2, [5], 4), (4, [5, 2], 4), (7, [5, 2], 4), (9, [6, 1, 4], 4), (8, [3, 0, 7], 4), (3, [5, 4, 9, 2], 1)]
    for position, table, size in [*cases, (16, [2, 7], 16), (15, [2, 7], 16), (14, [9, 8, 3, 1, 6], 3)]:
        expect(function, position, table, size, want=(table[position // size], position % size), hint=_place_hint)


def _place_hint(got: object, position: int, table: list[int], size: int) -> str:
    if not (isinstance(got, (list, tuple)) and len(got) == 2):
        return "return two numbers, the block and the offset in it"
    block, offset = got
    if same(got, (position % size, table[position // size])):
        return "the block comes first, the offset in it second"
    if block not in table:
        return f"no entry of the table is {block}: that block may hold anybody's K and V"
    if offset not in range(size):
        return f"a block of {size} has no offset {offset}; the first offset is 0"
    if same(offset, position % size):
        return f"how many whole blocks lie before position {position}, and which entry of the table follows them?"
    return f"how far into its block is position {position}?"


# ---- Question 2: attention in PyTorch


class Case(NamedTuple):
    """One sequence on a cache of POOL blocks. Its table may be longer than the context needs: taken in advance."""

    context: int
    table: list[int]
    block_size: int = 4
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 8
    scale: float = 0.25
    large: int = 0  # 1 or -1: scores of some hundreds, of that sign

    def __str__(self) -> str:
        heads = f", {self.heads} query heads on {self.kv_heads}" if self.heads > 1 else ""
        scores = f", scores of about {177 * self.large}" if self.large else ""
        return f"context_len {self.context}, block_size {self.block_size}, block_table {self.table}{heads}{scores}"

    def last_block(self) -> int:
        return self.table[(self.context - 1) // self.block_size]


class Drawn(NamedTuple):
    """q [heads, head_dim], and K and V [context, kv_heads, head_dim] side by side."""

    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    def attend(self, scale: float, positions: slice | list[int] = slice(None), in_turn: bool = False) -> torch.Tensor:
        """Attention by its definition, in float64. With `in_turn`, query heads are dealt to KV heads in turn: wrong."""
        q, keys, values = self.q.double(), self.keys[positions].double(), self.values[positions].double()
        group = len(q) // keys.shape[1]
        keys, values = (x.repeat(1, group, 1) if in_turn else x.repeat_interleave(group, 1) for x in (keys, values))
        return torch.einsum("hl,lhd->hd", (torch.einsum("hd,lhd->hl", q, keys) * scale).softmax(-1), values)


def draw(case: Case) -> Drawn:
    """The same for the same sizes."""
    generator = torch.Generator().manual_seed(100 * case.context + case.heads)
    q = torch.randn(case.heads, case.head_dim, generator=generator)
    keys, values = (torch.randn(case.context, case.kv_heads, case.head_dim, generator=generator) for _ in "kv")
    if case.large:  # in whole numbers, of which float32 loses nothing
        q, keys = torch.full_like(q, 10), torch.full_like(keys, 10 * case.large)
        q[:, 0], keys[..., 0] = 1, keys[..., 0] + torch.arange(case.context)[:, None] % 3
    return Drawn(q, keys, values)


def scatter(
    case: Case, each: torch.Tensor, layout: str, tail: float = math.nan, free: float = math.nan
) -> torch.Tensor:
    """K or V in a cache. `tail` is what fills up the context's last block, `free` what all other blocks hold."""
    cache = each.new_full((POOL, case.block_size, *each.shape[1:]), free)
    cache[case.last_block()] = tail
    for position, one in enumerate(each):
        cache[case.table[position // case.block_size], position % case.block_size] = one
    return cache if layout == "NHD" else cache.transpose(1, 2).contiguous()


def check_attention_in_a_block(function: Attention, layout: str = "NHD") -> None:
    """One head, one block: scores, scale, softmax, sum."""
    for case in (Case(1, [2]), Case(3, [2]), Case(4, [7], scale=0.5)):
        _check_case(function, case, layout)


def check_attention_across_blocks(function: Attention, layout: str = "NHD") -> None:
    """Contexts around the borders of scattered blocks; two query heads, each with a KV head of its own."""
    lengths = [(5, [5, 2], 4), (4, [5, 2], 4), (8, [5, 2], 4), (9, [6, 1, 4], 4), (12, [6, 1, 4], 4), (7, [9, 0, 3], 4)]
    for context, table, size in [*lengths, (3, [4, 8, 1], 1), (17, [3, 7], 16), (16, [3, 7], 16), (7, [2, 9, 5], 3)]:
        _check_case(function, Case(context, table, size, heads=2, kv_heads=2), layout)


def check_attention_in_groups(function: Attention, layout: str = "NHD") -> None:
    """Query heads that share KV heads."""
    for heads, kv_heads in [(2, 1), (4, 2), (6, 3), (6, 2), (8, 1)]:
        _check_case(function, Case(6, [5, 2], heads=heads, kv_heads=kv_heads), layout)


def check_attention_large_scores(function: Attention, layout: str = "NHD") -> None:
    """Scores far above and far below 0, in float32."""
    for sign in (1, -1):
        _check_case(function, Case(5, [5, 2], large=sign), layout)


def _check_case(function: Attention, case: Case, layout: str) -> None:
    drawn, failed = draw(case), None
    try:
        out = _ask(function, case, layout)
        if not close(out, drawn.attend(case.scale)):
            failed = CheckFailed(f"{case}: {_attention_hint(function, case, layout, out)}")
    except CheckFailed as raised:
        failed = raised
    if failed and not isinstance(failed, NotYet) and _right_for(function, case, {"NHD": "HND", "HND": "NHD"}[layout]):
        failed = CheckFailed(f"{case}: right for another order of dimensions; this cache is {LAYOUTS[layout]}")
    if failed:  # outside the except block, or a traceback would show both errors
        raise failed


def _ask(function: Attention, case: Case, layout: str, **fill: float) -> torch.Tensor:
    """What the function returns. An exception, or what is not a result at all, becomes one line."""
    drawn, failed = draw(case), None
    caches = [scatter(case, each, layout, **fill) for each in drawn[1:]]
    try:
        out = function(drawn.q, *caches, list(case.table), case.context, case.scale)
    except NotImplementedError:
        failed = NotYet(f"{case}: raised NotImplementedError")
    except Exception as error:
        failed = CheckFailed(f"{case}: raised {type(error).__name__}: {on_one_line(str(error))[:150]}")
    if failed:
        raise failed
    if out is None:
        raise NotYet(f"{case}: returned None")
    need(isinstance(out, torch.Tensor), f"{case}: returned a {type(out).__name__}; return a tensor [heads, head_dim]")
    shape = list(drawn.q.shape)
    need(list(out.shape) == shape, f"{case}: returned a tensor {list(out.shape)}; [heads, head_dim] is {shape}")
    return out


def _right_for(function: Attention, case: Case, layout: str) -> bool:
    try:
        return close(_ask(function, case, layout), draw(case).attend(case.scale))
    except CheckFailed:
        return False


def _attention_hint(function: Attention, case: Case, layout: str, out: torch.Tensor) -> str:
    if not out.isfinite().all():
        return _nan_hint(function, case, layout)
    drawn, root = draw(case), case.head_dim**-0.5
    last = case.context - 1
    mistakes = {
        "as if the scores had not been multiplied by `scale`": drawn.attend(1),
        "as if the scores had been multiplied by `scale` twice": drawn.attend(case.scale**2),
        "as if 1/sqrt(head_dim) were in it; `scale` is all there is": drawn.attend(case.scale * root),
        "as if scores had been scaled by 1/sqrt(head_dim), not by `scale`": drawn.attend(root),
        "as if the last position were missing; a token sees itself": drawn.attend(case.scale, slice(0, last)),
        "query heads that are neighbours share a KV head": drawn.attend(case.scale, in_turn=True),
    }
    for words, wrong in mistakes.items():
        if close(out, wrong):
            return f"a wrong result: {words}"
    times = out / drawn.attend(case.scale)
    if close(times, times[:, :1].expand_as(times)):
        return "a wrong result: each head is off by a factor, as if its weights did not add up to 1"
    return "a wrong result"


def _nan_hint(function: Attention, case: Case, layout: str) -> str:
    """Whose NaN it was: tried again with one of them healed."""
    if not _ask(function, case, layout, tail=0.0, free=0.0).isfinite().all():
        return "NaN or infinity, and not from memory: exp(89) is too much for float32, and 0/0 is NaN"
    if _ask(function, case, layout, tail=0.0).isfinite().all():
        return "NaN: a position beyond the context was read, in the tail of its last block (and 0 times NaN is NaN)"
    return "NaN: a block was read that holds nothing of the context. Which blocks are its own?"


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal but for the rounding of float32."""
    return torch.allclose(got.double(), want.double(), rtol=1e-5, atol=1e-5)


# ---- The engine


class Plugged:
    """Attention for one step of the engine: store all K and V of the step, then ask `attend` for each of its tokens."""

    def __init__(self, attend: Attention, cache: PagedKVCache, chunks: list[Chunk], layout: str):
        self.attend, self.cache, self.layout, self.write_at = attend, cache, layout, write_places(cache, chunks)
        each = [(chunk, chunk.start + i) for chunk in chunks for i in range(chunk.count)]
        self.seen = [(chunk.sequence.block_table, position + 1) for chunk, position in each]  # itself included

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, heads, head_dim], k and v [T, kv_heads, head_dim] -> [T, heads * head_dim]."""
        self.cache.k[layer][self.write_at], self.cache.v[layer][self.write_at] = k, v
        caches = self.cache.k_blocks[layer], self.cache.v_blocks[layer]
        if self.layout == "HND":
            caches = [cache.transpose(1, 2) for cache in caches]  # the same memory, its dimensions named in that order
        scale = q.shape[-1] ** -0.5
        out = [self.attend(one, *caches, *seen, scale) for one, seen in zip(q, self.seen)]
        return torch.stack(out).to(q.dtype).flatten(1)


def engine_with(model: Model, attend: Attention | None = None, layout: str = "NHD", num_blocks: int = 24) -> Engine:
    """An engine on paged memory, blocks of 4 positions, 3 slots; its attention is `attend`, or the package's."""
    sizes = {"max_num_seqs": 3, "max_model_len": 64, "num_positions": 4 * num_blocks, "block_size": 4}
    engine = build_engine(model, memory="paged", **sizes)
    executor = engine.executor
    if attend:
        executor.attention = lambda plan, rows: Plugged(attend, executor.cache, rows, layout)
    return engine


def check_engine(function: Attention, layout: str = "NHD") -> None:
    """The embedded model writes the same tokens with it as with the package's attention."""
    _check_case(function, Case(1, [2]), layout)  # a stub is told apart before the engine starts
    model = _tiny()
    asked = [model.request(name, text, max_new_tokens=6) for name, text in chat_prompts("tiny")[:3]]
    engine = engine_with(model, function, layout)
    engine.executor.cache.k.fill_(math.nan)
    engine.executor.cache.v.fill_(math.nan)
    ours, theirs = engine_with(model).run(asked), engine.run(asked)
    for step in theirs.steps:
        why = on_one_line(step.error or "")[:200]
        _need(not step.error, f"in the engine, step {step.step} failed: {why}", theirs)
    for name, record in ours.requests.items():
        pairs = zip(record.tokens, theirs.requests[name].tokens)
        for at, (right, got) in enumerate(pairs, 1):
            _need(right == got, f"in the engine, token {at} of {name} is not what the package writes", theirs)


def _need(condition: bool, message: str, trace: Trace) -> None:
    if not condition:
        raise CheckFailed(message, trace=trace)


@cache
def _tiny() -> Model:
    return load_model("tiny")
