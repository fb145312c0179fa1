# %% [markdown]
r"""
# Exercise 08 · The experiment: two clip fractions

{{card}}

**You need** lessons 05 and 08. You run GRPO and GSPO yourself, on the tiny model, compare what they
clip, and explain the difference. The two runs take about ten seconds.
"""

# %%
import numpy as np
import torch

from gspo_edu import checks
from gspo_edu.config import TrainConfig
from gspo_edu.initial import initial_policy
from gspo_edu.predictions import predict, reconcile
from gspo_edu.trainer import Trainer

checks.begin("08")

# %% [markdown]
r"""
## 1 · Reading a log (by hand, and in code)

**1a.** {{ask 08 later updates}}

**1b.** As a function: `clip_fractions` has one number per update, `mini_batches` says how many
updates a rollout feeds. Give back the mean over the updates that can clip at all.

<details><summary>First hint</summary>

At the first update of a rollout the policy is still π_old. What are the ratios?
</details>
<details><summary>Second hint</summary>

Every rollout has such an update: the first, the fifth, the ninth …, for four mini-batches.
</details>
<details><summary>Third hint</summary>

Arrange the numbers with one rollout per row and leave out the first column.
</details>
"""


# %% role="solution"
my_mean = None
### BEGIN SOLUTION
my_mean = 0.36 * 4 / 3
### END SOLUTION


def my_later_mean(clip_fractions, mini_batches):
    """Mean over all updates but each rollout's first."""
    ### BEGIN SOLUTION
    by_rollout = np.asarray(clip_fractions).reshape(-1, mini_batches)
    return by_rollout[:, 1:].mean()
    ### END SOLUTION


# %% check="08 later updates" answer="my_mean"

# %% check="later_updates" answer="my_later_mean"

# %% [markdown]
r"""
## 2 · Predict, then run
"""

# %% tags=["predict"]
my_guess = None  # a number
predict(
    "x08 times",
    "How many times GRPO's clip fraction is GSPO's, over answers and all updates? (GRPO 0.2/0.27, "
    "GSPO 3e-4/4e-4, six rollouts, answers of about 8 tokens.)",
    guess=my_guess,
)

# %%
runs = {}
for objective in ("grpo", "gspo"):
    config = TrainConfig(objective=objective, rollouts=6, prompts=24, eval_every=0, seed=0)
    trainer = Trainer(config, *initial_policy(config)[:2])
    runs[objective] = [r for _ in range(config.rollouts) for r in trainer.next_rollout()]

print("              update of the rollout")
print("              1       2       3       4     mean")
for objective, records in runs.items():
    for metric in ("outside_fraction_seq", "clip_fraction_seq"):
        share = np.array([record[metric] for record in records])
        places = "  ".join(f"{x:.4f}" for x in share.reshape(-1, 4).mean(axis=0))
        print(f"{objective} {metric.split('_')[0]:7}  {places}   {share.mean():.4f}")

# %% tags=["reconcile"]
mean = {
    name: np.mean([record["clip_fraction_seq"] for record in records])
    for name, records in runs.items()
}
times = mean["gspo"] / mean["grpo"]
assert times > 5
reconcile(
    "x08 times",
    round(times, 1),
    f"{times:.0f} times on this machine: {mean['gspo']:.3f} against {mean['grpo']:.4f}.",
)

# %% [markdown]
r"""
With your function, over the updates that can clip:
"""

# %%
for objective, records in runs.items():
    shares = np.array([record["clip_fraction_seq"] for record in records])
    found = checks.output_of(my_later_mean, shares, 4)
    print(f"{objective}: {'not written yet' if found is None else found.numpy().round(4)}")

# %% [markdown]
r"""
## 3 · Where does the difference come from? (by hand)

**3a.** {{ask 08 share}}

**3b.** {{ask 08 width}}

**3c.** {{ask 08 paired}}

<details><summary>First hint</summary>

3a is a product. In 3b compute the standard deviation of log s first.
</details>
<details><summary>Second hint</summary>

3b: the root of 256 is 16. 3c: mean of the differences, then their standard deviation with n − 1.
</details>
<details><summary>Third hint</summary>

3c: mean minus 3.182 times the standard deviation over the root of four.
</details>
"""

# %% role="solution"
my_clipped = None
my_width = None
my_lower_end = None
### BEGIN SOLUTION
my_clipped = 0.9 * 0.55
my_width = 4e-4 / (0.08 / 16)
gaps = np.array([0.02, 0.05, 0.01, 0.04])
my_lower_end = gaps.mean() - 3.182 * gaps.std(ddof=1) / 2
### END SOLUTION

# %% check="08 share" answer="my_clipped"

# %% check="08 width" answer="my_width"

# %% check="08 paired" answer="my_lower_end"

# %% [markdown]
r"""
## 4 · Find the bug

A log of a GSPO run shows a "clip fraction" of 0.97, and its author concludes that 97 % of the data
are wasted. Mend the metric. (It is written for tokens; for answers it would be the same.)
"""


# %% tags=["faulty"]
def faulty_clip_fraction(ratio, advantages, mask, clip_low, clip_high):
    """Share of the tokens whose gradient is exactly zero."""
    low, high = 1 - clip_low, 1 + clip_high
    clipped = (ratio < low) | (ratio > high)
    return (clipped * mask).sum() / mask.sum()


# %% [markdown]
r"""
<details><summary>First hint</summary>

Which of the function's arguments is never used?
</details>
<details><summary>Second hint</summary>

A good answer that has become less likely lies outside the range. Is its gradient zero?
</details>
<details><summary>Third hint</summary>

Two conditions, one per sign of the advantage; `advantages[:, None]` fits the ratios.
</details>
"""


# %% role="solution"
def my_clip_fraction(ratio, advantages, mask, clip_low, clip_high):
    """Share of the tokens whose gradient is exactly zero."""
    ### BEGIN SOLUTION
    low, high = 1 - clip_low, 1 + clip_high
    good = advantages[:, None] > 0
    clipped = torch.where(good, ratio > high, ratio < low)
    return (clipped * mask).sum() / mask.sum()
    ### END SOLUTION


# %% check="08 bug" answer="my_clip_fraction"

# %% [markdown]
r"""
## 5 · In your own words

Explain the difference between the two clip fractions of section 2, in about eight sentences, with
numbers from your own run. Then say what it does and does not tell about learning.

| points | the answer … |
|---|---|
| 1 | says that the first update of each rollout clips nothing, and what that does to the mean |
| 1 | compares both ranges with the spread of the ratio that each of them clips |
| 1 | separates outside from clipped and gives the share of outsiders that are clipped |
| 1 | says why the active share stays near one half when nearly all are outside |
| 1 | concludes with care: a clip fraction is no measure of what is learned or wasted |
"""

# %% [markdown] open="08 open question"
r"""
### BEGIN SOLUTION
A model answer (the numbers differ from run to run). At the first update of each rollout all ratios
are 1 and both objectives clip nothing, so each mean over four updates is a quarter too low. At the
later updates nearly all answers lie outside GSPO's range and only a few per cent of the tokens
outside GRPO's. The reason is the width: 0.2 to 0.27 is nearly two standard deviations of a token's
log-ratio, while 3e-4 to 4e-4 is a small part of one standard deviation of log s. Of those outside
somewhat more than half are clipped under both, namely those that have moved the way their advantage
wants them; the others keep their full gradient. So GSPO's share is close to one half and could
hardly be higher, however tight the range. From this follows neither that GSPO wastes half of its
data nor that its gradient is better: the same fractions would come out if both gradients were
equally good. That has to be measured by the reward, over several seeds and at a rate that suits
each.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
