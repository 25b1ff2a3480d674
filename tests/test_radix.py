"""The two prefix caches over one allocator: what SGLang's radix tree does otherwise than vLLM's hashed blocks.

Random lives of a server over both are in test_machine.py.
"""

import pytest
from helpers import admitted, engine_on, request, sequence
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch import Sequence
from minibatch.memory import PagedMemory
from minibatch.schedulers.join import LongestPrefix

BOTH = pytest.mark.parametrize("cache", ["hash", "radix"])


def radix(num_blocks=8, **options):
    return PagedMemory(num_blocks, 2, prefix_cache="radix", **options)


# ---- what is thrown out ----


@BOTH
def test_the_least_recently_used_end_of_a_chain_goes_first(cache):
    """A is 1 2 | 3 4 | 5 6 in blocks 0 to 2, B is 7 8 | 9 10 in 3 and 4; then A2 uses 0 and 1, and takes 2."""
    memory = PagedMemory(5, 2, prefix_cache=cache)
    memory.release(admitted(memory, "A", (1, 2, 3, 4, 5, 6)))
    memory.release(admitted(memory, "B", (7, 8, 9, 10)))
    memory.release(admitted(memory, "A2", (1, 2, 3, 4, 11, 12)))
    assert memory.pool.free_order() == [4, 3, 2, 1, 0]
    memory.check_integrity()


def test_a_radix_block_without_content_is_taken_before_a_stored_one():
    orders = {}
    for cache in ("hash", "radix"):
        memory = PagedMemory(4, 2, prefix_cache=cache)
        memory.release(admitted(memory, "A", (1, 2, 3, 4)))
        memory.release(admitted(memory, "B", (5, 6, 7)))  # its last block is half full, so nobody can find it
        orders[cache] = memory.pool.free_order()
        memory.check_integrity()
    assert orders == {"hash": [1, 0, 3, 2], "radix": [3, 1, 0, 2]}


@BOTH
def test_two_copies_of_a_chain(cache):
    """Both were computed at the same time. vLLM keeps both blocks, SGLang gives the second back."""
    memory = PagedMemory(8, 2, prefix_cache=cache)
    one, other = sequence("A", (1, 2, 3, 4, 5)), sequence("B", (1, 2, 3, 4, 6, 7))
    assert memory.admit(one, 5) and memory.admit(other, 6)
    assert (one.block_table, other.block_table) == ([0, 1, 2], [3, 4, 5])
    for some in (one, other):
        some.num_computed_tokens = some.num_tokens
        memory.commit(some)
        memory.check_integrity()
    assert other.block_table == {"hash": [3, 4, 5], "radix": [0, 1, 5]}[cache]
    assert memory.pool.owners == ({0: 2, 1: 2, 2: 1, 5: 1} if cache == "radix" else dict.fromkeys(range(6), 1))
    assert memory.use().used == (7 if cache == "radix" else 11)
    memory.release(one)
    memory.check_integrity()
    assert memory.pool.free_order() == {"hash": [6, 7, 2, 1, 0], "radix": [6, 7, 2, 4, 3]}[cache]


def test_a_radix_tree_keeps_what_stands_above_a_block_in_use():
    """With two copies the beginning of a chain in use could be thrown out; here it cannot, for its user holds it."""
    memory = radix(6)
    one, other = sequence("A", (1, 2, 3, 4)), sequence("B", (1, 2, 3, 4, 5, 6), output=9)
    assert memory.admit(one, 4) and memory.admit(other, 6)
    for some in (one, other):
        some.num_computed_tokens = some.num_tokens
        memory.commit(some)
    memory.release(one)
    filler = sequence("C", tuple(range(50, 56)))
    assert memory.admit(filler, 6), "three blocks are free: the two copies, and the one never taken"
    assert memory.stored_prefix(sequence("D", (1, 2, 3, 4, 5, 6, 7))) == 6
    memory.check_integrity()


def test_a_fork_shares_no_copies_that_its_parent_will_exchange():
    """The parent comes back from host memory with copies of its own; the first of its two blocks is still stored."""
    memory = radix(6, host_blocks=6)
    parent = admitted(memory, "P", (1, 2, 3, 4, 5), output=9)
    assert memory.swap_out(parent)
    filler = sequence("F", tuple(range(50, 60)))
    assert memory.admit(filler, 10)  # five of six blocks: what ended the chain is thrown out
    memory.release(filler)
    assert memory.stored_prefix(sequence("D", (1, 2, 3, 4, 5))) == 2
    assert memory.admit(parent, 5)
    child = Sequence(request("C", 9, prompt=(1, 2, 3, 4, 5), fork_of="P"), parent=parent)
    assert memory.admit(child, 5)
    memory.commit(parent)  # the first block: the stored one; the second: its own, for all to find
    memory.release(parent)
    memory.check_integrity()
    assert child.num_computed_tokens == 2, "it found what is stored, and computes the rest"


