# %% [markdown]
r"""
# Exercise 03 · GRPO: the group replaces the critic

{{card}}

**You need** lesson 03. PPO was worked in full in exercise 02; here GRPO's loss has blanks. A cell
with `# YOUR CODE HERE` is yours; the cell below it answers at once.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import grpo
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.predictions import predict, reconcile

checks.begin("03")

# %% [markdown]
r"""
## 1 · Group advantages

**1a.** {{ask 03 advantage}}
"""

# %% role="solution"
my_advantage = None
### BEGIN SOLUTION
mean = (1 + 0 + 0.5 + 0) / 4
variance = ((1 - mean) ** 2 + 2 * (0 - mean) ** 2 + (0.5 - mean) ** 2) / 4
my_advantage = (1 - mean) / variance**0.5
### END SOLUTION

# %% check="03 advantage" answer="my_advantage"

# %% [markdown]
r"""
**1b.** Now as a function. `rewards` has one row per prompt and one column per answer; give back the
advantages in the same shape. Where all rewards of a row are equal the advantage is 0.

<details><summary>First hint</summary>

Each row is a group of its own: mean and std along the row.
</details>
<details><summary>Second hint</summary>

The std divides by n. In PyTorch that is `correction=0`; NumPy does it unasked.
</details>
<details><summary>Third hint</summary>

0/0 is NaN. Replace the std by 1 where it is 0 (or add something tiny, such as 1e-8), and keep the
dimension in the mean, so that the shapes fit.
</details>
"""


# %% role="solution"
def my_group_advantage(rewards):
    """Advantages, in the shape of the rewards (prompts, answers)."""
    ### BEGIN SOLUTION
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    std = rewards.std(dim=1, keepdim=True, correction=0)
    return centred / torch.where(std == 0, 1.0, std)
    ### END SOLUTION


# %% check="group_advantage" answer="my_group_advantage"

# %% [markdown]
r"""
## 2 · Predict, then run
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x03 scaled rewards",
    "All rewards of a group are multiplied by 10 and raised by 3. What do its advantages do?",
    {
        "a": "they grow tenfold",
        "b": "they stay as they are",
        "c": "they grow tenfold and rise by 3",
    },
    my_guess,
)

