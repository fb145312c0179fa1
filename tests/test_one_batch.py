"""The one batch is what the lessons say it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import OBJECTIVES, clipped_surrogate
from gspo_edu.one_batch import ANSWERS, ONE_BATCH, PROMPT
from gspo_edu.ratios import sequence_ratio, token_ratio
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import END, PAD, SYMBOLS

VECTORS = json.loads((Path(__file__).parent / "data/vectors.json").read_text(encoding="utf-8"))
WANTED = [[1.5, 0.5, 1.0], [0.5, 2.0], [1.25], [1.2, 0.9, 1.0, 1.1]]


def test_lengths_rewards_and_ratios() -> None:
    batch = ONE_BATCH.tensors()
    assert ONE_BATCH.lengths.tolist() == [3, 2, 1, 4]
    assert ONE_BATCH.rewards.tolist() == [1.0, 0.0, 0.5, 0.0]
    ratio = token_ratio(batch.logp, batch.logp_old, batch.mask)
    for row, wanted in enumerate(WANTED):
        assert ratio[row, : len(wanted)].tolist() == pytest.approx(wanted, abs=1e-10)
        assert not batch.mask[row, len(wanted) :].any()


def test_probabilities_and_log_probs_agree() -> None:
    assert np.allclose(np.exp(ONE_BATCH.logp), ONE_BATCH.prob, atol=1e-10)
    assert np.allclose(np.exp(ONE_BATCH.logp_old), ONE_BATCH.prob_old, atol=1e-10)


@pytest.mark.parametrize("name", ["ppo", "grpo", "gspo"])
def test_whoever_forgets_the_mask_gets_another_number(name: str) -> None:
    batch = ONE_BATCH.tensors()
    advantages = group_advantages(batch.rewards, batch.group)
    everywhere = torch.ones_like(batch.mask)
    losses = [
        OBJECTIVES[name](batch.logp, batch.logp_old, advantages, mask).loss.item()
        for mask in (batch.mask, everywhere)
    ]
    assert abs(losses[0] - losses[1]) > 0.01
    # Right lengths, but a sum that runs over the padding.
    log_ratio, lengths = ONE_BATCH.logp - ONE_BATCH.logp_old, ONE_BATCH.lengths
    forgotten = np.exp(log_ratio.sum(axis=1) / lengths)
    s = np.exp(log_ratio.sum(axis=1, where=ONE_BATCH.mask) / lengths)
    assert (np.abs(forgotten - s) > 0.01).tolist() == (lengths < 4).tolist()


def test_first_tokens_differ_and_their_probabilities_fit_into_one() -> None:
    first = [answer[0] for answer in ANSWERS]
    assert len(set(first)) == len(first)
    assert ONE_BATCH.prob_old[:, 0].sum() <= 1
    assert ONE_BATCH.prob[:, 0].sum() <= 1


def test_the_verifier_gives_these_rewards() -> None:
    symbol = {text: token for token, text in enumerate(SYMBOLS)}
    prompt = torch.tensor([[symbol[word] for word in PROMPT.split()]] * len(ANSWERS))
    width = max(map(len, ANSWERS)) + 1
    rows = [[*(symbol[t] for t in answer), END] for answer in ANSWERS]
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    finished = torch.ones(len(ANSWERS), dtype=torch.bool)
    rewards = ClockWalk().rewards(prompt, tokens, tokens != PAD, finished)
    assert rewards.tolist() == ONE_BATCH.rewards.tolist()


def test_all_four_corners_of_the_clip_occur_and_nothing_lies_on_a_bound() -> None:
    batch = ONE_BATCH.tensors()
    ratio = token_ratio(batch.logp, batch.logp_old, batch.mask)
    advantage = group_advantages(batch.rewards, batch.group)[:, None].expand_as(ratio)
    _, clipped, outside = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    corners = {
        (bool(advantage[at] > 0), bool(ratio[at] > 1), bool(clipped[at]))
        for at in map(tuple, (outside & batch.mask).nonzero().tolist())
    }
    assert corners == {
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    }
    distance = (ratio[batch.mask][:, None] - torch.tensor([0.8, 1.2], dtype=ratio.dtype)).abs()
    assert distance.min() > 1e-13


def test_second_answer_multiplies_to_one() -> None:
    batch = ONE_BATCH.tensors()
    s = sequence_ratio(batch.logp, batch.logp_old, batch.mask)
    assert s.tolist() == pytest.approx([0.75 ** (1 / 3), 1.0, 1.25, 1.188**0.25], abs=1e-10)


@pytest.mark.parametrize("name", ["ppo", "grpo", "gspo", "gspo_token"])
def test_the_four_token_answer_is_the_one_of_the_reference_file(name: str) -> None:
    case = next(c for c in VECTORS if c["id"] == f"worked/four/{name}/A+1")["inputs"]
    settings = {k: v for k, v in case["config"].items() if k not in ("kind", "loss")}
    batch = ONE_BATCH.tensors()
    ours = batch.logp[3:], batch.logp_old[3:]
    theirs = (torch.tensor(case[key], dtype=torch.float64) for key in ("logp", "logp_old"))
    mask, advantage = batch.mask[3:], torch.ones(1, dtype=torch.float64)
    losses = [
        OBJECTIVES[name](logp, old, advantage, mask, **settings).loss.item()
        for logp, old in (ours, tuple(theirs))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-10)


def test_arrays_are_read_only_and_tensors_are_copies() -> None:
    with pytest.raises(ValueError, match="read-only"):
        ONE_BATCH.logp[0, 0] = 0.0
    ONE_BATCH.tensors().logp[0, 0] = 5.0
    assert ONE_BATCH.logp[0, 0] == pytest.approx(np.log(0.3))


def test_table_has_one_line_per_token() -> None:
    lines = ONE_BATCH.table().splitlines()
    assert len(lines) == 2 + ONE_BATCH.mask.sum()
    assert lines[2].split() == ["1", "9", "0.20", "0.30", "1.0"]
