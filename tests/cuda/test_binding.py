"""The binding in C++: built by torch.utils.cpp_extension and run over the emulated kernels; its CUDA half, compiled."""

import shutil
import subprocess

import pytest
import torch
from compiled_kernels import needs_compiler

from minibatch.cuda import binding, compilers
from minibatch.cuda.errors import KernelUnavailable
from minibatch.cuda.scene import allowed, make_scene


@pytest.fixture(scope="module")
def attend():
    try:
        return binding.load()
    except KernelUnavailable as error:
        if "ninja" in str(error):
            pytest.skip(str(error))
        raise


@needs_compiler
def test_it_computes_what_the_kernels_compute(attend):
    scene = make_scene()
    truth = scene.truth()
    assert ((attend(*scene.arguments).double() - truth).abs() <= allowed(truth, torch.float32)).all()


@needs_compiler
def test_torch_finds_nothing_wrong_with_it(attend):
    checked = torch.library.opcheck(attend.default, make_scene((1, 20)).arguments)
    assert set(checked.values()) == {"SUCCESS"} and len(checked) >= 3
    scene = make_scene((5, 17))
    compiled = torch.compile(lambda *x: attend(*x) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*scene.arguments), attend(*scene.arguments) * 2)


@needs_compiler
@pytest.mark.parametrize(
    "change, words",
    [
        ({"head_dim": 32}, "head_dim 64"),
        ({"dtype": torch.float16}, "for float32"),
    ],
)
def test_what_it_was_not_built_for_is_refused(attend, change, words):
    with pytest.raises(ValueError, match=words):
        attend(*make_scene((5,), **change).arguments)


@needs_compiler
def test_views_and_wrong_types_are_refused(attend):
    scene = make_scene((5,))
    with pytest.raises(ValueError, match="contiguous"):
        attend(scene.q[:, ::2], *scene.arguments[1:])
    with pytest.raises(ValueError, match="int32"):
        attend(*scene.arguments[:4], scene.seq_of.long(), *scene.arguments[5:])


def test_its_cuda_half_compiles(tmp_path):
    """The headers of torch for CPUs hold those for CUDA, but for one that torch's own build makes."""
    try:
        headers = compilers.toolkit(compilers.nvcc()) / "include"
        compiler = compilers.host_compiler()
    except KernelUnavailable as error:
        pytest.skip(str(error))
    made = tmp_path / "c10/cuda/impl/cuda_cmake_macros.h"
    made.parent.mkdir(parents=True)
    made.touch()
    from torch.utils.cpp_extension import include_paths

    folders = [*include_paths(), str(headers), str(tmp_path), str(binding.HERE)]
    command = [compiler.path, "-std=c++20", "-fsyntax-only", "-DWITH_CUDA", *(f"-I{x}" for x in folders)]
    done = subprocess.run([*command, str(binding.SOURCE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_ninja_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(KernelUnavailable, match="pip install ninja"):
        binding._find_ninja()
