"""What the stored studies say about the statements of the GSPO paper, worked out from the tables.

    for one in findings():
        print(one.verdict, one.statement, one.numbers)

See ``verdict_rules`` for how a verdict comes about and ``verdict_page`` for the page in docs/.
"""

from __future__ import annotations

import math

import numpy as np

from gspo_edu.stored_studies import stored_study
from gspo_edu.study_summary import listed
from gspo_edu.verdict_controls import (
    GROWTH,
    experts_cost,
    grows,
    gspo_needs_no_replay,
    holds_where_grpo_collapses,
    more_compute,
    not_to_be_saved,
    other_engine,
    rollout_routes_help,
    same_step,
)
from gspo_edu.verdict_rules import (
    FAILS,
    HOLDS,
    LARGE_RATE,
    OPEN,
    Finding,
    another_pair,
    drops,
    in_words,
    ratio_of_means,
    verdict_of,
)

A_TENTH = 0.08  # from here on a share is about a tenth
ORDERS = 1.5  # from here on a factor is nearer to two orders of magnitude than to one


def more_stable() -> Finding:
    """Section 5.1: GSPO trains stably where GRPO does not."""
    storm = stored_study("stormy")
    pair = storm.pair("GSPO", "GRPO", LARGE_RATE)
    falls = {arm: drops(storm, arm, LARGE_RATE) for arm in ("GRPO", "GSPO")}
    broken = {arm: storm.group(arm, LARGE_RATE).diverged for arm in falls}
    words = ", ".join(
        f"{arm} {np.mean(list(by_seed.values())):.3f} "
        f"({'no seed' if not broken[arm] else 'seeds ' + listed(broken[arm])} diverged)"
        for arm, by_seed in falls.items()
    )
    return Finding(
        "stable",
        "On a mixture of experts GSPO trains more stably than GRPO.",
        "the authors, arXiv 2507.18071, sections 1 and 5.1",
        verdict_of([pair]),
        f"At a learning rate that is large on purpose: {in_words(pair)}. Mean fall of the held-out "
        f"reward from its highest point to the end: {words}.",
        "A large rate makes a storm of its own kind. The authors' instability grew over long "
        "training of a model of 48 layers at a rate that they do not call large.",
        ("stormy",),
    )


def more_efficient() -> Finding:
    """Section 5.1: more reward for the same compute."""
    pairs = {
        name: stored_study(name).pair("GSPO", "GRPO", "lr tuned") for name in ("calm", "stormy")
    }
    return Finding(
        "efficient",
        "For the same compute GSPO reaches a higher reward than GRPO.",
        "the authors, arXiv 2507.18071, section 5.1",
        verdict_of(list(pairs.values())),
        "; ".join(f"{name}: {in_words(pair)}" for name, pair in pairs.items())
        + ". Each at the rate that suits it best, with the paper's clip ranges.",
        "The paper's range is meant for answers of thousands of tokens; these have five to nine.",
        ("calm", "stormy"),
    )


def the_unit() -> Finding:
    """The ratio's unit by itself, with a range measured for these answers."""
    pairs = {
        name: stored_study(name).pair("GSPO, measured range", "GRPO", "lr tuned")
        for name in ("calm", "stormy")
    }
    return Finding(
        "unit",
        "One ratio per answer is the better unit: with a range that fits, GSPO is ahead of GRPO.",
        "the argument of arXiv 2507.18071, sections 3 and 4",
        verdict_of(list(pairs.values())),
        "; ".join(f"{name}: {in_words(pair)}" for name, pair in pairs.items())
        + ". Range measured so that 30 % of the answers lie outside at the beginning.",
        "Short answers leave a geometric mean little to average over.",
        ("calm", "stormy"),
    )


def clipping_share() -> Finding:
    """Section 5.2, first half: two orders of magnitude more clipped tokens."""
    ratios = {
        name: ratio_of_means(
            stored_study(name), "lr tuned", ("GSPO", "GRPO"), "clip_fraction_token_weighted"
        )
        for name in ("calm", "stormy")
    }
    orders = [math.log10(ratio) for ratio in ratios.values()]
    return Finding(
        "clipping",
        "GSPO clips two orders of magnitude more tokens than GRPO.",
        "the authors, arXiv 2507.18071, section 5.2 (0.15 against 0.0013)",
        HOLDS if min(orders) >= ORDERS else FAILS,
        "Share of tokens clipped, GSPO over GRPO: "
        + ", ".join(f"{name} {ratio:.0f} times" for name, ratio in ratios.items())
        + f", that is {' and '.join(f'{order:.1f}' for order in orders)} orders of magnitude.",
        "The factor follows from how tight the two ranges are for the spread of the ratios, not "
        "from the methods: a GSPO with a wider range clips less than GRPO.",
        ("calm", "stormy"),
    )


