"""llama.cpp through its `llama_batch` interface: iteration-level batching as in its server, without the server."""

import argparse
import ctypes

import common
import llama_cpp as api
import numpy as np

BATCH_TOKENS = 2048


def load(args: argparse.Namespace) -> common.Serve:
    """K and V in float32 where the weights are; else in llama.cpp's default, float16."""
    quiet = api.llama_log_callback(lambda level, text, data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    api.llama_backend_init()
    path = args.work / f"smollm2-{args.dtype}.gguf"
    model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
    settings = api.llama_context_default_params()
    settings.n_ctx = max(args.slots) * args.context
    settings.n_batch = settings.n_ubatch = BATCH_TOKENS
    settings.n_seq_max = max(args.slots)
    settings.n_threads = settings.n_threads_batch = args.threads
    settings.kv_unified = True  # one buffer for all sequences; without it the same work takes about twice as long
    if args.dtype == "float32":
        settings.type_k = settings.type_v = api.GGML_TYPE_F32
    context = api.llama_init_from_model(model, settings)
    if not context:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    server = Server(context, vocab, quiet)
    return server.serve


class Server:
    """Slots over one llama.cpp context: who finishes leaves, who waits enters, between any two steps."""

    def __init__(self, context, vocab: int, callback: object):
        self.context, self.vocab, self.callback = context, vocab, callback  # the callback must not be collected
        self.memory = api.llama_get_memory(context)
        self.batch = api.llama_batch_init(BATCH_TOKENS, 0, 1)

    def serve(self, jobs: list[common.Job], slots: int) -> list[list[int]]:
        """One `llama_decode` a step: whole prompts of those who entered, one token of everybody else."""
        outputs: list[list[int]] = [[] for _ in jobs]
        waiting, held = list(range(len(jobs)))[::-1], {}  # held: slot -> job
        while waiting or held:
            for slot in range(slots):
                if slot not in held and waiting:
                    held[slot] = waiting.pop()
            for slot, token in self.step(jobs, outputs, held).items():
                job = held[slot]
                outputs[job].append(token)
                if len(outputs[job]) == jobs[job].new_tokens:
                    api.llama_memory_seq_rm(self.memory, slot, -1, -1)
                    del held[slot]
        return outputs

    def step(self, jobs: list[common.Job], outputs: list[list[int]], held: dict[int, int]) -> dict[int, int]:
        """The next token of every slot."""
        batch, last = self.batch, {}
        batch.n_tokens = 0
        for slot, job in held.items():
            prompt, output = jobs[job].prompt, outputs[job]
            start, tokens = (len(prompt) + len(output) - 1, output[-1:]) if output else (0, prompt)
            for offset, token in enumerate(tokens):
                row = batch.n_tokens
                batch.token[row], batch.pos[row] = token, start + offset
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, slot
                batch.logits[row] = offset == len(tokens) - 1
                batch.n_tokens += 1
            last[slot] = batch.n_tokens - 1
        if code := api.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        return {slot: self.greedy(row) for slot, row in last.items()}

    def greedy(self, row: int) -> int:
        """The token with the highest score in this row of the batch."""
        scores = api.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(scores, (self.vocab,)).argmax())


if __name__ == "__main__":
    common.main(load, "llama_cpp_python")
