"""Put an engine together from a model and a few words: what a notebook cell and the command line start from."""

from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import SCHEDULERS
from minibatch.schedulers.evict import Evict


def build_engine(
    model,
    scheduler: str = "iteration",
    max_num_seqs: int = 8,
    max_model_len: int = 512,
    reserve: object = None,
    num_positions: int | None = None,
    memory: str = "contiguous",
    block_size: int | None = None,
    prefix_cache: bool = False,
    host_blocks: int | None = None,
    **options: object,
) -> Engine:
    """An engine over a model (anything with `executor(memory)`).

    `scheduler` is "static", "dynamic" or "iteration"; `options` go to it (`max_wait` for dynamic; `join`, `mix`,
    `evict` for iteration). The K/V pool has `num_positions`, by default `max_num_seqs` times `max_model_len`, the
    longest a sequence may get. `memory` says what it is cut into:

    * "contiguous": a region a sequence; `reserve` is its length: "max" (default), "pow2" or "exact".
    * "paged": whole blocks of `block_size` (default 16), with or without a `prefix_cache`. `reserve` is the scheduler's
      policy at entry, by default "prompt"; static and dynamic batches take the full need. With `host_blocks` more in
      host memory, whoever is preempted is swapped out to there, unless `evict` is an object that says otherwise.
    """
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler={scheduler!r}: choose one of {', '.join(SCHEDULERS)}")
    for field, value in (("max_num_seqs", max_num_seqs), ("max_model_len", max_model_len)):
        if value < 1:  # before it becomes a pool of no positions
            raise ValueError(f"{field}={value!r}: must be at least 1")
    positions = max_num_seqs * max_model_len if num_positions is None else num_positions
    if memory == "contiguous":
        _refuse("memory='paged'", block_size=block_size, prefix_cache=prefix_cache, host_blocks=host_blocks)
        books = ContiguousMemory(positions, max_model_len, "max" if reserve is None else reserve)
    elif memory == "paged":
        books = _paged(positions, 16 if block_size is None else block_size, prefix_cache, host_blocks)
        if scheduler != "iteration":
            _refuse("scheduler='iteration'", reserve=reserve, host_blocks=host_blocks)
        else:
            options = _policies(options, reserve, host_blocks)
    else:
        raise ValueError(f"memory={memory!r}: choose contiguous or paged")
    executor = model.executor(books)
    executor.max_model_len = min(executor.max_model_len, max_model_len)
    return Engine(SCHEDULERS[scheduler](max_num_seqs, books, **options), executor)


def _policies(options: dict[str, object], reserve: object, host_blocks: int | None) -> dict[str, object]:
    evict = options.get("evict", "newest")
    if host_blocks is not None and isinstance(evict, str):
        options = options | {"evict": Evict(evict, swap=True)}
    return options if reserve is None else options | {"reserve": reserve}


def _paged(positions: int, block_size: int, prefix_cache: bool, host_blocks: int | None) -> PagedMemory:
    if positions < block_size:
        raise ValueError(f"num_positions={positions!r}: less than one block of block_size={block_size}")
    return PagedMemory(positions // max(block_size, 1), block_size, prefix_cache, host_blocks)


def _refuse(needed: str, **given: object) -> None:
    """A setting that would have no effect is a mistake of whoever wrote it."""
    for field, value in given.items():
        if value is not None and value is not False:  # 0 is a value
            raise ValueError(f"{field}={value!r}: has a meaning only with {needed}")
