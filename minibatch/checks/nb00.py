"""Checks for the exercises of notebook 00: positions needed, when an answer ends, the times of a request."""

from collections.abc import Callable
from functools import wraps

from minibatch.checks.base import expect


def check_positions_needed(function: Callable) -> None:
    """`function(prompt_tokens, new_tokens)`: K/V positions a request has stored when its answer ends."""
    for prompt, new in [(37, 8), (5, 1), (1, 900), (20, 20), (512, 2)]:
        expect(function, prompt, new, want=prompt + new - 1, hint=_positions_hint)


def _positions_hint(got: object, prompt: int, new: int) -> str:
    if got == prompt + new:
        return "that is every token; is the K and V of the last one read by any later step?"
    if got == prompt:
        return "that is the prompt; which tokens of the answer are fed back into the model?"
    if got == prompt + new - 2:
        return "one too few; the first token of the answer is fed back as well"
    return "count the tokens that were computed, in the prefill and in each decode step"


def check_output_of(function: Callable) -> None:
    """`function(script, stop_token_ids, max_new_tokens)`: the tokens a client gets, and "stop" or "length"."""

    @wraps(function)
    def with_plain_reason(*args: object) -> object:  # FinishReason.STOP is as good an answer as "stop"
        got = function(*args)
        if isinstance(got, (tuple, list)) and len(got) == 2:
            return got[0], getattr(got[1], "value", got[1])
        return got

    for script, stops, limit, want in [
        ([9, 4, 2, 6, 6], (2,), 10, ([9, 4, 2], "stop")),
        ([9, 4, 7, 6, 2], (2,), 3, ([9, 4, 7], "length")),
        ([9, 4, 2, 6, 6], (2,), 3, ([9, 4, 2], "stop")),
        ([9, 5, 4, 2, 6], (2, 5), 10, ([9, 5], "stop")),
        ([2, 4, 2, 6, 6], (2,), 10, ([2], "stop")),
        ([8, 2, 0, 6, 6], (), 4, ([8, 2, 0, 6], "length")),
        ([7, 7, 2, 6, 6], (2,), 1, ([7], "length")),
    ]:
        expect(with_plain_reason, script, stops, limit, want=want, hint=_output_hint)


def _output_hint(got: object, script: list[int], stops: tuple[int, ...], limit: int) -> str:
    if not isinstance(got, (tuple, list)) or len(got) != 2 or not isinstance(got[0], (tuple, list)):
        return "return two things: the list of tokens, and the reason as a word"
    tokens = list(got[0])
    if len(tokens) > limit:
        return "more tokens than max_new_tokens"
    first = next((place for place, token in enumerate(script[:limit]) if token in stops), None)
    if first is None:
        ends = "what ended it?" if len(tokens) == limit else "there was room for more"
        return f"no stop token came within max_new_tokens; {ends}"
    if len(tokens) <= first:
        return "the token that ends an answer is kept in the list"
    if len(tokens) > first + 1:
        return "it goes on after a token of stop_token_ids"
    return "the right tokens; look at the reason, above all where two could be given"


def check_request_times(function: Callable) -> None:
    """`function(arrival, token_times)`: TTFT and the list of inter-token latencies, in seconds."""
    for arrival, times in [(0.5, [0.75, 1.0, 1.5]), (0.0, [2.0]), (3.0, [3.25, 3.5, 3.75, 5.0]), (1.0, [1.5, 1.75])]:
        want = (times[0] - arrival, [later - earlier for earlier, later in zip(times, times[1:])])
        expect(function, arrival, times, want=want, hint=_times_hint)


def _times_hint(got: object, arrival: float, times: list[float]) -> str:
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        return "return two things: the TTFT, and a list of gaps"
    ttft, gaps = got
    if ttft == times[0] and arrival:
        return "the TTFT counts from the arrival of the request"
    if ttft == times[-1] - arrival and len(times) > 1:
        return "that is the E2E latency; the TTFT ends at the first token"
    if not isinstance(ttft, (int, float)) or abs(ttft - (times[0] - arrival)) > 1e-6:
        return "look at the TTFT: from arrival to the first token, in seconds"
    if not hasattr(gaps, "__len__"):
        return "the inter-token latencies are a list, one for each gap, not one number"
    if len(gaps) == len(times):
        return "n tokens have n - 1 gaps; the wait for the first token is the TTFT"
    return "look at the gaps: each is the time between two neighbouring tokens, in seconds, in their order"
