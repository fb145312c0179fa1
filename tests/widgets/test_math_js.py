"""The browser's numbers: math.js on the cases of the reference file, with their tolerances."""

import json
import math
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("anywidget")

from gspo_edu.moe.routes import drift
from gspo_edu.widgets.length_spread import sequence_ratio_spread

NODE = shutil.which("node")
HERE = Path(__file__).parent
CASES = json.loads((HERE.parent / "data" / "vectors.json").read_text())
MATH_JS = Path(str(files("gspo_edu.widgets") / "static" / "math.js"))
SHOWN = {"ppo", "grpo", "dr_grpo", "dapo", "cispo", "gspo", "gmpo", "sapo"}
SPREADS = [
    (sigma, length, low, high)
    for sigma in (0.001, 0.02, 0.2, 1.0)
    for length in (1, 30, 1000, 10_000)
    for low, high in ((3e-4, 4e-4), (0.2, 0.27))
]
# Router logits [moment][token][layer][expert]
LOGITS = np.random.default_rng(0).normal(size=(3, 5, 2, 8)).tolist()

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def in_browser(case):
    """Whether math.js has what the case needs: no widget shows the KL or correction terms."""
    config = case["inputs"]["config"]
    if config["kind"] == "loss":
        plain = not config.get("beta") and "correction" not in config
        return config["loss"] in SHOWN and plain
    return config["kind"] in {"advantages", "ratio", "router"}


OURS = [case for case in CASES if in_browser(case)]


@pytest.fixture(scope="module")
def browser_side(tmp_path_factory):
    folder = tmp_path_factory.mktemp("math_js")
    (folder / "cases.json").write_text(json.dumps(OURS))
    (folder / "spreads.json").write_text(json.dumps({"spreads": SPREADS, "logits": LOGITS}))
    command = [NODE, HERE / "reference.mjs", MATH_JS, folder / "cases.json"]
    done = subprocess.run(
        [*command, folder / "spreads.json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_close(got, expected, tol):
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, tol)
    else:
        assert math.isclose(got, expected, rel_tol=tol, abs_tol=tol), (got, expected)


def answer_mean(flags, mask):
    """Mean over answers with tokens of the share of flagged tokens."""
    rows = [(row, inside) for row, inside in zip(flags, mask, strict=True) if sum(inside)]
    return sum(sum(row) / sum(inside) for row, inside in rows) / max(len(rows), 1)


def token_mean(flags, mask):
    return sum(map(sum, flags)) / max(sum(map(sum, mask)), 1)


def where_better(flags, inputs):
    """``flags`` of the answers with a positive advantage, 0 elsewhere."""
    advantages = np.array(inputs["advantages"]).reshape(len(flags), -1)
    return (np.array(flags) * (advantages > 0)).tolist()


@pytest.mark.parametrize("case", OURS, ids=[case["id"] for case in OURS])
def test_reference_case(case, browser_side):
    got = browser_side["results"][case["id"]]
    expect, tol = case["expect"], case["tol"]
    if case["inputs"]["config"]["kind"] == "loss":
        mask = case["inputs"]["mask"]
        got["grad_logp"] = got["gradient"]
        got["row_grad_sum"] = [sum(row) for row in got["gradient"]]
        for flag in ("clip", "outside"):
            flags = got["clipped" if flag == "clip" else flag]
            got[f"{flag}_fraction_seq"] = answer_mean(flags, mask)
            got[f"{flag}_fraction_token_weighted"] = token_mean(flags, mask)
        got["cap_fraction"] = token_mean(got["outside"], mask)
        got["cap_fraction_trl"] = token_mean(where_better(got["outside"], case["inputs"]), mask)
        got["geo_mean_ratio"] = got.get("ratio")
        for row, inside in zip(got["gradient"], mask, strict=True):
            assert all(value == 0 for value, on in zip(row, inside, strict=True) if not on)
        for row, token in case.get("grad_skip", []):
            got["grad_logp"][row][token] = expect["grad_logp"][row][token]
    if "raises" in expect:
        assert "one answer" in got["raises"]
        return
    for name in set(expect) - {"gates_dense", "jacobian"}:  # the router's gradient is not shown
        assert_close(got[name], expect[name], tol)


def test_the_selection_is_what_the_widgets_need():
    kinds = [case["inputs"]["config"].get("loss", "other") for case in OURS]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "ppo": 19,
        "grpo": 11,
        "gspo": 20,
        "dr_grpo": 6,
        "dapo": 11,
        "cispo": 10,
        "gmpo": 8,
        "sapo": 10,
        "other": 26,
    }


def test_routes_equal_python(browser_side):
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    chosen = logits.topk(3).indices
    assert browser_side["routes"]["chosen"] == chosen.tolist()
    wanted = drift(chosen[1:], chosen[:-1]).item()
    assert_close(browser_side["routes"]["drift"], wanted, 1e-7)
    assert wanted > 0


def test_spread_equals_python(browser_side):
    for setting, got in zip(SPREADS, browser_side["spreads"], strict=True):
        wanted = sequence_ratio_spread(*setting)
        for name in ("mean", "std", "below", "above", "outside"):
            assert_close(got[name], getattr(wanted, name), 1e-12)
        assert_close(got["product"], list(wanted.product_90), 1e-9)
