"""Operations compiled for this CPU compute what plain torch does, on any width of registers, and are never replaced."""

import json
from types import SimpleNamespace

import pytest
import torch

from minibatch import load_model
from minibatch.build import build_engine
from minibatch.cuda import cache, compilers
from minibatch.cuda.build import build
from minibatch.cuda.compilers import host_compiler
from minibatch.cuda.errors import BuildError, KernelUnavailable
from minibatch.model.linear import Linear
from minibatch.model.llama import PLAIN, rms_norm, rotate
from minibatch.model.native import SOURCE, NativeLinear, load_library, native_operations

DTYPES = (torch.float32, torch.bfloat16)
try:
    host_compiler()
except KernelUnavailable as missing:
    pytest.skip(f"native operations need a compiler: {missing}", allow_module_level=True)


@pytest.fixture(params=[None, 4, 8, 16], ids=lambda lanes: f"lanes={lanes or 'own'}")
def lanes(request):
    """Registers as this CPU has them, and of each width that a CPU may have."""
    return request.param


@pytest.mark.parametrize("outs, into", [(1, 1), (47, 5), (48, 64), (49, 33), (200, 576)])
def test_a_product_is_that_of_float64(lanes, outs, into):
    weight = torch.randn(outs, into)
    linear = NativeLinear(load_library(lanes), weight)
    for rows in (0, 1, 2, 7, 8, 9, 16, 100):  # 0: no row of a step was due a token
        x, residual = torch.randn(rows, into), torch.randn(rows, outs)
        expected = x.double() @ weight.double().T
        torch.testing.assert_close(linear(x).double(), expected, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(linear(x, residual).double(), expected + residual, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(linear(x.T.contiguous().T).double(), expected, atol=1e-4, rtol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours_nor_on_threads(lanes):
    linear, x = NativeLinear(load_library(lanes), torch.randn(200, 96)), torch.randn(21, 96)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = torch.cat([linear(row[None]) for row in x])
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for rows in range(1, 22):
                assert torch.equal(linear(x[:rows]), alone[:rows]), (threads, rows)
    finally:
        torch.set_num_threads(before)


def test_a_product_refuses_what_it_would_misread():
    linear = NativeLinear(load_library(), torch.randn(6, 4))
    for wrong in (torch.randn(2, 5), torch.randn(4), torch.randn(2, 4).double(), torch.randn(2, 4).bfloat16()):
        with pytest.raises(ValueError, match=r"x is \[.*must be \[\d, 4\] torch.float32"):
            linear(wrong)
    with pytest.raises(ValueError, match=r"residual is \[2, 5\] .*must be \[2, 6\]"):
        linear(torch.randn(2, 4), torch.randn(2, 5))
    _, rms_norm, rotate = native_operations(torch.float32)
    x, table = torch.randn(2, 3, 8), torch.randn(2, 1, 8)
    with pytest.raises(ValueError, match=r"x is \[2, 8\] torch.bfloat16: must be \[2, 8\] torch.float32"):
        rms_norm(x[:, 0].bfloat16(), torch.ones(8), 1e-5)
    with pytest.raises(ValueError, match="weight is .*bfloat16"):
        rms_norm(x[:, 0], torch.ones(8).bfloat16(), 1e-5)
    with pytest.raises(ValueError, match=r"cos, sin is \[1, 1, 8\]"):
        rotate(x, table, table[:1])
    assert torch.equal(rotate(x.transpose(1, 2).contiguous().transpose(1, 2), table, table), rotate(x, table, table))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 100])
def test_norm_and_rotation_are_those_of_torch(lanes, dtype, rows):
    native = native_operations(dtype, lanes)
    tolerance = {} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    x, weight = torch.randn(rows, 100).to(dtype), torch.randn(100).to(dtype)
    torch.testing.assert_close(native.rms_norm(x, weight, 1e-5), rms_norm(x, weight, 1e-5), **tolerance)
    turned = x.T.contiguous().T
    assert torch.equal(native.rms_norm(turned, weight, 1e-5), native.rms_norm(x, weight, 1e-5))

    cos, sin = torch.randn(2, rows, 1, 24)
    heads = torch.randn(rows, 7, 24).to(dtype)[:, 1:6]  # a view, as of q and k beside v
    torch.testing.assert_close(native.rotate(heads, cos, sin), rotate(heads, cos, sin))


def test_bfloat16_is_rounded_to_nearest_even_and_keeps_what_is_no_number(lanes):
    wide, narrow = native_operations(torch.float32, lanes), native_operations(torch.bfloat16, lanes)
    x, weight = torch.randn(50, 64).bfloat16(), torch.randn(64).bfloat16()
    exact = wide.rms_norm(x.float(), weight.float(), 1e-5)
    assert torch.equal(narrow.rms_norm(x, weight, 1e-5), exact.bfloat16())
    x[3, 5], x[4, 5] = torch.nan, torch.inf
    spoilt = narrow.rms_norm(x, weight, 1e-5)
    assert spoilt[3].isnan().all() and spoilt[4, 5].isnan() and spoilt[:3].isfinite().all()


@pytest.mark.parametrize(
    "scheduler, memory",
    [("static", "contiguous"), ("dynamic", "contiguous"), ("iteration", "contiguous"), ("iteration", "paged")],
)
def test_the_same_tokens_as_in_plain_torch(tiny, scheduler, memory):
    pool = {"memory": "paged", "num_positions": 256, "block_size": 8} if memory == "paged" else {}
    tokens = []
    for model in (tiny, load_model("tiny", native=True)):
        requests = [model.request(f"R{n}", f"count to {n}", max_new_tokens=40) for n in (3, 12, 7, 20)]
        trace = build_engine(model, scheduler, 2, 64, **pool).run(requests)
        tokens.append({name: record.tokens for name, record in trace.requests.items()})
    assert tokens[0] == tokens[1] and all(tokens[0].values())


def test_a_model_is_plain_unless_it_is_asked_otherwise(tiny):
    assert tiny.llama.operations is PLAIN and type(tiny.llama.head) is Linear
    native = load_model("tiny", native=True).llama
    assert type(native.head) is type(native.layers[0].qkv) is NativeLinear
    assert type(load_model("tiny", "bfloat16", native=True).llama.head) is Linear


def test_nothing_is_put_in_the_place_of_what_cannot_be_had(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="native=True, device='cuda': .*CPU"):
        load_model("tiny", device="cuda", native=True)
    load_library.cache_clear()
    monkeypatch.setenv("CXX", "/no/such/g++")
    with pytest.raises(KernelUnavailable, match=r"/no/such/g\+\+.*leave native out"):
        load_model("tiny", native=True)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path))
    with pytest.raises(BuildError, match="error"):
        build("native", {"LANES": "nonsense"}, SOURCE)
    build("native", source=SOURCE).write_bytes(b"half")
    with pytest.raises(KernelUnavailable, match="does not load .*delete it"):
        load_model("tiny", native=True)


