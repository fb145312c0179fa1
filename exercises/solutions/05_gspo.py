# %% [markdown]
r"""
# Exercise 05 · GSPO: one ratio per answer

{{card}}

**You need** lesson 05. In exercise 02 PPO was worked in full, in 03 GRPO had blanks. Here the page
is empty.

A cell with `# YOUR CODE HERE` is yours. The cell below it says at once what is right, and if it
knows your mistake, which one it is. Its inputs are drawn anew each time; nothing is sent anywhere,
and you may try as often as you like. The last cell adds up the points.
"""

# %%
import math

import torch

from gspo_edu import checks
from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import gspo
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.predictions import predict, reconcile

checks.begin("05")

# %% [markdown]
r"""
## 1 · By hand

**1a.** {{ask 05 four tokens}}

A pocket calculator is enough; you may also let Python do the arithmetic.

<details><summary>First hint</summary>

One number that could stand in the place of every ratio without changing their product.
</details>
<details><summary>Second hint</summary>

The geometric mean: the product of L numbers, then the L-th root.
</details>
<details><summary>Third hint</summary>

In Python a fourth root is a power: `x ** (1 / 4)`.
</details>
"""

# %% role="solution"
my_s = None
### BEGIN SOLUTION
my_s = (1.2 * 0.9 * 1.0 * 1.1) ** (1 / 4)
### END SOLUTION

# %% check="05 four tokens" answer="my_s"

# %% [markdown]
r"""
## 2 · One loud token (by hand)

**2a.** {{ask 05 loud token}}
"""

# %% role="solution"
my_loud_s = None
### BEGIN SOLUTION
my_loud_s = 10 ** (1 / 100)
### END SOLUTION

# %% check="05 loud token" answer="my_loud_s"

# %% [markdown]
r"""
**2b.** {{ask 05 good answer}}

**2c.** {{ask 05 bad answer}}

<details><summary>First hint</summary>

GSPO makes one decision for the whole answer, so both numbers are either 0 or 100.
</details>
<details><summary>Second hint</summary>

Write down both terms of min(s·A, clip(s)·A), once for A = +1 and once for A = −1. Which is smaller?
</details>
<details><summary>Third hint</summary>

The clipped term is a constant, so where min() takes it the gradient is zero.
</details>
"""

# %% role="solution"
my_count_good = None
my_count_bad = None
### BEGIN SOLUTION
# A = +1: min(1.0233, 1.0004) is the clipped term, a constant. No token has a gradient.
my_count_good = 0
# A = -1: min(-1.0233, -1.0004) is the plain term. The whole answer keeps its gradient.
my_count_bad = 100
### END SOLUTION

# %% check="05 good answer" answer="my_count_good"

# %% check="05 bad answer" answer="my_count_bad"

# %% [markdown]
r"""
**2d.** {{ask 05 push}}

<details><summary>First hint</summary>

J = s·A here. How does s change with one token's log-prob?
</details>
<details><summary>Second hint</summary>

log s is a mean over L tokens, so its slope is 1/L; the slope of s itself is s/L.
</details>
<details><summary>Third hint</summary>

Multiply: advantage, sequence ratio, one over the length.
</details>
"""

# %% role="solution"
my_push = None
### BEGIN SOLUTION
my_push = -(10 ** (1 / 100)) / 100
### END SOLUTION

# %% check="05 push" answer="my_push"

# %% [markdown]
r"""
## 3 · Write the sequence ratio

`logp`, `logp_old` and `mask` have the shape (answers, places). `mask` is true on the tokens of the
answers, which need not stand side by side; in the padding, wherever it is, the log-probs are junk.
Give back one ratio per answer. PyTorch, NumPy or a plain loop: as you like.

<details><summary>First hint</summary>

Work with log-ratios. What has to happen to the padding before you add them up?
</details>
<details><summary>Second hint</summary>

$s = \exp\big(\frac1L \sum_t \log r_t\big)$, with L the number of the answer's own tokens.
</details>
<details><summary>Third hint</summary>

Difference of the log-probs, times the mask, summed along each row; divided by the row sum of the
mask; exp.
</details>
"""


# %% role="solution"
def my_sequence_ratio(logp, logp_old, mask):
    """One ratio per answer."""
    ### BEGIN SOLUTION
    log_ratio = (logp - logp_old) * mask
    return torch.exp(log_ratio.sum(dim=1) / mask.sum(dim=1))
    ### END SOLUTION


