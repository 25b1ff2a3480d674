"""The same operator bound in C++ by TORCH_LIBRARY, as a lesson; the engine uses `ops`, which binds it in Python.

    from minibatch.cuda import binding

    attend = binding.load()      # torch.ops.minibatch_binding.paged_attention
    out = attend(q, k_cache, v_cache, block_table, seq_of, context_len, scale)

What it costs: torch's C++ headers make a build of 10 to 20 seconds, and the result fits one version of torch. What it
gains: no Python between torch and the kernel. `op.cpp` is the whole of it; this file builds it.
"""

import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from minibatch.cuda.backends import architecture
from minibatch.cuda.build import HERE, build
from minibatch.cuda.cache import writable_folder
from minibatch.cuda.compilers import host_compiler, nvcc, toolkit
from minibatch.cuda.errors import KernelUnavailable
from minibatch.cuda.library import SCALARS

DTYPE, HEAD_DIM = torch.float32, 64
SOURCE = Path(__file__).parent / "op.cpp"


@functools.cache
def load(device: str = "cpu") -> Callable[..., torch.Tensor]:
    """The operator for tensors on "cpu" (emulated kernels) or "cuda", built now if need be; one of them a process.

    Raises KernelUnavailable where a compiler, or ninja, is missing.
    """
    cuda = device == "cuda"
    defines = {"SCALAR": SCALARS[DTYPE], "HEAD_DIM": str(HEAD_DIM)}
    kernels = build("cuda", defines, arch=architecture()) if cuda else build("fast", defines)
    os.environ.setdefault("CXX", host_compiler().path)
    if cuda:  # where nvcc on the PATH is a script, torch would look for the toolkit around the script
        os.environ.setdefault("CUDA_HOME", str(toolkit(nvcc())))
    _find_ninja()
    from torch.utils import cpp_extension  # looks at CUDA_HOME when it is imported

    cpp_extension.load(
        name="minibatch_binding",
        sources=[str(SOURCE)],
        extra_include_paths=[str(HERE)],
        extra_cflags=["-std=c++20", "-O2", *(["-DWITH_CUDA"] if cuda else [])],
        extra_ldflags=[str(kernels), f"-Wl,-rpath,{kernels.parent}"],
        build_directory=str(_folder(kernels)),
        with_cuda=cuda,
        is_python_module=False,
    )
    _register_fake()
    return torch.ops.minibatch_binding.paged_attention


def _register_fake() -> None:
    """Shape and type of the result, for torch.compile and the like: it runs the operator without data."""

    @torch.library.register_fake("minibatch_binding::paged_attention")
    def _(q, k_cache, v_cache, block_table, seq_of, context_len, scale):
        return torch.empty_like(q)


def _find_ninja() -> None:
    """cpp_extension starts `ninja` from the PATH; a package of that name puts it beside Python."""
    beside = str(Path(sys.executable).parent)
    if shutil.which("ninja") is None and shutil.which("ninja", path=beside):
        os.environ["PATH"] += os.pathsep + beside
    if shutil.which("ninja") is None:
        raise KernelUnavailable("ninja not found: torch.utils.cpp_extension builds with it; pip install ninja")


def _folder(kernels: Path) -> Path:
    """Another one for other kernels and another torch; whether `op.cpp` has changed, cpp_extension sees for itself."""
    key = hashlib.sha256(f"{kernels.name} {torch.__version__}".encode()).hexdigest()[:16]
    folder = writable_folder() / f"binding-{key}"
    folder.mkdir(exist_ok=True)
    return folder
