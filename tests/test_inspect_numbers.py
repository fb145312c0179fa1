"""The numbers of `gspo-edu inspect` are the package's own; each warning has its file."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from recorded_runs import arrays_of, recorded, write

from gspo_edu import cli, metrics
from gspo_edu.advantages import group_advantages
from gspo_edu.clip_range import range_for_outside_share
from gspo_edu.inspection import SHARES
from gspo_edu.inspection.columns import COLUMNS, RecordedRun
from gspo_edu.inspection.findings import LOOKS, findings
from gspo_edu.inspection.numbers import measure
from gspo_edu.inspection.reading import read_run
from gspo_edu.inspection.report import report
from gspo_edu.inspection.rules import default_rules, rules_at
from gspo_edu.inspection.sums import LAGS, chunks
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.records import ratio_metrics

Run = dict[str, list[Any]]


def read(run: Run, tmp_path: Path, **settings: Any) -> RecordedRun:
    return read_run(write(run, tmp_path / "run.parquet", **settings))


def tensors(run: Run) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    arrays = {name: torch.from_numpy(a) for name, a in arrays_of(run).items()}
    mask = arrays["mask"].bool()
    advantages = group_advantages(arrays["rewards"], arrays["group"])
    return arrays["logp"], arrays["logp_old"], mask, advantages


def test_numbers_are_those_of_the_whole_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(64, sigma=0.15)
    run["mask"] = [[int(t % 5 != 2) for t in range(len(row))] for row in run["logp"]]
    monkeypatch.setattr("gspo_edu.inspection.sums.CELLS", 500)  # many chunks
    found = measure(read(run, tmp_path), [(0.05, 0.1)])
    logp, old, mask, advantages = tensors(run)
    wanted = {name: v.item() for name, v in ratio_metrics(logp, old, mask).items()}
    token, sequence = found.numbers["token_log_ratio"], found.numbers["sequence_log_ratio"]
    assert token["std"] == pytest.approx(wanted["token_log_ratio_std"], rel=1e-5)
    assert token["kl_from_old"] == pytest.approx(wanted["kl_from_old"], rel=1e-5)
    assert sequence["mean"] == pytest.approx(wanted["sequence_log_ratio_mean"], rel=1e-4)
    assert sequence["std"] == pytest.approx(wanted["sequence_log_ratio_std"], rel=1e-4)
    assert sequence["effective_sample_fraction"] == pytest.approx(
        wanted["effective_sample_fraction"], rel=1e-5
    )
    np.testing.assert_allclose(found.log_s, sequence_log_ratio(logp, old, mask), rtol=1e-5)
    assert sum(rule["clip_fraction_seq"] > 0 for rule in found.numbers["clip"]) >= 8
    for rule, row in zip(
        [*default_rules({}), *rules_at([(0.05, 0.1)])], found.numbers["clip"], strict=True
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = OBJECTIVES[rule.objective](logp, old, advantages, mask, **rule.settings)
        compared = 0
        for name, value in result.metrics.items():
            if name in row:
                assert row[name] == pytest.approx(value.item(), abs=1e-6), (rule, name)
                compared += 1
        assert compared >= 4


def test_autocorrelation_and_expectations_are_the_definitions(tmp_path: Path) -> None:
    run = recorded(32, sigma=0.1)
    found = measure(read(run, tmp_path)).numbers
    logp, old, mask, _ = tensors(run)
    log_r = token_log_ratio(logp, old, mask).double().numpy()
    rows = [row[: int(n)] for row, n in zip(log_r, mask.sum(dim=1), strict=True)]
    values = np.concatenate(rows)
    for lag in LAGS[:-1]:
        pairs = [
            ((row[:-lag] - values.mean()) * (row[lag:] - values.mean()))
            for row in rows
            if len(row) > lag
        ]
        wanted = np.concatenate(pairs).mean() / values.var()
        assert found["token_log_ratio"]["autocorrelation"][str(lag)] == pytest.approx(
            wanted, abs=1e-5
        )
    lengths = np.array([len(row) for row in rows])
    about = found["sequence_log_ratio"]
    assert about["expected_mean"] == pytest.approx(-values.var() / 2, rel=1e-4)
    assert about["expected_std"] == pytest.approx(
        math.sqrt(np.mean(values.var() / lengths)), rel=1e-4
    )
    assert about["std_over_expected"] == pytest.approx(1, abs=0.35)


def test_ranges_come_from_the_quantiles_and_clip_what_was_wanted(tmp_path: Path) -> None:
    run = recorded(2000, sigma=0.05)
    for row in range(0, 2000, 4):  # a quarter is on-policy, and says nothing about a range
        run["logp"][row] = run["logp_old"][row]
    found = measure(read(run, tmp_path))
    assert found.numbers["sequence_log_ratio"]["on_policy_fraction"] == 0.25
    logp, old, mask, advantages = (t[found.off_policy] for t in tensors(run))
    log_s = sequence_log_ratio(logp, old, mask)
    for share, about in zip(SHARES, found.numbers["ranges"], strict=True):
        range_ = {"clip_low": about["clip_low"], "clip_high": about["clip_high"]}
        result = OBJECTIVES["gspo"](logp, old, advantages, mask, **range_)
        clipped = result.metrics["clip_fraction_seq"].item()
        assert about["clip_fraction_seq"] == pytest.approx(clipped, abs=1e-3)
        assert about["clip_fraction_seq"] == pytest.approx(share, abs=1.5e-3)
        below, above = (
            log_s < math.log1p(-about["clip_low"]),
            log_s > math.log1p(about["clip_high"]),
        )
        assert below.float().mean().item() == pytest.approx(above.float().mean().item(), abs=2e-3)
        assert share < about["outside_fraction_seq"] < 1


def test_without_advantages_half_of_those_outside_count_as_clipped(tmp_path: Path) -> None:
    run = recorded(400, sigma=0.05)
    del run["rewards"], run["group"]
    found = measure(read(run, tmp_path))
    for share, about in zip(SHARES, found.numbers["ranges"], strict=True):
        wanted = range_for_outside_share(torch.tensor(found.log_s), 2 * share)
        assert (about["clip_low"], about["clip_high"]) == wanted
        assert about["clip_fraction_seq"] is None


def test_good_answers_that_rise_are_clipped_more_than_half(tmp_path: Path) -> None:
    run = recorded(400, sigma=0.05)
    run["advantages"] = [
        1.0 if sum(new) > sum(old) else -1.0
        for new, old in zip(run["logp"], run["logp_old"], strict=True)
    ]
    about = measure(read(run, tmp_path), shares=[0.2]).numbers["ranges"][0]
    assert about["outside_fraction_seq"] == pytest.approx(0.2, abs=0.01), "all outside are clipped"
    assert about["clip_fraction_seq"] == pytest.approx(0.2, abs=0.01)


def test_a_reward_equal_to_its_groups_mean_has_no_sign(tmp_path: Path) -> None:
    run = recorded(12, 3)
    run["rewards"] = [0.1, 0.2, 0.3] * 4
    values = np.array(run["rewards"][:3])
    assert values[1] != values.mean(), "not in the last digit"
    about = measure(read(run, tmp_path)).numbers["advantages"]
    assert about == {
        "positive_fraction": pytest.approx(1 / 3),
        "zero_fraction": pytest.approx(1 / 3),
    }


def test_the_size_of_advantages_changes_nothing(tmp_path: Path) -> None:
    run = recorded(16)
    run["advantages"] = [(-1.0) ** row for row in range(16)]
    wanted = measure(read(run, tmp_path), [(0.001, 0.001)]).numbers["clip"]
    for size in (1e-60, 1e60):
        run["advantages"] = [(-1.0) ** row * size for row in range(16)]
        assert measure(read(run, tmp_path), [(0.001, 0.001)]).numbers["clip"] == wanted


def test_shares_and_ranges_that_cannot_be(tmp_path: Path) -> None:
    run = read(recorded(8), tmp_path)
    with pytest.raises(ValueError, match=r"share is 0.5; expected a number above 0 and below 0.5"):
        measure(run, shares=[0.5])
    with pytest.raises(ValueError, match="range is 1 0"):
        measure(run, [(1.0, 0.0)])


def test_chunks_hold_every_token_once_and_little_padding(tmp_path: Path) -> None:
    run = read(recorded(300, lengths=(1, 400)), tmp_path)
    seen, cells = [], 0
    for chunk in chunks(run):
        seen += chunk.rows.tolist()
        cells += chunk.mask.numel()
        for row, logp, inside in zip(chunk.rows, chunk.logp, chunk.mask, strict=True):
            start = run.starts[row]
            wanted = run.logp[start : start + run.lengths[row]]
            assert logp[inside].tolist() == wanted.tolist()
    assert sorted(seen) == list(range(300))
    assert cells < 2.1 * run.tokens


def test_without_rewards_only_outside_is_known(tmp_path: Path) -> None:
    run = recorded(32, sigma=0.3)
    del run["rewards"], run["group"]
    found = measure(read(run, tmp_path)).numbers
    for rule in found["clip"]:
        assert rule["clip_fraction_seq"] is None
    assert next(r for r in found["clip"] if r["objective"] == "grpo")["outside_fraction_seq"] > 0.1
    assert "add columns rewards and group" in " ".join(report(found, [], "run").split())


def test_the_runs_own_range_is_asked_too(tmp_path: Path) -> None:
    run = recorded(32, sigma=0.3)
    for level, objective in (("sequence", "gspo"), ("token", "grpo")):
        settings = {"level": level, "clip_low": 0.01, "clip_high": 0.02}
        rule = measure(read(run, tmp_path, **settings)).numbers["clip"][-1]
        assert rule["whose"] == "this run"
        assert rule["objective"] == objective
        assert rule["settings"] == {"clip_low": 0.01, "clip_high": 0.02}


def test_engine_mismatch(tmp_path: Path) -> None:
    run = recorded(64)
    dice = np.random.default_rng(5)
    run["logp_rollout"] = [
        (np.array(row) + 0.01 * dice.standard_normal(len(row))).tolist() for row in run["logp_old"]
    ]
    run["logp_rollout"][3][:2] = [math.nan, math.nan]
    engine = measure(read(run, tmp_path)).numbers["engine"]
    old, theirs = (
        np.concatenate([np.float32(row) for row in run[n]]) for n in ("logp_old", "logp_rollout")
    )
    difference = (old - theirs).astype(np.float64)
    assert engine["missing_tokens"] == 2
    assert engine["token_log_ratio_std"] == pytest.approx(np.nanstd(difference), rel=1e-4)
    assert engine["token_log_ratio_max"] == pytest.approx(np.nanmax(np.abs(difference)), rel=1e-5)
    log_s = [
        np.nanmean(np.float32(mine) - np.float32(other))
        for mine, other in zip(run["logp_old"], run["logp_rollout"], strict=True)
    ]
    assert engine["sequence_log_ratio_std"] == pytest.approx(np.std(log_s), rel=1e-3)
    own = default_rules({}, only="gspo")[0].settings
    s = np.exp(log_s)
    outside = ((s > 1 + own["clip_high"]) | (s < 1 - own["clip_low"])).mean()
    assert engine["outside_fraction_seq"] == pytest.approx(outside)


def test_lengths_rewards_and_groups(tmp_path: Path) -> None:
    run = recorded(32)
    run["rewards"][:8] = [0.5] * 8
    run["update"] = [1 + row // 16 for row in range(32)]
    found = measure(read(run, tmp_path)).numbers
    lengths = torch.tensor([len(row) for row in run["logp"]])
    groups, rewards = torch.tensor(run["group"]), torch.tensor(run["rewards"])
    assert found["updates"] == 2
    assert found["length"]["within_group_spread"] == pytest.approx(
        metrics.within_group_length_spread(lengths, groups).item()
    )
    assert found["rewards"]["signalless_group_fraction"] == pytest.approx(
        metrics.signalless_group_fraction(rewards, groups).item()
    )
    assert found["advantages"]["zero_fraction"] >= 8 / 32


# Each warning: a file that has what it warns of. The healthy run has none of them.


def healthy() -> Run:
    """Off-policy, with ratios of which some leave every range, and nothing else to say."""
    run = recorded(400, sigma=0.005, lengths=(200, 400))
    return run


def correlated() -> Run:
    """Each answer's tokens share a part of their log-ratio."""
    run = recorded(400, sigma=0.005, lengths=(200, 400))
    dice = np.random.default_rng(3)
    run["logp"] = [(np.array(row) + 0.002 * dice.standard_normal()).tolist() for row in run["logp"]]
    return run


