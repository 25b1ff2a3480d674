"""What nvcc makes of the same source. Nothing here needs a GPU."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scenes import scene

from minibatch.cuda import compilers
from minibatch.cuda.build import HERE, build, compiler_output
from minibatch.cuda.errors import KernelUnavailable, LaunchError
from minibatch.cuda.library import load

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100")
USAGE = re.compile(
    r"entry function '(\w+)' for '\w+'\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads\n.*?Used (\d+) registers",
    re.DOTALL,
)
# Registers a thread, of bfloat16 and head_dim 128. An SM has 65,536: with 170 it holds 3 blocks of 128 threads.
CEILINGS = {"k1_thread": 255, "k2_warp": 64, "k3_block": 64, "k4_vector": 64, "k6_merge": 64, "cache_write": 64}
BY_GROUP = {1: 96, 2: 128, 4: 170, 8: 255}


def _missing():
    try:
        compilers.nvcc()
    except KernelUnavailable as error:
        return str(error)


pytestmark = pytest.mark.skipif(_missing() is not None, reason=str(_missing()))


@pytest.fixture(scope="module")
def outputs():
    """What nvcc says for each architecture; two compile at a time."""
    defines = {"SCALAR": "__nv_bfloat16", "HEAD_DIM": "128"}
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ARCHS, pool.map(lambda arch: compiler_output(build("cuda", defines, arch=arch)), ARCHS)))


@pytest.mark.parametrize("arch", ARCHS)
def test_no_kernel_spills_or_passes_its_ceiling(outputs, arch):
    found = {}
    for mangled, stores, loads, registers in USAGE.findall(outputs[arch]):
        name, group = re.search(r"(k\d_[a-z]+|cache_write)I\w*?Li128E(?:Li(\d)E)?", mangled).groups()
        assert (stores, loads) == ("0", "0"), mangled
        found[name, group] = int(registers)
        if name == "k7_async" and arch == "sm_75":  # has no asynchronous copies
            continue
        assert int(registers) <= (BY_GROUP[int(group)] if group else CEILINGS[name]), (name, group, registers)
    assert len(found) == len(CEILINGS) + 3 * len(BY_GROUP)


def test_rungs_from_4_on_load_sixteen_bytes_at_once():
    command = [compilers.nvcc().path, "-std=c++17", "-ptx", "-arch=compute_90", f"-I{HERE}", "-o", "-"]
    shape = ["-DSCALAR=__half", "-DHEAD_DIM=64"]
    ptx = subprocess.run([*command, *shape, HERE / "paged_attention.cu"], capture_output=True, text=True, check=True)
    entries = re.split(r"\.entry _Z\d+", ptx.stdout)[1:]  # each begins with the name of its kernel
    wide = {entry[:2] for entry in entries if "ld.global.nc.v4" in entry}
    assert wide == {"k4", "k5", "k6", "k7", "ca"} and {entry[:2] for entry in entries} - wide == {"k1", "k2", "k3"}
    assert {entry[:2] for entry in entries if "cp.async" in entry} == {"k7"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and so a driver")
def test_the_library_opens_and_says_that_there_is_no_driver():
    library = load("cuda", torch.bfloat16, 128, "sm_90")
    given = scene([3], head_dim=128, dtype=torch.bfloat16)
    with pytest.raises(LaunchError, match="CUDA error 35 at launch, .*NVIDIA driver"):
        library.attention(*given.arguments)


def test_the_toolkit_of_a_wrapped_nvcc_is_found():
    assert (compilers.toolkit(compilers.nvcc()) / "include" / "cuda_runtime.h").exists()
