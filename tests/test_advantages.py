"""Group advantages: values, precision, and what they refuse."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_edu.advantages import (
    check_rewards,
    gae,
    group_advantages,
    leave_one_out,
    standardized,
)

CASES = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())
WORKED = [
    case
    for case in CASES
    if case["inputs"]["config"]["kind"] == "advantages" and "advantages" in case["expect"]
]
few = settings(derandomize=True, max_examples=40, deadline=None)
groups_of_rewards = st.lists(
    st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=5), min_size=1, max_size=4
)


def flat(groups):
    rewards = torch.tensor([reward for group in groups for reward in group], dtype=torch.float64)
    ids = torch.tensor([index for index, group in enumerate(groups) for _ in group])
    return rewards, ids


def sums(advantages, ids):
    return torch.zeros(int(ids.max()) + 1, dtype=advantages.dtype).index_add(0, ids, advantages)


def test_one_of_four_right():
    """Rewards 1, 0, 0, 0: mean 1/4, population std sqrt(3)/4."""
    got = group_advantages([1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0])
    torch.testing.assert_close(got, torch.tensor([3.0, -1.0, -1.0, -1.0]) / math.sqrt(3))


def test_ddof_and_eps():
    """ddof=1 divides by sqrt(sum of squares / 3), eps is added to the std."""
    rewards, ids = torch.tensor([1.0, 0.0, 0.0, 0.0]), [0] * 4
    centred = torch.tensor([0.75, -0.25, -0.25, -0.25])
    torch.testing.assert_close(group_advantages(rewards, ids, ddof=1), centred / 0.5)
    torch.testing.assert_close(group_advantages(rewards, ids, ddof=1, eps=0.5), centred)
    torch.testing.assert_close(group_advantages(rewards, ids, normalize=False), centred)


@pytest.mark.parametrize("case", WORKED, ids=[case["id"] for case in WORKED])
def test_advantages_of_every_worked_group_sum_to_zero(case):
    """A printed table of advantages that does not sum to 0 per group is wrong."""
    config = {k: v for k, v in case["inputs"]["config"].items() if k != "kind"}
    ids = torch.tensor(case["inputs"]["group_ids"])
    for advantages in (
        torch.tensor(case["expect"]["advantages"]),
        group_advantages(torch.tensor(case["inputs"]["rewards"]), ids, **config),
    ):
        _, group = torch.unique(ids, return_inverse=True)
        assert sums(advantages, group).abs().max() < 1e-6


@few
@given(groups_of_rewards)
def test_mean_zero_and_variance_one(groups):
    """Each group sums to 0, and has population variance 1 unless it is flat."""
    rewards, ids = flat(groups)
    got = group_advantages(rewards, ids)
    assert sums(got, ids).abs().max() < 1e-6
    for index, group in enumerate(groups):
        spread = max(group) - min(group)
        if spread == 0:
            assert (got[ids == index] == 0).all()
        elif spread > 1e-3:
            assert float((got[ids == index] ** 2).mean()) == pytest.approx(1)


@few
@given(groups_of_rewards, st.floats(0.5, 4), st.floats(-3, 3), st.randoms())
def test_scale_offset_and_order_do_not_matter(groups, scale, offset, dice):
    """Rewards may be scaled, shifted and listed in any order with any group ids."""
    rewards, ids = flat(groups)
    rewards = (rewards * 64).round() / 64
    wanted = group_advantages(rewards, ids)
    torch.testing.assert_close(
        group_advantages(rewards * scale + offset, ids), wanted, rtol=1e-9, atol=1e-9
    )
    order = torch.tensor(dice.sample(range(len(ids)), len(ids)))
    torch.testing.assert_close(group_advantages(rewards[order], 7 - 3 * ids[order]), wanted[order])


@few
@given(groups_of_rewards)
def test_leave_one_out_by_its_definition(groups):
    """reward - mean of the others, computed answer by answer."""
    wanted = [
        reward - (sum(group[:i]) + sum(group[i + 1 :])) / (len(group) - 1)
        for group in groups
        for i, reward in enumerate(group)
    ]
    got = leave_one_out(*flat(groups))
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, -1e6])
def test_equal_rewards_give_exactly_zero(reward, ddof):
    """Rounding of the mean must not be blown up to advantages of size 1."""
    for dtype in (torch.float32, torch.float64):
        rewards = torch.full((7,), reward, dtype=dtype)
        assert (group_advantages(rewards, [0] * 7, ddof=ddof) == 0).all()


def test_flat_group_beside_one_with_signal():
    """Only the flat group is silent."""
    got = group_advantages([1.0, 1.0, 0.0, 1.0], [5, 5, 9, 9])
    torch.testing.assert_close(got, torch.tensor([0.0, 0.0, -1.0, 1.0]))


@pytest.mark.parametrize("advantages", [group_advantages, leave_one_out])
def test_group_of_one_is_refused(advantages):
    """It has no baseline; the error names the group and says what to do."""
    with pytest.raises(ValueError, match=r"group 8 has one answer.*at least two answers"):
        advantages([1.0, 0.0, 1.0], [3, 3, 8])


@pytest.mark.parametrize("advantages", [group_advantages, leave_one_out])
@pytest.mark.parametrize(
    ("broken", "shown"),
    [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (None, "nan")],
)
def test_broken_reward_names_prompt_and_answer(advantages, broken, shown):
    """The third answer of prompt 4 is row 5: counting starts at 0, in the order of its group."""
    rewards, ids = [1.0, 0.0, 1.0, 0.0, 0.5, broken], [4, 2, 2, 4, 2, 4]
    with pytest.raises(ValueError, match=rf"prompt 4, answer 2 \(row 5\) is {shown};"):
        advantages(rewards, ids)
    if broken is not None:
        with pytest.raises(ValueError, match=r"prompt 4, answer 2 \(row 5\)"):
            check_rewards(torch.tensor(rewards), torch.tensor(ids))


def test_sound_rewards_pass_the_check():
    """Zero, negative and large rewards are all right."""
    check_rewards(torch.tensor([0.0, -3.0, 1e30]), torch.tensor([0, 0, 1]))


@pytest.mark.parametrize(
    ("rewards", "ids"),
    [
        (torch.zeros(4), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64)),
        (torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)),
    ],
)
def test_other_shapes_are_refused(rewards, ids):
    """Rewards (P, G) or (B, 1) are an error that shows both shapes."""
    with pytest.raises(ValueError, match=r"shape \(B,\)") as caught:
        group_advantages(rewards, ids)
    assert str(tuple(rewards.shape)) in str(caught.value)


@pytest.mark.parametrize("setting", [{"ddof": 2}, {"ddof": -1}, {"eps": -1e-4}, {"eps": math.nan}])
def test_unusable_settings_are_refused(setting):
    """With ddof=2 a group of two would be divided by zero without a word."""
    with pytest.raises(ValueError, match=next(iter(setting))):
        group_advantages([1.0, 0.0], [0, 0], **setting)


def test_unknown_keyword():
    """A misspelt setting must not be ignored."""
    with pytest.raises(TypeError, match="normalise"):
        group_advantages([1.0, 0.0], [0, 0], normalise=False)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize(
    "dtype_and_scale",
    [
        *((torch.float32, scale) for scale in (1e-38, 1e-30, 1.0, 1e30, 1.5e38)),
        *((torch.float64, scale) for scale in (1e-300, 1e-160, 1.0, 1e160, 1e300)),
        *((None, scale) for scale in (1e-300, 1e-46, 1e39, 1e300)),
    ],
)
def test_tiny_and_huge_rewards_are_normalised(dtype_and_scale, ddof):
    """Squares of the deviations leave the number format; None: rewards in a list."""
    dtype, scale = dtype_and_scale
    rewards = [scale, -scale, 2 * scale]
    rewards = rewards if dtype is None else torch.tensor(rewards, dtype=dtype)
    wanted = group_advantages([1.0, -1.0, 2.0], [0, 0, 0], ddof=ddof)
    got = group_advantages(rewards, [0, 0, 0], ddof=ddof)
    assert got.dtype == (dtype or torch.float32)
    torch.testing.assert_close(got.float(), wanted)


def test_rewards_that_differ_in_the_last_digit_are_normalised():
    """Only equal rewards are a flat group: one step of float32 beside 1 is a difference."""
    rewards = torch.tensor([1.0, 1.0 + 2**-23])
    torch.testing.assert_close(group_advantages(rewards, [0, 0]), torch.tensor([-1.0, 1.0]))


def test_whole_number_and_low_precision_rewards():
    """Integers, booleans and bfloat16 are computed in float32."""
    wanted = group_advantages([1.0, 0.0, 0.0], [0, 0, 0])
    for rewards in (torch.tensor([1, 0, 0]), torch.tensor([True, False, False]), [1, 0, 0]):
        torch.testing.assert_close(group_advantages(rewards, [0, 0, 0]), wanted)
    low = group_advantages(torch.tensor([1.0, 0.0, 0.0], dtype=torch.bfloat16), [0, 0, 0])
    torch.testing.assert_close(low, wanted)


def seeded_answers(rows=5, width=7, seed=0):
    """(rewards (B, T), values, mask) in float64, with padding and environment tokens."""
    dice = torch.Generator().manual_seed(seed)
    rewards = torch.randn(rows, width, generator=dice, dtype=torch.float64)
    values = torch.randn(rows, width, generator=dice, dtype=torch.float64)
    mask = torch.rand(rows, width, generator=dice) < 0.7
    mask[0], mask[1] = True, False
    return rewards, values, mask


def gae_as_double_sum(rewards, values, gamma, lam):
    """One answer without gaps: A_t = sum over l of (gamma lam)^l times the TD error at t + l."""
    later = [*values, 0.0][1:]
    errors = [r + gamma * b - v for r, v, b in zip(rewards, values, later, strict=True)]
    return [
        sum((gamma * lam) ** gap * error for gap, error in enumerate(errors[start:]))
        for start in range(len(errors))
    ]


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_gae_is_the_double_sum_over_response_tokens(gamma, lam):
    """Environment tokens and padding are cut out before the sum: they take no step."""
    rewards, values, mask = seeded_answers()
    advantages, targets = gae(rewards, values, mask, gamma=gamma, lam=lam)
    for row, inside in enumerate(mask):
        wanted = gae_as_double_sum(
            rewards[row, inside].tolist(), values[row, inside].tolist(), gamma, lam
        )
        wanted = torch.tensor(wanted, dtype=torch.float64)
        tight = {"rtol": 0, "atol": 1e-12}
        torch.testing.assert_close(advantages[row, inside], wanted, **tight)
        torch.testing.assert_close(targets[row, inside], wanted + values[row, inside], **tight)
    assert (advantages[~mask] == 0).all()
    assert (targets[~mask] == 0).all()


def test_gae_by_hand():
    """Values 0.2 and 0.6, reward 1, gamma 1/2, lam 1/2: TD errors 0.3 - 0.2 and 1 - 0.6."""
    advantages, targets = gae(
        torch.tensor([1.0]), torch.tensor([[0.2, 0.6]]), torch.ones(1, 2), gamma=0.5, lam=0.5
    )
    torch.testing.assert_close(advantages, torch.tensor([[0.1 + 0.25 * 0.4, 0.4]]))
    torch.testing.assert_close(targets, torch.tensor([[0.4, 1.0]]))


def test_gae_with_lam_1_is_the_return_minus_the_value():
    """With gamma 1 the return is the answer's reward at every token, whatever the later values."""
    _, values, mask = seeded_answers()
    reward = torch.arange(5.0, dtype=torch.float64)
    advantages, targets = gae(reward, values, mask, lam=1.0)
    torch.testing.assert_close(targets, reward[:, None].expand_as(values).where(mask, 0.0))
    torch.testing.assert_close(advantages, (reward[:, None] - values).where(mask, 0.0))


