"""What the embedded model knows: a small closed grammar of prompts, each with one right answer.

218 prompts in six tasks. The prompt sets the length of the answer, from 1 to 260 characters, so the length of a
request can be chosen; the answer ends by itself, a person can read it, and a test can check it.
"""

from collections.abc import Callable, Iterable
from functools import cache

SAY = ["yes", "no", "hi", "ok", "bye", "hello", "thanks", "please", "sorry", "welcome"]
OPPOSITES = {
    "hot": "cold",
    "up": "down",
    "big": "small",
    "day": "night",
    "old": "new",
    "fast": "slow",
    "left": "right",
    "open": "shut",
    "wet": "dry",
    "light": "dark",
}
THINGS = {
    ("animal", "animals"): "cat dog fox cow hen owl pig bee",
    ("colour", "colours"): "red blue green black white pink grey brown",
    ("fruit", "fruits"): "apple pear plum fig lemon grape cherry melon",
    ("city", "cities"): "Rome Paris Lima Oslo Cairo Delhi Tokyo Lisbon",
    ("planet", "planets"): "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    ("month", "months"): "January February March April May June July August",
}
HEROES = {  # who: (where from, what for, whom they meet)
    "bear": ("cave", "honey", "mouse"),
    "cat": ("house", "milk", "frog"),
    "dragon": ("castle", "gold", "sailor"),
    "fox": ("den", "grapes", "rabbit"),
    "frog": ("pond", "flies", "cat"),
    "mouse": ("barn", "cheese", "bear"),
    "rabbit": ("burrow", "carrots", "fox"),
    "robot": ("garage", "batteries", "wolf"),
    "sailor": ("boat", "fish", "dragon"),
    "wolf": ("forest", "soup", "robot"),
}
STORY = (
    "A {who} lived in a {home}.",
    "The {who} wanted some {treat}.",
    "It looked down by the river.",
    "There it met a {friend}.",
    'The {friend} said: "Look up!"',
    "High in a tree it saw {treat}.",
    "The two of them shared the {treat}.",
    "Then they went home to sleep.",
)


@cache
def tasks() -> dict[str, dict[str, str]]:
    """The whole grammar: task -> prompt -> its one right answer."""
    counts = {f"count to {n}": " ".join(map(str, range(1, n + 1))) for n in range(1, 41)}
    downs = {f"count down from {n}": " ".join(map(str, range(n, 0, -1))) for n in range(1, 21)}
    lists = {}
    for (one, many), things in THINGS.items():
        names = things.split()
        lists |= {f"list {n} {one if n == 1 else many}": ", ".join(names[:n]) for n in range(1, len(names) + 1)}
    stories = {}
    for who, (home, treat, friend) in HEROES.items():
        lines = [line.format(who=who, home=home, treat=treat, friend=friend) for line in STORY]
        numbered = [f"{n}. {line}" for n, line in enumerate(lines, 1)]
        for n in range(1, len(lines) + 1):
            stories[f"tell a story in {n} line{'s' * (n > 1)} about a {who}"] = "\n".join(numbered[:n])
    pairs = [pair for left, right in OPPOSITES.items() for pair in ((left, right), (right, left))]
    opposites = {f"opposite of {word}": other for word, other in pairs}
    says = {f"say {word}": word for word in SAY}
    return {"count": counts, "down": downs, "list": lists, "story": stories, "opposite": opposites, "say": says}


def all_prompts() -> list[str]:
    """Every prompt of the grammar, task by task."""
    return [prompt for answers in tasks().values() for prompt in answers]


def expected(prompt: str) -> str:
    """The right answer to a prompt of the grammar."""
    for answers in tasks().values():
        if prompt in answers:
            return answers[prompt]
    raise ValueError(f"prompt={prompt!r}: not one of the {len(all_prompts())} prompts of the grammar (all_prompts())")


def accuracy(generate: Callable[[str], str], prompts: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Per task (answers exactly right, prompts asked), for any `generate` from prompt to text."""
    wanted = {prompt: expected(prompt) for prompt in prompts}
    scores = {}
    for task, answers in tasks().items():
        right = [generate(prompt) == answer for prompt, answer in wanted.items() if prompt in answers]
        if right:
            scores[task] = (sum(right), len(right))
    return scores
