"""What a study shows: means, intervals and differences worked out by hand, files, the figure."""

import gzip
import io
import math

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from gspo_edu.intervals import bootstrap_interval, mean_interval
from gspo_edu.plots import objective_style, png
from gspo_edu.study_figure import COLOURS, study_alt, study_figure
from gspo_edu.study_summary import (
    NAN,
    paired,
    summarise,
    summary_text,
)
from gspo_edu.study_table import read_table, write_table


def run_row(arm, seed, after, *, setting="lr 0.001", status="finished", **more):
    done = status == "finished"
    return {
        "study": "made up",
        "arm": arm,
        "setting": setting,
        "objective": "gspo" if arm.startswith("GSPO") else "grpo",
        "lr": 1e-3,
        "seed": seed,
        "status": status,
        "reason": "",
        "held_out_reward_before": 0.25 if done else None,
        "held_out_reward_after": after if done else None,
        "held_out_exact_after": 0.125 if done else None,
        "clip_fraction_seq": 0.5,
        "drift_per_update": 0.03,
        "step_size": 0.01,
        "update_skipped": 0.0,
        **more,
    }


def run_rows(arm, values, **more):
    return [run_row(arm, seed, value, **more) for seed, value in enumerate(values)]


def test_a_group_by_hand():
    (group,) = summarise(run_rows("GRPO", [0.1, 0.2, 0.3, 0.4, 1.0]))
    assert group.mean == pytest.approx(0.4)
    assert group.median == pytest.approx(0.3)
    assert group.t_interval == mean_interval([0.1, 0.2, 0.3, 0.4, 1.0])
    assert group.bootstrap == bootstrap_interval([0.1, 0.2, 0.3, 0.4, 1.0])
    assert group.values == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4, 4: 1.0}
    assert group.means == {
        "start": 0.25, "right": 0.125, "clip": 0.5, "drift": 0.03, "step_size": 0.01, "lr": 1e-3,
    }  # fmt: skip


def test_what_diverged_counts_as_nothing_and_what_failed_does_not_count():
    rows = run_rows("GRPO", [0.3, 0.6])
    rows += [run_row("GRPO", 2, None, status="diverged"), run_row("GRPO", 3, None, status="failed")]
    (group,) = summarise(rows)
    assert group.values == {0: 0.3, 1: 0.6, 2: 0.0}
    assert (group.diverged, group.missing) == ((2,), (3,))
    assert group.mean == pytest.approx(0.3)
    assert group.finished_mean == pytest.approx(0.45)
    text = summary_text("made up", rows, [])
    assert "DIVERGED on 1 seeds (2), counted as 0; mean of the others 0.450" in text
    assert "FAILED, so in no mean: seeds 3" in text


def test_updates_without_effect_are_told():
    rows = [run_row("GRPO", 0, 0.3, update_skipped=0.75), run_row("GRPO", 1, 0.3)]
    text = summary_text("made up", rows, [])
    assert "UPDATES SKIPPED, since the gradient was not finite: 75% on seed 0" in text


def test_one_run_and_no_run_have_no_interval():
    (group,) = summarise([run_row("GRPO", 0, 0.3)])
    assert (group.mean, group.t_interval, group.bootstrap) == (0.3, NAN, NAN)
    (group,) = summarise([run_row("GRPO", 0, None, status="failed")])
    assert math.isnan(group.mean)
    text = summary_text("made up", [run_row("GRPO", 0, None, status="failed")], [])
    assert "nan" not in text
    assert "GRPO  mean -  median -  t interval -  bootstrap -" in text


GRPO = [0.10, 0.20, 0.30, 0.40, 0.50]


def test_differences_pair_by_seed_and_setting():
    rows = run_rows("GRPO", GRPO) + run_rows("GRPO", GRPO, setting="lr 0.004")
    better = [0.13, 0.22, 0.33, 0.44, 0.49]
    rows += [*reversed(run_rows("GSPO", better))]
    rows += run_rows("GSPO", [0.0, 0.1], setting="lr 0.004")
    one, other = paired(summarise(rows), [("GSPO", "GRPO")])
    differences = [0.03, 0.02, 0.03, 0.04, -0.01]
    assert [*one.differences] == [0, 1, 2, 3, 4]
    assert [*one.differences.values()] == pytest.approx(differences)
    assert (one.settings, one.above) == (("lr 0.001",) * 2, 4)
    assert one.mean == pytest.approx(0.022)
    assert one.interval == pytest.approx(mean_interval(differences))
    assert one.adjusted == pytest.approx(mean_interval(differences, level=1 - 0.05 / 2))
    assert [*other.differences.values()] == pytest.approx([-0.1, -0.1])
    assert other.verdict == "too few seeds to tell (at least 5)"


