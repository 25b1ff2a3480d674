"""Which of the ways to run a kernel is taken, and what each of them needs."""

import functools
import logging
import os

import torch

from minibatch.cuda.compilers import check_arch, host_compiler, nvcc
from minibatch.cuda.errors import KernelUnavailable
from minibatch.cuda.library import Library, load

BACKENDS = ("auto", "torch", "emulated", "checked", "cuda")
VARIABLE = "MINIBATCH_KERNEL"
log = logging.getLogger(__name__)


def choose(backend: str, device: torch.device) -> str:
    """The backend for tensors on a device: the one named, or for "auto" that of $MINIBATCH_KERNEL.

    If that says "auto" or nothing: "cuda" for tensors on a GPU, "torch" for others; said once in the log. A backend
    that was named is never replaced by another: if it cannot take these tensors, KernelUnavailable says what is
    missing. (A missing compiler is found when a library has to be built.)
    """
    named = os.environ.get(VARIABLE, "auto") if backend == "auto" else backend
    if named not in BACKENDS:
        where = f"backend={named!r}" if backend != "auto" else f"{VARIABLE}={named!r}"
        raise ValueError(f"{where}: choose one of {', '.join(BACKENDS)}")
    if named == "auto":
        named = "cuda" if device.type == "cuda" else "torch"
        _say(named, device.type)
    needed = {"cuda": "cuda", "emulated": "cpu", "checked": "cpu"}.get(named, device.type)
    if device.type != needed:
        lacking = [f"the tensors are on {device.type}: move them to {needed}", *missing(named)]
        raise KernelUnavailable(f"backend {named!r} cannot run: {'; '.join(lacking)}")
    return named


def missing(backend: str) -> list[str]:
    """What this machine lacks for a backend, each with what to do; empty if nothing."""
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r}: choose one of {', '.join(BACKENDS)}")
    lacking = []
    if backend == "cuda":
        if torch.version.cuda is None:
            lacking.append(f"torch {torch.__version__} is built without CUDA: install a CUDA build of torch")
        elif not torch.cuda.is_available():
            lacking.append("torch sees no GPU: is there one, and an NVIDIA driver?")
        lacking += _lacking(nvcc)
    if backend in ("emulated", "checked"):
        lacking += _lacking(host_compiler)
    return lacking


def library(backend: str, dtype: torch.dtype, head_dim: int, device: torch.device) -> Library:
    """The library behind "emulated", "checked" or "cuda", built now if this is its first use."""
    if backend == "cuda":
        return load("cuda", dtype, head_dim, architecture(device.index))
    return load({"emulated": "fast", "checked": "checked"}[backend], dtype, head_dim)


@functools.cache
def architecture(device: int | None = None) -> str:
    """What nvcc calls a GPU of this machine, such as "sm_90". Raises KernelUnavailable if nvcc does not know it."""
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    check_arch(nvcc(), arch)
    return arch


def _lacking(find) -> list[str]:
    try:
        find()
    except KernelUnavailable as error:
        return [str(error)]
    return []


@functools.cache
def _say(named: str, device: str) -> None:
    """Once for each kind of device."""
    log.warning("paged attention of %s tensors runs on backend %r (%s names another)", device, named, VARIABLE)
