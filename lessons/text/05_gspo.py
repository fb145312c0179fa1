# %% [markdown]
r"""
# 05 · GSPO: one ratio per answer

GRPO asks of every *token*: has it become likelier? GSPO asks once, of the whole *answer*. This
lesson takes that one change apart, down to the last digit.

**Afterwards you can**

- compute the sequence ratio of an answer by hand, and say why it has a root in it;
- say which answers GSPO's clipping silences and which it does not;
- explain why GSPO's range is of order 10⁻⁴, and choose a range for a run of your own.

**You need** lessons 02 (ratio, clipping) and 03 (group advantage). **Time:** 50 minutes up to the
experiment; that runs by itself, and an optional part of half an hour fills the wait.

Before each surprising cell you are asked for a prediction. Put it after `my_guess =` and run the
cell. A wrong one teaches more than none. Folded cells import, draw a picture, or would give an
answer away: run them like the others, and open them when you want to see how.
"""

# %% jupyter={"source_hidden": true}
import math
import sys
import textwrap
import warnings
from statistics import NormalDist

import numpy as np
import torch
from IPython.display import display
from tqdm import tqdm

from gspo_edu.advantages import group_advantages
from gspo_edu.bibliography import source
from gspo_edu.clip_range import (
    active_share,
    equal_spread_range,
    length_where_mean_outweighs_spread,
    range_for_outside_share,
    variance_inflation,
)
from gspo_edu.glossary import table
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.plots import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    new_figure,
    objective_style,
    show,
)
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.ratios import product_ratio, sequence_log_ratio, sequence_ratio, token_log_ratio
from gspo_edu.widgets import LengthSpread, OneAnswer
from gspo_edu.widgets.length_spread import sequence_ratio_spread

# %%
GSPO_LOW, GSPO_HIGH = 3e-4, 4e-4  # the paper's range: [1 - 3e-4, 1 + 4e-4]
GRPO_LOW, GRPO_HIGH = 0.2, 0.27  # the range of its GRPO baseline

# %% [markdown]
r"""
## A question from lesson 03

Four answers to one prompt have the rewards 1, 0, 0 and 0. What is the advantage of the first?
(The folded cell holds what your answer is compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
lucky = np.array([1.0, 0.0, 0.0, 0.0])
warm_up = (
    group_advantages(torch.tensor(lucky), [0] * 4)[0].item(),
    [
        (1 - lucky.mean(), "Centred, but not yet divided by the group's std."),
        (
            (1 - lucky.mean()) / lucky.std(ddof=1),
            "That std has n - 1 in it. The papers write only std(·); this course takes n.",
        ),
        ((1 - lucky.mean()) / lucky.var(), "Divided by the variance; take its square root."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up)

# %% [markdown]
r"""
## 1 · The idea, in words

In GRPO the **reward** belongs to the answer: right or wrong as a whole. The **correction** for
stale samples belongs to the token: each token has its own importance ratio and is clipped on its
own. The authors of GSPO hold that the two should have the same unit. So they give each answer *one*
ratio, clip the answer as a whole, and optimise it as a whole.

> **What the authors report** (Zheng et al., arXiv 2507.18071, on their own mixture-of-experts
> models): training is more stable and more efficient than with GRPO, it goes on improving with more
> compute, with refreshed sets of prompts and with longer answers, and the method was used for the
> latest Qwen3 models (Instruct, Coder and Thinking, as their announcement says). These are the
> authors' own results. This lesson shows the arithmetic, which anyone can check; it does not show
> those results, and reports by other groups are mixed (section 10).

## 2 · A ratio for a whole answer

A language model writes token after token, so the probability of an answer $y$ is a product of
token probabilities. How much likelier has the new policy made the answer? Divide the two products,
and the token ratios $r_t$ of lesson 02 multiply:

$$\frac{\pi_\theta(y)}{\pi_\text{old}(y)} = r_1\, r_2 \cdots r_L$$

GSPO does not use this product. It takes the $L$-th root of it, $L$ being the number of tokens:

$$s = \left(\frac{\pi_\theta(y)}{\pi_\text{old}(y)}\right)^{1/L}
    = \exp\Big(\frac1L \sum_{t=1}^{L} \log r_t\Big)$$

That is the **geometric mean** of the token ratios: the one number which, put in the place of every
token's ratio, leaves the product as it is. Taking the root is called **length normalisation**.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 four tokens",
    "An answer of four tokens has the ratios 1.2, 0.9, 1.0 and 1.1. What is its sequence ratio s?",
    {
        "a": "1.188",
        "b": "1.05",
        "c": "1.044",
        "d": "1.2",
    },
    my_guess,
)

# %%
ratios = np.array([1.2, 0.9, 1.0, 1.1])
product = ratios.prod()
s = product ** (1 / len(ratios))
by_logs = math.exp(np.log(ratios).mean())

print(f"product of the ratios   1.2 · 0.9 · 1.0 · 1.1 = {product:.3f}")
print(f"fourth root             {product:.3f}^(1/4)             = {s:.6f}")
print(f"exp of the mean log     exp({np.log(ratios).mean():.6f})         = {by_logs:.6f}")
print(f"arithmetic mean         (for comparison)        = {ratios.mean():.6f}\n")

assert math.isclose(product, 1.188)
assert math.isclose(s, by_logs)
assert f"{s:.6f}" == "1.044009"

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "05 four tokens",
    "c",
    f"{s:.6f}, the fourth root of {product:.3f}.",
    {
        "a": f"{product:.3f} is the product. GSPO takes its fourth root.",
        "b": f"{ratios.mean():.2f} is the arithmetic mean, which has nothing to do with the "
        "answer's probability.",
        "d": "1.2 is the largest ratio. No single token decides.",
    },
)

# %% [markdown]
r"""
The package computes it from log-probs, for many answers at once. The product is not needed on the
way: the mean of the log-ratios is enough, and it cannot overflow.
"""

# %%
log_ratio = torch.tensor([[1.2, 0.9, 1.0, 1.1]], dtype=torch.float64).log()
logp_old = torch.full_like(log_ratio, -1.0)
mask = torch.ones_like(log_ratio)

from_package = sequence_ratio(logp_old + log_ratio, logp_old, mask)
print(f"gspo_edu.ratios.sequence_ratio: {from_package.item():.6f}")
assert math.isclose(from_package.item(), s, rel_tol=1e-12)

# %% [markdown]
r"""
## 3 · One loud token

The root makes the sequence ratio nearly deaf to a single outlier. Two examples by hand:

- ten tokens, nine ratios of 1 and one of 3: $s = 3^{1/10}$;
- a hundred tokens, 99 ratios of 1 and one of 10: $s = 10^{1/100}$.
"""

# %%
ten = 3 ** (1 / 10)
hundred = 10 ** (1 / 100)
print(f" 10 tokens, one ratio  3: s =  3^(1/10)  = {ten:.6f}")
print(f"100 tokens, one ratio 10: s = 10^(1/100) = {hundred:.6f}")
print(f"GSPO's range: {1 - GSPO_LOW:.4f} to {1 + GSPO_HIGH:.4f}")
assert f"{ten:.6f}" == "1.116123"
assert f"{hundred:.6f}" == "1.023293"