def test_other_systems_are_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path))
    load_library.cache_clear()
    monkeypatch.setattr(cache, "fcntl", None)  # as on Windows
    with pytest.raises(KernelUnavailable, match="nothing is compiled on Windows: use WSL"):
        load_model("tiny", native=True)
    monkeypatch.setattr(compilers, "sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(KernelUnavailable, match="on Linux only, this is darwin: leave native out"):
        load_model("tiny", native=True)


def test_another_cpu_gets_a_library_of_its_own(monkeypatch, tmp_path):
    """A home folder may be shared with a machine whose CPU can do less."""
    from minibatch.cuda import build as build_module

    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path))
    here, run = build("native", source=SOURCE), build_module._run

    def of_another(command):
        return run(command).replace("__SSE2__", "__SOMETHING__") if "-dM" in command else run(command)

    monkeypatch.setattr(build_module, "_run", of_another)
    assert build("native", source=SOURCE) != here


@pytest.mark.parametrize("command", [["compare"], ["bench", "model"], ["bench", "steps"]], ids=" ".join)
def test_a_command_that_cannot_have_them_says_so_and_measures_nothing(monkeypatch, capsys, command):
    from minibatch.__main__ import main

    load_library.cache_clear()
    monkeypatch.setenv("CXX", "/no/such/g++")
    assert main([*command, "--model", "tiny", "--native"]) == 1
    said = capsys.readouterr()
    assert not said.out and "error: g++ 12" in said.err and said.err.endswith("leave native out\n")


def test_the_commands_say_that_operations_are_native(capsys, tmp_path):
    from minibatch.__main__ import main

    few = ["--model", "tiny", "--requests", "4", "--schedulers", "iteration"]
    assert main(["compare", *few, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(["compare", *few, "--json", "--native"]) == 0
    native = json.loads(capsys.readouterr().out)
    assert native["native"] and not plain["native"]
    assert native["runs"][0]["texts_sha256"] == plain["runs"][0]["texts_sha256"]
    assert main(["compare", *few, "--native", "--out", str(tmp_path)]) == 0
    assert "tiny in float32, native operations, 4 requests" in capsys.readouterr().out
    assert main(["bench", "model", "--model", "tiny", "--native", "--batches", "1", "--repeats", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "tiny native" and report["command"].endswith("--native")
    assert all(row["linear_share"] > 0 for row in report["rows"])
