# %% [markdown]
r"""
# Exercise 07 · Experts and drift

{{card}}

**You need** lesson 07. A cell with `# YOUR CODE HERE` is yours; the cell below it answers at once,
and names your mistake if it knows it.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.moe import drift
from gspo_edu.predictions import predict, reconcile

checks.begin("07")

# %% [markdown]
r"""
## 1 · A router by hand, and in code

**1a.** {{ask 07 gate}}

**1b.** Now as a function. `logits` has one row per token and one column per expert. Give back two
things: the numbers of the k chosen experts of each token, and their gates, both (tokens, k).

<details><summary>First hint</summary>

Who runs is decided by the logits alone; how much each counts is decided among those who run.
</details>
<details><summary>Second hint</summary>

The gates are a softmax over the k chosen logits, so they add up to 1 for each token.
</details>
<details><summary>Third hint</summary>

`torch.topk` returns values and places, in this order; along which dimension?
</details>
"""


# %% role="solution"
my_gate = None
### BEGIN SOLUTION
e = 2.718281828459045
my_gate = e**0.4 / (e**1.0 + e**0.4)
### END SOLUTION


def my_router(logits, k):
    """(experts, gates), each (tokens, k)."""
    ### BEGIN SOLUTION
    best = logits.topk(k, dim=1)
    return best.indices, best.values.softmax(dim=1)
    ### END SOLUTION


# %% check="07 gate" answer="my_gate"

# %% check="router_top_k" answer="my_router"

# %% [markdown]
r"""
## 2 · Drift by hand, and in code

**2a.** {{ask 07 drift}}

**2b.** {{ask 07 slots}}

**2c.** As a function: `routes` and `reference` hold the experts of each token in one layer, now and
before, both (tokens, K) with K experts per token. Give back the share of slots whose expert was not
among the token's experts before.

<details><summary>First hint</summary>

Compare sets, token by token: how many experts are new?
</details>
<details><summary>Second hint</summary>

An expert of now is new if it differs from *every* expert that the same token had before.
</details>
<details><summary>Third hint</summary>

`routes[:, :, None] != reference[:, None, :]` compares each with each. A loop over Python sets is
just as good.
</details>
"""

# %% role="solution"
my_drift_number = None
my_slots = None
### BEGIN SOLUTION
my_drift_number = 3 / 6  # 9 is new in the second layer, 1 and 8 in the third
my_slots = 48 * 8 * 0.1
### END SOLUTION


def my_drift(routes, reference):
    """Share of slots with a new expert, one number."""
    ### BEGIN SOLUTION
    known = (routes[:, :, None] == reference[:, None, :]).any(dim=2)
    return 1 - known.double().mean()
    ### END SOLUTION


# %% check="07 drift" answer="my_drift_number"

# %% check="07 slots" answer="my_slots"

# %% check="expert_drift" answer="my_drift"

# %% [markdown]
r"""
## 3 · Predict, then run

A router with 32 experts, top-2, and logits drawn at random. Every logit is now moved a little, by a
random number with a standard deviation of 5 % of theirs. Which share of the slots changes?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x07 small step",
    "Logits move by 5 % of their spread. How large is the drift?",
    {"a": "below 2 %", "b": "between 4 % and 15 %", "c": "above 30 %"},
    my_guess,
)

# %% tags=["reconcile"]
dice = torch.Generator().manual_seed(0)
logits = torch.randn(20_000, 32, generator=dice)
noise = torch.randn(20_000, 32, generator=dice)
print("step   drift")
found = {}
for step in (0.01, 0.05, 0.2):
    before, after = logits.topk(2).indices, (logits + step * noise).topk(2).indices
    found[step] = drift(after, before).item()
    print(f"{step:4.0%}   {found[step]:.1%}")
assert 0.04 < found[0.05] < 0.15
reconcile(
    "x07 small step",
    "b",
    f"{found[0.05]:.1%}: among 32 experts the second and the third are often nearly level, and a "
    "near tie needs only a nudge.",
    {
        "a": "few logits change their order, but the choice hangs on the closest pair.",
        "c": "most tokens have a clear second choice.",
    },
)

# %% [markdown]
r"""
## 4 · Two parts of one ratio (by hand)

{{ask 07 route factor}}

<details><summary>First hint</summary>

There are three log-probs: then, now with the old experts, now.
</details>
<details><summary>Second hint</summary>

From the first to the second only the weights changed; from the second to the third only the routes.
</details>
<details><summary>Third hint</summary>

A difference of logs is the log of a factor.
</details>
"""

# %% role="solution"
my_factor = None
### BEGIN SOLUTION
my_factor = e ** (-0.7 - (-1.1))
### END SOLUTION

# %% check="07 route factor" answer="my_factor"

# %% [markdown]
r"""
## 5 · Find the bug

Somebody logs drift after every update of a training loop and reports 45 % after a step so small
that nothing else moved. Mend the metric.
"""


# %% tags=["faulty"]
def faulty_drift(routes, reference):
    """Share of slots with a new expert, one number."""
    changed = routes != reference
    return changed.double().mean()


# %%
before = torch.tensor([[3, 7], [0, 5], [2, 6]])
print(f"the same experts in another order: {faulty_drift(before.flip(1), before):.0%} drift")

# %% [markdown]
r"""
<details><summary>First hint</summary>

`topk` sorts by logit. What happens to two experts whose logits are nearly equal?
</details>
<details><summary>Second hint</summary>

They change places. Is that another choice?
</details>
<details><summary>Third hint</summary>

Sorting by number helps only if nothing else changed. Ask instead whether the expert was there.
</details>
"""


# %% role="solution"
def my_mended_drift(routes, reference):
    """Share of slots with a new expert, whatever the order."""
    ### BEGIN SOLUTION
    changed = [
        len(set(now) - set(then)) / len(then)
        for now, then in zip(routes.tolist(), reference.tolist(), strict=True)
    ]
    return sum(changed) / len(changed)
    ### END SOLUTION


# %% check="07 bug" answer="my_mended_drift"

# %% [markdown]
r"""
## 6 · In your own words

A model with 128 experts shows far more drift than one with 8, at the same learning rate. In about
five sentences: which two quantities decide how many choices flip, and which of them differs here?
How would you check it?

| points | the answer … |
|---|---|
| 1 | names how far an update moves the logits, and how many choices are near ties |
| 1 | says why more experts make near ties more frequent |
| 1 | proposes a measurement, such as the margin between the last chosen and the next |
"""

# %% [markdown] open="07 open question"
r"""
### BEGIN SOLUTION
A model answer. A choice flips if an update moves two logits by more than the gap between them. So
drift depends on the size of the movement and on how many tokens have a small gap between the last
expert that is chosen and the first that is not. With 128 logits in about the same range the
neighbours at the threshold lie closer together than with 8, so more choices are near ties, even if
the logits move no further. I would log the margin (k-th minus (k+1)-th logit) for the tokens of a
rollout, and the movement of the logits in one update, for both models. If the margins differ and
the movements do not, the number of experts is the cause. It could also be the movement: a router
with more outputs may be trained faster.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