# %% [markdown]
r"""
A token ratio of 10 has become a sequence ratio of 1.023. So the outlier is smoothed away. Is it
harmless, then?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 loud token, good answer",
    "The answer of 100 tokens (99 ratios of 1, one of 10) was good: A = +1. GSPO's range is "
    "0.9997 to 1.0004. What happens to its gradient?",
    {
        "a": "nothing: 1.023 is practically 1",
        "b": "the loud token is clipped, the 99 others keep their gradient",
        "c": "the whole answer is clipped: no token gets a gradient",
        "d": "all tokens keep a gradient, but limited to the size it has at 1.0004",
    },
    my_guess,
)

# %%
log_ratio = torch.zeros(1, 100, dtype=torch.float64)
log_ratio[0, 0] = math.log(10)
logp_old = torch.full_like(log_ratio, -1.0)
mask = torch.ones_like(log_ratio)


def token_gradient(objective, advantage):
    """(100,) what autograd says: minus d loss / d logp, the push on each token."""
    logp = (logp_old + log_ratio).requires_grad_()
    OBJECTIVES[objective](logp, logp_old, torch.tensor([advantage]), mask).loss.backward()
    return -logp.grad[0] + 0.0  # + 0.0 turns -0 into 0


push = {(name, A): token_gradient(name, A) for name in ("grpo", "gspo") for A in (1.0, -1.0)}

print("objective   A   tokens with gradient   push on the loud token   push on each other token")
for (name, A), g in push.items():
    count = int((g != 0).sum())
    print(f"{name.upper():9} {A:+.0f}   {count:>12} of 100   {g[0]:>22.6f}   {g[1]:>24.6f}")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert (push["gspo", 1.0] == 0).all()
assert int((push["grpo", 1.0] != 0).sum()) == 99
assert torch.allclose(push["gspo", -1.0], torch.tensor(-hundred / 100, dtype=torch.float64))
assert math.isclose(push["grpo", -1.0][0].item(), -10 / 100)
reconcile(
    "05 loud token, good answer",
    "c",
    f"the ratio s = {hundred:.6f} lies above 1.0004, A > 0, so min() takes the clipped branch: "
    "the gradient of all 100 tokens is exactly 0.",
    {
        "a": f"1.0233 is not close to 1 on this scale: it is {(hundred - 1) / GSPO_HIGH:.0f} times "
        "as far from 1 as the bound.",
        "b": "that is GRPO, which leaves 99 tokens their gradient. GSPO has one ratio for all.",
        "d": "clipping does not cap a gradient, it sets it to 0.",
    },
)

# %% [markdown]
r"""
Now look at the rows with $A = -1$: a bad answer that has become likelier. It lies outside the
range just as much, but for $A < 0$ and a ratio *above* the range `min()` takes the unclipped
branch, so the gradient is **full**: GSPO pushes all 100 tokens down with $s/L = 0.010233$ each.
GRPO pushes all of them down as well, but the loud one with $10/100$, ten times as hard as the
others. "Clipped" without the sign of A says nothing.

So GSPO is nearly deaf to the outlier in the *size* of the push, and all the more sensitive in the
*decision* whether there is a push at all. Keep both halves in mind.

**Try it.** The widget shows the first example. Pull the loud token down until GSPO keeps the answer
for A > 0. How far down must it come?
"""

# %% tags=["nbval-ignore-output"]
answer = OneAnswer([3.0] + [1.0] * 9)
display(answer)

# %%
keeps = (1 + GSPO_HIGH) ** 10
print(f"With ten tokens: s <= 1.0004 as long as the loud ratio is <= 1.0004^10 = {keeps:.6f}")
assert f"{keeps:.6f}" == "1.004007"
assert OneAnswer([3.0] + [1.0] * 9).clipped("gspo", 1.0) == 10
assert OneAnswer([keeps - 1e-6] + [1.0] * 9).clipped("gspo", 1.0) == 0

# %% [markdown]
r"""
## 4 · The truth table, for answers

Same clip rule as in lesson 02, other unit: this is **sequence-level clipping**. Two columns that
are often taken for one: is $s$ *outside the range*, and is the *gradient exactly zero*? The second
is counted by autograd.
"""

# %%
print(" A     s        outside   gradient zero")
silenced = []
for A in (1.0, -1.0):
    for s_value in (0.99, 1.0, 1.01):
        logp = torch.full((1, 5), -1.0 + math.log(s_value), dtype=torch.float64, requires_grad=True)
        old = torch.full((1, 5), -1.0, dtype=torch.float64)
        result = OBJECTIVES["gspo"](logp, old, torch.tensor([A]), torch.ones(1, 5))
        result.loss.backward()
        outside = bool(result.metrics["outside_fraction_seq"])
        zero = bool((logp.grad == 0).all())
        print(f"{A:+.0f}   {s_value:.2f}   {outside!s:>10}   {zero!s:>13}")
        silenced.append(zero)
        assert zero == ((A > 0 and s_value > 1.0004) or (A < 0 and s_value < 0.9997))
assert sum(silenced) == 2

# %% [markdown]
r"""
Four of the six lie outside the range; only two are silenced: the good answer that has already
become likelier, and the bad one that has already become less likely. The other two outsiders have
moved the *wrong* way, and their full gradient pulls them back.

## 5 · The objective, on the one batch

$$J = \frac1G \sum_{i=1}^{G} \min\big(s_i A_i,\ \mathrm{clip}(s_i,\,1-\varepsilon_\text{low},\,
1+\varepsilon_\text{high})\, A_i\big), \qquad \text{loss} = -J$$

