"""Settings are read as TRL reads them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from gspo_edu.checks import TASKS
from gspo_edu.checks.trl_settings import (
    DEFAULTS,
    FACTS,
    LOSS_TYPES,
    draw_plans,
    facts_of,
    refuse_unknown,
)


def test_a_process_never_takes_as_many_answers_as_there_are_prompts() -> None:
    for seed in range(5):
        for case in draw_plans(torch.Generator().manual_seed(seed)):
            prompts, group, mini_batches, processes = case.values()
            share, left = divmod(prompts * group, mini_batches * processes)
            assert left == 0
            assert share not in (prompts, group)


RIGHT = {
    "importance_sampling_level": "sequence",
    "loss_type": "grpo",
    "epsilon": 3e-4,
    "epsilon_high": 4e-4,
}


def test_defaults_are_those_of_the_library() -> None:
    trl = pytest.importorskip("trl", reason="the extra 'real' is not installed")
    theirs = {field.name: field.default for field in fields(trl.GRPOConfig)}
    assert {name: theirs[name] for name in DEFAULTS} == DEFAULTS


def test_no_setting_of_the_library_is_taken_for_a_misspelling() -> None:
    trl = pytest.importorskip("trl", reason="the extra 'real' is not installed")
    others = [f.name for f in fields(trl.GRPOConfig) if f.name not in DEFAULTS]
    assert len(others) > 100
    refuse_unknown(dict.fromkeys(others))


def test_losses_are_those_of_the_library() -> None:
    pytest.importorskip("trl", reason="the extra 'real' is not installed")
    from trl.trainer import grpo_trainer

    compared = re.findall(r"loss_type (?:==|in) (.+):", inspect.getsource(grpo_trainer))
    named = set(re.findall(r'"(\w+)"', " ".join(compared)))
    assert set(LOSS_TYPES) == named - {"token", "sequence"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"steps_per_generation": 4},
        {"gradient_accumulation_steps": 4},
        {"steps_per_generation": 6, "gradient_accumulation_steps": 3, "num_iterations": 2},
        {"generation_batch_size": 64, "num_generations": 4, "per_device_train_batch_size": 16},
    ],
)
def test_sizes_are_those_of_the_library(settings: dict[str, Any], tmp_path: Any) -> None:
    trl = pytest.importorskip("trl", reason="the extra 'real' is not installed")
    config = trl.GRPOConfig(output_dir=str(tmp_path), use_cpu=True, report_to=[], **settings)
    found = dict(zip(FACTS, facts_of({"processes": 1}, settings).tolist(), strict=True))
    assert found["answers in a rollout"] == config.generation_batch_size
    passes = config.steps_per_generation * config.num_iterations
    assert found["updates per rollout"] == passes / config.gradient_accumulation_steps
    # The config itself is read like the settings that it was made of, apart from what it derives.
    assert facts_of({"processes": 1}, config).tolist() == list(found.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"per_device_train_batch_size": 64.0}, "Write 64, or // instead of /"),
        ({"steps_per_generation": 0}, "steps_per_generation is 0"),
        ({"num_generations": "8"}, "num_generations is '8'"),
        ({"gradient_accumulation_steps": True}, "whole number above 0"),
        ({"epsilon": "3e-4"}, "epsilon is '3e-4'; TRL takes a number"),
        ({"beta": None}, "beta is None"),
        ({"epsilon_hgh": 4e-4}, "TRL has no setting epsilon_hgh. Is epsilon_high meant?"),
        ({"num_generation": 4}, "Is num_generations meant?"),
        ({"loss_type": "GSPO"}, "TRL has grpo, dr_grpo"),
        ({"loss_type": "gspo"}, "GSPO is a level"),
        ({"importance_sampling_level": "sequences"}, "TRL has token, sequence"),
        ({"generation_batch_size": 8, "steps_per_generation": 4}, "not both"),
    ],
)
def test_values_that_trl_would_not_take_are_named(change: dict[str, Any], words: str) -> None:
    result = TASKS["trl_settings"].check(lambda *_: {**RIGHT, **change}, seed=0)
    assert not result.passed
    assert words in result.message


def test_numbers_of_numpy_are_numbers() -> None:
    given = {**RIGHT, "epsilon": np.float64(3e-4), "num_generations": np.int64(4)}
    facts = dict(zip(FACTS, facts_of({"processes": 1}, given).tolist(), strict=True))
    assert (facts["epsilon"], facts["answers per prompt"]) == (3e-4, 4)


def test_the_example_names_each_fact() -> None:
    result = TASKS["trl_settings"].check(lambda *_: {}, seed=0)
    assert result.example is not None
    assert "one ratio per answer: yes" in result.example.expected
    assert "one ratio per answer: no" in result.example.actual


def test_a_list_is_no_settings() -> None:
    result = TASKS["trl_settings"].check(lambda *_: [1, 2], seed=0)
    assert "returns list; expected a dict" in result.message
