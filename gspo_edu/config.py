"""One flat, frozen configuration: every field is a flag, a TOML key and a line in config.json."""

from __future__ import annotations

import dataclasses
import os
import reprlib
import tomllib
import types
import typing
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Replay = Literal["none", "r2", "r3"]
EngineKind = Literal["fp32", "bf16", "int8"]
Correction = Literal["none", "tis", "icepop"]
FLOAT32_MAX = 3.4e38
PRESETS = Path(__file__).parent / "presets"
# How the reader calls the command line; course.py starts it under another name.
COMMAND = os.environ.get("GSPO_EDU_COMMAND", "gspo-edu")


POSITIVE = {
    *("prompts", "mini_batches", "epochs", "temperature", "lr", "max_grad_norm", "eval_prompts"),
    *("layers", "width", "heads", "experts", "top_k", "expert_width", "threads"),
}
NOT_NEGATIVE = {
    *("seed", "rollouts", "weight_decay", "beta", "ddof", "advantage_eps", "balance"),
    *("cold_start_steps", "eval_every", "drift_probe", "lag"),
}
# What --critic brings, and the objectives whose own papers let advantages differ within an answer:
# all others are defined with one advantage per answer, the group's.
OF_CRITIC = ("critic_lr", "gamma", "lam")
OF_CORRECTION = {"tis_cap": "tis", "icepop_low": "icepop", "icepop_high": "icepop"}
WITH_CRITIC = ("ppo", "ppo_dual_clip", "gspo_token")
# Every objective's own settings, as far as they are fields here; None stands for its default. Read
# off the functions' signatures, this would load torch for every question about a config.
SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "ppo": ("clip_low", "clip_high"),
    "ppo_dual_clip": ("clip_low", "clip_high", "dual_clip"),
    "grpo": ("clip_low", "clip_high"),
    "dr_grpo": ("clip_low", "clip_high"),
    "dapo": ("clip_low", "clip_high"),
    "cispo": ("cap",),
    "gspo": ("clip_low", "clip_high"),
    "gspo_token": ("clip_low", "clip_high"),
    "seq_unnormalised": ("clip_low", "clip_high"),
    "gmpo": ("log_clip_low", "log_clip_high"),
    "sapo": ("tau_pos", "tau_neg"),
}