(the paper's eq. 5). $A_i$ is the group advantage of lesson 03. Compare it with GRPO: the sum over
tokens is gone, and $s_i$ stands where $r_{i,t}$ stood.

Here are the four answers again that went through PPO and GRPO.
"""

# %%
print(ONE_BATCH.table())

# %% tags=["predict"]
my_guess = None  # a number
predict(
    "05 answers clipped",
    "With GSPO's range, for how many of these four answers is the gradient exactly zero? (The "
    "rewards are 1, 0, 0.5, 0; compare p_old and p_new.)",
    guess=my_guess,
)

# %% [markdown]
r"""
**Your turn.** In lesson 02 you saw the whole computation, in lesson 03 you filled two gaps. Here
the page is empty. Write the loss of GSPO for this batch in NumPy, from the formula above. Given are
`logp`, `logp_old` and `mask` (each 4 × 4, `mask` true on tokens) and `advantages` (4). Padding
holds junk, as in real batches.
"""


# %%
def my_gspo_loss(logp, logp_old, advantages, mask):
    loss = None
    return loss


# %% tags=["check"] jupyter={"source_hidden": true}
def usual_mistakes(right, A):
    """[(what a mistake leads to, which mistake that is)] for the loss of the one batch."""
    log_ratio, mask = ONE_BATCH.logp - ONE_BATCH.logp_old, ONE_BATCH.mask
    total, lengths = (log_ratio * mask).sum(axis=1), ONE_BATCH.lengths
    s = np.exp(total / lengths)

    def loss(ratio, choose=np.minimum, low=GSPO_LOW, high=GSPO_HIGH):
        return -choose(ratio * A, ratio.clip(1 - low, 1 + high) * A).mean()

    return [
        (-right, "The sign: the loss is minimised, so it is minus J."),
        (4 * right, "The mean over the answers is missing."),
        (loss(np.exp(total)), "The root is missing: exp of the sum instead of exp of the mean."),
        (
            loss(np.exp(log_ratio).mean(axis=1, where=mask)),
            "That is the arithmetic mean of the ratios. Take the geometric.",
        ),
        (
            loss(np.exp(total / mask.shape[1])),
            "Divided by the padded width of 4: divide each sum by its answer's own length.",
        ),
        (loss(np.exp(log_ratio.mean(axis=1))), "A mean without the mask: padding is counted, too."),
        (loss(np.exp(log_ratio.sum(axis=1) / lengths)), "A sum without the mask."),
        (loss(s, lambda plain, bounded: bounded), "Clipped always: take the min() of both terms."),
        (loss(s, np.maximum), "max() instead of min()."),
        (loss(s, low=0.2, high=0.2), "That is PPO's range of 0.2."),
    ]


# %%
batch = ONE_BATCH.tensors()
advantages = group_advantages(batch.rewards, batch.group)
A = advantages.numpy()
given = (batch.logp, batch.logp_old, advantages, batch.mask)
right = OBJECTIVES["gspo"](*given).loss.item()

check_answer(
    my_gspo_loss(ONE_BATCH.logp, ONE_BATCH.logp_old, A, ONE_BATCH.mask),
    right,
    usual_mistakes(right, A),
)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def gspo_loss_solution(logp, logp_old, advantages, mask):
    log_s = ((logp - logp_old) * mask).sum(axis=1) / mask.sum(axis=1)
    s = np.exp(log_s)
    bounded = np.clip(s, 1 - 3e-4, 1 + 4e-4)
    return -np.minimum(s * advantages, bounded * advantages).mean()


solution = gspo_loss_solution(ONE_BATCH.logp, ONE_BATCH.logp_old, A, ONE_BATCH.mask)
print(f"loss {solution:.6f}")
assert math.isclose(solution, right, rel_tol=1e-12)

# %% [markdown]
r"""
(The hidden cell above holds one way to write it; open it after you have tried.) And the whole
computation, answer by answer:
"""

# %%
s_all = sequence_ratio(*given[:2], batch.mask).numpy()
products = product_ratio(*given[:2], batch.mask).numpy()
bounded = s_all.clip(1 - GSPO_LOW, 1 + GSPO_HIGH)
clipped_branch = s_all * A > bounded * A
terms = np.minimum(s_all * A, bounded * A)
print("answer  tokens  product         s          A       s·A   clip·A      min   gradient zero")
for i in range(4):
    print(
        f"{i + 1:6d} {ONE_BATCH.lengths[i]:7d} {products[i]:8.3f} {s_all[i]:9.6f} {A[i]:+10.6f} "
        f"{s_all[i] * A[i]:+9.5f} {bounded[i] * A[i]:+8.5f} {terms[i]:+8.5f}   {clipped_branch[i]}"
    )
loss = -terms.mean()
print(f"\nloss = -(mean of the four) = {loss:.6f}")

assert math.isclose(loss, right, rel_tol=1e-12)
assert math.isclose(A.sum(), 0.0, abs_tol=1e-12)
assert math.isclose(s_all[3], 1.044009, abs_tol=5e-7)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
logp = batch.logp.clone().requires_grad_()
result = OBJECTIVES["gspo"](logp, batch.logp_old, advantages, batch.mask)
result.loss.backward()
no_gradient = int((logp.grad == 0).all(dim=1).sum())
outside = int(((s_all < 1 - GSPO_LOW) | (s_all > 1 + GSPO_HIGH)).sum())
assert no_gradient == clipped_branch.sum() == 1
assert outside == 3
assert math.isclose(result.metrics["clip_fraction_seq"].item(), no_gradient / 4)
reconcile(
    "05 answers clipped",
    no_gradient,
    f"{no_gradient}: only answer 3, good and already likelier.",
    {
        0: f"answer 3 has A = {A[2]:+.2f} and s = {s_all[2]:.2f}, above the range.",
        2: "two have s above the range, but answer 4 is bad: its gradient is full. (And answer 2, "
        "whose tokens moved most, has s = 1.)",
        outside: f"{outside} are outside the range, but answer 1 (good, less likely) and answer 4 "
        "(bad, likelier) have moved the wrong way and keep their gradient.",
        4: "answer 2 lies inside the range: its ratios 0.5 and 2 cancel to s = 1.",
    },
)

# %% [markdown]
r"""
Answer 2 deserves a second look. Its tokens have moved a lot, by factors of 0.5 and 2, and still its
ratio is 1: to GSPO it has not moved at all. The geometric mean sees only how the answer as a whole
has moved.

## 6 · Three identities to trust your code by

1. **At θ = θ_old GSPO and GRPO have the same gradient.** All ratios are 1, nothing is clipped, both
   put $A_i / L_i$ on each token. So the first update of every rollout is the same under both.
2. **For answers of one token, with the same range, they are the same.** One token: no mean to take.
3. **Padding never matters**: neither its width nor what lies in it.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 first update",
    "A rollout has just been sampled, and the first mini-batch is about to be used. How do the "
    "gradients of GRPO and GSPO differ?",
    {
        "a": "GSPO's is smaller, because the root makes its ratio smaller",
        "b": "GSPO's is zero, because its range is so narrow",
        "c": "they do not differ",
        "d": "GSPO gives all tokens the same, GRPO does not",
    },
    my_guess,
)


# %%
def gradient(objective, logp, logp_old, advantages, mask, **settings):
    logp = logp.clone().requires_grad_()
    OBJECTIVES[objective](logp, logp_old, advantages, mask, **settings).loss.backward()
    return logp.grad


at_start = {
    name: gradient(name, batch.logp_old, batch.logp_old, advantages, batch.mask)
    for name in ("grpo", "gspo", "ppo")
}
difference = (at_start["grpo"] - at_start["gspo"]).abs().max().item()
to_ppo = (at_start["ppo"] - at_start["gspo"]).abs().max().item()
print(f"1. at θ_old, largest difference GRPO - GSPO: {difference:.6f}")
print(f"   at θ_old, largest difference PPO - GSPO:  {to_ppo:.6f} (PPO averages over tokens)")
assert difference < 1e-12
assert to_ppo > 1e-2

wide = {"clip_low": 0.2, "clip_high": 0.27}
one_token = (batch.logp[:, :1], batch.logp_old[:, :1], advantages, batch.mask[:, :1])
same = gradient("gspo", *one_token, **wide) - gradient("grpo", *one_token, **wide)
print(f"2. one token per answer, same range:         {same.abs().max().item():.6f}")
assert same.abs().max() < 1e-12

