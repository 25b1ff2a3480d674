"""The embedded model's files, the grammar it was trained on, and that it answers exactly as its record says.

`TrainModel` is the model as it was trained, on its own code; the package's engine is held against it elsewhere.
"""

import hashlib
import json
import random
from itertools import islice

import jinja2
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from minibatch.model.config import ModelConfig
from minibatch.model.tiny_llama import CONFIG, END, TINY, encode, load
from minibatch.model.tiny_tasks import accuracy, all_prompts, expected, tasks
from minibatch.model.train_tiny import batches, examples, save, tokenizer, train

PROMPTS = TINY.parent / "prompts_tiny.json"


def read(name: str) -> dict:
    return json.loads((TINY / f"{name}.json").read_text())


def test_files_are_small_and_hold_no_pickle():
    names = {path.name for path in TINY.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "train.json"}
    assert sum(path.stat().st_size for path in TINY.iterdir()) < 1_000_000


def test_tensors_are_those_the_config_asks_for():
    weights = load_file(TINY / "model.safetensors")
    assert {name: w.shape for name, w in weights.items()} == ModelConfig.from_hf(read("config")).shapes()
    assert {w.dtype for w in weights.values()} == {torch.float16}
    assert all(w.isfinite().all() for w in weights.values())
    assert sum(w.numel() for w in weights.values()) == read("train")["parameters"]


def test_script_and_files_agree():
    """A change of the configuration, the tokenizer or the grammar asks for a new training run."""
    assert read("config") == CONFIG
    assert json.loads(tokenizer().to_str()) == read("tokenizer")
    assert hashlib.sha256(json.dumps(tasks()).encode()).hexdigest() == read("train")["grammar_sha256"]


def test_tokenizer_gives_back_any_text_a_token_a_byte():
    tokens = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    for text in (*all_prompts(), "  two  spaces \n\ttab ", "até já, 日本 😀", "<0x41> is no token", ""):
        ids = tokens.encode(text, add_special_tokens=False).ids
        assert ids == list(text.encode())
        assert tokens.decode(ids) == text
    assert tokens.encode("<|end|>", add_special_tokens=False).ids == [END]
    assert tokens.decode([*b"ok", END]) == "ok"


def test_chat_template_asks_as_the_training_did():
    tokens = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    template = jinja2.Template(read("tokenizer_config")["chat_template"])
    system, user = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "count to 7"}
    text = template.render(messages=[system, user], add_generation_prompt=True)
    assert text == "<|user|>count to 7<|assistant|>"
    assert tokens.encode(text, add_special_tokens=False).ids == encode("count to 7")
    answered = template.render(messages=[user, {"role": "assistant", "content": "1"}], add_generation_prompt=False)
    assert answered == "<|user|>count to 7<|assistant|>1<|end|>"


def test_grammar_by_hand():
    assert expected("count to 3") == "1 2 3"
    assert expected("count down from 3") == "3 2 1"
    assert expected("list 1 city") == "Rome"
    assert expected("list 2 fruits") == "apple, pear"
    assert expected("tell a story in 2 lines about a fox") == "1. A fox lived in a den.\n2. The fox wanted some grapes."
    assert (expected("opposite of cold"), expected("opposite of hot"), expected("say yes")) == ("hot", "cold", "yes")
    assert len(set(all_prompts())) == len(all_prompts()) == 218
    longest = max(len(encode(prompt)) + len(expected(prompt)) + 1 for prompt in all_prompts())
    assert longest <= CONFIG["max_position_embeddings"]
    with pytest.raises(ValueError, match="count to 41"):
        expected("count to 41")


def test_accuracy_counts_by_task_and_refuses_strangers():
    prompts = ["count to 2", "count to 3", "say yes"]
    assert accuracy(lambda prompt: "1 2", prompts) == {"count": (1, 2), "say": (0, 1)}
    with pytest.raises(ValueError, match="say maybe"):
        accuracy(expected, ["say maybe"])


def test_training_text_follows_from_the_seed():
    first, again, other = (list(islice(batches(seed), 3)) for seed in (1, 1, 2))
    assert first == again != other
    assert {len(batch) for batch in first} == {32}
    drawn = {prompt for batch in islice(batches(1), 200) for prompt in batch}
    assert drawn == set(all_prompts())


def test_loss_is_on_the_answer_and_its_end_only():
    tokens, targets = examples(["say hi", "count to 2"])
    assert tokens.tolist()[0] == [*encode("say hi"), *b"hi", *[END] * 5]
    assert targets.tolist()[0] == [-100] * 7 + [*b"hi", END] + [-100] * 5
    assert targets.tolist()[1] == [-100] * 11 + [*b"1 2", END]


def test_training_repeats_and_survives_saving(tmp_path):
    (model, losses), (again, same) = train(seed=7, steps=1), train(seed=7, steps=1)
    assert losses == same and losses != train(seed=8, steps=1)[1]
    save(model, tmp_path)
    rounded = load(tmp_path).state_dict()
    for name, weight in again.state_dict().items():
        assert torch.equal(rounded[name], weight.half().float()), name


def test_record_says_every_prompt_is_exact():
    record = read("train")
    assert record["accuracy"] == {task: [len(answers), len(answers)] for task, answers in tasks().items()}
    assert {"command", "seed", "steps", "loss", "seconds", "date", "machine", "torch"} <= record.keys()


@pytest.mark.parametrize("task", tasks())
def test_answers_are_exact(task):
    """Greedy, from the float16 weights: a seeded sample, the longest answer among it."""
    prompts = list(tasks()[task])
    sample = {max(prompts, key=lambda prompt: len(expected(prompt))), *random.Random(0).sample(prompts, 2)}
    assert accuracy(load().generate, sample) == {task: (len(sample), len(sample))}


def test_prompts_of_the_course():
    rows = json.loads(PROMPTS.read_text())
    assert [row["id"] for row in rows] == [f"R{i}" for i in range(1, 25)]
    lengths = [len(expected(row["text"])) for row in rows]
    assert min(lengths) <= 3 and 200 < max(lengths) <= 250
    assert lengths != sorted(lengths) and len(set(lengths)) > 15
