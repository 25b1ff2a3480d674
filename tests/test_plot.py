"""Pictures: every bar is in the trace and inside the axes, dead is grey, and the same trace gives the same bytes."""

import base64
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from minibatch import plot
from minibatch.plot import colours
from minibatch.plot.bars import arrivals, bars, extent, holdings, waiting
from minibatch.plot.colours import contrast, ink, tint
from minibatch.plot.source import part_of, source_of
from minibatch.trace import MemoryUse, RequestRecord, StepRecord, Trace, Work

BOTH = ("steps", "seconds")
Stay = tuple[str, int, int, int, int]  # request id, slot, first step, live steps (the first is prefill), dead steps


def hand_made(name: str, slots: int, stays: list[Stay], queue: list[int], prefill: int = 1) -> Trace:
    """A trace written down by hand. Steps last 1 s, with prefill 1.5 s; every request arrives at 0."""
    trace = Trace(name, slots)
    for request_id, *_ in sorted(stays, key=lambda stay: (stay[2], stay[1])):
        trace.requests[request_id] = RequestRecord(request_id, 0.0, 4, finish_reason="length")
    now = 0.0
    for step, long in enumerate(queue, 1):
        live = tuple(
            Work(r, s, step, 1, step < first + prefill) for r, s, first, n, _ in stays if 0 <= step - first < n
        )
        dead = tuple(Work(r, s, step, 1, False) for r, s, first, n, d in stays if n <= step - first < n + d)
        admitted = tuple(r for r, _, first, *_ in stays if first == step)
        finished = tuple(r for r, _, first, n, _ in stays if first + n - 1 == step)
        end = now + (1.5 if any(work.prefill for work in live) else 1.0)
        trace.steps.append(StepRecord(step, now, end, live, dead, admitted, finished, long, 0, MemoryUse(0, 0, 64)))
        for work in live:
            request = trace.requests[work.request_id]
            request.first_scheduled = now if request.first_scheduled is None else request.first_scheduled
            request.tokens.append(7)
            request.token_times.append(end)
        now = end
    return trace


STATIC = hand_made("static", 2, [("A", 0, 1, 2, 2), ("B", 1, 1, 4, 0), ("C", 0, 5, 2, 0)], [1, 1, 1, 1, 0, 0])
ITERATION = hand_made("iteration", 2, [("A", 0, 1, 2, 0), ("B", 1, 1, 4, 0), ("C", 0, 3, 2, 0)], [1, 1, 0, 0])


