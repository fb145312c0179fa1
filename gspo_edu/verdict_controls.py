"""Verdicts from the controls that the GSPO paper does not have, and from what grows with scale.

Equal step size, dense twins, more experts, layers and tokens, more compute, another engine, replay
under GSPO, and attempts to save a collapsed run. ``verdicts`` puts them among the others.
"""

from __future__ import annotations

import numpy as np

from gspo_edu.stored_studies import StoredStudy, stored_study
from gspo_edu.study_summary import span
from gspo_edu.verdict_rules import (
    FAILS,
    HOLDS,
    LARGE_RATE,
    OPEN,
    Finding,
    difference_of,
    held_out_rewards,
    in_words,
    side,
    verdict_of,
)


def same_step() -> Finding:
    """A control that the paper does not have: the same step size for both."""
    study = stored_study("step_size")
    pair = study.pair("GSPO measured, same step", "GRPO")
    paper = study.pair("GSPO, same step", "GRPO")
    rival = study.pair("GSPO measured, same step", "GRPO, at that rate")
    lower, rate = (study.group(one).means["lr"] for one in (pair.first, "GRPO"))
    return Finding(
        "step",
        "At the same step size GSPO, with a range that fits, is ahead of GRPO.",
        "a control of this course; the paper has none",
        verdict_of([pair]),
        f"Same KL per rollout, GRPO at a large rate: {in_words(pair, of='same step')}. With the "
        f"paper's range: {in_words(paper, of='same step')}. Against GRPO at GSPO's rate instead of "
        f"its step: {in_words(rival, of='same rate')}.",
        f"To move as far GSPO takes a lower rate here ({lower:g} against {rate:g}), and lower "
        "rates suit all arms better in this setting: at that rate GRPO "
        f"{'gains as much' if side(rival.adjusted) == OPEN else 'does not do the same'}.",
        ("step_size",),
    )


def experts_cost() -> Finding:
    """Dense twins: is the difference the experts' doing?"""
    study = stored_study("dense")
    kinds = ("experts", "dense as active", "dense as total")
    pairs = {kind: study.pair(f"GSPO, {kind}", f"GRPO, {kind}", LARGE_RATE) for kind in kinds}
    more, interval = difference_of(pairs["experts"], pairs["dense as active"], len(study.pairs) + 1)
    return Finding(
        "experts",
        "It is the experts that GRPO suffers from: with them GSPO's lead is larger than without.",
        "the argument of arXiv 2507.18071, section 5.3",
        side(interval),
        f"At the large rate, {'; '.join(in_words(pair) for pair in pairs.values())}. Lead with "
        f"experts minus lead without (as wide as the active experts): {more:+.3f} "
        f"({span(interval, '+.3f')}).",
        "Each twin starts from a cold start of its own, so only differences compare. GSPO has its "
        "measured range in all of them.",
        ("dense",),
    )


GROWTH = {
    "experts": ("experts", "more experts"),
    "depth": ("layers", "more layers"),
    "answer_length": ("task_size", "longer answers"),
}


def grows(name: str) -> Finding:
    """Does GSPO's lead grow with experts, depth or length?"""
    field, words = GROWTH[name]
    study = stored_study(name)
    settings = study.settings
    pairs = {at: study.pair("GSPO, measured range", "GRPO", at) for at in settings}
    more, interval = difference_of(pairs[settings[-1]], pairs[settings[0]], len(study.pairs) + 1)
    drifts = ", ".join(
        f"{at} {np.mean(study.means('GRPO', at, 'drift_per_update')):.1%}" for at in settings
    )
    return Finding(
        f"growth_{field}",
        f"With {words} GSPO's lead over GRPO grows.",
        "the argument of arXiv 2507.18071, sections 3 and 5.3",
        side(interval),
        f"{'; '.join(in_words(pair) for pair in pairs.values())}. Last minus first: {more:+.3f} "
        f"({span(interval, '+.3f')}). Drift per update under GRPO: {drifts}.",
        "Each setting starts from a cold start of its own. GSPO has its measured range, and all "
        "arms the same rate.",
        (name,),
    )


