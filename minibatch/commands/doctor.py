"""What this machine has, one tiny run, OK or what to do."""

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys

PACKAGES = ["torch", "numpy", "matplotlib", "ipywidgets", "jupyterlab", "tokenizers", "safetensors", "gguf", "pytest"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`doctor` takes no options."""


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 if the course cannot run here."""
    problems = []
    print(f"python      {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        try:
            print(f"{name:11} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name:11} missing")
            problems.append(f"{name} is missing: run `{sys.executable} -m pip install -r requirements.txt`")
    if not problems:
        problems += _machine() + _tiny_run()
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("not OK" if problems else "OK")
    return 1 if problems else 0


def _machine() -> list[str]:
    """Threads, compilers, GPU, models: facts, none of them a must."""
    import torch

    from minibatch.model import smollm2
    from minibatch.model.linear import can_pack

    cpu = torch.device("cpu")
    packed = [str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.bfloat16) if can_pack(dtype, cpu)]
    print(f"threads     {torch.get_num_threads()} of {os.cpu_count()} cores")
    print(f"packed      {', '.join(packed) or 'no'} (weights laid out once for the CPU's matrix products)")
    print(f"CUDA GPU    {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none (none is needed)'}")
    for tool in ("nvcc", "g++"):
        print(f"{tool:11} {shutil.which(tool) or 'not found (needed for the CUDA notebook only)'}")
    here = smollm2.gguf_path().exists()
    print(
        f"smollm2     {smollm2.gguf_path() if here else 'not fetched yet: python -m minibatch models --fetch smollm2'}"
    )
    return []


def _tiny_run() -> list[str]:
    """The embedded model answers one question."""
    from minibatch.build import build_engine
    from minibatch.model import load_model

    model = load_model("tiny")
    engine = build_engine(model, max_num_seqs=1)
    tokens = list(engine.stream(model.request("doctor", "count to 5", max_new_tokens=32)))
    text = model.tokenizer.decode(tokens)
    print(f"tiny run    count to 5: {text}")
    return [] if text == "1 2 3 4 5" else [f"the embedded model should have counted to 5 and wrote {text!r}"]
