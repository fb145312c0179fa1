"""Rates and ranges found on tuning seeds: the right ones, and all that was tried written down."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from gspo_edu.checkpoint import load_policy
from gspo_edu.initial import initial_policy
from gspo_edu.ratios import sequence_ratio
from gspo_edu.run_files import METRICS, read_lines
from gspo_edu.sampler import answer_log_probs
from gspo_edu.study import read_study, run_study
from gspo_edu.study_cells import Tuning
from gspo_edu.study_match import matched_rate, step_size
from gspo_edu.study_ranges import RANGE, Watching, measure_range
from gspo_edu.study_rates import Search
from gspo_edu.study_runs import make_starts, run_folder, start_folder
from gspo_edu.study_table import read_table
from gspo_edu.trainer import Trainer

FILE = """
seed = [0, 1]
lr = "tuned"
rollouts = 2
prompts = 4
group_size = 4
mini_batches = 4
eval_every = 0
eval_prompts = 8
drift_probe = 4
device = "cpu"
pairs = [["GSPO, same step", "GRPO"]]

[[arm]]
name = "GRPO"
objective = "grpo"

[[arm]]
name = "GSPO, same step"
objective = "gspo"
lr = "matched"

[[arm]]
name = "GSPO, measured"
objective = "gspo"
clip_from = "quantiles"

[[arm]]
name = "GRPO, at that rate"
objective = "grpo"
lr = "as GSPO, same step"

[[arm]]
name = "first half"
objective = "grpo"
rollouts = 1
lr = 1e-3

[[arm]]
name = "second half"
objective = "gspo"
rollouts = 1
lr = 2e-3
starts_from = "first half"

