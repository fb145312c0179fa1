"""AdamW: torch's steps, bit for bit, without torch's compiler."""

import copy
import subprocess
import sys

import pytest
import torch

from gspo_edu.adamw import AdamW


def weights(seed=0):
    dice = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=dice).requires_grad_() for shape in ((3, 4), (5,), ())]


def give_gradients(*sides, seed, leave_out=None):
    for side in sides:
        dice = torch.Generator().manual_seed(seed)
        for index, weight in enumerate(side):
            grad = torch.randn(weight.shape, generator=dice)
            weight.grad = None if index == leave_out else grad


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.0}, {"weight_decay": 0.3}], ids=str)
@pytest.mark.parametrize("leave_out", [None, 1])
def test_the_steps_are_torchs(settings, leave_out):
    mine, torchs = weights(), weights()
    one = AdamW(mine, lr=0.01, **settings)
    other = torch.optim.AdamW(torchs, lr=0.01, fused=True, **settings)
    for step in range(6):
        for optimizer in (one, other):
            optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / 10)
        give_gradients(mine, torchs, seed=step, leave_out=leave_out if step == 0 else None)
        one.step()
        other.step()
        assert same(mine, torchs), step
    assert not same(mine, weights())


def test_a_saved_state_goes_on_in_either():
    mine, torchs = weights(), weights()
    one, other = AdamW(mine, lr=0.01), torch.optim.AdamW(torchs, lr=0.01, fused=True)
    for step in range(3):
        give_gradients(mine, torchs, seed=step)
        one.step()
        other.step()
    resumed = [weight.detach().clone().requires_grad_() for weight in mine]
    again = AdamW(resumed, lr=0.5)
    again.load_state_dict(other.state_dict())
    copied = copy.deepcopy(one.state_dict()["state"])  # torch would go on with the same tensors
    other.load_state_dict({**other.state_dict(), "state": copied})
    give_gradients(mine, torchs, resumed, seed=9)
    for optimizer in (one, other, again):
        optimizer.step()
    assert same(mine, torchs)
    assert same(mine, resumed)


@pytest.mark.parametrize("wrong", ["shape", "number"])
def test_a_state_of_other_parameters_is_refused(wrong):
    mine = weights()
    one = AdamW(mine, lr=0.01)
    give_gradients(mine, seed=0)
    one.step()
    others = [torch.zeros(2)] if wrong == "shape" else weights()[:1]
    with pytest.raises(ValueError, match="expected"):
        AdamW(others, lr=0.01).load_state_dict(one.state_dict())


def test_gradients_are_forgotten_or_zero():
    mine = weights()
    give_gradients(mine, seed=0)
    AdamW(mine, lr=0.01).zero_grad(set_to_none=False)
    assert all(weight.grad.abs().sum() == 0 for weight in mine)
    AdamW(mine, lr=0.01).zero_grad()
    assert all(weight.grad is None for weight in mine)


def test_training_does_not_load_torchs_compiler(tmp_path):
    code = (
        "import sys; from gspo_edu.cli import main; "
        f"main(['train', '--rollouts', '1', '--prompts', '4', '--eval-prompts', '2', '--init', "
        f"'cold', '--cold-start-steps', '1', '--out', {str(tmp_path / 'run')!r}]); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