def more_compute() -> Finding:
    """Section 5.1: it goes on improving with more compute and refreshed prompts."""
    study = stored_study("compute")
    pairs = [study.pair("GSPO", "GRPO"), study.pair("GSPO, measured range", "GRPO")]
    same = [study.pair(f"{arm}, 64 prompts", arm) for arm in ("GRPO", "GSPO")]
    rise = "; ".join(
        f"{arm} {late_rise(study, arm):+.3f}"
        for arm in ("GRPO", "GSPO", "GRPO, 64 prompts", "GSPO, 64 prompts")
    )
    return Finding(
        "compute",
        "With four times the compute GSPO pulls ahead of GRPO.",
        "the authors, arXiv 2507.18071, section 5.1",
        verdict_of(pairs),
        f"{'; '.join(map(in_words, pairs))}. With the same 64 prompts all along instead of new "
        f"ones in each rollout: {'; '.join(map(in_words, same))}. Mean gain in the second half of "
        f"the training: {rise}.",
        "Four times a minute of training is still very little. New prompts matter a great deal, to "
        "both alike.",
        ("compute",),
    )


def late_rise(study: StoredStudy, arm: str) -> float:
    """Mean over the seeds of the gain in held-out reward from halfway through to the end."""
    group = study.group(arm)
    seen = held_out_rewards(study, group)
    half = max(max(rewards) for rewards in seen.values()) / 2
    gains = [
        group.values[seed] - rewards[min(rewards, key=lambda rollout: abs(rollout - half))]
        for seed, rewards in seen.items()
    ]
    return float(np.mean(gains))


def other_engine() -> Finding:
    """Section 5.4: the engine's log-probs may stand in for recomputed ones."""
    study = stored_study("engines")
    pairs = {
        arm: study.pair(f"{arm}, bf16 trusted", f"{arm}, bf16 recomputed")
        for arm in ("GSPO", "GSPO wide", "GRPO")
    }
    return Finding(
        "engines",
        "GSPO tolerates the log-probs of another engine.",
        "the authors, arXiv 2507.18071, section 5.4",
        verdict_of([pairs["GSPO"]]),
        f"The engine samples in bfloat16. {'; '.join(map(in_words, pairs.values()))}.",
        "The paper's range is meant for answers of thousands of tokens, whose sequence ratios such "
        "an engine moves less; GSPO wide has a range that fits these short ones.",
        ("engines",),
    )


def rollout_routes_help() -> Finding:
    """R3's statement, with a sampler that rounds: does GRPO gain from the sampler's routes?"""
    study = stored_study("replay")
    tuned = stored_study("stormy").group("GRPO", "lr tuned").means["lr"]
    at_tuned = f"lr {tuned:g}"
    pair, beyond = (study.pair("GRPO + R3", than, at_tuned) for than in ("GRPO", "GRPO + R2"))
    elsewhere = [study.pair("GRPO + R3", "GRPO", at) for at in study.settings if at != at_tuned]
    return Finding(
        "replay_r3",
        "GRPO gains from Routing Replay of the rollout's routes (R3) if another engine sampled.",
        "R3's authors, arXiv 2510.11370",
        verdict_of([pair]),
        f"The engine samples in bfloat16. At the rate that suited GRPO best in the stormy study: "
        f"{in_words(pair)}. At another: {'; '.join(map(in_words, elsewhere))}. Against replay of "
        f"the trainer's own routes at pi_old (R2): {in_words(beyond)}.",
        "Whether it takes the rollout's routes or any fixed ones is the comparison with R2. An "
        "engine that rounds changes few routes of so small a model.",
        ("replay",),
    )


