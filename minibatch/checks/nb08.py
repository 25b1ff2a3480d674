"""Checks for the exercises of notebook 08: lines of CUDA C++ are put into a kernel, run under the checker, compared.

Nothing here needs a GPU; a C++ compiler it needs (`minibatch.cuda.backends.missing("checked")` says which).
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch

from minibatch import cuda
from minibatch.checks.base import CheckFailed, call, need
from minibatch.checks.typed_kernel import HOLE, Kernel, in_a_line, on_one_line
from minibatch.cuda.errors import KernelUnavailable
from minibatch.cuda.simulated import Array

BUGS = ("missing_barrier", "divergent_barrier", "wrong_group_divisor", "past_the_context", "int_overflow")
NARROW = re.compile(r"\b(int|unsigned|u?int32_t)\s+at\s*=")  # right in any pool that a test can have

WINDOWED = f"""\
// Rung 2 for head_dim 32, an element a lane, with a window: a token sees only its last `window` positions.
__global__ void windowed(float* out, Queries<float> rows, PagedKV<float> kv, int window) {{
  int token = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
  int seq = rows.seq_of[token], length = rows.context_len[token];
  int kv_head = head / (rows.heads / kv.kv_heads);
  float q = rows.row(token, head)[lane] * rows.scale;

  Softmax<1> state;
{HOLE}
    float score = sum_over<32>(q * kv.k[at + lane]);
    state.raise_to(score);
    state.acc[0] += state.weigh(score) * kv.v[at + lane];
  }}
  out[(int64_t(token) * rows.heads + head) * 32 + lane] = state.value(0);
}}
"""

LARGEST = f"""\
// A block of WARPS = 4 warps takes tiles of scores, one by one. Each thread writes the largest score of the tile.
__global__ void largest_of_tiles(float* out, const float* scores, int tiles) {{
  __shared__ float best[WARPS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int tile = 0; tile < tiles; ++tile) {{
    float score = scores[tile * blockDim.x + threadIdx.x];
    for (int step = 16; step > 0; step /= 2) score = fmaxf(score, __shfl_xor_sync(ALL_LANES, score, step));
    // `score` is now the largest of the warp, in each of its lanes.
{HOLE}
    out[tile * blockDim.x + threadIdx.x] = score;
  }}
}}
"""

COPIED = f"""\
// Copy-on-write: pair number blockIdx.x says which block of the cache to copy (from) and over which (to).
__global__ void copy_blocks(float* cache, const int* from, const int* to, int block_elements) {{
{HOLE}
}}
"""

# Each with its host's line. Arrays and numbers come in the order in which the checks below give them.
_windowed = Kernel(
    WINDOWED,
    """
    Queries<float> rows{(float*)a[1], (int*)a[2], (int*)a[3], n[1] * 32, 32, n[0], n[1], 0.25f};
    PagedKV<float> kv{(float*)a[4], (float*)a[5], (int*)a[6], 4 * n[2] * 32, n[2] * 32, 32, 4, n[2], n[3]};
    launch("windowed", dim3(n[0], n[1]), dim3(32), 0, nullptr, windowed, (float*)a[0], rows, kv, n[4]);
    """,
)
_largest = Kernel(
    LARGEST,
    'launch("largest_of_tiles", dim3(1), dim3(128), 0, nullptr, largest_of_tiles, (float*)a[0], (float*)a[1], n[0]);',
)
_copied = Kernel(
    COPIED,
    """launch("copy_blocks", dim3(n[0]), dim3(64), 0, nullptr, copy_blocks, (float*)a[0], (int*)a[1], (int*)a[2],
                 n[1]);""",
)

_WINDOWS = [  # context lengths, heads, KV heads, window
    ([5], 1, 1, 3),
    ([3, 9, 4], 4, 2, 4),
    ([1, 6], 2, 2, 1),
    ([2, 7, 12], 2, 1, 50),
]


def check_window(function: Callable) -> None:
    """`function()`: the lines that begin the loop, so that a token sees its last `window` positions."""
    lines = _lines(function)
    for lengths, heads, kv_heads, window in _WINDOWS:
        arrays, sees = _paged(lengths, heads, kv_heads, window)
        numbers = [len(lengths), heads, kv_heads, max(lengths) // 4 + 1, window]
        out = _windowed.run(lines, arrays, numbers)
        for token, length in enumerate(lengths):
            where = f"a context of {length}, {heads} query heads on {kv_heads}, a window of {window}: a wrong result"
            need(_close(out[token], sees(token, max(0, length - window))), f"{where}. {_window_hint(out, sees, token)}")


def _window_hint(out: torch.Tensor, sees: Callable, token: int) -> str:
    if _close(out[token], sees(token, 0)):
        return "The token saw its whole context"
    if not out[token].any():
        return "The token saw nothing"
    return "Which position is the first that the token sees, and where do its K and V lie?"


def check_largest(function: Callable) -> None:
    """`function()`: the lines after which `score` is the largest of the tile, in every thread."""
    lines = _lines(function)
    for seed, tiles in enumerate((1, 2, 5)):
        scores = -1 - torch.rand(tiles, 128, generator=torch.Generator().manual_seed(seed))
        arrays = {"out": Array(torch.zeros(tiles, 128), written=False), "scores": Array(scores)}
        out = _largest.run(lines, arrays, [tiles])
        for tile in range(tiles):
            need(_close(out[tile], scores[tile].max().expand(128)), _largest_hint(out[tile], scores[tile], tile))


def _largest_hint(got: torch.Tensor, scores: torch.Tensor, tile: int) -> str:
    right = int((got == scores.max()).sum())
    if torch.equal(got, scores.view(4, 32).amax(1).repeat_interleave(32)):
        return f"tile {tile}: each warp has its own largest; let the warps meet in `best`"
    if right:
        return f"tile {tile}: {right} of 128 threads have the largest score; every thread must get it"
    if got.max() > scores.max():
        return f"tile {tile}: larger than any score, all of which are negative"
    return f"tile {tile}: no thread has the largest score"


def check_copy(function: Callable) -> None:
    """`function()`: the lines that copy the blocks."""
    lines = _lines(function)
    for elements, pairs in [(64, [(2, 0)]), (96, [(1, 3), (4, 0)]), (40, [(0, 1)]), (200, [(5, 2), (3, 4), (0, 1)])]:
        before = torch.arange(6.0 * elements).view(6, elements)
        source, target = (torch.tensor(side, dtype=torch.int32) for side in zip(*pairs))
        arrays = {"cache": Array(before.clone(), writable=True), "from": Array(source), "to": Array(target)}
        after = _copied.run(lines, arrays, [len(pairs), elements])
        where = f"{len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'}, {elements} elements a block"
        for block in range(6):
            origin = dict(zip(target.tolist(), source.tolist())).get(block, block)
            wrong = int((after[block] != before[origin]).sum())
            written = "a target: it" if block in target else "no target, yet it"
            need(not wrong, f"{where}: block {block} is {written} has {wrong} wrong elements")


def check_mend(function: Callable) -> None:
    """`function(bug, source)`: the source of a kernel of the gallery, mended."""
    folder = Path(cuda.__file__).parent / "bugs"
    for bug in BUGS:
        source = (folder / f"{bug}.cuh").read_text(encoding="utf-8")
        mended = call(function, bug, source)
        need(isinstance(mended, str), f"{bug}: return the whole source, mended, as one string")
        need(mended != source, f"{bug}: the source is unchanged")
        need(not NARROW.search(mended), f"{bug}: and in a pool of 2^31 elements or more?")
        for kv_heads in (2, 4):
            _try(bug, mended, kv_heads)


def _try(bug: str, mended: str, kv_heads: int) -> None:
    from minibatch.cuda.attempt import try_kernel  # draws pictures too: matplotlib, which a grader may lack

    failed = None
    try:
        found = try_kernel(mended, kv_heads=kv_heads)
    except (ValueError, KernelUnavailable) as error:
        failed = CheckFailed(on_one_line(f"{bug}: {error}"))
    if failed:
        raise failed
    said = f"it does not compile: {found.error}" if found.error else found.wrong.partition("\n")[0]
    said = in_a_line(found.reports) if found.reports else said
    need(found.ok, on_one_line(f"{bug}, 8 query heads on {kv_heads}: {said}"))


def _lines(function: Callable) -> str:
    lines = call(function)
    need(isinstance(lines, str), "return the lines as one string of CUDA C++")
    return lines


def _close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return torch.allclose(got.double(), want.double(), rtol=1e-5, atol=1e-5)


def _paged(lengths: list[int], heads: int, kv_heads: int, window: int) -> tuple[dict[str, Array], Callable]:
    """A paged cache of blocks of 4 in which nothing but the sequences' positions is written, and float64's answer:
    `sees(token, first)` is what a token gets that sees its positions from `first` on."""
    generator = torch.Generator().manual_seed(sum(lengths) + window)
    width = max(lengths) // 4 + 1
    table = torch.randperm(len(lengths) * width, generator=generator).view(len(lengths), width).int()
    q = torch.randn(len(lengths), heads, 32, generator=generator)
    k, v = (torch.randn(table.numel(), 4, kv_heads, 32, generator=generator) for _ in "kv")
    held = torch.zeros(table.numel(), 4, dtype=torch.bool)
    for row, length in zip(table.long(), lengths):
        for position in range(length):
            held[row[position // 4], position % 4] = True
    held = held[:, :, None, None].expand(k.shape)

    def sees(token: int, first: int) -> torch.Tensor:
        position = torch.arange(first, lengths[token])
        at = table[token].long()[position // 4], position % 4
        keys, values = (x[at].double().repeat_interleave(heads // kv_heads, 1) for x in (k, v))
        weights = (torch.einsum("hd,lhd->hl", q[token].double(), keys) * 0.25).softmax(-1)
        return torch.einsum("hl,lhd->hd", weights, values)

    ints = {"seq_of": torch.arange(len(lengths)).int(), "context_len": torch.tensor(lengths).int()}
    arrays = {"out": Array(torch.zeros(len(lengths), heads, 32), written=False), "q": Array(q)}
    arrays |= {name: Array(tensor) for name, tensor in ints.items()}
    return arrays | {"k": Array(k, held), "v": Array(v, held), "block_table": Array(table)}, sees
