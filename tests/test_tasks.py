"""The tasks: verifiers by hand, demonstrations, and the held-out split."""

import pytest
import torch

from gspo_edu.metrics import within_group_length_spread
from gspo_edu.tasks import TASKS, ClockWalk, SortDigits, make_task, task_size
from gspo_edu.tasks.base import (
    END,
    EQUALS,
    PAD,
    distinct_held_out_prompts,
    is_held_out,
    masked_after_end,
    prompts_of_split,
    text,
)

WORDS = {"=": EQUALS, "end": END, "·": PAD}
BOTH = pytest.mark.parametrize("task", [ClockWalk(), SortDigits(), SortDigits(4)], ids=repr)


def ids(line):
    return [WORDS.get(word) or int(word) for word in line.split()]


def judged(task, prompt, answer):
    """(reward, exact) of one answer, both as text."""
    prompts, tokens = torch.tensor([ids(prompt)]), torch.tensor([ids(answer)])
    mask, finished = masked_after_end(tokens)
    given = (prompts, tokens, mask, finished)
    return task.rewards(*given).item(), task.exact(*given).item()


@pytest.mark.parametrize(
    ("answer", "reward", "exact"),
    [
        ("5 7 4 6 8 end", 1, True),
        ("0 2 9 1 3 5 7 4 6 8 end", 1, True),  # another length
        ("8 end", 0.0, False),  # at the goal by a jump
        ("5 7 end", 0.5, False),  # allowed, but not at the goal
        ("5 7 8 end", 1 / 3, False),  # at the goal, one of three moves not allowed
        ("5 6 7 8 end", 1 / 8, False),
        ("end", 0, False),
        ("5 7 4 6 8", 0, False),  # never ends
        ("5 7 4 6 8 end · ·", 1, True),
        ("5 7 end 8 end", 0.5, False),  # what follows the end does not count
        ("5 = 7 end", 1 / 6, False),
        ("5 · 7 end", 1 / 6, False),
    ],
)
def test_clock_walk_by_hand(answer, reward, exact):
    """Start 3, goal 8, steps 2 and 7."""
    assert judged(ClockWalk(), "3 8 2 7 =", answer) == (pytest.approx(reward), exact)


def test_a_long_walk_with_one_forbidden_jump_to_the_goal_pays_less_than_half():
    walk = "5 7 9 1 3 5 7 9 1 3 5 7 9 1 3 5 8 end"
    assert judged(ClockWalk(), "3 8 2 7 =", walk) == (pytest.approx(16 / 17 / 2), False)


def test_a_walk_without_moves_is_no_answer_even_at_the_goal():
    assert judged(ClockWalk(), "3 3 2 7 =", "end") == (0, False)


@pytest.mark.parametrize(
    ("answer", "reward", "exact"),
    [
        ("1 3 3 7 end", 1, True),
        ("1 3 3 end", 3 / 4, False),  # too short
        ("1 3 3 7 7 end", 4 / 5, False),  # too long
        ("1 3 3 7 9 9 9 9 end", 1 / 2, False),
        ("3 3 1 7 end", 1 / 2, False),
        ("end", 0, False),
        ("1 3 3 7", 0, False),  # never ends
        ("1 3 3 7 end · ·", 1, True),
        ("1 3 end 3 7 end", 1 / 2, False),
    ],
)
def test_sort_digits_by_hand(answer, reward, exact):
    assert judged(SortDigits(4), "7 3 1 3 =", answer) == (pytest.approx(reward), exact)


@BOTH
def test_prompts_have_one_length_and_end_with_equals(task, dice):
    prompts = task.random_prompts(200, dice)
    assert prompts.shape == (200, task.prompt_length)
    assert (prompts[:, -1] == EQUALS).all()
    assert ((prompts[:, :-1] >= 0) & (prompts[:, :-1] < 10)).all()


@BOTH
def test_demonstrations_without_noise_are_right(task, dice):
    prompts = task.random_prompts(200, dice)
    tokens, mask = task.demonstrations(prompts, 0.0, dice)
    found, finished = masked_after_end(tokens)
    assert torch.equal(found, mask)
    assert tokens.shape[1] <= task.max_new_tokens
    assert task.exact(prompts, tokens, mask, finished).all()
    assert (task.rewards(prompts, tokens, mask, finished) == 1).all()


