"""Put an engine together from a model and a few words: what a notebook cell and the command line start from."""

from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory
from minibatch.schedulers import SCHEDULERS


def build_engine(
    model,
    scheduler: str = "iteration",
    max_num_seqs: int = 8,
    max_model_len: int = 512,
    reserve: str = "max",
    num_positions: int | None = None,
    **options: object,
) -> Engine:
    """An engine over a model (anything with `executor(memory)`).

    `scheduler` is "static", "dynamic" or "iteration"; `options` go to it (`max_wait` for dynamic). The
    K/V pool has `num_positions`, by default `max_num_seqs` regions of `max_model_len`.
    """
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler={scheduler!r}: choose one of {', '.join(SCHEDULERS)}")
    if max_num_seqs < 1:  # before it becomes a pool of no positions
        raise ValueError(f"max_num_seqs={max_num_seqs!r}: must be at least 1")
    memory = ContiguousMemory(num_positions or max_num_seqs * max_model_len, max_model_len, reserve)
    return Engine(SCHEDULERS[scheduler](max_num_seqs, memory, **options), model.executor(memory))
