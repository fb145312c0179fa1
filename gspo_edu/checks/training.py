"""Tasks: a short training loop, in which a fault shows in where the policy ends."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gspo_edu.adamw import AdamW
from gspo_edu.checks.cases import Case
from gspo_edu.checks.drawing import shuffled, signed, uniform
from gspo_edu.checks.task import Fault, FunctionTask
from gspo_edu.objectives import ObjectiveResult, gspo, ppo

# What torch.optim takes unless told otherwise, and the momentum that examples show.
ADAM, ADAMW_DECAY, MOMENTUM = ("adam", "adamw"), 0.01, 0.9


def draw(dice: torch.Generator) -> list[Case]:
    """Cases of (logits, answers, advantages, updates, rate, range): a policy that knows no context.

    ``logits`` (V,) give every position's distribution, ``answers`` (B, L) hold token ids.
    """
    cases: list[Case] = []
    for vocabulary, answers, length, updates, rate in ((3, 2, 2, 3, 0.2), (5, 4, 3, 6, 0.1)):
        signs = shuffled(dice, [1.0, -1.0, 1.0, -1.0][:answers])
        drawn = torch.randint(vocabulary, (answers, length), generator=dice)
        drawn[:, 0] = torch.arange(answers) % vocabulary
        cases.append(
            {
                "logits": uniform(dice, -0.5, 0.5, vocabulary),
                "answers": drawn,
                "advantages": signed(dice, signs),
                "updates": updates,
                "rate": rate,
                "clip_low": 0.03,
                "clip_high": 0.04,
            }
        )
    return cases


def loop(objective: Callable[..., ObjectiveResult], case: Case, *, fault: str = "none") -> Tensor:
    """(V,) logits after plain gradient descent on an objective, with or without a fault."""
    policy: Tensor = case["logits"].detach().double().clone().requires_grad_()
    answers, clip = case["answers"], {name: case[name] for name in ("clip_low", "clip_high")}
    mask, rate = torch.ones_like(answers, dtype=torch.bool), case["rate"]
    old = policy.detach().log_softmax(dim=0)[answers]
    piled, velocity = torch.zeros_like(policy), torch.zeros_like(policy)
    decay = ADAMW_DECAY if fault == "adamw" else 0.0
    optimizer = AdamW([policy], lr=rate, weight_decay=decay) if fault in ADAM else None
    for update in range(case["updates"]):
        logp = policy.log_softmax(dim=0)[answers]
        if fault == "old_refreshed":
            old = logp.detach()
        loss = objective(logp, old, case["advantages"], mask, **clip).loss
        (slope,) = torch.autograd.grad(loss, policy)
        piled, velocity = piled + slope, MOMENTUM * velocity + slope
        if fault == "nothing_learned" or (fault == "one_update" and update):
            continue
        if optimizer is not None:
            policy.grad = slope
            optimizer.step()
            continue
        steps = {"gradients_pile_up": piled, "momentum": velocity, "wrong_direction": -slope}
        policy = (policy - rate * steps.get(fault, slope)).detach().requires_grad_()
    return policy.detach()


FAULTS = (
    Fault(
        "fault",
        "old_refreshed",
        "Each ratio is 1 here, so nothing is ever clipped: the old log-probs are taken anew before "
        "every update, or left out. They are those of the policy that sampled, taken once.",
    ),
    Fault(
        "fault",
        "gradients_pile_up",
        "The gradients of earlier updates are still in there. Clear them before each backward().",
    ),
    Fault("fault", "wrong_direction", "This goes uphill on the loss. Subtract rate * gradient."),
    Fault(
        "fault",
        "nothing_learned",
        "The policy stays as it was: is the ratio computed under no_grad, or the step not used?",
    ),
    Fault(
        "fault",
        "momentum",
        "This is descent with momentum. Here each step is rate times the gradient alone.",
    ),
    Fault(
        "fault",
        "adam",
        "These are Adam's steps: they hardly depend on the gradient's size. Here each step is "
        "rate times the gradient.",
    ),
    Fault(
        "fault",
        "adamw",
        "These are AdamW's steps, with weight decay. Here each step is rate times the gradient.",
    ),
    Fault("fault", "one_update", "There is only one update. The batch is used `updates` times."),
)


def task(objective: Callable[..., ObjectiveResult]) -> FunctionTask:
    """The loop around one objective."""
    return FunctionTask(
        name=f"{objective.__name__}_updates",
        draw=draw,
        right=lambda case: loop(objective, case),
        formula=lambda case, fault="none": loop(objective, case, fault=fault),
        faults=FAULTS,
    )


PPO_UPDATES, GSPO_UPDATES = task(ppo), task(gspo)
