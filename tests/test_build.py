"""`build_engine`: a few words make the memory, scheduler and executor that belong together, or are refused."""

import pytest

from minibatch import build_engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import FullNeed


def built(model, **options):
    """The engine's memory and scheduler."""
    engine = build_engine(model, **options)
    return engine.scheduler.memory, engine.scheduler


def test_contiguous_is_the_default(tiny):
    memory, _ = built(tiny, max_num_seqs=3, max_model_len=20)
    assert isinstance(memory, ContiguousMemory) and (memory.num_positions, memory.reserve) == (60, "max")
    assert built(tiny, num_positions=41, reserve="exact")[0].num_positions == 41


def test_a_pool_is_cut_into_whole_blocks(tiny):
    memory, _ = built(tiny, memory="paged", max_num_seqs=3, max_model_len=20)
    assert isinstance(memory, PagedMemory) and (memory.num_blocks, memory.block_size) == (3, 16)
    engine = build_engine(tiny, memory="paged", num_positions=43, block_size=4, prefix_cache=True)
    assert (engine.scheduler.memory.num_blocks, engine.scheduler.memory.prefix_cache) == (10, True)
    assert list(engine.executor.cache.k_blocks.shape[1:3]) == [10, 4] and engine.trace.block_size == 4


def test_a_sequence_is_no_longer_than_max_model_len(tiny):
    for memory in ("contiguous", "paged"):
        engine = build_engine(tiny, memory=memory, max_num_seqs=4, max_model_len=32)
        with pytest.raises(ValueError, match="with this prompt it can be"):
            engine.submit(tiny.request("R", "count to 3", max_new_tokens=32))


def test_policies_reach_the_scheduler(tiny):
    _, scheduler = built(tiny, memory="paged", reserve="full", mix=Chunked(8), evict="fewest_outputs")
    assert isinstance(scheduler.reserve, FullNeed) and scheduler.mix == Chunked(8)
    assert scheduler.evict == Evict("fewest_outputs")


def test_a_host_pool_is_there_to_be_swapped_to(tiny):
    memory, scheduler = built(tiny, memory="paged", host_blocks=5)
    assert memory.host_blocks == 5 and scheduler.evict == Evict(swap=True)
    assert built(tiny, memory="paged", host_blocks=5, evict="fewest_outputs")[1].evict.swap
    assert built(tiny, memory="paged", host_blocks=5, evict=Evict())[1].evict == Evict(), "an object is taken as it is"
    assert build_engine(tiny, memory="paged", host_blocks=5).executor.cache.host_k.shape[1] == 5


@pytest.mark.parametrize(
    "options, message",
    [
        ({"memory": "virtual"}, "memory='virtual': choose contiguous or paged"),
        ({"block_size": 4}, "block_size=4: has a meaning only with memory='paged'"),
        ({"prefix_cache": True}, "prefix_cache=True: has a meaning only with memory='paged'"),
        ({"host_blocks": 0}, "host_blocks=0: has a meaning only with memory='paged'"),
        ({"memory": "paged", "block_size": 0}, "block_size=0: must be at least 1"),
        ({"memory": "paged", "num_positions": 15}, "num_positions=15: less than one block of block_size=16"),
        ({"memory": "paged", "num_positions": -16}, "num_positions=-16: less than one block"),
        ({"num_positions": 0}, "num_positions=0: must be at least 1"),
        ({"memory": "paged", "host_blocks": -1}, "host_blocks=-1: must be 0 or more"),
        ({"memory": "paged", "reserve": "max"}, "reserve='max': choose one of full, prompt"),
        ({"reserve": "prompt"}, "reserve='prompt': choose one of max, pow2, exact"),
        ({"memory": "paged", "scheduler": "static", "reserve": "full"}, "reserve='full': has a meaning only with"),
        ({"memory": "paged", "scheduler": "static", "host_blocks": 4}, "host_blocks=4: has a meaning only with"),
        ({"memory": "paged", "scheduler": "static", "prefix_cache": True}, "prefix_cache=True is not for"),
        ({"max_model_len": 0}, "max_model_len=0: must be at least 1"),
        ({"max_num_seqs": 0, "memory": "paged"}, "max_num_seqs=0: must be at least 1"),
        ({"scheduler": "orca"}, "scheduler='orca': choose one of static, dynamic, iteration"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(tiny, options, message):
    with pytest.raises(ValueError) as refused:
        build_engine(tiny, **options)
    assert message in str(refused.value)
