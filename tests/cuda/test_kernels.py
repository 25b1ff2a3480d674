"""The kernels on the CPU against float64: every rung, type, head size and group, checked for every access they make."""

import itertools
import mmap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from compiled_kernels import needs_compiler
from scenes import Scene, assert_equal, scene

from minibatch.cuda.arguments import DTYPES, HEAD_DIMS
from minibatch.cuda.library import load
from minibatch.cuda.simulated import Run
from minibatch.cuda.trace import by_line, traffic
from minibatch.model.paged_kv import attention_over_blocks

SPARSE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE of Linux
pytestmark = needs_compiler
CPU_RUNGS = (1, 2, 3, 4, 5, 6)
# Query heads of a KV head: the layout in memory and the block size they are tried with.
GROUPS = {1: ("plain", 4), 2: ("fused", 1), 3: ("transposed", 4), 4: ("paired", 16), 8: ("plain", 5)}
SHAPES = list(itertools.product(DTYPES, HEAD_DIMS))
# For the fast build every type and every size, but not every pair.
FAST = [(DTYPES[(i + 1) % 3], head_dim) for i, head_dim in enumerate(HEAD_DIMS)]


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Build what this file needs two at a time, if the cache has it not."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda shape: load("checked", *shape), SHAPES))
        list(pool.map(lambda shape: load("fast", *shape), FAST))


def fast(given, rung, parts=2):
    """The fast build for float32 and head_dim 64."""
    return load("fast", torch.float32, 64).attention(*given.arguments, rung=rung, parts=parts)


def ragged(dtype, head_dim, group):
    """Lengths around the borders of blocks and of parts, an empty row, and for one group two tokens a sequence."""
    layout, size = GROUPS[group]
    lengths = [0, 1, size, size + 1, 2 * size - 1, 2 * size, 67]
    kv_heads = 1 if group == 8 else 2
    return scene(lengths, group * kv_heads, kv_heads, head_dim, size, dtype, 1 + (group == 3), layout)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dtype, head_dim", SHAPES, ids=str)
def test_every_shape_is_right_and_reads_only_what_it_owns(dtype, head_dim, group):
    library, given = load("checked", dtype, head_dim), ragged(dtype, head_dim, group)
    truth = given.truth()
    for rung in CPU_RUNGS:
        out = library.attention(*given.arguments, rung=rung, parts=3, run=Run(reversed=rung % 2 == group % 2))
        assert_equal(out, truth)
        assert (out[given.context_len == 0] == 0).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype, head_dim", FAST, ids=str)
def test_the_fast_build_is_right_in_both_orders_and_with_two_threads(dtype, head_dim, reverse):
    library = load("fast", dtype, head_dim)
    for group in GROUPS:
        given = ragged(dtype, head_dim, group)
        truth = given.truth()
        for rung, threads in itertools.product(CPU_RUNGS, (1, 2)):
            run = Run(threads=threads, reversed=reverse)
            assert_equal(library.attention(*given.arguments, rung=rung, parts=2, run=run), truth)


@pytest.mark.parametrize("heads, kv_heads", [(5, 1), (6, 1), (14, 2), (12, 1), (17, 1)])
def test_groups_of_any_size(heads, kv_heads):
    """Groups are served in tiles of 1, 2, 4 or 8 heads: tiles may be partly empty, and one group may take several."""
    given = scene([1, 9, 70], heads, kv_heads)
    truth = given.truth()
    for rung in (4, 5, 6):
        assert_equal(load("checked", torch.float32, 64).attention(*given.arguments, rung=rung, parts=2), truth)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_a_context_cut_into_parts(parts):
    """Parts are multiples of 64 positions; those beyond a context stay empty."""
    given = scene([0, 1, 63, 64, 65, 127, 128, 129, 300], 2, 1)
    out = load("checked", torch.float32, 64).attention(*given.arguments, rung=6, parts=parts)
    assert_equal(out, given.truth())


