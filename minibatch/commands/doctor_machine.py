"""Memory, processors, disk, folders to write to, compilers, GPU: what this machine has for the course."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minibatch.commands.doctor_finding import PROBLEM, REMARK, Finding

GIB = 2**30
LEAST_MEMORY, LEAST_DISK = 4 * GIB, GIB  # free
CGROUP = Path("/sys/fs/cgroup")  # what a container or a hub allows
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
PROGRAM = (
    '#include <cmath>\n#include <vector>\nextern "C" double f() { return std::sqrt(std::vector<double>(4).size()); }\n'
)


def memory() -> Iterator[Finding]:
    """Main memory: all of it and what is free, or what a container leaves of it."""
    total, free = _memory()
    if total is None:
        yield Finding("memory", "this system does not say how much there is")
        return
    state = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= LEAST_MEMORY:
        yield Finding("memory", state)
        return
    cure = "shut down kernels that are no longer used (each keeps its model) and close other programs; "
    cure += "`--model tiny`, and notebooks without SmolLM2, do with 1 GiB"
    yield Finding("memory", f"{state}, less than {LEAST_MEMORY // GIB}: SmolLM2 in float32 gets tight", REMARK, cure)


def processors() -> Iterator[Finding]:
    """Cores that may be used, torch's threads and what settles them, and how busy the cores are."""
    import torch

    cores, threads = _cores(), torch.get_num_threads()
    state = f"{threads} of torch, on {cores:g} cores"
    if threads > max(1, round(cores)):
        cure = f"set OMP_NUM_THREADS={max(1, int(cores))} before Python starts; threads that queue for a core are slow"
        yield Finding("threads", state, REMARK, cure)
    else:
        yield Finding("threads", state)
    named = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    yield Finding("OpenMP", ", ".join(named) or "its defaults")
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        busy = load > 1.5 * cores
        cure = "wait, or end what keeps the cores busy; results stay right, measured seconds do not"
        yield Finding("load", f"{load:.1f} in the last minute", *((REMARK, cure) if busy else ()))


def folders() -> Iterator[Finding]:
    """Where things are kept: can that be written to, and is there space?"""
    import matplotlib

    from minibatch.model import smollm2

    cure = "set {} to a folder you can write to"
    places = {
        "model cache": (smollm2.cache_folder(), "MINIBATCH_CACHE"),
        "font cache": (Path(matplotlib.get_cachedir()), "MPLCONFIGDIR"),
        "temporary": (Path(tempfile.gettempdir()), "TMPDIR"),
    }
    for what, (folder, variable) in places.items():
        why = _refusal(folder)
        if why:
            yield Finding(what, f"{folder}: {why}", REMARK, cure.format(variable))
        else:
            yield Finding(what, str(folder))
    yield _kernel_cache()
    free = shutil.disk_usage(_nearest(smollm2.cache_folder())).free
    state, space = f"{free / GIB:.1f} GiB free for the caches", "free some, or set MINIBATCH_CACHE to another disk"
    yield Finding("disk", state, *((REMARK, space) if free < LEAST_DISK else ()))


def models() -> Iterator[Finding]:
    """SmolLM2, which is fetched once; and the embedded model answers a question."""
    from minibatch.build import build_engine
    from minibatch.model import load_model, smollm2

    path = smollm2.gguf_path()
    if path.exists():
        yield Finding("smollm2", f"{path}, {path.stat().st_size / 1e6:.0f} MB")
    else:
        cure = "where there is a network: `python -m minibatch models --fetch smollm2` (93 MB)"
        yield Finding("smollm2", "not fetched yet; what needs it would fetch it first", REMARK, cure)
    model = load_model("tiny")
    engine = build_engine(model, max_num_seqs=1)
    text = model.tokenizer.decode(list(engine.stream(model.request("doctor", "count to 5", max_new_tokens=32))))
    right = text == "1 2 3 4 5"
    cure = "the embedded model should count to 5: install torch again, and report this"
    yield Finding("tiny run", f"count to 5: {text}", *(() if right else (PROBLEM, cure)))


def compilers() -> Iterator[Finding]:
    """What notebook 08, lab 6 and native operations are compiled with, for a CPU; and CUDA, where there is a GPU."""
    import torch

    from minibatch.cuda.compilers import host_compiler, nvcc
    from minibatch.cuda.errors import KernelUnavailable

    part = "; only notebook 08, lab 6 and native operations need it"
    try:
        found = host_compiler()
    except KernelUnavailable as error:
        why, _, cure = str(error).partition(": ")
        yield Finding(
            "compiler", f"{why}{part}", REMARK, cure if sys.platform == "linux" else "use Linux, WSL 2 or Colab"
        )
    else:
        said = _compiles(found.path)
        state = f"{found.kind} {'.'.join(map(str, found.version))}, {found.path}"
        cure = "apt-get install g++ (or your system's C++ compiler with its standard library)"
        yield Finding("compiler", f"{state}: {said}{part}", REMARK, cure) if said else Finding("compiler", state)
    try:
        yield Finding("nvcc", nvcc().path)
    except KernelUnavailable:
        yield Finding("nvcc", "none (needed on a GPU only)")
    cards = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    yield Finding("GPU", ", ".join(cards) or "none that torch can use (none is needed)")


def _memory() -> tuple[int, int] | tuple[None, None]:
    """Bytes in all, bytes free."""
    total, free = _system_memory()
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    if total and limit and used is not None and limit < total:
        return limit, min(free, max(limit - used, 0))
    return total, free


def _system_memory() -> tuple[int, int] | tuple[None, None]:
    try:
        import psutil  # comes with ipykernel
    except ModuleNotFoundError:
        info = Path("/proc/meminfo")
        if not info.exists():
            return None, None
        sizes = {
            line.split(":")[0]: int(line.split()[1]) << 10 for line in info.read_text().splitlines() if ":" in line
        }
        return sizes["MemTotal"], sizes["MemAvailable"]
    found = psutil.virtual_memory()
    return found.total, found.available


def _cores() -> float:
    """Those that this process may use, by affinity and by quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return cores


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _refusal(folder: Path) -> str:
    """Why a folder cannot be written to, or ""."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"cannot be written to ({error.strerror})"


def _kernel_cache() -> Finding:
    from minibatch.cuda.cache import writable_folder
    from minibatch.cuda.errors import KernelUnavailable

    try:
        return Finding("kernel cache", str(writable_folder()))
    except KernelUnavailable as error:
        return Finding("kernel cache", str(error), REMARK, "set MINIBATCH_CACHE to a folder you can write to")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def _compiles(compiler: str) -> str:
    """What a compiler says to a small program that is right: "" if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-std=c++20", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(Path(folder) / "x.so")]
        done = subprocess.run(command, input=PROGRAM, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit code {done.returncode}"]
    return f"cannot compile a line ({lines[0].strip()})" if done.returncode else ""