# %%
width = batch.logp.shape[1]
padded = [torch.nn.functional.pad(x, (0, 2 * width), value=math.nan) for x in given[:2]]
wider_mask = torch.nn.functional.pad(batch.mask, (0, 2 * width))
wider = gradient("gspo", *padded, advantages, wider_mask)
narrow = gradient("gspo", *given)
print("3. three times as wide, padding full of NaN: ", end="")
print(f"{(wider[:, :width] - narrow).abs().max().item():.6f}")
assert torch.equal(wider[:, :width], narrow)
assert (wider[:, width:] == 0).all()

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "05 first update",
    "c",
    f"the largest difference is {difference:.6f}: every ratio is 1, so nothing is clipped and "
    "both put A/L on each token.",
    {
        "a": "the root of 1 is 1.",
        "b": "1 lies inside every range; the clip fraction of a first update is 0.",
        "d": f"at this moment GRPO gives all tokens of an answer the same, too: A/L, for example "
        f"{-at_start['grpo'][0, 0]:.4f} for each token of answer 1 (with the mean over 4 answers).",
    },
)

# %% [markdown]
r"""
A consequence that surprises practitioners: **with one update per rollout GSPO and GRPO are the same
algorithm**, as long as both average per answer and $\log\pi_\text{old}$ comes from the engine that
trains. (The log-probs of a separate **inference engine** differ a little even with equal weights;
then the first ratios are not exactly 1.) A difference can only show where a rollout feeds several
updates.

## 7 · Why the root?

The product is the honest importance ratio of the answer, so why not clip that? Because its size
depends on the length. Let each token's log-ratio have a standard deviation of σ = 0.05: a typical
token has become 5 % likelier or less likely. The logs add up, so after $L$ independent tokens the
log of the product has a standard deviation of $\sigma\sqrt L$, and its $L$-th part, the log of $s$,
one of $\sigma/\sqrt L$.

(The root has a price. Under $\pi_\text{old}$ the product has the mean 1, as importance sampling
needs it; $s$ has not. Weighting with $s$ is a steadier, biased stand-in.)
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 product",
    "Answers of 10 000 tokens, each token's log-ratio with a standard deviation of 0.05. How far "
    "does the product of the ratios typically stray from 1?",
    {
        "a": "by some 5 %, like each token",
        "b": "hardly at all: ups and downs cancel",
        "c": "by a factor of 10 or so",
        "d": "by factors of thousands to millions",
    },
    my_guess,
)

# %%
SIGMA = 0.05
print("length   middle 90 % of the product          middle 90 % of s")
for length in (1, 10, 100, 1000, 10_000):
    at = sequence_ratio_spread(SIGMA, length, GSPO_LOW, GSPO_HIGH)
    s_low, s_high = (math.exp(NormalDist(at.mean, at.std).inv_cdf(p)) for p in (0.05, 0.95))
    low, high = at.product_90
    print(f"{length:6d}   {low:12.3g}  to {high:9.4f}         {s_low:.5f} to {s_high:.5f}")
assert low < 1e-8
assert math.isclose(low, math.exp(length * math.log(s_low)), rel_tol=1e-6)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "05 product",
    "d",
    f"the middle 90 % reach from {low:.1g} to {high:.3f}, and half of the answers lie below "
    f"exp(-{length * SIGMA**2 / 2:.1f}) = {math.exp(-length * SIGMA**2 / 2):.1g}.",
    {
        "a": "5 % is one token. The logs of 10 000 tokens add up to a standard deviation of 5.",
        "b": "they cancel in the mean, that is in log s. The sum still grows like √L: its "
        "standard deviation is 0.05 · √10 000 = 5.",
        "c": "exp(5) = 148 is one standard deviation, and the median is lower by exp(-12.5) again.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
lengths = np.geomspace(1, 10_000, 121)
along = [sequence_ratio_spread(SIGMA, length, GSPO_LOW, GSPO_HIGH) for length in lengths]
tail = NormalDist().inv_cdf(0.95)


def draw_ratio(ax, name, power):
    """Median and middle 90 % of s to the power given, in the colour and line of an objective."""
    style = objective_style(name)
    color, line = style["color"], style["linestyle"]
    middle = np.array([at.mean for at in along]) * power
    reach = tail * np.array([at.std for at in along]) * power
    ends = np.exp(middle - reach), np.exp(middle + reach)
    ax.fill_between(lengths, *ends, alpha=0.25, lw=0, color=color)
    ax.plot(lengths, np.exp(middle), color=color, linestyle=line, lw=2)
    ax.axhline(1, color=GREY, lw=0.8)
    ax.set(xscale="log")


figure, (left, right) = new_figure(columns=2, width=3.8, height=3.0)
draw_ratio(left, "seq_unnormalised", lengths)
draw_ratio(right, "gspo", 1.0)
inset = right.inset_axes((0.5, 0.64, 0.48, 0.35))
draw_ratio(inset, "gspo", 1.0)
inset.set(xlim=(1000, 10_000), ylim=(0.996, 1.002), xticks=[1000, 10_000], yticks=[0.996, 1, 1.002])
inset.tick_params(labelsize=7)
for ax in (left, right):
    ax.set_xlabel("answer length L (tokens)")
left.set(yscale="log", ylabel="ratio (log scale)")
left.set_title("product of the token ratios", fontsize=10)
right.set(ylabel="ratio", ylim=(0.9, 1.16))
right.set_title("its L-th root, the sequence ratio s", fontsize=10)
show(
    figure,
    "Median and middle 90 per cent of the product of token ratios and of its root, over lengths 1 "
    "to 10 000. The product falls to a few millionths and spreads over seven powers of ten; the "
    "root closes in on 0.99875, as an inset from 1000 tokens on shows: its band lies ever more "
    "below 1.",
)
assert along[-1].product_90[0] < 1e-8
assert along[0].std > along[60].std > along[-1].std

# %% [markdown]
r"""
**How to read it.** Line: the median. Shaded: the middle 90 % of answers. On the left, mind the
scale: up to about a hundred tokens the product lies between a third and two, then it fans out and
sinks, until at 10 000 tokens it spreads over many powers of ten. No single range suits both ends:
one that is right for 100 tokens leaves almost every answer outside at 10 000. On the right the same
answers after the root. The band narrows with length instead of widening, so one range can serve
answers of different lengths much better. The inset enlarges its end: the band does not close in on
1 (the thin grey line). It closes in on a number *below* 1, $e^{-\sigma^2/2} = 0.99875$. The next
section is about that.

The second trouble with the product: a single loud token moves it as a whole, at every length.
"""

# %%
print("one token with ratio 10 multiplies")
for length in (10, 100, 1000, 10_000):
    print(f"   at {length:6d} tokens   the product by 10   s by {10 ** (1 / length):.6f}")
assert f"{10 ** (1 / 1000):.6f}" == "1.002305"

# %% [markdown]
r"""
## 8 · Why a range of order 10⁻⁴?

Two facts about $\log s$, if the answers were sampled by $\pi_\text{old}$:

**Its mean is below 0 and does not shrink with length.** At each position the ratio has mean
exactly 1:

$$\sum_{y_t} \pi_\text{old}(y_t)\,\frac{\pi_\theta(y_t)}{\pi_\text{old}(y_t)} = 1$$

The log of something with mean 1 has a mean below 0: here exactly
$-\mathrm{KL}(\pi_\text{old}\,\|\,\pi_\theta)$ per token, and for small changes about $-\sigma^2/2$.
Averaging over more tokens does not change a mean.

**Its standard deviation is about σ/√L.** That one does shrink.

