"""The course's own chat prompts."""

import json
from importlib.resources import files

from minibatch.workload.check import check_known

CHAT_PROMPTS = {"smollm2": "prompts_smollm2.json", "tiny": "prompts_tiny.json"}


def chat_prompts(name: str = "smollm2") -> list[tuple[str, str]]:
    """The course's chat prompts for a model, "smollm2" or "tiny", as (request id, text of the user's turn)."""
    file = files("minibatch").joinpath("data", check_known(name, CHAT_PROMPTS, "set of prompts"))
    return [(entry["id"], entry["text"]) for entry in json.loads(file.read_text(encoding="utf-8"))]
