"""A static batch with a time limit on closing it: Triton's dynamic batcher. Introduced in notebook 02."""

from minibatch.memory import Memory
from minibatch.schedulers.static import StaticBatcher


class DynamicBatcher(StaticBatcher):
    """Close the batch when it is full, or when its oldest request has waited `max_wait` seconds.

    The timer belongs to the oldest request: a later arrival neither restarts it nor inherits it. A server
    cannot know that nobody else will come, so a lone request waits the whole window. This is what Triton
    calls `max_queue_delay_microseconds` (its dynamic batcher documentation); once closed, the batch is static.
    """

    name = "dynamic"

    def __init__(self, max_num_seqs: int = 8, memory: Memory | None = None, max_wait: float = 0.1):
        super().__init__(max_num_seqs, memory)
        if not max_wait >= 0:
            raise ValueError(f"max_wait={max_wait!r}: must be 0 seconds or more")
        self.max_wait = max_wait

    def batch_is_ready(self, now: float) -> bool:
        """Close the door? Full, or the oldest has waited long enough."""
        return len(self.waiting) >= self.max_num_seqs or (bool(self.waiting) and now >= self.wake_at())

    def wake_at(self) -> float | None:
        """When the oldest waiting request will have waited max_wait."""
        return self.waiting[0].request.arrival + self.max_wait if self.waiting else None
