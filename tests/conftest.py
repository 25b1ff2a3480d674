"""Fixtures shared by the tests, and quiet threads."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: two threads that spin collapse under load

import pytest


@pytest.fixture(scope="session")
def tiny():
    """The embedded model in float32."""
    import torch

    from minibatch import load_model

    torch.set_num_threads(1)
    return load_model("tiny")


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2 in float32, where it has been fetched (CI fetches it)."""
    import torch

    from minibatch import load_model
    from minibatch.model.smollm2 import gguf_path

    if not gguf_path().exists() and not os.environ.get("CI"):
        pytest.skip("SmolLM2 is not in the cache: python -m minibatch models --fetch smollm2")
    torch.set_num_threads(1)
    return load_model("smollm2")
