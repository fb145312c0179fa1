"""The hand computations of exercises 07, 08 and 09."""

from __future__ import annotations

import math

import torch

from gspo_edu.checks.hand import HandNumber
from gspo_edu.intervals import mean_interval
from gspo_edu.moe.routes import drift, replay_gates

FOUR_PLACES, WHOLE = 5e-5, 0.05
LOGITS = (1.0, 0.4, 0.2, -0.5)
BEFORE, AFTER = ((3, 7), (0, 5), (2, 6)), ((7, 3), (5, 9), (1, 8))


def gate(logits: tuple[float, ...], chosen: tuple[int, ...], of: int) -> float:
    """Gate of expert ``of`` when ``chosen`` run."""
    given = torch.tensor(logits, dtype=torch.float64)
    return float(replay_gates(given, torch.tensor(chosen))[chosen.index(of)])


LESSON_07 = {
    "07 gate": HandNumber(
        "Four experts, top-2, router logits 1.0, 0.4, 0.2 and −0.5. What is the gate of the second "
        "chosen expert? (four decimals)",
        lambda: gate(LOGITS, (0, 1), 1),
        (
            (
                "not_renormalised",
                lambda: gate(LOGITS, (0, 1, 2, 3), 1),
                "that softmax runs over all four experts. Only the chosen two share the gate.",
            ),
            ("first_expert", lambda: gate(LOGITS, (0, 1), 0), "that is the first expert's gate."),
            ("equal_gates", lambda: 0.5, "gates follow the logits."),
            ("divided_logits", lambda: 0.4 / 1.4, "exp first: a softmax, no share of the sum."),
        ),
        FOUR_PLACES,
    ),
    "07 drift": HandNumber(
        "A token goes through three layers with two experts each. Before: {3, 7}, {0, 5}, {2, 6}. "
        "After: {7, 3}, {5, 9}, {1, 8}. What is its drift? (four decimals)",
        lambda: float(drift(torch.tensor(AFTER), torch.tensor(BEFORE))),
        (
            (
                "order_counts",
                lambda: 1.0,
                "order does not count: {3, 7} is {7, 3}.",
            ),
            ("layers", lambda: 2 / 3, "two of three layers; drift counts slots, and one stayed."),
            ("number", lambda: 3.0, "three slots. Out of how many?"),
            ("one_layer", lambda: 1 / 6, "one slot of the second layer; the third has two more."),
        ),
        FOUR_PLACES,
    ),
    "07 slots": HandNumber(
        "A model with 48 layers and 8 experts per token. An update changes 10 % of the slots. How "
        "many of a token's slots change on average?",
        lambda: 48 * 8 * 0.1,
        (
            ("layers", lambda: 48 * 0.1, "each of the 48 layers has eight slots."),
            ("one_layer", lambda: 8 * 0.1, "that is one layer."),
            ("all", lambda: 48.0 * 8, "that is how many slots there are."),
            ("rounded", lambda: 38.0, "an average need not be whole: do not round."),
        ),
        WHOLE,
    ),
    "07 route factor": HandNumber(
        "A token had the log-prob −1.3 when it was sampled and has −0.7 now; with its old experts "
        "it would have −1.1. By which factor has the change of experts alone multiplied its ratio? "
        "(four decimals)",
        lambda: math.exp(-0.7 + 1.1),
        (
            ("whole_ratio", lambda: math.exp(-0.7 + 1.3), "the whole ratio; part is the weights'."),
            ("weights_part", lambda: math.exp(-1.1 + 1.3), "that is what the weights did."),
            ("log", lambda: 0.4, "that is the log of the factor."),
            ("wrong_direction", lambda: math.exp(-0.4), "live routes minus old routes."),
        ),
        FOUR_PLACES,
    ),
}
GAPS = (0.02, 0.05, 0.01, 0.04)
MEAN_GAP = sum(GAPS) / len(GAPS)
STD_GAP = math.sqrt(sum((gap - MEAN_GAP) ** 2 for gap in GAPS) / 3)
T_THREE = 3.182