def long_trace(name: str, slots: int = 8, each: int = 3) -> Trace:
    """Static batches, `each` to a slot, of lengths between 3 and 250: up to 700 steps."""
    stays, first = [], 1
    for batch in range(each):
        lengths = [3 + (37 * (batch * slots + slot) + 11) % 231 for slot in range(slots)]
        stays += [(f"R{batch * slots + s}", s, first, n, max(lengths) - n) for s, n in enumerate(lengths)]
        first += max(lengths)
    return hand_made(name, slots, stays, [slots * (each - 1 - (step * each) // first) for step in range(first - 1)])


LONG = long_trace("static")
FOUR = long_trace("dynamic", slots=4, each=1)
COMPARED = {"long": LONG, "four": FOUR, "two": STATIC}
EVERY = [STATIC, ITERATION, [STATIC, ITERATION], LONG, FOUR, COMPARED]


def drawn(figure, label: str = "slots") -> list:
    """The axes of a figure that carry this label, from top to bottom."""
    return [axes for axes in figure.axes if axes.get_label() == label]


def cells_of(trace: Trace) -> Counter:
    """(step, slot, request, kind) as the trace has them."""
    kinds = {True: "prefill", False: "decode"}
    live = [(r.step, w.slot, w.request_id, kinds[w.prefill]) for r in trace.steps for w in r.live]
    return Counter(live + [(r.step, w.slot, w.request_id, "dead") for r in trace.steps for w in r.dead])


# The layout


@pytest.mark.parametrize("trace", [STATIC, ITERATION, LONG, FOUR])
@pytest.mark.parametrize("axis", BOTH)
def test_bars_cover_each_used_step_and_slot_exactly_once(trace, axis):
    covered = Counter(
        (step, b.slot, b.request_id, b.kind) for b in bars(trace, axis) for step in range(b.first, b.last + 1)
    )
    assert covered == cells_of(trace)


def test_bars_of_the_golden_trace():
    assert [bar[:5] for bar in bars(STATIC)] == [
        (0, "A", "prefill", 1, 1),
        (0, "A", "decode", 2, 2),
        (0, "A", "dead", 3, 4),
        (0, "C", "prefill", 5, 5),
        (0, "C", "decode", 6, 6),
        (1, "B", "prefill", 1, 1),
        (1, "B", "decode", 2, 4),
    ]
    assert [(bar.left, bar.right) for bar in bars(STATIC)][2:4] == [(2, 4), (4, 5)]
    assert [(bar.left, bar.right) for bar in bars(STATIC, "seconds")][2:4] == [(2.5, 4.5), (4.5, 6.0)]
    assert [bar.kind for bar in holdings(bars(STATIC))[0]] == ["prefill", "decode", "dead"]


def test_a_request_that_leaves_a_step_out_has_two_bars():
    trace = hand_made("gap", 1, [("A", 0, 1, 1, 0)], [0, 0, 0])
    trace.steps[2] = trace.steps[2].__class__(
        3, 2.5, 3.5, (Work("A", 0, 4, 1, True),), (), (), (), 0, 0, MemoryUse(0, 0, 1)
    )
    assert [(bar.first, bar.last) for bar in bars(trace)] == [(1, 1), (3, 3)]


def test_an_arrival_within_a_step_keeps_its_place_there():
    trace = hand_made("late", 1, [("A", 0, 1, 3, 0), ("B", 0, 4, 1, 0)], [0, 1, 1, 0])
    trace.requests["B"].arrival = 1.75  # step 2 lasts from 1.5 to 2.5
    assert arrivals(trace) == {"A": 0.0, "B": 1.25}
    assert arrivals(trace, "seconds") == {"A": 0.0, "B": 1.75}
    trace.requests["B"].arrival = 99.0
    assert arrivals(trace)["B"] == 4 and extent(trace, "seconds") == (0.0, 99.0)


def test_queue_is_the_traces_own():
    assert [tuple(each) for each in waiting(STATIC)][3:5] == [(3, 4, 1), (4, 5, 0)]


def test_queue_between_steps_counts_who_has_come_and_not_begun():
    trace = hand_made("static", 2, [("A", 0, 1, 1, 0), ("B", 1, 1, 1, 0)], [0])
    trace.steps[0] = replace(trace.steps[0], start=2.0, end=3.0)
    for name, arrival in [("A", 0.0), ("B", 1.25)]:
        trace.requests[name].arrival, trace.requests[name].first_scheduled = arrival, 2.0
    assert waiting(trace) == [(0, 1, 0)]
    assert waiting(trace, "seconds") == [(0, 1.25, 1), (1.25, 2, 2), (2, 3, 0)]
    assert drawn(plot.slots(trace, axis="seconds"), "queue")[0].get_ylim()[1] > 2


@pytest.mark.parametrize("picture", [plot.slots, bars])
def test_an_unknown_axis_is_refused(picture):
    with pytest.raises(ValueError, match="axis='minutes'"):
        picture(STATIC, axis="minutes")


# The figure


@pytest.mark.parametrize("traces", EVERY)
@pytest.mark.parametrize("axis", BOTH)
def test_axis_limits_hold_every_bar(traces, axis):
    figure = plot.slots(traces, axis=axis)
    panels = drawn(figure)
    assert len(panels) == len(colours.named(traces))
    assert len({axes.get_xlim() for axes in figure.axes if axes.get_label() != "legend"}) == 1, "one time axis for all"
    for (_, trace), axes in zip(colours.named(traces), panels, strict=True):
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert len(axes.patches) == len(bars(trace, axis))
        for patch in axes.patches:
            assert left <= patch.get_x() and patch.get_x() + patch.get_width() <= right + 1e-9
            assert top <= patch.get_y() and patch.get_y() + patch.get_height() <= bottom
    for (_, trace), axes in zip(colours.named(traces), drawn(figure, "queue"), strict=True):
        assert axes.get_ylim()[1] >= max(record.waiting for record in trace.steps)


@pytest.mark.parametrize("traces", EVERY)
@pytest.mark.parametrize("width", [5.0, 10.0])
def test_no_word_is_cut_off(traces, width):
    figure = plot.slots(traces, title="A title", width=width)
    page = figure.bbox
    figure.draw_without_rendering()
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text():
            box = text.get_window_extent()
            assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text


def test_dead_is_grey_and_counted_and_prefill_alone_is_hatched():
    for trace in (STATIC, LONG):
        (axes,) = drawn(plot.slots(trace))
        expected = cells_of(trace)
        grey = [patch for patch in axes.patches if to_hex(patch.get_facecolor()).upper() == colours.DEAD_GREY]
        hatched = [patch for patch in axes.patches if patch.get_hatch()]
        assert sum(patch.get_width() for patch in grey) == sum(n for cell, n in expected.items() if cell[3] == "dead")
        assert sum(p.get_width() for p in hatched) == sum(n for cell, n in expected.items() if cell[3] == "prefill")
        assert not set(grey) & set(hatched)


def test_decode_is_in_the_colour_of_its_request_in_every_panel():
    for axes, trace in zip(drawn(plot.slots([STATIC, ITERATION])), (STATIC, ITERATION)):
        plain = [(bar, patch) for bar, patch in zip(bars(trace), axes.patches) if bar.kind == "decode"]
        assert {bar.request_id: to_hex(patch.get_facecolor()).upper() for bar, patch in plain} == dict(
            zip("ABC", colours.PALETTE)
        )


def test_every_request_that_has_room_is_named():
    for traces in (STATIC, LONG, FOUR):
        (axes,) = drawn(plot.slots(traces))
        assert {text.get_text() for text in axes.texts} == set(traces.requests)


def test_a_label_never_leaves_the_stay_it_names():
    figure = plot.slots(COMPARED)
    figure.draw_without_rendering()
    for axes, trace in zip(drawn(figure), COMPARED.values(), strict=True):
        stays = holdings(bars(trace))
        for text in axes.texts:
            if text.get_text() in trace.requests:
                box, (x, y) = text.get_window_extent(), text.get_position()
                (stay,) = [s for s in stays if s[0].slot == int(y) and s[0].left <= x <= s[-1].right]
                left, right = (axes.transData.transform((at, 0))[0] for at in (stay[0].left, stay[-1].right))
                assert left - 1 <= box.x0 and box.x1 <= right + 1, f"{text.get_text()} is wider than its bars"
                assert stay[0].request_id == text.get_text()


def test_no_queue_means_slots_alone():
    figure = plot.slots(STATIC, queue=False)
    assert [axes.get_label() for axes in figure.axes] == ["slots", "legend"]


def test_a_failed_step_is_not_drawn_as_computed():
    trace = hand_made("fails", 1, [("A", 0, 1, 2, 0)], [0, 0])
    trace.steps[1] = StepRecord(2, 1.5, 2.5, trace.steps[1].live, (), (), ("A",), 0, 0, MemoryUse(0, 0, 1), "OSError()")
    assert [bar.kind for bar in bars(trace)] == ["prefill", "failed"]
    assert "step failed" in " ".join(text.get_text() for text in drawn(plot.slots(trace), "legend")[0].texts)
    assert "was computing A when the step failed" in plot.slots_svg(trace)
    assert "a×" in plot.slots_text(trace) and "a!" in plot.slots_text(trace, ascii=True)


def test_an_empty_trace_has_pictures_too():
    nothing = Trace("static", 2)
    assert plot.png(plot.slots(nothing)).startswith(b"\x89PNG")
    assert "no step has run" in plot.alt(nothing) and "nothing has run" in plot.slots_svg(nothing)
    assert "slot 1" in plot.slots_text(nothing)
    assert b"PNG" in plot.Player(nothing).still


@pytest.mark.parametrize("picture", [plot.slots, plot.slots_svg, plot.slots_text, plot.caption, plot.alt])
def test_no_trace_at_all_is_refused(picture):
    with pytest.raises(ValueError, match="traces is empty"):
        picture([])


def test_an_id_with_dollars_is_written_as_it_is():
    trace = hand_made("odd", 1, [("$x^2$", 0, 1, 3, 0)], [0, 0, 0])
    plot.png(plot.slots(trace))
    assert not drawn(plot.slots(trace))[0].texts[0].get_parse_math()


def test_large_numbers_are_not_cut_off():
    busy = hand_made("a scheduler with a long name", 1, [("A", 0, 1, 3, 0)], [12_345, 0, 0])
    busy.num_slots = 200
    test_no_word_is_cut_off(busy, 5.0)
    with pytest.raises(ValueError, match=r"width=4\.5"):
        plot.slots(busy, width=4.5)


# Words


def test_caption_has_the_numbers_of_the_trace():
    assert plot.caption(STATIC) == (
        "For 3 requests, static takes 6 steps with 2 dead slot-steps and 1.33 of 2 slots live on average."
    )
    assert plot.caption([STATIC, ITERATION]) == (
        "For the same 3 requests, static takes 6 steps with 2 dead slot-steps and 1.33 of 2 slots live on\naverage;\n"
        "iteration takes 4 steps with 0 dead slot-steps and 2.00 of 2 slots live on average."
    )
    assert plot.caption({"a": STATIC, "b": LONG}).startswith("a takes 6 steps"), "not the same requests"


def test_alt_text_tells_who_was_where():
    words = plot.alt(STATIC)
    assert "Slot 0: A prefill 1, A decode 2, A dead 3 to 4, C prefill 5, C decode 6; slot 1: B prefill 1" in words
    assert words.endswith("At most 1 waiting, nobody after step 4.")
    assert len(plot.alt(LONG)) < 400


# SVG


def label_of(svg: str) -> str:
    return ElementTree.fromstring(svg).attrib["aria-label"]


def test_svg_says_its_step():
    assert label_of(plot.slots_svg(STATIC, 1)) == "Step 1: slot 0 prefills A, slot 1 prefills B; 1 waiting"
    assert label_of(plot.slots_svg(STATIC, 3)) == "Step 3: slot 0 is dead (A), slot 1 decodes B; 1 waiting"
    assert label_of(plot.slots_svg(STATIC)) == "Step 6: slot 0 decodes C, slot 1 is free; 0 waiting"
    assert label_of(plot.slots_svg([STATIC, ITERATION], 5)) == (
        "Step 5: static, slot 0 prefills C, slot 1 is free; 0 waiting. iteration, nothing runs, the last step was 4"
    )


def test_svg_draws_what_has_been_and_no_more():
    def words(step):
        return [text.text for text in ElementTree.fromstring(plot.slots_svg(STATIC, step)).iter() if "text" in text.tag]

    assert "C" not in words(4) and "C" in words(6) and "A dead" in words(4) and "C prefill" in words(5)
    for step, seen in ((2, 0), (3, 1), (6, 1)):
        bars_and_swatch = plot.slots_svg(STATIC, step).count(f'fill="{colours.DEAD_GREY}"')
        assert bars_and_swatch == 1 + 2 * seen, "the swatch, and for each dead bar itself and the ground of its id"


@pytest.mark.parametrize("traces", EVERY)
def test_svg_stays_small_and_narrow(traces):
    svg = plot.slots_svg(traces)
    root = ElementTree.fromstring(svg)
    assert float(root.attrib["width"]) <= 900.5 and len(svg) < 32_000
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in box.attrib:
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= float(root.attrib["width"])


def test_svg_cells_serve_a_projector():
    root = ElementTree.fromstring(plot.slots_svg(FOUR, cell=30, row=44))
    assert float(root.attrib["width"]) > 30 * len(FOUR.steps) and int(root.attrib["font-size"]) >= 18


@pytest.mark.parametrize("step", [0, 7, -1])
def test_svg_refuses_a_step_that_is_not_there(step):
    with pytest.raises(ValueError, match="upto=.*1 to 6"):
        plot.slots_svg(STATIC, step)


# Text


def test_text_picture_of_the_golden_trace():
    assert plot.slots_text([STATIC, ITERATION]) == (
        "static: 6 steps, 2 dead slot-steps, 1.33 of 2 slots live on average\n"
        "step     123456\n"
        "slot 0   aA░░cC\n"
        "slot 1   bBBB··\n"
        "waiting  1111··\n"
        "\n"
        "iteration: 4 steps, 0 dead slot-steps, 2.00 of 2 slots live on average\n"
        "step     1234\n"
        "slot 0   aAcC\n"
        "slot 1   bBBB\n"
        "waiting  11··\n"
        "\n"
        "a prefill, A decode, ░ dead (finished, its slot still held), · empty\n"
    )


@pytest.mark.parametrize("width", [40, 80, 100])
def test_text_picture_keeps_its_width_and_its_alphabet(width):
    text = plot.slots_text(COMPARED, width, ascii=True)
    assert text.isascii() and max(map(len, text.splitlines())) <= width + 40, "only the line of numbers may be longer"
    rows = [line for line in text.splitlines() if re.match(r"slot \d|waiting|step ", line)]
    assert max(map(len, rows)) <= width
    each = int(re.search(r"a character is (\d+) steps", " ".join(text.split())).group(1))
    assert each == -(-len(LONG.steps) // (width - 9))


# Colours


def lab(rgb: list[float]) -> tuple[float, float, float]:
    """CIE Lab (D65) of linear RGB."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = [sum(row) for row in matrix]
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (sum(m * c for m, c in zip(row, rgb)) / w for row, w in zip(matrix, white))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


# Machado, Oliveira and Fernandes 2009, severity 1.0
SEEN = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def closest(palette: tuple[str, ...], eye: str) -> float:
    """Lab distance of the two colours that look most alike to this eye."""
    seen = []
    for colour in palette:
        shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        seen.append(lab([min(max(sum(m * c for m, c in zip(row, linear)), 0.0), 1.0) for row in SEEN[eye]]))
    return min(sum((a - b) ** 2 for a, b in zip(one, two)) ** 0.5 for one, two in itertools.combinations(seen, 2))


TAB10 = tuple(to_hex(f"C{index}").upper() for index in range(10))  # matplotlib's default


@pytest.mark.parametrize("eye", SEEN)
def test_palette_keeps_its_distance_for_every_eye(eye):
    assert closest(colours.PALETTE, eye) >= 15


def test_the_distance_would_find_a_bad_palette():
    assert min(closest(TAB10, eye) for eye in SEEN) < 15


def test_ink_reads_on_every_ground():
    grounds = [*colours.PALETTE, *map(tint, colours.PALETTE), colours.DEAD_GREY, colours.EMPTY]
    assert min(contrast(ink(ground), ground) for ground in grounds) >= 4.5
    assert contrast(colours.QUIET, colours.EMPTY) >= 4.5
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)


def test_colour_follows_the_order_of_submission():
    assert [plot.colour_of(request_id, LONG) for request_id in ("R0", "R8", "R9")] == [
        colours.PALETTE[0],
        colours.PALETTE[8],
        colours.PALETTE[0],
    ]


# Same bytes, quiet imports: in processes of their own

PROGRAM = """
import hashlib, sys, tempfile, pathlib
sys.path.insert(0, {here!r})
from test_plot import COMPARED, STATIC
from minibatch import plot
path = pathlib.Path(tempfile.mkdtemp()) / "picture.svg"
plot.save(plot.slots(COMPARED), path)
parts = plot.png(plot.slots(COMPARED)), path.read_bytes(), plot.slots_svg(COMPARED).encode()
print([hashlib.sha256(part).hexdigest() for part in parts], plot.slots_text(STATIC, ascii=True))
"""


def python(program: str, **environment: str) -> str:
    settings = {"env": os.environ | environment, "capture_output": True, "text": True, "timeout": 120, "check": False}
    done = subprocess.run([sys.executable, "-c", program], **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes_draw_the_same_bytes():
    program = PROGRAM.format(here=os.path.dirname(__file__))
    assert python(program, PYTHONHASHSEED="1") == python(program, PYTHONHASHSEED="2")


def test_importing_plot_stays_light():
    heavy = ("torch", "matplotlib.pyplot", "ipywidgets", "IPython")
    assert python(f"import sys, minibatch.plot; print([m for m in {heavy} if m in sys.modules])").strip() == "[]"


def test_a_notebooks_own_style_changes_nothing():
    import matplotlib

    plain = plot.png(plot.slots(STATIC))
    with matplotlib.rc_context({"font.size": 20, "text.color": "red", "axes.grid": True, "savefig.bbox": "tight"}):
        assert plot.png(plot.slots(STATIC)) == plain


def test_png_is_small_and_has_few_colours(tmp_path):
    from PIL import Image

    plot.save(plot.slots(COMPARED), tmp_path / "a.png", dpi=100)
    assert (tmp_path / "a.png").stat().st_size < 60_000
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "P" and len(image.getcolors()) <= 64 and "Software" not in image.info
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        plot.save(plot.slots(STATIC), tmp_path / "a.jpg")


# Notebooks


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would get to display, as (data, metadata)."""
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    monkeypatch.setattr(shell, "display_pub", CapturingDisplayPublisher())
    yield shell.display_pub.outputs
    InteractiveShell.clear_instance()


def test_show_gives_one_picture_with_its_alt_text(shown):
    plot.show(plot.slots(STATIC), "Two slots.")
    (output,) = shown
    assert base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")
    assert output["data"]["text/plain"] == "Two slots." and output["metadata"]["image/png"]["alt"] == "Two slots."


def test_show_in_a_terminal_prints_the_words(capsys):
    plot.show(plot.slots(STATIC), "Two slots.")
    assert capsys.readouterr().out == "Two slots.\n"


def test_player_fires_one_callback_for_each_live_view():
    import matplotlib.pyplot

    players = [plot.Player([STATIC, ITERATION], start=2) for _ in range(5)]
    drawings = Counter()
    for index, player in enumerate(players):
        at = player.drawing.at
        player.drawing.at = lambda step, index=index, at=at: drawings.update([(index, step)]) or at(step)
        for _ in range(5):
            player._repr_mimebundle_()
    players[3].slider.value = 5
    assert drawings == {(3, 5): 1}
    assert players[3].play.value == 5 and label_of(players[3].picture.value).startswith("Step 5: ")
    assert label_of(players[0].picture.value).startswith("Step 2: ")
    players[0].play.value = 4
    assert drawings == {(3, 5): 1, (0, 4): 1} and players[0].slider.value == 4
    assert matplotlib.pyplot.get_fignums() == []


def test_player_carries_a_still_picture():
    player = plot.Player(STATIC)
    data, metadata = player._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == player.view.model_id
    assert base64.b64decode(data["image/png"]) == plot.png(plot.slots(STATIC))
    assert data["text/plain"] == metadata["image/png"]["alt"] == plot.alt(STATIC)
    with pytest.raises(ValueError, match="upto=9"):
        plot.Player(STATIC, start=9)


WITHOUT_WIDGETS = """
import sys
sys.path.insert(0, {here!r})
sys.modules["ipywidgets"] = None
from test_plot import STATIC
from minibatch import plot
for _ in range(3):
    data, _ = plot.Player(STATIC)._repr_mimebundle_()
    assert set(data) == {{"image/png", "text/plain"}}
"""


def test_without_ipywidgets_the_still_picture_is_shown_and_said_once():
    said = python(WITHOUT_WIDGETS.format(here=os.path.dirname(__file__)))
    assert said.count("ipywidgets is not installed") == 1 and said.count("\n") == 1


# Source


@pytest.mark.parametrize(
    ("obj", "file", "starts"),
    [
        (Trace, "minibatch/trace.py", "@dataclass(slots=True)\nclass Trace:"),
        (Trace.arrival_steps, "minibatch/trace.py", "def arrival_steps(self)"),
        (Trace.finished, "minibatch/trace.py", "@property\ndef finished(self)"),
        (plot.slots, "minibatch/plot/figure.py", "def slots("),
        (colours, "minibatch/plot/colours.py", '"""Colours: one per request'),
    ],
)
def test_source_says_where_it_stands(obj, file, starts):
    header, code, first = source_of(obj)
    assert header.startswith(f"{file}, lines {first} to ") and code.startswith(starts)
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), file)
    with open(path, encoding="utf-8") as lines:
        there = lines.read().splitlines()[first - 1 : first - 1 + len(code.splitlines())]
    assert [line.strip() for line in there] == [line.strip() for line in code.splitlines()]


def test_show_source_in_a_notebook_and_in_a_terminal(shown, capsys):
    plot.show_source(Work)
    (output,) = shown
    assert output["data"]["text/plain"].startswith("# minibatch/trace.py, lines ")
    assert "class Work(NamedTuple):" in output["data"]["text/plain"]
    assert "class" in output["data"]["text/html"] and "minibatch/trace.py" in output["data"]["text/html"]


def test_show_source_in_a_terminal_prints_it(capsys):
    plot.show_source(Work)
    header, code, _ = source_of(Work)
    assert capsys.readouterr().out == f"# {header}\n{code}"


@pytest.fixture
def cpp(tmp_path):
    path = tmp_path / "kernel.cuh"
    path.write_text("// a kernel\n  int row = 0;\n  for (;;) {\n    ++row;\n  }\n}\n")
    return path


@pytest.mark.parametrize(
    "begin, end, header, code",
    [
        ("", "", "lines 1 to 6", "// a kernel\n  int row = 0;\n  for (;;) {\n    ++row;\n  }\n}\n"),
        ("for", "}", "lines 3 to 5", "for (;;) {\n  ++row;\n}\n"),
        ("row", "row", "lines 2 to 4", "int row = 0;\nfor (;;) {\n  ++row;\n"),
        ("++row", "", "lines 4 to 6", "    ++row;\n  }\n}\n"),
    ],
)
def test_a_part_of_a_file(cpp, begin, end, header, code):
    assert part_of(cpp, begin, end) == (f"kernel.cuh, {header}", code, int(header.split()[1]))


def test_a_part_of_a_file_in_a_notebook(cpp, shown):
    plot.show_source(cpp, "for", "}")
    (output,) = shown
    assert output["data"]["text/plain"] == "// kernel.cuh, lines 3 to 5\nfor (;;) {\n  ++row;\n}"
    assert 'color: #007020; font-weight: bold">for' in output["data"]["text/html"]


@pytest.mark.parametrize("begin, end, message", [("while", "", "begin='while'"), ("row", "while", "end='while'")])
def test_a_part_that_is_not_there_is_refused(cpp, begin, end, message):
    with pytest.raises(ValueError, match=message):
        plot.show_source(cpp, begin, end)


@pytest.mark.parametrize("obj", [STATIC, 3, len])
def test_show_source_refuses_what_has_none(obj):
    with pytest.raises(TypeError, match="obj="):
        plot.show_source(obj)