By hand for σ = 0.05, L = 1000:
"""

# %%
mean = -(SIGMA**2) / 2
std = SIGMA / math.sqrt(1000)
log_s = NormalDist(mean, std)
above = 1 - log_s.cdf(math.log(1 + GSPO_HIGH))
below = log_s.cdf(math.log(1 - GSPO_LOW))
wide_bound = math.log(1 + 0.2)

print(f"mean of log s    -0.05²/2      = {mean:.6f}")
print(f"std of log s      0.05/√1000   =  {std:.6f}")
print(f"share with s above 1.0004      = {above:.3f}")
print(f"share with s below 0.9997      = {below:.3f}")
print(f"share outside                  = {above + below:.3f}")
print(f"the bound of ε = 0.2 lies {(wide_bound - mean) / std:.0f} standard deviations away")

spread = LengthSpread(sigma=SIGMA, length=1000).spread
assert math.isclose(spread.above, above)
assert math.isclose(spread.below, below)
assert (wide_bound - mean) / std > 100

# %% [markdown]
r"""
So ε = 0.2, put on a sequence ratio, is no range at all: at a hundred standard deviations it clips
nothing, ever, and GSPO becomes "no clipping". The slip is easily made, since 0.2 is the usual
default of token-level code, TRL's for example. The course's function warns:
"""

# %%
up_and_down = torch.tensor([SIGMA, -SIGMA], dtype=torch.float64).repeat(1, 500)
old = torch.full_like(up_and_down, -1.0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    OBJECTIVES["gspo"](
        old + up_and_down, old, torch.ones(1), torch.ones(1, 1000), clip_low=0.2, clip_high=0.2
    )
print(textwrap.fill(str(said[0].message), 90))
assert len(said) == 1

# %% [markdown]
r"""
Which range would be *as wide as* 0.2 is for tokens, counted in standard deviations? One that
shrinks in the same way: $0.2/\sqrt L$.
"""

# %%
print("length   equal range 0.2/√L   equal range 0.27/√L   paper's range is tighter by")
for length in (100, 1000, 10_000):
    low, high = (equal_spread_range(clip, length) for clip in (GRPO_LOW, GRPO_HIGH))
    print(
        f"{length:6d}   {low:18.5f}   {high:19.5f}   "
        f"{low / GSPO_LOW:11.1f} and {high / GSPO_HIGH:.1f} times"
    )

equal = equal_spread_range(GRPO_LOW, 1000)
assert math.isclose(equal, 6.3246e-3, rel_tol=1e-4)
assert 20 < equal / GSPO_LOW < 22

# %% [markdown]
r"""
So the order of magnitude has two reasons. A range for $s$ must be smaller than one for $r$, by √L.
And the authors chose one that is *much* tighter still: some twenty times at 1000 tokens. How much a
range of 10⁻⁴ clips, you work out next.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 active share",
    "Make GSPO's range ever narrower, ε → 0, until every answer is outside. Suppose that s and "
    "the sign of A have nothing to do with each other, and that half of the answers have A > 0. "
    "Which share of the answers has a gradient of exactly zero?",
    {
        "a": "none",
        "b": "about a half",
        "c": "all",
        "d": "it depends on the length",
    },
    my_guess,
)

# %%
print("     ε      outside, L=100   clipped      outside, L=1000   clipped")
for clip in (0.2, 6e-3, 1e-3, 3e-4, 1e-6):
    line = f"{clip:8.0e}"
    for length in (100, 1000):
        at = sequence_ratio_spread(SIGMA, length, clip, clip)
        share = active_share(at.below, at.above)
        line += f"   {at.outside:12.4f}   {share:9.4f}   "
    print(line.rstrip())
assert math.isclose(share, 0.5, abs_tol=1e-3)
assert math.isclose(at.outside, 1, abs_tol=2e-3)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "05 active share",
    "b",
    f"at ε = 1e-6 and L = 1000 {at.outside:.2%} of the answers are outside and {share:.2%} are "
    "clipped. Clipping needs the sign of A as well, and half of the outsiders have the other one. "
    "(If fewer than half have A > 0, more are clipped: most outsiders lie below the range.)",
    {
        "a": "narrower means more clipping, not less.",
        "c": f"{at.outside:.2%} are outside, but who moved the wrong way keeps the gradient.",
        "d": "at L = 100 it is the same half; the length decides how fast it gets there.",
    },
)

# %% [markdown]
r"""
In a formula: let $p$ be the share of answers with $s$ above the range, $1 - p$ below it, and $q$
the share with $A > 0$. Then $q\,p + (1-q)(1-p)$ are clipped, which is ½ whenever $q = ½$, whatever
$p$ is. A reported clip fraction near one half does not mean "half of the answers have gone too
far"; it can mean "the range is so tight that practically everybody is outside".

How many are outside the paper's range depends on σ, that is, on how far an update moves the policy:
"""

# %%
print("L = 1000, the paper's range")
print("     σ   std of log s   outside   clipped")
for sigma in (0.005, 0.01, 0.02, SIGMA):
    at = sequence_ratio_spread(sigma, 1000, GSPO_LOW, GSPO_HIGH)
    share = active_share(at.below, at.above)
    print(f"{sigma:6.3f}   {at.std:12.5f}   {at.outside:7.3f}   {share:7.3f}")
    assert (at.outside > 0.5) == (sigma > 0.01)
    assert abs(share - 0.15) < 0.01 or sigma != 0.01

# %% [markdown]
r"""
Move the sliders until you believe it. A good question for them: at which σ does the mean of
log s leave the range at 1000 tokens?
"""

# %% tags=["nbval-ignore-output"]
lengths_and_spread = LengthSpread(sigma=SIGMA, length=1000)
display(lengths_and_spread)

# %%
sigma_out = math.sqrt(-2 * math.log(1 - GSPO_LOW))
print(f"The mean of log s, -σ²/2, passes log(0.9997) at σ = {sigma_out:.4f}, at any length.")
assert math.isclose(math.exp(-(sigma_out**2) / 2), 1 - GSPO_LOW)
assert LengthSpread(sigma=0.03, length=1000).spread.below > 0.5

