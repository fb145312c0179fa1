"""Tasks: what a rollout holds under TRL's settings, and the settings of the paper's GSPO.

TRL itself is not needed: settings are read as its GRPOConfig and GRPOTrainer read them. A test
compares the defaults and the sizes with the library where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from gspo_edu.checks.calling import Unusable
from gspo_edu.checks.cases import Case
from gspo_edu.checks.result import shown
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.checks.terms import PAPER_HIGH, PAPER_LOW

DEFAULTS: dict[str, Any] = {
    "importance_sampling_level": "token",
    "loss_type": "dapo",
    "beta": 0.0,
    "epsilon": 0.2,
    "epsilon_high": None,
    "per_device_train_batch_size": 8,
    "num_generations": 8,
    "steps_per_generation": None,
    "gradient_accumulation_steps": 1,
    "generation_batch_size": None,
    "num_iterations": 1,
}
# Other settings of TRL whose names are like one of those above.
NEIGHBOURS = ("per_device_eval_batch_size", "num_generations_eval", "eval_accumulation_steps")
LEVELS = ("token", "sequence")
BY_SIZE_OR_STEPS = ("generation_batch_size", "steps_per_generation")
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
GRPO_LOW, GRPO_HIGH = 0.2, 0.27
SOME_KL = 0.04
FACTS = (
    "one ratio per answer",
    "answers count alike",
    "beta",
    "epsilon",
    "epsilon_high",
    "answers in a rollout",
    "answers per prompt",
    "updates per rollout",
    "passes over a rollout",
)


def draw_sizes(dice: torch.Generator) -> list[Case]:
    """Cases of (batch, processes, steps, accumulation, group)."""
    cases: list[Case] = []
    for processes, steps, accumulation, group in ((2, 6, 3, 4), (3, 8, 2, 6), (4, 12, 4, 5)):
        batch = group * int(torch.randint(2, 9, (), generator=dice))
        case = {"batch": batch, "processes": processes, "steps": steps}
        cases.append({**case, "accumulation": accumulation, "group": group})
    return cases


def size_formula(
    case: Case, *, prompts: str = "right", updates: str = "right", order: str = "right"
) -> Tensor:
    """(2,): prompts in a rollout and updates per rollout, or other numbers."""
    batch, processes, steps, accumulation, group = case.values()
    found_prompts = {
        "right": batch * processes * steps / group,
        "processes_forgotten": batch * steps / group,
        "answers": batch * processes * steps,
        "one_mini_batch": batch * processes / group,
        "accumulation_counted": batch * processes * accumulation / group,
        "accumulation_as_well": batch * processes * steps * accumulation / group,
    }[prompts]
    found_updates = {
        "right": steps / accumulation,
        "every_pass": steps,
        "inverse": accumulation / steps,
        "product": steps * accumulation,
    }[updates]
    found = [found_prompts, found_updates]
    return torch.tensor(found[::-1] if order == "outputs_swapped" else found, dtype=torch.float64)


TRL_ROLLOUT = FunctionTask(
    name="trl_rollout",
    draw=draw_sizes,
    right=size_formula,
    formula=size_formula,
    faults=(
        Fault("prompts", "processes_forgotten", "Every process brings answers of its own."),
        Fault("prompts", "answers", "The first number counts answers. A prompt has a group."),
        Fault(
            "prompts",
            "one_mini_batch",
            "The first number is that of one backward pass. A rollout feeds all its steps.",
        ),
        Fault(
            "prompts",
            "accumulation_counted",
            "The first number is that of one update. A rollout's size follows from its steps.",
        ),
        Fault(
            "prompts",
            "accumulation_as_well",
            "Accumulation cuts the rollout's steps into updates. It does not add answers.",
        ),
        Fault("updates", "every_pass", "The second number counts passes: some make one update."),
        Fault("updates", "inverse", "The second number is upside down."),
        Fault("updates", "product", "The second number multiplies. Accumulation divides."),
        Fault("order", "outputs_swapped", "Prompts first, then updates: they changed places."),
    ),
)


def draw_plans(dice: torch.Generator) -> list[Case]:
    """Cases of (prompts, group, mini_batches, processes); prompts are those of one rollout."""
    cases: list[Case] = []
    # Never group = mini_batches * processes: a process would take as many answers as there are
    # prompts.
    for group, mini_batches, processes in ((4, 2, 1), (6, 3, 4), (16, 4, 2)):
        some = int(torch.randint(2, 12, (), generator=dice))
        prompts = some * mini_batches * processes
        case = {"prompts": prompts, "group": group, "mini_batches": mini_batches}
        cases.append({**case, "processes": processes})
    return cases


def plan_formula(
    case: Case,
    *,
    level: str = "sequence",
    loss: str = "grpo",
    kl: str = "none",
    bounds: str = "paper",
    size: str = "right",
    group: str = "right",
    updates: str = "right",
) -> Tensor:
    """(9,): the facts of a run with the paper's settings, or with wrong ones."""
    prompts, own_group, parts, processes = case.values()
    answers = prompts * own_group
    low, high = {
        "paper": (PAPER_LOW, PAPER_HIGH),
        "default_range": (DEFAULTS["epsilon"], DEFAULTS["epsilon"]),
        "grpo_range": (GRPO_LOW, GRPO_HIGH),
        "one_width": (PAPER_LOW, PAPER_LOW),
        "swapped": (PAPER_HIGH, PAPER_LOW),
        "bounds_not_widths": (1 - PAPER_LOW, 1 + PAPER_HIGH),
    }[bounds]
    in_rollout = {
        "right": answers,
        "processes_forgotten": answers * processes,
        "rollout_as_batch": answers * parts,
        "prompts_as_batch": prompts,
    }[size]
    made, passes = {
        "right": (parts, 1),
        "one_update": (1, 1),
        "repeated_passes": (parts, parts),
    }[updates]
    facts = [level == "sequence", loss == "grpo", 0.0 if kl == "none" else SOME_KL, low, high]
    of_prompt = own_group if group == "right" else DEFAULTS["num_generations"]
    return torch.tensor([*facts, in_rollout, of_prompt, made, passes], dtype=torch.float64)


