"""Solutions to the exercises of notebook 09. Try them yourself first: the checks help."""

from dataclasses import dataclass

from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.join import FirstComeFirstServed
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import NextChunk


def chat_budget() -> int:
    """A step of 512 tokens lasts 57 ms. 384 tokens make prompts wait too long, 768 make steps of 82 ms."""
    return 512


def two_faced_load() -> float:
    """The median client waits a fifth of a second, one in twenty almost half a minute: the trace comes in bursts."""
    return 0.8


def workload(tenfold: bool) -> list[tuple[int, int]]:
    """All alike; or in every batch of 32 one long answer among short ones, so each batch lasts as long as that one.

    Twelve batches one after the other, against twelve long answers side by side.
    """
    if not tenfold:
        return [(64, 64)] * 64
    return ([(16, 400)] + [(16, 1)] * 31) * 12


@dataclass(frozen=True)
class ShortPromptsFirst(FirstComeFirstServed):
    """Most prompts of the code trace are short, and the few long ones are what they wait for."""

    def rank(self, sequence: Sequence) -> tuple[int, ...]:
        """By the prompt, which a server knows; not by the answer, which it does not."""
        return (len(sequence.request.prompt), sequence.order)


def my_scheduler(num_positions: int, max_model_len: int) -> IterationScheduler:
    """vLLM V1 with one axis changed. Its price: the longest prompts wait while bursts last, and p99 is worse.

    In service, bound it: a request passed often enough goes first (`max_passes` in `join.py`).
    """
    memory = PagedMemory(num_positions // 16, 16)
    return IterationScheduler(256, memory, join=ShortPromptsFirst(), mix=Chunked(2048), reserve=NextChunk())
