"""Find g++, clang++ and nvcc, and say in one error what is missing."""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from minibatch.cuda.errors import KernelUnavailable

OLDEST = {"g++": (12, 0), "clang++": (14, 0), "nvcc": (11, 8)}  # C++20 with constinit; sm_90
USUAL_TOOLKIT = "/usr/local/cuda"
VERSION = re.compile(r"(?:release |clang version |\) )(\d+)\.(\d+)")


@dataclass(frozen=True)
class Compiler:
    """A compiler that can be used: `kind` is "g++", "clang++" or "nvcc"; `banner` is what --version says."""

    path: str
    kind: str
    version: tuple[int, int]
    banner: str


def host_compiler(instead: str = "use MINIBATCH_KERNEL=torch") -> Compiler:
    """The compiler for a CPU: $CXX if it is set, else g++ or clang++ from the PATH. `instead`: what to do without."""
    if sys.platform != "linux":
        raise KernelUnavailable(f"C++ is compiled for the CPU on Linux only, this is {sys.platform}: {instead}")
    named = os.environ.get("CXX")
    candidates = [named] if named else ["g++", "clang++", *(f"clang++-{n}" for n in range(20, 13, -1))]
    return _first(tuple(candidates), "g++ 12 or clang++ 14", f"apt-get install g++, or set CXX, or {instead}")


def nvcc() -> Compiler:
    """NVIDIA's compiler: from $CUDA_HOME, $CUDA_PATH, the PATH, or a usual toolkit folder."""
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    usual = [USUAL_TOOLKIT, *sorted(glob.glob(f"{USUAL_TOOLKIT}-*"), reverse=True)]
    candidates = [f"{home}/bin/nvcc" for home in homes] + ["nvcc"] + [f"{home}/bin/nvcc" for home in usual]
    return _first(tuple(candidates), "nvcc", "set CUDA_HOME to the CUDA toolkit, or use another MINIBATCH_KERNEL")


def toolkit(compiler: Compiler) -> Path:
    """The toolkit an nvcc belongs to; the nvcc on the PATH may be a script that lies elsewhere."""
    shown = subprocess.run([compiler.path, "--dryrun", "x.cu"], capture_output=True, text=True).stderr
    found = re.search(r"^#\$ TOP=(.+)$", shown, re.MULTILINE)
    return Path(found[1]).resolve() if found else Path(compiler.path).resolve().parent.parent


def check_arch(compiler: Compiler, arch: str) -> None:
    """Refuse a GPU this nvcc cannot compile for; `arch` is "sm_90" and the like."""
    listed = subprocess.run([compiler.path, "--list-gpu-code"], capture_output=True, text=True).stdout.split()
    if listed and arch not in listed:
        version = ".".join(map(str, compiler.version))
        raise KernelUnavailable(
            f"nvcc {version} ({compiler.path}) cannot compile for {arch}, only for {', '.join(listed)}: "
            "install a CUDA toolkit that knows this GPU, or use MINIBATCH_KERNEL=torch"
        )


def _first(candidates: tuple[str, ...], wanted: str, advice: str) -> Compiler:
    """The first candidate that is there and not too old."""
    refused = []
    for candidate in dict.fromkeys(candidates):
        path = shutil.which(candidate)
        if path is None:
            refused.append(f"{candidate}: not there")
            continue
        found = _ask(path, os.stat(path).st_mtime_ns)
        if isinstance(found, Compiler):
            return found
        refused.append(found)
    raise KernelUnavailable(f"{wanted} not found (looked at {'; '.join(refused)}): {advice}")


@functools.lru_cache
def _ask(path: str, changed: int) -> Compiler | str:
    """What a program says it is, or why it cannot be used."""
    try:
        banner = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
    except OSError as error:
        return f"{path}: {error.strerror}"
    kind = "nvcc" if "nvcc" in banner or "Cuda" in banner else "clang++" if "clang" in banner else "g++"
    found = VERSION.search(banner)
    if found is None:
        return f"{path}: no version in what it says"
    version, oldest = (int(found[1]), int(found[2])), OLDEST[kind]
    if version < oldest:
        return f"{path}: {kind} {version[0]}.{version[1]} is older than {oldest[0]}.{oldest[1]}"
    return Compiler(path, kind, version, banner)