# %% check="sequence_ratio" answer="my_sequence_ratio"

# %% [markdown]
r"""
## 4 · Write GSPO's loss

$$J = \frac1G \sum_{i=1}^{G} \min\big(s_i A_i,\ \mathrm{clip}(s_i,\,1-\varepsilon_\text{low},\,
1+\varepsilon_\text{high})\, A_i\big), \qquad \text{loss} = -J$$

`advantages` holds one number per answer. You may call `my_sequence_ratio`. If the loss is a tensor,
the check looks at its gradient, too; a loop over plain numbers ends with `float(...)`.

<details><summary>First hint</summary>

Three steps: the ratios; the two terms of the minimum; the mean over the answers. Lengths play no
part any more.
</details>
<details><summary>Second hint</summary>

The bounds are one minus `clip_low` and one plus `clip_high`. The minimum is taken answer by answer,
for both signs of A.
</details>
<details><summary>Third hint</summary>

`ratio.clamp(lowest, highest)` limits a tensor, `torch.minimum(a, b)` compares entry by entry; mind
the sign at the end.
</details>
"""


# %% role="solution"
def my_gspo_loss(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss, a single number."""
    ### BEGIN SOLUTION
    s = my_sequence_ratio(logp, logp_old, mask)
    limited = s.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(s * advantages, limited * advantages).mean()
    ### END SOLUTION


# %% check="gspo_loss" answer="my_gspo_loss"

# %% [markdown]
r"""
The one batch of lessons 02 and 03, once more, with what you have written:
"""

# %%
batch = ONE_BATCH.tensors()
A = group_advantages(batch.rewards, batch.group)
loss = checks.output_of(my_gspo_loss, batch.logp, batch.logp_old, A, batch.mask, 3e-4, 4e-4)
print("your loss for the one batch:", "not written yet" if loss is None else loss.numpy().round(6))

# %% [markdown]
r"""
## 5 · Predict, then run

An answer of 100 tokens with A = +1: 99 ratios of 1, one of 10. GSPO silences it. Now the other 99
tokens become a little *less* likely, each by the same factor. How much less, until GSPO keeps the
answer again? Put your guess after `my_guess =` and run both cells.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x05 quiet tokens",
    "By how much must each of the 99 others become less likely, so that the answer is kept?",
    {"a": "by 2 to 3 %", "b": "by about 20 %", "c": "by a factor of 10, like the loud one"},
    my_guess,
)

# %% tags=["reconcile"]
for factor in (1.0, 0.99, 0.98, 0.97):
    log_ratio = torch.full((1, 100), math.log(factor), dtype=torch.float64)
    log_ratio[0, 0] = math.log(10)
    old = torch.full_like(log_ratio, -1.0)
    result = gspo(old + log_ratio, old, torch.ones(1), torch.ones(1, 100))
    silenced = bool(result.metrics["clip_fraction_seq"])
    print(f"others times {factor:.2f}: {'silenced' if silenced else 'kept'}")
assert not silenced

reconcile(
    "x05 quiet tokens",
    "a",
    "the logs add up: 99 times log 0.98 is about -2.0, log 10 is 2.3; at 0.977 they cancel.",
    {
        "b": "one token of factor 10 weighs as much as 99 tokens of 2.3 % each.",
        "c": "that would be an answer that has become far less likely as a whole.",
    },
)

# %% [markdown]
r"""
## 6 · Longer answers, quieter outliers (by hand, then in code)

**6a.** {{ask 05 long enough}}

**6b.** {{ask 05 loud enough}}

**6c.** {{ask 05 equal range}}

<details><summary>First hint</summary>

s = outlier^(1/L) is at the bound. Solve for what is asked.
</details>
<details><summary>Second hint</summary>

Take logs on both sides: log(outlier) = L · log(bound).
</details>
<details><summary>Third hint</summary>

For 6c: the standard deviation of log s is a token's, divided by the root of L. So is the range.
</details>
"""

# %% role="solution"
my_length = None
my_outlier = None
my_range = None
### BEGIN SOLUTION
my_length = math.ceil(math.log(10) / math.log(1.0004))
my_outlier = 1.0004**100
my_range = 0.2 / math.sqrt(400)
### END SOLUTION

# %% check="05 long enough" answer="my_length"

# %% check="05 loud enough" answer="my_outlier"

# %% check="05 equal range" answer="my_range"

# %% [markdown]
r"""
Now for other lengths and outliers. The table shows s; a star marks what GSPO would silence for
A > 0. It uses your function, so it says nan until you have written it.
"""

