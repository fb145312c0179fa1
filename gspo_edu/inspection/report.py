"""The report that ``gspo-edu inspect`` prints: plain text, one block per question."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gspo_edu.inspection.findings import Finding
from gspo_edu.inspection.rules import bounds_text
from gspo_edu.plots import LABELS

Numbers = Mapping[str, Any]
WIDTH = 88
NONE = "-"


def report(numbers: Numbers, found: Sequence[Finding], title: str) -> str:
    """Everything as text, warnings first."""
    blocks = [
        [f"{title}: {numbers['answers']:,} answers, {numbers['tokens']:,} response tokens"],
        warning_lines(found),
        about_answers(numbers),
        about_ratios(numbers),
        about_correlation(numbers),
        about_clipping(numbers),
        about_ranges(numbers),
        about_engine(numbers),
        about_routes(numbers),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def warning_lines(found: Sequence[Finding]) -> list[str]:
    """Every warning as a paragraph with a number."""
    if not found:
        return ["No warnings."]
    lines = [f"Warnings ({len(found)})"]
    for number, finding in enumerate(found, start=1):
        lead = f"{number:3}. "
        lines += textwrap.wrap(
            finding.text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)
        )
    return lines


def row(name: str, value: str, note: str = "") -> str:
    """One line of a block: name, number, and what it is to be held against."""
    return f"  {name:<38} {value:>12}  {note}".rstrip()


def number(value: float | None, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return NONE if value is None else format(value, form)


def about_answers(numbers: Numbers) -> list[str]:
    """Lengths, rewards and advantages."""
    length, rewards = numbers["length"], numbers["rewards"]
    span = f"{length['min']} to {length['max']}, median {length['median']:g}"
    lines = ["Answers", row("length in tokens, mean", number(length["mean"], ".1f"), span)]
    if length["within_group_spread"] is not None:
        note = "std over mean, averaged over groups"
        lines.append(
            row("length within groups", number(length["within_group_spread"], ".0%"), note)
        )
    if length["unfinished_fraction"] is not None:
        lines.append(row("cut by the length limit", number(length["unfinished_fraction"], ".1%")))
    if rewards is not None:
        note = f"std {number(rewards['std'])}"
        if rewards["missing"]:
            note += f"; {rewards['missing']} answers have none"
        lines.append(row("reward, mean", number(rewards["mean"]), note))
        dead = rewards["signalless_group_fraction"]
        if dead is not None:
            note = f"of {rewards['groups']:,} groups; all their rewards are equal"
            lines.append(row("groups without signal", number(dead, ".1%"), note))
    if numbers["advantages"] is not None:
        about = numbers["advantages"]
        note = f"zero: {about['zero_fraction']:.1%}"
        lines.append(row("answers with A > 0", number(about["positive_fraction"], ".1%"), note))
    if numbers["updates"] is not None:
        lines.append(row("updates", f"{numbers['updates']:,}"))
    return lines


def about_ratios(numbers: Numbers) -> list[str]:
    """Token log-ratios, and log s against what independent tokens would give."""
    token, sequence = numbers["token_log_ratio"], numbers["sequence_log_ratio"]
    low, high = sequence["min"], sequence["max"]
    return [
        "Ratios",
        row("sigma: std of token log-ratios", number(token["std"]), f"mean {token['mean']:.3g}"),
        row("KL(old || new) per token, k3", number(token["kl_from_old"])),
        row(
            "log s, mean", number(sequence["mean"]), f"-sigma²/2 = {sequence['expected_mean']:.4g}"
        ),
        row(
            "log s, std", number(sequence["std"]), f"sigma/sqrt(L) = {sequence['expected_std']:.4g}"
        ),
        row("log s, smallest and largest", "", f"{low:.4g} and {high:.4g}"),
        row(
            "effective sample size over answers",
            number(sequence["effective_sample_fraction"], ".4f"),
        ),
        row("answers whose ratio is 1", number(sequence["on_policy_fraction"], ".1%")),
    ]


def about_correlation(numbers: Numbers) -> list[str]:
    """How log-ratios of an answer's tokens depend on each other."""
    found = numbers["token_log_ratio"]["autocorrelation"]
    if not found:
        return []
    distances = "".join(f"{lag:>8}" for lag in found)
    values = "".join(f"{number(value, '.3f'):>8}" for value in found.values())
    return [
        "Autocorrelation of token log-ratios",
        f"  distance in tokens  {distances}",
        f"  correlation         {values}",
    ]