def gspo_needs_no_replay() -> Finding:
    """Section 5.3: under GSPO the routes need not be replayed."""
    study = stored_study("replay")
    settings = study.settings
    kinds = ("R2", "R3")
    pairs = [
        study.pair(f"GSPO, measured range + {kind}", "GSPO, measured range", at)
        for at in settings
        for kind in kinds
    ]
    beside = [study.pair(f"GRPO + {kind}", "GRPO", at) for at in settings for kind in kinds]
    helps = any(pair.adjusted[0] > 0 for pair in pairs)
    hurts = all(pair.adjusted[1] < 0 for pair in pairs)
    return Finding(
        "gspo_replay",
        "With GSPO, Routing Replay is needless.",
        "the authors, arXiv 2507.18071, section 5.3; a later report finds that replay helps GSPO, "
        "too (arXiv 2510.11370)",
        FAILS if helps else HOLDS if hurts else OPEN,
        f"What replay adds under GSPO: {'; '.join(map(in_words, pairs))}. Under GRPO: "
        f"{'; '.join(map(in_words, beside))}.",
        "The engine samples in bfloat16, so that the routes of the rollout (R3) are not all those "
        "of the trainer (R2). GSPO has its measured range. No clear difference is no proof that "
        "replay does nothing.",
        ("replay",),
    )


def not_to_be_saved() -> Finding:
    """Section 1: collapse is irreversible, neither a checkpoint nor tuning brings a run back."""
    study = stored_study("rescue")
    fall = study.pair("until 60", "until 20")
    ways = ("as before", "GSPO", "R2", "lower rate")
    reached = "; ".join(
        f"{when}, {way} {study.group(f'{when}, {way}').mean:.3f}"
        for when in ("restored", "collapsed")
        for way in ways
    )
    saved = study.pair("restored, lower rate", "restored, as before")
    late = study.pair("collapsed, lower rate", "collapsed, as before")
    short = {
        when: study.pair(f"{when}, lower rate", "never collapsed")
        for when in ("restored", "collapsed")
    }
    collapsed = fall.adjusted[1] < 0
    saves = any(
        better.adjusted[0] > 0 and short[when].adjusted[1] >= 0
        for when, better in (("restored", saved), ("collapsed", late))
    )
    hopeless = saved.adjusted[1] < 0 and late.adjusted[1] < 0
    return Finding(
        "collapse",
        "A collapsed run cannot be saved, neither from an earlier checkpoint nor by tuning.",
        "the authors, arXiv 2507.18071, section 3",
        FAILS if collapsed and saves else HOLDS if collapsed and hopeless else OPEN,
        f"GRPO at a rate at which it falls apart: {in_words(fall, of='the fall')}. Forty rollouts "
        f"further on, mean held-out reward: {reached}. {in_words(saved, of='from before')}; "
        f"{in_words(late, of='from after')}. What stays lost: "
        f"{in_words(short['restored'], of='from before')}; "
        f"{in_words(short['collapsed'], of='from after')}.",
        "So a lower rate mends something, and forty rollouts do not mend all. This collapse was "
        "made, by a rate eight times the best one; the authors' came at a rate that they thought "
        "right. All go on with a fresh optimiser.",
        ("rescue",),
    )


def holds_where_grpo_collapses() -> Finding:
    """Section 5.1 again, at a rate at which GRPO does collapse, from the same policies."""
    study = stored_study("rescue")
    pairs = {
        when: study.pair(f"{when}, GSPO", f"{when}, as before")
        for when in ("restored", "collapsed")
    }
    moves = "; ".join(
        f"{arm} {np.mean(study.means(arm, None, 'step_size')):.2f}"
        for arm in ("restored, GSPO", "restored, as before", "restored, lower rate")
    )
    low = study.group("restored, lower rate").mean
    return Finding(
        "where_grpo_collapses",
        "At a rate at which GRPO collapses, GSPO goes on from the same policies better.",
        "a control of this course, on the stability that arXiv 2507.18071, section 5.1, reports",
        verdict_of(list(pairs.values())),
        f"From before the fall: {in_words(pairs['restored'], of='the same rate')}; from after it: "
        f"{in_words(pairs['collapsed'], of='the same rate')}. Mean KL per token and rollout: "
        f"{moves}.",
        "GSPO has the paper's narrow range, which lets the policy move less: less movement alone "
        f"may be the reason. GRPO at an eighth of the rate does better still ({low:.3f}).",
        ("rescue",),
    )
