"""Traces that others recorded, the user's own in the same form, other loads, and requests made of them lazily."""

import gzip
import hashlib
import json
from importlib.resources import files
from itertools import count, islice, pairwise
from statistics import fmean

import pytest

from minibatch import Engine
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import (
    Planned,
    alpaca_like,
    azure_trace,
    bare_requests,
    burst,
    gamma,
    mooncake_requests,
    mooncake_trace,
    read_azure,
    read_mooncake,
    rescale,
    synthetic,
)

MOONCAKE = "mooncake_conversation_first3000.jsonl"
DATA = files("minibatch").joinpath("data")

# ---- Mooncake ----


def test_the_mooncake_slice_is_whole():
    planned = mooncake_trace()
    assert len(planned) == 3000
    assert planned[0] == Planned(0.0, 6758, 500, tuple(range(14)))
    assert planned[-1].arrival == 987.0 and len({one.arrival for one in planned}) == 330, "groups every 3 s"
    assert sum(one.prompt_tokens for one in planned) == 40_550_180
    assert sum(one.output_tokens for one in planned) == 1_048_832
    ids = [block for one in planned for block in one.hash_ids]
    assert len(ids) == 80_619 and len(set(ids)) == 55_287
    assert round(1 - len(set(ids)) / len(ids), 3) == 0.314, "31 % of the blocks were seen before"


def test_a_mooncake_id_stands_for_all_that_comes_before_it_too():
    above = {}
    for one in mooncake_trace():
        for parent, block in pairwise((None, *one.hash_ids)):
            assert above.setdefault(block, parent) == parent


def test_the_notice_names_every_file_and_the_bytes_are_those_it_says():
    notice = DATA.joinpath("NOTICE.md").read_text(encoding="utf-8")
    packed = DATA.joinpath(MOONCAKE + ".gz").read_bytes()
    digest = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    assert digest == "a84c73ade67ccecd1972e6d4d048178ae336380efcaa59bb7912161c8fc30ba2"
    assert packed[4:8] == bytes(4)  # no time stamp, so that packing them again gives the same file
    assert f"{digest}  {MOONCAKE}" in notice and "Apache License 2.0" in notice
    for file in DATA.iterdir():
        if file.name.endswith(".gz"):
            unpacked = hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest()
            assert f"{unpacked}  {file.name.removesuffix('.gz')}" in notice, file.name


# ---- one's own trace ----


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_trace_of_ones_own_is_read_like_azures(tmp_path, pack, end):
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2025-01-01 23:59:59.5,10,20", "2025-01-02 00:00:01+00:00,1,2"]
    path = tmp_path / "mine.csv"
    path.write_bytes(pack(end.join(rows).encode()))
    assert read_azure(path) == read_azure(str(path)) == [Planned(0.0, 10, 20), Planned(1.5, 1, 2)]
    path.write_bytes(pack(rows[0].encode()))
    assert read_azure(path) == []


def test_what_is_no_text_is_refused_with_file_and_line(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00,1,2\n\xff\xfe\x00\n")
    with pytest.raises(ValueError, match=r"^mine\.csv, line 3: .* is not a time and two numbers of tokens"):
        read_azure(path)
    with pytest.raises(FileNotFoundError):
        read_azure(tmp_path / "other.csv")


def row(timestamp=0, input_length=513, output_length=5, hash_ids=(0, 1), **more):
    fields = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length}
    return json.dumps({**fields, "hash_ids": hash_ids, **more})


def test_a_trace_of_ones_own_is_read_like_mooncakes(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join([row(1500), row(1750.5, 512, 1, [7], model="some other field")]))
    assert read_mooncake(path) == [Planned(0.0, 513, 5, (0, 1)), Planned(0.2505, 512, 1, (7,))]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "[]",
        row()[:-1],
        row(timestamp="soon"),
        row(timestamp=-1),
        row(input_length=0, hash_ids=[]),
        row(input_length=513.5),
        row(output_length=0),
        row(output_length=True),
        row(hash_ids=[1]),
        row(hash_ids=[1, 2, 3]),
        row(hash_ids=[1, "2"]),
        row(hash_ids=None),
        row(input_length=None),
    ],
)
def test_a_malformed_mooncake_row_is_refused_with_file_and_line(tmp_path, bad):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join([row(), bad, row()]))
    with pytest.raises(ValueError, match=r"^trace\.jsonl, line 2:"):
        read_mooncake(path)


# ---- another load, other lengths ----


