"""Huge pages for weights and KV cache, where Linux gives them. Explained in notebook 01.

A decode step walks through all weights once. In pages of 4 KiB, 538 MB are 131,000 pages, far more than the
processor remembers translations for, so it looks up the page table all the time; in pages of 2 MiB they are
257. Linux can put memory that is already filled into huge pages (madvise with MADV_COLLAPSE, since 6.1).
Elsewhere nothing happens: it is a matter of speed alone.
"""

import ctypes
import re
import sys
from pathlib import Path

import torch

HUGE = 2 << 20  # bytes
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25  # linux/mman.h; 25 is not in Python's mmap yet
ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0\s*(?:\[heap\])?$")


def use_huge_pages() -> int:
    """Put all memory this process has filled itself into huge pages; returns the bytes that got them."""
    maps = Path("/proc/self/maps")
    regions = map(ANONYMOUS.match, maps.read_text().splitlines()) if maps.exists() else ()
    return sum(_advise(int(found[1], 16), int(found[2], 16), MADV_COLLAPSE) for found in regions if found)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """torch.zeros, on a CPU in huge pages from the start."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if device.type == "cpu":
        _advise(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, MADV_HUGEPAGE)
    return tensor.zero_()


def _advise(start: int, stop: int, advice: int) -> int:
    """madvise for the whole huge pages between two addresses; returns how many bytes, 0 where it is refused."""
    start, stop = -(-start // HUGE) * HUGE, stop // HUGE * HUGE
    if sys.platform != "linux" or stop <= start:
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return stop - start if madvise(start, stop - start, advice) == 0 else 0
