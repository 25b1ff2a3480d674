"""What the kernels have to give, in plain torch: the backend "torch", on any device."""

import torch


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_of: torch.Tensor,
    context_len: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """As `ops.paged_attention`. A sequence at a time: its K and V are gathered once for all its tokens, in float32.

    Nothing is gathered beyond the longest context asked for, so what lies in other slots cannot matter.
    """
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    block_size, group = k_cache.shape[1], q.shape[1] // k_cache.shape[2]
    for seq in seq_of.unique().tolist():
        tokens = (seq_of == seq).nonzero().flatten()
        context = context_len[tokens]
        longest = int(context.max())
        if longest == 0:
            continue
        position = torch.arange(longest, device=q.device)
        block, slot = block_table[seq].long()[position // block_size], position % block_size
        k, v = (cache[block, slot].float().repeat_interleave(group, dim=1) for cache in (k_cache, v_cache))
        scores = torch.einsum("thd,lhd->htl", q[tokens].float(), k) * scale
        scores.masked_fill_(position >= context[:, None], -torch.inf)
        mixed = torch.einsum("htl,lhd->thd", scores.softmax(dim=-1), v)
        out[tokens] = mixed.masked_fill(context[:, None, None] == 0, 0).to(q.dtype)
    return out


def cache_write(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """As `ops.cache_write`."""
    kept = slot_mapping >= 0
    block, slot = slot_mapping[kept] // k_cache.shape[1], slot_mapping[kept] % k_cache.shape[1]
    k_cache[block, slot], v_cache[block, slot] = k[kept], v[kept]