def option(default: Any, meaning: str) -> Any:
    """A config field with its default and the sentence that ``gspo-edu config`` prints."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the numbers of a run.

    Raises:
        ValueError: naming the field, what was given and what is expected.
    """

    objective: str = option("gspo", "objective to minimise, one of gspo_edu.objectives.OBJECTIVES")
    seed: int = option(0, "seed of prompts, samples and shuffles")
    rollouts: int = option(40, "rollouts to sample; each feeds mini_batches * epochs updates")

    task: str = option("clock_walk", "clock_walk, sort_digits or two_turn")
    task_size: int | None = option(None, "longest shown walk, or number of digits; none: 12, or 16")
    init: str = option("auto", "start: cold (imitate first), a file, or auto (a shipped one)")

    prompts: int = option(32, "prompts per rollout")
    prompt_pool: int | None = option(None, "draw prompts from this many fixed ones; none: new ones")
    group_size: int = option(8, "answers per prompt")
    mini_batches: int = option(4, "gradient updates per rollout and epoch")
    epochs: int = option(1, "passes over each rollout")
    temperature: float = option(1.0, "sampling temperature, also used for the log-probs")

    lr: float = option(1e-3, "learning rate of AdamW")
    weight_decay: float = option(0.0, "weight decay of AdamW")
    max_grad_norm: float = option(1.0, "gradient norm above which the gradient is scaled down")

    clip_low: float | None = option(None, "lower clip distance; none: the objective's default")
    clip_high: float | None = option(None, "upper clip distance; none: the objective's default")
    dual_clip: float | None = option(None, "floor of ppo_dual_clip; none: its default")
    cap: float | None = option(None, "cap of cispo; none: its default")
    log_clip_low: float | None = option(None, "lower log-clip of gmpo; none: its default")
    log_clip_high: float | None = option(None, "upper log-clip of gmpo; none: its default")
    tau_pos: float | None = option(None, "sapo's temperature for A > 0; none: its default")
    tau_neg: float | None = option(None, "sapo's temperature for A <= 0; none: its default")
    beta: float = option(0.0, "weight of the KL term to the initial policy")

    normalize_advantages: bool | None = option(
        None,
        "divide advantages by the group's std (with a critic: centre and divide over all tokens); "
        "none: yes, but not for dr_grpo",
    )
    ddof: int = option(0, "0: std with n, 1: with n - 1")
    advantage_eps: float = option(0.0, "added to the std that advantages are divided by")
    critic: bool = option(
        False, "take the baseline of ppo, ppo_dual_clip or gspo_token from a critic, not the group"
    )
    critic_lr: float | None = option(None, "learning rate of the critic's AdamW; none: lr")
    gamma: float = option(1.0, "discount per token of the reward that the critic expects")
    lam: float = option(
        0.95, "what advantages trust: 0 the critic's next guess, 1 the reward itself"
    )
    mask_unfinished: bool = option(False, "leave answers cut at the length limit out of the loss")
    recompute_old: bool = option(False, "recompute old log-probs instead of taking the sampler's")
    engine: EngineKind = option(
        "fp32", "arithmetic of the engine that samples: fp32 (the trainer itself), bf16 or int8"
    )
    lag: int = option(0, "rollouts by which the weights of the engine that samples are behind")
    correction: Correction = option(
        "none", "weight for a mismatch of engine and trainer: none, tis or icepop"
    )
    tis_cap: float | None = option(None, "largest weight of tis; none: 2")
    icepop_low: float | None = option(None, "icepop drops weights below this; none: 0.5")
    icepop_high: float | None = option(None, "icepop drops weights above this; none: 5")
    replay: Replay = option("none", "Routing Replay: none, r2 (trainer's) or r3 (rollout's routes)")
    balance: float = option(0.0, "weight of the load-balancing loss during RL")
    shuffle_rewards: bool = option(False, "control: deal the rewards out at random")

    layers: int | None = option(None, "transformer layers; none: as in init, 2 when cold")
    width: int | None = option(None, "hidden width; none: as in init, 48 when cold")
    heads: int | None = option(None, "attention heads; none: as in init, 4 when cold")
    experts: int | None = option(None, "experts per layer; none: as in init, 8 when cold")
    top_k: int | None = option(None, "experts per token; none: as in init, 2 when cold")
    expert_width: int | None = option(None, "width of an expert; none: as in init, 48 when cold")
    norm_topk_prob: bool | None = option(None, "gates sum to 1; none: as in init, yes when cold")
    dense: bool | None = option(None, "no router, one block of top_k * expert_width")
    cold_start_steps: int = option(1000, "steps of imitation, when cold")
    cold_start_noise: float = option(0.3, "share of spoilt digits in demonstrations, when cold")

    eval_every: int = option(10, "rollouts between held-out evaluations; 0: only at the ends")
    eval_prompts: int = option(256, "different held-out prompts per evaluation, 4 answers each")
    drift_probe: int = option(
        16, "answers per update on which drift_per_update is measured; 0: none"
    )
    device: str = option("auto", "auto, cpu or cuda")
    threads: int = option(1, "threads of torch; results can change in the last digit with it")

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            check_type(name, value, TYPES[name])
            if isinstance(value, float) and not abs(value) <= FLOAT32_MAX:
                raise ValueError(f"{name} is {value}; expected a finite number (of float32).")
            bits = 62 if name == "seed" else 31
            if type(value) is int and abs(value) >= 2**bits:
                raise ValueError(f"{name} is {reprlib.repr(value)}; expected less than 2**{bits}.")
            if name in POSITIVE and value is not None and value <= 0 and (name, value) != ("lr", 0):
                raise ValueError(f"{name} is {value}; expected more than 0.")
            if name in NOT_NEGATIVE and value < 0:
                raise ValueError(f"{name} is {value}; expected 0 or more.")
        if self.lr > 1:
            raise ValueError(f"lr is {self.lr}; expected at most 1.")
        if self.group_size < (1 if self.critic else 2):
            raise ValueError(
                f"group_size is {self.group_size}; expected "
                + ("1 or more." if self.critic else "2 or more, since the group is the baseline.")
            )
        if self.ddof >= (2 if self.critic else self.group_size):
            raise ValueError(f"ddof is {self.ddof}; expected less than group_size.")
        if self.prompt_pool is not None and self.prompt_pool < self.prompts:
            raise ValueError(
                f"prompt_pool is {self.prompt_pool}; expected at least prompts = {self.prompts}, "
                "so that a rollout's prompts differ."
            )
        if self.mini_batches > self.prompts * self.group_size:
            raise ValueError(
                f"mini_batches is {self.mini_batches}; expected at most prompts * group_size = "
                f"{self.prompts * self.group_size}."
            )
        if not 0 <= self.cold_start_noise <= 1:
            raise ValueError(f"cold_start_noise is {self.cold_start_noise}; expected 0 to 1.")
        if self.dense and self.replay != "none":
            raise ValueError(
                f"replay is {self.replay}, but a dense model has no routes to replay; expected "
                "none, or a mixture of experts (dense off)."
            )
        self.check_critic()
        self.check_correction()
        self.check_objective()

    def check_critic(self) -> None:
        """Refuse a critic for objectives that have no use for one, and its settings without it."""
        for name in OF_CRITIC:
            value, default = getattr(self, name), TrainConfig.__dataclass_fields__[name].default
            if not self.critic and value != default:
                raise ValueError(f"{name} is {value}; expected {default}, since critic is off.")
        if self.critic and self.objective in SETTINGS_OF and self.objective not in WITH_CRITIC:
            raise ValueError(
                f"critic is True, but {self.objective} has one advantage per answer, from its "
                "group, and a critic gives one per token; expected the objective "
                f"{', '.join(WITH_CRITIC[:-1])} or {WITH_CRITIC[-1]}."
            )
        if self.critic_lr is not None and not 0 <= self.critic_lr <= 1:
            raise ValueError(f"critic_lr is {self.critic_lr}; expected 0 to 1.")
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to 1.")

    def check_correction(self) -> None:
        """Refuse a correction that has nothing to correct, and settings of another one."""
        for name, kind in OF_CORRECTION.items():
            if getattr(self, name) is not None and self.correction != kind:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but correction is {self.correction}; "
                    f"expected correction {kind}."
                )
        if self.correction == "none":
            return
        if self.engine == "fp32" and self.lag == 0:
            raise ValueError(
                f"correction is {self.correction}, but the trainer itself samples, so there is "
                "nothing to correct; expected engine bf16 or int8, or a lag."
            )
        if not self.recompute_old:
            raise ValueError(
                f"correction is {self.correction}, but the old log-probs are the engine's own, so "
                "every weight would be 1; expected recompute_old."
            )

        import torch

        from gspo_edu.objectives.corrections import correction_weight

        token = torch.zeros(1, 1)
        correction_weight(self.correction_settings(), token, token, token + 1)

    def correction_settings(self) -> dict[str, Any] | None:
        """The correction as ``objectives.corrections.correction_weight`` wants it."""
        if self.correction == "none":
            return None
        if self.correction == "tis":
            return {"kind": "tis", "cap": 2.0 if self.tis_cap is None else self.tis_cap}
        low = 0.5 if self.icepop_low is None else self.icepop_low
        high = 5.0 if self.icepop_high is None else self.icepop_high
        return {"kind": "icepop", "low": low, "high": high}

    def check_objective(self) -> None:
        """Refuse an unknown objective, settings that it does not have, and unusable values."""
        if self.objective not in SETTINGS_OF:
            raise ValueError(
                f"objective is {self.objective!r}; expected one of {', '.join(SETTINGS_OF)}."
            )
        own = SETTINGS_OF[self.objective]
        for name in sorted({name for names in SETTINGS_OF.values() for name in names} - {*own}):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but {self.objective} has no such setting; "
                    f"it has {', '.join(own)}."
                )
        settings = self.given_objective_settings()
        if not settings:
            return

        import torch

        from gspo_edu.objectives import OBJECTIVES

        # One token is enough for the objective to refuse its settings.
        token = torch.zeros(1, 1)
        if self.objective == "dr_grpo":
            settings["max_len"] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            OBJECTIVES[self.objective](token, token, token, token + 1, **settings)

    def normalizes_advantages(self) -> bool:
        """Whether advantages are divided by the group's std; Dr. GRPO's are not (2503.20783)."""
        if self.normalize_advantages is None:
            return self.objective != "dr_grpo"
        return self.normalize_advantages

    def given_objective_settings(self) -> dict[str, float]:
        """The objective's own settings that differ from its defaults."""
        given = {name: getattr(self, name) for name in SETTINGS_OF[self.objective]}
        return {name: value for name, value in given.items() if value is not None}


