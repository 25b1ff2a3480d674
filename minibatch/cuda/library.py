"""A built library, as Python sees it: plain C functions, through ctypes.

library = load("checked", torch.float32, head_dim=64)
out = library.attention(q, k_cache, v_cache, block_table, seq_of, context_len, scale, rung=6, parts=2)
"""

import ctypes
import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from minibatch.cuda import simulated
from minibatch.cuda.arguments import strides, used_entries
from minibatch.cuda.build import build
from minibatch.cuda.errors import KernelUnavailable, LaunchError
from minibatch.cuda.simulated import Array, Run

SCALARS = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
CUDA_ERROR = 1000  # kernels/launch.h
LOCKS: dict[Path, threading.Lock] = {}  # the layer under a CPU library has one state, however often it is loaded
REFUSALS = {
    1: "this library has no such rung (rung 7 is for a GPU)",
    2: "heads is no multiple of kv_heads",
    3: "a size is out of range: tokens * heads must be below 2^31, heads and parts below 65536",
}


class AttentionArguments(ctypes.Structure):
    """kernels/launch.h, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in "out q k v block_table seq_of context_len part_acc part_state".split()),
        *((name, ctypes.c_int64) for name in "q_token q_head kv_block kv_slot kv_head".split()),
        *((name, ctypes.c_int32) for name in "tokens heads kv_heads block_size max_blocks rung parts device".split()),
        ("scale", ctypes.c_float),
    ]


class WriteArguments(ctypes.Structure):
    """kernels/launch.h, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in "k_cache v_cache k v slot_mapping".split()),
        *((name, ctypes.c_int64) for name in "k_token k_head v_token v_head kv_block kv_slot kv_head".split()),
        *((name, ctypes.c_int32) for name in "tokens kv_heads block_size device".split()),
    ]


@functools.cache
def load(kind: str, dtype: torch.dtype, head_dim: int, arch: str | None = None) -> "Library":
    """The library for a type and a head size, built if need be. `kind` and `arch` are those of `build.build`."""
    return Library(build(kind, {"SCALAR": SCALARS[dtype], "HEAD_DIM": str(head_dim)}, arch=arch), kind)


@dataclass
class Library:
    """One .so file, of a `kind` of `build.build`. A CPU library runs one call at a time."""

    path: Path
    kind: str
    handle: ctypes.CDLL = field(init=False, repr=False)
    lock: threading.Lock = field(init=False, repr=False)

    def __post_init__(self):
        try:
            self.handle = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise KernelUnavailable(f"{self.path} does not load ({error}): delete it, and it is built anew") from error
        self.lock = LOCKS.setdefault(self.path, threading.Lock())
        self.handle.minibatch_cuda_error.restype = ctypes.c_char_p
        for structure, of_write in ((AttentionArguments, 0), (WriteArguments, 1)):
            assert self.handle.minibatch_argument_bytes(of_write) == ctypes.sizeof(structure)

    def attention(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        block_table: torch.Tensor,
        seq_of: torch.Tensor,
        context_len: torch.Tensor,
        scale: float,
        rung: int = 6,
        parts: int = 1,
        run: Run | None = None,
    ) -> torch.Tensor:
        """One launch. Tensors as in `ops.paged_attention`, already checked. `run` says how a CPU library goes about it.

        Returns [tokens, heads, head_dim]. Raises LaunchError, and simulated.KernelFault for what a CPU library finds.
        """
        tokens, heads, head_dim = q.shape
        split = (tokens, heads, parts) if rung >= 6 else (0, heads, parts)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        part_acc, part_state = (torch.empty(*split, n, dtype=torch.float32, device=q.device) for n in (head_dim, 2))
        arrays = {
            "out": Array(out, written=False),
            "q": Array(q),
            "k": Array(k_cache),
            "v": Array(v_cache),
            "block_table": Array(block_table),
            "seq_of": Array(seq_of),
            "context_len": Array(context_len),
            "part_acc": Array(part_acc, written=False),
            "part_state": Array(part_state, written=False),
        }
        if self.kind == "checked":
            arrays |= _only_what_is_owned(k_cache, v_cache, block_table, seq_of, context_len)
        numbers = dict(zip(("q_token", "q_head"), strides(q)), rung=rung, parts=parts, scale=scale, tokens=tokens)
        numbers |= dict(zip(("kv_block", "kv_slot", "kv_head"), strides(k_cache)), heads=heads)
        numbers |= {"block_size": k_cache.shape[1], "kv_heads": k_cache.shape[2], "max_blocks": block_table.shape[1]}
        self._call("minibatch_paged_attention", AttentionArguments, arrays, numbers, q.device, run)
        return out

    def cache_write(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        run: Run | None = None,
    ) -> None:
        """One launch that writes into the caches. Tensors as in `ops.cache_write`, already checked."""
        arrays = {name: Array(tensor, writable=True) for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache))}
        arrays |= {"k": Array(k), "v": Array(v), "slot_mapping": Array(slot_mapping)}
        numbers = dict(zip(("k_token", "k_head", "v_token", "v_head"), strides(k) + strides(v)), tokens=len(k))
        numbers |= dict(zip(("kv_block", "kv_slot", "kv_head"), strides(k_cache)))
        numbers |= {"kv_heads": k_cache.shape[2], "block_size": k_cache.shape[1]}
        self._call("minibatch_cache_write", WriteArguments, arrays, numbers, k.device, run)

    def _call(
        self,
        function: str,
        structure: type[ctypes.Structure],
        arrays: Mapping[str, Array],
        numbers: Mapping[str, int | float],
        device: torch.device,
        run: Run | None,
    ) -> None:
        def launch(pointers: Mapping[str, int], stream: int | None) -> None:
            arguments = structure(**pointers, **numbers, device=device.index or 0)
            self._check(getattr(self.handle, function)(ctypes.byref(arguments), ctypes.c_void_p(stream)))

        if self.kind == "cuda":
            stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
            launch({name: array.tensor.data_ptr() for name, array in arrays.items()}, stream)
        else:
            with self.lock:
                simulated.run(self.handle, self.path, arrays, lambda at: launch(at, None), run or Run())

    def _check(self, code: int) -> None:
        if code >= CUDA_ERROR:
            said = self.handle.minibatch_cuda_error(code - CUDA_ERROR).decode()
            advice = ": is there an NVIDIA driver, and is it as new as the toolkit?" if code - CUDA_ERROR == 35 else ""
            raise LaunchError(f"CUDA error {code - CUDA_ERROR} at launch, {said}{advice}")
        if code:
            raise LaunchError(REFUSALS[code])


def _only_what_is_owned(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_of: torch.Tensor,
    context_len: torch.Tensor,
) -> dict[str, Array]:
    """For the checker: slots and table entries that no context reaches count as never written."""
    num_blocks, block_size = k_cache.shape[:2]
    used = used_entries(block_table, seq_of, context_len, block_size)
    owned = torch.zeros(num_blocks, block_size, dtype=torch.bool)
    for seq, context in zip(seq_of.tolist(), context_len.tolist()):
        position = torch.arange(context)
        block = block_table[seq].long()[position // block_size]
        inside = (block >= 0) & (block < num_blocks)  # what points elsewhere is for the checker to find
        owned[block[inside], position[inside] % block_size] = True
    slots = owned[:, :, None, None].expand(k_cache.shape)
    return {"k": Array(k_cache, slots), "v": Array(v_cache, slots), "block_table": Array(block_table, used)}
