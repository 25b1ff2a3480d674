"""What a kernel cannot take is refused here, before anything is started, by name."""

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEAD_DIMS = (16, 32, 64, 80, 96, 128, 256)
RUNGS = (1, 2, 3, 4, 5, 6, 7)
WIDE = 16  # bytes of a load from rung 4 on
LARGEST = 2**31 - 1


def check_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_of: torch.Tensor,
    context_len: torch.Tensor,
) -> None:
    """Raises ValueError unless shapes, types and devices fit together; on a CPU also lengths and table entries.

    On a GPU the values are not looked at: that would wait for the GPU at each call.
    """
    _rank(q=(q, 3), k_cache=(k_cache, 4), v_cache=(v_cache, 4), block_table=(block_table, 2))
    _rank(seq_of=(seq_of, 1), context_len=(context_len, 1))
    _same_device(q, k_cache=k_cache, v_cache=v_cache, block_table=block_table, seq_of=seq_of, context_len=context_len)
    _cache(k_cache, v_cache, q.dtype, "q")
    for name, tensor in (("block_table", block_table), ("seq_of", seq_of), ("context_len", context_len)):
        if tensor.dtype != torch.int32 or not tensor.is_contiguous():
            laid = "contiguous" if tensor.is_contiguous() else "not contiguous"
            raise ValueError(f"{name} is {tensor.dtype} and {laid}: it must be int32 and contiguous")
    tokens, heads, head_dim = q.shape
    if head_dim != k_cache.shape[3]:
        raise ValueError(f"q has head_dim {head_dim}, k_cache {k_cache.shape[3]}: they must be equal")
    if heads == 0 or heads % k_cache.shape[2]:
        raise ValueError(f"q has {heads} heads, k_cache {k_cache.shape[2]}: heads must be a multiple of kv_heads")
    if len(seq_of) != tokens or len(context_len) != tokens:
        raise ValueError(f"q has {tokens} tokens, seq_of {len(seq_of)}, context_len {len(context_len)}: one for each")
    if tokens and q.device.type == "cpu":
        _values(block_table, seq_of, context_len, *k_cache.shape[:2])


def check_write(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Raises ValueError unless k, v [tokens, kv_heads, head_dim] and the slots fit the caches. Slots: on a CPU only."""
    _rank(k=(k, 3), v=(v, 3), k_cache=(k_cache, 4), v_cache=(v_cache, 4), slot_mapping=(slot_mapping, 1))
    _same_device(k, v=v, k_cache=k_cache, v_cache=v_cache, slot_mapping=slot_mapping)
    _cache(k_cache, v_cache, k.dtype, "k")
    if slot_mapping.dtype != torch.int64 or not slot_mapping.is_contiguous():
        raise ValueError(f"slot_mapping is {slot_mapping.dtype}: it must be int64 and contiguous")
    expected = (len(slot_mapping), *k_cache.shape[2:])
    if k.shape != expected or v.shape != expected or v.dtype != k.dtype:
        raise ValueError(f"k is {_of(k)}, v is {_of(v)}: both must be {list(expected)} of {k_cache.dtype}")
    slots = k_cache.shape[0] * k_cache.shape[1]
    if slot_mapping.device.type == "cpu" and len(slot_mapping):
        low, high = map(int, slot_mapping.aminmax())
        if low < -1 or high >= slots:
            raise ValueError(f"slot_mapping has {low if low < -1 else high}: slots are -1 (skip) and 0..{slots - 1}")


def check_kernel(rung: int, group_strides: dict[str, torch.Tensor], head_dim: int, dtype: torch.dtype) -> None:
    """Raises ValueError for what the torch backend takes and a kernel does not: types, head sizes, strides."""
    if dtype not in DTYPES:
        raise ValueError(f"{dtype}: kernels are built for float32, float16 and bfloat16")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim={head_dim}: kernels are built for {', '.join(map(str, HEAD_DIMS))}")
    if rung not in RUNGS:
        raise ValueError(f"rung={rung}: choose one of 1 to {RUNGS[-1]}")
    for name, tensor in group_strides.items():
        if max(tensor.shape) > LARGEST:
            raise ValueError(f"{name} is {list(tensor.shape)}: no dimension may be above {LARGEST}")
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} has strides {tensor.stride()}: the last dimension must have stride 1")
        begins = [tensor.data_ptr(), *(step * tensor.element_size() for step in strides(tensor))]
        if rung >= 4 and any(begin % WIDE for begin in begins):
            raise ValueError(
                f"{name} has strides {tensor.stride()} and starts at {begins[0] % WIDE} modulo {WIDE} bytes: rung "
                f"{rung} loads {WIDE} bytes at once, so each row must start at a multiple; use rung 1 to 3, or .clone()"
            )


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides in elements of all but the last dimension; 0 for a dimension of one, which has no distance."""
    return tuple(step if size > 1 else 0 for size, step in zip(tensor.shape[:-1], tensor.stride()[:-1]))


def _values(
    block_table: torch.Tensor, seq_of: torch.Tensor, context_len: torch.Tensor, num_blocks: int, block_size: int
) -> None:
    rows, width = block_table.shape
    low, high = map(int, seq_of.aminmax())
    if low < 0 or high >= rows:
        raise ValueError(f"seq_of has {low if low < 0 else high}: block_table has rows 0..{rows - 1}")
    low, high = map(int, context_len.aminmax())
    if low < 0 or high > width * block_size:
        raise ValueError(
            f"context_len has {low if low < 0 else high}: block_table is {width} blocks of {block_size} wide, so it "
            f"must be 0..{width * block_size}"
        )
    used = block_table[used_entries(block_table, seq_of, context_len, block_size)]
    if len(used) and (used.min() < 0 or used.max() >= num_blocks):
        worst = int(used.min() if used.min() < 0 else used.max())
        raise ValueError(f"block_table has {worst} within a context: blocks are 0..{num_blocks - 1}")


def used_entries(
    block_table: torch.Tensor, seq_of: torch.Tensor, context_len: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Which entries of the block table some token's context reaches: bool [num_seqs, max_blocks]."""
    longest = torch.zeros(len(block_table), dtype=torch.int64, device=block_table.device)
    longest.scatter_reduce_(0, seq_of.long(), context_len.long(), "amax")
    return torch.arange(block_table.shape[1], device=block_table.device) * block_size < longest[:, None]


def _rank(**given: tuple[torch.Tensor, int]) -> None:
    for name, (tensor, rank) in given.items():
        if tensor.dim() != rank:
            raise ValueError(f"{name} is {list(tensor.shape)}: it must have {rank} dimensions")


def _same_device(first: torch.Tensor, **others: torch.Tensor) -> None:
    for name, tensor in others.items():
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, others on {first.device}: all must be on one device")


def _cache(k_cache: torch.Tensor, v_cache: torch.Tensor, dtype: torch.dtype, whose: str) -> None:
    if v_cache.shape != k_cache.shape or v_cache.dtype != k_cache.dtype or k_cache.dtype != dtype:
        raise ValueError(f"k_cache is {_of(k_cache)}, v_cache {_of(v_cache)}, {whose} {dtype}: they must agree")
    if strides(v_cache) != strides(k_cache):
        raise ValueError(f"k_cache has strides {k_cache.stride()}, v_cache {v_cache.stride()}: they must be equal")
    if not all(k_cache.shape[1:]):
        raise ValueError(f"k_cache is {list(k_cache.shape)}: block_size, kv_heads and head_dim must be at least 1")


def _of(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"
