"""Times decode steps of a model through the executor that serves it, beside what the machine can do.

Other programs disturb a measurement, so the batch sizes take turns, and blocks of steps in which others used the CPU
are left out of the medians.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from statistics import median
from typing import NamedTuple

from tqdm.auto import tqdm

from minibatch.bench.machine import busy_seconds, machine, measure_bandwidth, measure_flops
from minibatch.bench.report import ITEM_BYTES, Report, Row
from minibatch.model import Model, ModelConfig, TorchExecutor
from minibatch.model.llama import PLAIN
from minibatch.request import Request
from minibatch.request import Sequence as Served
from minibatch.step import Chunk, StepPlan

BATCHES = (1, 2, 4, 8, 16, 32, 64)
BLOCK_SECONDS = 0.25  # long against the 10 ms in which Linux counts CPU time
FOREIGN = 0.06  # of one core: above it a block does not count as quiet


def bench_model(
    models: Iterable[Model],
    batches: Sequence[int] = BATCHES,
    context: int = 128,
    repeats: int = 12,
    command: str = "",
    bandwidth: float | None = None,
) -> Report:
    """Measure one model in one or several dtypes, one after the other, beside the machine's bandwidth and arithmetic.

    A generator of models holds one of them in memory at a time. `command` is what made the report, for its reader.
    `bandwidth` in bytes/s is measured unless it is known already.
    """
    bandwidth = bandwidth or measure_bandwidth()
    arithmetic, rows = {}, []
    for model in models:
        name, size, dtype = name_of(model), parameters(model.config), dtype_of(model)
        arithmetic[dtype] = measure_flops(dtype)
        rows += measure_model(model, batches, context, repeats)
    return Report(name, size, machine(), command, bandwidth, arithmetic, tuple(rows))


def measure_model(model: Model, batches: Sequence[int] = BATCHES, context: int = 128, repeats: int = 12) -> list[Row]:
    """A row for each batch size: `batch` sequences, each computing one token that looks back at `context` positions.

    K and V of the context are zeros, which cost as much to read as any others. Batch sizes take turns, a block of
    steps each, `repeats` times.
    """
    if repeats < 1 or context < 1 or min(batches) < 1:
        raise ValueError(f"batches={batches!r}, context={context!r}, repeats={repeats!r}: each must be at least 1")
    executor = TorchExecutor(model.llama, max(batches) * context, context)
    plans = {batch: decode_plan(batch, context) for batch in batches}
    blocks: dict[int, list[Block]] = {batch: [] for batch in batches}
    dtype = dtype_of(model)
    with tqdm(total=repeats * len(plans), desc=f"{model.name} {dtype}") as bar:
        for plan in plans.values():
            executor.execute(plan)  # the first step of a shape makes buffers and kernels
        for batch in [*plans] * repeats:
            bar.set_postfix_str(f"batch {batch}")
            blocks[batch].append(time_block(executor, plans[batch]))
            bar.update()
    return [_row(model.config, dtype, batch, context, found) for batch, found in blocks.items()]


def decode_plan(batch: int, context: int) -> StepPlan:
    """A decode step of `batch` sequences whose last known token is number `context`; nothing is prefilled."""
    chunks = []
    for slot in range(batch):
        sequence = Served(Request(f"R{slot}", prompt=(1,) * context), num_computed_tokens=context - 1, slot=slot)
        sequence.region = range(slot * context, (slot + 1) * context)
        chunks.append(Chunk(sequence, slot, context - 1, 1))
    return StepPlan(tuple(chunks))


class Block(NamedTuple):
    """Some steps of one plan in a row, the middle one's seconds, and where the time of all went."""

    seconds: float
    linear_share: float
    attention_share: float
    quiet: bool


def time_block(executor: TorchExecutor, plan: StepPlan) -> Block:
    """Run one plan over and over for a quarter of a second; at least once."""
    times = []
    own, all_before, started = time.process_time(), busy_seconds(), time.perf_counter()
    with stopwatch(executor) as spent:
        while not times or time.perf_counter() - started < BLOCK_SECONDS:
            times.append(executor.execute(plan).seconds)
    others = busy_seconds() - all_before - (time.process_time() - own)
    quiet = others < FOREIGN * (time.perf_counter() - started)
    return Block(median(times), spent["linear"] / sum(times), spent["attention"] / sum(times), quiet)


@contextmanager
def stopwatch(executor: TorchExecutor) -> Iterator[dict[str, float]]:
    """While open, adds up the seconds spent inside matrix products and inside attention. A CPU computes at once."""
    spent = {"linear": 0.0, "attention": 0.0}

    def timed(call: Callable, what: str) -> Callable:
        def wrapper(*args, **kwargs):
            started = time.perf_counter()
            found = call(*args, **kwargs)
            spent[what] += time.perf_counter() - started
            return found

        return wrapper

    llama, linear = executor.llama, type(executor.llama.head)
    forward, product = llama.forward, linear.__call__
    linear.__call__ = timed(product, "linear")
    llama.forward = lambda tokens, positions, attend: forward(tokens, positions, timed(attend, "attention"))
    try:
        yield spent
    finally:
        linear.__call__ = product
        del llama.forward  # the class's own shows again


def _row(config: ModelConfig, dtype: str, batch: int, context: int, blocks: list[Block]) -> Row:
    quiet = [block for block in blocks if block.quiet]
    kept = quiet or blocks
    item = ITEM_BYTES[dtype]
    weights = weights_read(config)
    return Row(
        dtype,
        batch,
        context,
        step_ms=1e3 * median(block.seconds for block in kept),
        step_ms_min=1e3 * min(block.seconds for block in blocks),
        linear_share=median(block.linear_share for block in kept),
        attention_share=median(block.attention_share for block in kept),
        weight_bytes=weights * item,
        kv_bytes=batch * context * config.kv_bytes_per_token * item // ITEM_BYTES["float32"],
        flops=2.0 * weights * batch,
        blocks=len(blocks),
        quiet=len(quiet),
    )


def dtype_of(model: Model) -> str:
    """ "float32" or "bfloat16"."""
    return str(model.llama.dtype).removeprefix("torch.")


def name_of(model: Model) -> str:
    """The model's name, and "native" behind it where its operations are not torch's."""
    return model.name if model.llama.operations is PLAIN else f"{model.name} native"


def parameters(config: ModelConfig) -> int:
    """How many numbers the model holds."""
    return sum(prod(shape) for shape in config.shapes().values())


def weights_read(config: ModelConfig) -> int:
    """Parameters that a decode step reads: all, but of an embedding of its own (not tied) only a row a token."""
    looked_up = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    return parameters(config) - looked_up
