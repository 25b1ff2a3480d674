"""Draw the committed figures: `python figures/build.py`, or `--check` to draw them anew and compare.

They count steps, not seconds, so any machine draws the same. SmolLM2 writes the answers once; a text does not
depend on the batch (the tests show it), so the three batchers replay those very tokens, one second a step.
"""

import sys
from pathlib import Path
from random import Random

from minibatch import Engine, Trace, build_engine, load_model
from minibatch.memory import ContiguousMemory
from minibatch.plot import save, slots
from minibatch.schedulers import DynamicBatcher, IterationScheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import chat_prompts, poisson

FOLDER = Path(__file__).parent
SLOTS, LONGEST, RATE, WINDOW = 8, 320, 0.2, 10  # positions a slot; requests a step; steps


def three_schedulers() -> list[Trace]:
    """The course's 24 prompts, arriving at random over 120 steps, through the three batchers."""
    model = load_model("smollm2")
    prompts = chat_prompts("smollm2")
    arrivals = poisson(RATE)(Random(0), len(prompts))
    requests = [model.request(i, text, at, max_new_tokens=256) for (i, text), at in zip(prompts, arrivals)]
    written = build_engine(model, "iteration", SLOTS, LONGEST).run(requests)
    script = {name: record.tokens for name, record in written.requests.items()}

    def replay(scheduler, **options) -> Trace:
        memory = ContiguousMemory(SLOTS * LONGEST, LONGEST)
        return Engine(scheduler(SLOTS, memory, **options), ScriptedExecutor(script, vocab_size=49152)).run(requests)

    return [replay(StaticBatcher), replay(DynamicBatcher, max_wait=WINDOW), replay(IterationScheduler)]


def main() -> int:
    """Write the figures, or compare them with the committed ones."""
    target = FOLDER / "three_schedulers.png"
    drawn = target.with_suffix(".new.png") if "--check" in sys.argv else target
    save(slots(three_schedulers()), drawn, dpi=160)
    if drawn == target:
        print(target)
        return 0
    same = drawn.read_bytes() == target.read_bytes()
    drawn.unlink()
    print("nothing drifted" if same else f"{target} has drifted: run python figures/build.py")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
