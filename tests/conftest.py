"""Fixtures shared by the tests, and quiet threads."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks"))  # frozen, build_labs
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


def pytest_terminal_summary(terminalreporter, config):
    """`pytest -m labs`: which answers passed, which were refused, and in which words."""
    if config.option.markexpr != "labs":
        return
    terminalreporter.section("right and wrong answers")
    reports = terminalreporter.getreports("passed")
    rows = [row for report in reports for name, row in report.user_properties if name == "labs"]
    before = None
    for lab, question, kind, answer, words in sorted(map(tuple, rows), key=lambda row: row[:2]):
        if (lab, question) != before:
            terminalreporter.write_line(f"\n{lab} {question}")
        before = lab, question
        verdict = {"right": "passes ", "stub": "not yet", "wrong": "refused"}[kind]
        terminalreporter.write_line(f"  {verdict}  {answer:32} {words if kind == 'wrong' else ''}".rstrip())
