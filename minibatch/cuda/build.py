"""Compile a library of kernels into the user's cache, once for each source, set of flags, compiler and architecture.

Nothing is built on import. Safe when two processes build at once (one compiles, the other waits), when a build is
killed (a library appears whole or not at all, and the lock dies with its holder), and when the home is read-only.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from minibatch.cuda.compilers import Compiler, check_arch, host_compiler, nvcc
from minibatch.cuda.errors import BuildError, KernelUnavailable

HERE = Path(__file__).parent
KINDS = ("fast", "checked", "cuda")
SOURCES = {"cuda": HERE / "paged_attention.cu"}
DYNAMIC = re.compile(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]")
log = logging.getLogger(__name__)

# Why each flag of the CPU builds is there: simt/README.md.
CPU = ["-std=c++20", "-fPIC", "-g1", "-gdwarf-4", "-Wall", "-Wno-unknown-pragmas", "-fno-strict-aliasing"]
CPU_GNU = ["-fno-extern-tls-init", "-fno-gnu-unique"]  # g++ only
INSTRUMENTED = ["-O1", "-fsanitize=thread", "-fsanitize=bounds"]
CHECKED_GNU = ["-fno-tree-sra"]
CHECKED_CLANG = ["-mllvm", "-tsan-instrument-read-before-write=1"]
LINK = ["-shared", "-Wl,-Bsymbolic", "-pthread", "-ldl"]
NVCC = ["-std=c++17", "-O3", "-lineinfo", "-Xcompiler", "-fPIC", "-Xptxas", "-v"]  # -v: registers and spills


def build(
    kind: str,
    defines: Mapping[str, str] | None = None,
    source: Path | None = None,
    include: Iterable[Path] = (),
    arch: str | None = None,
) -> Path:
    """The shared library of one source file, compiled now if it is not in the cache.

    `kind` is "fast" or "checked" (for the CPU, with g++ or clang++) or "cuda" (with nvcc, for the `arch` "sm_90" and
    the like). `source` is paged_attention by default; `include` names files it includes from outside this folder, so
    that a change of theirs is seen. Raises KernelUnavailable where a compiler is missing, BuildError where it refuses.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
    source = source or SOURCES.get(kind, HERE / "paged_attention_cpu.cpp")
    options = [f"-I{HERE}", *(f"-D{name}={value}" for name, value in sorted((defines or {}).items()))]
    if kind == "cuda":
        return _build_cuda(source, options, include, arch)
    return _build_cpu(kind, source, options, include)


def compiler_output(library: Path) -> str:
    """What the compiler said when it made a library; nvcc counts registers and spills of each kernel there."""
    return library.with_suffix(".txt").read_text()


def cache_folders() -> list[Path]:
    """Where libraries are kept: $MINIBATCH_CACHE, else the system's place for caches, else a folder for temporary
    files. The first that can be written to is used."""
    named = os.environ.get("MINIBATCH_CACHE")
    if named:
        return [Path(named) / "kernels"]
    spare = Path(tempfile.gettempdir()) / f"minibatch-kernels-{os.getuid()}"
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:  # gpu_check runs where there is little but torch and nvcc
        return [spare]
    return [user_cache_path("minibatch", appauthor=False) / "kernels", spare]


def _build_cuda(source: Path, options: list[str], include: Iterable[Path], arch: str | None) -> Path:
    if arch is None:
        raise ValueError("arch=None: a CUDA library is built for an architecture, such as sm_90")
    compiler = nvcc()
    check_arch(compiler, arch)
    command = [compiler.path, *NVCC, f"-arch={arch}", *options]

    def make(work: Path) -> Path:
        said = _run([*command, "-shared", str(source), "-o", str(work / "made.so")])
        (work / "made.txt").write_text(said)
        return work / "made.so"

    key = _key(compiler, command, [source, *include, *_files("*.h", "kernels/*")])
    return _cached(f"{source.stem}-{arch}-{key}.so", make)


def _build_cpu(kind: str, source: Path, options: list[str], include: Iterable[Path]) -> Path:
    compiler = host_compiler()
    gnu = compiler.kind == "g++"
    base = [compiler.path, *CPU, *(CPU_GNU if gnu else [])]
    kernel = [*base, *(["-O2"] if kind == "fast" else INSTRUMENTED), *options]
    if kind == "checked":
        kernel += CHECKED_GNU if gnu else CHECKED_CLANG
    runtime = _runtime(kind, compiler, [*base, "-O2", *(["-DSIMT_CHECK"] if kind == "checked" else [])])
    link = [*LINK, *_dynamic_names([source, *include])]

    def make(work: Path) -> Path:
        said = _run([*kernel, "-c", str(source), "-o", str(work / "kernel.o")])
        said += _run([compiler.path, str(work / "kernel.o"), str(runtime), *link, "-o", str(work / "made.so")])
        (work / "made.txt").write_text(said)
        return work / "made.so"

    key = _key(compiler, [*kernel, *link, runtime.name], [source, *include, *_files("*.h", "kernels/*", "simt/*.h")])
    return _cached(f"{source.stem}-{kind}-{key}.so", make)


