"""`python -m minibatch figures`: it writes what --check finds again, and says what drifted."""

import argparse
import json
from importlib import import_module
from importlib.metadata import version

import pytest
from matplotlib.figure import Figure

from minibatch import headlines
from minibatch.commands import figures
from minibatch.headlines import store
from minibatch.headlines.base import Finding, Headline


def ask(folder, *words: str) -> int:
    """Run the command in this process."""
    parser = argparse.ArgumentParser()
    figures.add_arguments(parser)
    return figures.run(parser.parse_args(["--folder", str(folder), "--jobs", "1", *words]))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """One headline whose number and title can be changed, in an empty repository."""
    now = {"ours": 0.1 + 0.2, "title": "so"}

    def compute() -> Headline:
        return Headline("one", "?", ({"x": now["ours"]},), (Finding("what", now["ours"]),), "Says it.")

    def draw(headline: Headline) -> Figure:
        figure = Figure(figsize=(1, 1))
        figure.text(0.5, 0.5, now["title"])
        return figure

    monkeypatch.setattr(figures, "HEADLINES", {"one": (compute, draw)})
    monkeypatch.setattr(figures, "DRAWN", {"bare": lambda: draw(None)})
    monkeypatch.setattr(figures, "claims_page", lambda found: f"{sorted(found)} {found['one'].findings[0].ours:.3f}\n")
    monkeypatch.setattr(store, "PATH", tmp_path / "headlines.json")
    return tmp_path, now


def test_what_was_written_is_found_again(made, capsys):
    folder, _ = made
    assert ask(folder) == 0
    written = capsys.readouterr().out.split()
    assert {line.rsplit("/", 1)[-1] for line in written} == {"one.png", "bare.png", "headlines.json", "claims.md"}
    assert ask(folder, "--check") == 0
    assert "nothing drifted" in capsys.readouterr().out


def test_a_number_that_drifted_is_named(made, capsys):
    folder, now = made
    ask(folder)
    now["ours"] = 0.31
    assert ask(folder, "--check") == 1
    out = capsys.readouterr().out
    assert "one.png: rows[0].x: 0.30000000000000004 committed, 0.31 now" in out
    assert "claims.md: no longer says" in out and "bare" not in out.split("nothing")[0].split("claims.md")[-1]


def test_the_last_bits_of_a_number_may_differ(made):
    folder, now = made
    ask(folder)
    now["ours"] = 0.3
    assert ask(folder, "--check") == 0


@pytest.mark.parametrize("drawn_with", ["matplotlib 2.0", f"matplotlib {version('matplotlib')}"])
def test_a_picture_that_drifted_alone_is_said_with_what_drew_it(made, capsys, drawn_with):
    folder, now = made
    ask(folder)
    store.PATH.write_text(json.dumps(store.read_plain() | {"drawn_with": drawn_with}))
    now["title"] = "else"
    assert ask(folder, "--check", "one", "bare") == 1
    out = capsys.readouterr().out
    assert out.count("the picture differs, its numbers do not") == 2
    assert ("committed: matplotlib 2.0" in out) == (drawn_with == "matplotlib 2.0")


def test_a_picture_that_is_not_there_has_drifted_and_a_check_writes_nothing(made, capsys):
    folder, _ = made
    ask(folder)
    (folder / "one.png").unlink()
    assert ask(folder, "--check", "one") == 1
    assert "one.png: not there" in capsys.readouterr().out
    assert not (folder / "one.png").exists()


def test_some_names_leave_the_others_numbers_as_they_were(made):
    folder, _ = made
    store.write({"old": Headline("old", "?", (), (), "Kept.")})
    ask(folder, "one")
    assert sorted(store.read()) == ["old", "one"] and not (folder / "bare.png").exists()


def test_what_is_asked_the_wrong_way_is_refused(made):
    folder, _ = made
    with pytest.raises(ValueError, match="figure='ones'.*Did you mean 'one'"):
        ask(folder, "ones")
    with pytest.raises(ValueError, match="no such folder"):
        ask(folder / "nowhere", "one")
    with pytest.raises(ValueError, match="--jobs 0: must be at least 1"):
        ask(folder, "one", "--jobs", "0")


def test_many_differences_are_counted_not_all_printed(made, capsys):
    folder, _ = made
    ask(folder, "one")
    whole = store.read_plain()
    whole["headlines"]["one"]["rows"] = [{f"c{i}": i for i in range(9)}]
    store.PATH.write_text(json.dumps(whole))
    assert ask(folder, "--check", "one") == 1
    assert "one.png: and 5 more" in capsys.readouterr().out


@pytest.mark.parametrize("name", headlines._MODULES)
def test_every_headline_can_be_computed_drawn_and_said_in_words(name):
    module, picture = headlines._MODULES[name]
    assert callable(getattr(import_module(f"minibatch.headlines.{module}"), name))
    drawing = import_module(f"minibatch.plot.headline_{picture}")
    assert callable(drawing.draw) and callable(drawing.alt)
