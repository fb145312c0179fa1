"""Every case of the reference file, in float64 and, where it is safe, in float32."""

import json
from pathlib import Path

import pytest
import torch

from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.ratios import product_ratio, sequence_ratio, token_ratio

CASES = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text())
BY_ID = {case["id"]: case for case in CASES}


def of_kind(kind):
    cases = [case for case in CASES if case["inputs"]["config"]["kind"] == kind]
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def loss_and_gradient(case, dtype):
    inputs = dict(case["inputs"])
    config = dict(inputs.pop("config"))
    del config["kind"]
    objective = OBJECTIVES[config.pop("loss")]
    tensor = {name: torch.tensor(value, dtype=dtype) for name, value in inputs.items()}
    logp = tensor["logp"].requires_grad_()
    result = objective(
        logp,
        tensor["logp_old"],
        tensor["advantages"],
        tensor["mask"],
        **{name: tensor[name] for name in ("logp_ref", "logp_rollout") if name in tensor},
        **config,
    )
    (gradient,) = torch.autograd.grad(result.loss, logp)
    return result, gradient, tensor


def close(got, expected, tol):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(torch.as_tensor(got).detach().double(), expected, rtol=tol, atol=tol)


@of_kind("loss")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss(case, dtype):
    expect = case["expect"]
    tol = case["tol"] if dtype == torch.float64 else 2e-5
    result, gradient, tensor = loss_and_gradient(case, dtype)
    close(result.loss, expect["loss"], tol)
    if dtype == torch.float32 and not case["float32_safe"]:
        return
    wanted = torch.tensor(expect["grad_logp"], dtype=torch.float64)
    keep = torch.ones_like(wanted, dtype=torch.bool)
    for row, token in case.get("grad_skip", []):
        keep[row, token] = False
    close(gradient[keep], wanted[keep], tol)
    assert (gradient[tensor["mask"] == 0] == 0).all()
    if not case["inputs"]["config"].get("beta"):
        close(result.token_weight[keep], -wanted[keep], tol)

    triple = (tensor["logp"], tensor["logp_old"], tensor["mask"])
    close(token_ratio(*triple), expect["token_ratio"], tol)
    close(sequence_ratio(*triple), expect["seq_ratio"], tol)
    if "seq_ratio_product" in expect:
        close(product_ratio(*triple), expect["seq_ratio_product"], tol)
    if "row_grad_sum" in expect and keep.all():
        close(gradient.sum(dim=1), expect["row_grad_sum"], tol)
    ratios = {"token_ratio", "seq_ratio", "seq_ratio_product", "row_grad_sum", "loss", "grad_logp"}
    for name in set(expect) - ratios:
        close(result.metrics[name], expect[name], tol)


@pytest.mark.parametrize("case", [c for c in CASES if c.get("pair")], ids=lambda c: c["id"])
def test_pair(case):
    result, gradient, _ = loss_and_gradient(case, torch.float64)
    other, other_gradient, _ = loss_and_gradient(BY_ID[case["pair"]], torch.float64)
    close(result.loss, other.loss.item(), case["tol"])
    width = min(gradient.shape[1], other_gradient.shape[1])
    close(gradient[:, :width], other_gradient[:, :width], case["tol"])


@of_kind("advantages")
def test_advantages(case):
    config = {k: v for k, v in case["inputs"]["config"].items() if k != "kind"}
    rewards = torch.tensor(case["inputs"]["rewards"], dtype=torch.float64)
    group_ids = torch.tensor(case["inputs"]["group_ids"])
    if "raises" in case["expect"]:
        assert case["expect"]["raises"] == "ValueError"
        with pytest.raises(ValueError, match="one answer"):
            group_advantages(rewards, group_ids, **config)
    else:
        got = group_advantages(rewards, group_ids, **config)
        close(got, case["expect"]["advantages"], case["tol"])


@of_kind("ratio")
def test_ratio(case):
    inputs, tol = case["inputs"], case["tol"]
    logp = torch.full((1, inputs["length"]), inputs["log_ratio_const"], dtype=torch.float64)
    old, mask = torch.zeros_like(logp), torch.ones_like(logp)
    close(product_ratio(logp, old, mask), [case["expect"]["product"]], tol)
    close(sequence_ratio(logp, old, mask), [case["expect"]["geometric_mean"]], tol)


@of_kind("router")
def test_router(case):
    from gspo_edu.moe.routes import replay_gates

    logits = torch.tensor(case["inputs"]["logits"], dtype=torch.float64)
    experts = torch.tensor(case["inputs"]["experts"])
    gates = replay_gates(logits, experts)
    close(gates, case["expect"]["gates"], case["tol"])
    dense = torch.zeros_like(logits).scatter(-1, experts, gates)
    close(dense, case["expect"]["gates_dense"], case["tol"])
    jacobian = torch.autograd.functional.jacobian(lambda x: replay_gates(x, experts), logits)
    close(jacobian, case["expect"]["jacobian"], case["tol"])


def test_every_case_is_tested():
    kinds = {case["inputs"]["config"]["kind"] for case in CASES}
    assert kinds == {"loss", "advantages", "ratio", "router"}
    assert len(CASES) == 179
