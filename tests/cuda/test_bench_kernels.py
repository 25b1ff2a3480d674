"""`bench kernels`: the traffic in its table is the trace's, exact on every machine; times are only there."""

import json

import pytest
from compiled_kernels import needs_compiler

from minibatch.__main__ import main
from minibatch.bench import kernels


@needs_compiler
def test_traffic_falls_from_rung_to_rung(capsys):
    assert main(["bench", "kernels", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["rung"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["times_ideal"] for row in rows] == [8, 4, 4, 4, 1, 1]
    assert rows[4]["kv_bytes"] == 2 * (100 + 37 + 64 + 129) * 2 * 64 * 4
    assert all(row["ms_emulated"] > 0 for row in rows)


def test_the_table_points_to_the_gpu():
    row = kernels.KernelRow(6, 1.25, 664, 337_920, 1.0)
    lines = kernels.format_kernel_table([row], 0.5).splitlines()
    assert lines[2].split() == ["6", "1.25", "ms", "664", "337,920", "1.00"]
    assert lines[-1] == "Times on a GPU: python -m minibatch.cuda.gpu_check --out DIR"


@pytest.mark.parametrize("what", ["kernel", "gpu"])
def test_nothing_else_is_benched(what, capsys):
    with pytest.raises(SystemExit):
        main(["bench", what])
    assert "kernels" in capsys.readouterr().err
