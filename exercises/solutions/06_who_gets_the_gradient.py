# %% [markdown]
r"""
# Exercise 06 · Who gets the gradient

{{card}}

**You need** lesson 06. A cell with `# YOUR CODE HERE` is yours; the cell below it answers at once.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.predictions import predict, reconcile

checks.begin("06")

# %% [markdown]
r"""
## 1 · Weights by hand

A token's gradient weight is the slope of the objective with respect to its log-prob, mean included.

**1a.** {{ask 06 grpo weight}}

**1b.** {{ask 06 gspo weight}}

**1c.** {{ask 06 dapo}}

**1d.** {{ask 06 cispo}}

<details><summary>First hint</summary>

Is the term clipped? Then the weight is 0. If not, the slope of r with respect to log π is r itself.
</details>
<details><summary>Second hint</summary>

GRPO: r·A/(G·L). GSPO: s·A/(G·L). DAPO: r·A over the number of all tokens.
</details>
<details><summary>Third hint</summary>

1b: for A < 0 and s above the range the minimum is the plain term.
</details>
"""

# %% role="solution"
my_grpo_weight = None
my_gspo_weight = None
my_quotient = None
my_factor = None
### BEGIN SOLUTION
my_grpo_weight = 1.1 * 0.8 / (4 * 5)
my_gspo_weight = 1.05 * -0.8 / (4 * 5)
my_quotient = (1 / 15) / (1 / (2 * 12))
my_factor = min(8, 5)
### END SOLUTION

# %% check="06 grpo weight" answer="my_grpo_weight"

# %% check="06 gspo weight" answer="my_gspo_weight"

# %% check="06 dapo" answer="my_quotient"

# %% check="06 cispo" answer="my_factor"

# %% [markdown]
r"""
## 2 · Write GSPO's weights

Without autograd: from log-probs, advantages and mask to the weight of every token, (answers,
places), 0 in the padding.

<details><summary>First hint</summary>

Three questions per answer: what is s, is the answer silenced, how many tokens share?
</details>
<details><summary>Second hint</summary>

Silenced: A > 0 with s above the range, or A < 0 with s below it.
</details>
<details><summary>Third hint</summary>

Otherwise each token of the answer has s·A over its length and over the number of answers; the mask
brings the shape.
</details>
"""


# %% role="solution"
def my_gspo_weights(logp, logp_old, advantages, mask, clip_low, clip_high):
    """Gradient weight of each token under GSPO."""
    ### BEGIN SOLUTION
    lengths = mask.sum(dim=1)
    s = (((logp - logp_old) * mask).sum(dim=1) / lengths).exp()
    too_far = torch.where(advantages > 0, s > 1 + clip_high, s < 1 - clip_low)
    per_token = torch.where(too_far, 0.0, s * advantages) / lengths / len(lengths)
    return per_token[:, None] * mask
    ### END SOLUTION


# %% check="gspo_weights" answer="my_gspo_weights"

# %% [markdown]
r"""
## 3 · Predict, then run

At the first update after sampling all ratios are 1. On the one batch, which of GRPO, DAPO, GSPO and
CISPO give a token of the longest answer the same weight?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x06 first update",
    "Which of the four agree at the first update?",
    {
        "a": "all four",
        "b": "GRPO and GSPO agree; DAPO and CISPO agree with each other",
        "c": "each has its own",
    },
    my_guess,
)

# %% tags=["reconcile"]
t = ONE_BATCH.tensors()
A = group_advantages(t.rewards, t.group)
found = {}
for name in ("grpo", "gspo", "dapo", "cispo"):
    result = OBJECTIVES[name](t.logp_old, t.logp_old, A, t.mask)
    found[name] = result.token_weight[3, 0].item()
    print(f"{name:6} {found[name]:+.4f}")
assert abs(found["grpo"] - found["gspo"]) < 1e-12
assert abs(found["dapo"] - found["cispo"]) < 1e-12
assert abs(found["grpo"] - found["dapo"]) > 1e-3
reconcile(
    "x06 first update",
    "b",
    "with all ratios 1 nothing is clipped or capped, and only the way to average is left: per "
    "answer, or over all tokens.",
    {
        "a": "two ways to average give two weights.",
        "c": "without ratios there are only two ways to average among the four.",
    },
)

# %% [markdown]
r"""
## 4 · Find the bug

This loss was meant to be GSPO's. It is reported to "favour long answers". Mend it.
"""


# %% tags=["faulty"]
def faulty_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss, a single number."""
    log_s = ((logp - logp_old) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
    s, A = log_s.exp(), advantages[:, None]
    term = torch.minimum(s * A, s.clamp(1 - clip_low, 1 + clip_high) * A)  # (answers, 1)
    return -(term * mask).sum() / mask.sum()


# %% [markdown]
r"""
<details><summary>First hint</summary>

Write down the shapes. What happens in `term * mask`?
</details>
<details><summary>Second hint</summary>

One number per answer meets a table of tokens, and is copied to each of them.
</details>
<details><summary>Third hint</summary>

The mask has done its work in `log_s`; the last line needs none.
</details>
"""


# %% role="solution"
def my_mended_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss, a single number."""
    ### BEGIN SOLUTION
    log_s = ((logp - logp_old) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
    s, A = log_s.exp(), advantages[:, None]
    term = torch.minimum(s * A, s.clamp(1 - clip_low, 1 + clip_high) * A)  # (answers, 1)
    return -term.mean()
    ### END SOLUTION


# %% check="06 bug" answer="my_mended_loss"

# %% [markdown]
r"""
## 5 · In your own words

Your answers have 20 to 2000 tokens, and wrong answers tend to be long. You can average per answer
or over all tokens. In about five sentences: who gets more gradient in each case, and what could
that do to the length of the answers?

| points | the answer … |
|---|---|
| 1 | says how much a token, and how much an answer, counts in each case |
| 1 | derives a tendency for long wrong answers from it |
| 1 | says that this is a tendency to be measured, and names what to watch |
"""

# %% [markdown] open="06 open question"
r"""
### BEGIN SOLUTION
A model answer. Per answer, every answer has the same total, and a token of a long one counts
little: 1/(G·L). Over all tokens, every token counts the same, so a long answer has a hundred times
the say of a short one here. If wrong answers are long, averaging per answer pushes each of their
tokens down only weakly, so there is little pressure against length; averaging over tokens pushes
long wrong answers down hard, and short right ones up little. So the first may let answers grow, the
second may shorten them, or be ruled by a few very long ones. These are tendencies of the weights
alone. I would watch the mean length of right and wrong answers, and the share of the gradient that
comes from answers cut off at the limit.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