def _dynamic_names(files: Iterable[Path]) -> list[str]:
    """Dynamic shared memory has the name the kernel gives it; to the layer in simt/ each is another name for smem."""
    names = {name for file in files for name in DYNAMIC.findall(file.read_text())} - {"smem"}
    return [f"-Wl,--defsym={name}=smem" for name in sorted(names)]


def _runtime(kind: str, compiler: Compiler, command: list[str]) -> Path:
    """The layer under the kernels as one object file, never instrumented itself."""
    sources = _files("simt/*.cpp")

    def make(work: Path) -> Path:
        objects = [work / f"{source.stem}.o" for source in sources]
        _run_all([[*command, "-c", str(source), "-o", str(made)] for source, made in zip(sources, objects)])
        _run([compiler.path, "-r", "-nostdlib", *map(str, objects), "-o", str(work / "runtime.o")])
        return work / "runtime.o"

    return _cached(f"simt-{kind}-{_key(compiler, command, [*sources, *_files('simt/*.h')])}.o", make)


def _files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in HERE.glob(pattern) if path.is_file())


def _key(compiler: Compiler, command: Iterable[str], files: Iterable[Path]) -> str:
    """A name for one outcome: other sources, flags, compiler or machine give another one."""
    digest = hashlib.sha256("\0".join([compiler.banner, platform.machine(), *command]).encode())
    for path in files:
        digest.update(f"\0{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def _cached(name: str, make: Callable[[Path], Path]) -> Path:
    """The file of this name, made if no cache folder has it. `make` gets a folder to work in and returns its file."""
    for folder in cache_folders():
        if (folder / name).exists() and _is_ours(folder):
            return folder / name
    folder = writable_folder()
    path = folder / name
    with _lock(folder / f"{name}.lock"):
        if path.exists():  # made by the process that held the lock
            return path
        for left_over in folder.glob(f"{name}.tmp-*"):  # of builds that were killed: who holds the lock is alone
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{name}.tmp-") as work:
            made = make(Path(work))
            if made.with_suffix(".txt").exists():
                os.replace(made.with_suffix(".txt"), path.with_suffix(".txt"))
            os.replace(made, path)  # whole or not at all, and last
    return path


def writable_folder() -> Path:
    """The first of `cache_folders` that can be written to and is ours."""
    refused = []
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if not _is_ours(folder):
                raise PermissionError(None, "belongs to somebody else")
        except OSError as error:
            refused.append(f"{folder}: {error.strerror}")
            continue
        if refused:
            log.warning("kernels are kept in %s (%s)", folder, "; ".join(refused))
        return folder
    raise KernelUnavailable(
        f"no folder to keep compiled kernels in ({'; '.join(refused)}): set MINIBATCH_CACHE to one you can write to"
    )


def _is_ours(folder: Path) -> bool:
    """Code is loaded from nowhere another user could have put it. What root installs is trusted."""
    return folder.stat().st_uid in (os.getuid(), 0)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time. The system lets go of it when the holder ends, however it ends."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that builds %s", path.stem)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks: two may build, the last to finish is kept
            log.info("%s: no lock (%s)", path, error.strerror)
        yield


def _run(command: list[str]) -> str:
    return _run_all([command])[0]


def _run_all(commands: list[list[str]]) -> list[str]:
    """Run compilers side by side and return what they say. A failure is raised as the first error it names."""
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    try:
        said = [process.communicate()[0] for process in running]
    finally:  # where somebody pressed ctrl-C, no compiler stays behind
        for process in running:
            process.kill()
    for process, command, text in zip(running, commands, said):
        if process.returncode:
            raise BuildError(f"{Path(command[0]).name}: {first_error(text)}", " ".join(command) + "\n" + text)
    return said


def first_error(text: str) -> str:
    """The line of a compiler's output that says what is wrong, with the lines that show where."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "error" in line.lower() or "undefined reference" in line:
            return "\n".join(lines[number : number + 4])
    return text.strip()[-500:] or "failed without a word"
