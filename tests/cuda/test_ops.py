"""The operators: as torch sees them, which backend runs, and what is refused before anything starts."""

import logging
from dataclasses import replace

import pytest
import torch
from compiled_kernels import needs_compiler
from scenes import assert_equal, scene

from minibatch.cuda import backends, ops
from minibatch.cuda.arguments import check_attention
from minibatch.cuda.errors import KernelUnavailable

ON_CPU = ["torch", pytest.param("emulated", marks=needs_compiler), pytest.param("checked", marks=needs_compiler)]


@pytest.fixture(autouse=True)
def no_backend_named(monkeypatch):
    monkeypatch.delenv(backends.VARIABLE, raising=False)


def write_arguments():
    k, v, caches = torch.randn(3, 2, 64), torch.randn(3, 2, 64), torch.zeros(2, 3, 4, 2, 64)
    return k, v, caches[0], caches[1].clone(), torch.tensor([5, -1, 9])


@pytest.mark.parametrize("backend", ON_CPU)
def test_opcheck(backend):
    given = scene([0, 1, 9, 4])
    torch.library.opcheck(torch.ops.minibatch.paged_attention.default, given.arguments, {"backend": backend})
    torch.library.opcheck(torch.ops.minibatch.cache_write.default, write_arguments(), {"backend": backend})


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_step_compiled_as_one_graph(backend):
    """torch.compile sees that cache_write changes the caches, and what shape and type attention returns."""
    given, (k, v, _, _, slots) = scene([12, 12, 12]), write_arguments()

    def step(q, k, v, k_cache, v_cache, *rows):
        ops.cache_write(k, v, k_cache, v_cache, slots, backend)
        return ops.paged_attention(q * 2, k_cache, v_cache, *rows, 0.1, backend).flatten(1)

    caches = [torch.nan_to_num(cache) for cache in (given.k_cache, given.v_cache)]
    again = [cache.clone() for cache in caches]
    eager = step(given.q, k, v, *caches, *given.arguments[3:6])
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")(given.q, k, v, *again, *given.arguments[3:6])
    assert torch.equal(eager, compiled)
    assert all(torch.equal(one, other) for one, other in zip(caches, again))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ON_CPU)
def test_every_backend_is_right(backend, dtype):
    given = scene([0, 1, 4, 5, 67], 6, 2, dtype=dtype, chunk=2, layout="fused")
    out = ops.paged_attention(*given.arguments, backend=backend)
    assert_equal(out, given.truth())
    assert out.is_contiguous() and out.dtype == dtype


@pytest.mark.parametrize("backend", ON_CPU)
def test_every_backend_writes_the_same(backend):
    k, v, k_cache, v_cache, slots = write_arguments()
    ops.cache_write(k, v, k_cache, v_cache, slots, backend=backend)
    assert torch.equal(k_cache[1, 1], k[0]) and torch.equal(v_cache[2, 1], v[2])
    assert k_cache.count_nonzero() == 2 * 2 * 64


@pytest.mark.parametrize("backend", ON_CPU)
def test_no_tokens(backend):
    given = scene([4])
    rows = [rows[:0] for rows in (given.seq_of, given.context_len)]
    out = ops.paged_attention(given.q[:0], *given.arguments[1:4], *rows, 0.1, backend)
    assert out.shape == (0, 4, 64)
    k, v, *caches, slots = write_arguments()
    ops.cache_write(k[:0], v[:0], *caches, slots[:0], backend)


# --- which backend


def test_auto_takes_torch_on_a_cpu_and_says_so_once(caplog, monkeypatch):
    backends._say.cache_clear()
    monkeypatch.setattr(backends, "load", None)  # nothing is built
    given = scene([3])
    with caplog.at_level(logging.WARNING):
        ops.paged_attention(*given.arguments)
        ops.paged_attention(*given.arguments)
    assert [record.getMessage() for record in caplog.records] == [
        "paged attention of cpu tensors runs on backend 'torch' (MINIBATCH_KERNEL names another)"
    ]


@pytest.mark.parametrize(
    "argument, variable, expected", [("auto", "checked", "checked"), ("torch", "checked", "torch")]
)
def test_the_environment_decides_where_the_call_does_not(argument, variable, expected, monkeypatch):
    monkeypatch.setenv(backends.VARIABLE, variable)
    assert backends.choose(argument, torch.device("cpu")) == expected


def test_auto_takes_cuda_for_tensors_on_a_gpu():
    assert backends.choose("auto", torch.device("cuda", 0)) == "cuda"


def test_a_name_that_is_none(monkeypatch):
    with pytest.raises(ValueError, match="backend='gpu': choose one of auto, torch, emulated, checked, cuda"):
        ops.paged_attention(*scene([3]).arguments, backend="gpu")
    monkeypatch.setenv(backends.VARIABLE, "fast")
    with pytest.raises(ValueError, match="MINIBATCH_KERNEL='fast'"):
        ops.paged_attention(*scene([3]).arguments)


def test_a_named_backend_never_falls_back():
    with pytest.raises(KernelUnavailable, match="backend 'cuda' cannot run: the tensors are on cpu: move them to cuda"):
        ops.paged_attention(*scene([3]).arguments, backend="cuda")
    with pytest.raises(KernelUnavailable, match="backend 'checked' cannot run: the tensors are on cuda"):
        backends.choose("checked", torch.device("cuda", 0))
    if torch.version.cuda is None:
        assert any("built without CUDA" in reason for reason in backends.missing("cuda"))


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    backends.load.cache_clear()
    with pytest.raises(KernelUnavailable, match=r"g\+\+ 12 or clang\+\+ 14 not found"):
        ops.paged_attention(*scene([3]).arguments, backend="emulated")
    assert "not found" in backends.missing("checked")[0] and backends.missing("torch") == []