# %% [markdown]
r"""
## 9 · On a real policy

Formulas with independent normal tokens are a model. Now the tiny mixture of experts that comes
with the course, the clock walk, and the course's own trainer. Each rollout feeds four mini-batches,
as in the paper. `Watched`, in the folded cell after the prediction, is that trainer; before each
update it also keeps what the objective is about to see.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "05 clip share",
    "Train for eight rollouts with GRPO (range 0.2/0.27) and with GSPO (3e-4/4e-4). Which share of "
    "an answer's tokens has a gradient of exactly zero, averaged over answers and updates?",
    {
        "a": "GSPO clips less: s is much closer to 1 than r",
        "b": "about the same, since the ranges are matched",
        "c": "GSPO clips two or three times as much",
        "d": "GSPO clips more than ten times as much",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
from gspo_edu.config import TrainConfig
from gspo_edu.initial import initial_policy
from gspo_edu.sampler import answer_log_probs
from gspo_edu.trainer import Trainer


class Watched(Trainer):
    """The trainer; ``seen`` keeps (logp, logp_old, advantages, mask) as each update finds them."""

    def one_update(self, batch, advantages):
        with torch.no_grad():
            logp = answer_log_probs(self.model, batch).logp
        self.seen.append((logp, batch.logp_old, advantages, batch.mask))
        return super().one_update(batch, advantages)


def watched_run(objective, **settings):
    """Train from the shipped policy; returns the trainer and one record per update."""
    config = TrainConfig(objective=objective, rollouts=8, eval_every=0, **settings)
    trainer = Watched(config, *initial_policy(config)[:2])
    trainer.seen, records = [], []
    bar = "{desc} {bar:30} {n_fmt}/{total_fmt} rollouts"
    name = f"{objective.upper()}, epochs {config.epochs}"
    for _ in tqdm(range(config.rollouts), desc=name, bar_format=bar, file=sys.stdout):
        records += trainer.next_rollout()
    assert all(math.isfinite(record["loss"]) for record in records)
    return trainer, records


# %% tags=["nbval-ignore-output"]
runs = {name: watched_run(name) for name in ("grpo", "gspo")}
share = {
    name: np.mean([record["clip_fraction_seq"] for record in records])
    for name, (_, records) in runs.items()
}
print(f"\nclipped, GRPO: {share['grpo']:.4f}")
print(f"clipped, GSPO: {share['gspo']:.4f}, {share['gspo'] / share['grpo']:.0f} times as much")
assert 0.3 < share["gspo"] < 0.55
assert 0.003 < share["grpo"] < 0.05
assert share["gspo"] > 10 * share["grpo"]

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
firsts = [record["clip_fraction_seq"] for record in runs["gspo"][1][::4]]
assert firsts == [0] * 8
reconcile(
    "05 clip share",
    "d",
    f"GSPO {share['gspo']:.2f}, GRPO {share['grpo']:.3f}. And this although the first of every "
    "four mini-batches clips nothing.",
    {
        "a": "s is closer to 1, but the range is narrower by far more.",
        "b": "matched would be 0.2/√L; for our answers of about 8 tokens that is "
        f"{equal_spread_range(0.2, 8):.2f}.",
        "c": f"the factor is {share['gspo'] / share['grpo']:.0f}.",
    },
)

# %% [markdown]
r"""
> **What the authors report.** In their comparison GSPO clipped a share of tokens two orders of
> magnitude larger than GRPO (about 0.15 against 0.0013, read off their figure) and still learned
> more for the same compute; they read this as a sign that token-level signals are noisy and
> sequence-level signals reliable (arXiv 2507.18071, section 5). What you just saw is the sober half
> of it: with so tight a range a large clipped share is what arithmetic gives. By itself it says
> nothing about which signal is better.

Mind that 0.15 is not one half. In the table of section 8 the row σ = 0.01 comes to about that: the
authors' policy may simply have moved less per update than ours. (They do not state σ. The table
assumes independent tokens and leaves out that the first of four mini-batches clips nothing.)

### A range for a run of your own

Measure log s in your run (after the first update of each rollout), decide which share may be
outside, and read the range off. If $s$ and $A$ are independent, half of that share is clipped.
"""

# %% tags=["nbval-ignore-output"]
after_first = [seen for update, seen in enumerate(runs["gspo"][0].seen) if update % 4 > 0]
log_s = torch.cat([sequence_log_ratio(logp, old, mask) for logp, old, _, mask in after_first])
length = torch.cat([mask.sum(dim=1) for *_, mask in after_first]).double().mean()
print(f"{len(log_s)} answers of {length:.1f} tokens on average")
for wanted in (0.05, 0.3, 0.9):
    low, high = range_for_outside_share(log_s, wanted)
    print(f"{wanted:4.0%} outside: clip_low {low:.4f}, clip_high {high:.4f}")

low, high = range_for_outside_share(log_s, 0.3)
print("\nThe command for 30 %, which you will need below:\n")
print("    python course.py compare --objectives gspo ", end="")
print(f"--clip-low {low:.4f} --clip-high {high:.4f}")

s_measured = log_s.exp()
outside = ((s_measured < 1 - low) | (s_measured > 1 + high)).double().mean()
assert abs(outside - 0.3) < 0.01
assert low > 10 * GSPO_LOW

# %% [markdown]
r"""
Our answers are some 8 tokens long, not thousands, so ranges of the same *meaning* are far wider
here. A clip range is not a constant of the method: it belongs to a length, a learning rate and a
number of mini-batches.

## 10 · What is shown, and what is not

*Arithmetic, checked above:*

- s is the geometric mean; an outlier is damped; the whole answer is clipped or kept.
- With one update per rollout, and old log-probs from the engine that trains, GSPO and GRPO (mean
  per answer) have the same gradient.
- For a σ of a few per cent a range of order 10⁻⁴ leaves most answers outside and clips up to one
  half of them, if s and the sign of A are independent and half of the answers have A > 0. For
  σ = 0.005 and 1000 tokens most are inside. A range of 0.2 clips none, unless answers are short and
  σ is large.

*Measured above, on one tiny model with one seed:* the clipped shares.

*Reported by the authors:* that GSPO trains large mixture-of-experts models more stably than GRPO.
Other groups confirm it in part, and report settings where other objectives do as well or better
(for example ScaleRL, arXiv 2510.13786: on an 8B dense model CISPO a little ahead of GSPO, and both
ahead of DAPO).

*The authors' reading, not shown here:* that learning more while clipping more proves the
sequence-level signal the more reliable one.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    (4 * 0.5) ** (1 / 50),
    [
        (4 * 0.5, "That is the product. Take the 50th root."),
        ((48 + 4 + 0.5) / 50, "That is the arithmetic mean."),
        (4 ** (1 / 50), "The token with ratio 0.5 counts, too."),
        (math.sqrt(4 * 0.5), "Tokens with ratio 1 count in the length: L is 50, not 2."),
    ],
)
signs = torch.tensor([1.0, -1.0, 1.0, -1.0])
logs = torch.tensor([[1.002], [0.998], [0.9999], [1.0005]]).log()
result = OBJECTIVES["gspo"](logs, torch.zeros(4, 1), signs, torch.ones(4, 1))
question_2 = (
    result.metrics["clip_fraction_seq"].item(),
    [
        (0.75, "Three are outside, but the last has A < 0 and s > 1: its gradient is full."),
        (0.25, "Both signs can be clipped: A > 0 above the range, A < 0 below it."),
        (1.0, "The third lies inside the range."),
    ],
)
question_3 = (
    equal_spread_range(0.2, 2000),
    [
        (0.2 / 2000, "The spread shrinks with the square root of the length."),
        (0.2 * 0.03 / math.sqrt(2000), "σ widens token and sequence ratio alike, so it drops out."),
        (0.03 / math.sqrt(2000), "That is the standard deviation of log s, not the range."),
    ],
)

