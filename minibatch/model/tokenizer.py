"""Text to token ids and back, by the `tokenizers` library; a chat prompt by the model's own template."""

import json
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as Rules

from minibatch.model.config import ModelFileError


class Tokenizer:
    """`rules` do the splitting. `chat_template` is jinja (run in a sandbox: it comes with the model file)."""

    def __init__(
        self, rules: Rules, eos_token_ids: tuple[int, ...], chat_template: str | None, special: dict[str, str]
    ):
        self.rules, self.eos_token_ids = rules, eos_token_ids
        self._special = special  # "eos_token" and the like, for templates that name them
        self._template = None
        if chat_template:
            environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            self._template = environment.from_string(chat_template)

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to vocab_size - 1."""
        return self.rules.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text as it stands, no special tokens added."""
        return self.rules.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids; special tokens such as EOS leave no trace in it."""
        return self.rules.decode(list(ids), skip_special_tokens=True)

    def chat(self, text: str, system: str | None = None) -> list[int]:
        """Token ids of a chat with one user turn, ready for the answer; plain text if there is no template."""
        if self._template is None:
            return self.encode(text)
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": text})
        return self.encode(self._template.render(messages=messages, add_generation_prompt=True, **self._special))


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face model folder: tokenizer.json, with chat template and EOS from its neighbours."""
    path = folder / "tokenizer.json"
    try:
        rules = Rules.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception, for a missing file too
        raise ModelFileError(f"{path}: cannot be read as a tokenizer ({error})") from None
    config = _json(folder / "tokenizer_config.json")
    special = {name: _content(config[name]) for name in ("bos_token", "eos_token", "pad_token") if config.get(name)}
    template = config.get("chat_template")
    if (folder / "chat_template.jinja").exists():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return Tokenizer(rules, _eos_ids(folder, rules, special), template, special)


def _eos_ids(folder: Path, rules: Rules, special: dict[str, str]) -> tuple[int, ...]:
    """Ids that end an answer: generation_config.json's, else config.json's, else the tokenizer's eos_token."""
    for name in ("generation_config.json", "config.json"):
        found = _json(folder / name).get("eos_token_id")
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    token = rules.token_to_id(special.get("eos_token", ""))
    if token is None:
        raise ModelFileError(
            f"{folder}: no EOS token is named in generation_config.json, config.json or tokenizer_config.json"
        )
    return (token,)


def _content(token: str | dict) -> str:
    return token["content"] if isinstance(token, dict) else token


def _json(path: Path) -> dict:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path}: is not JSON ({error})") from None