def test_an_arm_with_one_setting_is_beside_every_setting_of_the_other():
    rows = run_rows("GRPO", GRPO, setting="lr 0.001") + run_rows("GRPO", GRPO, setting="lr 0.004")
    rows += run_rows("GSPO", GRPO, setting="the only setting")
    found = paired(summarise(rows), [("GSPO", "GRPO")])
    assert [pair.settings[1] for pair in found] == ["lr 0.001", "lr 0.004"]
    rows += run_rows("GSPO", GRPO, setting="lr 0.002")
    assert paired(summarise(rows), [("GSPO", "GRPO")]) == []


def test_many_comparisons_ask_for_more():
    # Clear by itself (t = 3.2 with 4 degrees of freedom), not among twenty.
    shift = [0.01, 0.02, 0.03, 0.04, 0.08]
    rows, pairs = run_rows("GRPO", GRPO), []
    for number in range(20):
        arm = f"GSPO {number}"
        rows += run_rows(arm, [a + d for a, d in zip(GRPO, shift, strict=True)])
        pairs.append((arm, "GRPO"))
    groups = summarise(rows)
    (alone,) = paired(groups, pairs[:1])
    among = paired(groups, pairs)
    assert alone.verdict == "a difference"
    assert alone.interval == alone.adjusted
    assert {pair.verdict for pair in among} == {"no clear difference among so many comparisons"}
    assert among[0].adjusted[0] < 0 < among[0].interval[0]
    text = summary_text("made up", rows, pairs)
    assert "There are 20 comparisons. Of 20 true nothings one looks like a difference" in text
    assert "above 0 on 5 of 5 seeds: no clear difference among so many" in text
    level = [a + d for a, d in zip(GRPO, [0.1, -0.1, 0.1, -0.1, 0.01], strict=True)]
    rows = run_rows("GRPO", GRPO) + run_rows("GSPO", level)
    assert paired(summarise(rows), [("GSPO", "GRPO")])[0].verdict == "no clear difference"


def test_the_bootstrap_is_as_narrow_as_its_docstring_says():
    dice = np.random.default_rng(2)
    for count, wanted in ((5, 0.85), (8, 0.88)):
        samples = dice.normal(size=(1500, count)).tolist()
        found = [bootstrap_interval(sample, resamples=500) for sample in samples]
        held = np.mean([low <= 0 <= high for low, high in found])
        assert held == pytest.approx(wanted, abs=0.03)


def test_the_bootstrap_by_hand():
    # Of two values the resampled mean is 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == (0.5, 0.5)
    assert bootstrap_interval([3.0] * 5) == (3.0, 3.0)
    assert bootstrap_interval([1.0, 2.0, 4.0]) == bootstrap_interval([1.0, 2.0, 4.0])
    assert bootstrap_interval([1.0, 2.0, 4.0], seed=1, resamples=7) != bootstrap_interval(
        [1.0, 2.0, 4.0], seed=2, resamples=7
    )
    with pytest.raises(ValueError, match="values has 1 numbers; expected one per seed"):
        bootstrap_interval([0.5])


def test_tables_come_back_as_they_were(tmp_path):
    rows = [
        {"arm": 'a, "b"\nc', "lr": 1e-3, "seed": 2**61, "dense": True, "reward": None},
        {"arm": "1.5", "lr": 1 / 3, "seed": 0, "dense": False, "reward": math.nan, "late": 1e-12},
    ]
    for name in ("t.csv", "t.csv.gz"):
        write_table(tmp_path / name, rows)
        first, second = read_table(tmp_path / name)
        assert first == {**rows[0], "late": None}
        assert second == {**rows[1], "reward": None, "lr": 0.3333333}
    data = (tmp_path / "t.csv.gz").read_bytes()
    assert data[4:8] == bytes(4), "a date would make equal tables differ"
    assert gzip.decompress(data) == (tmp_path / "t.csv").read_bytes()


