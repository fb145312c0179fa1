"""The benchmark of the widgets runs, and a page that is too slow or too large fails it."""

import json
import sys

import pytest
from script_modules import script_module

pytest.importorskip("anywidget")
pytestmark = pytest.mark.browser


@pytest.fixture
def benchmark(browser):  # skips where there is no browser
    return script_module("benchmarks/widgets.py")


ROWS = {
    "quick": {"median_ms": 5.0, "p95_ms": 9.0, "bytes": 50_000},
    "slow": {"median_ms": 17.0, "p95_ms": 30.0, "bytes": 50_000},
    "large": {"median_ms": 5.0, "p95_ms": 9.0, "bytes": 1_200_000},
}


@pytest.mark.parametrize(("name", "status"), [("quick", 0), ("slow", 1), ("large", 1)])
def test_limits(benchmark, monkeypatch, capsys, name, status):
    monkeypatch.setattr(benchmark, "measure", lambda frames: {name: ROWS[name]})
    monkeypatch.setattr(sys, "argv", ["widgets.py", "--json"])
    assert benchmark.main() == status
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {name: ROWS[name]}
