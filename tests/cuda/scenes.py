"""The scenes of minibatch.cuda.scene, with rows in any order, and laid out in memory as models and caches do it."""

from dataclasses import replace

import torch

from minibatch.cuda.scene import Scene, allowed, make_scene


def scene(
    lengths, heads=4, kv_heads=2, head_dim=64, block_size=4, dtype=torch.float32, chunk=1, layout="plain"
) -> Scene:
    """As make_scene. `layout` is how q and the caches lie in memory: "plain", "fused" (q a part of one qkv tensor),
    "transposed" (caches with heads before slots), "paired" (K and V of a block side by side). Gaps hold NaN."""
    made = make_scene(lengths, heads, kv_heads, head_dim, block_size, dtype, chunk)
    order = torch.arange(len(made.q)).flip(0).roll(1)
    made = replace(made, q=made.q[order], seq_of=made.seq_of[order], context_len=made.context_len[order])
    if layout == "fused":
        qkv = torch.full((len(made.q), heads + 2 * kv_heads, head_dim), torch.nan, dtype=dtype)
        qkv[:, :heads] = made.q
        return replace(made, q=qkv[:, :heads])
    if layout == "transposed":
        k_cache, v_cache = (
            cache.transpose(1, 2).contiguous().transpose(1, 2) for cache in (made.k_cache, made.v_cache)
        )
        return replace(made, k_cache=k_cache, v_cache=v_cache)
    if layout == "paired":
        k_cache, v_cache = torch.stack([made.k_cache, made.v_cache], dim=1).unbind(1)
        return replace(made, k_cache=k_cache, v_cache=v_cache)
    return made


def assert_equal(out: torch.Tensor, truth: torch.Tensor) -> None:
    """`out` is `truth` in float64, but for sums in float32 and one rounding."""
    difference = (out.double() - truth).abs()
    assert out.isfinite().all() and (difference <= allowed(truth, out.dtype)).all(), difference.max().item()
