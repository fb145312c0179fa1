# %% [markdown]
r"""
# Exercise 04 · What token ratios correct, and what they cost

{{card}}

**You need** lesson 04. A cell with `# YOUR CODE HERE` is yours; the cell below it answers at once,
and names your mistake if it knows it.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.metrics import effective_sample_size
from gspo_edu.predictions import predict, reconcile

checks.begin("04")

# %% [markdown]
r"""
## 1 · The ratio by the book

**1a.** {{ask 04 book weight}}

**1b.** As a function: log-probs and mask as (answers, places); one importance ratio per answer,
π(y)/π_old(y). The padding holds junk.

<details><summary>First hint</summary>

The probability of an answer is a product over its tokens.
</details>
<details><summary>Second hint</summary>

A product of ratios is exp of a sum of log-ratios.
</details>
<details><summary>Third hint</summary>

Mask the differences before you add them up along each row.
</details>
"""


# %% role="solution"
my_weight = None
### BEGIN SOLUTION
my_weight = 1.3 * 0.7 * 1.2  # the same for all three tokens
### END SOLUTION


def my_product_ratio(logp, logp_old, mask):
    """One importance ratio per answer."""
    ### BEGIN SOLUTION
    log_ratio = (logp - logp_old) * mask
    return log_ratio.sum(dim=1).exp()
    ### END SOLUTION


# %% check="04 book weight" answer="my_weight"

# %% check="product_ratio" answer="my_product_ratio"

# %% [markdown]
r"""
## 2 · What it costs

**2a.** {{ask 04 product variance}}

**2b.** {{ask 04 effective size}}

**2c.** As a function: `weights` holds one importance weight per answer; give back the effective
sample size, one number.

<details><summary>First hint</summary>

2a: second moments multiply. The variance is the second moment minus the squared mean.
</details>
<details><summary>Second hint</summary>

2b: the square of the sum, over the sum of the squares.
</details>
<details><summary>Third hint</summary>

With equal weights it is the number of answers; with one that has everything it is 1.
</details>
"""


# %% role="solution"
my_variance = None
my_size = None
### BEGIN SOLUTION
my_variance = 1.01**200 - 1
my_size = (4 + 1 + 1) ** 2 / (4**2 + 1 + 1)
### END SOLUTION


def my_effective_size(weights):
    """Effective sample size of importance weights."""
    ### BEGIN SOLUTION
    return weights.sum() ** 2 / (weights**2).sum()
    ### END SOLUTION


# %% check="04 product variance" answer="my_variance"

# %% check="04 effective size" answer="my_size"

# %% check="effective_size" answer="my_effective_size"

# %% [markdown]
r"""
## 3 · Predict, then run

1000 answers; each token's log-ratio is normal with standard deviation 0.1 (and mean −0.005, so that
the ratio has mean 1). How many answers is the batch worth, by the product's weights, if the answers
have 400 tokens?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x04 effective",
    "The effective sample size of 1000 answers of 400 tokens, σ = 0.1?",
    {"a": "some 900", "b": "about half, 500", "c": "fewer than 100"},
    my_guess,
)

# %% tags=["reconcile"]
dice = torch.Generator().manual_seed(0)
print("length   effective answers of 1000, product    the same, s")
for length in (1, 25, 100, 400):
    log_ratio = -0.005 + 0.1 * torch.randn(1000, length, generator=dice, dtype=torch.float64)
    product = effective_sample_size(log_ratio.sum(dim=1).exp()).item()
    root = effective_sample_size(log_ratio.mean(dim=1).exp()).item()
    print(f"{length:6d}   {product:33.0f}   {root:12.0f}")
assert product < 100
reconcile(
    "x04 effective",
    "c",
    f"{product:.0f}. The log of the product has a standard deviation of 0.1 · √400 = 2, so a few "
    "answers carry nearly all the weight. The root keeps all of them, at the price of a bias.",
    {
        "a": "so it is for single tokens.",
        "b": "with 100 tokens about a third is left; the loss grows exponentially with the length.",
    },
)

# %% [markdown]
r"""
## 4 · Bias against variance (by hand)

{{ask 04 break-even}}

<details><summary>First hint</summary>

The squared error of a batch mean: squared bias plus variance over N.
</details>
<details><summary>Second hint</summary>

Write it down for both estimators and set them equal.
</details>
<details><summary>Third hint</summary>

Multiply by N: the difference of the variances is N times the squared bias.
</details>
"""

# %% role="solution"
my_batch = None
### BEGIN SOLUTION
my_batch = (14 - 6) / 0.2**2
### END SOLUTION

# %% check="04 break-even" answer="my_batch"

# %% [markdown]
r"""
## 5 · Find the bug

A study of off-policy corrections finds that "importance sampling hardly changes anything", since
all its weights lie close to 1. Mend the weights.
"""


# %% tags=["faulty"]
def faulty_weights(logp, logp_old, mask):
    """One importance ratio per answer."""
    ratio = (logp - logp_old).exp() * mask
    return ratio.sum(dim=1) / mask.sum(dim=1)


# %% [markdown]
r"""
<details><summary>First hint</summary>

What is the probability of an answer, in terms of those of its tokens?
</details>
<details><summary>Second hint</summary>

Try ratios of 2 and 0.5: by the book the answer has not changed.
</details>
<details><summary>Third hint</summary>

A mean stands where a product belongs.
</details>
"""


# %% role="solution"
def my_mended_weights(logp, logp_old, mask):
    """One importance ratio per answer."""
    ### BEGIN SOLUTION
    ratio = torch.where(mask, (logp - logp_old).exp(), 1.0)
    return ratio.prod(dim=1)
    ### END SOLUTION


# %% check="04 bug" answer="my_mended_weights"

# %% [markdown]
r"""
## 6 · In your own words

The GSPO paper calls a correction by single-token ratios ill-posed. In about six sentences: what
does a token ratio correct and what not, what would the correction of the book cost, and what is
left of the claim?

| points | the answer … |
|---|---|
| 1 | says what the token ratio leaves out of the answer's ratio (a bias) |
| 1 | says what the product costs, with a number |
| 1 | separates what can be computed from what the authors report or judge |
"""

# %% [markdown] open="04 open question"
r"""
### BEGIN SOLUTION
A model answer. The score of a token should be weighted by the ratio of the whole answer; a token
ratio keeps one factor and drops the others, so the estimate is biased as soon as the policy has
moved. That much can be computed. The correction of the book is unbiased, but its variance grows
exponentially with the length: with E[r²] = 1.01 per token it is 6.3 after 200 tokens, and the
effective sample size of a batch collapses. So neither is good for long answers: token ratios are
biased with little variance, the product unbiased with much. GSPO's root is biased as well, in
another way. "Ill-posed" is the authors' judgement, that correction and reward should have the same
unit; that token ratios led to collapse in their runs is their report. Whether the bias or the noise
did it cannot be seen from the formula.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