def at_two_temperatures() -> Run:
    """Tokens drawn at temperature 0.7 and scored at 1."""
    dice = torch.Generator().manual_seed(0)
    run: Run = {"logp": [], "logp_old": [], "rewards": [], "group": []}
    for row in range(64):
        logits = 3 * torch.randn(60, 50, generator=dice)
        cold = (logits / 0.7).log_softmax(dim=1)
        tokens = torch.multinomial(cold.exp(), 1, generator=dice)
        run["logp_old"].append(cold.gather(1, tokens).squeeze(1).tolist())
        run["logp"].append(logits.log_softmax(dim=1).gather(1, tokens).squeeze(1).tolist())
        run["rewards"].append(float(row % 3))
        run["group"].append(row // 8)
    return run


def shifted() -> Run:
    """logp of the next token."""
    run = healthy()
    run["logp"] = [row[1:] + row[:1] for row in run["logp_old"]]
    return run


def rounded(kind: torch.dtype, name: str = "logp") -> Run:
    run = healthy()
    run[name] = [torch.tensor(row).to(kind).float().tolist() for row in run[name]]
    return run


def with_values(**columns: Any) -> Run:
    return {**healthy(), **columns}


def cut(run: Run, limit: int) -> Run:
    return {
        name: [row[:limit] for row in values] if name.startswith("logp") else values
        for name, values in run.items()
    }


def engine_off_by(sigma: float) -> Run:
    run, dice = healthy(), np.random.default_rng(9)
    run["logp_rollout"] = [
        (np.array(row) + sigma * dice.standard_normal(len(row))).tolist() for row in run["logp_old"]
    ]
    return run


def emptied() -> Run:
    run = healthy()
    run["logp"][7], run["logp_old"][7] = [], []
    return run


HAS: dict[str, list[Run]] = {
    "different_tokens": [shifted()],
    "another_temperature": [at_two_temperatures()],
    "all_ratios_are_one": [with_values(logp=healthy()["logp_old"])],
    "rounded_log_probs": [
        rounded(torch.bfloat16),
        rounded(torch.float16),
        rounded(torch.bfloat16, "logp_old"),
    ],
    "no_advantages": [with_values(rewards=[1.0] * 400), with_values(advantages=[0.0] * 400)],
    "dead_groups": [with_values(rewards=[1.0] * 120 + healthy()["rewards"][120:])],
    "cut_answers": [
        cut(healthy(), 370),
        with_values(finished=[row % 10 > 0 for row in range(400)]),
    ],
    "range_cannot_bind": [healthy()],  # GRPO's range, which every file is asked about
    "range_is_narrow": [recorded(400, sigma=0.2, lengths=(10, 20))],
    "tokens_move_together": [correlated()],
    "mean_outweighs_spread": [recorded(200, sigma=0.3, lengths=(300, 400))],
    "engine_differs": [engine_off_by(0.01)],
    "empty_answers": [emptied()],
}
HAS_NOT: dict[str, list[Run]] = {
    **{name: [healthy()] for name in HAS if name != "range_cannot_bind"},
    "range_cannot_bind": [recorded(400, sigma=0.5, lengths=(1, 4)), HAS["all_ratios_are_one"][0]],
    "cut_answers": [healthy(), with_values(finished=[row != 3 for row in range(400)])],
    "engine_differs": [healthy(), engine_off_by(0.001)],
    "another_temperature": [healthy(), shifted(), correlated()],
}


def names_of(run: Run, tmp_path: Path, **settings: Any) -> set[str]:
    return {f.name for f in findings(measure(read(run, tmp_path, **settings)).numbers)}


def test_every_warning_has_its_files() -> None:
    assert set(HAS) == set(HAS_NOT) == {look.__name__ for look in LOOKS}


@pytest.mark.parametrize("name", HAS)
def test_warning_where_it_is_due_and_only_there(name: str, tmp_path: Path) -> None:
    for run in HAS[name]:
        assert name in names_of(run, tmp_path)
    for run in HAS_NOT[name]:
        assert name not in names_of(run, tmp_path)


def test_a_healthy_run_is_told_only_of_the_token_range(tmp_path: Path) -> None:
    assert names_of(healthy(), tmp_path) == {"range_cannot_bind"}


def test_a_known_limit_counts_more_than_a_guess(tmp_path: Path) -> None:
    assert "cut_answers" in names_of(cut(healthy(), 370), tmp_path, max_length=370)
    assert "cut_answers" not in names_of(cut(healthy(), 370), tmp_path, max_length=500)


# The command


def test_the_report_holds_every_block_and_the_figure_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = engine_off_by(0.01)
    experts = [[[[0, 1]]] * len(row) for row in run["logp"]]
    run |= {"routes": experts, "routes_reference": [[[[1, 2]]] * len(r) for r in run["logp"]]}
    path = write(run, tmp_path / "run.parquet")
    assert cli.main(["inspect", str(path), "--range", "0.001", "0.002"]) == 0
    out = capsys.readouterr().out
    for words in (
        "run.parquet: 400 answers",
        "Warnings (2)",
        "-sigma²/2 = ",
        "sigma/sqrt(L) = ",
        "Autocorrelation",
        "GSPO              0.001 / 0.002",
        "A range for GSPO that would clip",
        "Engine against trainer",
        "drift per rollout",
        "50.00%",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100
    figure = tmp_path / "run-inspect.png"
    assert f"Figure: {figure}" in out
    with Image.open(figure) as picture:
        assert picture.size[0] > 1000


def test_json_is_one_object_with_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (healthy(), HAS["all_ratios_are_one"][0], emptied(), recorded(8, lengths=(1, 2))):
        path = write(run, tmp_path / "run.jsonl")
        assert cli.main(["inspect", str(path), "--json", "--share", "0.1"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["answers"] == len(run["logp"])
        assert [w["name"] for w in found["warnings"]] == [f.name for f in findings(found)]
    assert not list(tmp_path.glob("*.png"))
    assert cli.main(["inspect", str(path), "--json", "--figure", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").exists()


def shifted() -> Run:
    """Every log-ratio is -0.1 but for rounding, so that sigma is hardly above 0."""
    run = recorded(8)
    run["logp"] = [[value - 0.1 for value in row] for row in run["logp_old"]]
    return run


def far_off() -> Run:
    """Every ratio is e^3."""
    run = recorded(8)
    run["logp_old"] = [[value - 3 for value in row] for row in run["logp"]]
    return run


@pytest.mark.parametrize(
    "run",
    [emptied(), HAS["all_ratios_are_one"][0], recorded(2, 2, lengths=(1, 2)), far_off(), shifted()],
)
def test_odd_runs_get_a_report_and_a_figure(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(run, tmp_path / "run.npz")
    assert cli.main(["inspect", str(path)]) == 0
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--share", "0.7"],
        ["--share", "0"],
        ["--range", "1.5", "0.1"],
        ["--range", "-1", "0"],
        ["--range", "0", "inf"],
        ["--range", "0", "1e300"],
    ],
)
def test_usage_errors(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(recorded(8), tmp_path / "run.parquet")
    assert cli.main(["inspect", str(path), *words]) == 2
    assert "expected" in capsys.readouterr().err


def test_the_page_lists_the_columns_and_its_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[1] / "docs/inspect.md").read_text(encoding="utf-8")
    for name, column in COLUMNS.items():
        cells = (f"`{name}`", column.in_rows, column.in_arrays, column.required, column.meaning)
        assert f"| {' | '.join(cells)} |" in page
    code = page.split("## Record a training")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code.replace("rollouts=5", "rollouts=1, prompts=4, group_size=4, eval_prompts=2"))
    assert cli.main(["inspect", "my-run", "--json"]) == 0