@BOTH
def test_noise_spoils_digits_and_nothing_else(task, dice):
    prompts = task.random_prompts(400, dice)
    right, mask = task.demonstrations(prompts, 0.0, torch.Generator().manual_seed(6))
    spoilt, same_mask = task.demonstrations(prompts, 0.4, torch.Generator().manual_seed(6))
    assert torch.equal(mask, same_mask)
    digits = mask & (right != END)
    assert torch.equal(spoilt[~digits], right[~digits])
    # One replacement in ten is the right digit by chance.
    changed = (spoilt != right)[digits].float().mean().item()
    assert changed == pytest.approx(0.4 * 0.9, abs=0.03)
    rewards = task.rewards(prompts, spoilt, mask, mask.any(dim=1))
    assert 0.1 < rewards.mean() < 0.9


def test_walks_are_of_all_lengths(dice):
    task = ClockWalk(longest=8)
    _, mask = task.demonstrations(task.random_prompts(500, dice), 0.0, dice)
    moves = mask.sum(dim=1) - 1
    assert set(moves.tolist()) == set(range(2, 9))


@BOTH
def test_the_splits_are_disjoint_and_deterministic(task):
    def drawn(held_out):
        return prompts_of_split(task, 300, torch.Generator().manual_seed(1), held_out=held_out)

    training, held_out = drawn(False), drawn(True)
    assert training.shape == held_out.shape == (300, task.prompt_length)
    assert is_held_out(held_out).all()
    assert not is_held_out(training).any()
    assert not set(map(tuple, training.tolist())) & set(map(tuple, held_out.tolist()))
    assert torch.equal(training, drawn(False))
    assert torch.equal(held_out, drawn(True))


@BOTH
def test_about_one_prompt_in_five_is_held_out(task, dice):
    share = is_held_out(task.random_prompts(4000, dice)).float().mean().item()
    assert share == pytest.approx(0.2, abs=0.04)


def test_held_out_walks_are_like_the_others(dice):
    """Both splits have the same share of prompts with any simple feature."""
    task = ClockWalk()
    held_out, training = (
        prompts_of_split(task, 5000, dice, held_out=held_out) for held_out in (True, False)
    )

    def features(prompts):
        start, goal, smaller, larger = prompts[:, :4].unbind(dim=1)
        distance = (goal - start) % 10
        two = [(a + b) % 10 == distance for a in (smaller, larger) for b in (smaller, larger)]
        found = [start == goal, larger == 5, smaller + larger == 10, torch.stack(two).any(dim=0)]
        found += [distance % 5 == rest for rest in range(5)]
        return torch.stack(found).double().mean(dim=1)

    assert torch.allclose(features(held_out), features(training), atol=0.04)
    assert (features(training) > 0.02).all()


@BOTH
def test_evaluation_prompts_are_held_out_and_different(task):
    prompts = distinct_held_out_prompts(task, 200, torch.Generator().manual_seed(0))
    again = distinct_held_out_prompts(task, 200, torch.Generator().manual_seed(0))
    assert prompts.shape == (200, task.prompt_length)
    assert is_held_out(prompts).all()
    assert len(set(map(tuple, prompts.tolist()))) == 200
    assert torch.equal(prompts, again)


def test_fewer_evaluation_prompts_than_asked_are_all_there_are():
    task = ClockWalk()
    some, more = (
        distinct_held_out_prompts(task, 5000, torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    assert 300 < len(some) < 600
    assert set(map(tuple, some.tolist())) == set(map(tuple, more.tolist()))


def test_the_mask_ends_with_the_first_end_token():
    tokens = torch.tensor([ids("1 end 2 end"), ids("1 2 3 4"), ids("end · · ·")])
    mask, finished = masked_after_end(tokens)
    assert mask.tolist() == [[True, True, False, False], [True] * 4, [True, False, False, False]]
    assert finished.tolist() == [True, False, True]


def test_answers_to_one_prompt_differ_in_length(sampled):
    rollout = sampled(prompts=32, group_size=8)
    assert within_group_length_spread(rollout.lengths, rollout.group) >= 0.15


def test_text():
    assert text(torch.tensor([3, 0, EQUALS, END, PAD])) == "3 0 = end ·"


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("size", [None, 6])
def test_make_task(name, size):
    task = make_task(name, size)
    assert size is None or task_size(task) == size
    assert make_task(name, task_size(task)) == task


def test_unknown_tasks_and_unusable_sizes_are_refused():
    with pytest.raises(
        ValueError, match="task is 'chess'; expected one of clock_walk, sort_digits"
    ):
        make_task("chess")
    with pytest.raises(ValueError, match="longest is 3; expected 4 or more"):
        make_task("clock_walk", 3)
    with pytest.raises(ValueError, match="digits is 1; expected 2 or more"):
        make_task("sort_digits", 1)
