"""The config: what it refuses, and in which words."""

import dataclasses
import inspect
import math
import warnings

import pytest

from gspo_edu.config import (
    PRESETS,
    SETTINGS_OF,
    TrainConfig,
    config_from_mapping,
    preset_names,
    read_toml,
)
from gspo_edu.objectives import OBJECTIVES


def test_every_field_says_what_it_means():
    for field in dataclasses.fields(TrainConfig):
        assert len(field.metadata["help"]) > 10, field.name


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", -1e-3, "more than 0"),
        ("lr", math.nan, "a finite number"),
        ("lr", math.inf, "a finite number"),
        ("lr", 2, "at most 1"),
        ("lr", "fast", "float"),
        ("temperature", 0.0, "more than 0"),
        ("prompts", 0, "more than 0"),
        ("prompts", 2.5, "int"),
        ("prompts", True, "int"),
        ("mini_batches", 257, r"at most prompts \* group_size = 256"),
        ("group_size", 1, "2 or more"),
        ("ddof", 8, "less than group_size"),
        ("ddof", -1, "0 or more"),
        ("rollouts", -1, "0 or more"),
        ("seed", -1, "0 or more"),
        ("seed", 2**64, "less than 2"),
        ("eval_every", -1, "0 or more"),
        ("drift_probe", -1, "0 or more"),
        ("beta", -0.1, "0 or more"),
        ("advantage_eps", -1e-4, "0 or more"),
        ("cold_start_noise", 1.5, "0 to 1"),
        ("replay", "r4", "one of none, r2, r3"),
        ("objective", "reinforce", "one of ppo, "),
        ("layers", 0, "more than 0"),
        ("layers", 2.0, "int or none"),
        ("mask_unfinished", 1, "bool"),
    ],
)
def test_unusable_values_are_refused_in_words(name, value, expected):
    with pytest.raises(ValueError, match=rf"^{name} is .*; expected .*{expected}"):
        TrainConfig(**{name: value})


@pytest.mark.parametrize("replay", ["r2", "r3"])
def test_a_dense_model_has_no_routes_to_replay(replay):
    with pytest.raises(ValueError, match=rf"^replay is {replay}, but a dense .*; expected none"):
        TrainConfig(dense=True, replay=replay)


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("gspo", {"clip_low": -0.1}),
        ("grpo", {"clip_low": 1.0}),
        ("cispo", {"cap": 0.0}),
        ("ppo_dual_clip", {"dual_clip": 0.5}),
    ],
)
def test_unusable_settings_of_an_objective_are_refused_at_once(objective, settings):
    with pytest.raises(ValueError, match="expected"):
        TrainConfig(objective=objective, **settings)


def test_settings_of_another_objective_are_refused():
    with pytest.raises(ValueError, match=r"cap is 3\.0, but gspo has no such setting; it has clip"):
        TrainConfig(cap=3.0)
    assert TrainConfig(objective="cispo", cap=3.0).given_objective_settings() == {"cap": 3.0}
    assert TrainConfig().given_objective_settings() == {}


def test_the_table_of_settings_is_what_the_objectives_take():
    given_by_the_trainer = {"max_len"}
    taken = {
        name: {
            parameter.name
            for parameter in inspect.signature(objective).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        for name, objective in OBJECTIVES.items()
    }
    assert list(SETTINGS_OF) == list(OBJECTIVES)
    for name, settings in SETTINGS_OF.items():
        assert {*settings} == taken[name] - given_by_the_trainer
        for setting in settings:
            assert getattr(TrainConfig(), setting) is None


def test_a_config_can_be_made_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TrainConfig(clip_low=0.2, clip_high=0.27)


def test_an_int_may_stand_for_a_float_and_zero_is_a_learning_rate():
    assert TrainConfig(lr=0, temperature=1).lr == 0


def test_unknown_fields_name_their_source():
    with pytest.raises(ValueError, match=r"run\.toml: there is no field 'colour'"):
        config_from_mapping({"colour": 1}, "run.toml")
    with pytest.raises(ValueError, match=r"run\.toml: lr is -1; expected more than 0"):
        config_from_mapping({"lr": -1}, "run.toml")


def test_toml_files_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "run.toml"
    with pytest.raises(ValueError, match=r"run\.toml does not exist"):
        read_toml(path)
    path.write_text("lr = ")
    with pytest.raises(ValueError, match=r"run\.toml is not valid TOML"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"run\.toml is not valid TOML"):
        read_toml(path)


def test_presets_are_valid():
    assert "calm" in preset_names()
    for name in preset_names():
        config_from_mapping(read_toml(PRESETS / f"{name}.toml"), name)
    assert config_from_mapping(read_toml(PRESETS / "calm.toml"), "calm") == TrainConfig()
