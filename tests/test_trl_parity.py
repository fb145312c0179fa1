"""Our losses and gradients are TRL's and verl's; what TRL logs is what we measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import cispo, grpo, gspo

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("trl", reason="the extra 'real' is not installed")


@pytest.fixture(scope="module")
def parity() -> Any:
    """benchmarks/parity.py, with parity_trl and parity_verl beside it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import parity
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return parity


KINDS = pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
PAPER = {
    "importance_sampling_level": "sequence",
    "loss_type": "grpo",
    "epsilon": 3e-4,
    "epsilon_high": 4e-4,
}


@KINDS
@pytest.mark.parametrize("library", ["TRL", "verl"])
def test_losses_and_gradients_agree(library: str, kind: torch.dtype, parity: Any) -> None:
    compared = parity.rows(library)
    assert len(compared) >= 12
    for row in compared:
        limit = parity.limits(row)[str(kind).removeprefix("torch.")]
        loss, gradient = row.differences(kind)
        assert loss < limit, f"{row.objective}, {row.settings}: loss differs by {loss:.1e}"
        assert gradient < limit, f"{row.objective}, {row.settings}: gradient by {gradient:.1e}"


def test_the_comparison_sees_a_wrong_setting(parity: Any) -> None:
    row = next(row for row in parity.rows("TRL") if row.settings.startswith("importance"))
    wrong = parity.replace(row, our_loss=lambda b: gspo(*b.given, clip_high=3e-4).loss)
    assert max(wrong.differences(torch.float64)) > 1e-5
    wrong = parity.replace(row, our_loss=lambda b: grpo(*b.given).loss)
    assert max(wrong.differences(torch.float64)) > 1e-4


def test_the_batches_hold_every_case(parity: Any) -> None:
    corners = set()
    for batch in parity.batches(torch.float64):
        for result in (gspo(*batch.given), grpo(*batch.given)):
            gone = result.token_weight == 0
            for row, advantage in enumerate(batch.advantages):
                inside = batch.mask[row].bool()
                corners |= {(bool(advantage > 0), bool(g)) for g in gone[row][inside]}
        assert set(batch.mask.sum(dim=1).tolist()) == {1, 2, 3, 5, 7, 9, 12}
    assert corners == {(True, True), (True, False), (False, True), (False, False)}


def test_page_shows_the_comparisons(parity: Any) -> None:
    page = parity.PAGE.read_text(encoding="utf-8")
    body = page.split(parity.BEGIN)[1].split(parity.END)[0]
    cells = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("| `")]
    compared = parity.rows()
    assert [cell[:3] for cell in cells] == [
        [f"`{row.objective}`", row.library, row.settings] for row in compared
    ]
    for row, cell in zip(compared, cells, strict=True):
        for shown, limit in zip(cell[4:], parity.limits(row).values(), strict=True):
            assert float(shown) < limit


@KINDS
def test_micro_batches_add_up_to_ours(kind: torch.dtype, parity: Any) -> None:
    settings = {**PAPER, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    for batch in parity.batches(kind):
        whole = torch.autograd.grad(gspo(*batch.given).loss, batch.logp)[0]
        parts = torch.zeros_like(whole)
        for rows in (slice(0, 4), slice(4, 8)):
            loss, _ = parity.parity_trl.loss(settings, *batch.rows(rows).given)
            parts += torch.autograd.grad(loss, batch.logp)[0]
        torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-7)


def test_tool_tokens_and_empty_answers_are_treated_alike(parity: Any) -> None:
    for batch in parity.batches(torch.float64):
        tool = torch.ones_like(batch.mask)
        tool[1, 3:6] = 0
        tool[4] = 0
        ours = gspo(batch.logp, batch.logp_old, batch.advantages, batch.mask * tool).loss
        theirs, _ = parity.parity_trl.loss(PAPER, *batch.given, tool_mask=tool)
        torch.testing.assert_close(theirs, ours, rtol=1e-12, atol=1e-15)
        gradients = [torch.autograd.grad(loss, batch.logp)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-15)


def test_logged_clip_ratios_are_our_metrics(parity: Any) -> None:
    seen = set()
    for batch in parity.batches(torch.float64):
        for level, ours, name in (
            ("sequence", gspo(*batch.given), "clip_fraction_seq"),
            ("token", grpo(*batch.given, clip_low=3e-4, clip_high=4e-4), None),
        ):
            name = name or "clip_fraction_token_weighted"
            settings = PAPER | {"importance_sampling_level": level}
            _, logged = parity.parity_trl.loss(settings, *batch.given)
            region = logged["clip_ratio/region_mean"]
            assert region == pytest.approx(ours.metrics[name].item(), abs=1e-7)
            both = logged["clip_ratio/low_mean"] + logged["clip_ratio/high_mean"]
            assert region == pytest.approx(both, abs=1e-7)
            if level == "sequence":
                assert logged["clip_ratio/low_min"] in (0, 1)
                assert logged["clip_ratio/high_max"] in (0, 1)
                seen.add(logged["clip_ratio/high_max"])
    assert seen == {0, 1}


