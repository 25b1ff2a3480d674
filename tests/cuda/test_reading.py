"""Pictures of who reads K, and of a warp that follows the block table: on scenes small enough to know by heart."""

import pytest
import torch
from compiled_kernels import needs_compiler

from minibatch.cuda import reading
from minibatch.cuda.library import load
from minibatch.cuda.scene import make_scene
from minibatch.cuda.simulated import Run

pytestmark = needs_compiler
CACHE = (6, 4, 128)  # KV blocks, positions of a block, bytes of a position: head_dim 32 in float32


def traced(rung, length, heads=2):
    """A traced run of one sequence on one KV head, and the first byte of each of its positions in K."""
    scene, run = make_scene((length,), heads, kv_heads=1, head_dim=32, block_size=4), Run(trace_limit=1_000_000)
    load("checked", torch.float32, 32).attention(*scene.arguments, rung=rung, parts=2, run=run)
    slots = [int(scene.block_table[0, p // 4]) * 4 + p % 4 for p in range(length)]
    return run, [128 * slot for slot in slots], scene


def numbers(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_a_thread_reads_whole_rows():
    run, rows, _ = traced(1, 3)
    figure = reading.lanes(run, rows, 128, ["head 0", "head 1"])
    assert [numbers(axes) for axes in figure.axes] == [["0"] * 3, ["1"] * 3]
    assert [len(axes.patches) for axes in figure.axes] == [3, 3]
    assert reading.lanes_words(run, rows, 128) == (
        "3 positions of K, each element read twice; a lane holds 32 of a row. 1 warp takes part."
    )


def test_lanes_side_by_side_and_a_warp_for_each_head():
    run, rows, _ = traced(2, 3)
    first, second = reading.lanes(run, rows, 128, ["head 0", "head 1"]).axes
    assert numbers(first) == [str(lane) for lane in range(0, 32, 4)] * 3
    assert {patch.get_facecolor() for patch in first.patches}.isdisjoint(p.get_facecolor() for p in second.patches)
    assert reading.lanes_words(run, rows, 128).endswith(
        "twice; a lane holds 1 of a row. 2 warps take part, 2 in each row."
    )


def test_warps_take_turns_or_several_positions():
    """Rung 3: position p is warp p % 4. Rung 4: a warp holds 4 positions, 8 lanes each."""
    colours = []
    for rung in (3, 4):
        run, rows, _ = traced(rung, 8, heads=1)
        (axes,) = reading.lanes(run, rows, 128, ["head 0"]).axes
        by_row = {int(patch.get_y()): patch.get_facecolor() for patch in axes.patches}
        colours.append([by_row[row] for row in range(8)])
    turns, four = colours
    assert turns[:4] == turns[4:] and len(set(turns)) == 4
    assert len(set(four[:4])) == len(set(four[4:])) == 1 and four[0] != four[4]
    assert numbers(axes) == [str(lane) for _ in "ab" for lane in range(32)]


def test_heads_of_a_group_read_once():
    run, rows, _ = traced(5, 64)
    assert len(reading.lanes(run, rows, 128, ["both"]).axes) == 1
    assert reading.lanes_words(run, rows, 128).startswith("64 positions of K, each element read once;")
    with pytest.raises(ValueError, match="titles.*read 1 times"):
        reading.lanes(run, rows, 128, ["head 0", "head 1"])


def test_a_walk_along_the_block_table():
    run, _, scene = traced(2, 10, heads=1)
    blocks = scene.block_table[0, :3].tolist()
    figure = reading.walk(run, CACHE)
    drawn = [text for text in numbers(figure.axes[0]) if text.isdigit()]
    assert drawn == [str(blocks[0]), *"0123", str(blocks[1]), *"4567", str(blocks[2]), *"89"]
    assert reading.walk_words(run, CACHE) == (
        "Warp 0 of CUDA block 0 follows the block table and reads, in this order: "
        f"4 slots of block {blocks[0]}, 4 slots of block {blocks[1]}, 2 slots of block {blocks[2]}."
    )
