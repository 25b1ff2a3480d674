"""Solutions to the exercises of notebook 00. Try them yourself first: the checks help."""


def positions_needed(prompt_tokens: int, new_tokens: int) -> int:
    """The prefill stores the prompt, each decode step one more; the last token is never fed back."""
    return prompt_tokens + new_tokens - 1


def output_of(script: list[int], stop_token_ids: tuple[int, ...], max_new_tokens: int) -> tuple[list[int], str]:
    """Stop is asked first: a whole answer that happens to fill its limit is a whole answer."""
    output = []
    for token in script:
        output.append(token)
        if token in stop_token_ids:
            return output, "stop"
        if len(output) == max_new_tokens:
            return output, "length"


def request_times(arrival: float, token_times: list[float]) -> tuple[float, list[float]]:
    """The wait for the first token counts from arrival and includes the queue; then every gap, one by one."""
    gaps = [later - earlier for earlier, later in zip(token_times, token_times[1:])]
    return token_times[0] - arrival, gaps