def facts_of(case: Case, output: Any) -> Tensor:
    """(9,): what a run with these settings would be, as TRL reads them.

    Raises:
        Unusable: if the output is no settings, or one of them is not what TRL takes.
    """
    if not isinstance(output, dict) and type(output).__name__ != "GRPOConfig":
        raise Unusable(f"It returns {type(output).__name__}; expected a dict of settings.")
    if isinstance(output, dict):
        refuse_unknown(output)
    given = {**DEFAULTS, **(output if isinstance(output, dict) else vars(output))}
    batch, accumulation = (
        whole(given, name)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
    )
    at_once = batch * case["processes"]
    if given["steps_per_generation"] is not None:
        steps = float(whole(given, "steps_per_generation"))
    elif given["generation_batch_size"] is not None:
        steps = whole(given, "generation_batch_size") / at_once
    else:
        steps = float(accumulation)
    passes, low = whole(given, "num_iterations"), real(given, "epsilon")
    high = low if given["epsilon_high"] is None else real(given, "epsilon_high")
    facts = [
        given["importance_sampling_level"] == "sequence",
        given["loss_type"] == "grpo",
        real(given, "beta"),
        low,
        high,
        at_once * steps,
        whole(given, "num_generations"),
        steps * passes / accumulation,
        passes,
    ]
    return torch.tensor([float(fact) for fact in facts], dtype=torch.float64)


