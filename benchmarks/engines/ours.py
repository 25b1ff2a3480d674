"""minibatch itself, with any of its schedulers."""

import argparse

import common
import torch

from minibatch import Engine, Request, SamplingParams
from minibatch.memory import ContiguousMemory
from minibatch.model import load_model
from minibatch.schedulers import SCHEDULERS


def load(args: argparse.Namespace) -> common.Serve:
    """--mode is the scheduler's name, with "+native" behind it where operations are to be compiled for this CPU. K/V
    tensors for the most slots are made once, as the other engines do."""
    torch.set_num_threads(args.threads)
    scheduler, _, native = args.mode.partition("+")
    model = load_model("smollm2", args.dtype, native=bool(native))
    memory = ContiguousMemory(max(args.slots) * args.context, args.context)
    executor = model.executor(memory)

    def serve(jobs: list[common.Job], slots: int) -> list[list[int]]:
        engine = Engine(SCHEDULERS[scheduler](slots, memory), executor)
        trace = engine.run(
            Request(f"R{index}", tuple(job.prompt), SamplingParams(max_new_tokens=job.new_tokens))
            for index, job in enumerate(jobs)
        )
        return [record.tokens for record in trace.requests.values()]

    return serve


if __name__ == "__main__":
    common.main(load, "minibatch", "torch")
