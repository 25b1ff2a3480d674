"""Counts of requests, sectors, traffic and bank conflicts on kernels small enough to count by hand."""

import numpy as np
import pytest
from compiled_kernels import Kernels, arrays, needs_compiler

from minibatch.cuda import pictures, trace
from minibatch.cuda.lines import Place
from minibatch.cuda.simulated import Run

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> Kernels:
    return Kernels("traced.cuh", tmp_path_factory.mktemp("trace"))


def traced(kernels: Kernels, name: str) -> Run:
    run = kernels.run(name, arrays(256), Run(trace_limit=100_000))
    assert len(run.reports) == 0 and run.dropped == 0
    return run


def of_line(kernels: Kernels, run: Run, marker: str, array: str) -> trace.LineUse:
    line = kernels.line(marker)
    (use,) = [use for use in trace.by_line(run) if use.place.line == line and use.array == array]
    return use


@pytest.mark.parametrize(
    "name, requests, lanes, size, sectors, useful",
    [
        ("neighbours", 1, 32, 4, 4, 1.0),
        ("strided", 1, 32, 4, 32, 1 / 8),
        ("one_for_all", 1, 32, 4, 1, 1 / 8),
        ("shifted", 1, 32, 4, 5, 128 / 160),
        ("vectors", 1, 32, 16, 16, 1.0),
        ("half_the_lanes", 1, 16, 4, 4, 0.5),
        ("in_a_loop", 3, 32, 4, 4, 1.0),
    ],
)
def test_requests_to_global_memory(kernels, name, requests, lanes, size, sectors, useful):
    use = of_line(kernels, traced(kernels, name), name, "in")
    assert (use.operation, use.shared, use.size) == ("read", False, size)
    assert (use.requests, use.lanes, use.sectors, use.useful, use.passes) == (requests, lanes, sectors, useful, 0)


@pytest.mark.parametrize("stride, passes", [(1, 1), (2, 2), (3, 1), (8, 8), (32, 32)])
def test_bank_conflicts(kernels, stride, passes):
    run = traced(kernels, f"columns{stride}")
    use = of_line(kernels, run, "columns", "tile")
    assert (use.operation, use.shared, use.requests, use.lanes) == ("write", True, 1, 32)
    assert (use.passes, use.conflict, use.sectors) == (passes, passes, 0)
    assert of_line(kernels, run, "everybody the same word", "tile").passes == 1


def test_bank_conflicts_of_vectors(kernels):
    """Sixteen bytes a lane go by quarter warps: four passes at best."""
    run = traced(kernels, "shared_vectors")
    side_by_side, every_second = (of_line(kernels, run, name, "tile") for name in ("side_by_side", "every_second"))
    assert (side_by_side.passes, side_by_side.conflict) == (4, 1)
    assert (every_second.passes, every_second.conflict) == (8, 2)


def test_an_atomic_is_one_request(kernels):
    use = of_line(kernels, traced(kernels, "counted"), "counted", "count")
    assert (use.operation, use.requests, use.lanes, use.sectors) == ("atomic", 1, 32, 1)


def test_requests_come_in_order_and_hold_every_access(kernels):
    run = traced(kernels, "in_a_loop")
    made = trace.requests(run)
    assert made["lanes"].sum() == len(run.accesses) == 4 * 32
    assert [run.arrays["name"][i].decode() for i in made["array"]] == ["in", "in", "in", "out"]
    loads = [trace.visits_of(run, number)["offset"] // 4 for number in range(3)]
    assert [offsets.tolist() for offsets in loads] == [list(range(i * 32, i * 32 + 32)) for i in range(3)]


def test_traffic_and_readers_of_a_cache(kernels):
    run = traced(kernels, "blocks_of_a_cache")
    moved = trace.traffic(run, ["in"])
    # Each of 4 blocks reads 32 neighbours (4 sectors) and twice the same 16 (2 sectors).
    assert moved == trace.Traffic(requests=12, request_bytes=4 * (4 + 2 + 2) * 32, block_bytes=4 * (4 + 2) * 32)
    seen = trace.readers(run, "in", block_bytes=32 * 4)
    expected = np.zeros((8, 4), dtype=int)
    expected[0, :2] = expected[1, 2:] = 128
    expected[7] = 64
    assert seen.tolist() == expected.tolist()


def test_table_has_a_row_a_line(kernels):
    text = trace.table(traced(kernels, "vectors"))
    row = next(line for line in text.splitlines() if f":{kernels.line('vectors')} " in line)
    assert row.split() == [f"traced.cuh:{kernels.line('vectors')}", "read", "in", "16", "1", "32.0", "16.0", "100%"]


def test_a_run_without_a_whole_trace_is_refused(kernels):
    with pytest.raises(ValueError, match="no trace"):
        trace.requests(kernels.run("neighbours", arrays(256)))
    run = kernels.run("neighbours", arrays(256), Run(trace_limit=10))
    assert (len(run.accesses), run.dropped) == (10, 54)
    with pytest.raises(ValueError, match="dropped=54.*raise trace_limit=10"):
        trace.by_line(run)


def test_an_unknown_array_is_refused(kernels):
    run = traced(kernels, "neighbours")
    with pytest.raises(ValueError, match="array='keys': the run knows"):
        trace.traffic(run, ["keys"])
    with pytest.raises(ValueError, match="not read"):
        trace.traffic(run, ["count"])


def test_picture_of_a_request(kernels):
    run, line = traced(kernels, "strided"), kernels.line("strided")
    figure = pictures.request(run, line, "in")
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == [str(lane) for lane in range(32)]
    assert len(figure.axes[0].get_yticks()) == 32
    words = pictures.request_words(run, line, "in")
    assert words == f"Line {line}: 32 lanes ask for 128 bytes in 32 sectors of 32; 12% of the bytes moved are used."
    with pytest.raises(ValueError, match="1 requests to global memory were made at line"):
        pictures.request(run, line, "in", number=1)


def test_picture_of_readers(kernels):
    run = traced(kernels, "blocks_of_a_cache")
    figure = pictures.kv_readers(run, "in", block_bytes=128)
    assert len(figure.axes[0].patches) == 2 + 2 + 4
    assert pictures.kv_readers_words(run, "in", 128) == "3 of 8 blocks of in were read, each by 2 to 4 CUDA blocks."


def test_picture_of_traffic():
    figure = pictures.traffic_bars({"k1": 8.0, "k6": 1.0})
    assert [text.get_text() for text in figure.axes[0].texts] == ["8.00", "1.00"]
    assert pictures.traffic_bars_words({"k1": 8.0, "k6": 1.0}).endswith("k1 8.00, k6 1.00.")
    with pytest.raises(ValueError, match="times_ideal"):
        pictures.traffic_bars({})


def test_lines_follow_in_the_order_of_the_kernel_wherever_the_files_lie():
    """A line inside a function of another file stands where the kernel calls it."""
    for kernel, other in (("/a/kernel.cuh", "/z/common.cuh"), ("/z/kernel.cuh", "/a/common.cuh")):
        inside = [Place(other, line, ((kernel, 20),)) for line in (7, 3)]
        places = [Place(kernel, 30), *inside, Place(kernel, 10)]
        assert [place.line for place in sorted(places, key=lambda place: place.order)] == [10, 3, 7, 30]
