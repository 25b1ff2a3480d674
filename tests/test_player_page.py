"""Traces that are saved and read again, the page that plays them, and `python -m minibatch player`."""

import json
import re
from pathlib import Path

import pytest
from helpers import engine_on, request, serve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibatch import Trace, load_trace
from minibatch.__main__ import main
from minibatch.commands.five_ways import SENTENCES, five_ways, served
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import latency
from minibatch.plot import player_page
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.trace_file import check_trace

ROOT = Path(__file__).resolve().parents[1]


def preempting(lengths=((8, 9), (8, 9), (5, 4)), blocks=6) -> Trace:
    """Requests (prompt, output) on few blocks, so that some are preempted."""
    memory = PagedMemory(blocks, 4)
    requests = [request(f"R{i}", output, prompt=prompt, arrival=i / 2) for i, (prompt, output) in enumerate(lengths)]
    return serve(IterationScheduler(4, memory), requests)


def static() -> Trace:
    """Two batches with dead slots, on contiguous memory."""
    names = [("A", 2), ("B", 4), ("C", 2)]
    return serve(StaticBatcher(2, ContiguousMemory(16, 8)), [request(name, output) for name, output in names])


def failing() -> Trace:
    """A step raises."""

    class Broken:
        vocab_size = max_model_len = 1000

        def execute(self, plan):
            raise ZeroDivisionError("no")

    engine = engine_on(PagedMemory(4, 4), executor=Broken())
    return engine.run([request("A", 2)])


