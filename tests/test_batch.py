"""The rollout record and its mini-batches."""

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_edu.advantages import check_rewards
from gspo_edu.batch import Rollout, mini_batch_rows

few = settings(derandomize=True, max_examples=40, deadline=None)


def small_rollout():
    """Six answers to three prompts; lengths 1, 2, 3, 4, 3, 2."""
    lengths = torch.tensor([1, 2, 3, 4, 3, 2])
    mask = torch.arange(4) < lengths[:, None]
    return Rollout(
        prompts=torch.tensor([[10, 11], [20, 21], [30, 31]]),
        tokens=torch.arange(24).reshape(6, 4),
        mask=mask,
        logp_old=torch.where(mask, -1.0, 0.0),
        rewards=torch.arange(6.0),
        group=torch.tensor([0, 0, 1, 1, 2, 2]),
        finished=torch.tensor([True, True, True, False, True, True]),
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_lengths_and_size():
    """The length of an answer is its number of response tokens."""
    rollout = small_rollout()
    assert len(rollout) == 6
    assert rollout.lengths.tolist() == [1, 2, 3, 4, 3, 2]


def test_environment_tokens_do_not_count_as_length():
    """A tool's output inside an answer is masked out of its length."""
    rollout = small_rollout()
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[:, 1:3] = False
    assert dataclasses.replace(rollout, mask=mask).lengths.tolist() == [2] * 6


@pytest.mark.parametrize("name", ["mask", "logp_old", "rewards", "group", "finished"])
def test_field_that_does_not_fit_is_named(name):
    """One row or one position too few is an error that shows both shapes."""
    rollout = small_rollout()
    short = getattr(rollout, name)[:-1]
    with pytest.raises(ValueError, match=rf"Rollout\.{name} has shape") as caught:
        dataclasses.replace(rollout, **{name: short})
    assert str(tuple(short.shape)) in str(caught.value)


@pytest.mark.parametrize("wrong", [3, -1])
def test_group_names_a_prompt_that_exists(wrong):
    """A number that is no row of prompts is refused, a negative one included."""
    group = torch.tensor([0, 0, 1, 1, 2, wrong])
    with pytest.raises(ValueError, match=f"names prompt {wrong}; expected 0 to 2"):
        dataclasses.replace(small_rollout(), group=group)


def test_rows_keep_their_prompts():
    """A selection carries only the prompts that it needs, each answer still with its own."""
    rollout = small_rollout()
    index = torch.tensor([5, 0, 4])
    part = rollout.rows(index)
    assert part.prompts.tolist() == [[10, 11], [30, 31]]
    for name in ("tokens", "mask", "logp_old", "rewards", "finished"):
        assert torch.equal(getattr(part, name), getattr(rollout, name)[index])
    assert torch.equal(part.prompts[part.group], rollout.prompts[rollout.group[index]])


def test_ten_answers_in_four_mini_batches():
    """3, 3, 2 and 2 rows; the last one is neither dropped nor filled up."""
    parts = list(mini_batch_rows(torch.arange(5).repeat_interleave(2), 4, seeded()))
    assert [len(part) for part in parts] == [3, 3, 2, 2]
    assert sorted(torch.cat(parts).tolist()) == list(range(10))


@few
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_every_answer_once_and_sizes_differ_by_at_most_one(sizes, data):
    """For any groups and any number of mini-batches, groups stay together."""
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    count = data.draw(st.integers(1, len(group)))
    parts = list(mini_batch_rows(group, count, seeded(data.draw(st.integers(0, 99)))))
    assert len(parts) == count
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    order = torch.cat(parts)
    assert sorted(order.tolist()) == list(range(len(group)))
    changes = int((group[order][1:] != group[order][:-1]).sum())
    assert changes == len(sizes) - 1


def test_shuffle_follows_its_generator():
    """The same seed gives the same order, another seed another, a second pass another."""
    group = torch.arange(20).repeat_interleave(2)

    def order(generator):
        return torch.cat(list(mini_batch_rows(group, 4, generator))).tolist()

    generator = seeded(1)
    first, second = order(generator), order(generator)
    assert first == order(seeded(1))
    assert first != order(seeded(2))
    assert first != second


@pytest.mark.parametrize("count", [0, -1, 7])
def test_impossible_number_of_mini_batches(count):
    """More mini-batches than answers, or none, is an error that names both numbers."""
    with pytest.raises(ValueError, match=f"mini_batches is {count}; expected 1 to 6"):
        list(mini_batch_rows(small_rollout().group, count, seeded()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8])
def test_group_of_another_dtype_is_refused(dtype):
    """A float is no row number, and a boolean or byte index would select instead of count."""
    group = torch.tensor([0, 0, 1, 1, 0, 1])
    with pytest.raises(ValueError, match=rf"Rollout\.group is {dtype}; expected torch\.int64"):
        dataclasses.replace(small_rollout(), group=group.to(dtype))


@pytest.mark.parametrize("odd", [0.5, -1e9, 2.0])
def test_mask_of_other_numbers_is_refused(odd):
    """A mask is 0 or 1, here as in the objectives."""
    rollout = small_rollout()
    mask = rollout.mask.float()
    mask[0, 0] = odd
    with pytest.raises(ValueError, match=re.escape(f"mask holds {odd:g}; expected 1")):
        dataclasses.replace(rollout, mask=mask)


def test_reward_that_is_no_number_is_left_to_the_check_of_rewards():
    """The record holds what the verifier said; ``check_rewards`` names prompt and answer."""
    rollout = small_rollout()
    rewards = rollout.rewards.clone()
    rewards[3] = math.nan
    broken = dataclasses.replace(rollout, rewards=rewards)
    with pytest.raises(ValueError, match=r"prompt 1, answer 1 \(row 3\) is nan"):
        check_rewards(broken.rewards, broken.group)