TYPES: dict[str, Any] = typing.get_type_hints(TrainConfig)


def check_type(name: str, value: Any, wanted: Any) -> None:
    """Raise ValueError unless ``value`` is of the annotated type; an int may stand for a float."""
    choices = typing.get_args(wanted)
    if typing.get_origin(wanted) is Literal:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")
        return
    kinds = choices if isinstance(wanted, types.UnionType) else (wanted,)
    fits = type(value) in kinds or (type(value) is int and float in kinds)
    if not fits:
        expected = " or ".join("none" if k is types.NoneType else k.__name__ for k in kinds)
        raise ValueError(f"{name} is {value!r}; expected {expected}.")


def config_from_mapping(values: dict[str, Any], source: str) -> TrainConfig:
    """A config from parsed TOML or JSON.

    Raises:
        ValueError: naming ``source`` and the field that does not exist or does not fit.
    """
    known = {f.name for f in dataclasses.fields(TrainConfig)}
    for name in values:
        if name not in known:
            raise ValueError(
                f"{source}: there is no field {name!r}; `{COMMAND} config` lists all of them."
            )
    try:
        return TrainConfig(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Top-level keys of a TOML file.

    Raises:
        ValueError: if the file is not there or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"config file {path} does not exist.") from None
    except ValueError as error:  # TOML's, the encoding's, or that of a number too long to read
        raise ValueError(f"config file {path} is not valid TOML: {error}.") from None


def preset_names() -> list[str]:
    """Names of the settings that ship with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))
