"""The checker finds each planted mistake at its line, and says nothing about sound kernels."""

import ctypes
import re
import threading

import pytest
import torch
from compiled_kernels import HERE, Kernels, arrays, needs_compiler

from minibatch.cuda.reports import describe, reports
from minibatch.cuda.sentences import KINDS
from minibatch.cuda.simulated import Run

pytestmark = needs_compiler


CASES = [  # kernel, kind of report, words that must be in it
    ("past_the_end", "out of bounds", "[warp 1, lane 31] of block (0,0,0) reads 4 bytes at the end of in (64"),
    ("before_the_start", "out of bounds", "[warp 0, lane 0] of block (0,0,0) writes 4 bytes 4 bytes before out"),
    ("far_away", "out of bounds", "reads 4 bytes"),
    ("null_pointer", "out of bounds", "an address that belongs to no array"),
    ("never_written", "uninitialised read", "reads out["),
    ("half_of_shared_written", "uninitialised read", "__shared__ tile[32], which no thread of the block has written"),
    ("missing_barrier", "race", "__shared__ tile["),
    ("missing_second_barrier", "race", "__shared__ tile["),
    ("last_reader_writes", "race", "writes __shared__ one[0]; thread"),
    ("warp_barrier_between_warps", "race", "no barrier lies between the two"),
    ("half_warp_barrier", "race", "no barrier lies between the two"),
    ("shuffle_is_no_barrier", "race", "no barrier lies between the two"),
    ("two_blocks_one_place", "race", "nothing orders two blocks"),
    ("block_reads_other_block", "race", "reads out[0]; thread (0,0,0) [warp 0, lane 0] of block (0,0,0) wrote it"),
    ("plain_beside_atomic", "race", "updates count[0]; thread (0,0,0) [warp 0, lane 0] read it"),
    ("two_barriers", "divergent barrier", "must come to the same barrier"),
    ("return_before_barrier", "barrier after return", "thread (40,0,0) [warp 1, lane 8] has returned"),
    ("half_a_warp_shuffles", "deadlock", "threads 16 to 63: in __syncthreads at"),
    ("different_warp_functions", "divergent warp function", "__any_sync"),
    ("not_in_own_mask", "lane not in its mask", "with mask 0x0000ffff, which leaves out the lane itself"),
    ("reads_lane_outside_mask", "source lane", "reads lane 16 in __shfl_xor_sync"),
    ("shared_index", "array index", "thread (48,0,0) [warp 1, lane 16] of block (0,0,0) uses index 48 in a float[48]"),
    ("local_index", "array index", "uses index 4 in a float[4]"),
    ("dynamic_shared", "out of bounds", "writes 4 bytes at the end of __shared__ scratch (192 bytes)"),
    ("vector_over_the_end", "out of bounds", "reads 16 bytes at the end of __shared__ tile (248 bytes), and beyond it"),
    ("writes_its_input", "write to a read-only array", "writes in[0], an input"),
    ("misaligned_vector", "misaligned access", "at byte 4 of in: the address is no multiple of 16"),
    ("spins", "endless loop", "waits for ever"),
    ("asserts", "assertion", "assert(in[threadIdx.x] < 40) failed"),
    ("large_local_array", "stack", "local arrays larger than the emulated stack"),
    ("in_a_function", "out of bounds", "reads 4 bytes at the end of in"),
]  # fmt: skip

SOUND_KERNELS = re.findall(r"RUN(?:64)?\((?!kernel)(\w+)", (HERE / "sound.cuh").read_text())


