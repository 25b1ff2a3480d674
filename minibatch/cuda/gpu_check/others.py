"""What stands beside the ladder: attention of other libraries over the same K and V, where they are installed.

Each is a function of a decode scene that gets everything ready and returns the launch to be timed.
"""

import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F

from minibatch.cuda.scene import Scene

Prepare = Callable[[Scene], Callable[[], torch.Tensor]]


def others(with_flex: bool) -> list[tuple[str, Prepare]]:
    """(name, prepare) of what can be tried here. FlexAttention is compiled for each shape, which takes seconds."""
    found: list[tuple[str, Prepare]] = [("gather + SDPA", gather_and_sdpa), ("SDPA, K/V in a row", sdpa)]
    if with_flex:
        found.append(("FlexAttention, K/V in a row", flex))
    for name, prepare in (("flashinfer", flashinfer), ("flash_attn", flash_attn)):
        if importlib.util.find_spec(name):
            found.append((name, prepare))
    return found


def gather(scene: Scene) -> list[torch.Tensor]:
    """K and V of all sequences, copied out of their blocks: [batch, kv_heads, context, head_dim], as SDPA wants it."""
    context = int(scene.context_len[0])
    blocks = scene.block_table.long()
    return [cache[blocks].flatten(1, 2)[:, :context].transpose(1, 2) for cache in (scene.k_cache, scene.v_cache)]


def gather_and_sdpa(scene: Scene) -> Callable[[], torch.Tensor]:
    """What serving from a paged cache costs without a kernel of its own."""
    blocks, context, q = scene.block_table.long(), int(scene.context_len[0]), scene.q[:, :, None]

    def launch() -> torch.Tensor:
        k, v = (x[blocks].flatten(1, 2)[:, :context].transpose(1, 2) for x in (scene.k_cache, scene.v_cache))
        return F.scaled_dot_product_attention(q, k, v, scale=scene.scale, enable_gqa=True)

    return launch


def sdpa(scene: Scene) -> Callable[[], torch.Tensor]:
    """Without the gather: what a cache that is not paged would cost."""
    (k, v), q = gather(scene), scene.q[:, :, None]
    return lambda: F.scaled_dot_product_attention(q, k, v, scale=scene.scale, enable_gqa=True)


def flex(scene: Scene) -> Callable[[], torch.Tensor]:
    """FlexAttention of torch, compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    (k, v), q = (x.contiguous() for x in gather(scene)), scene.q[:, :, None]
    return lambda: compiled(q, k, v, scale=scene.scale, enable_gqa=True)


def flashinfer(scene: Scene) -> Callable[[], torch.Tensor]:
    """FlashInfer's batch decode over the same blocks."""
    import flashinfer as library

    batch, heads, head_dim = scene.q.shape
    size, kv_heads, width = scene.k_cache.shape[1], scene.k_cache.shape[2], scene.block_table.shape[1]
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=scene.q.device)
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    starts = torch.arange(0, batch * width + 1, width, dtype=torch.int32, device=scene.q.device)
    last = (scene.context_len - 1) % size + 1
    types = {"q_data_type": scene.q.dtype, "kv_data_type": scene.k_cache.dtype}
    wrapper.plan(starts, scene.block_table.flatten(), last, heads, kv_heads, head_dim, size, **types)
    return lambda: wrapper.run(scene.q, (scene.k_cache, scene.v_cache))


def flash_attn(scene: Scene) -> Callable[[], torch.Tensor]:
    """FlashAttention over K and V in a row; its own paged cache wants blocks of 256."""
    from flash_attn import flash_attn_with_kvcache

    (k, v), q = (x.transpose(1, 2) for x in gather(scene)), scene.q[:, None]
    return lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=scene.context_len, softmax_scale=scene.scale)
