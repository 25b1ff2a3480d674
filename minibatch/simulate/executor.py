"""An executor without a model: it says how long the step would have taken. Introduced in notebook 09."""

from minibatch.simulate.roofline import Roofline
from minibatch.step import StepPlan, StepResult

FILLER = 7  # every token; no request of a simulation names it as a stop token


class SimulatedExecutor:
    """Stands where the model stood: the same engine, scheduler and memory, on an emulated clock. Nothing sleeps.

    Each chunk that reaches the end of what is known yields `FILLER`, so an answer ends by its max_new_tokens: a
    replayed trace says how long each was.
    """

    vocab_size = 1 << 31  # any token id

    def __init__(self, cost: Roofline, max_model_len: int | None = None):
        self.cost = cost
        self.max_model_len = max_model_len or cost.deployment.kv_tokens

    def execute(self, plan: StepPlan) -> StepResult:
        """A token for each that is due one, and the seconds of the cost model."""
        tokens = [
            FILLER if start + count == len(sequence.request.prompt) + len(sequence.output) else None
            for sequence, _, start, count in plan.chunks
        ]
        return StepResult(tuple(tokens), self.cost.seconds(plan))
