"""Small kernels for the tests of the CPU layer: compiled, launched by name."""

import ctypes
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from minibatch.cuda import simulated
from minibatch.cuda.build import build
from minibatch.cuda.simulated import Array, KernelFault, Run

HERE = Path(__file__).parent
HEAD = """\
#include "gpu.h"
#define RUN(kernel, grid, block, dynamic)                                   \\
  extern "C" void run_##kernel(float* out, const float* in, int* count) {   \\
    launch(#kernel, grid, block, dynamic, nullptr, kernel, out, in, count); \\
  }
"""

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="g++ 12 or clang++ 14 is needed to emulate kernels"
)


class Kernels:
    """A file of this folder, built. Every kernel takes (float* out, const float* in, int* count) and has a RUN line."""

    def __init__(self, name: str, folder: Path, kind: str = "checked"):
        self.file = HERE / name
        source = folder / "kernels.cpp"
        source.write_text(f'{HEAD}#include "{self.file}"\n')
        self.path = build(kind, source=source, include=[self.file])
        self.handle = ctypes.CDLL(str(self.path))

    def line(self, marker: str) -> int:
        """The line that ends in `// marker`."""
        lines = [i for i, text in enumerate(self.file.read_text().splitlines(), 1) if text.endswith(f"// {marker}")]
        assert len(lines) == 1, f"{marker}: {lines}"
        return lines[0]

    def run(self, name: str, arrays: Mapping[str, Array], how: Run | None = None) -> Run:
        """Launch; the run comes back with its reports whether or not there are any."""
        how = how or Run()

        def launch(at: Mapping[str, int]) -> None:
            pointers = (ctypes.c_void_p(at[array]) for array in ("out", "in", "count"))
            getattr(self.handle, f"run_{name}")(*pointers)

        try:
            simulated.run(self.handle, self.path, arrays, launch, how)
        except KernelFault as fault:
            assert fault.run is how
        return how


def arrays(elements: int = 64, out: torch.Tensor | None = None) -> dict[str, Array]:
    """`out`, not written; `in`, 0, 1, 2, ...; `count`, one zero that may be updated."""
    return {
        "out": Array(torch.zeros(elements) if out is None else out, written=False),
        "in": Array(torch.arange(float(elements))),
        "count": Array(torch.zeros(1, dtype=torch.int32), writable=True),
    }
