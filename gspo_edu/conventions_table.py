"""The conventions of public libraries as a table: choice, number for the one batch, who, where.

``conventions()`` are the rows, for documents; ``table()`` shows them in a notebook, all of them or
those of some questions, such as ``table("mean", "clip")``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any

from torch import Tensor

from gspo_edu import conventions as c
from gspo_edu.bibliography import source

# Short names of the sources in the bibliography.
NAMES = {
    "areal_loss": "AReaL",
    "cispo": "MiniMax-M1",
    "cleanrl": "CleanRL",
    "dapo": "DAPO",
    "dr_grpo": "Dr. GRPO",
    "grpo": "DeepSeekMath",
    "gspo": "GSPO",
    "openrlhf": "OpenRLHF",
    "trl": "TRL",
    "verl": "verl",
}


@dataclass(frozen=True)
class Convention:
    """One row: what a library computes where another computes something else.

    Attributes:
        question: one of ``QUESTIONS``, what the row belongs to.
        topic: what is left open; the rows of one topic answer the same question.
        what: which number is shown.
        choice: the convention, in a few words.
        number: for the one batch.
        used_by: {key in the bibliography: option, empty for a paper's formula or the only way};
            empty if it is this course's own.
    """

    question: str
    topic: str
    what: str
    choice: str
    number: float
    used_by: dict[str, str] = field(default_factory=dict)

    @property
    def who(self) -> str:
        """Names and options in one line."""
        each = ((NAMES[key], option) for key, option in self.used_by.items())
        line = ", ".join(f"{name} ({option})" if option else name for name, option in each)
        return line or "this course"


class ConventionTable(Sequence[Convention]):
    """Rows in order, shown as a table in a notebook and as lines elsewhere."""

    def __init__(self, rows: Sequence[Convention]) -> None:
        self.rows = tuple(rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines: list[str] = []
        topic = ""
        for row in self.rows:
            if row.topic != topic:
                topic = row.topic
                lines.append(f"{topic}: {row.what}")
            lines.append(f"  {row.number:+.6f}  {row.choice}: {row.who}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cell = 'style="text-align:left;vertical-align:top"'
        head = "".join(
            f'<th scope="col" {cell}>{name}</th>' for name in ("Convention", "Number", "Who")
        )
        body, topic = [], ""
        for row in self.rows:
            if row.topic != topic:
                topic = row.topic
                title = f"<b>{escape(topic)}</b>: {escape(row.what)}"
                body.append(f'<tr><th scope="rowgroup" colspan="3" {cell}>{title}</th></tr>')
            number = f"{row.number:.6f}".replace("-", "−")
            body.append(
                f'<tr><td {cell}>{escape(row.choice)}</td><td style="vertical-align:top">'
                f"{number}</td><td {cell}>{escape(row.who)}</td></tr>"
            )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def sources(self) -> list[str]:
        """The bibliography's line of every source that a row names, in order of appearance."""
        keys = dict.fromkeys(key for row in self.rows for key in row.used_by)
        return [str(source(key)) for key in keys]


def first(function: Callable[[c.Case], Tensor]) -> Callable[[c.Case], Tensor]:
    """That function's number for answer 1."""
    return lambda case: function(case)[0]


def last(function: Callable[[c.Case], Tensor]) -> Callable[[c.Case], Tensor]:
    """That function's number for the last answer."""
    return lambda case: function(case)[-1]


def token(function: Callable[[c.Case], Tensor], place: int) -> Callable[[c.Case], Tensor]:
    """That function's number for one token of answer 2, whose ratios are 0.5 and 2."""
    return lambda case: function(case)[1, place]


QUESTIONS = {
    "std": "What are the advantages divided by?",
    "mean": "Which mean is taken over tokens and answers?",
    "ratio": "Which ratio does an answer have as a whole?",
    "kl": "Which KL, and where does it go?",
    "cap": "What does CISPO's ε_high mean?",
    "clip": "What does the logged clip fraction count?",
}
Row = tuple[str, Callable[[c.Case], Tensor], dict[str, str]]
KL_PLACE = "Where the KL goes, β = 0.04, std with n − 1"
CAP = "CISPO with ε_low = 0.2 and ε_high = 0.28"
TOPICS: dict[tuple[str, str, str], list[Row]] = {
    ("std", "Divide by the std", "advantage of answer 1"): [
        ("n", first(c.advantages_paper), {"grpo": "n or n − 1 is not said", "gspo": "the same"}),
        ("n − 1, plus 1e-4", first(c.advantages_trl), {"trl": 'scale_rewards="group"'}),
        ("n − 1, plus 1e-5", first(c.advantages_areal), {"areal_loss": "reward_norm: group"}),
        ("n − 1, plus 1e-6", first(c.advantages_verl), {"verl": "adv_estimator: grpo"}),
        ("n − 1, plus 1e-9", first(c.advantages_openrlhf), {"openrlhf": "estimator group_norm"}),
        (
            "not at all",
            first(c.advantages_dr_grpo),
            {
                "dr_grpo": "",
                "trl": 'scale_rewards="none"',
                "verl": "norm_adv_by_std_in_grpo: False",
                "openrlhf": "estimator dr_grpo",
            },
        ),
    ],
    ("mean", "Mean of GRPO's token terms", "loss, range 0.8 to 1.27"): [
        (
            "per answer, then over answers",
            c.loss_per_answer,
            {"grpo": "", "trl": 'loss_type="grpo"', "verl": "loss_agg_mode: seq-mean-token-mean"},
        ),
        (
            "over all tokens",
            c.loss_per_token,
            {
                "dapo": "",
                "trl": 'loss_type="dapo", the default',
                "verl": "token-mean, the default",
                "openrlhf": "policy_loss_type ppo",
                "areal_loss": "",
            },
        ),
        (
            f"sum over {c.MAX_LEN}, then over answers",
            c.loss_constant_length,
            {"dr_grpo": "", "trl": 'loss_type="dr_grpo", max_completion_length=8'},
        ),
        ("sum, then over answers", c.loss_token_sums, {"verl": "seq-mean-token-sum"}),
        (
            f"sum of all over {c.MAX_LEN}",
            c.loss_constant_without_mean,
            {"verl": "seq-mean-token-sum-norm, loss_scale_factor=8"},
        ),
    ],
    ("mean", "Mean of GSPO's answers", "loss"): [
        (
            "over answers",
            c.gspo_per_answer,
            {
                "gspo": "",
                "trl": 'importance_sampling_level="sequence", loss_type="grpo"',
                "verl": "loss_mode: gspo",
                "openrlhf": "policy_loss_type gspo",
            },
        ),
        (
            "over tokens, so long answers weigh more",
            c.gspo_per_token,
            {
                "trl": '"sequence" with the default loss_type; it warns',
                "areal_loss": "importance_sampling_level: sequence",
            },
        ),
    ],
    ("ratio", "One ratio per answer", "of answer 4"): [
        (
            "exp of the mean of the log-ratios",
            last(c.ratio_mean_of_logs),
            {"gspo": "", "trl": "GRPOTrainer", "verl": "", "openrlhf": "", "areal_loss": ""},
        ),
        (
            "exp of their sum",
            last(c.ratio_sum_of_logs),
            {"trl": "RLOOTrainer", "verl": "rollout_is: sequence, sampler against trainer"},
        ),
    ],
    ("kl", "KL estimator", "mean over tokens; a reference that gives each of them 0.25"): [
        ("k1", c.kl_k1, {"openrlhf": "default", "areal_loss": "default", "verl": "kl"}),
        ("k2", c.kl_k2, {"openrlhf": "k2", "areal_loss": "k2", "verl": "mse"}),
        ("k3", c.kl_k3, {"grpo": "", "verl": "low_var_kl, default in the loss"}),
        ("ratio times k3", c.kl_k3_weighted, {"trl": "use_bias_correction_kl, the default"}),
    ],
    ("kl", KL_PLACE, "advantage of answer 1"): [
        (
            "in the loss",
            first(c.advantages_kl_in_loss),
            {"grpo": "", "trl": "beta", "verl": "use_kl_loss", "openrlhf": "kl.use_loss"},
        ),
        (
            "in the reward, from π_old",
            first(c.advantages_kl_in_reward),
            {"verl": "use_kl_in_reward"},
        ),
    ],
    ("cap", CAP, "weight on log π where r = 2, in units of A"): [
        ("cap 1 + ε_high", token(c.cispo_relative_cap, 1), {"cispo": "", "verl": "cispo"}),
        ("cap ε_high itself", token(c.cispo_absolute_cap, 1), {"trl": "epsilon_high"}),
    ],
    ("cap", f"{CAP}, below 1", "weight on log π where r = 0.5, in units of A"): [
        ("no lower bound", token(c.cispo_relative_cap, 0), {"cispo": "ε_low is set out of reach"}),
        ("no lower bound, absolute cap", token(c.cispo_absolute_cap, 0), {"trl": "epsilon_high"}),
        ("lower bound 1 − ε_low", token(c.cispo_two_bounds, 0), {"verl": "clip_ratio_low"}),
    ],
    ("clip", "Clip fraction of GRPO", "range 0.8 to 1.2"): [
        (
            "clipped tokens of all tokens",
            c.clip_share_of_tokens,
            {
                "trl": "clip_ratio/region_mean",
                "verl": "pg_clipfrac",
                "openrlhf": "",
                "areal_loss": "",
            },
        ),
        ("the same, mean per answer first", c.clip_share_per_answer, {}),
        ("beyond the range, any sign of A", c.outside_share_of_tokens, {"cleanrl": "clipfrac"}),
    ],
    ("clip", "Clip fraction of GMPO", "range exp(±0.4)"): [
        ("tokens without gradient", c.gmpo_clip_share, {}),
        (
            "beyond the range, any sign of A",
            c.gmpo_outside_share,
            {"verl": "loss_mode: geo_mean, pg_clipfrac + pg_clipfrac_lower"},
        ),
    ],
    ("clip", "Clip fraction of GSPO", "range 0.9997 to 1.0004"): [
        ("clipped answers of all answers", c.gspo_clip_share_of_answers, {"trl": "region_mean"}),
        (
            "their tokens of all tokens",
            c.gspo_clip_share_of_tokens,
            {"verl": "pg_clipfrac", "openrlhf": "", "areal_loss": ""},
        ),
    ],
}


@cache
def conventions() -> tuple[Convention, ...]:
    """All rows, with their numbers for the one batch."""
    case = c.one_case()
    return tuple(
        Convention(question, topic, what, choice, float(compute(case)), used_by)
        for (question, topic, what), rows in TOPICS.items()
        for choice, compute, used_by in rows
    )


def table(*questions: str) -> ConventionTable:
    """The rows of these questions (``QUESTIONS``), or all, to be shown.

    Raises:
        ValueError: if a question is unknown.
    """
    unknown = [question for question in questions if question not in QUESTIONS]
    if unknown:
        raise ValueError(f"questions has {unknown}; expected some of {', '.join(QUESTIONS)}.")
    wanted = questions or tuple(QUESTIONS)
    return ConventionTable([row for row in conventions() if row.question in wanted])
