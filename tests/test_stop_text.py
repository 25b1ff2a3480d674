"""Text while it is written: characters and stop texts across token borders (cases.md A19)."""

import asyncio

import pytest
from fake_kv import FakeKV
from helpers import AuditedEngine, assert_drained, engine_on, request
from hypothesis import given
from hypothesis import strategies as st

from minibatch import AsyncEngine, EngineError
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.stop_text import Detokenizer, StopText, stream_text, stream_text_async

CASES = [  # texts of the tokens, stop texts, what the client gets, why it ended
    ("complete in a later token", ["a", "EN", "Dz"], ["END"], "a", "stop"),
    ("begun and not completed", ["E", "N", "X"], ["END"], "ENX", "length"),
    ("begun when the answer ends", ["b", "EN"], ["END"], "bEN", "length"),
    ("within one token", ["xxENDyy"], ["END", "ENDING"], "xx", "stop"),
    ("the longer of two", ["xx", "ENDIN", "G"], ["ENDINGS", "ENDING"], "xx", "stop"),
    ("two that overlap", ["AB", "C", "D"], ["ABCD", "BC"], "A", "stop"),
    ("begins twice", ["EEN", "D"], ["END"], "E", "stop"),
    ("with the very last token", ["a", "END"], ["END"], "a", "stop"),
    ("no stop text", ["a", "END"], [], "aEND", "length"),
]
EACH = pytest.mark.parametrize("pieces, stops, text, reason", [c[1:] for c in CASES], ids=[c[0] for c in CASES])


def scripted(pieces):
    """An engine whose request R writes these pieces, a token each, and the decoder that knows them."""
    engine = AuditedEngine(IterationScheduler(2), ScriptedExecutor({"R": range(len(pieces))}))
    return engine, lambda ids: "".join(pieces[i] for i in ids)


@EACH
def test_a19_the_stop_text_never_reaches_the_client_and_nothing_else_is_lost(pieces, stops, text, reason):
    engine, decode = scripted(pieces)
    assert "".join(stream_text(engine, request("R", len(pieces)), decode, stops)) == text
    record = engine.trace.requests["R"]
    assert record.finish_reason == reason
    streamed = StopText(stops)
    assert streamed.feed("".join(pieces)) + streamed.flush() == text, "the same as of the whole text at once"
    assert_drained(engine.scheduler)


@EACH
def test_a19_over_asyncio(pieces, stops, text, reason):
    engine, decode = scripted(pieces)

    async def main():
        async with AsyncEngine(engine) as server:
            return "".join([p async for p in stream_text_async(server, request("R", len(pieces)), decode, stops)])

    assert asyncio.run(main()) == text and engine.trace.requests["R"].finish_reason == reason


@given(text=st.text("ENDx", max_size=30), stops=st.lists(st.text("END", min_size=1, max_size=4)), data=st.data())
def test_a19_however_the_text_is_cut_the_stream_is_the_same_and_little_is_withheld(text, stops, data):
    whole = StopText(stops)
    expected = whole.feed(text) + whole.flush()
    cut, seen, given_so_far = StopText(stops), "", 0
    while given_so_far < len(text) and not cut.stopped:
        size = data.draw(st.integers(1, 5))
        seen += cut.feed(text[given_so_far : given_so_far + size])
        given_so_far += size
        withheld = min(given_so_far, len(text)) - len(seen)
        assert cut.stopped or withheld <= max([len(stop) - 1 for stop in stops], default=0)
    assert seen + cut.flush() == expected and cut.stopped == whole.stopped
    assert cut.stopped == any(stop in text for stop in stops)
    assert not any(stop in expected for stop in stops)


def test_the_step_that_completes_the_stop_text_is_the_last():
    engine, decode = scripted(["a", "EN", "Dz", "no", "no"])
    assert "".join(stream_text(engine, request("R", 5), decode, ["END"])) == "a"
    assert len(engine.trace.steps) == 3 and len(engine.trace.requests["R"].tokens) == 3


