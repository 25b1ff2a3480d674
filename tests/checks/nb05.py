"""Right and wrong answers to the exercises of notebook 05. Read by tests/test_checks.py, which says the format."""

from minibatch.checks.nb05 import check_fragment, check_most_sequences, check_split

NOTEBOOK = "05_kv_memory"


def sequences(layers, kv_heads, head_dim, parameters, memory, length, kv=2, size=2, weight=2, depth=None):
    """Right with the defaults."""
    a_token = kv * (layers if depth is None else depth) * kv_heads * head_dim * size
    return max(0, int((memory - weight * parameters) // (a_token * length)))


def by_tokens(*case):
    """Tokens first, then sequences: the same."""
    return sequences(*case[:5], 1) // case[5]


def four(pool, regions, order=(0, 1, 2, 3), scale=1):
    used, reserved, internal = 0, 0, 0
    for length, now, end in regions:
        used, reserved, internal = used + now, reserved + end - now, internal + length - end
    kinds = [used, reserved, internal, pool - sum(length for length, _, _ in regions)]
    return [kinds[place] / scale if scale != 1 else kinds[place] for place in order]


def by_position(pool, regions):
    """Position by position."""
    kinds = [0, 0, 0, pool]
    for length, now, end in regions:
        for position in range(length):
            kinds[0 if position < now else 1 if position < end else 2] += 1
            kinds[3] -= 1
    return tuple(kinds)


def comb(pool, pieces=10, stay=1, long=None, offset=0):
    """`pieces` times a long one and one that stays."""
    long = pool // pieces - stay if long is None else long
    return [long, stay] * pieces, [2 * index + offset for index in range(pieces)]


TABLE = {
    "most_sequences": {
        "check": check_most_sequences,
        "right": [sequences, by_tokens, lambda *case: float(sequences(*case))],
        "wrong": [
            (lambda *case: sequences(*case, kv=1), "a K and a V"),
            (lambda *case: sequences(*case, size=1), "a K and a V"),
            (lambda *case: sequences(*case, kv=1, size=1), "a K and a V"),
            (lambda *case: sequences(*case, weight=0), "the weights lie"),
            (lambda *case: sequences(*case, weight=1), "two bytes"),
            (lambda *case: sequences(*case, depth=1), "every layer"),
            (lambda *case: sequences(*case[:5], 1), "that is tokens"),
            (lambda *case: (case[4] - 2 * case[3]) / (4 * case[0] * case[1] * case[2] * case[5]), "whole"),
            (lambda *case: sequences(*case) + 1, "as a whole"),
            (lambda *case: int((case[4] - 2 * case[3]) // (4 * case[0] * case[1] * case[2] * case[5])), "do not fit"),
            (lambda *case: 61, "how many bytes"),  # the visible example
            (lambda *case: [sequences(*case)], "one number"),
        ],
    },
    "split": {
        "check": check_split,
        "right": [four, by_position],
        "wrong": [
            (lambda pool, regions: four(pool, regions, order=(0, 2, 1, 3)), "reserved and internal"),
            (lambda pool, regions: four(pool, regions, order=(1, 0, 2, 3)), "used and reserved"),
            (lambda pool, regions: four(pool, regions, scale=pool), "not shares"),
            (lambda pool, regions: four(pool, regions)[:3], "four numbers"),
            (lambda pool, regions: dict(enumerate(four(pool, regions))), "four numbers"),
            (lambda pool, regions: [sum(r[1] for r in regions), sum(r[2] for r in regions), 0, 0], "add up"),
            (lambda pool, regions: four(pool, regions[:1]), "used"),
            (lambda pool, regions: [3, 2, 3, 8], "internal"),  # the first case
            (
                lambda pool, regions: [pool - sum(four(pool, regions)[1:]), 0, sum(four(pool, regions)[1:]), 0],
                "internal",
            ),
        ],
    },
    "fragment": {
        "check": check_fragment,
        "right": [comb, lambda pool: comb(pool, pieces=10, long=pool // 10 - 1)],
        "wrong": [
            (lambda pool: ([pool // 10] * 10, list(range(10))), "a gap of"),  # all leave: one gap
            (lambda pool: ([pool // 2 - 1, 1, pool // 2], [0, 2]), "a gap of"),
            (lambda pool: comb(pool, stay=pool // 20), "only"),
            (lambda pool: comb(pool, offset=1), "only"),  # the short ones leave
            (lambda pool: ([1] * pool, list(range(0, pool, 2))), "only"),  # every second one
            (lambda pool: comb(pool, long=pool // 10 + 1), "do not all fit"),
            (lambda pool: (comb(pool)[0], [0, 0, 2]), "counted from 0"),
            (lambda pool: (comb(pool)[0], [each + 2 for each in comb(pool)[1]]), "counted from 0"),
            (lambda pool: ([], []), "must be regions"),
            (lambda pool: comb(pool)[0], "two lists"),
            (lambda pool: ([pool / 10 - 1, 1.0] * 10, [0]), "whole numbers"),
            (lambda pool: comb(100), "a gap of"),  # right for the smallest pool only
        ],
    },
}