# %%
print("outlier " + "".join(f"   L = {length:<7d}" for length in (10, 100, 1000, 10_000)))
for outlier in (1.01, 1.5, 3.0, 10.0, 100.0):
    line = f"{outlier:7.2f} "
    for length in (10, 100, 1000, 10_000):
        log_ratio = torch.zeros(1, length, dtype=torch.float64)
        log_ratio[0, 0] = math.log(outlier)
        old = torch.full_like(log_ratio, -1.0)
        mask = torch.ones(1, length, dtype=torch.bool)
        found = checks.output_of(my_sequence_ratio, old + log_ratio, old, mask)
        s = math.nan if found is None else found.mean().item()  # of one answer
        line += f"   {s:.6f}{'*' if s > 1.0004 else ' '}    "
    print(line.rstrip())

# %% [markdown]
r"""
## 7 · Find the bug

This loop trains a policy that knows no context: `logits` hold one number per word of a tiny
vocabulary, `answers` the words of each answer. It runs, no warning appears, and the clip fraction
stays at 0 for ever. Find out why, and mend it (one line moves).
"""


# %% tags=["faulty"]
def faulty_training(logits, answers, advantages, updates, rate, clip_low, clip_high):
    """The logits after some updates with one batch."""
    mask = torch.ones_like(answers, dtype=torch.bool)
    for _ in range(updates):
        logits = logits.detach().requires_grad_()
        logp = logits.log_softmax(dim=0)[answers]
        logp_old = logp.detach()
        loss = gspo(logp, logp_old, advantages, mask, clip_low=clip_low, clip_high=clip_high).loss
        (slope,) = torch.autograd.grad(loss, logits)
        logits = logits - rate * slope
    return logits.detach()


# %% [markdown]
r"""
<details><summary>First hint</summary>

The clip fraction is 0 if every ratio lies inside the range. Which value has every ratio here?
</details>
<details><summary>Second hint</summary>

π_old is the policy that sampled the answers. When were they sampled?
</details>
<details><summary>Third hint</summary>

The old log-probs have to be taken once, from the logits that the function is given.
</details>
"""


# %% role="solution"
def my_training(logits, answers, advantages, updates, rate, clip_low, clip_high):
    """The mended loop. Copy the faulty one, then change it."""
    ### BEGIN SOLUTION
    mask = torch.ones_like(answers, dtype=torch.bool)
    logp_old = logits.detach().log_softmax(dim=0)[answers]  # of the policy that sampled
    for _ in range(updates):
        logits = logits.detach().requires_grad_()
        logp = logits.log_softmax(dim=0)[answers]
        clip = {"clip_low": clip_low, "clip_high": clip_high}
        loss = gspo(logp, logp_old, advantages, mask, **clip).loss
        (slope,) = torch.autograd.grad(loss, logits)
        logits = logits - rate * slope
    return logits.detach()
    ### END SOLUTION


# %% check="gspo_updates" answer="my_training"

# %% [markdown]
r"""
## 8 · In your own words

A colleague proposes to clip the product of the token ratios instead: "It is the true importance
ratio of the answer; the root only adds bias." In about eight sentences: what is right about that,
what does the root buy, and for which answers would you follow the colleague?

| points | the answer … |
|---|---|
| 1 | says that the product is the importance ratio of the answer, and has mean 1 under π_old |
| 1 | says what the product's spread does with the length, with a number |
| 1 | says why one range cannot fit answers of different lengths without the root |
| 1 | names a price of the root, or answers for which the product would do |
"""

# %% [markdown] open="05 open question"
r"""
### BEGIN SOLUTION
A model answer. The colleague is right that the product of the token ratios is the probability of
the answer under the new policy over that under the old one: the importance ratio in the sense of
the theory, with mean 1 under π_old. The sequence ratio s has not this mean; it is a biased
stand-in. But logs add up: if a token's log-ratio has a standard deviation of 0.05, the log of the
product has 0.05·√L, which is 0.16 for 10 tokens and 5 for 10 000, so the product ranges over many
powers of ten. A range that is sensible for short answers leaves nearly every long one outside, and
one that suits long answers never binds for short ones. The root divides the log by L: its spread is
0.05/√L, so one narrow range serves different lengths much better. The price is the bias, and that a
range for s has to be much tighter than 0.2 to bind at all. For answers of one or two tokens, or
with all answers of one short length, I would follow the colleague.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
