"""Try a kernel that somebody has written: compile it, run it on a small scene, check every access and every number.

    attempt = try_kernel(source)      # a string or a Path: a rung of the ladder, changed as you like
    print(attempt)                    # what is wrong, with file and line; or that nothing is
    attempt.table(), attempt.picture()

A source holds the kernel of one rung, under the name it has there (k1_thread ... k6_split, cache_write).
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from minibatch.cuda import oracle, pictures, trace
from minibatch.cuda.arguments import check_attention, check_kernel
from minibatch.cuda.build import build
from minibatch.cuda.cache import writable_folder
from minibatch.cuda.errors import BuildError
from minibatch.cuda.library import SCALARS, Library
from minibatch.cuda.reports import Report, reports
from minibatch.cuda.scene import LENGTHS, Scene, allowed, make_scene
from minibatch.cuda.simulated import KernelFault, Run

KERNELS = re.compile(r"__global__\s+void\s+(k([1-7])_\w+|cache_write)\s*\(")
WRITE = 0  # stands for the cache write among the rungs
TRACED = 4_000_000  # accesses


@dataclass
class Attempt:
    """What came of a kernel. `error` is the compiler's, and then there is nothing else; `reports` are the checker's;
    `wrong` says in a sentence which numbers are not those of float64. `ok` where all three are empty."""

    error: str = ""
    reports: list[Report] = field(default_factory=list)
    wrong: str = ""
    worst: float = 0.0  # largest difference from float64
    run: Run | None = None

    @property
    def ok(self) -> bool:
        return not (self.error or self.reports or self.wrong)

    def __str__(self) -> str:
        if self.ok:
            return f"Nothing found. The largest difference from float64 is {self.worst:.1e}."
        return "\n\n".join(filter(None, [self.error, *map(str, self.reports), self.wrong]))

    def table(self) -> str:
        """What each line asked of memory, as `trace.table`. Needs a checked run."""
        return trace.table(self._run())

    def picture(self, array: str = "k"):
        """Which CUDA block read which block of a cache, as `pictures.kv_readers`. Needs a checked run."""
        run = self._run()
        block, *rest = run.shapes[array]
        info = run.arrays[[name.decode() for name in run.arrays["name"]].index(array)]
        return pictures.kv_readers(run, array, int(info["bytes"]) // block)

    def _run(self) -> Run:
        if self.run is None:
            raise ValueError(f"there is no run to show: {self.error or 'the kernel was not started'}")
        return self.run


def try_kernel(
    source: str | Path,
    dtype: torch.dtype = torch.float32,
    heads: int = 8,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    lengths: Sequence[int] = LENGTHS,
    parts: int = 2,
    kind: str = "checked",
    backwards: bool = False,
) -> Attempt:
    """Compile `source` in the place of its rung and run it on `make_scene` of these sizes.

    `source` is C++ text, or the Path of a file. `kind` "fast" checks no access, only numbers: a wrong address may then
    end the process. `backwards` lets threads and blocks take their turns in the opposite order. Raises ValueError for a
    source without a kernel of the ladder and for sizes no kernel takes, KernelUnavailable where a compiler is missing.
    """
    path = source if isinstance(source, Path) else _written(source)
    rung = _rung_of(path)
    scene = make_scene(lengths, heads, kv_heads, head_dim, block_size, dtype)
    check_attention(*scene.arguments[:-1])
    check_kernel(rung or 4, {"q": scene.q, "k_cache": scene.k_cache, "v_cache": scene.v_cache}, head_dim, dtype)
    try:
        library = _built(kind, dtype, head_dim, rung, path.resolve())
    except BuildError as error:
        return Attempt(error=str(error))
    run = Run(reversed=backwards, trace_limit=TRACED)
    try:
        return _write(library, scene, run) if rung == WRITE else _attend(library, scene, rung, parts, run)
    except KernelFault:
        return Attempt(reports=reports(run), run=run)


def _attend(library: Library, scene: Scene, rung: int, parts: int, run: Run) -> Attempt:
    out, truth = library.attention(*scene.arguments, rung, parts, run), scene.truth()
    difference = (out.double() - truth).abs()
    bad = ~(difference <= allowed(truth, out.dtype))  # NaN is bad
    return Attempt(wrong=_wrong_numbers(bad, out, truth), worst=difference.max().item(), run=run)


def _write(library: Library, scene: Scene, run: Run) -> Attempt:
    """New K and V for the last slot of each sequence but the first, which is a row of padding."""
    last = scene.context_len.long() - 1
    block = scene.block_table[scene.seq_of.long()].gather(1, (last // scene.k_cache.shape[1])[:, None])[:, 0]
    slots = block * scene.k_cache.shape[1] + last % scene.k_cache.shape[1]
    slots[0] = -1
    k, v = scene.q[:, : scene.k_cache.shape[2]], scene.q[:, -scene.k_cache.shape[2] :]
    made, expected = ([cache.nan_to_num(7) for cache in (scene.k_cache, scene.v_cache)] for _ in range(2))
    library.cache_write(k, v, *made, slots, run)
    oracle.cache_write(k, v, *expected, slots)
    same = all(map(torch.equal, made, expected))
    return Attempt(wrong="" if same else "wrong numbers: the caches do not hold what they should", run=run)


def _wrong_numbers(bad: torch.Tensor, out: torch.Tensor, truth: torch.Tensor) -> str:
    if not bad.any():
        return ""
    token, head, d = bad.nonzero()[0].tolist()
    tokens, heads = (bad.any(-1).any(dim).nonzero().flatten().tolist() for dim in (1, 0))
    return (
        f"wrong numbers: {int(bad.sum()):,} of {bad.numel():,} elements, in tokens {_list(tokens)} and heads "
        f"{_list(heads)}\n  out[{token}, {head}, {d}] is {out[token, head, d].item():.7g}, float64 gives "
        f"{truth[token, head, d].item():.7g}"
    )


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _rung_of(path: Path) -> int:
    """Which rung a file holds, by the names of its kernels."""
    found = {int(rung or WRITE) for _, rung in KERNELS.findall(path.read_text())}
    if len(found) != 1:
        holds = "no kernel" if not found else "kernels of several rungs"
        raise ValueError(f"{path}: {holds} of the ladder; it must hold that of one, under its name (k3_block, ...)")
    (rung,) = found
    if rung == 7:
        raise ValueError(f"{path}: rung 7 copies asynchronously, which only a GPU does")
    return rung


def _built(kind: str, dtype: torch.dtype, head_dim: int, rung: int, path: Path) -> Library:
    """Not `library.load`, which opens a file once: a file that is being worked on changes."""
    place = f"K{rung}" if rung else "CACHE_WRITE"
    defines = {"SCALAR": SCALARS[dtype], "HEAD_DIM": str(head_dim), place: f'"{path}"', "ONLY": str(rung or 1)}
    return Library(build(kind, defines, include=[path]), kind)


def _written(text: str) -> Path:
    """The text as a file, named after what it says: the compiler, its errors and the checker's reports need one."""
    path = writable_folder() / f"kernel-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cuh"
    path.write_text(text)
    return path