def test_to_look_a_chain_up_is_to_access_it_in_a_radix_tree_only():
    def order_after_a_look(cache):
        memory = PagedMemory(4, 2, prefix_cache=cache)
        memory.release(admitted(memory, "A", (1, 2, 3, 4)))
        memory.release(admitted(memory, "B", (5, 6, 7, 8)))
        assert memory.stored_prefix(sequence("A2", (1, 2, 3, 4, 9))) == 4
        assert memory.stored_prefix(sequence("A3", (1, 2, 9))) == 2
        memory.check_integrity()
        return memory.pool.free_order()

    assert order_after_a_look("hash") == [1, 0, 3, 2]
    assert order_after_a_look("radix") == [3, 2, 1, 0]


def test_a_look_leaves_blocks_in_use_where_they_are():
    memory = radix(4)
    holder = admitted(memory, "A", (1, 2, 3, 4))
    assert memory.stored_prefix(sequence("B", (1, 2, 3, 4, 5))) == 4 and memory.pool.free_order() == [2, 3]
    memory.check_integrity()
    memory.release(holder)


@BOTH
def test_a_stored_block_is_never_written_even_by_its_only_owner(cache):
    """The fork's parent wrote on into the shared block, published it and left; the fork writes something else."""
    memory = PagedMemory(6, 4, prefix_cache=cache)
    parent, child = admitted(memory, "P", (1, 2, 3, 4, 5, 6), output=9), sequence("C", (1, 2, 3, 4, 5, 6), output=9)
    parent.output += [7, 8, 9]
    assert memory.grow(parent, 8)
    parent.num_computed_tokens = 8
    memory.commit(parent)
    memory.fork(parent, child)
    memory.release(parent)
    kept = child.block_table[1]
    assert memory.grow(child, 6) and child.block_table[1] != kept
    assert memory.stored_prefix(sequence("D", (1, 2, 3, 4, 5, 6, 7, 8, 0))) == 8
    memory.check_integrity()


# ---- corrupted on purpose ----


def _corruptions():
    def cut(memory):
        del memory.index._children[memory.index._key.pop(0)]

    def cut_and_forgotten(memory):
        memory.index.forget(0)

    def parent_first(memory):
        memory.pool.reuse_first(0)

    def parent_free(memory):
        memory.pool.share(1)
        del memory.pool.owners[1]  # only the pool's own check would see this

    def behind(memory):
        memory.pool.reuse_last(2)

    return {
        "nodes and blocks of the radix tree disagree": cut,
        "block 1 stands below one that is gone": cut_and_forgotten,
        "block 0 would be taken before block 1, below it": parent_first,
        "block 1 is in use and block 0, above it, is free": parent_free,
        "a block with nothing in it waits behind cached ones": behind,
    }


@pytest.mark.parametrize("words, corrupt", _corruptions().items(), ids=list(_corruptions()))
def test_the_tree_says_in_words_what_is_wrong(words, corrupt):
    memory = radix(3)
    memory.release(admitted(memory, "A", (1, 2, 3, 4, 5)))
    memory.check_integrity()
    corrupt(memory)
    with pytest.raises(AssertionError, match=words):
        memory.index.check_integrity([], 2, memory.pool)


# ---- an oracle: a plain list of chains ----

PROMPTS = st.lists(st.integers(1, 2), min_size=1, max_size=7).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["hash", "radix"]), st.lists(PROMPTS, min_size=1, max_size=20))
def test_as_long_as_nothing_is_thrown_out_whatever_was_stored_is_found(cache, prompts):
    memory, seen = PagedMemory(200, 1, prefix_cache=cache), set()
    for i, prompt in enumerate(prompts):
        longest = next(n for n in range(len(prompt) - 1, -1, -1) if n == 0 or prompt[:n] in seen)
        one = sequence(f"R{i}", prompt)
        assert memory.stored_prefix(one) == longest
        assert memory.admit(one, len(prompt)) and one.num_computed_tokens == longest
        one.num_computed_tokens = len(prompt)
        memory.commit(one)
        seen.update(prompt[:n] for n in range(1, len(prompt) + 1))
        memory.check_integrity()
        if i % 2:
            memory.release(one)
    if cache == "radix":
        assert len(memory.index) == len(seen), "a block for each chain"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PROMPTS, st.booleans()), min_size=1, max_size=30), st.integers(7, 12))
