"""What a kernel computes on the CPU layer: warp functions, barriers, atomics, conversions, and the order of threads."""

import subprocess
from pathlib import Path

import pytest
import torch
from compiled_kernels import Kernels, arrays, needs_compiler

from minibatch.cuda import compilers
from minibatch.cuda.reports import describe, reports
from minibatch.cuda.simulated import Array, Run

pytestmark = needs_compiler

LANES = torch.arange(64) % 32
WARPS = torch.arange(64) // 32 * 32
IN = torch.arange(64.0)
EXPECTED = {
    "shfl": WARPS + 5,
    "shfl_each": WARPS + LANES * 7 % 32,
    "shfl_width": torch.arange(64) // 8 * 8 + 1,
    "shfl_up": torch.where(LANES >= 3, IN - 3, IN),
    "shfl_up_width": torch.where(LANES % 8 >= 3, IN - 3, IN),
    "shfl_down": torch.where(LANES < 29, IN + 3, IN),
    "shfl_down_width": torch.where(LANES % 8 < 5, IN + 3, IN),
    "shfl_xor": torch.arange(64) ^ 5,
    # A lane of a later group is out of reach, one of an earlier group is not.
    "shfl_xor_width": torch.where((LANES ^ 12) < LANES // 8 * 8 + 8, torch.arange(64) ^ 12, torch.arange(64)),
    "shfl_double": (torch.arange(64) ^ 1) + 0.25,
    "shfl_int64": LANES ^ 1,
    "ballot": torch.full((64,), 11),
    "any": torch.where(WARPS == 32, 1, 0),
    "all": torch.where(WARPS == 0, 1, 0),
    "half_ballot": torch.full((64,), 4),
    "bits": torch.full((64,), 4 + 4 + 31),
    "functions": torch.full((64,), 1 + 0 + 0.5 + 0.25 + 1 + 3),
}


@pytest.fixture(scope="module", params=["fast", "checked"])
def kernels(request, tmp_path_factory) -> Kernels:
    return Kernels("runtime.cuh", tmp_path_factory.mktemp("runtime"), request.param)


def launch(kernels: Kernels, name: str, out: torch.Tensor, given: torch.Tensor | None = None, **how: object):
    """Run into `out`; returns the counters."""
    count = torch.zeros(8, dtype=torch.int32)
    given = IN if given is None else given
    them = {"out": Array(out, writable=True), "in": Array(given), "count": Array(count, writable=True)}
    run = kernels.run(name, them, Run(**how))
    assert len(run.reports) == 0, describe(run)
    return count


@pytest.mark.parametrize("backwards", [False, True], ids=["forward", "reversed"])
@pytest.mark.parametrize("name", EXPECTED)
def test_warp_functions_and_arithmetic(kernels, name, backwards):
    out = torch.empty(64)
    launch(kernels, name, out, reversed=backwards)
    assert out.tolist() == EXPECTED[name].tolist()


@pytest.mark.parametrize("backwards", [False, True], ids=["forward", "reversed"])
def test_lanes_far_ahead_do_not_spoil_a_shuffle(kernels, backwards):
    out = torch.empty(64)
    launch(kernels, "mixed_masks", out, reversed=backwards)
    assert out[:4].tolist() == [1 + 20, 0 + 30, 2 + 10, 3 + 0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_barriers_and_dynamic_shared_memory(kernels, threads):
    out = torch.zeros(64)
    launch(kernels, "block_sum", out, threads=threads)
    assert out.tolist() == [2016 + 64 * block for block in range(64)]


def test_indices_of_threads_and_blocks(kernels):
    out = torch.zeros(64)
    launch(kernels, "indices", out)
    block, thread = torch.arange(64) // 4, torch.arange(64) % 4
    x, y, z = block % 2, block // 2 % 4, block // 8
    assert torch.allclose(out, 100 * x + 10 * y + z + 0.1 * (thread % 2) + 0.01 * (thread // 2))


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics(kernels, threads):
    out = torch.zeros(64)
    count = launch(kernels, "atomics", out, threads=threads)
    assert out[0] == 4 * 2016
    assert count.tolist() == [256, 63, -63, -512, 7, 9, 0, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_deadlock_is_told_and_not_waited_for(kernels, threads):
    (report,) = reports(kernels.run("stuck", arrays(), Run(threads=threads)))
    assert report.kind == "deadlock"
    lines = [line.strip() for line in report.sentence.splitlines()]
    assert lines[0].startswith("No thread of block (") and lines[0].endswith(",0,0) can go on:")
    assert lines[1].startswith("threads 0 to 15: in __shfl_xor_sync with mask 0xffffffff at runtime.cuh:")
    assert lines[2].startswith("threads 16 to 63: in __syncthreads at runtime.cuh:")


@pytest.mark.parametrize("threads", [1, 3])
def test_an_assertion_ends_the_launch_and_not_the_process(kernels, threads):
    (report,) = reports(kernels.run("asserts", arrays(), Run(threads=threads)))
    assert report.kind == "assertion" and "assert(threadIdx.x + blockIdx.x < 68) failed" in report.sentence


def test_order_of_threads_and_blocks(kernels):
    out = torch.zeros(256)
    launch(kernels, "order", out)
    first, second = out.clone().view(2, 2, 64)
    one_block = torch.arange(64.0)
    assert torch.equal(first, torch.stack([one_block, 128 + one_block]))
    assert torch.equal(second, first + 64)
    launch(kernels, "order", out, reversed=True)
    assert torch.equal(out[:128].view(2, 64), first.flip(0, 1))
    assert torch.equal(out[128:].view(2, 64), second.flip(0, 1))


def test_every_half_becomes_the_float_torch_makes_of_it(kernels):
    halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    out = torch.empty(1 << 16)
    launch(kernels, "from_half", out, halves)
    assert same(out, halves.float())
    back = torch.empty(1 << 16, dtype=torch.float16)
    launch(kernels, "to_half", back, out)
    assert same(back, halves)


def test_every_bfloat16_becomes_the_float_torch_makes_of_it(kernels):
    brains = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    out = torch.empty(1 << 16)
    launch(kernels, "from_bfloat16", out, brains)
    assert same(out, brains.float())
    back = torch.empty(1 << 16, dtype=torch.bfloat16)
    launch(kernels, "to_bfloat16", back, out)
    assert same(back, brains)


@pytest.mark.parametrize("kind, dtype", [("to_half", torch.float16), ("to_bfloat16", torch.bfloat16)])
def test_rounding_is_that_of_torch(kernels, kind, dtype):
    """Half way between two neighbours, a bit less and a bit more, for every pair of neighbours; then anything."""
    every = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    middle = (every[:-1].double() + every[1:].double()).div(2).float()
    middle = torch.cat([middle, middle[:1]]).nan_to_num(0.0)
    generator = torch.Generator().manual_seed(0)
    anything = torch.randint(-(1 << 31), 1 << 31, (1 << 16,), generator=generator).to(torch.int32).view(torch.float32)
    inputs = [
        torch.cat([middle, -middle]),
        torch.cat([middle.nextafter(torch.tensor(0.0)), middle.nextafter(torch.tensor(1e38))]),
        anything,
    ]
    for given in inputs:
        out = torch.empty(1 << 16, dtype=dtype)
        launch(kernels, kind, out, given.contiguous())
        assert same(out, given.to(dtype))


def test_pairs_and_vectors(kernels):
    out = torch.zeros(16, 4)
    launch(kernels, "pairs", out, IN / 7)
    x = IN[:16] / 7
    expected = [x.half(), (2 * x).half(), x.bfloat16(), (2 * x).bfloat16()]
    assert torch.equal(out, torch.stack([column.float() for column in expected], 1))


def test_portable_fiber_switch(tmp_path):
    """The version for other processors: the same kernel, the layer built with SIMT_UCONTEXT."""
    simt = Path(compilers.__file__).parent / "simt"
    (tmp_path / "sum.cpp").write_text(PORTABLE)
    compiler = compilers.host_compiler()
    gnu = ["-fno-extern-tls-init", "-fno-gnu-unique"] if compiler.kind == "g++" else []
    command = [compiler.path, "-std=c++20", "-O1", "-DSIMT_UCONTEXT", "-fno-strict-aliasing", *gnu, f"-I{simt.parent}"]
    sources = [str(simt / f"{name}.cpp") for name in ("run", "warp", "fiber", "report", "atomic")]
    program = str(tmp_path / "sum")
    subprocess.run([*command, *sources, str(tmp_path / "sum.cpp"), "-o", program, "-pthread", "-ldl"], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["496", "528", "560"]


PORTABLE = """
#include "gpu.h"
__global__ void sum(float* out) {
  __shared__ float warps[4];
  float x = threadIdx.x % 32 + blockIdx.x;
  for (int k = 16; k; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = (warps[0] + warps[1] + warps[2] + warps[3]) / 4;
}
int main() {
  float out[3];
  launch("sum", dim3(3), dim3(128), 0, nullptr, sum, out);
  for (float x : out) std::printf("%g ", x);
}
"""


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, NaN to NaN, and zeros of the same sign."""
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())