def refuse_unknown(settings: dict[str, Any]) -> None:
    """Names that look like a setting's but are not, and values that TRL does not have.

    Raises:
        Unusable: naming the first.
    """
    for name in settings:
        near = get_close_matches(str(name), [*DEFAULTS, *NEIGHBOURS], n=1, cutoff=0.8)
        if near and near[0] != name:
            raise Unusable(f"TRL has no setting {name}. Is {near[0]} meant?")
    level = settings.get("importance_sampling_level", "token")
    if level not in LEVELS:
        raise Unusable(f"importance_sampling_level is {level!r}; TRL has {', '.join(LEVELS)}.")
    if None not in (settings.get(name) for name in BY_SIZE_OR_STEPS):
        raise Unusable(f"TRL takes {' or '.join(BY_SIZE_OR_STEPS)}, not both.")
    loss = settings.get("loss_type", DEFAULTS["loss_type"])
    if loss not in LOSS_TYPES:
        hint = " GSPO is a level, not a loss_type." if "gspo" in str(loss).lower() else ""
        raise Unusable(f"loss_type is {loss!r}; TRL has {', '.join(LOSS_TYPES)}.{hint}")


def whole(settings: dict[str, Any], name: str) -> int:
    """A setting that has to be a whole number above 0.

    Raises:
        Unusable: if it is not.
    """
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        hint = f" Write {value:.0f}, or // instead of /." if isinstance(value, float) else ""
        raise Unusable(f"{name} is {value!r}; TRL takes a whole number above 0.{hint}")
    return int(value)


def real(settings: dict[str, Any], name: str) -> float:
    """A setting that has to be a number.

    Raises:
        Unusable: if it is not.
    """
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Unusable(f"{name} is {value!r}; TRL takes a number.")
    return float(value)


def facts_shown(facts: Tensor) -> str:
    """One fact a line, with its name."""
    values: list[Callable[[float], str]] = [
        *([lambda x: "yes" if x else "no"] * 2),
        *([shown] * (len(FACTS) - 2)),
    ]
    rows = zip(FACTS, values, facts.tolist(), strict=True)
    return "\n".join(f"{name}: {text(value)}" for name, text, value in rows)


TRL_SETTINGS = FunctionTask(
    name="trl_settings",
    draw=draw_plans,
    right=plan_formula,
    formula=plan_formula,
    reading=facts_of,
    show=facts_shown,
    faults=(
        Fault(
            "level",
            "token_level",
            'One ratio per token: importance_sampling_level is "token" unless you set it.',
        ),
        Fault(
            "loss",
            "length_weighted",
            'Long answers count more with this loss_type ("dapo" unless you set it). Only one '
            "value gives the mean per answer, and then over the answers.",
        ),
        Fault("kl", "kl_term", "beta is not 0, so there is a KL term. The paper's run has none."),
        Fault(
            "bounds",
            "default_range",
            "The range is TRL's default, 0.2 on both sides. Sequence ratios hardly ever get there.",
        ),
        Fault(
            "bounds",
            "grpo_range",
            "This is the range of the paper's GRPO baseline, for token ratios.",
        ),
        Fault(
            "bounds",
            "one_width",
            "epsilon_high is the same as epsilon, which it also is if you leave it out. The "
            "paper's range is wider above.",
        ),
        Fault("bounds", "swapped", "epsilon and epsilon_high have changed places."),
        Fault(
            "bounds",
            "bounds_not_widths",
            "These are the bounds themselves. TRL takes widths: 1 - epsilon and 1 + epsilon_high.",
        ),
        Fault(
            "size",
            "processes_forgotten",
            "The rollout is too large: every process brings per_device_train_batch_size answers.",
        ),
        Fault(
            "size",
            "rollout_as_batch",
            "The rollout is too large: per_device_train_batch_size is one backward pass's share, "
            "and a rollout has steps_per_generation of them.",
        ),
        Fault("size", "prompts_as_batch", "Batch sizes count answers, not prompts."),
        Fault("group", "default_group", "num_generations is 8 unless you set it."),
        Fault(
            "updates",
            "one_update",
            "Each rollout is used for one update: every ratio is then 1 and nothing is ever "
            "clipped. What happens to the steps that are accumulated?",
        ),
        Fault(
            "updates",
            "repeated_passes",
            "num_iterations repeats the whole rollout. The paper cuts it into mini-batches and "
            "uses each once.",
        ),
    ),
)
