"""An executor that says what it is told: for drawings, exercises and tests. Introduced in notebook 02."""

from collections.abc import Callable, Mapping, Sequence

from minibatch.step import StepPlan, StepResult


class ScriptedExecutor:
    """Every step lasts `seconds_per_step` and every sequence gets the next token of its script.

    `script` maps a request id to its tokens; a request without one, or past its end, gets `filler`. Give a
    function of the plan as `seconds_per_step` where a step's length should depend on what it does.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[int]] | None = None,
        seconds_per_step: float | Callable[[StepPlan], float] = 1.0,
        filler: int = 7,
        vocab_size: int = 1000,
        max_model_len: int = 1_000_000,
    ):
        self.script, self.filler, self.seconds_per_step = dict(script or {}), filler, seconds_per_step
        self.vocab_size, self.max_model_len = vocab_size, max_model_len

    def execute(self, plan: StepPlan) -> StepResult:
        """Tokens by script, seconds by rule."""
        tokens = tuple(self._next(chunk.sequence) if chunk.yields_token else None for chunk in plan.chunks)
        seconds = self.seconds_per_step(plan) if callable(self.seconds_per_step) else self.seconds_per_step
        return StepResult(tokens, seconds)

    def _next(self, sequence) -> int:
        script, index = self.script.get(sequence.request_id, ()), len(sequence.output)
        return script[index] if index < len(script) else self.filler