def test_a_prefill_chunk_among_decodes():
    """All tokens of one sequence and the last of two others, in one launch: each sees its own context."""
    given = scene([17, 40, 9], chunk=17)
    kept = (given.seq_of == 0) | (given.context_len == torch.tensor([17, 40, 9])[given.seq_of.long()])
    given = replace(given, q=given.q[kept], seq_of=given.seq_of[kept], context_len=given.context_len[kept])
    assert sorted(given.context_len.tolist()) == sorted([*range(1, 18), 40, 9])
    truth = given.truth()
    for rung in CPU_RUNGS:
        assert_equal(fast(given, rung), truth)


@pytest.mark.parametrize("layout", ["plain", "fused", "transposed", "paired"])
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (8, 2), (6, 2), (12, 3), (8, 1)])
def test_each_query_head_reads_the_head_of_its_group(heads, kv_heads, layout):
    """A32: V of KV head h is the constant h, and views give what contiguous copies give, to the bit."""
    given = scene([5, 8], heads, kv_heads, layout=layout)
    given.v_cache[~given.v_cache.isnan()] = 1
    given.v_cache.mul_(torch.arange(kv_heads)[:, None])
    copy = Scene(*(x.clone(memory_format=torch.contiguous_format) for x in given.arguments[:-1]), given.scale)
    for rung in CPU_RUNGS:
        out = fast(given, rung)
        expected = torch.arange(heads) // (heads // kv_heads)
        assert torch.allclose(out, expected[:, None].float().expand(out.shape), atol=1e-6)
        assert torch.equal(out, fast(copy, rung))


def test_what_nobody_owns_changes_nothing():
    """A31: NaN in every other slot, and in the block that unused table entries name, or zeros there: the same bits."""
    given = scene([1, 3, 4, 5, 8])
    zeros = Scene(given.q, given.k_cache.nan_to_num(0), given.v_cache.nan_to_num(0), *given.arguments[3:])
    for rung in CPU_RUNGS:
        assert torch.equal(fast(given, rung), fast(zeros, rung))


def test_the_oracle_of_the_model_room_agrees():
    given = scene([1, 9, 30], head_dim=64)
    out = fast(given, 6)
    for row, seq, context in zip(range(len(out)), given.seq_of.tolist(), given.context_len.tolist()):
        table = given.block_table[seq].tolist()
        expected = attention_over_blocks(given.q[row], given.k_cache, given.v_cache, table, context)
        assert torch.allclose(out[row], expected, atol=2e-6)


@pytest.mark.parametrize("kind", ["checked", "fast"])
@pytest.mark.parametrize("layout", ["plain", "transposed", "paired"])
def test_cache_write_touches_its_slots_alone(kind, layout):
    """A31: slots [5, -1, 9]; -1 is nobody's slot, not the last one. K and V have strides of their own."""
    given = scene([16], heads=2, layout=layout)
    k_cache, v_cache = given.k_cache, given.v_cache
    before = [cache.clone() for cache in (k_cache, v_cache)]
    k, v = torch.randn(3, 6, 64)[:, 2:4], torch.randn(2, 3, 64).transpose(0, 1)
    load(kind, torch.float32, 64).cache_write(k, v, k_cache, v_cache, torch.tensor([5, -1, 9]))
    for cache, old, new in ((k_cache, before[0], k), (v_cache, before[1], v)):
        old[1, 1], old[2, 1] = new[0], new[2]
        assert torch.equal(cache.nan_to_num(7), old.nan_to_num(7))


@pytest.mark.parametrize("dtype, head_dim", FAST, ids=str)
def test_cache_write_for_every_type_and_size(dtype, head_dim):
    k_cache, v_cache = torch.zeros(2, 3, 4, 3, head_dim, dtype=dtype)
    k, v = torch.randn(2, 5, 3, head_dim).to(dtype)
    load("fast", dtype, head_dim).cache_write(k, v, k_cache, v_cache, torch.tensor([11, 0, -1, 7, 3]))
    slots = torch.tensor([11, 0, 7, 3])
    for cache, new in ((k_cache, k), (v_cache, v)):
        assert torch.equal(cache.view(12, 3, head_dim)[slots], new[[0, 1, 3, 4]])
        assert cache.count_nonzero() == new[[0, 1, 3, 4]].count_nonzero()


