"""Each convention by a formula written out in NumPy, and the table that shows them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from gspo_edu import conventions as c
from gspo_edu.bibliography import sources
from gspo_edu.conventions_page import PAGE, page
from gspo_edu.conventions_table import (
    NAMES,
    QUESTIONS,
    ConventionTable,
    conventions,
    table,
)

CASE = c.one_case()
MASK = CASE.mask.numpy()
R = np.array([1.0, 0.0, 0.5, 0.0])
LENGTHS = np.array([3, 2, 1, 4])
LOG = ((CASE.logp - CASE.logp_old).numpy() * MASK).astype(float)
RATIO = np.exp(LOG)
OLD_TO_REF = (CASE.logp_old.numpy() - np.log(0.25)) * MASK
TO_REF = (CASE.logp.numpy() - np.log(0.25)) * MASK
A = (R - R.mean()) / R.std()
PER_TOKEN = np.broadcast_to(A[:, None], MASK.shape)
MIN = np.minimum(RATIO * PER_TOKEN, RATIO.clip(0.8, 1.27) * PER_TOKEN) * MASK
S = np.exp(LOG.sum(axis=1) / LENGTHS)
GSPO = np.minimum(S * A, S.clip(1 - 3e-4, 1 + 4e-4) * A)
K3 = (np.exp(-TO_REF) + TO_REF - 1) * MASK
CLIPPED = (((RATIO > 1.2) & (PER_TOKEN > 0)) | ((RATIO < 0.8) & (PER_TOKEN < 0))) & MASK
GMPO_CLIPPED = (((LOG > 0.4) & (PER_TOKEN > 0)) | ((LOG < -0.4) & (PER_TOKEN < 0))) & MASK


def libraries_std(eps: float, rewards: np.ndarray = R) -> np.ndarray:
    """torch.std's divisor, plus eps."""
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + eps)


WANTED = {
    "advantages_paper": A,
    "advantages_trl": libraries_std(1e-4),
    "advantages_areal": libraries_std(1e-5),
    "advantages_verl": libraries_std(1e-6),
    "advantages_openrlhf": libraries_std(1e-9),
    "advantages_dr_grpo": R - R.mean(),
    "loss_per_answer": -(MIN.sum(axis=1) / LENGTHS).mean(),
    "loss_per_token": -MIN.sum() / 10,
    "loss_constant_length": -MIN.sum() / 8 / 4,
    "loss_token_sums": -MIN.sum() / 4,
    "loss_constant_without_mean": -MIN.sum() / 8,
    "gspo_per_answer": -GSPO.mean(),
    "gspo_per_token": -(GSPO * LENGTHS).sum() / 10,
    "ratio_mean_of_logs": S,
    "ratio_sum_of_logs": RATIO.prod(axis=1),
    "kl_k1": TO_REF.sum() / 10,
    "kl_k2": (TO_REF**2).sum() / 20,
    "kl_k3": K3.sum() / 10,
    "kl_k3_weighted": (RATIO * K3).sum() / 10,
    "advantages_kl_in_loss": libraries_std(1e-6),
    "advantages_kl_in_reward": libraries_std(1e-6, R - 0.04 * OLD_TO_REF.sum(axis=1)),
    "cispo_relative_cap": np.minimum(RATIO, 1.28) * MASK,
    "cispo_absolute_cap": np.minimum(RATIO, 0.28) * MASK,
    "cispo_two_bounds": RATIO.clip(0.8, 1.28) * MASK,
    "clip_share_of_tokens": CLIPPED.sum() / 10,
    "clip_share_per_answer": (CLIPPED.sum(axis=1) / LENGTHS).mean(),
    "outside_share_of_tokens": ((np.abs(RATIO - 1) > 0.2 + 1e-9) & MASK).sum() / 10,
    "gmpo_clip_share": GMPO_CLIPPED.sum() / 10,
    "gmpo_outside_share": ((np.abs(LOG) > 0.4) & MASK).sum() / 10,
    "gspo_clip_share_of_answers": 1 / 4,
    "gspo_clip_share_of_tokens": 1 / 10,
}
FUNCTIONS = [
    name for name, value in vars(c).items() if getattr(value, "__module__", "") == c.__name__
]