def test_a_radix_tree_throws_out_the_leaf_that_was_accessed_least_recently(asked, num_blocks):
    """Against a dictionary of chains and times, from which the oldest chain without a longer one is removed."""
    memory, accessed, free = PagedMemory(num_blocks, 1, prefix_cache="radix"), {}, num_blocks
    for time, (prompt, only_looks) in enumerate(asked):
        chains = [prompt[:n] for n in range(1, len(prompt) + 1)]
        hits = [chain for chain in chains[:-1] if chain in accessed]
        one = sequence(f"R{time}", prompt)
        accessed.update(dict.fromkeys(hits, time))
        assert memory.stored_prefix(one) == len(hits)
        if only_looks:
            continue
        free -= len(prompt) - len(hits)
        while free < 0:
            leaves = [c for c in accessed if accessed[c] < time and not any(o[:-1] == c for o in accessed)]
            del accessed[min(leaves, key=lambda c: (accessed[c], -len(c)))]
            free += 1
        assert memory.admit(one, len(prompt))
        one.num_computed_tokens = len(prompt)
        memory.commit(one)
        memory.release(one)
        free += prompt in accessed  # computed once more, and one copy is kept
        accessed.update(dict.fromkeys(chains, time))
        memory.check_integrity()
        assert {chain for chain in accessed} == set(_chains(memory.index))


def _chains(index):
    """All chains of a tree, as tuples of tokens."""
    by_node = {node: key for key, (node, _) in index._children.items()}
    for node in by_node:
        chain, at = (), node
        while at != index.ROOT:
            at, tokens = by_node[at]
            chain = tokens + chain
        yield chain


# ---- longest prefix first ----


def names(scheduler):
    return [one.request_id for one in scheduler.waiting]


def served(join, *requests, num_blocks=40, slots=1, first=None):
    """The order in which requests get their slot, after `first` has been served alone."""
    engine = engine_on(PagedMemory(num_blocks, 4, prefix_cache="radix"), slots, join=join)
    engine.run([first] if first else [])
    return list(dict.fromkeys(name for step in engine.run(requests).steps for name in step.admitted if name != "0"))


HOT = request("0", 1, prompt=tuple(range(1, 21)))
QUEUE = [
    request("cold", 2, prompt=tuple(range(100, 120))),
    request("warm", 2, prompt=(*range(1, 9), *range(200, 212))),
    request("hot", 2, prompt=(*range(1, 17), *range(300, 304))),
    request("warm too", 2, prompt=(*range(1, 9), *range(400, 412))),
]


def test_longest_stored_prefix_first_and_by_arrival_among_equals():
    assert served("fcfs", *QUEUE, first=HOT) == ["cold", "warm", "hot", "warm too"]
    assert served("longest_prefix", *QUEUE, first=HOT) == ["hot", "warm", "warm too", "cold"]


def test_a_longer_queue_is_left_in_order_of_arrival():
    """Four wait: too many. Of the three that are left then, the one whose prefix is stored goes first."""
    assert served(LongestPrefix(longest_queue=3), *QUEUE, first=HOT) == ["cold", "hot", "warm", "warm too"]


def test_of_those_that_begin_alike_one_goes_ahead_and_the_rest_wait_until_it_has_computed():
    alike = [request(f"A{i}", 1, prompt=(*range(1, 9), 50 + i)) for i in range(3)]
    other = request("B", 1, prompt=tuple(range(70, 79)))
    engine = engine_on(PagedMemory(40, 4, prefix_cache="radix"), 2, join=LongestPrefix(shared_tokens=4))
    trace = engine.run([*alike, other])
    assert [step.admitted for step in trace.steps] == [("A0", "B"), ("A1", "A2")]
    assert [trace.requests[f"A{i}"].cached_tokens for i in range(3)] == [0, 8, 8]
    engine = engine_on(PagedMemory(40, 4, prefix_cache="radix"), 2)
    trace = engine.run([*alike, other])
    assert [step.admitted for step in trace.steps] == [("A0", "A1"), ("A2", "B")], "first come, first served"
    assert [trace.requests[f"A{i}"].cached_tokens for i in range(3)] == [0, 0, 8]


def test_prompts_too_short_to_share_so_much_are_not_put_back():
    join, memory = LongestPrefix(shared_tokens=4), radix()
    waiting = [sequence("A", (1, 2, 3, 4)), sequence("B", (1, 2, 3, 4))]
    join.look(waiting, memory)
    assert [join.rank(one)[0] for one in waiting] == [0, 0]
    longer = [sequence("A", (1, 2, 3, 4, 5)), sequence("B", (1, 2, 3, 4, 5, 6))]
    join.look(longer, memory)
    assert [join.rank(one)[0] for one in longer] == [0, 1]
    assert join.rank(waiting[0]) == (0, 0, 0), "who is gone is forgotten"