def about_clipping(numbers: Numbers) -> list[str]:
    """Which share each objective would clip, and which lies outside."""
    lines = [
        "What would be clipped (min() takes the clipped branch) and what lies outside the range",
        f"  {'':<35}{'mean over answers':>18}{'over all tokens':>18}",
        f"  {'objective':<18}{'range':<17}" + f"{'clipped':>9}{'outside':>9}" * 2,
    ]
    for rule in numbers["clip"]:
        shares = [
            rule[f"{kind}_fraction_{weight}"]
            for weight in ("seq", "token_weighted")
            for kind in ("clip", "outside")
        ]
        if rule["objective"] == "cispo":  # no min(), so nothing that it could choose
            shares[0] = shares[2] = None
        cells = [number(share, ".2%") for share in shares]
        whose = "" if rule["whose"] == "default" else f"  {rule['whose']}"
        lines.append(
            f"  {LABELS[rule['objective']]:<18}{bounds_text(rule['settings']):<17}"
            f"{cells[0]:>9}{cells[1]:>9}{cells[2]:>9}{cells[3]:>9}{whose}"
        )
    if numbers["advantages"] is None:
        lines.append(
            "  Whether an answer outside is clipped depends on its advantage: add columns rewards "
            "and group."
        )
    return lines


def about_ranges(numbers: Numbers) -> list[str]:
    """Ranges for GSPO that would clip a wanted share."""
    if not numbers["ranges"]:
        return []
    lines = [
        "A range for GSPO that would clip a share of answers (from quantiles of log s)",
        f"  {'wanted':>8}{'clip_low':>13}{'clip_high':>13}{'outside':>10}{'clipped':>10}",
    ]
    for found in numbers["ranges"]:
        lines.append(
            f"  {found['clip_fraction_wanted']:>8.1%}{found['clip_low']:>13.3g}"
            f"{found['clip_high']:>13.3g}{found['outside_fraction_seq']:>10.1%}"
            f"{number(found['clip_fraction_seq'], '.1%'):>10}"
        )
    if numbers["sequence_log_ratio"]["on_policy_fraction"]:
        lines.append("  Answers whose ratio is 1 are left out here.")
    return lines


def about_engine(numbers: Numbers) -> list[str]:
    """How far the engine's log-probs are from the trainer's."""
    engine = numbers["engine"]
    if engine is None:
        return []
    token = f"mean {number(engine['token_log_ratio_mean'], '.3g')}, "
    token += f"largest {number(engine['token_log_ratio_max'], '.3g')}"
    sequence = f"mean {number(engine['sequence_log_ratio_mean'], '.3g')}, "
    sequence += f"largest {number(engine['sequence_log_ratio_max'], '.3g')}"
    lines = [
        "Engine against trainer (log pi_old of the trainer minus that of the engine)",
        row("token log-ratio, std", number(engine["token_log_ratio_std"]), token),
        row("log s, std", number(engine["sequence_log_ratio_std"]), sequence),
        row(
            "answers outside GSPO's range",
            number(engine["outside_fraction_seq"], ".1%"),
            "by it alone",
        ),
    ]
    if engine["missing_tokens"]:
        lines.append(row("tokens without the engine's number", f"{engine['missing_tokens']:,}"))
    return lines


def about_routes(numbers: Numbers) -> list[str]:
    """How many experts have changed since the answers were sampled."""
    routes = numbers["routes"]
    if routes is None:
        return []
    return [
        "Routes against the reference",
        row(
            "drift per rollout", number(routes["drift_per_rollout"], ".2%"), "share of expert slots"
        ),
        row(
            "tokens with a changed expert", number(routes["changed_tokens"], ".1%"), "in some layer"
        ),
    ]