@pytest.mark.parametrize("rate", [0.5, 5.53, 40])
def test_another_rate_keeps_every_gap_in_proportion(rate):
    planned = azure_trace("code")[:500]
    faster = rescale(planned, rate)
    assert (len(planned) - 1) / faster[-1].arrival == pytest.approx(rate)
    factor = faster[-1].arrival / planned[-1].arrival
    assert [one.arrival for one in faster] == pytest.approx([one.arrival * factor for one in planned])
    assert [one[1:] for one in faster] == [one[1:] for one in planned]


def test_the_rate_is_that_between_first_and_last_and_the_hash_ids_stay():
    late = [Planned(10.0, 1, 1, (5,)), Planned(11.0, 1, 1), Planned(14.0, 1, 1)]
    assert rescale(late, 1.0) == [Planned(5.0, 1, 1, (5,)), Planned(5.5, 1, 1), Planned(7.0, 1, 1)]


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "2"])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="rate="):
        rescale(synthetic(5, arrivals=gamma(1.0, 1.0)), rate)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_what_comes_at_once_has_no_rate_to_change(n):
    with pytest.raises(ValueError, match=f"rate=2.0: cannot be reached: the {n} requests all arrive at once"):
        rescale(synthetic(n, arrivals=burst()), 2.0)


def test_alpaca_like_lengths_have_the_papers_means():
    planned = alpaca_like(20_000, seed=1)
    assert len(planned) == 20_000 and planned[:50] == alpaca_like(50, seed=1)
    assert fmean(one.prompt_tokens for one in planned) == pytest.approx(19.31, rel=0.02)
    assert fmean(one.output_tokens for one in planned) == pytest.approx(58.45, rel=0.02)
    assert max(one.prompt_tokens + one.output_tokens for one in planned) <= 2048


# ---- requests, one at a time ----


def forever(**options):
    return (Planned(float(i), 1000 + i % 3, 5 + i % 2, **options) for i in count())


def test_bare_requests_are_made_as_they_are_asked_for_and_share_their_prompts():
    requests = list(islice(bare_requests(forever()), 60))
    assert [one.request_id for one in requests[:2]] == ["R1", "R2"] and requests[-1].arrival == 59.0
    assert [len(one.prompt) for one in requests[:4]] == [1000, 1001, 1002, 1000]
    assert len({id(one.prompt) for one in requests}) == 3 and len({id(one.sampling) for one in requests}) == 2
    assert [one.sampling.max_new_tokens for one in requests[:3]] == [5, 6, 5]


def test_very_long_bare_prompts_are_not_kept():
    first, again = bare_requests([Planned(0.0, 5000, 1), Planned(0.0, 5000, 1)])
    assert first.prompt == again.prompt and first.prompt is not again.prompt


@pytest.mark.parametrize("requests", [bare_requests, mooncake_requests])
def test_out_of_order_is_refused_when_it_comes_to_it(requests):
    made = requests([Planned(1.0, 1, 1, (0,)), Planned(0.5, 1, 1, (0,))])
    assert next(made).arrival == 1.0
    with pytest.raises(ValueError, match="arrival=0.5: request 2 comes before the one ahead of it"):
        next(made)


def test_prompts_begin_alike_exactly_as_far_as_their_hash_ids():
    planned = [Planned(0.0, 1030, 1, (4, 5, 6)), Planned(0.0, 1025, 1, (4, 5, 9)), Planned(0.0, 512, 1, (7,))]
    one, other, third = (request.prompt for request in mooncake_requests(planned))
    assert [len(one), len(other), len(third)] == [1030, 1025, 512]
    assert one[:1024] == other[:1024] and one[1024] != other[1024] and one[0] != third[0]
    assert one[511] != one[512] != one[1024]


def test_a_request_without_hash_ids_is_refused():
    with pytest.raises(ValueError, match=r"hash_ids=\(\): request 1 needs one a block"):
        next(mooncake_requests([Planned(0.0, 5, 1)]))


@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_an_engine_finds_what_the_trace_says_is_alike(cache):
    planned = [one for one in mooncake_trace()[:40] if one.prompt_tokens < 9000][:12]
    memory = PagedMemory(12 * 20 * 8, 64, prefix_cache=cache, events=False)
    executor = ScriptedExecutor(vocab_size=1 << 31)
    trace = Engine(IterationScheduler(1, memory), executor).run(
        mooncake_requests(one._replace(output_tokens=1) for one in planned)
    )
    seen, shared = set(), []
    for one in planned:
        alike = next((i for i, block in enumerate(one.hash_ids) if block not in seen), len(one.hash_ids))
        shared.append(alike * 512)
        seen.update(one.hash_ids)
    assert [record.cached_tokens for record in trace.requests.values()] == shared
    assert sum(shared) >= 512 * 11 and not any(step.memory_events for step in trace.steps)
