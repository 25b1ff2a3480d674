"""The checks of the invented lab in tests/grading/tiny_lab.py, in a module as those of a real lab are."""

import math

from minibatch.checks.base import CheckFailed, expect

CASES = [[2, 4, 2], [1], []]


def check_total(function, unit="tokens"):
    """The sum of the lengths, in tokens or in thousands of them."""
    for lengths in CASES:
        want = sum(lengths) / (1 if unit == "tokens" else 1000)
        expect(function, lengths, want=want, hint="add up the lengths of all answers")


def check_unchanged(function):
    """The list it was given is the caller's."""
    import copy  # as late as a check may do it

    given = [3, 1, 2]
    before = copy.deepcopy(given)
    function(given)
    if given != before:
        raise CheckFailed(f"the list {before} was {given} after the call: leave the caller's list alone")


class Noise:
    """What two numbers may differ by."""

    def allows(self, one, other):
        return math.isclose(one, other)


def check_longest(function, most):
    """The longest answer, within float noise."""
    for lengths in ([2, 4, 2], [7]):
        longest = function(lengths)
        if not Noise().allows(longest, max(lengths)) or most != 4:
            raise CheckFailed(f"longest({lengths}) is wrong: which answer ends last?")