@pytest.mark.parametrize("context", [12_288, 12_289, 60_000])
def test_contexts_that_no_shared_memory_would_hold(context):
    """A33: 48 KiB and 227 KiB of float32 scores would end here; no rung keeps scores."""
    k_cache, v_cache = torch.randn(2, -(-context // 16), 16, 1, 64)
    table = torch.randperm(len(k_cache)).int()[None]
    q, row, length = (
        torch.randn(1, 1, 64),
        torch.zeros(1, dtype=torch.int32),
        torch.tensor([context], dtype=torch.int32),
    )
    given = Scene(q, k_cache, v_cache, table, row, length, 0.125)
    k, v = (cache[table[0]].flatten(0, 1)[:context, 0].double() for cache in (k_cache, v_cache))
    truth = ((k @ q[0, 0].double() * 0.125).softmax(0) @ v).view(1, 1, 64)
    for rung in CPU_RUNGS:
        assert_equal(fast(given, rung, parts=20), truth)


def test_offsets_have_64_bits():
    """A33: the block in use starts beyond 2^31 elements. The memory is asked for and never filled: it costs a page."""
    small = scene([5], heads=8, kv_heads=8, head_dim=16, block_size=16, dtype=torch.float16)
    blocks = 2**31 // small.k_cache[0].numel() + 100
    cache = torch.frombuffer(mmap.mmap(-1, blocks * small.k_cache[0].nbytes, flags=SPARSE), dtype=torch.float16)
    cache = cache.view(blocks, *small.k_cache.shape[1:])
    cache[-1] = small.v_cache[:] = small.k_cache[int(small.block_table[0, 0])]  # both caches are this one
    table = torch.tensor([[blocks - 1]], dtype=torch.int32)
    library = load("fast", torch.float16, 16)
    for rung in CPU_RUNGS:
        out = library.attention(small.q, cache, cache, table, *small.arguments[4:], rung=rung)
        assert torch.equal(out, library.attention(*small.arguments, rung=rung))
    new = torch.ones(1, 8, 16, dtype=torch.float16)
    library.cache_write(new, new, cache, cache, torch.tensor([blocks * 16 - 3]))
    assert (cache[-1, 13] == 1).all() and (cache[0] == 0).all()


# Requests of warps for K and V, from rung 1 to 6: by head_dim of the test below.
EXPECTED_REQUESTS = {
    64: [16512, 10560, 10560, 2656, 664, 664],
    128: [33024, 21120, 21120, 2656, 664, 664],
    80: [20640, 15840, 15840, 2656, 664, 664],
}


@pytest.mark.parametrize("dtype, head_dim", [(torch.float32, 64), (torch.float16, 128), (torch.bfloat16, 80)], ids=str)
def test_what_each_rung_is_for(dtype, head_dim):
    """K/V traffic over the ideal, at 8 query heads and 2 KV heads: sectors of which few bytes are used (1), every head
    for itself (2 to 4), a group together (5, 6). Sixteen bytes a load from rung 4 on; never a bank conflict."""
    given = scene([100, 37, 64, 129], 8, 2, head_dim, 16, dtype)
    element = given.k_cache.element_size()
    ideal = 2 * int(given.context_len.sum()) * 2 * head_dim * element
    cost = {}
    for rung in CPU_RUNGS:
        run = Run(trace_limit=4_000_000)
        load("checked", dtype, head_dim).attention(*given.arguments, rung=rung, parts=2, run=run)
        cost[rung] = traffic(run, ["k", "v"])
        shared = [use for use in by_line(run) if use.shared]
        assert [use for use in shared if use.conflict != 1] == [] and bool(shared) == (rung >= 3)
    assert [cost[rung].request_bytes / ideal for rung in CPU_RUNGS] == [32 / element, 4, 4, 4, 1, 1]
    assert [cost[rung].requests for rung in CPU_RUNGS] == EXPECTED_REQUESTS[head_dim]
