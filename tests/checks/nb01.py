"""Right and wrong answers to the exercises of notebook 01. Read by tests/test_checks.py, which says the format."""

import math

from minibatch.checks.nb01 import check_balance_batch, check_bytes_per_step, check_roofline_tokens_per_s

NOTEBOOK = "01_why_batch"


def bytes_one_by_one(weights, kv, contexts):
    read = weights
    for context in contexts:
        for _ in range(context):
            read += kv
    return float(read)


def roof_in_two_branches(batch, weights, flops, bandwidth, arithmetic):
    if flops * batch / weights < arithmetic / bandwidth:
        return bandwidth / weights * batch
    return arithmetic / flops


def balance_by_bisection(parameters, item, bandwidth, arithmetic):
    low, high = 0.0, 1e6
    for _ in range(80):
        batch = (low + high) / 2
        if batch * 2 * parameters / arithmetic < parameters * item / bandwidth:
            low = batch
        else:
            high = batch
    return low


TABLE = {
    "bytes_per_step": {
        "check": check_bytes_per_step,
        "right": [bytes_one_by_one, lambda w, kv, contexts: sum((kv * c for c in contexts), w)],
        "wrong": [
            (lambda w, kv, contexts: w, "weights alone"),
            (lambda w, kv, contexts: sum(w + kv * c for c in contexts), "how often"),
            (lambda w, kv, contexts: w + kv * len(contexts), "whole context"),
            (lambda w, kv, contexts: w + kv * max(contexts) * len(contexts), "differ"),
            (lambda w, kv, contexts: w + kv * max(contexts), "differ"),
            (lambda w, kv, contexts: kv * sum(contexts), "also reads the weights"),
            (lambda w, kv, contexts: w + 2 * kv * sum(contexts), "all share"),  # K and V counted apart
            (lambda w, kv, contexts: (w + kv * sum(contexts)) / 1e6, "bytes"),
            (lambda w, kv, contexts: w / len(contexts) + kv * sum(contexts), "all share"),
        ],
    },
    "roofline_tokens_per_s": {
        "check": check_roofline_tokens_per_s,
        "right": [roof_in_two_branches, lambda b, w, f, bw, a: min(bw * b / w, a / f)],
        "wrong": [
            (lambda b, w, f, bw, a: b * bw / w, "slope alone"),
            (lambda b, w, f, bw, a: a / f, "flat roof alone"),
            (lambda b, w, f, bw, a: b / (w / bw + b * f / a), "not the sum"),
            (lambda b, w, f, bw, a: max(b * bw / w, a / f), "flat roof alone"),
            (lambda b, w, f, bw, a: min(bw / w, a / f / b), "every sequence"),
            (lambda b, w, f, bw, a: max(w / bw, b * f / a), "seconds of a step"),
            (lambda b, w, f, bw, a: b / max(b * w / bw, b * f / a), "every sequence"),  # weights read once a sequence
            (lambda b, w, f, bw, a: b / max(w / bw, f / a), "slope alone"),  # arithmetic without the batch
            (lambda b, w, f, bw, a: (b * bw / w, a / f), "one number"),
        ],
    },
    "balance_batch": {
        "check": check_balance_batch,
        "right": [balance_by_bisection, lambda p, i, bw, a: (p * i / bw) / (2 * p / a)],
        "wrong": [
            (lambda p, i, bw, a: i * a / bw, "two operations"),
            (lambda p, i, bw, a: a / (2 * bw), "bytes"),
            (lambda p, i, bw, a: bw / a * 2 / i, "upside down"),
            (lambda p, i, bw, a: p * i * a / (2 * bw), "what becomes of it"),
            (lambda p, i, bw, a: i * a / (2 * bw * p), "what becomes of it"),
            (lambda p, i, bw, a: math.ceil(i * a / (2 * bw)), "do not round"),
            (lambda p, i, bw, a: a / bw, ""),  # right for 2-byte weights only
            (lambda p, i, bw, a: int(i * a / (2 * bw)), "do not round"),
            (lambda p, i, bw, a: 150, "solve"),
        ],
    },
}