def test_gae_with_lam_0_is_the_td_error():
    """Value of the next response token minus the token's own; the reward at the last token."""
    values = torch.tensor([[0.1, 9.0, 0.4, 9.0]])
    mask = torch.tensor([[1, 0, 1, 0]])
    advantages, targets = gae(torch.tensor([1.0]), values, mask, lam=0.0)
    torch.testing.assert_close(advantages, torch.tensor([[0.4 - 0.1, 0.0, 1.0 - 0.4, 0.0]]))
    torch.testing.assert_close(targets, torch.tensor([[0.4, 0.0, 1.0, 0.0]]))


def test_one_reward_per_answer_is_paid_with_its_last_response_token():
    """(B,) and (B, 1) mean a (B, T) with zeros before; an answer without tokens gets nothing."""
    _, values, mask = seeded_answers()
    reward = torch.arange(5.0, dtype=torch.float64)
    placed = torch.zeros_like(values)
    for row, inside in enumerate(mask):
        if inside.any():
            placed[row, inside.nonzero()[-1]] = reward[row]
    wanted = gae(placed, values, mask, gamma=0.9)
    for paid in (reward, reward[:, None]):
        for got, want in zip(gae(paid, values, mask, gamma=0.9), wanted, strict=True):
            torch.testing.assert_close(got, want)
    assert (wanted[0][1] == 0).all()


