"""Compile a library of kernels into the user's cache, once for each source, set of flags, compiler and architecture.

Nothing is built on import. What may go wrong on the way into the cache: `cache.py`.
"""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from minibatch.cuda.cache import cached
from minibatch.cuda.compilers import Compiler, check_arch, host_compiler, nvcc
from minibatch.cuda.errors import BuildError

HERE = Path(__file__).parent
KINDS = ("fast", "checked", "cuda", "native")
SOURCES = {"cuda": HERE / "paged_attention.cu"}
DYNAMIC = re.compile(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]")

# Why each flag of the CPU builds is there: simt/README.md.
CPU = ["-std=c++20", "-fPIC", "-g1", "-gdwarf-4", "-Wall", "-Wno-unknown-pragmas", "-fno-strict-aliasing"]
CPU_GNU = ["-fno-extern-tls-init", "-fno-gnu-unique"]  # g++ only
INSTRUMENTED = ["-O1", "-fsanitize=thread", "-fsanitize=bounds"]
CHECKED_GNU = ["-fno-tree-sra"]
CHECKED_CLANG = ["-mllvm", "-tsan-instrument-read-before-write=1"]
LINK = ["-shared", "-Wl,-Bsymbolic", "-pthread", "-ldl"]
NATIVE = ["-std=c++20", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-Wall", "-Wextra"]
NVCC = ["-std=c++17", "-O3", "-lineinfo", "-Xcompiler", "-fPIC", "-Xptxas", "-v"]  # -v: registers and spills


def build(
    kind: str,
    defines: Mapping[str, str] | None = None,
    source: Path | None = None,
    include: Iterable[Path] = (),
    arch: str | None = None,
) -> Path:
    """The shared library of one source file, compiled now if it is not in the cache.

    `kind` is "fast" or "checked" (kernels, for a CPU, with g++ or clang++), "cuda" (kernels, with nvcc, for the `arch`
    "sm_90" and the like) or "native" (plain C++, for this very CPU). `source` is paged_attention by default; `include`
    names files it includes from outside this folder, so that a change of theirs is seen. Raises KernelUnavailable where
    a compiler is missing, BuildError where it refuses.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
    source = source or SOURCES.get(kind, HERE / "paged_attention_cpu.cpp")
    options = [f"-I{HERE}", *(f"-D{name}={value}" for name, value in sorted((defines or {}).items()))]
    if kind == "cuda":
        return _build_cuda(source, options, include, arch)
    if kind == "native":
        return _build_native(source, options, include)
    return _build_cpu(kind, source, options, include)


def compiler_output(library: Path) -> str:
    """What the compiler said when it made a library; nvcc counts registers and spills of each kernel there."""
    return library.with_suffix(".txt").read_text()


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
    return cached(f"{source.stem}-{arch}-{key}.so", make)


def _build_native(source: Path, options: list[str], include: Iterable[Path]) -> Path:
    compiler = host_compiler(instead="leave native out")
    command = [compiler.path, *NATIVE, *options]
    # What this CPU can do is part of the key: a home folder may be shared with a machine that can do less.
    abilities = _run([compiler.path, "-march=native", "-dM", "-E", "-x", "c++", os.devnull])

    def make(work: Path) -> Path:
        (work / "made.txt").write_text(_run([*command, str(source), "-o", str(work / "made.so")]))
        return work / "made.so"

    key = _key(compiler, [*command, *sorted(abilities.splitlines())], [source, *include])
    return cached(f"{source.stem}-native-{key}.so", make)


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
    return cached(f"{source.stem}-{kind}-{key}.so", make)


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

    return cached(f"simt-{kind}-{_key(compiler, command, [*sources, *_files('simt/*.h')])}.o", make)


def _files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in HERE.glob(pattern) if path.is_file())


def _key(compiler: Compiler, command: Iterable[str], files: Iterable[Path]) -> str:
    """A name for one outcome: other sources, flags, compiler or machine give another one."""
    digest = hashlib.sha256("\0".join([compiler.banner, platform.machine(), *command]).encode())
    for path in files:
        digest.update(f"\0{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:20]


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
