"""Trains the embedded model of the package, `load_model("tiny")`, from nothing, on text it makes up itself.

    python -m minibatch.model.train_tiny [--steps N] [--out DIR]

The text is the closed grammar of `tiny_tasks.py`. The model sees every prompt of it in training, so it learns
to answer these prompts exactly and nothing else: "count to 41" is beyond it. A token is a byte of UTF-8, so
token id 65 is "A" and any text survives the round trip. What came of it, and how long it took, is in
`data/tiny/train.json`; another processor or torch may round differently and end with other weights.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch import Tensor, nn

from minibatch.model.tiny_llama import CONFIG, END, SPECIALS, TINY, TrainModel, encode, load
from minibatch.model.tiny_tasks import accuracy, all_prompts, expected, tasks

CHAT_TEMPLATE = (  # a system message has no place in the grammar and is left out
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def batches(seed: int, size: int = 32) -> Iterator[list[str]]:
    """Prompts to learn from, for ever: a task at random, then one of its prompts, so that no task is drowned."""
    generator = torch.Generator().manual_seed(seed)
    pools = [list(answers) for answers in tasks().values()]
    while True:
        picks = torch.rand(size, 2, generator=generator, dtype=torch.float64).tolist()
        chosen = [(pools[int(task * len(pools))], which) for task, which in picks]
        yield [pool[int(which * len(pool))] for pool, which in chosen]


def examples(prompts: list[str]) -> tuple[Tensor, Tensor]:
    """Token ids and targets, int64 [len(prompts), longest]; -100 where nothing is asked: the prompt and the padding."""
    rows = [(encode(prompt), [*expected(prompt).encode(), END]) for prompt in prompts]
    longest = max(len(question) + len(answer) for question, answer in rows) - 1
    tokens, targets = torch.full((len(rows), longest), END), torch.full((len(rows), longest), -100)
    for row, (question, answer) in enumerate(rows):
        known = question + answer[:-1]  # the end is only ever predicted
        tokens[row, : len(known)] = torch.tensor(known)
        targets[row, len(question) - 1 : len(known)] = torch.tensor(answer)
    return tokens, targets


def loss_sum(model: TrainModel, prompts: list[str]) -> Tensor:
    """Cross entropy in nats, summed over the bytes of the answers and their ends."""
    tokens, targets = examples(prompts)
    asked = targets >= 0
    return F.cross_entropy(model.logits(model(tokens)[asked]), targets[asked], reduction="sum")


def train(seed: int, steps: int, peak: float = 2e-3) -> tuple[TrainModel, list[float]]:
    """AdamW, 100 steps of warm-up, cosine decay to zero. Returns the model and the loss of each step (nats a token)."""
    torch.manual_seed(seed)
    model, losses = TrainModel(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
    for step, prompts in zip(range(steps), batches(seed)):
        rate = peak * min((step + 1) / 100, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        asked, total = sum(len(expected(prompt).encode()) + 1 for prompt in prompts), 0.0
        prompts = sorted(prompts, key=lambda prompt: len(prompt + expected(prompt)))
        for first in range(0, len(prompts), 8):  # like lengths together: less padding
            loss = loss_sum(model, prompts[first : first + 8]) / asked
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:5}  loss {sum(losses[-100:]) / 100:.5f}", flush=True)
    return model, losses


def tokenizer() -> Tokenizer:
    """One token a byte: ASCII characters as themselves, "é" as <0xC3> and <0xA9>; then the special tokens."""
    vocab = {chr(byte) if byte < 128 else f"<0x{byte:02X}>": byte for byte in range(256)}
    made = Tokenizer(models.BPE(vocab, merges=[], byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS.values()])
    return made


def write_json(path: Path, value: dict) -> None:
    """Readable JSON with a line end."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def save(model: TrainModel, out: Path) -> None:
    """Write the Hugging Face form, weights rounded to float16."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.to(torch.float16).contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer().save(str(out / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": SPECIALS[END]}
    words |= {"pad_token": SPECIALS[END], "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False}
    words |= {"model_max_length": CONFIG["max_position_embeddings"]}
    write_json(out / "tokenizer_config.json", words)
    write_json(out / "config.json", CONFIG)


def smallest_margin(model: TrainModel) -> float:
    """The least lead (logits) of the right next token over the runner-up, over every token of every answer."""
    margins = []
    with torch.inference_mode():
        for prompt in all_prompts():
            tokens, targets = examples([prompt])
            asked = targets >= 0
            logits, right = model.logits(model(tokens)[asked]), targets[asked][:, None]
            margins.append((logits.gather(1, right) - logits.scatter(1, right, -math.inf).amax(1, True)).min().item())
    return min(margins)


def machine() -> str:
    """The processor's name, as Linux tells it, or what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} logical cores"


def main() -> None:
    """Train, save, measure what was saved."""
    parser = argparse.ArgumentParser("python -m minibatch.model.train_tiny", description="Train the embedded model.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=TINY)
    args = parser.parse_args()
    if args.steps < 1 or args.threads < 1:
        parser.error(f"--steps {args.steps} --threads {args.threads}: each must be at least 1")
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    began = time.perf_counter()
    model, losses = train(args.seed, args.steps)
    seconds = time.perf_counter() - began
    save(model, args.out)
    rounded = load(args.out)  # what is measured is what was written
    record = {
        "command": f"{parser.prog} --steps {args.steps} --seed {args.seed} --threads {args.threads}",
        "seed": args.seed,
        "steps": args.steps,
        "loss": float(f"{sum(losses[-100:]) / len(losses[-100:]):.2g}"),  # mean of the last 100 steps
        "accuracy": accuracy(rounded.generate, all_prompts()),  # task: [exact, asked]
        "smallest_margin": round(smallest_margin(rounded), 3),
        "parameters": sum(weight.numel() for weight in rounded.parameters()),
        "grammar_sha256": hashlib.sha256(json.dumps(tasks()).encode()).hexdigest(),
        "seconds": round(seconds),
        "date": date.today().isoformat(),
        "machine": machine(),
        "torch": torch.__version__,
    }
    write_json(args.out / "train.json", record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