def test_leaving_the_stream_of_text_aborts_its_request():
    engine, decode = scripted(["a", "b", "c"])
    for piece in stream_text(engine, request("R", 3), decode):
        assert piece == "a"
        break
    assert engine.trace.requests["R"].finish_reason == "aborted"


def test_leaving_the_stream_of_text_aborts_its_request_over_asyncio():
    engine, decode = scripted(["a"] * 500)

    async def main():
        async with AsyncEngine(engine) as server:
            text = stream_text_async(server, request("R", 500), decode)
            assert await anext(text) == "a"
            await text.aclose()
            other = [piece async for piece in stream_text_async(server, request("R2", 1), lambda ids: "b" * len(ids))]
            return other, len(engine.open)

    assert asyncio.run(main()) == (["b"], 0)
    assert engine.trace.requests["R"].finish_reason == "aborted"


def test_a_stop_text_across_a_preemption_is_found():
    memory = PagedMemory(3, 2)
    script = {"first": [3] * 5, "R": [0, 1, 2, 3]}
    engine = engine_on(memory, executor=FakeKV(memory, script))
    engine.submit(request("first", 5))
    pieces = ["a", "E", "N", "D"]
    text = "".join(stream_text(engine, request("R", 5), lambda ids: "".join(pieces[i] for i in ids), ["END"]))
    record = engine.trace.requests["R"]
    assert text == "a" and record.finish_reason == "stop" and record.preemptions > 0


BYTES = "até já, 日本 😀"


@pytest.mark.parametrize("text", [BYTES, "", "\N{REPLACEMENT CHARACTER}x", "  two  spaces "])
def test_characters_of_several_tokens_come_whole(tiny, text):
    """The embedded model's tokens are bytes."""
    tokens = Detokenizer(tiny.tokenizer.decode)
    pieces = [tokens.feed(token) for token in tiny.tokenizer.encode(text)]
    assert "".join(pieces) + tokens.flush() == text
    if text == BYTES:
        assert all(len(piece) <= 1 for piece in pieces) and pieces.count("") == len(text.encode()) - len(text)


def test_a_character_that_stays_unfinished_comes_at_the_end_as_the_decoder_shows_it(tiny):
    tokens, ids = Detokenizer(tiny.tokenizer.decode), [*"até".encode()][:-1]
    assert [tokens.feed(token) for token in ids] == ["a", "t", ""]
    assert tokens.flush() == tiny.tokenizer.decode(ids)[2:] == "\N{REPLACEMENT CHARACTER}"


def test_a_stop_text_of_several_bytes_a_character_is_found(tiny):
    engine = AuditedEngine(IterationScheduler(1), ScriptedExecutor({"R": list("um 日本 dois".encode())}))
    text = "".join(stream_text(engine, request("R", 40), tiny.tokenizer.decode, ["本 d"]))
    assert text == "um 日" and engine.trace.requests["R"].finish_reason == "stop"


def test_a_decoder_that_raises_reaches_its_client_alone():
    def broken(ids):
        raise KeyError("no such token")

    engine, _ = scripted(["a"])
    other = engine.submit(request("other", 4))
    with pytest.raises(KeyError, match="no such token"):
        list(stream_text(engine, request("R", 4), broken))
    engine.run([])
    assert len(other.output) == 4 and not engine.open


def test_a_step_that_raises_is_told_as_ever():
    engine, decode = scripted(["a", "b"])
    engine.executor.execute = None
    with pytest.raises(EngineError, match="request 'R' failed after 0 tokens"):
        list(stream_text(engine, request("R", 2), decode))


@pytest.mark.parametrize("stop, words", [([""], "stop=''"), ("END", r"stop=\['END'\]"), ([7], "stop=7")])
def test_a_stop_text_that_is_none_is_refused_before_anything_is_submitted(stop, words):
    engine, decode = scripted(["a"])
    with pytest.raises(ValueError, match=words):
        stream_text(engine, request("R", 1), decode, stop)
    assert not engine.open
