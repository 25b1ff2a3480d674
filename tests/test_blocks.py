"""The pool of blocks and the prefix index, unit by unit."""

import pytest

from minibatch.memory.blocks import BlockPool
from minibatch.memory.prefix import PrefixIndex

# ---- the pool ----


def test_a_block_has_one_owner_when_taken_none_when_given_back_and_is_not_given_back_twice():
    pool = BlockPool(2)
    assert pool.take() == 0 and pool.owners == {0: 1} and pool.num_free == 1
    pool.share(0)
    pool.give_back(0)
    assert pool.owners == {0: 1}
    pool.give_back(0)
    assert pool.owners == {} and pool.free_order() == [1, 0]
    with pytest.raises(ValueError, match="block 0 is free already"):
        pool.give_back(0)
    pool.check_integrity()


def test_an_empty_pool_says_so_and_what_was_never_taken_cannot_be_shared():
    pool = BlockPool(2)
    pool.take(), pool.take()
    with pytest.raises(IndexError, match="none of the 2 blocks is free"):
        pool.take()
    with pytest.raises(ValueError, match="block 2 was never taken"):
        pool.share(2)
    with pytest.raises(ValueError, match="num_blocks=0: must be at least 1"):
        BlockPool(0)


def test_free_blocks_leave_in_the_order_in_which_they_came_back():
    pool = BlockPool(4)
    for _ in range(4):
        pool.take()
    for block in (2, 0, 3, 1):
        pool.give_back(block)
    pool.share(3)
    assert [pool.take() for _ in range(3)] == [2, 0, 1], "a shared one has left the middle of the queue"


POOL_CORRUPTIONS = [
    ("owned and in the free queue", lambda pool: pool.owners.update({1: 1})),
    ("3 blocks were taken so far, 2 are accounted for", lambda pool: pool.owners.pop(0)),
    ("an owner count below 1", lambda pool: pool.owners.update({0: 0})),
    (r"blocks \[7\] were never taken", lambda pool: pool.owners.update({7: pool.owners.pop(0)})),
]


@pytest.mark.parametrize("words, corrupt", POOL_CORRUPTIONS, ids=[words for words, _ in POOL_CORRUPTIONS])
def test_the_pool_says_in_words_what_is_wrong(words, corrupt):
    pool = BlockPool(8)
    for _ in range(3):
        pool.take()
    pool.give_back(1)
    pool.check_integrity()
    corrupt(pool)
    with pytest.raises(AssertionError, match=words):
        pool.check_integrity()


# ---- the prefix index ----


def test_a_chain_is_found_as_far_as_it_is_known_and_a_block_only_below_its_own_beginning():
    index = PrefixIndex()
    node = index.publish(index.publish(index.ROOT, (1, 2), 10), (9, 9), 11)
    assert index.find([(1, 2), (9, 9), (5, 5)]) == ([10, 11], node)
    assert index.find([(3, 4), (9, 9)]) == ([], index.ROOT), "the same second block, another first one"
    assert len(index) == 2 and 10 in index and 12 not in index


def test_a_second_copy_of_a_chain_is_not_entered_and_its_own_chain_goes_on_below_the_first():
    index = PrefixIndex()
    first = index.publish(index.ROOT, (1, 2), 10)
    assert index.publish(index.ROOT, (1, 2), 20) == first and 20 not in index
    index.publish(first, (3, 4), 21)
    assert index.find([(1, 2), (3, 4)])[0] == [10, 21]


def test_what_stands_below_a_forgotten_block_is_never_found_again():
    index = PrefixIndex()
    node = index.publish(index.ROOT, (1, 2), 10)
    index.publish(node, (3, 4), 11)
    index.forget(10)
    index.forget(10)  # no matter
    assert index.publish(index.ROOT, (1, 2), 12) != node
    assert index.find([(1, 2), (3, 4)])[0] == [12]
    assert len(index) == 2, "block 11 stays entered until it is taken"