LESSON_08 = {
    "08 later updates": HandNumber(
        "A log shows a clip fraction of 0.36, the mean over all updates of a run with four "
        "mini-batches per rollout. What is the mean over the updates that can clip at all?",
        lambda: 0.36 * 4 / 3,
        (
            (
                "all_updates",
                lambda: 0.36,
                "in it is a zero for each rollout's first update.",
            ),
            ("wrong_way", lambda: 0.36 * 3 / 4, "the zeros have lowered the mean, not raised it."),
            ("sum", lambda: 0.36 * 4, "that is the sum over the four. Three of them share it."),
        ),
        FOUR_PLACES,
    ),
    "08 share": HandNumber(
        "90 % of the answers are outside the range, and 55 % of those went where their advantage "
        "wants them. Which share of the answers is clipped? (four decimals)",
        lambda: 0.9 * 0.55,
        (
            ("outside_is_clipped", lambda: 0.9, "outside is not yet clipped."),
            ("share_of_outside", lambda: 0.55, "55 % of those outside, not of all."),
            ("half", lambda: 0.45, "half of them would be; here it is 55 %."),
            ("wrong_corners", lambda: 0.9 * 0.45, "that is who keeps the gradient."),
        ),
        FOUR_PLACES,
    ),
    "08 width": HandNumber(
        "Token log-ratios have σ = 0.08, answers 256 tokens, independent of each other. How many "
        "standard deviations of log s is 4·10⁻⁴? (four decimals)",
        lambda: 4e-4 / (0.08 / 16),
        (
            ("token_spread", lambda: 4e-4 / 0.08, "those are a token's. log s has σ/√L."),
            ("length_not_root", lambda: 4e-4 / (0.08 / 256), "the root of L, not L."),
            ("spread_alone", lambda: 0.08 / 16 / 2, "divide the range by the spread."),
        ),
        FOUR_PLACES,
    ),
    "08 paired": HandNumber(
        "Four seeds. GSPO minus GRPO on the same seeds: 0.02, 0.05, 0.01 and 0.04. What is the "
        "lower end of the 95 % interval of the mean? (Student's t for four values is 3.182; four "
        "decimals.)",
        lambda: mean_interval(list(GAPS))[0],
        (
            ("normal", lambda: MEAN_GAP - 1.96 * STD_GAP / 2, "for four seeds t is 3.182."),
            (
                "population_std",
                lambda: MEAN_GAP - T_THREE * STD_GAP * math.sqrt(3 / 4) / 2,
                "that std has n in it; an interval takes n − 1.",
            ),
            ("no_root_n", lambda: MEAN_GAP - T_THREE * STD_GAP, "divide the std by √4."),
            ("mean", lambda: MEAN_GAP, "that is the middle of the interval."),
            ("upper", lambda: MEAN_GAP + T_THREE * STD_GAP / 2, "that is the upper end."),
        ),
        FOUR_PLACES,
    ),
}

LESSON_09 = {
    "09 gate": HandNumber(
        "Three experts, top-2. The recorded route is {0, 2}; the live logits are 1.2, 0.9 and 0.3, "
        "so the router would now choose {0, 1}. Which gate does expert 2 get in replay? (four "
        "decimals)",
        lambda: gate((1.2, 0.9, 0.3), (0, 2), 2),
        (
            ("not_chosen", lambda: 0.0, "replay runs expert 2, whatever the router would do."),
            ("live_experts", lambda: gate((1.2, 0.9, 0.3), (0, 1), 1), "the live choice's gate."),
            (
                "not_renormalised",
                lambda: gate((1.2, 0.9, 0.3), (0, 1, 2), 2),
                "the softmax runs over the recorded experts only.",
            ),
            ("equal_gates", lambda: 0.5, "replay fixes who runs, not how much each counts."),
            (
                "other_expert",
                lambda: gate((1.2, 0.9, 0.3), (0, 2), 0),
                "that is expert 0's. The two add up to 1.",
            ),
        ),
        FOUR_PLACES,
    ),
    "09 bytes": HandNumber(
        "16 layers, 64 experts, 4 per token, one byte per number. How many bytes is the trace of "
        "an answer of 500 tokens?",
        lambda: 16.0 * 4 * 500,
        (
            ("all_scores", lambda: 16.0 * 64 * 500, "only the four chosen experts are kept."),
            ("one_slot", lambda: 16.0 * 500, "four experts per token and layer."),
            ("one_token", lambda: 16.0 * 4, "that is one token."),
            ("one_layer", lambda: 4.0 * 500, "that is one layer."),
            (
                "gates_as_well",
                lambda: 2 * 16.0 * 4 * 500,
                "no gates are kept: they come from the live router.",
            ),
        ),
        WHOLE,
    ),
    "09 route factor": HandNumber(
        "A token had the log-prob −1.2 when it was sampled and has −0.5 now; with the old experts "
        "replayed it would have −0.9. Which ratio does GRPO clip by without replay? (four "
        "decimals)",
        lambda: math.exp(0.7),
        (
            ("weights_part", lambda: math.exp(0.3), "that is the ratio with replay."),
            ("route_part", lambda: math.exp(0.4), "that is the factor from the routes alone."),
            ("inverse", lambda: math.exp(-0.7), "upside down: now over then."),
            ("log", lambda: 0.7, "that is its log."),
        ),
        FOUR_PLACES,
    ),
    "09 forgiven": HandNumber(
        "In an answer of 200 tokens five ratios jump to 2 because an expert changed; the others "
        "are 1. What is s? (four decimals)",
        lambda: 2 ** (5 / 200),
        (
            ("no_root", lambda: 2.0**5, "that is the product. Take the 200th root."),
            ("arithmetic_mean", lambda: (195 + 10) / 200, "that is the mean of the ratios."),
            ("one_token", lambda: 2 ** (1 / 200), "five tokens jump."),
            ("log", lambda: 5 * math.log(2) / 200, "that is log s. Take exp."),
            (
                "precedence",
                lambda: 2**5 / 200,
                "x ** 5 / 200 is (x ** 5) / 200 in Python. Put 5 / 200 in brackets.",
            ),
            ("no_change", lambda: 1.0, "nearly; but GSPO's range ends at 1.0004."),
        ),
        FOUR_PLACES,
    ),
}
