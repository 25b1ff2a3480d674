"""Hugging Face transformers: `generate` over one left-padded batch after the other, or its continuous batching."""

import argparse

import common
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaForCausalLM

PAD = 0
PAGE = 16


def load(args: argparse.Namespace) -> common.Serve:
    """--mode is "static" or "continuous". Both use torch's scaled_dot_product_attention."""
    torch.set_num_threads(args.threads)
    folder = args.work / f"hf-{args.dtype}"
    model = LlamaForCausalLM.from_pretrained(folder, dtype=args.dtype, attn_implementation="sdpa").eval()
    if args.mode == "static":
        return lambda jobs, slots: static(model, jobs, slots)
    return lambda jobs, slots: continuous(model, jobs, slots, args.context)


@torch.inference_mode()
def static(model: LlamaForCausalLM, jobs: list[common.Job], slots: int) -> list[list[int]]:
    """Batches in order of submission; each runs until its longest answer ends."""
    outputs = []
    for first in range(0, len(jobs), slots):
        batch = jobs[first : first + slots]
        width, longest = max(len(job.prompt) for job in batch), max(job.new_tokens for job in batch)
        padded = torch.tensor([[PAD] * (width - len(job.prompt)) + job.prompt for job in batch])
        mask = torch.tensor([[0] * (width - len(job.prompt)) + [1] * len(job.prompt) for job in batch])
        greedy = GenerationConfig(do_sample=False, max_new_tokens=longest, pad_token_id=PAD, eos_token_id=None)
        written = model.generate(padded, attention_mask=mask, generation_config=greedy)[:, width:].tolist()
        outputs += [tokens[: job.new_tokens] for tokens, job in zip(written, batch)]
    return outputs


def continuous(model: LlamaForCausalLM, jobs: list[common.Job], slots: int, context: int) -> list[list[int]]:
    """Its own scheduler, at most `slots` requests a batch. Equal prefixes are not shared, as everywhere here."""
    settings = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=slots * (context // PAGE + 2),
        max_batch_tokens=256,
        max_requests_per_batch=slots,
        allow_block_sharing=False,
        use_async_batching=False,
        use_cuda_graph=False,
    )
    greedy = GenerationConfig(do_sample=False, pad_token_id=PAD, eos_token_id=-1)
    found = {}
    with model.continuous_batching_context_manager(greedy, continuous_batching_config=settings) as manager:
        for index, job in enumerate(jobs):
            manager.add_request(job.prompt, request_id=str(index), max_new_tokens=job.new_tokens, eos_token_id=-1)
        while len(found) < len(jobs):
            result = manager.get_result(timeout=120)
            if result is None or result.error:
                raise RuntimeError(f"continuous batching ended early: {result and result.error}")
            found[result.request_id] = result.generated_tokens
    return [list(found[str(index)]) for index in range(len(jobs))]


if __name__ == "__main__":
    common.main(load, "transformers", "torch")
