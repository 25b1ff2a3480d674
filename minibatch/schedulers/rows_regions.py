"""Rows of `systems.py` whose requests have one contiguous region each: batches, Orca, llama.cpp."""

from dataclasses import replace
from types import SimpleNamespace

from minibatch.memory import ContiguousMemory
from minibatch.schedulers.iteration import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.row import Knob, Pool, System, given
from minibatch.schedulers.static import StaticBatcher
from minibatch.schedulers.triton import TritonBatcher


def _static(pool: Pool, knobs: SimpleNamespace) -> StaticBatcher:
    return StaticBatcher(given(knobs.max_num_seqs, pool.regions()), pool.contiguous("max"))


def _triton(pool: Pool, knobs: SimpleNamespace) -> TritonBatcher:
    chosen = dict(vars(knobs))
    size = given(chosen.pop("max_num_seqs"), pool.regions())
    return TritonBatcher(size, pool.contiguous("max"), **chosen)


def _orca(reserve: str):
    def make(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
        return IterationScheduler(knobs.max_num_seqs, pool.contiguous(reserve, knobs.placement))

    return make


def _llama_cpp(pool: Pool, knobs: SimpleNamespace) -> IterationScheduler:
    slots = knobs.max_num_seqs
    each = min(pool.max_model_len, pool.num_positions // slots) if slots > 0 else 0
    if not each:
        raise ValueError(f"max_num_seqs={slots!r}: {pool.num_positions} positions do not make so many slots")
    memory = ContiguousMemory(slots * each, each)
    return IterationScheduler(slots, memory, mix=Chunked(knobs.token_budget), max_open=knobs.max_open)


_BATCH = Knob("max_num_seqs", "batch size", None, "None: as many requests of max_model_len as the memory holds")

STATIC = System(
    name="static",
    label="static batch",
    join="when the whole batch has ended, first come, first served",
    mix="padded prefill of all, then decodes to the longest",
    reserve="max_model_len each",
    evict="cannot happen",
    knobs=(_BATCH,),
    as_of="the three articles",
    source='the articles\' "fornada"; Orca (OSDI 2022), section 2',
    make=_static,
    note="The batch closes when it is full, or when nobody else will come.",
)

TRITON = System(
    name="triton",
    label="Triton dynamic batcher",
    join="when the batch has ended: up to max_batch_size, or a preferred size, or after a delay; by priority level",
    mix="a request is one unit: padded prefill of all, then decodes to the longest",
    reserve="max_model_len each",
    evict="cannot happen",
    knobs=(
        replace(_BATCH, theirs="max_batch_size"),
        Knob("preferred_sizes", "preferred_batch_size", (), "their documentation advises against it for most models"),
        Knob("max_queue_delay", "max_queue_delay_microseconds", 0.0, "seconds here"),
        Knob("priority_levels", "priority_levels", 0, "1 is the highest; 0: one queue"),
        Knob("default_priority_level", "default_priority_level", 1, "of requests with priority 0"),
        Knob("max_queue_size", "ModelQueuePolicy.max_queue_size", 0, "0: no limit"),
        Knob("timeout", "ModelQueuePolicy.default_timeout_microseconds", 0.0, "seconds here; 0: none"),
        Knob("timeout_action", "ModelQueuePolicy.timeout_action", "reject", "or delay"),
    ),
    as_of="documentation of the main branch",
    source="triton-inference-server/server, docs/user_guide/batcher.md",
    make=_triton,
    note="One model instance, one queue policy for all levels, no timeout of a request's own. With the defaults this "
    "is the vLLM paper's FasterTransformer baseline: the earliest requests, as many as the memory holds.",
)


def _orca_row(name: str, label: str, reserve: str, words: str, note: str = "") -> System:
    return System(
        name=name,
        label=label,
        join="every step, first come, first served: the head blocks",
        mix="whole prompts beside decodes",
        reserve=words,
        evict="cannot happen",
        knobs=(
            Knob("max_num_seqs", "max_bs", 256, "tuned for each model; no default is published"),
            Knob("placement", "-", "buddy", "of the vLLM paper; Orca itself counts slots: first_fit comes near"),
        ),
        as_of="OSDI 2022; variants: SOSP 2023",
        source="Orca (Yu et al.), algorithm 1; vLLM paper (Kwon et al., arXiv 2309.06180), section 6.1",
        make=_orca(reserve),
        note=note + "One batch in flight (n_workers = 1).",
    )


ORCA_MAX = _orca_row("orca-max", "Orca (Max)", "max", "max_model_len each")
ORCA_POW2 = _orca_row(
    "orca-pow2",
    "Orca (Pow2)",
    "pow2",
    "prompt and the next power of two of the answer's length",
    "The answer's length is taken from max_new_tokens, which is the true one only in a replayed trace. ",
)
ORCA_ORACLE = _orca_row(
    "orca-oracle",
    "Orca (Oracle)",
    "exact",
    "prompt + max_new_tokens, known to be the true length",
    "Where max_new_tokens is a limit and not the length, this is Orca as published. ",
)

LLAMA_CPP = System(
    name="llama-cpp",
    label="llama.cpp / Ollama",
    join="a free slot, first come, first served",
    mix="decodes, then prompts up to n_batch tokens",
    reserve="a fixed context for each slot",
    evict="cannot happen",
    knobs=(
        Knob("max_num_seqs", "-np", 4, "chosen by itself there; OLLAMA_NUM_PARALLEL, whose default is 1"),
        Knob("token_budget", "-b (n_batch)", 2048),
        Knob("max_open", "OLLAMA_MAX_QUEUE", None, "512, but only while the model is loaded: no limit here"),
    ),
    as_of="llama.cpp 00dc8057, Ollama fb307609",
    source="ggml-org/llama.cpp, tools/server/README.md; ollama/ollama, llm/llama_server.go, server/sched.go",
    make=_llama_cpp,
    note="A slot has num_positions / slots positions, max_model_len (OLLAMA_CONTEXT_LENGTH) at most. Not here: the "
    "unified pool with its retries, the choice of a slot by its cached prompt, and the split into -ub 512.",
)

REGIONS = (STATIC, TRITON, ORCA_MAX, ORCA_POW2, ORCA_ORACLE)