def drift() -> Finding:
    """Section 5.3: a tenth of the activated experts change with an update."""
    words, shares = [], []
    for name, setting in (("calm", "lr tuned"), ("stormy", "lr tuned"), ("stormy", LARGE_RATE)):
        share = float(np.mean(stored_study(name).means("GRPO", setting, "drift_per_update")))
        words.append(f"{name}, {setting} {share:.1%}")
        shares.append(share)
    return Finding(
        "drift",
        "After a gradient update about 10 % of the activated experts differ.",
        "the authors, arXiv 2507.18071, section 5.3, of a model of 48 layers",
        HOLDS if max(shares) >= A_TENTH else FAILS,
        f"Mean drift per update under GRPO: {'; '.join(words)}.",
        "Drift depends on the learning rate, on depth and on the number of experts: another model "
        "has another figure.",
        ("calm", "stormy"),
    )


def needs_replay() -> Finding:
    """Section 5.3: without Routing Replay GRPO does not converge on a mixture of experts."""
    gains, pairs, learned = [], [], []
    for name in ("calm", "stormy"):
        study = stored_study(name)
        group = study.group("GRPO", "lr tuned")
        start = group.means["start"]
        gains.append(f"{name} from {start:.3f} to {group.mean:.3f}")
        learned.append(min(group.values.values()) > start)
        pairs.append(study.pair("GRPO + R2", "GRPO", "lr tuned"))
    return Finding(
        "replay",
        "Without Routing Replay GRPO does not converge on a mixture of experts.",
        "the authors, arXiv 2507.18071, sections 5.1 and 5.3",
        FAILS if all(learned) else OPEN,
        f"Held-out reward of GRPO without replay: {'; '.join(gains)}; "
        f"{'higher than at the start on every seed' if all(learned) else 'not on every seed'}. "
        f"What replay adds: {'; '.join(map(in_words, pairs))}.",
        "Two layers, and one engine that both samples and trains. Later reports on large models "
        "are mixed.",
        ("calm", "stormy"),
    )


def root() -> Finding:
    """Section 4.1: without length normalisation ratios swing and answers need other ranges."""
    pairs = {
        name: another_pair(
            stored_study(name), "GSPO, measured range", "product, no root", "lr tuned"
        )
        for name in ("calm", "stormy")
    }
    return Finding(
        "root",
        "The ratio needs its root: the plain product of the token ratios trains worse.",
        "the argument of arXiv 2507.18071, section 4.1",
        verdict_of(list(pairs.values())),
        "; ".join(f"{name}: {in_words(pair)}" for name, pair in pairs.items())
        + ". The product has the range 0.2, GSPO one that fits, too.",
        "A product of a few ratios is still a tame number; one of thousands is not (lesson 05).",
        ("calm", "stormy"),
    )


def best_of_family() -> Finding:
    """Not the paper's statement, but often made of it."""
    words, above = [], []
    for name in ("calm", "stormy"):
        groups = [g for g in stored_study(name).groups if g.setting == "lr tuned"]
        ranked = sorted(groups, key=lambda group: -group.mean)
        place = [group.arm for group in ranked].index("GSPO") + 1
        words.append(
            f"{name}: {ranked[0].arm} {ranked[0].mean:.3f}; GSPO {ranked[place - 1].mean:.3f}, "
            f"place {place} of {len(ranked)}"
        )
        above.append(place == 1)
    return Finding(
        "best",
        "GSPO is the best of the family.",
        "praise in public posts; ScaleRL, arXiv 2510.13786, has CISPO a little ahead",
        HOLDS if all(above) else FAILS,
        f"Highest mean at tuned rates: {'; '.join(words)}.",
        "Which one leads depends on the setting; most of these differences are smaller than what "
        "eight seeds can tell.",
        ("calm", "stormy"),
    )


def findings() -> list[Finding]:
    """All statements that the stored studies can say something about."""
    return [
        more_stable(),
        more_efficient(),
        the_unit(),
        clipping_share(),
        root(),
        drift(),
        needs_replay(),
        rollout_routes_help(),
        gspo_needs_no_replay(),
        best_of_family(),
        same_step(),
        experts_cost(),
        more_compute(),
        other_engine(),
        not_to_be_saved(),
        holds_where_grpo_collapses(),
        *(grows(name) for name in GROWTH),
    ]


def finding(key: str) -> Finding:
    """The finding of that name.

    Raises:
        KeyError: if there is none.
    """
    return {one.key: one for one in findings()}[key]