# --- what is refused


def cpu(given, **changed):
    return replace(given, **changed).arguments


def refused(message, backend="emulated", **changed):
    return pytest.param(changed, backend, message, id=message[:40])


@pytest.mark.parametrize(
    "changed, backend, message",
    [
        refused("q has 4 heads, k_cache 3", k_cache=(6, 4, 3, 64), v_cache=(6, 4, 3, 64)),
        refused("q has head_dim 32, k_cache 64", q=(2, 4, 32)),
        refused(r"q is \[2, 256\]: it must have 3 dimensions", q=(2, 256)),
        refused("q has 3 tokens, seq_of 2", q=(3, 4, 64)),
        refused("they must agree", v_cache=(6, 4, 2, 32)),
        refused("they must agree", k_cache=torch.zeros(6, 4, 2, 64).half(), backend="torch"),
        refused("k_cache has strides .*they must be equal", v_cache=torch.zeros(6, 2, 4, 64).transpose(1, 2)),
        refused("block_table is torch.int64 and contiguous: it must be int32", block_table=torch.zeros(2, 3).long()),
        refused("block_table is torch.int32 and not contig", block_table=torch.zeros(3, 2, dtype=torch.int32).T),
        refused("seq_of has 2: block_table has rows 0..1", seq_of=torch.tensor([0, 2], dtype=torch.int32)),
        refused("seq_of has -1", seq_of=torch.tensor([0, -1], dtype=torch.int32), backend="torch"),
        refused("context_len has 17: .*0..12", context_len=torch.tensor([3, 17], dtype=torch.int32)),
        refused("context_len has -2", context_len=torch.tensor([3, -2], dtype=torch.int32)),
        refused("block_table has 99 within a context", block_table=torch.full((2, 3), 99, dtype=torch.int32)),
        refused("block_table has -1 within a context", block_table=torch.full((2, 3), -1, dtype=torch.int32)),
        refused("last dimension must have stride 1", q=torch.zeros(2, 64, 4).transpose(1, 2)),
        refused(r"q has strides .* and starts at 4 modulo 16", q=torch.zeros(2 * 4 * 64 + 1)[1:].view(2, 4, 64)),
    ],
)
def test_refused(changed, backend, message):
    given = scene([3, 5])  # 6 blocks of 4, a table of 2 x 3
    sized = {
        name: torch.zeros(value, dtype=getattr(given, name).dtype) if isinstance(value, tuple) else value
        for name, value in changed.items()
    }
    with pytest.raises(ValueError, match=message):
        ops.paged_attention(*cpu(given, **sized), backend=backend)


@pytest.mark.parametrize("which", ["k_cache", "v_cache", "block_table", "seq_of", "context_len"])
def test_mixed_devices_are_refused(which):
    """A34. (Asked of the check itself: with a tensor on "meta", torch would not come to the operator's code.)"""
    given = scene([3, 5])
    with pytest.raises(ValueError, match=f"{which} is on meta, others on cpu: all must be on one device"):
        check_attention(*cpu(given, **{which: getattr(given, which).to("meta")})[:-1])


def test_head_sizes_types_and_rungs_that_are_not_built_are_refused_by_name():
    with pytest.raises(ValueError, match="head_dim=40: kernels are built for 16, 32, 64, 80, 96, 128, 256"):
        ops.paged_attention(*scene([3], head_dim=40).arguments, backend="emulated")
    with pytest.raises(ValueError, match="torch.float64: kernels are built for float32"):
        ops.paged_attention(*scene([3], dtype=torch.float64).arguments, backend="emulated")
    with pytest.raises(ValueError, match="rung=8"):
        ops.paged_attention(*scene([3]).arguments, backend="emulated", rung=8)
    given = scene([3], head_dim=40)  # plain torch takes them
    assert_equal(ops.paged_attention(*given.arguments, backend="torch"), given.truth())


@needs_compiler
def test_a_view_that_rung_4_cannot_load_is_taken_by_rung_3():
    given = replace(scene([3, 5]), q=torch.randn(2 * 4 * 64 + 1)[1:].view(2, 4, 64))
    assert_equal(ops.paged_attention(*given.arguments, backend="checked", rung=3), given.truth())


@pytest.mark.parametrize(
    "slots, message", [([5, -2, 9], "slot_mapping has -2"), ([5, 0, 12], r"slot_mapping has 12: slots are .* 0..11")]
)
def test_slots_out_of_range(slots, message):
    *rest, _ = write_arguments()
    with pytest.raises(ValueError, match=message):
        ops.cache_write(*rest, torch.tensor(slots))


def test_parts_follow_the_work_there_is():
    """An H100 has room for 132 x 16 blocks: one token gets many parts, many get none; none is below 256 positions."""

    def split(tokens, kv_heads, positions, rung=6):
        table = torch.empty(tokens, positions // 16, dtype=torch.int32, device="meta")
        return ops._split(rung, torch.empty(tokens, 1, 1), torch.empty(1, 16, kv_heads, 1), table)

    assert split(1, 8, 32_768) == (6, 128)
    assert split(1, 8, 262_144) == (6, 264)
    assert split(64, 8, 4096) == (6, 5)
    assert split(512, 8, 4096) == (5, 1) and split(1, 8, 256) == (5, 1)
    assert split(512, 8, 4096, rung=7) == (7, 1) and split(1, 8, 4096, rung=3) == (3, 1)
