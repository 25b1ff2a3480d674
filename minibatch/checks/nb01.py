"""Checks for the exercises of notebook 01: bytes of a step, the roof over tokens/s, where its two parts meet."""

from collections.abc import Callable

from minibatch.checks.base import expect


def check_bytes_per_step(function: Callable) -> None:
    """`function(weight_bytes, kv_bytes_per_token, contexts)`: bytes that one decode step reads."""
    cases = [
        (538_000_000, 46_080, [128]),
        (538_000_000, 46_080, [128] * 8),
        (1_000, 10, [3, 7, 50]),
        (16_060_000_000, 131_072, [2048, 1, 8192, 2048]),
    ]
    for weights, kv, contexts in cases:
        expect(function, weights, kv, contexts, want=weights + kv * sum(contexts), hint=_bytes_hint)


def _bytes_hint(got: object, weights: int, kv: int, contexts: list[int]) -> str:
    size = len(contexts)
    if got == weights:
        return "that is the weights alone; each sequence also reads its own K and V"
    if got == weights * size + kv * sum(contexts):
        return "the whole batch goes through the weights together: how often are they read?"
    if got == weights + kv * size:
        return "a sequence reads the K and V of its whole context, not of one token"
    if got in (weights + kv * max(contexts) * size, weights + kv * max(contexts)):
        return "every sequence reads its own context, and these differ in length"
    if got == kv * sum(contexts):
        return "that is K and V alone; a step also reads the weights"
    return "add what all share, once, and what each sequence reads for itself, in bytes"


def check_roofline_tokens_per_s(function: Callable) -> None:
    """`function(batch, weight_bytes, flops_per_token, bandwidth, arithmetic)`: the roof, weights only."""
    for batch in (1, 4, 150, 153, 160, 1024):
        case = (batch, 16.06e9, 16.06e9, 2.039e12, 312e12)
        expect(function, *case, want=_roof(*case), hint=_roof_hint)
    for case in [(8, 1000, 500, 2000, 3000), (2, 1000, 500, 2000, 3000), (3, 1000, 500, 2000, 3000)]:
        expect(function, *case, want=_roof(*case), hint=_roof_hint)


def _roof(batch: float, weights: float, flops: float, bandwidth: float, arithmetic: float) -> float:
    return min(batch * bandwidth / weights, arithmetic / flops)


def _roof_hint(got: object, batch: float, weights: float, flops: float, bandwidth: float, arithmetic: float) -> str:
    if not isinstance(got, (int, float)):
        return "return one number: tokens a second"
    read, compute = weights / bandwidth, batch * flops / arithmetic
    hints = [
        (batch / (read + compute), "reading and computing go on at the same time: the longer one decides, not the sum"),
        (batch / read, "that is the slope alone; at this batch the arithmetic takes longer than the reading"),
        (batch / compute, "that is the flat roof alone; at this batch the reading takes longer than the arithmetic"),
        (1 / read, "that is steps a second; each step gives one token to every sequence"),
        (max(read, compute), "that is the seconds of a step; how many tokens a second does it give?"),
        (arithmetic / flops / batch, "the arithmetic of a step grows with the batch, and so do its tokens"),
        (min(1 / read, 1 / compute), "that is steps a second; each step gives one token to every sequence"),
    ]
    for value, hint in hints:
        if abs(got - value) <= 1e-6 * value:
            return hint
    return "a step reads weight_bytes and computes flops_per_token for each sequence; which takes longer?"


def check_balance_batch(function: Callable) -> None:
    """`function(parameters, item_bytes, bandwidth, arithmetic)`: the batch at which computing equals reading."""
    cases = [
        (8.03e9, 2, 2.039e12, 312e12),
        (134_515_008, 4, 50e9, 300e9),
        (134_515_008, 2, 50e9, 300e9),
        (1e9, 1, 1e12, 500e12),
    ]
    for parameters, item, bandwidth, arithmetic in cases:
        want = item * arithmetic / (2 * bandwidth)
        expect(function, parameters, item, bandwidth, arithmetic, want=want, hint=_balance_hint)


def _balance_hint(got: object, parameters: float, item: int, bandwidth: float, arithmetic: float) -> str:
    if not isinstance(got, (int, float)):
        return "return one number: a batch size"
    want = item * arithmetic / (2 * bandwidth)
    hints = [
        (arithmetic / bandwidth, "that is the ridge in FLOP per byte; how many bytes and FLOPs has a parameter?"),
        (2 * want, "a parameter costs two operations for each token: multiply, and add"),
        (want / item, "what is read are bytes: how many does a parameter have?"),
        (1 / want, "that is upside down: more arithmetic allows a larger batch, more bandwidth a smaller one"),
        (want / parameters, "the number of parameters is in the bytes and in the FLOPs; what becomes of it?"),
        (want * parameters, "the number of parameters is in the bytes and in the FLOPs; what becomes of it?"),
        (-(-want // 1), "do not round: the two times are equal at a batch size between two whole numbers"),
        (want // 1, "do not round: the two times are equal at a batch size between two whole numbers"),
    ]
    for value, hint in hints:
        if value and abs(got - value) <= 1e-6 * abs(value):
            return hint
    return "write down the seconds of reading and of computing, set them equal, and solve for the batch"