# %% [markdown]
r"""
**1.** An answer of 50 tokens: 48 have the ratio 1, one has 4, one has 0.5. What is s?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Four answers have s = 1.002, 0.998, 0.9999 and 1.0005, and advantages +1, −1, +1, −1. What is
GSPO's clip fraction with the range 0.9997 to 1.0004?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** Your run has answers of 2000 tokens and token log-ratios with σ = 0.03. Which ε for s is as
wide, in standard deviations, as 0.2 is for a token?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 03: (1 - 0.25) / sqrt(0.1875) = {(1 - 0.25) / math.sqrt(0.1875):.4f}")
print(f"1. (4 · 0.5)^(1/50) = {(4 * 0.5) ** (1 / 50):.6f}")
print(
    f"2. {result.metrics['clip_fraction_seq']:.2f}: the first (A > 0, above), the second (A < 0, "
)
print("   below). The third is inside; the fourth is outside, but A < 0 and s > 1.")
print(f"3. 0.2 / √2000 = {0.2 / math.sqrt(2000):.6f}")
assert result.metrics["clip_fraction_seq"] == 0.5

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("05")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=5))

# %% [markdown]
r"""
**Source:**
"""

# %%
print(source("gspo"))

# %% [markdown]
r"""
## Your experiment: does the range matter for learning?

