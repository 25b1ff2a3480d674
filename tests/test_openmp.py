"""How torch's threads wait: the user's word counts, then the load."""

import pytest

from minibatch import openmp


@pytest.mark.parametrize("load, expected", [(0.1, {"GOMP_SPINCOUNT": "50000"}), (3.0, {"OMP_WAIT_POLICY": "PASSIVE"})])
def test_threads_spin_on_a_quiet_machine_only(monkeypatch, load, expected):
    monkeypatch.setattr(openmp.os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    monkeypatch.setattr(openmp.os, "cpu_count", lambda: 2)
    environment = {"HOME": "x"}
    openmp.settle_waiting(environment)
    assert environment == {"HOME": "x"} | expected


@pytest.mark.parametrize("said", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_environment_says_stays(said):
    environment = dict(said)
    openmp.settle_waiting(environment)
    assert environment == said
