"""Group advantages: values, precision, and what they refuse."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_edu.advantages import check_rewards, group_advantages, leave_one_out

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