# %% tags=["reconcile"]
rewards = torch.tensor([1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
before, after = (group_advantages(r, [0] * 4) for r in (rewards, 10 * rewards + 3))
print("before", "  ".join(f"{a:+.4f}" for a in before))
print("after ", "  ".join(f"{a:+.4f}" for a in after))
assert torch.allclose(before, after)
reconcile(
    "x03 scaled rewards",
    "b",
    "the mean takes the 3 away and the std the 10. So a prompt with tiny differences in reward "
    "counts as much as one with large ones.",
    {
        "a": "the std grows tenfold as well.",
        "c": "the mean rises by 3, too, and is subtracted.",
    },
)

# %% [markdown]
r"""
## 3 · Dead groups (by hand)

**3a.** {{ask 03 dead pairs}}

**3b.** {{ask 03 dead eights}}

<details><summary>First hint</summary>

No signal: all rewards are equal. For right-or-wrong rewards that can happen in two ways.
</details>
<details><summary>Second hint</summary>

All right has the probability $p^G$. And all wrong?
</details>
<details><summary>Third hint</summary>

$p^G + (1-p)^G$
</details>
"""

# %% role="solution"
my_dead_pairs = None
my_dead_eights = None
### BEGIN SOLUTION
my_dead_pairs = 0.18**2 + 0.82**2
my_dead_eights = 0.18**8 + 0.82**8
### END SOLUTION

# %% check="03 dead pairs" answer="my_dead_pairs"

# %% check="03 dead eights" answer="my_dead_eights"

# %% [markdown]
r"""
## 4 · GRPO's loss, with blanks

$$J = \frac1G \sum_{i=1}^G \frac1{|y_i|} \sum_{t=1}^{|y_i|} \min\big(r_{i,t} A_i,\
\mathrm{clip}(r_{i,t},\,1-\varepsilon_\text{low},\,1+\varepsilon_\text{high})\,A_i\big)$$

Everything per token is there. Missing are the two means: over each answer's own tokens, then over
the answers.

<details><summary>First hint</summary>

`terms` has junk in the padding. Take care of it before you sum.
</details>
<details><summary>Second hint</summary>

Blank 1: the sum of each row's real terms, divided by the number of its tokens. Blank 2: the mean of
those; mind the sign.
</details>
<details><summary>Third hint</summary>

`mask.sum(dim=1)` counts tokens. A loss is what is minimised.
</details>
"""


# %% role="solution"
def my_grpo_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GRPO's loss, a single number."""
    ratio = (logp - logp_old).exp()
    A = advantages[:, None]
    limited = ratio.clamp(1 - clip_low, 1 + clip_high)
    terms = torch.minimum(ratio * A, limited * A)
    per_answer = None  # blank 1: (answers,)
    loss = None  # blank 2: one number
    ### BEGIN SOLUTION
    per_answer = (terms * mask).sum(dim=1) / mask.sum(dim=1)
    loss = -per_answer.mean()
    ### END SOLUTION
    return loss


# %% check="grpo_loss" answer="my_grpo_loss"

# %% [markdown]
r"""
The one batch once more; your loss and the package's:
"""

# %%
t = ONE_BATCH.tensors()
A = group_advantages(t.rewards, t.group)
mine = checks.output_of(my_grpo_loss, t.logp, t.logp_old, A, t.mask, 0.2, 0.27)
package = grpo(t.logp, t.logp_old, A, t.mask).loss
print(f"package {package:.6f}, yours", "not written yet" if mine is None else mine.numpy().round(6))

# %% [markdown]
r"""
**4b.** {{ask 03 token share}}
"""

# %% role="solution"
my_weight = None
### BEGIN SOLUTION
my_weight = 1 / (4 * 10)
### END SOLUTION

# %% check="03 token share" answer="my_weight"

# %% [markdown]
r"""
## 5 · The KL estimate (by hand)

{{ask 03 k3}}
"""

# %% role="solution"
import math

my_k3 = None
### BEGIN SOLUTION
log_quotient = -2 - (-1)  # reference minus policy
my_k3 = math.exp(log_quotient) - log_quotient - 1
### END SOLUTION

# %% check="03 k3" answer="my_k3"

# %% [markdown]
r"""
## 6 · Find the bug

This loss trains, and its curves look fine. But when the batch is padded to twice its width, all
gradients are halved, and short answers teach less than long ones. Mend it.
"""


# %% tags=["faulty"]
def faulty_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GRPO's loss, a single number."""
    ratio = (logp - logp_old).exp() * mask
    A = advantages[:, None]
    limited = ratio.clamp(1 - clip_low, 1 + clip_high)
    terms = torch.minimum(ratio * A, limited * A) * mask
    return -terms.mean(dim=1).mean()


# %%
for width in (4, 8):
    pad = (0, width - 4)
    logp = torch.nn.functional.pad(t.logp, pad).requires_grad_()
    logp_old, mask = (torch.nn.functional.pad(x, pad) for x in (t.logp_old, t.mask))
    faulty_loss(logp, logp_old, A, mask, 0.2, 0.27).backward()
    print(f"width {width}: gradient on the third token of answer 1 {logp.grad[0, 2]:+.5f}")

# %% [markdown]
r"""
<details><summary>First hint</summary>

By what does `mean(dim=1)` divide?
</details>
<details><summary>Second hint</summary>

By the number of columns, padding included. An answer's length is something else.
</details>
<details><summary>Third hint</summary>

Replace the inner mean by a sum and a division.
</details>
"""


# %% role="solution"
def my_mended_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GRPO's loss, a single number, whatever the width of the padding."""
    ### BEGIN SOLUTION
    ratio = (logp - logp_old).exp() * mask
    A = advantages[:, None]
    limited = ratio.clamp(1 - clip_low, 1 + clip_high)
    terms = torch.minimum(ratio * A, limited * A) * mask
    return -(terms.sum(dim=1) / mask.sum(dim=1)).mean()
    ### END SOLUTION


# %% check="03 bug" answer="my_mended_loss"

# %% [markdown]
r"""
## 7 · In your own words

A team has a budget of 64 answers per update and asks: 32 prompts with two answers each, or 8
prompts with eight? Their policy solves about one task in six. In about six sentences: what speaks
for either, and what would you measure first?

| points | the answer … |
|---|---|
| 1 | compares the shares of dead groups, with numbers |
| 1 | says what fewer prompts cost (less variety), or what a mean over two answers is worth |
| 1 | names a measurement: share of groups without signal, success rate per prompt |
"""

# %% [markdown] open="03 open question"
r"""
### BEGIN SOLUTION
A model answer. With success probability 1/6 a pair is dead with probability (1/6)² + (5/6)² = 0.72,
a group of eight with (5/6)⁸ = 0.23 (plus next to nothing). So of 32 pairs about 9 teach something,
that is 18 answers; of 8 groups about 6, that is 49 answers: eight per prompt uses the budget far
better. In a pair, moreover, the advantages are always +1 and −1, whatever the rewards: mean and std
come from two numbers. The price of eight is variety, since only 8 prompts are seen per update, and
the success rate differs between prompts: for those that are solved half the time pairs are dead
only half the time. I would first log the share of groups without signal and the success rate per
prompt, and choose the group size by them.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
