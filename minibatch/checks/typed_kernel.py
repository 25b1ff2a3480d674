"""A kernel with a hole, and the lines of CUDA C++ somebody typed: compiled together and run under the checker."""

import ctypes
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from minibatch.checks.base import CheckFailed
from minibatch.cuda import simulated
from minibatch.cuda.build import build
from minibatch.cuda.cache import writable_folder
from minibatch.cuda.errors import BuildError, KernelUnavailable
from minibatch.cuda.reports import Report, reports
from minibatch.cuda.simulated import Array, KernelFault

HOLE = "  // YOUR LINES"
MOST = 330  # characters of a message
FOLDERS = re.compile(r"/\S*/(?=kernel-)")
PLACES = re.compile(r"\b(your lines|the kernel):(\d+)(:\d+)?")


@dataclass(frozen=True)
class Kernel:
    """`source` is CUDA C++ with HOLE on a line of its own; `launch` is the host's line, with `a`, the arrays, and `n`,
    the numbers of `run`."""

    source: str
    launch: str

    def run(self, lines: str, arrays: Mapping[str, Array], numbers: Sequence[int]) -> torch.Tensor:
        """The first array after a launch. Raises CheckFailed, in one line, for what compiler or checker object to."""
        handle, path = self._library(lines)

        def launch(at: Mapping[str, int]) -> None:
            pointers = (ctypes.c_void_p * len(arrays))(*(at[name] for name in arrays))
            handle.run(pointers, (ctypes.c_int * len(numbers))(*numbers))

        failed = None
        try:
            simulated.run(handle, path, arrays, launch, simulated.Run())
        except KernelFault as fault:
            failed = CheckFailed(in_a_line(reports(fault.run)))
        if failed:
            raise failed
        return next(iter(arrays.values())).tensor

    def _library(self, lines: str) -> tuple[ctypes.CDLL, Path]:
        failed = None
        try:
            return _built(self._whole(lines))
        except BuildError as error:
            failed = CheckFailed(on_one_line(f"it does not compile: {str(error).splitlines()[0]}"))
        except KernelUnavailable as error:
            failed = CheckFailed(on_one_line(f"this check needs a C++ compiler: {error}"))
        raise failed  # outside the except block, or a traceback would show both errors

    def _whole(self, lines: str) -> str:
        before, after = self.source.split(HOLE)
        first = self.source[: self.source.index(HOLE)].count("\n") + 1
        typed = f'#line 1 "your lines"\n{lines}\n#line {first + 1} "the kernel"'
        host = f'extern "C" void run(void** a, const int* n) {{ {self.launch} }}'
        return f'#include "kernels/common.cuh"\n#line 1 "the kernel"\n{before}{typed}{after}\n{host}\n'


@lru_cache
def _built(text: str) -> tuple[ctypes.CDLL, Path]:
    # In a stable place, for a source's name is part of what a library is known by.
    source = writable_folder() / f"typed-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
    source.write_text(text, encoding="utf-8")
    path = build("checked", source=source)
    return ctypes.CDLL(str(path)), path


def in_a_line(found: list[Report]) -> str:
    """The first of the checker's reports, and how many more there are."""
    first = found[0]
    where = f" at line {first.place.line} of {first.place.path.rpartition('/')[2]}" if first.place.line else ""
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    return on_one_line(f"{first.kind}{where}{more}: {first.sentence}")


def on_one_line(text: str) -> str:
    """Without line breaks and folders, places in words, and not too long for a message."""
    text = PLACES.sub(r"line \2 of \1", FOLDERS.sub("", " ".join(text.split())))
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
