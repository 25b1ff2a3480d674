"""From tokens to text while an answer is being written, and its end at a stop text.

Both meet the same difficulty: what a client may see is not known a token at a time. A character may take several
tokens, and a stop text may begin in one token and end in a later one.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from minibatch.async_engine import AsyncEngine
from minibatch.engine import Engine
from minibatch.request import Request

Decode = Callable[[list[int]], str]  # token ids to text: a tokenizer's decode


class StopText:
    """Lets a text through up to the first of some stop texts, which itself is not let through.

    The first is the one that is complete first, so it does not matter how the text was cut into pieces. Held back
    is only what may yet turn out to be the beginning of a stop text: at most its length less one.

    >>> text = StopText(["END"])
    >>> text.feed("aE"), text.feed("x"), text.feed("EN"), text.feed("Dz"), text.stopped
    ('a', 'Ex', '', '', True)
    """

    def __init__(self, stops: Iterable[str] = ()):
        if isinstance(stops, str):  # each of its letters would be one
            raise ValueError(f"stop={stops!r}: give a list of texts, as in stop=[{stops!r}]")
        self.stops = tuple(stops)
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                raise ValueError(f"stop={stop!r}: must be a text of at least one character")
        self.stopped = False
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be released now that this piece of text has come. Nothing is, once it has stopped."""
        if self.stopped:
            return ""
        text = self._held + piece
        found = [(text.index(stop) + len(stop), text.index(stop)) for stop in self.stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        cut = len(text) - self._may_begin(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """The text is over: what was held back belongs to it after all."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop text begins."""
        longest = max((len(stop) for stop in self.stops), default=1) - 1
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(text[-n:]) for stop in self.stops)), 0)


class Detokenizer:
    """Tokens in, text out: only whole characters, for one may be spread over several tokens.

    Decodes no more than the tokens since the last whole character and those of the piece before, which are there
    for tokenizers that treat the first token of a text in a special way.
    """

    UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what bytes decode to that are no character, or not yet

    def __init__(self, decode: Decode):
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0  # of `_ids`: the text of the first so many is known to the reader

    def feed(self, token: int) -> str:
        """The text that has become whole with this token; often empty."""
        self._ids.append(token)
        piece = self.flush()
        if not piece or piece.endswith(self.UNFINISHED):
            return ""
        self._ids, self._shown = self._ids[self._shown :], len(self._ids) - self._shown
        return piece

    def flush(self) -> str:
        """The text of the tokens that are left, at the end of an answer: whole or not."""
        return self._decode(self._ids)[len(self._decode(self._ids[: self._shown])) :]


class _Reader:
    """Reads an answer as it is written: asked by the engine about each token, read by the client afterwards."""

    def __init__(self, decode: Decode, stop: Iterable[str]):
        self._tokens, self._text = Detokenizer(decode), StopText(stop)
        self._error: Exception | None = None
        self.pieces: deque[str] = deque()  # one a token

    def ends(self, token: int) -> bool:
        """True if the answer ends with this token. A decoder that raises ends it too: its client alone shall know."""
        try:
            self.pieces.append(self._text.feed(self._tokens.feed(token)))
        except Exception as error:
            self._error = error
        return self._text.stopped or self._error is not None

    def next(self) -> str:
        """The text released by the next token."""
        if not self.pieces:
            raise self._error
        return self.pieces.popleft()

    def rest(self) -> str:
        """What was held back."""
        return "" if self._text.stopped else self._text.feed(self._tokens.flush()) + self._text.flush()


def stream_text(engine: Engine, request: Request, decode: Decode, stop: Iterable[str] = ()) -> Iterator[str]:
    """Submit a request, arriving now, and yield its text as it comes, up to the first stop text.

    The stop text is not part of it; the request then ends by "stop". Joined, the pieces are the text of the whole
    answer cut at the stop text. Otherwise as `Engine.stream`. Raises ValueError for a stop text that is empty.
    """
    reader = _Reader(decode, stop)
    return _read(reader, engine.stream(request, ends=reader.ends))


def stream_text_async(
    server: AsyncEngine, request: Request, decode: Decode, stop: Iterable[str] = ()
) -> AsyncIterator[str]:
    """As `stream_text`, over `AsyncEngine.stream`."""
    reader = _Reader(decode, stop)
    return _read_async(reader, server.stream(request, ends=reader.ends))


def _read(reader: _Reader, tokens: Iterator[int]) -> Iterator[str]:
    try:
        for _ in tokens:
            if piece := reader.next():
                yield piece
        if rest := reader.rest():
            yield rest
    finally:  # a client that leaves early closes this, and this closes the stream of tokens
        tokens.close()


async def _read_async(reader: _Reader, tokens: AsyncIterator[int]) -> AsyncIterator[str]:
    try:
        async for _ in tokens:
            if piece := reader.next():
                yield piece
        if rest := reader.rest():
            yield rest
    finally:
        await tokens.aclose()
