"""How long a launch takes on this card: medians of CUDA events, with the second-level cache flushed before each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch

from minibatch.cuda import ops
from minibatch.cuda.gpu_check.others import others
from minibatch.cuda.gpu_check.shapes import LLAMA_3_8B, RUNGS, Model
from minibatch.cuda.scene import Scene, allowed

SECONDS = 0.15  # of launches for one median
MOST_LAUNCHES = 50
LONGEST = 0.5  # seconds of one launch: a kernel that would take longer, by what it took for less, is left out
GIB = 2**30


@dataclass(frozen=True)
class Row:
    """A median of `n` launches. `gb_s` counts what has to be moved at least; `percent` is of the copy bandwidth."""

    name: str
    batch: int
    context: int
    n: int
    us: float
    gb_s: float
    percent: float


class Clock:
    """Times launches on the current device."""

    def __init__(self):
        total = torch.cuda.get_device_properties(None).total_memory
        # Long enough to write that all of a launch is queued behind it: what Python takes is not in the time.
        self.other = torch.empty(2 * GIB if total > 24 * GIB else total // 16, dtype=torch.uint8, device="cuda")

    def once(self, launch: Callable[[], object]) -> float:
        """Seconds of one launch, with nothing of its data in the second-level cache."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
        self.other.zero_()
        start.record()
        launch()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def median(self, launch: Callable[[], object]) -> tuple[float, int]:
        """(median seconds, number of launches): as many as fit in SECONDS, after one that is not counted."""
        first = self.once(launch)
        count = max(3, min(MOST_LAUNCHES, int(SECONDS / first)))
        return median(self.once(launch) for _ in range(count)), count

    def copy_bandwidth(self) -> float:
        """Bytes a second, read and written, of a copy from device memory to device memory."""
        source, target = (torch.empty(self.other.numel(), dtype=torch.uint8, device="cuda") for _ in "st")
        seconds, _ = self.median(lambda: target.copy_(source))
        return 2 * source.nbytes / seconds


def decode_scene(batch: int, context: int, pool: tuple[torch.Tensor, torch.Tensor], model: Model = LLAMA_3_8B) -> Scene:
    """One query token for each of `batch` sequences of the same length, their blocks scattered over the pool."""
    k_cache, v_cache = pool
    width = -(-context // model.block_size)
    blocks = torch.randperm(len(k_cache), device=k_cache.device)[: batch * width]
    q = torch.randn(batch, model.heads, model.head_dim, device=k_cache.device).to(model.dtype)
    seq_of = torch.arange(batch, dtype=torch.int32, device=k_cache.device)
    lengths = torch.full_like(seq_of, context)
    return Scene(q, k_cache, v_cache, blocks.int().view(batch, width), seq_of, lengths, model.head_dim**-0.5)


def make_pool(positions: int, model: Model = LLAMA_3_8B) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of so many positions on the GPU, of random numbers."""
    shape = (-(-positions // model.block_size), model.block_size, model.kv_heads, model.head_dim)
    k_cache, v_cache = (torch.empty(shape, dtype=model.dtype, device="cuda").normal_() for _ in "kv")
    return k_cache, v_cache


def time_rungs(scene: Scene, clock: Clock, latest: dict[str, float]) -> Iterator[tuple[str, float, int]]:
    """(name, seconds, launches) of every rung on a scene, as the operator runs it.

    `latest` has what each took for a byte on the scene before; who would need longer than LONGEST is left out. Raises
    ArithmeticError for a result that is wrong.
    """
    for rung in RUNGS:
        name = f"rung {rung}"
        if latest.get(name, 0.0) * scene.kv_bytes > LONGEST:
            continue

        def launch(rung=rung):
            return ops.paged_attention(*scene.arguments, backend="cuda", rung=rung)

        _check_some(name, launch(), scene)
        seconds, count = clock.median(launch)
        latest[name] = seconds / scene.kv_bytes
        yield name, seconds, count


def time_others(scene: Scene, clock: Clock, with_flex: bool) -> Iterator[tuple[str, float | str, int]]:
    """(name, seconds, launches) of what else there is, or (name, why it did not run, 0)."""
    for name, prepare in others(with_flex):
        try:
            launch = prepare(scene)
            _check_some(name, launch().view(scene.q.shape), scene, slack=4)
            yield name, *clock.median(launch)
        except Exception as error:  # other people's code, in whatever version: said, and no reason to stop
            yield name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200], 0
        torch.cuda.empty_cache()


def row(name: str, batch: int, context: int, seconds: float, count: int, copy: float, model=LLAMA_3_8B) -> Row:
    """A time as a Row; `copy` is the copy bandwidth in bytes a second."""
    rate = model.bytes_moved(batch, context) / seconds
    return Row(name, batch, context, count, round(seconds * 1e6, 2), round(rate / 1e9, 1), round(100 * rate / copy, 1))


def _check_some(name: str, out: torch.Tensor, scene: Scene, slack: float = 1) -> None:
    """First and last token against float64. `slack` for kernels that round their weights to half precision."""
    tokens = [0, len(out) - 1]
    truth = scene.truth(tokens)
    if not ((out[tokens].double() - truth).abs() <= slack * allowed(truth, out.dtype) + (slack - 1) * 1e-3).all():
        raise ArithmeticError(f"{name} is wrong at batch {len(out)}, context {int(scene.context_len[0])}")
