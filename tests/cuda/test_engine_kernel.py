"""The engine over paged memory with its attention in the handwritten kernels, run on the CPU."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from compiled_kernels import needs_compiler
from test_paged_attention import Scene as Pool

from minibatch import build_engine
from minibatch.cuda.errors import KernelUnavailable
from minibatch.model.kernel_attention import KernelAttention, kernel_backend
from minibatch.model.paged_kv import PagedKVCache, TokenByToken
from minibatch.schedulers.mix import Chunked

PROMPTS = ("count to 12", "count to 3", "list 4 fruits", "count to 7")


def texts(tiny, monkeypatch, kernel, **how):
    """Serve four prompts on paged memory; with `kernel` in the environment, or without. Returns (texts, trace)."""
    monkeypatch.delenv("MINIBATCH_KERNEL", raising=False)
    if kernel:
        monkeypatch.setenv("MINIBATCH_KERNEL", kernel)
    how = {"max_num_seqs": 4, "max_model_len": 64, "block_size": 4} | how
    engine = build_engine(tiny, memory="paged", **how)
    trace = engine.run([tiny.request(str(i), text, max_new_tokens=24) for i, text in enumerate(PROMPTS)])
    return {name: tiny.tokenizer.decode(record.tokens) for name, record in trace.requests.items()}, trace


@pytest.fixture
def launches(monkeypatch):
    """How many tokens and sequences each call of the kernel attention had."""
    seen, call = [], KernelAttention.__call__

    def counted(self, layer, q, k, v):
        seen.append((len(q), len(self.where[0])))
        return call(self, layer, q, k, v)

    monkeypatch.setattr(KernelAttention, "__call__", counted)
    return seen


@needs_compiler
@pytest.mark.parametrize("backend", ["torch", "emulated", "checked"])
def test_a_step_s_numbers_are_the_oracle_s(backend):
    """Decodes, whole prompts and later chunks, end at, before and past the border of a block; the rest of the pool is
    NaN."""
    scene = Pool([(0, 5), (3, 1), (4, 1), (7, 2), (8, 8), (0, 1), (15, 3)], size=4)
    expected, after = scene.run(TokenByToken)
    found, cache = scene.run(KernelAttention, backend=backend)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for one, other in ((cache.k, after.k), (cache.v, after.v)):
        assert torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7))


@needs_compiler
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"mix": Chunked(8)},  # chunks of prompts beside decodes
        {"num_positions": 96, "host_blocks": 8},  # so little that somebody is swapped out
        {"prefix_cache": True},  # blocks with several owners
    ],
    ids=["plain", "chunked", "swapped", "prefix cache"],
)
def test_the_emulated_kernel_writes_the_same_texts(tiny, monkeypatch, launches, how):
    expected, _ = texts(tiny, monkeypatch, None, **how)
    assert launches == []
    written, trace = texts(tiny, monkeypatch, "emulated", **how)
    assert written == expected
    assert len(launches) == len(trace.steps) * tiny.config.num_layers
    assert any(tokens > rows > 1 for tokens, rows in launches)  # a step with more tokens than sequences


@needs_compiler
def test_the_checker_finds_nothing_in_the_engine_s_use_of_it(tiny, monkeypatch, launches):
    expected, _ = texts(tiny, monkeypatch, "torch")
    assert launches == []
    written, _ = texts(tiny, monkeypatch, "checked", max_num_seqs=2)
    assert written == expected and launches


@pytest.mark.parametrize(
    "kernel, error, words",
    [
        ("cuda", KernelUnavailable, "move them to cuda"),
        ("emulated", KernelUnavailable, "g\\+\\+ 12 or clang\\+\\+ 14 not found .*apt-get install"),
        ("fast", ValueError, "='fast': choose one of auto, torch"),
    ],
)
def test_a_named_backend_that_is_missing_is_one_error_before_anything_runs(tiny, monkeypatch, kernel, error, words):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(error, match=words):
        texts(tiny, monkeypatch, kernel)


def test_a_head_size_no_kernel_is_built_for(tiny, monkeypatch):
    cache = PagedKVCache(replace(tiny.config, head_dim=24), 8, torch.float32, torch.device("cpu"), 4)
    assert kernel_backend(cache) is None
    monkeypatch.setenv("MINIBATCH_KERNEL", "emulated")
    with pytest.raises(ValueError, match="head_dim=24: kernels are built for 16, 32"):
        kernel_backend(cache)


def test_the_command_line_says_it_in_one_line(monkeypatch):
    monkeypatch.setenv("MINIBATCH_KERNEL", "emulated")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    command = [sys.executable, "-m", "minibatch", "compare", "--model", "tiny", "--memory", "paged", "--requests", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error: MINIBATCH_KERNEL=emulated: g++ 12")
    assert "Traceback" not in done.stderr