@pytest.mark.parametrize("name", WANTED)
def test_function(name: str) -> None:
    found = getattr(c, name)(CASE)
    wanted = torch.as_tensor(WANTED[name], dtype=torch.float64)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-9, atol=1e-9)


def test_every_function_is_tested() -> None:
    assert {name for name in FUNCTIONS if name[0] != "_"} == {*WANTED, "Case", "one_case"}


def test_the_formulas_are_told_apart() -> None:
    """A row whose number another row of its topic shares would teach nothing."""
    for topic in {row.topic for row in conventions()}:
        numbers = [row.number for row in conventions() if row.topic == topic]
        assert len({f"{number:.6f}" for number in numbers}) == len(numbers), topic


def test_each_function_has_a_row() -> None:
    shown = {f"{row.number:.9f}" for row in conventions()}
    for name in WANTED:
        numbers = getattr(c, name)(CASE).double().ravel()
        assert shown & {f"{number:.9f}" for number in numbers.tolist()}, name


def test_rows_name_a_source_and_an_option() -> None:
    for row in conventions():
        assert set(row.used_by) <= set(NAMES)
        assert row.choice
        assert row.what
    assert set(NAMES) <= set(sources())
    used = {key for row in conventions() for key in row.used_by}
    assert used == set(NAMES)


def test_table_in_a_notebook_and_elsewhere() -> None:
    shown = table()
    assert isinstance(shown, ConventionTable)
    assert len(shown) == len(conventions())
    assert shown[0].number == pytest.approx(A[0])
    text, html = repr(shown), shown._repr_html_()
    for row in shown:
        assert f"{row.number:+.6f}  {row.choice}" in text
    assert html.count("<tr>") == 1 + len(shown) + len({row.topic for row in shown})
    assert html.count("<tr>") == html.count("</tr>")
    assert "TRL (scale_rewards=&quot;group&quot;)" in html
    assert not re.search(r"<td[^>]*>-", html), "a minus sign, not a hyphen"
    assert any("TRL 1.16" in line for line in shown.sources())


def test_a_part_of_the_table() -> None:
    """Each row belongs to one question, and a topic's rows stay together."""
    parts = {question: table(question) for question in QUESTIONS}
    assert sorted(map(len, parts.values()))[0] >= 2
    assert sum(map(len, parts.values())) == len(conventions())
    topics = {question: {row.topic for row in part} for question, part in parts.items()}
    assert sum(map(len, topics.values())) == len(set().union(*topics.values()))
    assert topics["mean"] == {"Mean of GRPO's token terms", "Mean of GSPO's answers"}
    assert list(table("clip", "std")) == [*parts["std"], *parts["clip"]]
    assert len(parts["ratio"].sources()) < len(table().sources())
    with pytest.raises(ValueError, match=r"questions has \['length'\]; expected some of std, mean"):
        table("mean", "length")


def test_padding_reaches_no_convention() -> None:
    """Twice as wide, with junk: the same numbers, except what a library divides by the width."""
    pad = torch.nn.functional.pad
    wide = {
        name: pad(getattr(CASE, name), (0, 4), value=-0.3)
        for name in ("logp", "logp_old", "logp_ref")
    }
    other = replace(CASE, **wide, mask=pad(CASE.mask, (0, 4)))
    for name in WANTED:
        found, same = getattr(c, name)(other), getattr(c, name)(CASE)
        found = found[:, :4] if found.dim() == 2 else found
        torch.testing.assert_close(found, same, rtol=1e-12, atol=1e-12)


def test_the_page_in_docs_has_every_row() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m gspo_edu.conventions_page"
    assert page().count("\n| ") == len(conventions()) + len(QUESTIONS)
