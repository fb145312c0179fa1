"""Verdicts follow from the tables, and the page in docs/ says what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gspo_edu import verdict_controls
from gspo_edu.bibliography import sources
from gspo_edu.stored_studies import StoredStudy, stored_names
from gspo_edu.study_summary import GroupSummary, PairSummary, paired, summarise
from gspo_edu.verdict_page import PAGE, page
from gspo_edu.verdict_rules import (
    FAILS,
    HOLDS,
    OPEN,
    difference_of,
    drops,
    in_words,
    ratio_of_means,
    verdict_of,
)
from gspo_edu.verdicts import finding, findings

# By study; those that compare sizes have one rule, verdict_controls.grows.
CONTROLS = {
    "step_size": verdict_controls.same_step,
    "dense": verdict_controls.experts_cost,
    "compute": verdict_controls.more_compute,
    "engines": verdict_controls.other_engine,
    "replay": verdict_controls.gspo_needs_no_replay,
    "rescue": verdict_controls.not_to_be_saved,
}
SCATTER = (-0.02, -0.01, 0.0, 0.01, 0.02)


def rows(arm: str, mean: float, *, setting: str = "the only setting", **more: Any) -> list[Any]:
    """Five seeds of one arm; those of arm A scatter in another order."""
    order = 2 if arm == "A" else 1
    return [
        {
            "arm": arm, "setting": setting, "objective": "grpo", "seed": seed,
            "status": "finished", "held_out_reward_before": 0.3,
            "held_out_reward_after": mean + SCATTER[seed * order % 5],
            "held_out_exact_after": 0.1, "lr": 1e-3, **more,
        }
        for seed in range(5)
    ]  # fmt: skip


def study_of(runs: list[Any], pairs: list[tuple[str, str]], name: str = "made up") -> StoredStudy:
    groups: list[GroupSummary] = summarise(runs)
    return StoredStudy(name, Path(), {}, runs, [], groups, paired(groups, pairs), "")


def pair_of(first: float, second: float) -> PairSummary:
    (pair,) = study_of(rows("A", first) + rows("B", second), [("A", "B")]).pairs
    return pair


def test_the_side_of_the_interval_decides() -> None:
    assert verdict_of([pair_of(0.9, 0.5)]) == HOLDS
    assert verdict_of([pair_of(0.5, 0.9)]) == FAILS
    assert verdict_of([pair_of(0.5, 0.5005)]) == OPEN
    assert verdict_of([pair_of(0.9, 0.5), pair_of(0.5, 0.5005)]) == OPEN
    assert verdict_of([pair_of(0.9, 0.5), pair_of(0.5, 0.9)]) == FAILS


def test_a_pair_in_words() -> None:
    words = in_words(pair_of(0.9, 0.5))
    assert words.startswith("A minus B, the only setting: +0.400 (+0.3")
    assert words.endswith("above 0 on 5 of 5 seeds")


def test_falls_are_from_the_highest_point() -> None:
    runs = rows("A", 0.5)[:2]
    study = study_of(runs, [])
    values = {0: (0.2, 0.9, None, 0.48), 1: (0.1, 0.2, None, 0.3)}
    of_a = {"arm": "A", "setting": "the only setting"}
    updates = [
        {**of_a, "seed": seed, "rollout": rollout, "held_out_reward": value}
        for seed, seen in values.items()
        for rollout, value in enumerate(seen)
    ]
    fake = type("Fake", (), {"group": study.group, "updates": updates})()
    found = drops(fake, "A", "the only setting")
    assert found[0] == pytest.approx(0.9 - (0.5 - 0.02))
    assert found[1] == pytest.approx(0)


def test_differences_of_differences() -> None:
    mean, (low, high) = difference_of(pair_of(0.9, 0.5), pair_of(0.6, 0.5))
    assert mean == pytest.approx(0.3)
    assert low == pytest.approx(0.3)  # both pairs scatter alike, so nothing is left
    assert high == pytest.approx(0.3)


def test_more_comparisons_widen_a_difference_of_differences() -> None:
    (steady,) = study_of(rows("B", 0.6) + rows("C", 0.5), [("B", "C")]).pairs
    mean, alone = difference_of(pair_of(0.9, 0.5), steady)
    again, among = difference_of(pair_of(0.9, 0.5), steady, 9)
    assert mean == again == pytest.approx(0.3)
    assert among[0] < alone[0] < mean < alone[1] < among[1]


def test_the_ratio_of_two_means() -> None:
    study = study_of(rows("A", 0.5, entropy=3.0) + rows("B", 0.5, entropy=2.0), [])
    assert ratio_of_means(study, "the only setting", ("A", "B"), "entropy") == pytest.approx(1.5)


def made(name: str, lead: float) -> StoredStudy:
    """A study of that name in which GSPO leads by ``lead`` (twice at the end)."""
    if name == "stormy":
        return study_of(rows("GRPO", 0.5, setting="lr tuned"), [], name)
    if name == "dense":
        kinds = {"experts": 2 * lead, "dense as active": lead, "dense as total": lead}
        runs = [
            row
            for kind, gap in kinds.items()
            for arm, mean in ((f"GRPO, {kind}", 0.5), (f"GSPO, {kind}", 0.5 + gap))
            for row in rows(arm, mean, setting="lr 0.004")
        ]
        pairs = [(f"GSPO, {kind}", f"GRPO, {kind}") for kind in kinds]
        return study_of(runs, pairs, name)
    if name in verdict_controls.GROWTH:
        field, _ = verdict_controls.GROWTH[name]
        runs = [
            row
            for size in (1, 2)
            for arm, mean in (("GRPO", 0.5), ("GSPO, measured range", 0.5 + size * lead))
            for row in rows(arm, mean, setting=f"{field} {size}", drift_per_update=0.01 * size)
        ]
        return study_of(runs, [("GSPO, measured range", "GRPO")], name)
    if name == "engines":
        arms = ("GSPO", "GSPO wide", "GRPO")
        runs = [
            row
            for arm in arms
            for what, mean in (("trusted", 0.5 + lead), ("recomputed", 0.5))
            for row in rows(f"{arm}, bf16 {what}", mean)
        ]
        pairs = [(f"{arm}, bf16 trusted", f"{arm}, bf16 recomputed") for arm in arms]
        return study_of(runs, pairs, name)
    if name == "replay":
        # Replay that helps is what speaks against "needless".
        arms = ("GRPO", "GSPO, measured range")
        means = dict.fromkeys(arms, 0.5)
        means |= {f"{arm} + {kind}": 0.5 - lead for arm in arms for kind in ("R2", "R3")}
        runs = [
            row
            for setting in ("lr 0.001", "lr 0.004")
            for arm, mean in means.items()
            for row in rows(arm, mean, setting=setting)
        ]
        pairs = [(f"{arm} + {kind}", arm) for arm in arms for kind in ("R2", "R3")]
        pairs += [("GRPO + R3", "GRPO + R2")]
        return study_of(runs, pairs, name)
    if name == "rescue":
        # A lower rate that makes good all that was lost is what speaks against "cannot be saved".
        starts = ("restored", "collapsed")
        ways = {"as before": 0.3, "GSPO": 0.3 + lead, "R2": 0.3, "lower rate": 0.3 - lead}
        means = {f"{start}, {way}": mean for start in starts for way, mean in ways.items()}
        means |= {"until 20": 0.5, "until 60": 0.2, "never collapsed": 0.4}
        runs = [row for arm, mean in means.items() for row in rows(arm, mean, step_size=0.1)]
        pairs = [
            (f"{start}, {way}", f"{start}, as before")
            for start in starts
            for way in ways
            if way != "as before"
        ]
        pairs += [(f"{start}, lower rate", "never collapsed") for start in starts]
        return study_of(runs, [*pairs, ("until 60", "until 20")], name)
    if name == "compute":
        arms = ("GSPO", "GSPO, measured range")
        runs = rows("GRPO", 0.5) + [row for arm in arms for row in rows(arm, 0.5 + lead)]
        runs += [row for arm in ("GRPO", "GSPO") for row in rows(f"{arm}, 64 prompts", 0.4)]
        pairs = [(arm, "GRPO") for arm in arms]
        pairs += [(f"{arm}, 64 prompts", arm) for arm in ("GRPO", "GSPO")]
        return study_of(runs, pairs, name)
    arms = ["GSPO, same step", "GSPO measured, same step"]
    runs = rows("GRPO", 0.5) + [row for arm in arms for row in rows(arm, 0.5 + lead)]
    runs += rows("GRPO, at that rate", 0.5)
    pairs = [(arm, "GRPO") for arm in arms]
    pairs += [("GSPO measured, same step", "GRPO, at that rate")]
    return study_of(runs, pairs, name)


@pytest.mark.parametrize(("lead", "verdict"), [(0.2, HOLDS), (-0.2, FAILS)])
def test_where_grpo_collapses(lead: float, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_controls, "stored_study", lambda asked: made(asked, lead))
    assert verdict_controls.holds_where_grpo_collapses().verdict == verdict


@pytest.mark.parametrize(("gain", "verdict"), [(0.2, HOLDS), (-0.2, FAILS), (0.0, OPEN)])
def test_replay_of_the_rollouts_routes(
    gain: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_controls, "stored_study", lambda asked: made(asked, -gain))
    found = verdict_controls.rollout_routes_help()
    assert found.verdict == verdict
    assert "At another: GRPO + R3 minus GRPO, lr 0.004" in found.numbers


def test_a_run_that_is_mended_in_part_is_neither_saved_nor_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdict_controls, "stored_study", lambda asked: made(asked, -0.05))
    assert verdict_controls.not_to_be_saved().verdict == OPEN


def test_the_gain_of_the_second_half() -> None:
    study = study_of(rows("A", 0.5)[:2], [])
    seen = {0: {0: 0.1, 20: 0.2, 40: 0.4}, 1: {0: 0.1, 20: 0.3, 40: 0.4}}
    of_a = {"arm": "A", "setting": "the only setting"}
    updates = [
        {**of_a, "seed": seed, "rollout": rollout, "held_out_reward": reward}
        for seed, rewards in seen.items()
        for rollout, reward in rewards.items()
    ]
    fake = type("Fake", (), {"group": study.group, "updates": updates})()
    ends = list(study.group("A").values.values())
    assert verdict_controls.late_rise(fake, "A") == pytest.approx(sum(ends) / 2 - 0.25)


@pytest.mark.parametrize(("lead", "verdict"), [(0.2, HOLDS), (-0.2, FAILS)])
@pytest.mark.parametrize("name", [*CONTROLS, *verdict_controls.GROWTH])
def test_a_clear_lead_decides(
    name: str, lead: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_controls, "stored_study", lambda asked: made(asked, lead))
    monkeypatch.setattr(verdict_controls, "late_rise", lambda study, arm: 0.0)
    rule = CONTROLS.get(name)
    found = rule() if rule else verdict_controls.grows(name)
    assert found.studies == (name,)
    assert found.verdict == verdict
    assert "nan" not in found.numbers


def test_every_stored_study_is_used() -> None:
    used = {name for one in findings() for name in one.studies}
    assert used == set(stored_names())


def test_findings_are_whole() -> None:
    found = findings()
    assert len({one.key for one in found}) == len(found)
    known = {source.arxiv for source in sources().values()}
    for one in found:
        assert one.verdict in (HOLDS, FAILS, OPEN)
        assert set(re.findall(r"\d{4}\.\d{5}", one.said_by)) <= known
        assert finding(one.key) == one
        assert one.studies or one.verdict == OPEN
        for words in (one.statement, one.limits):
            assert words.endswith(".")


def test_the_page_says_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m gspo_edu.verdict_page"
