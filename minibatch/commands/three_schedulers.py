"""The picture at the top of the README: the same 24 requests through the three batchers of notebooks 02 and 03.

It counts steps, not seconds, so any machine draws the same. SmolLM2 writes the answers once; a text does not
depend on the batch (the tests show it), so the three batchers replay those very tokens, one second a step.
"""

from random import Random

from matplotlib.figure import Figure

from minibatch.build import build_engine
from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory
from minibatch.plot import slots
from minibatch.schedulers import DynamicBatcher, IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate.scripted import ScriptedExecutor
from minibatch.trace import Trace
from minibatch.workload import chat_prompts, poisson

SLOTS, LONGEST, RATE, WINDOW = 8, 320, 0.2, 10  # positions a slot; requests a step; steps


def three_schedulers() -> Figure:
    """The course's 24 prompts, arriving at random over 120 steps, through the three batchers."""
    from minibatch.model import load_model

    model = load_model("smollm2")
    prompts = chat_prompts("smollm2")
    arrivals = poisson(RATE)(Random(0), len(prompts))
    requests = [model.request(i, text, at, max_new_tokens=256) for (i, text), at in zip(prompts, arrivals)]
    written = build_engine(model, "iteration", SLOTS, LONGEST).run(requests)
    script = {name: record.tokens for name, record in written.requests.items()}

    def replay(scheduler: type[Scheduler], **options: object) -> Trace:
        memory = ContiguousMemory(SLOTS * LONGEST, LONGEST)
        return Engine(scheduler(SLOTS, memory, **options), ScriptedExecutor(script, vocab_size=49152)).run(requests)

    return slots([replay(StaticBatcher), replay(DynamicBatcher, max_wait=WINDOW), replay(IterationScheduler)])
