"""Run a launch on the CPU layer, and bring back what it found. The C side is simt/simt_api.h.

For a checked library each array is copied into a larger buffer with red zones on both sides, and the checker is told
which elements hold something.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

# Bytes on each side, where nothing may be read or written. As far as a 16-bit index of float32 can miss: if it reached
# a neighbour, what is said of it would depend on where the allocator has put that one.
RED_ZONE = 2**17
LINE = 64  # copies keep their address modulo this, so that what is misaligned stays so

REPORT = np.dtype(
    [
        *((name, "i4") for name in ("kind", "operation")),
        *((name, "u4") for name in ("launch", "block", "thread", "other_block", "other_thread")),
        *((name, "i4") for name in ("other_operation", "array")),
        *(("size", "u4"), ("offset", "i8"), ("pc", "u8"), ("other_pc", "u8"), ("mask", "u4"), ("line", "u4")),
        *(("count", "u8"), ("name", "S96"), ("other_name", "S96")),
    ],
    align=True,
)
ACCESS = np.dtype(
    [
        *(("offset", "i8"), ("pc", "u4"), ("block", "u4"), ("launch", "u2"), ("thread", "u2")),
        *(("operation", "u1"), ("size", "u1"), ("array", "i2")),
    ],
    align=True,
)
LAUNCH = np.dtype([("name", "S64"), ("grid", "u4", 3), ("block", "u4", 3), ("dynamic_bytes", "u4")], align=True)
ARRAY = np.dtype(
    [("name", "S64"), ("bytes", "u8"), ("element_bytes", "u4"), ("shared", "u1"), ("writable", "u1")], align=True
)


@dataclass(frozen=True)
class Array:
    """A tensor a kernel gets. `written` says which elements hold something: all (True), none (False: the kernel is to
    write them), or those of a mask of its shape."""

    tensor: torch.Tensor
    written: torch.Tensor | bool = True
    writable: bool = False


@dataclass
class Run:
    """How to run, and what came of it. Trace, launches and reports are numpy records (see the types above)."""

    threads: int = 1  # of the operating system, in a fast library
    reversed: bool = False  # the order in which CUDA threads and blocks take turns
    trace_limit: int = 0  # accesses to record, in a checked library; 0: none
    library: Path | None = None
    reports: np.ndarray = field(default_factory=lambda: np.empty(0, REPORT))
    accesses: np.ndarray = field(default_factory=lambda: np.empty(0, ACCESS))
    launches: np.ndarray = field(default_factory=lambda: np.empty(0, LAUNCH))
    arrays: np.ndarray = field(default_factory=lambda: np.empty(0, ARRAY))
    dropped: int = 0  # accesses beyond the limit
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of arrays without gaps, to name elements


class KernelFault(RuntimeError):
    """The checker found something. `run.reports` has it as records; the message, in words."""

    def __init__(self, run: Run):
        self.run = run
        super().__init__(_in_words(run))


def run(
    handle: ctypes.CDLL,
    path: Path,
    arrays: Mapping[str, Array],
    launch: Callable[[Mapping[str, int]], None],
    how: Run,
) -> None:
    """Reset the layer, hand over the arrays, launch, read back. Raises KernelFault if there is a report."""
    handle.simt_reset(how.threads, int(how.reversed))
    copies = {}
    if handle.simt_is_checked():
        copies = {name: _hand_over(handle, name, array) for name, array in arrays.items()}
        handle.simt_trace(ctypes.c_size_t(how.trace_limit))
    launch({name: copies.get(name, array.tensor).data_ptr() for name, array in arrays.items()})
    how.library = path
    how.shapes = {name: tuple(a.tensor.shape) for name, a in arrays.items() if a.tensor.is_contiguous()}
    how.reports = _records(handle.simt_reports, REPORT)
    how.accesses = _records(handle.simt_trace_records, ACCESS)
    how.launches, how.arrays = _records(handle.simt_launches, LAUNCH), _records(handle.simt_arrays, ARRAY)
    handle.simt_trace_dropped.restype = ctypes.c_uint64
    how.dropped = handle.simt_trace_dropped()
    for name, copy in copies.items():
        if _is_output(arrays[name]):
            tensor = arrays[name].tensor
            tensor.copy_(copy.as_strided(tensor.shape, tensor.stride(), copy.storage_offset()))
    if len(how.reports):
        raise KernelFault(how)


def _is_output(array: Array) -> bool:
    return array.writable or array.written is False


def _hand_over(handle: ctypes.CDLL, name: str, array: Array) -> torch.Tensor:
    """Copy an array between red zones and register it. Returns the flat copy, gaps of a view included."""
    tensor = array.tensor
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    raw = torch.zeros(extent * tensor.element_size() + 2 * RED_ZONE + 2 * LINE, dtype=torch.uint8)
    start = RED_ZONE + (tensor.data_ptr() - raw.data_ptr() - RED_ZONE) % LINE
    flat = raw[start : start + extent * tensor.element_size()].view(tensor.dtype)
    flat.copy_(tensor.as_strided((extent,), (1,)))
    bytes_, writable = ctypes.c_size_t(flat.nbytes), int(_is_output(array))
    every = array.written is True and tensor.numel() == extent
    at = ctypes.c_void_p(flat.data_ptr())
    index = handle.simt_array(name.encode(), at, bytes_, tensor.element_size(), writable, int(every))
    if not every and array.written is not False:
        held = torch.zeros(extent, dtype=torch.bool)
        held.as_strided(tensor.shape, tensor.stride()).copy_(torch.as_tensor(array.written))
        edges = np.flatnonzero(np.diff(held.numpy().astype(np.int8), prepend=0, append=0))
        for first, end in edges.reshape(-1, 2).tolist():
            handle.simt_mark(index, ctypes.c_size_t(first), ctypes.c_size_t(end - first), 1)
    return flat


def _records(function: Callable, dtype: np.dtype) -> np.ndarray:
    """Copy what a function `size_t f(const T** first)` points at."""
    first = ctypes.c_void_p()
    function.restype = ctypes.c_size_t
    count = function(ctypes.byref(first))
    if not count:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(first.value), dtype).copy()


def _in_words(run: Run) -> str:
    from minibatch.cuda.reports import describe  # only when there is something to say

    return describe(run)