def test_logged_cispo_clip_ratio_is_ours(parity: Any) -> None:
    settings = {"loss_type": "cispo", "epsilon_high": 1.3}
    for batch in parity.batches(torch.float64):
        _, logged = parity.parity_trl.loss(settings, *batch.given)
        ours = cispo(*batch.given, cap=1.3).metrics["cap_fraction_trl"]
        assert logged["cispo_clip_ratio"] == pytest.approx(ours.item(), abs=1e-7)


@pytest.mark.parametrize(("scale", "normalize"), [("group", True), ("none", False)])
def test_advantages_of_a_rollout_are_ours(scale: str, normalize: bool, parity: Any) -> None:
    rewards = [1.0, 0.0, 0.5, 0.25, 0.3, 0.3, 0.3, 0.3]

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        answers = [[1] * n + [11] for n in (1, 2, 3, 4, 5, 6, 7, 8)]
        return {"prompt_ids": [[1, 10]] * 8, "completion_ids": answers, "logprobs": None}

    made = parity.parity_trl.trainer(
        {"scale_rewards": scale}, rollout_func=rollout, reward_funcs=lambda **_: rewards
    )
    found = made._generate_and_score_completions([{"prompt": "1 ="}] * 8)
    group = torch.tensor([0] * 4 + [1] * 4)
    eps = {"ddof": 1, "eps": 1e-4} if normalize else {}
    ours = group_advantages(rewards, group, normalize=normalize, **eps)
    torch.testing.assert_close(found["advantages"], ours, rtol=1e-6, atol=1e-6)
    assert found["num_items_in_batch"] == sum(range(2, 10))


def test_aligned_steps_leave_no_old_log_probs(parity: Any) -> None:
    """Hazard 5: with one update per rollout TRL has no pi_old, and every ratio is exactly 1."""

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        answers = [[1] * n + [11] for n in range(1, len(prompts) + 1)]
        return {"prompt_ids": [[1, 10]] * len(prompts), "completion_ids": answers, "logprobs": None}

    there = {}
    for steps, accumulated in ((1, 1), (4, 1), (4, 4)):
        settings = {"steps_per_generation": steps, "gradient_accumulation_steps": accumulated}
        made = parity.parity_trl.trainer(settings, rollout_func=rollout)
        found = made._generate_and_score_completions([{"prompt": "1 ="}] * 8)
        there[steps, accumulated] = "old_per_token_logps" in found
    assert there == {(1, 1): False, (4, 1): True, (4, 4): False}

    batch = parity.batches(torch.float64)[0]
    result = gspo(batch.logp, batch.logp.detach(), batch.advantages, batch.mask)
    loss, logged = parity.parity_trl.loss(
        PAPER, batch.logp, batch.logp.detach(), batch.advantages, batch.mask
    )
    assert logged["clip_ratio/region_mean"] == 0
    assert loss.item() == pytest.approx(-batch.advantages.mean().item())
    assert result.loss.item() == pytest.approx(loss.item())


@pytest.mark.parametrize(
    ("settings", "shares"),
    [(PAPER, (0.5, 0.5)), (PAPER | {"loss_type": "dapo"}, (2 / 22, 20 / 22))],
)
def test_default_loss_type_weighs_answers_by_length(
    settings: dict[str, Any], shares: tuple[float, float], parity: Any
) -> None:
    """Hazard 35: two answers of 2 and 20 tokens with the same ratio and advantage."""
    mask = (torch.arange(20) < torch.tensor([[2], [20]])).double()
    old = torch.full((2, 20), -1.0, dtype=torch.float64)
    logp = old.clone().requires_grad_()
    loss, _ = parity.parity_trl.loss(settings, logp, old, torch.ones(2, dtype=old.dtype), mask)
    (gradient,) = torch.autograd.grad(loss, logp)
    pull = gradient.abs().sum(dim=1)
    assert (pull / pull.sum()).tolist() == pytest.approx(list(shares))


def test_a_sampled_padding_token_counts_as_finished(parity: Any) -> None:
    """Of three answers that were cut, TRL calls the one that ends in padding finished."""
    answers = [[1, 2, 11], [1, 2, 3], [1, 2, 12], [1, 2, 3]] * 2

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        return {"prompt_ids": [[1, 10]] * 8, "completion_ids": answers, "logprobs": None}

    made = parity.parity_trl.trainer({"mask_truncated_completions": True}, rollout_func=rollout)
    found = made._generate_and_score_completions([{"prompt": "1 ="}] * 8)
    assert made._metrics["train"]["completions/clipped_ratio"] == [0.5]
    assert found["completion_mask"].sum(dim=1).tolist() == [3, 0, 3, 0] * 2
