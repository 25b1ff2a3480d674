"""What is checked, and what is timed."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from minibatch.cuda.scene import Scene, make_scene

RUNGS = (1, 2, 3, 4, 5, 6, 7)
LIBRARIES = (  # (type, head size) of every library that is built
    (torch.float32, 16),
    (torch.float32, 64),
    (torch.float16, 80),
    (torch.float16, 128),
    (torch.bfloat16, 128),
    (torch.bfloat16, 256),
)
GROUPS = ((2, 2, 4, 1), (4, 2, 1, 3), (6, 2, 16, 1), (8, 2, 5, 1), (8, 1, 16, 2))  # heads, kv_heads, block_size, chunk
BATCHES = (1, 8, 64, 256)
CONTEXTS = (128, 512, 2048, 4096, 32768)
AIMS = ((64, 4096), (1, 32768))  # where rung 6 should reach 70 % of the copy bandwidth
AIM = 70.0


@dataclass(frozen=True)
class Model:
    """The sizes of a model's attention, for one layer."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    block_size: int

    @property
    def position_bytes(self) -> int:
        """K and V of one position."""
        return 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def bytes_moved(self, batch: int, context: int) -> int:
        """What a decode step has to read and write at least: K and V once, Q, and the result."""
        return batch * (context * self.position_bytes + 2 * self.heads * self.head_dim * self.dtype.itemsize)


LLAMA_3_8B = Model(heads=32, kv_heads=8, head_dim=128, dtype=torch.bfloat16, block_size=16)


def check_scenes(dtype: torch.dtype, head_dim: int) -> Iterator[Scene]:
    """Every group size and block size, with contexts around the borders of blocks and of parts, and an empty row."""
    for heads, kv_heads, size, chunk in GROUPS:
        lengths = (0, 1, size, size + 1, 2 * size - 1, 63, 64, 65, 700)
        yield make_scene(lengths, heads, kv_heads, head_dim, size, dtype, chunk)


def stored_scene(dtype: torch.dtype, head_dim: int) -> Scene:
    """The one whose results on the emulator lie in `emulated.pt`."""
    return make_scene((1, 17, 150), 2, 1, head_dim, 16, dtype)


def traced_scene() -> Scene:
    """The one whose requests the tracer has counted, and a profiler counts again."""
    return make_scene((100, 37, 64, 129), 8, 2, 128, 16, torch.bfloat16)


def timed_shapes(free_bytes: int, model: Model = LLAMA_3_8B) -> tuple[list[tuple[int, int]], list[str]]:
    """(batch, context) whose caches fit into half of the free memory, small ones first; and a sentence for each
    that does not."""
    shapes = sorted(((b, c) for b in BATCHES for c in CONTEXTS), key=lambda shape: shape[0] * shape[1])
    fits = [shape for shape in shapes if shape[0] * shape[1] * model.position_bytes <= free_bytes // 2]
    too_large = [
        f"batch {b}, context {c}: K and V take {b * c * model.position_bytes / 2**30:.0f} GiB, more than half of what "
        f"is free ({free_bytes / 2**30:.0f} GiB)"
        for b, c in shapes
        if (b, c) not in fits
    ]
    return fits, too_large