def update_rows(arm, seed, rewards):
    return [
        {"arm": arm, "setting": "lr 0.001", "seed": seed, "rollout": n // 2 + 1, "reward": reward}
        for n, reward in enumerate(rewards)
    ]


@pytest.fixture
def picture():
    runs = (
        run_rows("GRPO", [0.3, 0.5]) + run_rows("GSPO", [0.4, 0.8]) + run_rows("GSPO, 0.2", [0.6])
    )
    runs.append(run_row("GSPO, 0.2", 1, None, status="diverged"))
    updates = [
        *update_rows("GRPO", 0, [0.1, 0.3, 0.4, 0.4]),
        *update_rows("GRPO", 1, [0.4, 0.4, 0.6, 0.6]),
        *update_rows("GSPO", 0, [0.1, 0.1, 0.2, 0.2]),
        *update_rows("GSPO", 1, [0.3, 0.3, 0.4, 0.4]),
        *update_rows("GSPO, 0.2", 0, [0.5, 0.5, 0.6, 0.6]),
        *update_rows("GSPO, 0.2", 1, [0.7, 0.7]),
    ]
    return updates, runs


def test_the_figure_shows_every_seed_the_mean_and_the_interval(picture):
    curves, ends = study_figure(*picture).axes
    lines = curves.get_lines()
    thin = [[*map(float, line.get_ydata())] for line in lines if line.get_linewidth() < 1]
    thick = [line for line in lines if line.get_linewidth() == 2]
    assert thin == [
        *(pytest.approx([0.2, 0.4]), pytest.approx([0.4, 0.6])),
        *(pytest.approx([0.1, 0.2]), pytest.approx([0.3, 0.4])),
        *(pytest.approx([0.5, 0.6]), pytest.approx([0.7])),
    ]
    means = [[*map(float, line.get_ydata())] for line in thick]
    assert means == [
        pytest.approx([0.3, 0.5]),
        pytest.approx([0.2, 0.3]),
        pytest.approx([0.6, 0.6]),
    ]
    assert [line.get_label() for line in thick] == ["GRPO", "GSPO", "GSPO, 0.2"]
    colours = [to_hex(line.get_color()).upper() for line in thick]
    assert colours == [objective_style(name)["color"] for name in ("grpo", "gspo", "gspo")]
    looks = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in thick}
    assert len(looks) == 3
    assert [text.get_text() for text in ends.get_yticklabels()] == ["GRPO", "GSPO", "GSPO, 0.2"]
    points = [float(line.get_xdata()[0]) for line in ends.get_lines() if len(line.get_xdata()) == 1]
    assert points == pytest.approx([0.3, 0.5, 0.4, 0.4, 0.8, 0.6, 0.6, 0.0, 0.3])
    crosses = [line for line in ends.get_lines() if line.get_marker() == "x"]
    assert [float(line.get_xdata()[0]) for line in crosses] == [0.0]
    bars = [tuple(line.get_xdata()) for line in ends.get_lines() if len(line.get_xdata()) == 2]
    assert bars == [mean_interval(v) for v in ([0.3, 0.5], [0.4, 0.8], [0.6, 0.0])]


def test_bands_are_intervals_and_stay_away_where_they_would_hide_each_other(picture):
    updates, runs = picture
    curves, _ = study_figure(updates, runs, arms=["GRPO"]).axes
    (band,) = curves.collections
    (low, _), (_, high) = mean_interval([0.2, 0.4]), mean_interval([0.4, 0.6])
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((low, high))
    runs += [run_row("CISPO", seed, 0.5, objective="cispo") for seed in (0, 1)]
    updates += update_rows("CISPO", 0, [0.1, 0.1]) + update_rows("CISPO", 1, [0.3, 0.2])
    curves, _ = study_figure(updates, runs).axes
    assert len(curves.collections) == 0


def test_the_stored_picture_keeps_the_colours_of_the_arms():
    names = ("grpo", "gspo", "seq_unnormalised", "cispo", "dapo", "sapo")
    dice = np.random.default_rng(0)
    runs, updates = [], []
    for name in names:
        runs += [run_row(name, seed, dice.random(), objective=name) for seed in range(8)]
        for seed in range(8):
            updates += update_rows(name, seed, dice.random(40))
    stored = Image.open(io.BytesIO(png(study_figure(updates, runs), colours=COLOURS))).convert(
        "RGB"
    )
    pixels = np.unique(np.asarray(stored).reshape(-1, 3), axis=0).astype(int)
    for name in names:
        colour = [round(255 * part) for part in to_rgb(objective_style(name)["color"])]
        assert np.abs(pixels - colour).max(axis=1).min() <= 6, name


def test_the_figure_says_its_numbers_in_words(picture):
    low, high = mean_interval([0.6, 0.0])
    text = study_alt(picture[1], arms=["GSPO, 0.2", "GRPO"])
    assert text.startswith("Mean held-out reward at the end, lr 0.001: GSPO, 0.2 0.300 (interval ")
    assert f"{low:.3f} to {high:.3f}, 2 seeds, 1 diverged and counted as 0); GRPO 0.400" in text


def test_the_figure_refuses_what_is_not_there(picture):
    with pytest.raises(ValueError, match=r"setting is 'lr 1'; expected one of lr 0\.001"):
        study_figure(*picture, setting="lr 1")
    with pytest.raises(ValueError, match="arms names 'PPO'; expected some of GRPO; GSPO"):
        study_figure(*picture, arms=["PPO"])
    with pytest.raises(ValueError, match="metric is 'drift'; expected a column"):
        study_figure(*picture, metric="drift")
