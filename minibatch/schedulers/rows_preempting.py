"""Rows of `systems.py` that enter on part of their need and may be thrown out again: vLLM, SGLang."""

from types import SimpleNamespace

from minibatch.schedulers.evict import Evict
from minibatch.schedulers.iteration import IterationScheduler
from minibatch.schedulers.join import JOINS, ByPriority
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.mix_cut import OneCutPrompt
from minibatch.schedulers.mix_whole import PromptsOrDecodes
from minibatch.schedulers.reserve import FutureTokens, NextChunk, PromptOnly
from minibatch.schedulers.row import Knob, Pool, System, given

_NEVER = 1 << 62  # how often one may be passed where nothing bounds it


def _vllm_v0(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    memory = pool.paged(knobs.block_size, host_blocks=knobs.host_blocks)
    if knobs.chunked_prefill:
        mix = Chunked(given(knobs.token_budget, 512))
    else:
        mix = PromptsOrDecodes(given(knobs.token_budget, max(2048, pool.max_model_len)))
    evict = Evict(swap=knobs.host_blocks is not None)
    return IterationScheduler(knobs.max_num_seqs, memory, mix=mix, reserve=PromptOnly(knobs.watermark), evict=evict)


def _vllm_v1(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    if knobs.policy not in ("fcfs", "priority"):
        raise ValueError(f"policy={knobs.policy!r}: choose fcfs or priority")
    ranked = knobs.policy == "priority"
    return IterationScheduler(
        knobs.max_num_seqs,
        pool.paged(knobs.block_size, knobs.prefix_cache),
        join=ByPriority(_NEVER) if ranked else "fcfs",
        mix=Chunked(knobs.token_budget, knobs.chunk_cap),
        reserve=NextChunk(knobs.watermark, knobs.whole_must_fit),
        evict="lowest_priority" if ranked else "newest",
    )


def _sglang(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    if not knobs.conservativeness > 0:
        raise ValueError(f"conservativeness={knobs.conservativeness!r}: must be above 0")
    initial = min(0.7 * knobs.conservativeness, 1.0)
    mix = OneCutPrompt(knobs.token_budget, knobs.max_prefill_tokens, knobs.mixed_chunk, knobs.block_size)
    return IterationScheduler(
        knobs.max_num_seqs,
        pool.paged(knobs.block_size, knobs.prefix_cache, "radix"),
        join=knobs.join,
        mix=mix,
        reserve=FutureTokens(initial, floor=0.14 * initial, decay_steps=knobs.decay_steps, clip=knobs.clip),
        evict="fewest_outputs",
    )


VLLM_V0 = System(
    name="vllm-v0",
    label="vLLM V0",
    join="every step, prompts first, first come, first served",
    mix="whole prompts alone, or decodes alone",
    reserve="the prompt, with 1 % of the pool kept free",
    evict="the newest, computed again (or swapped to the host)",
    knobs=(
        Knob("token_budget", "--max-num-batched-tokens", None, "None: max_model_len, at least 2,048; chunked: 512"),
        Knob("max_num_seqs", "--max-num-seqs", 256),
        Knob("block_size", "--block-size", 16),
        Knob("watermark", "watermark (a constant)", 0.01, "of the blocks, rounded down"),
        Knob("host_blocks", "--swap-space", None, "4 GiB, for groups; a number here: swap everybody"),
        Knob("chunked_prefill", "--enable-chunked-prefill", False, "decodes first, then prompts cut to the budget"),
    ),
    as_of="0054e1fa",
    source="vllm-project/vllm, vllm/core/scheduler.py, vllm/core/block_manager_v1.py (00a456f1)",
    make=_vllm_v0,
    note="The oldest request is never preempted, so one that fits the pool alone ends; V0 drops a prompt that would "
    "leave less than the watermark of an empty pool. A victim that the host cannot take is computed again; V0 stops "
    "with an error. No delay_factor.",
)

VLLM_V1 = System(
    name="vllm-v1",
    label="vLLM V1",
    join="every step, after those who run, unless one was preempted; the head blocks",
    mix="decodes and chunks of prompts under one budget of tokens",
    reserve="this step's tokens, if the whole prompt would fit",
    evict="the newest (or the lowest priority), computed again",
    knobs=(
        Knob("token_budget", "--max-num-batched-tokens", 2048, "of the API server; 8,192 on an H100 or H200"),
        Knob("max_num_seqs", "--max-num-seqs", 256, "1,024 on an H100 or H200"),
        Knob("chunk_cap", "--long-prefill-token-threshold", None, "0 there: off"),
        Knob("block_size", "--block-size", 16),
        Knob("watermark", "watermark", 0.0, "newer versions"),
        Knob("whole_must_fit", "scheduler_reserve_full_isl", True, "newer versions"),
        Knob("policy", "--scheduling-policy", "fcfs", "or priority: the lowest number first"),
        Knob("prefix_cache", "--enable-prefix-caching", False, "on there; off here, as lengths alone share nothing"),
    ),
    as_of="00024d31",
    source="vllm-project/vllm, vllm/v1/core/sched/scheduler.py, kv_cache_manager.py (003df296), config/scheduler.py",
    make=_vllm_v1,
    note="The oldest request is never preempted; under the priority policy V1 may choose it.",
)

SGLANG = System(
    name="sglang",
    label="SGLang",
    join="every step, prompts first; after a refusal nobody until one leaves",
    mix="prompts alone, at most one of them cut, or decodes alone",
    reserve="its own prompt and limit, and of the others' limits a share that falls while all goes well",
    evict="the fewest output tokens, of these the longest prompt; computed again",
    knobs=(
        Knob("token_budget", "--chunked-prefill-size", 8192, "4,096 below 60 GB, 2,048 below 35 GB; None: off"),
        Knob("max_prefill_tokens", "--max-prefill-tokens", 16384),
        Knob("max_num_seqs", "--max-running-requests", 256, "None there: derived from the memory"),
        Knob("block_size", "--page-size", 1),
        Knob("conservativeness", "--schedule-conservativeness", 1.0, "times 0.7 is the first ratio"),
        Knob("decay_steps", "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS", 600),
        Knob("clip", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", 4096),
        Knob("mixed_chunk", "--enable-mixed-chunk", False),
        Knob("join", "--schedule-policy", "fcfs", f"or {', '.join(name for name in JOINS if name != 'fcfs')}"),
        Knob("prefix_cache", "--disable-radix-cache", False, "radix there; off here, as lengths alone share nothing"),
    ),
    as_of="00550cd1, 000eaffa",
    source="sgl-project/sglang, managers/schedule_policy.py, schedule_batch.py; docs/advanced_features",
    make=_sglang,
    note="The oldest request is never retracted, and one that was goes back to its old place in line. A prompt that is "
    "cut takes its blocks at once. A lone request enters whenever its prompt fits. Not here: the exact look ahead for "
    "requests that ignore EOS without a radix cache.",
)

PREEMPTING = (VLLM_V0, VLLM_V1, SGLANG)
