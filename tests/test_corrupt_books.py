"""Books corrupted on purpose: `check_integrity` says in words what is wrong. (The pool's own are in test_blocks.py.)"""

import pytest
from helpers import admitted, sequence

from minibatch.memory import PagedMemory


def _corruptions():
    def twice(memory, one):
        one.block_table[1] = one.block_table[0]

    def stored_more(memory, one):
        one.num_computed_tokens = 9

    def lost_owner(memory, one):
        memory.pool.share(one.block_table[0])

    def swapped_holds(memory, one):
        memory.swap_out(one)
        one.block_table = [0]

    def swapped_more(memory, one):
        memory.swap_out(one)
        one.num_computed_tokens = 9

    def host_lost(memory, one):
        memory._host.free.pop()

    def miscounted(memory, one):
        memory._entries += 1

    def strange_fork(memory, one):
        memory._forked[sequence("B")] = 0

    def forgotten_fork(memory, one):
        memory.fork(one, sequence("B"))
        memory._forked.clear()

    def early(memory, one):
        one.num_computed_tokens = 4

    def wrong_tokens(memory, one):
        node, tokens = memory.index._key[0]
        memory.index._children[node, (9, 9, 9, 9)] = memory.index._children.pop((node, tokens))
        memory.index._key[0] = node, (9, 9, 9, 9)

    def one_way(memory, one):
        del memory.index._key[0]

    return {
        "'A' has a block twice": twice,
        "'A' stored 9 in 8": stored_more,
        "tables say .*, owner counts": lost_owner,
        "'A' is swapped out and holds blocks": swapped_holds,
        "'A' in host memory": swapped_more,
        "host blocks lost or doubled": host_lost,
        "the tables have 2 entries, the running count is 3": miscounted,
        r"\['B'\] are noted as forks and hold nothing": strange_fork,
        r"use\(\) says 7 tokens are stored, block by block there are 8": forgotten_fork,
        r"blocks \[1\] are published and not yet computed": early,
        "block 0 is entered under tokens that it does not hold": wrong_tokens,
        "the two directions of the prefix index disagree": one_way,
    }


@pytest.mark.parametrize("words, corrupt", _corruptions().items(), ids=list(_corruptions()))
def test_the_books_say_in_words_what_is_wrong(words, corrupt):
    memory = PagedMemory(4, 4, prefix_cache=True, host_blocks=4)
    one = admitted(memory, "A", 8)
    memory.check_integrity()
    corrupt(memory, one)
    with pytest.raises(AssertionError, match=words):
        memory.check_integrity()