def data_of(page: str) -> dict:
    """What the page's script is given."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.+?)</script>', page, re.S)[1])


# ---- trace files ----


@pytest.mark.parametrize("made", [preempting, static, failing, lambda: Trace("nothing", 2)])
def test_a_saved_trace_is_read_as_it_was(made, tmp_path):
    trace = made()
    trace.save(tmp_path / "t.json")
    again = load_trace(tmp_path / "t.json")
    assert again == trace and again.to_json() == trace.to_json()
    assert [type(event) for step in again.steps for event in step.memory_events] == [
        type(event) for step in trace.steps for event in step.memory_events
    ]


def test_the_traces_of_these_tests_hold_what_they_are_about():
    assert any(step.preempted for step in preempting().steps) and any(step.memory_events for step in preempting().steps)
    assert any(step.dead for step in static().steps) and failing().steps[0].error


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(4, 12),
)
def test_any_run_survives_its_file(lengths, blocks):
    trace = preempting(lengths, blocks)
    again = Trace.from_json(trace.to_json())
    check_trace(again)
    assert again == trace


def damaged(change) -> str:
    """The JSON of a trace with one thing changed."""
    whole = json.loads(preempting().to_json())
    change(whole)
    return json.dumps(whole)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("format"), "is not a trace"),
        (lambda t: t.update(version=2), "version=2: this minibatch reads version 1"),
        (lambda t: t.pop("num_slots"), "num_slots: is missing"),
        (lambda t: t.update(num_slots=0), "num_slots=0: must be at least 1"),
        (lambda t: t.update(num_slots=True), "num_slots: True is not a whole number"),
        (lambda t: t.update(colour="red"), "'colour' is not a field (they are scheduler, num_slots"),
        (lambda t: t["steps"][1]["live"][0].__setitem__(1, "a"), "steps[1].live[0].slot: 'a' is not a whole number"),
        (lambda t: t["steps"][1]["live"][0].pop(), "is not a list of request_id, slot, start, count, prefill"),
        (lambda t: t["steps"][1]["live"][0].__setitem__(1, 7), "steps[1]: slot 7 is none of the 4 slots"),
        (lambda t: t["steps"][1]["live"].append(t["steps"][1]["live"][0]), "steps[1]: one slot is given twice"),
        (lambda t: t["steps"][1]["live"][0].__setitem__(0, "?"), "steps[1]: request '?' is not among the requests"),
        (lambda t: t["steps"].pop(1), "steps[1].step=3: must be 2"),
        (lambda t: t["steps"][1].update(end=-1.0), "steps[1].end=-1.0: lies before its start"),
        (lambda t: t["steps"][2].update(start=0.0), "steps[2].start=0.0: before the step before ends"),
        (lambda t: t["steps"][1].update(start=float("nan")), "steps[1].start: nan is not a finite number"),
        (lambda t: t["requests"]["R0"]["token_times"].pop(), "requests['R0']: has 9 tokens and 8 token_times"),
        (lambda t: t["requests"].update(Z=t["requests"]["R0"]), "requests['Z'].request_id='R0'"),
        (lambda t: t["steps"][0]["memory_events"][0].append(3), "steps[0].memory_events: ('take', "),
    ],
)
def test_a_damaged_trace_is_refused_with_what_is_wrong(change, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(damaged(change))
    with pytest.raises(ValueError) as refused:
        load_trace(path)
    assert str(path) in str(refused.value) and message in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b'"a"', b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_what_is_no_trace_is_refused(content, tmp_path):
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "t.json"))):
        load_trace(tmp_path / "t.json")


def test_half_a_file_is_refused(tmp_path):
    text = static().to_json()
    for end in range(1, len(text), 37):
        (tmp_path / "t.json").write_text(text[:end])
        with pytest.raises(ValueError):
            load_trace(tmp_path / "t.json")


# ---- the page ----


def test_the_page_is_one_small_file_that_asks_nothing_of_a_network():
    page = player_page({"one": static(), "two": preempting()})
    assert len(page.encode()) < 40_000
    assert "default-src 'none'" in page and not re.search(r'(src|href)\s*=\s*"', page)
    addresses = set(re.findall(r"https?://[^\s\"'`<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name of SVG, which nobody fetches"
    assert page == player_page({"one": static(), "two": preempting()})


def test_its_data_are_the_trace():
    found = data_of(player_page(static()))
    assert found["at"] == list(range(1, 7)) and found["axis"] == "steps" and found["extent"] == [0, 6]
    (one,) = found["traces"]
    assert (one["name"], one["slots"], one["sentence"]) == (
        "static",
        2,
        "6 steps, 2 dead slot-steps, 1.33 of 2 slots live on average.",
    )
    named = [(slot, found["ids"][i], kind, first, last) for slot, i, kind, first, last in one["bars"]]
    assert named[:3] == [(0, "A", 0, 1, 1), (0, "A", 1, 2, 2), (0, "A", 2, 3, 4)]
    assert one["queue"] == [[0, 1], [4, 0]] and found["legend"][:4] == ["prefill", "decode", "dead", "empty"]


def test_preemptions_and_failures_are_in_it():
    found = data_of(player_page(preempting()))
    assert "preempted" in found["legend"] and found["traces"][0]["crosses"] and found["traces"][0]["lost"]
    assert "failed" in data_of(player_page(failing(), axis="steps"))["legend"]


def test_no_name_breaks_out_of_the_page():
    evil = "</script><script>alert(1)</script>{{data}}&\"'"
    trace = serve(StaticBatcher(1, ContiguousMemory(8, 8)), [request(evil, 2)])
    page = player_page({evil: trace}, title=evil, intro=evil)
    assert page.count("<script") == 2 and data_of(page)["ids"] == [evil] and data_of(page)["traces"][0]["name"] == evil
    assert "<title>&lt;/script&gt;" in page


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="no step has run"):
        player_page(Trace("static", 2))
    with pytest.raises(ValueError, match="sentences: 1 for 2 traces"):
        player_page([static(), static()], sentences=["a"])
    with pytest.raises(ValueError, match="axis='tokens'"):
        player_page(static(), axis="tokens")


# ---- the committed page ----


def test_the_committed_page_is_what_the_code_makes():
    committed = (ROOT / "figures" / "player.html").read_text(encoding="utf-8")
    assert committed == five_ways(), "write it anew: python -m minibatch figures player"


def test_the_five_ways_show_what_their_sentences_say():
    runs = served()
    assert list(runs) == list(SENTENCES) and all(len(trace.finished) == 12 for trace in runs.values())
    dead = {name: sum(len(step.dead) for step in trace.steps) for name, trace in runs.items()}
    gaps = {name: max(g for r in trace.finished for g in latency(r).itl) for name, trace in runs.items()}
    ends = [trace.steps[-1].end for trace in runs.values()]
    assert dead["static"] > dead["dynamic"] > 0 == dead["iteration-level"] == dead["chunked"] == dead["paged"]
    assert gaps["iteration-level"] == 5 and gaps["chunked"] == gaps["paged"] == 1
    assert ends[2] > ends[3] > ends[4] and min(ends[:2]) > ends[2]
    first = {name: [runs[name].requests[r].token_times[0] for r in "ABC"] for name in ("static", "dynamic")}
    assert all(early < late for early, late in zip(first["dynamic"], first["static"]))


# ---- the command ----


def test_the_command_makes_a_page_of_several_traces(tmp_path, capsys):
    for name, trace in (("a", static()), ("b", preempting())):
        trace.save(tmp_path / f"{name}.trace.json")
    out = tmp_path / "out.html"
    files = [str(tmp_path / f"{name}.trace.json") for name in "ab"]
    assert main(["player", *files, str(out), "--title", "Ours"]) == 0
    assert "open it in a browser" in capsys.readouterr().out
    page = out.read_text(encoding="utf-8")
    assert [one["name"] for one in data_of(page)["traces"]] == ["static", "iteration"] and "<h1>Ours</h1>" in page
    assert main(["player", files[0], files[0].replace("a.trace", "b.trace"), str(out), "--names", "x", "y"]) == 0
    assert [one["name"] for one in data_of(out.read_text(encoding="utf-8"))["traces"]] == ["x", "y"]


def test_runs_of_one_batcher_go_by_their_files(tmp_path):
    for name in ("short", "long"):
        static().save(tmp_path / f"{name}.trace.json")
    files = [str(tmp_path / f"{name}.trace.json") for name in ("short", "long")]
    assert main(["player", *files, str(tmp_path / "o.html"), "--axis", "seconds"]) == 0
    found = data_of((tmp_path / "o.html").read_text(encoding="utf-8"))
    assert [one["name"] for one in found["traces"]] == ["short", "long"] and found["axis"] == "seconds"


def test_the_command_refuses_what_it_cannot_use(tmp_path, capsys):
    trace, out = tmp_path / "t.json", tmp_path / "o.html"
    static().save(trace)
    kept = trace.read_bytes()
    for arguments, message in [
        ([trace, trace], "the last name is the page to write and ends in .html"),
        ([tmp_path / "none.json", out], "No such file"),
        ([trace, trace, out], "two runs are called 't'"),
        ([trace, out, "--names", "a", "b"], "--names: 2 for 1 traces"),
        ([out.with_suffix(".txt"), out], "o.txt"),
    ]:
        assert main(["player", *map(str, arguments)]) == 1
        assert message in capsys.readouterr().err
    assert trace.read_bytes() == kept and not out.exists()
