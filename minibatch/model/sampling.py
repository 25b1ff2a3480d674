"""From scores to a token. Introduced in notebook 00.

Random numbers come from a generator made for (seed, index of the token) alone, so a request writes the same
text whatever its neighbours, its slot and its preemptions, and nobody's global random state moves.
"""

import hashlib

import torch

from minibatch.request import Sequence


def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    """The next token of each sequence from float32 scores [len(sequences), vocab]."""
    # On a CPU numpy finds the largest of 49,152 scores many times faster than torch does.
    best = logits.numpy().argmax(axis=-1) if logits.device.type == "cpu" else logits.argmax(dim=-1)
    tokens = best.tolist()
    for row, sequence in enumerate(sequences):
        if sequence.request.sampling.temperature > 0:
            tokens[row] = _draw(logits[row].cpu(), sequence)
    return tokens


def _draw(logits: torch.Tensor, sequence: Sequence) -> int:
    """Scale by temperature, keep the top k and the top p, draw one. Scores [vocab], float32."""
    params = sequence.request.sampling
    scores, order = torch.sort(logits / params.temperature, descending=True, stable=True)
    if params.top_k:
        scores = scores[: params.top_k]
    probabilities = torch.softmax(scores, dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    probabilities[before >= params.top_p] = 0  # the first token always stays: nothing is before it
    cumulative = probabilities.cumsum(dim=-1)
    u = torch.rand(1, generator=generator_for(sequence)) * cumulative[-1]
    return int(order[min(int(torch.searchsorted(cumulative, u, right=True)), len(scores) - 1)])


def generator_for(sequence: Sequence) -> torch.Generator:
    """The generator of a sequence's next token."""
    seed = sequence.request.sampling.seed
    key = f"{'id ' + sequence.request_id if seed is None else seed}/{len(sequence.output)}"
    return torch.Generator().manual_seed(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest()))
