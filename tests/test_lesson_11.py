"""Lesson 11: its questions accept what they should; the toy trainer is what the lesson says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lesson_cells import question_names

from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import grpo, gspo
from gspo_edu.questions import check_answer
from gspo_edu.tasks import make_task
from gspo_edu.tasks.base import END, PAD, SYMBOLS, is_held_out

pytest.importorskip("trl", reason="the extra 'real' is not installed")

from gspo_edu import trl_toy


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return question_names("11_in_trl", math=math)


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        ("warm_up_1", 2, "Right"),
        ("warm_up_1", math.exp(0.8), "cap is below"),
        ("warm_up_1", math.exp(-0.8), "Trainer over engine"),
        ("warm_up_1", 0.8, "log-ratio"),
        ("warm_up_2", 0.7, "Right"),
        ("warm_up_2", 0.5, "share of answers"),
        ("warm_up_2", 0.1, "all of them"),
        ("question_1", 32, "Right"),
        ("question_1", 16, "Both processes"),
        ("question_1", 256, "number of answers"),
        ("question_1", 4, "one mini-batch"),
        ("question_2", 0.52, "Right"),
        ("question_2", 0.39, "always has 0"),
        ("question_2", 0.2925, "other way round"),
        ("question_2", 1.56, "shared by three"),
        ("question_3", 0.75, "Right"),
        ("question_3", 0.5, '"grpo"'),
        ("question_3", 0.25, "shorter"),
        ("question_3", 3, "how many times"),
    ],
)
def test_questions_know_right_and_wrong(
    question: str,
    answer: float,
    words: str,
    names: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_answer(answer, *names[question])
    assert words in capsys.readouterr().out


def test_tokenizer_has_the_courses_numbers() -> None:
    made = trl_toy.tokenizer()
    assert made(" ".join(SYMBOLS)).input_ids == list(range(len(SYMBOLS)))
    assert (made.eos_token_id, made.pad_token_id) == (END, PAD)


def test_prompts_are_training_prompts() -> None:
    rows = trl_toy.prompt_dataset(make_task("clock_walk"), 50, seed=1)["prompt"]
    tokens = torch.tensor([trl_toy.tokenizer()(row).input_ids for row in rows])
    assert tokens.shape == (50, 5)
    assert not is_held_out(tokens).any()


def test_reward_is_the_verifiers_and_wants_an_end() -> None:
    reward = trl_toy.reward_function(make_task("clock_walk"))
    right = [5, 7, 4, 6, 8]
    answers = [[*right, END], [*right, PAD], right, [5, 7, 0, END], [END]]
    found = reward(prompts=["3 8 2 7 ="] * 5, completion_ids=answers, trainer_state=None)
    assert found == pytest.approx([1, 0, 0, 1 / 3, 0])


def test_a_wrong_level_is_refused() -> None:
    with pytest.raises(ValueError, match="level is 'answer'"):
        trl_toy.paper_settings("answer")


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_what_is_watched_is_what_trl_computes(level: str) -> None:
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4}
    trainer = trl_toy.toy_trainer(**trl_toy.paper_settings(level, **sizes))
    seen = trl_toy.watched(trainer)
    log = trl_toy.trained(trainer, 2)
    assert len(seen) == len(log) == 8
    objective = {"token": grpo, "sequence": gspo}[level]
    for number, (batch, record) in enumerate(zip(seen, log, strict=True)):
        ours = objective(batch.logp, batch.logp_old, batch.advantages, batch.mask)
        assert ours.loss.item() == pytest.approx(batch.loss.item(), rel=1e-5, abs=1e-7)
        assert record["loss"] == pytest.approx(batch.loss.item(), rel=1e-5, abs=1e-7)
        if number % 4 == 0:
            torch.testing.assert_close(batch.logp, batch.logp_old, rtol=0, atol=1e-5)
    assert {batch.has_old for batch in seen} == {True}
    assert "reward" in log[0]
    assert "reward" not in log[1]


def test_two_runs_of_one_seed_are_equal() -> None:
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4}

    def losses(seed: int) -> list[float]:
        trainer = trl_toy.toy_trainer(seed=seed, **trl_toy.paper_settings(**sizes))
        return [record["loss"] for record in trl_toy.trained(trainer, 1)]

    first = losses(0)
    assert losses(0) == first
    assert losses(1) != first


def test_advantages_of_whole_groups_are_ours() -> None:
    settings = trl_toy.paper_settings(steps_per_generation=1, per_device_train_batch_size=16)
    trainer = trl_toy.toy_trainer(**settings)
    seen = trl_toy.watched(trainer)
    rewards: list[float] = []
    inner = trainer.reward_funcs[0]

    def noting(**given: Any) -> list[float]:
        rewards[:] = inner(**given)
        return rewards

    trainer.reward_funcs[0] = noting
    trl_toy.trained(trainer, 1)
    wanted = group_advantages(rewards, [0] * 8 + [1] * 8, ddof=1, eps=1e-4)
    found = seen[0].advantages.sort().values
    torch.testing.assert_close(found, wanted.sort().values, rtol=1e-5, atol=1e-6)


def test_command_prints_one_line_per_rollout(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    trl_toy.main(["--rollouts", "1", "--level", "token"])
    torch.set_num_threads(threads)
    first, last = capsys.readouterr().out.splitlines()
    assert '"reward"' in first
    assert '"processes": 1' in last