[tuning]
seed = [100, 101]
lr = [1e-3, 4e-3, 0.5]
match = "GRPO"
tolerance = 0.2
outside = 0.4
rollouts = 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study with every rule, done; not to be changed."""
    folder = tmp_path_factory.mktemp("ruled")
    (folder / "ruled.toml").write_text(FILE, encoding="utf-8")
    study = read_study(folder / "ruled.toml")
    return study, run_study(study, folder / "out", jobs=1)


def groups(result):
    found = json.loads((result.out / "study.json").read_text(encoding="utf-8"))
    return {group["arm"]: group["config"] for group in found["groups"]}


def test_the_chosen_rate_has_the_highest_mean_on_the_tuning_seeds(made):
    _, result = made
    rows = read_table(result.out / "tuning.csv")
    for arm in ("GRPO", "GSPO, measured"):
        mine = [row for row in rows if (row["arm"], row["rule"]) == (arm, "tuned")]
        assert [(row["lr"], row["seed"]) for row in mine] == [
            (lr, seed) for lr in (1e-3, 4e-3, 0.5) for seed in (100, 101)
        ]
        means = {
            lr: np.mean([row["reward"] for row in mine if row["lr"] == lr])
            for lr in (1e-3, 4e-3, 0.5)
        }
        best = max(means, key=means.get)
        assert {row["lr"] for row in mine if row["chosen"]} == {best}
        assert groups(result)[arm]["lr"] == best
        assert means[0.5] < means[best]


def test_no_result_is_read_from_a_tuning_seed(made):
    _, result = made
    assert {row["seed"] for row in result.rows} == {0, 1}
    assert {row["seed"] for row in read_table(result.out / "updates.csv.gz")} == {0, 1}
    assert {row["seed"] for row in read_table(result.out / "tuning.csv")} == {100, 101}


def test_a_rate_at_the_end_of_the_grid_is_told(made):
    _, result = made
    at_end = [arm for arm in ("GRPO", "GSPO, measured") if groups(result)[arm]["lr"] != 4e-3]
    assert at_end, "the test needs one"
    (line,) = [x for x in result.text.splitlines() if x.startswith("Chosen at an end of tuning.lr")]
    assert all(f"{arm} (the only setting): lr" in line for arm in at_end)


def test_the_matched_arm_moves_as_far_as_the_other(made):
    study, result = made
    rows = read_table(result.out / "tuning.csv")
    target = np.mean([row["step_size"] for row in rows if row["rule"] == "to match"])
    tried = [row for row in rows if row["rule"] == "matched"]
    chosen = [row for row in tried if row["chosen"]]
    assert [row["seed"] for row in chosen] == [100, 101]
    assert np.mean([row["step_size"] for row in chosen]) == pytest.approx(target, rel=0.2)
    assert "no rate within" not in result.text
    assert groups(result)["GSPO, same step"]["lr"] == chosen[0]["lr"]
    reference = study.cells[0].config(lr=groups(result)["GRPO"]["lr"], seed=100)
    records = read_lines(run_folder(result.out, reference) / METRICS)
    first = next(row for row in rows if row["rule"] == "to match")
    assert first["step_size"] == pytest.approx(step_size(records), rel=1e-6)


def test_an_arm_takes_the_rate_that_was_found_for_another(made):
    _, result = made
    found = groups(result)
    assert found["GRPO, at that rate"]["lr"] == found["GSPO, same step"]["lr"]


def test_a_run_goes_on_where_another_of_its_seed_ended(made):
    _, result = made
    before = {row["seed"]: row for row in result.rows if row["arm"] == "first half"}
    after = {row["seed"]: row for row in result.rows if row["arm"] == "second half"}
    assert before.keys() == after.keys() == {0, 1}
    for seed, row in after.items():
        policy = result.out / "runs" / before[seed]["run"] / "policy.safetensors"
        start = result.out / "runs" / row["run"] / "init.safetensors"
        assert_same_weights(load_policy(policy)[0], load_policy(start)[0])
        assert row["held_out_reward_before"] == before[seed]["held_out_reward_after"]
    assert "init" not in after[0]
    assert groups(result)["second half"]["init"] == "the final policy of first half"


def assert_same_weights(first, second):
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name


def test_what_could_not_be_matched_is_told(made, tmp_path):
    _, result = made
    shutil.copytree(result.out, tmp_path / "out")
    text = FILE.replace("tolerance = 0.2", "tolerance = 1e-9")
    (tmp_path / "ruled.toml").write_text(text, encoding="utf-8")
    exact = run_study(read_study(tmp_path / "ruled.toml"), tmp_path / "out", jobs=1)
    (line,) = [line for line in exact.text.splitlines() if "no rate within" in line]
    assert line.startswith("GSPO, same step: no rate within 6 tries moved as far as GRPO; at lr")


def test_a_measured_range_stands_in_the_config_as_numbers(made):
    _, result = made
    config = groups(result)["GSPO, measured"]
    assert 3e-4 < config["clip_low"] < 1
    assert config["clip_high"] > 3e-4
    found = json.loads((result.out / "study.json").read_text(encoding="utf-8"))["clip_ranges"]
    assert {row["lr"] for row in found} == {1e-3, 4e-3, 0.5}
    (own,) = [row for row in found if row["lr"] == config["lr"]]
    assert (own["clip_low"], own["clip_high"]) == (config["clip_low"], config["clip_high"])
    assert (own["outside"], own["answers"]) == (0.4, 2 * 2 * 12)
    rows = read_table(result.out / "runs.csv")
    assert {row["clip_from"] for row in rows} == {None, "quantiles"}
    assert {row["lr_from"] for row in rows} == {"tuned", "matched", "as GSPO, same step", None}


def test_a_measured_range_leaves_its_share_outside(tmp_path, quick):
    config = quick(objective="gspo", replay="r3", prompts=16, lr=2e-3)
    make_starts(tmp_path, [config], jobs=1)
    start = start_folder(tmp_path, config) / "init.safetensors"
    (tmp_path / "range").mkdir()
    measure_range(tmp_path / "range", start, config, Tuning(seed=(5, 6), outside=0.3, rollouts=2))
    found = json.loads((tmp_path / "range" / RANGE).read_text(encoding="utf-8"))
    ratios = []
    for seed in (5, 6):
        trainer = Trainer(replace(config, seed=seed, rollouts=2), *initial_policy(config)[:2])
        one_update = trainer.one_update

        def seeing(batch, advantages, trainer=trainer, one_update=one_update):
            replay = batch.routes
            logp = answer_log_probs(trainer.model, batch, replay=replay).logp.detach()
            ratios.append(sequence_ratio(logp, batch.logp_old, batch.mask))
            return one_update(batch, advantages)

        trainer.one_update = seeing
        trainer.next_rollout()
        trainer.next_rollout()
    seen = torch.cat(ratios[1::2])
    assert found["answers"] == len(seen) == 128
    assert (seen < 1 - found["clip_low"]).float().mean() == pytest.approx(0.15, abs=0.01)
    assert (seen > 1 + found["clip_high"]).float().mean() == pytest.approx(0.15, abs=0.01)


def test_rates_far_too_large_have_ranges_that_can_be_used(tmp_path, quick):
    config = quick(objective="gspo", lr=1.0)
    broken = quick(objective="gspo", lr=1.0, weight_decay=3.3e38, mini_batches=2)
    make_starts(tmp_path, [config], jobs=1)
    start = start_folder(tmp_path, config) / "init.safetensors"
    for folder, one in ((tmp_path / "far", config), (tmp_path / "broken", broken)):
        folder.mkdir()
        measure_range(folder, start, one, Tuning(seed=(5,), rollouts=2))
        found = json.loads((folder / RANGE).read_text(encoding="utf-8"))
        replace(one, clip_low=found["clip_low"], clip_high=found["clip_high"])
        assert (found["clip_low"] is None) == (one is broken) == (found["answers"] == 0)


@pytest.mark.parametrize("replay", ["none", "r2", "r3"])
def test_watching_sees_what_the_update_sees_and_changes_no_number(quick, replay):
    config = quick(objective="gspo", seed=4, lr=8e-3, mini_batches=4, prompts=8, replay=replay)
    plain, watching = (kind(config, *initial_policy(config)[:2]) for kind in (Trainer, Watching))
    records = [*plain.next_rollout(), *plain.next_rollout()]
    assert records == [*watching.next_rollout(), *watching.next_rollout()]
    after_first = [record for record in records if record["update"] % 4 != 1]
    for log_s, record in zip(watching.log_s, after_first, strict=True):
        assert len(log_s) == 8
        assert float(log_s.mean()) == pytest.approx(record["sequence_log_ratio_mean"], rel=1e-5)
        spread = float(log_s.std(correction=0))
        assert spread == pytest.approx(record["sequence_log_ratio_std"], rel=1e-5)


def test_a_rate_that_breaks_is_not_chosen(made, monkeypatch):
    study, result = made
    search = Search(study, result.out, jobs=1)
    cell = next(cell for cell in study.cells if cell.lr_from == "tuned")

    def rewards(*by_rate):
        rows = {
            (cell, lr): [{"reward": reward, "lr": lr, "reason": "it broke"} for reward in some]
            for lr, some in zip((1e-3, 4e-3, 0.5), by_rate, strict=True)
        }
        monkeypatch.setattr(search, "on_tuning_seeds", lambda wanted, desc: rows)
        search.tune([cell])
        return search.rates[cell.group]

    assert rewards((0.3, 0.4), (0.4, 0.4), (0.0, 0.7)) == 4e-3
    assert rewards((0.3, 0.5), (0.4, 0.4), (0.0, 0.0)) == 1e-3, "the lower one of equals"
    assert rewards((math.nan, 0.9), (0.2, 0.2), (0.1, 0.1)) == 4e-3, "a failed run says nothing"
    with pytest.raises(ValueError, match=r"no rate of arm 'GRPO' could be tried .* it broke"):
        rewards((math.nan, 0.9), (math.nan, 0.2), (0.1, math.nan))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("factor", [0.05, 0.9, 7.0])
def test_a_power_law_is_matched_in_few_tries(power, factor):
    found = matched_rate(lambda lr: 40 * lr**power, 40 * (factor * 1e-3) ** power, 1e-3)
    assert found.lr == pytest.approx(factor * 1e-3, rel=0.11)
    assert abs(found.found / (40 * found.lr**power) - 1) < 1e-9
    assert len(found.tried) <= (2 if power == 2 else 4)


def test_what_bends_or_breaks_is_matched_too():
    def bending(lr):
        return math.inf if lr > 0.02 else lr**2 / (lr**2 + 1e-5)

    wanted = (0.4 / 0.6 * 1e-5) ** 0.5
    found = matched_rate(bending, 0.4, 0.5, tolerance=0.05, tries=20)
    assert found.lr == pytest.approx(wanted, rel=0.06)
    assert found.tried[0] == (0.5, math.inf)
    assert all(lr < 0.5 for lr, _ in found.tried[1:])


def test_the_closest_try_is_taken_when_none_fits():
    found = matched_rate(lambda lr: 0.1 if lr < 2e-3 else 1.0, 0.5, 1e-3, tries=5)
    assert len(found.tried) == 5
    assert found.found == 1.0, "a factor of 2 from the target, not of 5"
    assert found.lr >= 2e-3


@pytest.mark.parametrize("target", [0.0, -1.0, math.inf, math.nan])
def test_a_target_that_is_no_step_is_refused(target):
    with pytest.raises(ValueError, match=r"target is .*; expected a positive step size"):
        matched_rate(lambda lr: lr, target, 1e-3)


def test_no_finite_step_at_all_is_refused():
    with pytest.raises(ValueError, match=r"no rate gave a finite step size; tried \[0.001, 0.0005"):
        matched_rate(lambda lr: math.inf, 0.1, 1e-3)


def test_the_step_size_by_hand():
    records = [
        {"rollout": rollout, "kl_from_old": kl}
        for rollout, kl in [(1, 0.0), (1, 0.25), (2, 0.0), (2, 0.5)]
    ]
    assert step_size(records) == 0.375
    records[1]["kl_from_old"] = None
    assert math.isnan(step_size(records))


def test_a_range_that_cannot_be_measured_is_named(made, tmp_path, monkeypatch):
    from gspo_edu import study_rates

    study, _ = made

    def breaking(folder, start, config, tuning):
        raise RuntimeError("no luck")

    monkeypatch.setattr(study_rates, "measure_range", breaking)
    with pytest.raises(ValueError, match=r"no clip range .* gspo at lr 0\.001: RuntimeError: no l"):
        run_study(study, tmp_path / "out", jobs=1)
