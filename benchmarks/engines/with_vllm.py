"""vLLM's CPU backend, in this process, without compilation."""

import argparse
import os

import common

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

from vllm import LLM, SamplingParams


def load(args: argparse.Namespace) -> common.Serve:
    """Prefix caching is off: round two must not find round one's prompts."""
    llm = LLM(
        model=str(args.work / f"hf-{args.dtype}"),
        skip_tokenizer_init=True,
        dtype=args.dtype,
        max_model_len=args.context,
        max_num_seqs=max(args.slots),
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    if not hasattr(scheduler, "max_num_active_reqs"):
        raise RuntimeError("this vLLM has no Scheduler.max_num_active_reqs; 0.32 has")

    def serve(jobs: list[common.Job], slots: int) -> list[list[int]]:
        scheduler.max_num_active_reqs = slots  # what max_num_active_seqs sets: one start serves any number of slots
        prompts = [{"prompt_token_ids": job.prompt} for job in jobs]
        greedy = [
            SamplingParams(temperature=0.0, max_tokens=job.new_tokens, ignore_eos=True, detokenize=False)
            for job in jobs
        ]
        return [list(found.outputs[0].token_ids) for found in llm.generate(prompts, greedy, use_tqdm=False)]

    return serve


if __name__ == "__main__":
    common.main(load, "vllm-cpu", "torch")
