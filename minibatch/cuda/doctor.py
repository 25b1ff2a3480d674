"""What is here for the kernels and what is missing, each missing thing with what to do."""

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from minibatch.cuda import ops
from minibatch.cuda.backends import BACKENDS, missing
from minibatch.cuda.cache import cache_folders, writable_folder
from minibatch.cuda.compilers import host_compiler, nvcc, toolkit
from minibatch.cuda.errors import BuildError, KernelUnavailable, LaunchError
from minibatch.cuda.scene import allowed, make_scene
from minibatch.cuda.simulated import KernelFault

FAILURES = (BuildError, KernelUnavailable, LaunchError, KernelFault, RuntimeError, ValueError)


def findings() -> Iterator[tuple[str, str]]:
    """(what, how it stands) of tools, hardware and the cache."""
    yield "torch", f"{torch.__version__}, {'CUDA ' + torch.version.cuda if torch.version.cuda else 'without CUDA'}"
    for what, find in (("host compiler", host_compiler), ("nvcc", nvcc)):
        yield what, _compiler(find)
    where = shutil.which("addr2line")
    yield "addr2line", where or "missing: the checker names no source lines without it; apt-get install binutils"
    yield "driver", driver()
    yield "cards", cards()
    yield "cache", _cache()


def try_backend(backend: str) -> str:
    """Run the operator once on a small scene, against float64; the first time, that builds a library.

    Returns "works", or why not: "missing: ..." for what has to be installed, "FAILS: ..." for what is here.
    """
    lacking = missing(backend)
    if lacking:
        return f"missing: {'; '.join(lacking)}"
    scene = make_scene((1, 17, 300), head_dim=64).to("cuda" if backend == "cuda" else "cpu")
    try:
        out = ops.paged_attention(*scene.arguments, backend=backend)
    except FAILURES as error:
        return f"FAILS: {error}"
    truth = scene.truth()
    right = ((out.double() - truth).abs() <= allowed(truth, out.dtype)).all()
    return "works" if right else "FAILS: its numbers are not those of float64"


def doctor() -> int:
    """Print all findings. Returns 1 if a backend fails, or one that needs no GPU is missing; else 0."""
    for what, standing in findings():
        print(f"{what:16} {standing}")
    bad = False
    for backend in BACKENDS[1:]:  # "auto" is one of the others
        standing = try_backend(backend)
        bad |= standing.startswith("FAILS") or (standing != "works" and backend != "cuda")
        print(f"{'backend ' + backend:16} {standing}")
    print("not OK" if bad else "OK")
    return int(bad)


def driver() -> str:
    """The newest CUDA that the driver of this machine runs, asked of the driver itself."""
    try:
        library, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return "missing: no libcuda.so.1; where there is an NVIDIA card, install its driver"
    error = library.cuDriverGetVersion(ctypes.byref(version))
    if error:
        return f"FAILS: libcuda.so.1 answers error {error}; is it as new as the kernel module?"
    return f"for CUDA {version.value // 1000}.{version.value % 1000 // 10} and older"


def cards() -> str:
    """Name, compute capability and memory of each GPU that torch sees."""
    if not torch.cuda.is_available():
        return "none that torch sees (none is needed: kernels run emulated)"
    every = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return "; ".join(f"{x.name}, sm_{x.major}{x.minor}, {x.total_memory / 2**30:.0f} GiB" for x in every)


def _compiler(find) -> str:
    try:
        found = find()
    except KernelUnavailable as error:
        return f"missing: {error}"
    version = ".".join(map(str, found.version))
    home = f", toolkit {toolkit(found)}" if found.kind == "nvcc" else ""
    return f"{found.kind} {version}, {found.path}{home}"


def _cache() -> str:
    try:
        writable_folder()
    except KernelUnavailable as error:
        return f"missing: {error}"
    libraries = [path for folder in cache_folders() if folder.is_dir() for path in Path(folder).glob("*.so")]
    size = sum(path.stat().st_size for path in libraries) / 2**20
    return f"{writable_folder()}, {len(libraries)} libraries, {size:.0f} MiB"