@pytest.fixture(scope="module")
def bugs(tmp_path_factory) -> Kernels:
    return Kernels("planted.cuh", tmp_path_factory.mktemp("bugs"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Kernels:
    return Kernels("sound.cuh", tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize("backwards", [False, True], ids=["forward", "reversed"])
@pytest.mark.parametrize("kernel, kind, words", CASES, ids=[case[0] for case in CASES])
def test_planted_mistake_is_found_at_its_line(bugs, kernel, kind, words, backwards):
    run = bugs.run(kernel, arrays(), Run(reversed=backwards))
    found = [report for report in reports(run) if report.kind == kind]
    assert found, describe(run)
    report = found[0]
    assert bugs.line(kernel) in (report.place.line, report.other_place.line), report
    assert report.place.path == str(bugs.file)
    if not backwards:
        assert any(words in str(report) for report in found), describe(run)


def test_every_kind_of_report_is_planted():
    assert {kind for _, kind, _ in CASES} | {"waiting", "launch refused"} == set(KINDS)


def test_a_launch_too_large_is_refused(bugs):
    (report,) = reports(bugs.run("too_many_threads", arrays()))
    assert report.kind == "launch refused"
    assert "more than 1024 threads in a block: grid (1,1,1), block (32,64,1)" in report.sentence


@pytest.mark.parametrize("backwards", [False, True], ids=["forward", "reversed"])
@pytest.mark.parametrize("kernel", [*SOUND_KERNELS, "two_launches"])
def test_sound_kernel_is_left_in_peace(sound, kernel, backwards):
    run = sound.run(kernel, arrays(), Run(reversed=backwards))
    assert len(run.reports) == 0, describe(run)


def test_the_halves_of_a_word_are_different_places(sound):
    """Two threads may write the two halves of a word; two blocks may not write the same half."""
    half = arrays(out=torch.zeros(64, dtype=torch.float16))
    assert len(sound.run("halves", half).reports) == 0
    (report,) = reports(sound.run("halves_twice", half))
    assert report.kind == "race" and report.count == 64


@pytest.mark.parametrize("kernel", ["past_the_end", "before_the_start", "writes_its_input", "dynamic_shared"])
def test_stops_before_memory_is_harmed(bugs, kernel):
    """The three arrays in the middle of a larger buffer: nothing around them, and no input, has changed."""
    memory = torch.full((3, 256), 7.0)
    handle, four = bugs.handle, ctypes.c_size_t(64 * 4)
    handle.simt_reset(1, 0)
    at = [ctypes.c_void_p(row[96:].data_ptr()) for row in memory]
    for name, address in zip((b"out", b"in", b"count"), at):
        handle.simt_array(name, address, four, 4, int(name == b"out"), 1)
    getattr(handle, f"run_{kernel}")(*at)
    memory[0, 96:160] = 7.0
    assert (memory == 7.0).all()


@pytest.mark.parametrize(
    "kernel",
    ["far_away", "null_pointer", "shared_index", "local_index", "dynamic_shared", "writes_its_input", "asserts"]
    + ["misaligned_vector", "large_local_array"],
)
def test_the_first_thread_to_go_wrong_is_the_last_to_run(bugs, kernel):
    (report,) = reports(bugs.run(kernel, arrays()))
    assert report.count == 1


def test_one_mistake_of_many_threads_is_one_report(bugs):
    run = bugs.run("missing_barrier", arrays())
    # Warp 0 finds nothing where warp 1 is to write; then warp 1 writes what was read, and reads what warp 0 wrote.
    assert {report.kind: report.count for report in reports(run)} == {"uninitialised read": 32, "race": 64}
    assert len(reports(run)) == 2
    assert "(32 times in all)" in describe(run)


def test_elements_are_named_by_their_place_in_the_tensor(bugs):
    run = bugs.run("never_written", arrays(out=torch.zeros(4, 2, 8)))
    assert "reads out[0, 0, 0]," in describe(run)
    run = bugs.run("two_blocks_one_place", arrays(out=torch.zeros(4, 2, 8)), Run(reversed=True))
    assert "writes out[3, 1, 7];" in describe(run)


def test_the_call_chain_is_told(bugs):
    (report,) = reports(bugs.run("in_a_function", arrays()))
    caller = bugs.line("in_a_function") + 2
    assert f"planted.cuh:{caller - 2}, called from planted.cuh:{caller}" in str(report)


def test_what_ran_before_the_mistake_counts_and_nothing_after(bugs):
    """A mistake of one launch ends the run; the next run begins anew."""
    assert len(bugs.run("past_the_end", arrays()).reports) == 1
    assert len(bugs.run("past_the_end", arrays()).reports) == 1


def test_a_launch_from_another_thread_has_its_own_shared_memory(bugs):
    """Shared memory lies in storage local to the OS thread: elsewhere in each, and found in each."""
    counts = []

    def launch():
        counts.append([report.count for report in reports(bugs.run("missing_barrier", arrays()))])

    for _ in range(2):
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
    launch()
    assert counts == [[32, 64]] * 3
