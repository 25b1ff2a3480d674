"""Rows of `systems.py` with paged memory and a capacity rule of their own: TensorRT-LLM, TGI, transformers."""

from types import SimpleNamespace

from minibatch.schedulers.iteration import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.mix_cut import BlockChunks, DecodesAndMargin
from minibatch.schedulers.mix_whole import PromptsInGroups, WholeUnderBudget
from minibatch.schedulers.reserve import NextChunk
from minibatch.schedulers.row import Knob, Pool, System, given

CHUNKINGS = (None, "first_come_first_served", "equal_progress")


def _trtllm(reserve: str):
    def make(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
        if knobs.chunking not in CHUNKINGS:
            raise ValueError(f"chunking={knobs.chunking!r}: choose one of {', '.join(map(repr, CHUNKINGS))}")
        if knobs.chunking:
            mix = BlockChunks(knobs.token_budget, knobs.block_size, in_turn=knobs.chunking == "equal_progress")
        else:
            mix = WholeUnderBudget(knobs.token_budget)
        memory = pool.paged(knobs.block_size, knobs.prefix_cache, "radix")
        return IterationScheduler(knobs.max_num_seqs, memory, mix=mix, reserve=reserve)

    return make


def _tgi(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    budget = given(knobs.token_budget, pool.max_model_len + 50)
    if knobs.chunking:
        mix = Chunked(budget)
    else:
        mix = PromptsInGroups(budget, knobs.waiting_served_ratio, knobs.max_waiting_tokens)
    memory = pool.paged(knobs.block_size, knobs.prefix_cache, "radix")
    slots = given(knobs.max_num_seqs, given(knobs.max_open, memory.num_blocks))
    return IterationScheduler(slots, memory, mix=mix, reserve="full", max_open=knobs.max_open)


def _transformers(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    return IterationScheduler(
        knobs.max_num_seqs,
        pool.paged(knobs.block_size, knobs.prefix_cache),
        join="whoever_fits",
        mix=DecodesAndMargin(knobs.token_budget, knobs.safety_margin),
        reserve=NextChunk(whole_must_fit=False),
    )


def _trtllm_row(name: str, label: str, reserve: str, words: str, evict: str, note: str) -> System:
    return System(
        name=name,
        label=label,
        join="every step, first come, first served: the head blocks",
        mix="decodes and whole prompts under one budget of tokens; cut prompts on demand",
        reserve=words,
        evict=evict,
        knobs=(
            Knob("token_budget", "max_num_tokens", 8192),
            Knob("max_num_seqs", "max_batch_size", 256, "differs between versions"),
            Knob("block_size", "tokens_per_block", 32),
            Knob("chunking", "context_chunking_policy", None, f"with enable_chunked_context: {CHUNKINGS[1:]}"),
            Knob("prefix_cache", "enable_block_reuse", False, "on there; off here, as lengths alone share nothing"),
        ),
        as_of="02a10fed, 0a949d31",
        source="NVIDIA/TensorRT-LLM, batch_manager/capacityScheduler.cpp, microBatchScheduler.cpp; "
        "docs/source/features/paged-attention-ifb-scheduler.md",
        make=_trtllm(reserve),
        note=note + " No waiting for a block that another request is about to fill.",
    )


TRTLLM_NO_EVICT = _trtllm_row(
    "trtllm-no-evict",
    "TensorRT-LLM GUARANTEED_NO_EVICT",
    "full",
    "blocks to its end, counted",
    "cannot happen",
    "The default capacity_scheduler_policy. It counts the blocks a request will need; here they are taken at once, "
    "with the same decisions.",
)
TRTLLM_MAX_UTILIZATION = _trtllm_row(
    "trtllm-max-utilization",
    "TensorRT-LLM MAX_UTILIZATION",
    "prompt",
    "the next step's blocks",
    "the last started is paused, computed again",
    "A prompt takes all its blocks at its first step.",
)

TGI = System(
    name="tgi",
    label="TGI",
    join="every step, first come, first served: the head blocks",
    mix="decodes and chunks of prompts under one budget; without chunking, groups of prompts alone",
    reserve="prompt + max_new_tokens - 1",
    evict="cannot happen",
    knobs=(
        Knob("token_budget", "--max-batch-prefill-tokens", None, "None: max_model_len + 50"),
        Knob("max_open", "--max-concurrent-requests", 128, "one more is refused at once"),
        Knob("max_num_seqs", "--max-batch-size", None, "None: no other limit than the memory"),
        Knob("block_size", "block size", 16, "paged attention; flashinfer 1, flashdecoding 256"),
        Knob("chunking", "supports_chunking of the model", True),
        Knob("waiting_served_ratio", "--waiting-served-ratio", 0.3, "without chunking"),
        Knob("max_waiting_tokens", "--max-waiting-tokens", 20, "without chunking"),
        Knob("prefix_cache", "USE_PREFIX_CACHING", False, "on there; off here, as lengths alone share nothing"),
    ),
    as_of="db931fcf",
    source="huggingface/text-generation-inference, backends/v3/src/queue.rs, backend.rs, block_allocator.rs",
    make=_tgi,
    note="In maintenance mode. max_batch_total_tokens is num_positions. No speculation, no padded models.",
)

TRANSFORMERS = System(
    name="transformers",
    label="transformers",
    join="every step, after those who run; one that does not fit is passed",
    mix="decodes, then chunks of prompts under one budget, while 15 % of the pool is free",
    reserve="this step's tokens",
    evict="the newest, never the last, computed again",
    knobs=(
        Knob("token_budget", "max_batch_tokens", 8192),
        Knob("max_num_seqs", "max_requests_per_batch", 1024, "or as many as were submitted"),
        Knob("block_size", "block_size", 256),
        Knob("safety_margin", "safety_margin", 0.15, "0.2 in versions of 2025"),
        Knob("prefix_cache", "allow_block_sharing", False, "on there; off here, as lengths alone share nothing"),
    ),
    as_of="028fa539",
    source="huggingface/transformers, generation/continuous_batching/scheduler.py, offloading_manager.py",
    make=_transformers,
    note="The FIFO scheduler with soft reset (cpu_offload_space 0); one that gave way keeps its place in line.",
)

PAGED = (TRTLLM_NO_EVICT, TRTLLM_MAX_UTILIZATION, TGI, TRANSFORMERS)
