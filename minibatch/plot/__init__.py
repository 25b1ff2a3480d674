"""Pictures of a run, each a pure function of a `Trace`: nothing here knows the engine, a model or a scheduler."""

from minibatch.plot.block_words import (
    blocks_alt,
    blocks_caption,
    memory_alt,
    memory_caption,
    table_alt,
    table_caption,
)
from minibatch.plot.blocks import blocks, memory
from minibatch.plot.colours import colour_of
from minibatch.plot.figure import slots
from minibatch.plot.output import png, save, show
from minibatch.plot.page_player import player_page
from minibatch.plot.player import Player
from minibatch.plot.source import show_source
from minibatch.plot.svg import slots_svg
from minibatch.plot.table import block_table
from minibatch.plot.text import slots_text
from minibatch.plot.words import alt, caption

__all__ = [
    "Player",
    "alt",
    "block_table",
    "blocks",
    "blocks_alt",
    "blocks_caption",
    "caption",
    "colour_of",
    "memory",
    "memory_alt",
    "memory_caption",
    "player_page",
    "png",
    "save",
    "show",
    "show_source",
    "slots",
    "slots_svg",
    "slots_text",
    "table_alt",
    "table_caption",
]