def test_gae_ignores_what_lies_outside_the_mask():
    """NaN in padding and in environment tokens, and the width of the padding, change nothing."""
    rewards, values, mask = seeded_answers()
    wanted = gae(rewards, values, mask)
    junk = torch.full((5, 3), math.nan, dtype=torch.float64)
    rewards, values = rewards.where(mask, math.nan), values.where(mask, math.nan)
    wide = [torch.cat([x, junk], dim=1) for x in (rewards, values)]
    got = gae(*wide, torch.cat([mask, torch.zeros(5, 3)], dim=1))
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one[:, :7], other)
        assert (one[:, 7:] == 0).all()


def test_gae_computes_in_float64_and_keeps_no_graph():
    """Rewards of 0.03 beside values of a million, where float32 has steps of 1/16."""
    values = torch.full((1, 1000), 1e6).requires_grad_()
    rewards = torch.full((1, 1000), 0.03)
    advantages, targets = gae(rewards, values, torch.ones(1, 1000), lam=1.0)
    assert (advantages.dtype, advantages.requires_grad) == (torch.float32, False)
    assert not targets.requires_grad
    steps = torch.arange(1000, 0, -1, dtype=torch.float64)
    exact = steps * rewards[0, 0].double() - 1e6
    torch.testing.assert_close(advantages[0], exact.float(), rtol=0, atol=0)
    assert gae(rewards, values.double(), torch.ones(1, 1000))[0].dtype == torch.float64
    assert gae(rewards, values.bfloat16(), torch.ones(1, 1000))[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"lam": -0.1}, "lam is -0.1"),
        ({"lam": math.nan}, "lam is nan"),
        ({"rewards": torch.zeros(2)}, r"rewards has shape \(2,\); expected \(3,\), \(3, 1\) or"),
        ({"rewards": torch.zeros(1, 4)}, r"rewards has shape \(1, 4\)"),
        ({"values": torch.zeros(3)}, "must have one shape"),
        ({"mask": torch.full((3, 4), 0.5)}, "mask holds 0.5"),
        ({"rewards": torch.tensor([0.0, math.inf, 0.0])}, "rewards: answer 1, token 3 has inf"),
        ({"values": torch.full((3, 4), math.nan)}, "values: answer 0, token 0 has nan"),
    ],
)
def test_gae_refuses(changes, said):
    inputs = {"rewards": torch.zeros(3), "values": torch.zeros(3, 4), "mask": torch.ones(3, 4)}
    with pytest.raises(ValueError, match=said):
        gae(**{**inputs, **changes})


def test_standardized_over_the_tokens_of_all_answers():
    """1, 2, 3 and 6 in two answers: mean 3, squared deviations 14."""
    given = torch.tensor([[1.0, 2.0, math.nan], [math.nan, 3.0, 6.0]])
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    centred = torch.tensor([[-2.0, -1.0, 0.0], [0.0, 0.0, 3.0]])
    torch.testing.assert_close(standardized(given, mask), centred / math.sqrt(14 / 4))
    torch.testing.assert_close(standardized(given, mask, ddof=1), centred / math.sqrt(14 / 3))
    torch.testing.assert_close(
        standardized(given, mask, eps=0.5), centred / (math.sqrt(14 / 4) + 0.5)
    )


@pytest.mark.parametrize("mask", [torch.zeros(2, 3), torch.eye(2, 3), torch.ones(2, 3)])
def test_equal_advantages_are_standardized_to_0(mask):
    """No token, and 0.1 throughout, whose mean is not exactly 0.1."""
    assert (standardized(torch.full((2, 3), 0.1), mask) == 0).all()