You know what GSPO computes and what its range does. Does it matter for learning? Everything you
need is there. **Write down first** which of the two you expect ahead, and by how much. Then, in a
terminal (in JupyterLab: *File → New → Terminal*, in the course's folder):

    python course.py compare

trains both, with the ranges 0.2/0.27 and 3e-4/4e-4, on the same five seeds and prints the paired
differences with their interval (a few minutes). All runs start from one and the same policy. Note
both mean gains, the interval, the share of right answers, and the clip fractions.

Now GSPO once more, with the range that you measured in section 9, in which 30 % of the answers lie
outside. **Predict again**: will its gain be larger, smaller, or the same? The cell in section 9 has
printed the full command, with your numbers in it:

    python course.py compare --objectives gspo --clip-low … --clip-high …

The seeds are the same as before, so subtract the two gains of GSPO seed by seed: these five
differences are what to judge. Write down what changed. Then, before you draw a conclusion:

- The paper's range is meant for answers of thousands of tokens. Ours have about 8, so section 8
  would not have chosen it here. Whatever you find is no verdict on the paper.
- A wider range also silences fewer answers, so more of each batch's gradient is used. That alone
  can explain a difference. How would you tell the two apart?
- Five seeds from one starting policy, one tiny model, one task: an interval covers the seeds, not
  what else could have been different.
"""

# %% [markdown]
r"""
## If you have another half hour (optional)

While the experiment runs. Nothing later needs this part. It looks closer at three things: where the
slip of the mean outweighs the spread, what correlated tokens do, and whether the model of section 8
holds on the tiny policy.

### Spread against slip

Two facts about log s from section 8, over length: the standard deviation σ/√L falls, the distance
of the mean from 0 stays at σ²/2. They cross at $L = 4/\sigma^2$.
"""

# %%
crossing = length_where_mean_outweighs_spread(SIGMA)
print(f"σ = {SIGMA}: mean and spread of log s are equal at L = 4/σ² = {crossing:.0f} tokens")
assert math.isclose(SIGMA**2 / 2, SIGMA / math.sqrt(crossing))
print("\nlength   share of answers with s < 1")
for length in (10, 100, crossing, 10_000):
    at = sequence_ratio_spread(SIGMA, length, GSPO_LOW, GSPO_HIGH)
    below_one = NormalDist(at.mean, at.std).cdf(0)
    print(f"{length:6.0f}   {below_one:.4f}")
    assert below_one > 0.5
    assert length < crossing or below_one > 5 / 6

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (ax,) = new_figure(width=7.0, height=3.2)
ax.plot(lengths, SIGMA / np.sqrt(lengths), color=BLUE, lw=2, label="std of log s: σ/√L")
ax.plot(
    lengths,
    np.full(121, SIGMA**2 / 2),
    color=PURPLE,
    ls="--",
    lw=2,
    label="distance of its mean from 0: σ²/2",
)
ax.plot(
    lengths,
    [equal_spread_range(0.2, length) for length in lengths],
    color=GREY,
    ls=":",
    lw=2,
    label="0.2/√L: as wide as 0.2 for a token",
)
ax.axhline(0.2, color=ORANGE, ls="-.", lw=1.5, label="ε = 0.2")
ax.axhspan(GSPO_LOW, GSPO_HIGH, color=SKY, alpha=0.6, lw=0, label="the paper's 3e-4 to 4e-4")
ax.plot(crossing, SIGMA**2 / 2, "o", color="black", ms=6)
ax.annotate(
    f"L = 4/σ² = {crossing:.0f}",
    (crossing, SIGMA**2 / 2),
    (-104, -16),
    textcoords="offset points",
    fontsize=9,
)
ax.set(
    xscale="log",
    yscale="log",
    ylim=(1e-4, 0.6),
    xlabel="answer length L (tokens)",
    ylabel="distance of s from 1 (log scale)",
)
figure.legend(fontsize=8, frameon=False, loc="outside right upper")
show(
    figure,
    "Over length, for sigma 0.05: the standard deviation of log s falls, the distance of its mean "
    "from zero stays at 0.00125, they cross at 1600 tokens. The paper's range lies below both, the "
    "range 0.2 far above.",
)
assert SIGMA / math.sqrt(10_000) > GSPO_HIGH

# %% [markdown]
r"""
**How to read it.** Both axes are logarithmic. The solid line is how far $s$ scatters at each
length, the dashed one how far its centre has slipped from 1. Left of the dot the scatter is larger,
right of it, from $L = 4/\sigma^2$ on, the slip. More than half of the answers have $s < 1$ at every
length, whatever the sign of A; at the dot and right of it at least five in six have (84 % at the
dot). The dotted line would be the range that treats answers as GRPO's 0.2 treats tokens. The narrow
band at the bottom is the range that the paper uses, some twenty times tighter than that at 1000
tokens. The line at the top is 0.2: beyond a few tokens nothing comes near it.

### Correlated tokens

If tokens are correlated, an answer holds fewer independent ones, and $s$ scatters more: like that
of an answer with $L/c$ independent tokens. If the correlation of tokens at distance $k$ is
$\varrho^k$, then $c \approx (1+\varrho)/(1-\varrho)$ for long answers: 3 for ϱ = 0.5 and 19 for
ϱ = 0.9.
"""

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (left, right) = new_figure(columns=2, width=3.9, height=3.0)
for clip, color, line in ((3e-4, BLUE, "-"), (6e-3, BLACK, "--"), (0.2, GREY, ":")):
    at = [sequence_ratio_spread(SIGMA, length, clip, clip) for length in lengths]
    clipped = [100 * active_share(x.below, x.above) for x in at]
    left.plot(lengths, [100 * x.outside for x in at], color=color, ls=line, lw=1)
    left.plot(lengths, clipped, color=color, ls=line, lw=2.6)
words = [
    ("ε = 3e-4: outside", (2, 92), BLUE),
    ("clipped", (900, 49), BLUE),
    ("ε = 6e-3: outside", (80, 36), BLACK),
    ("clipped", (1.2, 34), BLACK),
    ("ε = 0.2: nobody", (2, 3), GREY),
]
for text, place, color in words:
    left.annotate(text, place, color=color, fontsize=9)
left.set(xscale="log", xlabel="answer length L (tokens)", ylabel="% of answers", ylim=(-2, 102))
left.set_title(f"over length, σ = {SIGMA}: thin outside, thick clipped", fontsize=10)
clips = np.geomspace(1e-5, 0.1, 121)
for rho, color, line in ((0.0, BLUE, "-"), (0.5, ORANGE, "-."), (0.9, PURPLE, "--")):
    independent = 1000 / variance_inflation(rho, 1000)
    at = [sequence_ratio_spread(SIGMA, independent, clip, clip) for clip in clips]
    clipped = [100 * active_share(x.below, x.above) for x in at]
    right.plot(clips, clipped, color=color, ls=line, lw=2.6, label=f"clipped, ϱ = {rho:g}")
right.axhline(50, color=GREY, lw=0.8)
right.axvspan(GSPO_LOW, GSPO_HIGH, color=SKY, alpha=0.6, lw=0)
right.set(xscale="log", xlabel="clip range ε", ylabel="% of answers", ylim=(-2, 102))
right.set_title(f"over ε, L = 1000, σ = {SIGMA}", fontsize=10)
right.legend(fontsize=8, frameon=False, loc="upper right")
show(
    figure,
    "Left: share of answers outside and clipped over length for three ranges; at 3e-4 most are "
    "outside and nearly half are clipped, at 0.2 none. Right: the clipped share over the range, "
    "rising to one half as the range shrinks; correlation shifts the curve to wider ranges.",
)
assert active_share(at[0].below, at[0].above) > 0.49
assert active_share(at[-1].below, at[-1].above) < 0.01

# %% [markdown]
r"""
**How to read it.** Left: thin lines are answers outside the range, thick lines those that are
clipped: half as many, as long as $s$ and $A$ are independent and half of the $A$ are positive. At
ε = 3·10⁻⁴ nearly all answers are outside at every length, so nearly half are clipped. At 6·10⁻³ the
share falls with length, as the spread does. At 0.2 nothing happens. Right: the clipped share as the
range shrinks (from right to left). All curves end at the line of one half; the paper's range
(vertical band) is close to that end for this σ. Correlated tokens scatter more, so they are clipped
at wider ranges already.

### Does the model of section 8 hold?

Take all updates of GSPO's run after the first of each rollout, and compare what was measured with
what σ and L predict. The folded cells compute it.
"""


# %% jupyter={"source_hidden": true}
def joined(seen, updates_per_rollout, places):
    """Log s, A, L, mean square of log r; log r and neighbouring pairs: of the chosen updates."""
    parts = {"log_s": [], "A": [], "L": [], "square": [], "log_r": [], "pairs": []}
    for update, (logp, old, advantages, mask) in enumerate(seen):
        if update % updates_per_rollout not in places:
            continue
        log_r = token_log_ratio(logp, old, mask)
        both = mask[:, 1:]
        parts["log_s"].append(sequence_log_ratio(logp, old, mask))
        parts["A"].append(advantages)
        parts["L"].append(mask.sum(dim=1))
        parts["square"].append((log_r**2).sum(dim=1) / mask.sum(dim=1))
        parts["log_r"].append(log_r[mask])
        parts["pairs"].append(torch.stack([log_r[:, :-1][both], log_r[:, 1:][both]]))
    return {name: torch.cat(part, dim=-1).double() for name, part in parts.items()}


# %% jupyter={"source_hidden": true}
def facts(seen, updates_per_rollout, places):
    """What the model predicts, what is measured, and what correlates with what."""
    got = joined(seen, updates_per_rollout, places)
    A, s, sigma = got["A"], got["log_s"].exp(), got["log_r"].std()
    above, below = s > 1 + GSPO_HIGH, s < 1 - GSPO_LOW
    shares = [share.double().mean().item() for share in (below, above, A > 0)]
    return {
        "σ, std of token log-ratios": sigma,
        "mean of log r": got["log_r"].mean(),
        "  model: -σ²/2": -(sigma**2) / 2,
        "std of log s": got["log_s"].std(),
        "  model: σ · √(mean of 1/L)": sigma * (1 / got["L"]).mean().sqrt(),
        "  model: √(mean of σ²/L), own σ": (got["square"] / got["L"]).mean().sqrt(),
        "correlation of neighbouring tokens": torch.corrcoef(got["pairs"])[0, 1],
        "correlation of log s with A": torch.corrcoef(torch.stack([got["log_s"], A]))[0, 1],
        "outside 0.8 to 1.27": ((s > 1 + GRPO_HIGH) | (s < 1 - GRPO_LOW)).double().mean(),
        "outside 0.9997 to 1.0004": (above | below).double().mean(),
        "clipped": ((above & (A > 0)) | (below & (A < 0))).double().mean(),
        "  model: s and A independent": active_share(*shares),
    }


# %% tags=["nbval-ignore-output"]
first_pass = facts(runs["gspo"][0].seen, 4, (1, 2, 3))
for name, value in first_pass.items():
    print(f"{name:36} {value:9.4f}")

ratio_of_stds = first_pass["std of log s"] / first_pass["  model: √(mean of σ²/L), own σ"]
assert 0.85 < ratio_of_stds < 1.2
assert first_pass["outside 0.8 to 1.27"] < 0.03
assert first_pass["mean of log r"] < 0
assert abs(first_pass["correlation of neighbouring tokens"]) < 0.1
assert first_pass["outside 0.9997 to 1.0004"] > 0.9
assert 0.45 < first_pass["  model: s and A independent"] < 0.55
assert 0.45 < first_pass["clipped"] < 0.7

# %% [markdown]
r"""
Four things to read off:

- With each answer's own σ the model comes within a few per cent of the spread of $s$. With one σ
  for all it tends to be too low, because short answers have the larger σ here.
- Neighbouring tokens hardly correlate. There is a reason: under the policy that sampled, each
  $r_t$ has mean 1 *whatever came before it*, so the deviations $r_t - 1$ at different places are
  uncorrelated exactly.
- Nearly everybody is outside GSPO's range; if $s$ and $A$ were independent, half of the answers
  would be clipped, as computed. Beyond 0.8 to 1.27 there is hardly anybody.
- In fact it is *more* than half. So $s$ and $A$ are not independent: these answers have not been
  trained on yet, but good answers have become likelier all the same. The excess over one half is
  learning that carries over from other prompts.

All this holds for answers that were sampled by $\pi_\text{old}$ and used once. Use them twice
(`epochs=2`), and on the second pass the policy has already been trained on these very answers.
"""

# %% tags=["nbval-ignore-output"]
trainer, _ = watched_run("gspo", epochs=2)
second_pass = facts(trainer.seen, 8, (4, 5, 6, 7))
print(f"\n{'':36} first pass   second pass")
for name, value in second_pass.items():
    print(f"{name:36} {first_pass[name]:10.4f}   {value:11.4f}")

ratio_of_stds = second_pass["std of log s"] / second_pass["  model: σ · √(mean of 1/L)"]
assert ratio_of_stds > 1.5
assert second_pass["correlation of log s with A"] > 0.25
assert second_pass["clipped"] > 0.6

# %% [markdown]
r"""
Now whole answers move together: the good ones up, the bad ones down. Tokens correlate, $s$
spreads about twice as far as σ/√L says, and far more than half of the answers are clipped. The
limit of one half is a fact about *independent* $s$ and $A$, half of the $A$ positive. It is no law.
"""
