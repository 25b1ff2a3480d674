"""The ladder of CUDA kernels without a GPU: what emulating a rung costs, and what its trace says it asks of memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from minibatch.bench.machine import best_seconds
from minibatch.cuda import oracle
from minibatch.cuda.library import load
from minibatch.cuda.scene import make_scene
from minibatch.cuda.simulated import Run
from minibatch.cuda.trace import traffic

RUNGS = (1, 2, 3, 4, 5, 6)
LENGTHS, HEADS, KV_HEADS, HEAD_DIM = (100, 37, 64, 129), 8, 2, 64
PARTS = 2
TRACED = 4_000_000  # accesses
ON_A_GPU = "Times on a GPU: python -m minibatch.cuda.gpu_check --out DIR"


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One rung on the shape above. `requests` and `kv_bytes` are of K and V alone: instructions of a warp, and what
    they moved in sectors of 32 bytes; `times_ideal` is that over what there is to read."""

    rung: int
    ms_emulated: float
    requests: int
    kv_bytes: int
    times_ideal: float


def bench_kernels(seconds: float = 0.5) -> Iterator[KernelRow]:
    """A row for each rung, as they are measured: the best of what fits into `seconds`, on one thread."""
    scene = make_scene(LENGTHS, HEADS, KV_HEADS, HEAD_DIM)
    fast, checked = (load(kind, torch.float32, HEAD_DIM) for kind in ("fast", "checked"))
    for rung in RUNGS:
        took = best_seconds(lambda rung=rung: fast.attention(*scene.arguments, rung, PARTS), seconds)
        run = Run(trace_limit=TRACED)
        checked.attention(*scene.arguments, rung, PARTS, run)
        moved = traffic(run, ["k", "v"])
        times = moved.request_bytes / scene.kv_bytes
        yield KernelRow(rung, round(1e3 * took, 2), moved.requests, moved.request_bytes, round(times, 2))


def torch_ms(seconds: float = 0.5) -> float:
    """Milliseconds of the same in plain torch (`minibatch.cuda.oracle`)."""
    scene = make_scene(LENGTHS, HEADS, KV_HEADS, HEAD_DIM)
    return round(1e3 * best_seconds(lambda: oracle.paged_attention(*scene.arguments), seconds), 2)


def format_kernel_table(rows: Sequence[KernelRow], ms_in_torch: float) -> str:
    """The rows as text."""
    shape = f"contexts {', '.join(map(str, LENGTHS))}; {HEADS} heads, {KV_HEADS} KV heads, head_dim {HEAD_DIM}, float32"
    lines = [
        shape,
        f"{'rung':>4} {'emulated':>11} {'requests of K/V':>16} {'bytes of K/V':>13} {'times the ideal':>16}",
    ]
    for row in rows:
        time = f"{row.ms_emulated:8.2f} ms"
        lines.append(f"{row.rung:4} {time} {row.requests:16,} {row.kv_bytes:13,} {row.times_ideal:16.2f}")
    lines.append(f"In plain torch: {ms_in_torch:.2f} ms. An emulated time says nothing about a GPU; the traffic does.")
    return "\n".join([*lines, ON_A_GPU])
