"""Times steps of every kind through the executor that serves them: decodes, prompts, and both in one step.

As in `model.py`, shapes take turns, and blocks of steps in which others used the CPU are left out of the medians.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from tqdm.auto import tqdm

from minibatch.bench.machine import machine
from minibatch.bench.model import Block, decode_plan, dtype_of, name_of, time_block
from minibatch.bench.step_report import Shape, StepReport, StepRow
from minibatch.model import Model, TorchExecutor
from minibatch.request import Request
from minibatch.request import Sequence as Served
from minibatch.step import Chunk, StepPlan

CONTEXTS = (16, 64, 256, 1000, 2000)
DECODES = tuple(Shape(batch, context) for batch in (1, 2, 4, 8, 16, 32, 64) for context in CONTEXTS)
PROMPTS = tuple(Shape(count=count) for count in (16, 32, 64, 128, 256, 512, 1024))
MIXED = tuple(
    Shape(batch, context, start, count)
    for batch, context in ((4, 256), (16, 1000))
    for start, count in ((0, 64), (256, 64), (0, 256), (512, 256))
)
SHAPES = DECODES + PROMPTS + MIXED  # K and V of the largest, 64 contexts of 2,000, take 6 GB in float32


def bench_steps(
    models: Iterable[Model], shapes: Sequence[Shape] = SHAPES, repeats: int = 5, command: str = ""
) -> StepReport:
    """Measure one model in one or several dtypes. A generator of models holds one of them in memory at a time.

    `command` is what made the report, for its reader.
    """
    name, rows = "", []
    for model in models:
        name = name_of(model)
        rows += measure_steps(model, shapes, repeats)
    return StepReport(name, machine(), command, tuple(rows))


def measure_steps(model: Model, shapes: Sequence[Shape] = SHAPES, repeats: int = 5) -> list[StepRow]:
    """A row for each shape, over a contiguous K/V cache of zeros, which cost as much to read as any other numbers."""
    if repeats < 1 or not shapes:
        raise ValueError(f"repeats={repeats!r}, shapes={shapes!r}: give at least one of each")
    room = max(shape.batch * shape.context + shape.start + shape.count for shape in shapes)
    longest = max(max(shape.context, shape.start + shape.count) for shape in shapes)
    if longest > model.config.max_position_embeddings:
        most = model.config.max_position_embeddings
        raise ValueError(f"shapes: one needs {longest} positions, and {model.name!r} knows {most}")
    executor = TorchExecutor(model.llama, room, longest)
    plans = {shape: step_plan(shape) for shape in shapes}
    blocks: dict[Shape, list[Block]] = {shape: [] for shape in plans}
    dtype = dtype_of(model)
    with tqdm(total=(repeats + 1) * len(plans), desc=f"{model.name} {dtype}", unit="block", disable=None) as bar:
        for plan in plans.values():
            executor.execute(plan)  # the first step of a shape makes buffers and kernels
            bar.update()
        for shape in [*plans] * repeats:
            blocks[shape].append(time_block(executor, plans[shape]))
            bar.update()
    return [_row(dtype, shape, found) for shape, found in blocks.items()]


def step_plan(shape: Shape) -> StepPlan:
    """The step of this shape: decodes in neighbouring regions, then the prompt's chunk in the region after them."""
    chunks = decode_plan(shape.batch, shape.context).chunks
    if not shape.count:
        return StepPlan(chunks)
    end, first = shape.start + shape.count, shape.batch * shape.context
    prompt = Served(Request("P", prompt=(1,) * end), num_computed_tokens=shape.start, slot=shape.batch)
    prompt.region = range(first, first + end)
    return StepPlan((*chunks, Chunk(prompt, shape.batch, shape.start, shape.count)))


def _row(dtype: str, shape: Shape, blocks: list[Block]) -> StepRow:
    quiet = [block for block in blocks if block.quiet]
    kept = quiet or blocks
    return StepRow(
        dtype,
        shape,
        ms=1e3 * median(block.seconds for block in kept),
        ms_min=1e3 * min(block.seconds for block in blocks),
        linear_share=median(block.linear_share for block in kept),
        attention_share=median(block.attention_share for block in kept),
        blocks=len(blocks),
        quiet=len(quiet),
    )
