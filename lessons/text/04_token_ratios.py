# %% [markdown]
r"""
# 04 · What goes wrong with token ratios?

GRPO gives every token an importance ratio of its own. The authors of GSPO say that this is a
mistake and makes the gradient noisy. In this lesson nobody has to be believed: the language is made
so small that every answer can be listed, and then bias and variance are numbers, not opinions.

**Afterwards you can**

- say what importance sampling by the book is, and what one ratio per token corrects instead;
- compute bias and variance of a gradient estimate, and say which of the two hurts at which batch
  size;
- name who claims what about token ratios, and which part of it arithmetic supports.

**You need** lessons 02 (ratio, clipping) and 03 (group advantage). **Time:** 45 minutes,
and 15 more for the part *If you have time* at the end, which nothing later needs.

## Two questions from before

From lesson 01: two answers have the scores 3 and 1. With which probability does the Bradley–Terry
model say that the first is preferred?

From lesson 03: three answers to one prompt have the rewards 1, 0.5 and 0. What is the advantage of
the first, with the std that divides by $n$?

(The folded cell imports, and holds what your answers are compared with: run it, but leave it
folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
import math
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from IPython.display import display

from gspo_edu.advantages import group_advantages
from gspo_edu.bibliography import source
from gspo_edu.estimators import (
    NO_CLIP,
    all_answers,
    answer_gradients,
    answer_weights,
    exact_gradient,
    log_probs,
    log_ratio_moment,
    moments,
    policy_at_spread,
    sampled_answers,
)
from gspo_edu.glossary import table
from gspo_edu.plots import BLACK, GREY, new_figure, objective_style, show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer

from_01 = (
    1 / (1 + math.exp(-2)),
    [
        (3 / 4, "Scores are no shares. Take the difference, then 1 / (1 + exp(-difference))."),
        (1 / (1 + math.exp(-3)), "That is the first score alone. Take the difference."),
        (1 / (1 + math.exp(2)), "That is the probability that the second is preferred."),
    ],
)
three = torch.tensor([1.0, 0.5, 0.0])
from_03 = (
    group_advantages(three, [0, 0, 0])[0].item(),
    [
        (0.5, "Centred, but not yet divided by the group's std."),
        (0.5 / three.std().item(), "That std has n - 1 in it; take n."),
        (0.5 / three.var(correction=0).item(), "Divided by the variance; take its square root."),
    ],
)

# %% tags=["question"]
my_answer = None  # from lesson 01
check_answer(my_answer, *from_01)

# %% tags=["question"]
my_answer = None  # from lesson 03
check_answer(my_answer, *from_03)

# %% [markdown]
r"""
## 1 · The claim

> **What the authors of GSPO say** (Zheng et al., arXiv 2507.18071, sections 1 and 3). GRPO applies
> importance weights wrongly, and so its objective is **ill-posed**. Importance sampling needs many
> samples from the **behaviour policy** (the one that wrote the answers) to stand in for the
> **target policy** (the one that is trained). GRPO has one sample per token position, so its weight
> cannot correct the distribution. It brings in noise of high **variance**, which adds up over long
> answers and is made worse by clipping. The unit of the correction, the token, does not match the
> unit of the reward, the answer. They saw this end in **model collapse** that was often
> irreversible. Training on did not help, so more compute no longer paid. Nor did it help to go back
> to a checkpoint and tune hyper-parameters, to let answers grow longer, or to take other prompts.

That is six claims in one. The collapse is an observation on large models, which no small
calculation can repeat. The others are about an estimator, and can be computed. Three words first.

- **Estimator:** a recipe that turns sampled answers into a gradient.
- **Bias:** how far its average is from the true gradient. More answers do not reduce it.
- **Variance:** the mean squared distance from its own average. With $N$ answers it falls to an
  $N$-th.

## 2 · Why off-policy at all?

If stale answers cause trouble, why not sample fresh ones before each update? Because a machine
writes many answers at once for little more than the price of a few. A large model on a GPU has to
bring all its weights out of memory for every token that it writes, and that takes equally long for
64 answers and for 256. So one samples in bulk, cuts the bulk into mini-batches, and makes one
update with each (or uses each even more than once). From the second update on the answers come from
an older policy.

Our tiny model has its weights at hand, but with so little to compute most of the time goes into
starting each of its many small operations, and that, too, costs the same for few answers and for
many. On your machine:
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.config import TrainConfig
from gspo_edu.initial import initial_policy
from gspo_edu.sampler import sampled_rollout
from gspo_edu.tasks.base import prompts_of_split

torch.set_num_threads(1)
policy, task, _ = initial_policy(TrainConfig())
dice = torch.Generator().manual_seed(0)
prompts = prompts_of_split(task, 32, dice, held_out=False)


def seconds_to_sample(prompts):
    """Processor time for 8 answers to each prompt, the shortest of five trials."""
    trials = []
    for _ in range(5):
        began = time.process_time()
        sampled_rollout(policy, task, prompts, 8, generator=dice)
        trials.append(time.process_time() - began)
    return min(trials)


at_once, in_parts = seconds_to_sample(prompts), 4 * seconds_to_sample(prompts[:8])
print(f"256 answers at once:    {at_once * 1000:.0f} ms")
print(f"four times 64 answers:  {in_parts * 1000:.0f} ms, {in_parts / at_once:.1f} times as much")
assert at_once < in_parts

# %% [markdown]
r"""
## 3 · A language small enough to list

Three tokens: 0, 1 and 2. Every answer has exactly $L$ of them, so there are $3^L$ answers: nine for
$L = 2$, 59 049 for $L = 10$. A policy is a table: the probabilities of the next token depend on the
token before it. The reward is 1 for more zeros than ones, 0 for fewer, and ½ for equally many. It
judges the answer as a whole, as in the big runs.

All answers of two tokens, under an old policy and a new one:
"""


# %%
def more_zeros(answers):
    """(N,) reward: 1 for more zeros than ones, 0 for fewer, one half for equally many."""
    zeros, ones = (answers == 0).sum(dim=1), (answers == 1).sum(dim=1)
    return ((zeros - ones).sign() + 1).double() / 2


@dataclass(frozen=True)
class Step:
    """Two policies and every answer: all that there is to know about one off-policy update."""

    old: torch.Tensor  # (4, 3) logits: after token 0, 1, 2, and at the start
    new: torch.Tensor
    length: int

    @cached_property
    def answers(self):
        return all_answers(3, self.length)

    @cached_property
    def rewards(self):
        return more_zeros(self.answers)

    def probabilities(self, policy):
        return log_probs(policy, self.answers).sum(dim=1).exp()

    def expected_reward(self, policy):
        return (self.probabilities(policy) @ self.rewards).item()

    @cached_property
    def gradient(self):
        """The true gradient of the expected reward at the new policy, by autograd."""
        return exact_gradient(self.new, self.answers, self.rewards)


# %% jupyter={"source_hidden": true}
def make_step(seed, length, spread=0.2, along="random"):
    """A random old policy, and a new one whose token log-ratios have the given spread."""
    dice = torch.Generator().manual_seed(seed)
    old, direction = torch.randn(2, 4, 3, generator=dice, dtype=torch.float64)
    old = old / 2
    if along == "learning":
        answers = all_answers(3, length)
        direction = exact_gradient(old, answers, more_zeros(answers)).view(4, 3)
    return Step(old, policy_at_spread(old, direction, length, spread), length)


# %%
two = make_step(seed=0, length=2)
p_old, p_new = two.probabilities(two.old), two.probabilities(two.new)
print("answer   p_old   p_new   product of ratios   reward")
for answer, a, b, reward in zip(two.answers, p_old, p_new, two.rewards, strict=True):
    print(f"{answer[0]} {answer[1]:>4} {a:9.4f} {b:7.4f} {b / a:15.4f} {reward:12.1f}")
print(f"\nexpected reward: old {p_old @ two.rewards:.4f}, new {p_new @ two.rewards:.4f}")
assert torch.isclose(p_old.sum(), torch.tensor(1.0).double())
assert torch.isclose(p_new.sum(), torch.tensor(1.0).double())

# %% [markdown]
r"""
The step between the two policies is large on purpose, so that effects can be seen: the log-ratio of
a typical token is 0.2 (root mean square under the old policy; this is the spread σ of the course).
The course's own policy moves by about 0.1 in one pass over a rollout (lesson 05). Section 7 makes
the step small.

## 4 · Importance sampling by the book

We want a mean under the new policy, and have samples of the old one. Weight each with the ratio of
its probabilities, and the mean is right:

$$ \mathbb E_{y \sim \pi_\theta}[f(y)] =
   \mathbb E_{y \sim \pi_\text{old}}\Bigl[ \frac{\pi_\theta(y)}{\pi_\text{old}(y)}\, f(y) \Bigr] $$

For an answer the weight is the **product** of its token ratios, all of them: $W = r_1 r_2 \cdots
r_L$. The authors of GSPO stress that this needs many samples. What if there is only one?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "04 one sample",
    "You draw ONE answer from the old policy and take W times its reward as your estimate of the "
    "new policy's expected reward. What is wrong with that estimate?",
    {
        "a": "it is biased: importance sampling is right only for many samples",
        "b": "it is noisy, but right on average",
        "c": "nothing: the weight makes it exact",
    },
    my_guess,
)

# %%
W = p_new / p_old
on_average = (p_old * W * two.rewards).sum()
wanted = two.expected_reward(two.new)
std = (p_old * (W * two.rewards - on_average) ** 2).sum().sqrt()
print(f"wanted: {wanted:.4f}")
print(f"one weighted sample: {on_average:.4f} on average, standard deviation {std:.4f}")
for count in (100, 10_000):
    print(f"mean of {count:6d} samples: standard deviation {std / math.sqrt(count):.4f}")
assert math.isclose(on_average, wanted)
assert std > 0.4

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "04 one sample",
    "b",
    f"it is {wanted:.4f} on average, as wanted, with a standard deviation of {std:.2f}. Many "
    "samples are needed against noise. They are not needed against bias.",
    {
        "a": "the average over all answers, weighted by how often the old policy writes them, is "
        "exactly right. Each sample has that average, also a single one.",
        "c": f"a single sample is off by {std:.2f} typically.",
    },
)

# %% [markdown]
r"""
So "one sample is not enough" cannot mean that one sample is wrong *on average*. It means noise, and
noise averages out over the answers of a batch. There is another fault with token ratios, though,
which no number of samples mends.

## 5 · What does a token ratio correct?

The gradient of the new policy's expected reward is a sum over the tokens of an answer: each token's
*score* $\nabla \log \pi_\theta(y_t)$, the direction in which this token becomes likelier, times the
answer's advantage $A$, times a weight. The estimators differ in the weight alone:

| estimator | weight of token $t$ | objective in this course |
|---|---|---|
| product: by the book | $r_1 r_2 \cdots r_L$ | `seq_unnormalised` |
| token ratios: GRPO's | $r_t$ | `grpo` |
| sequence ratio: GSPO's | $s = (r_1 r_2 \cdots r_L)^{1/L}$ | `gspo` |
| no correction | 1 | none: take the old answers for fresh ones |

All without clipping for now. `answer_weights` reads the weights off the course's own objectives
(their `token_weight`, which autograd confirms) and expresses them in units of the weight at
$\theta = \theta_\text{old}$. That takes out the $1/L$ by which GRPO and GSPO divide and the product
does not. The advantage is reward minus the old policy's expected reward, as if the group were
infinitely large; it is not divided by a std, which would only change the scale.
"""


# %%
ESTIMATORS = {
    "product": ("seq_unnormalised", NO_CLIP),
    "token": ("grpo", NO_CLIP),
    "sequence": ("gspo", NO_CLIP),
    "none": (None, {}),
}


def weights_of(step, name, estimators=ESTIMATORS):
    """(N, L) weight times advantage, for each token of each answer."""
    objective, settings = estimators[name]
    advantage = step.rewards - step.expected_reward(step.old)
    return answer_weights(objective, step.new, step.old, step.answers, advantage, **settings)


def moments_of(step, name, estimators=ESTIMATORS):
    """Exact mean and covariance of the gradient that one answer gives."""
    weights = weights_of(step, name, estimators)
    gradients = answer_gradients(step.new, step.answers, weights)
    return moments(gradients, step.probabilities(step.old))


unmoved = Step(two.old, two.old, 2)
for name in ESTIMATORS:
    bias = moments_of(unmoved, name).bias(unmoved.gradient)
    print(f"{name:9} at θ = θ_old: bias {bias:.4f}")
    assert bias < 1e-12

# %% [markdown]
r"""
When the policies are equal, all ratios are 1 and the four are one. Now let the policy move.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "04 unbiased",
    "Answers of 8 tokens, policies that differ, no clipping. Which weights give the true gradient "
    "on average?",
    {
        "a": "the token ratios: each token is corrected by its own ratio",
        "b": "the sequence ratio: reward and correction have the same unit, the answer",
        "c": "the product only",
        "d": "all three: they are all importance ratios",
    },
    my_guess,
)

# %%
eight = make_step(seed=0, length=8)
found = {name: moments_of(eight, name) for name in ESTIMATORS}
print("weights     bias   cosine with the true gradient")
for name, at in found.items():
    print(f"{name:9} {at.bias(eight.gradient):6.3f}   {at.cosine(eight.gradient):.4f}")
bias = {name: at.bias(eight.gradient) for name, at in found.items()}
assert bias["product"] < 1e-10
assert 0.01 < bias["token"] < bias["sequence"] < bias["none"]

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "04 unbiased",
    "c",
    "by the book means the whole product. Every other weight has a bias: its average is off by "
    f"{bias['token']:.0%} of the gradient's length for token ratios and by "
    f"{bias['sequence']:.0%} for the sequence ratio.",
    {
        "a": f"the bias is {bias['token']:.3f}. A token's own ratio corrects for that token; the "
        "tokens before and after it still come from the old policy.",
        "b": f"the bias is {bias['sequence']:.3f}. The unit fits, but s is the L-th root of the "
        "answer's weight, not the weight.",
        "d": "only the product turns probabilities of the old policy into those of the new one.",
    },
)

# %% [markdown]
r"""
("Bias" here is the distance of the average from the true gradient, in lengths of that gradient. The
cosine says how much of it is a wrong direction: 1 is right, and a mere error of length would leave
it at 1.)

The claim has a true core, then: a token ratio does *not* correct what importance sampling should
correct. What it does instead can be said exactly. Let the new policy draw the token at *one*
position and the old one all others; add up the expected reward over the positions. The gradient of
that sum is, to the last digit, what token ratios estimate:
"""


# %%
def one_changed_token(step):
    """Gradient of the sum over t of E[reward], token t drawn by the new policy, the rest by old."""
    leaf = step.new.clone().requires_grad_()
    logp_old, logp_new = log_probs(step.old, step.answers), log_probs(leaf, step.answers)
    total = 0.0
    for place in range(step.length):
        logp = logp_old.clone()
        logp[:, place] = logp_new[:, place]
        total = total + (logp.sum(dim=1).exp() * step.rewards).sum()
    total.backward()
    return leaf.grad.flatten()


difference = (one_changed_token(eight) - found["token"].mean).abs().max().item()
print(f"largest difference: {difference:.6f}")
assert difference < 1e-12

# %% [markdown]
r"""
So the estimator is not meaningless. It answers another question: "what if each token alone had been
chosen anew?" At the old policy the two questions have the same gradient, which is why PPO uses it
(it is TRPO's surrogate, arXiv 1502.05477, which adds up the tokens; PPO takes their mean); from
there the error grows in proportion to the step. Later work by the Qwen team says the same: they
describe the token-level objective as a first-order approximation of the one that the reward is
about (arXiv 2512.01374).

GSPO's $s$ is not importance sampling by the book either. For a small step, the book's weight is
$1 + \sum_t \log r_t$. The token ratio keeps one term of that sum, $s$ keeps an $L$-th of all of
them, and no correction keeps nothing.

## 6 · And the variance?

To judge a variance one needs a yardstick: **fresh** answers, sampled from the new policy itself, no
ratio needed. That is the noise that sampling makes anyway.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "04 largest variance",
    "Answers of 10 tokens, a spread of 0.2, no clipping. Which weights make the gradient noisiest, "
    "compared with fresh answers?",
    {
        "a": "token ratios, by far: ten noisy numbers instead of one",
        "b": "the product, by far",
        "c": "the sequence ratio: one token with a large ratio moves all ten",
        "d": "none: all are about as noisy as fresh answers",
    },
    my_guess,
)


# %%
def fresh_moments(step):
    """The same for answers of the new policy itself: no weights."""
    advantage = step.rewards - step.expected_reward(step.new)
    weights = advantage[:, None].expand(step.answers.shape)
    gradients = answer_gradients(step.new, step.answers, weights)
    return moments(gradients, step.probabilities(step.new))


SEEDS, LENGTHS = range(6), (1, 2, 4, 6, 8, 10)
steps = {(seed, length): make_step(seed, length) for seed in SEEDS for length in LENGTHS}
study = {name: {at: moments_of(step, name) for at, step in steps.items()} for name in ESTIMATORS}
study["fresh"] = {at: fresh_moments(step) for at, step in steps.items()}


def over_pairs(number, length):
    """(6,) a number of each pair of policies at one length."""
    return np.array([number((seed, length)) for seed in SEEDS])


def relative_variance(name, length):
    """(6,) variance over that of fresh answers."""
    table = study[name]
    return over_pairs(lambda at: table[at].variance / study["fresh"][at].variance, length)


def bias_of(name, length):
    """(6,) distance of the average from the true gradient, in its lengths."""
    return over_pairs(lambda at: study[name][at].bias(steps[at].gradient), length)


print("L = 10, six pairs of policies: mean (smallest to largest)")
print("weights     variance, fresh = 1        bias")
for name in ESTIMATORS:
    v, b = relative_variance(name, 10), bias_of(name, 10)
    print(
        f"{name:9}   {v.mean():.2f} ({v.min():.2f} to {v.max():.2f})   "
        f"   {b.mean():.3f} ({b.min():.3f} to {b.max():.3f})"
    )

# %% tags=["reconcile"] jupyter={"source_hidden": true}
noisy = {name: relative_variance(name, 10) for name in ESTIMATORS}
assert all(noisy["product"].mean() > 1.5 * noisy[name].mean() for name in list(noisy)[1:])
assert noisy["token"].mean() < 1.1
assert noisy["sequence"].mean() < 1.1
reconcile(
    "04 largest variance",
    "b",
    f"the unbiased one: {noisy['product'].mean():.2f} times the variance of fresh answers. Token "
    f"ratios have {noisy['token'].mean():.2f}, the sequence ratio {noisy['sequence'].mean():.2f}.",
    {
        "a": f"their variance is {noisy['token'].mean():.2f} times that of fresh answers. Each "
        "ratio is a noisy number close to 1; the noise of sampling answers is far larger.",
        "c": f"it is {noisy['sequence'].mean():.2f}: the root keeps it close to 1.",
        "d": f"true of all but the product, which has {noisy['product'].mean():.2f}.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
LOOK = {
    "product": objective_style("seq_unnormalised"),
    "token": objective_style("grpo") | {"label": "token ratios"},
    "sequence": objective_style("gspo") | {"label": "sequence ratio"},
    "none": {"color": GREY, "linestyle": ":", "label": "no correction"},
}
figure, (left, right) = new_figure(columns=2, width=3.9, height=3.2)
for ax, number in ((left, bias_of), (right, relative_variance)):
    for name, style in LOOK.items():
        every = np.array([number(name, length) for length in LENGTHS])
        ax.plot(LENGTHS, every, lw=0.6, alpha=0.45, **style | {"label": "_"})
        ax.plot(LENGTHS, every.mean(axis=1), lw=2.2, **style)
    ax.set_xlabel("answer length L (tokens)")
right.axhline(1, color=BLACK, lw=0.8)
left.set(ylabel="bias (lengths of the gradient)", ylim=(-0.02, None))
right.set(ylabel="variance (fresh answers: 1)")
left.set_title("bias", fontsize=10)
right.set_title("variance", fontsize=10)
figure.legend(*left.get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside right")
show(
    figure,
    "Bias and variance over answer lengths 1 to 10, six pairs of policies and their mean. The "
    "product has no bias; token ratios stay near 0.15, sequence ratio and no correction rise to "
    "more than a quarter. The product's variance rises to about 1.9 times that of fresh answers; "
    "that of the others stays close to 1.",
)

# %% [markdown]
r"""
**How to read it.** Thin lines are the six pairs of policies, thick ones their mean. Left, the bias:
the product lies on zero at every length. One token: token ratio, sequence ratio and product are the
same number, so all three are unbiased. From two tokens on, token ratios are off by about 0.15,
with large differences between pairs. The sequence ratio starts lower; from four tokens on it is off
by more, and the longer the answer, the less it differs from no correction. Right, the variance,
with fresh answers at 1: the product climbs with length. The others stay near 1, within what one
pair of policies differs from the next.

So on this language the plain sentence "token ratios are high-variance noise" does not hold. Token
ratios add some per cent of variance to what sampling makes anyway. Between token and sequence ratio
there is no difference in noise to speak of, and $s$ has more bias: as a *weight* it is so close to
1 that it corrects hardly more than no weight at all. Whatever GSPO does differently, it does not do
by this weight. It does it by deciding, with $s$, which answers to silence. Section 8 looks at that.

### Does the noise grow with length?

Look at the plain numbers, not divided by those of fresh answers. On the right is the **noise per
signal**, the standard deviation of one answer's gradient over the length of the average one. At 3
it takes $3^2 = 9$ answers until the noise of their mean is as small as the signal.
"""

# %%
print("          variance of one answer's gradient        noise per signal")
print("length      fresh      token    product          fresh    token   product")
for length in LENGTHS:
    row = f"{length:6d}"
    for name in ("fresh", "token", "product"):
        v = over_pairs(lambda at, name=name: study[name][at].variance, length).mean()
        row += f"{v:11.3f}"
    row += "      "
    for name in ("fresh", "token", "product"):
        n = over_pairs(lambda at, name=name: study[name][at].noise, length).mean()
        row += f"{n:9.2f}"
    print(row)


def token_over_fresh(length):
    return (relative_variance("token", length)).mean()


print(f"\nshare that token ratios add: {token_over_fresh(2) - 1:+.0%} at L = 2", end=", ")
print(f"{token_over_fresh(10) - 1:+.0%} at L = 10")
assert all(abs(token_over_fresh(length) - 1) < 0.05 for length in LENGTHS[1:])

# %% [markdown]
r"""
Yes, the variance grows with length, and for *everybody*, also for fresh answers: a longer answer
has more tokens, and each adds its noisy score. That is the price of having one reward for many
tokens, and no ratio removes it. (The signal grows, too: the noise per signal levels off here.)

What the *ratio* adds can be said in a rule of thumb. If a weight $w$ had nothing to do with
advantage and score, it would multiply the variance by $\mathbb E[w^2]$. For independent tokens with
normal log-ratios that is

- token ratio: $\mathbb E[r_t^2] \approx e^{\sigma^2}$, at any length;
- product: $\mathbb E[W^2] \approx e^{\sigma^2 L}$, exponential in the length;
- sequence ratio: $\mathbb E[s^2] \approx e^{\sigma^2 (2/L - 1)}$, close to 1 (a little below).

For the weights alone no list is needed. Probabilities multiply up token by token, so a small
matrix, applied $L$ times, gives these moments exactly at any length.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "04 effective share",
    "A small step: a spread of 0.05. By the book (product), 10 000 sampled answers of 1000 tokens "
    "are worth how many fresh ones?",
    {
        "a": "about 10 000: the step is small",
        "b": "about 9 500",
        "c": "fewer than 1 000",
        "d": "about one",
    },
    my_guess,
)

# %%
SIGMA = 0.05
small = make_step(seed=0, length=10, spread=SIGMA)
old, new = small.old, policy_at_spread(small.old, small.new - small.old, 1000, SIGMA)
worth = {}
print("length     E[W²]   worth of 10 000 answers   its L-th root   mean of s   std of s")
for length in (1, 10, 100, 1000, 10_000):
    second = log_ratio_moment(new, old, length, 2)
    mean = math.exp(log_ratio_moment(new, old, length, 1 / length))
    square = math.exp(log_ratio_moment(new, old, length, 2 / length))
    worth[length] = 10_000 * math.exp(-second)
    print(
        f"{length:6d} {math.exp(second):9.4g} {worth[length]:25.3g}"
        f" {math.exp(second / length):15.4f} {mean:11.5f} {math.sqrt(square - mean**2):10.5f}"
    )
assert 300 < worth[1000] < 1000
assert worth[10_000] < 1e-3

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "04 effective share",
    "c",
    f"{worth[1000]:.0f}: the squared weights have the mean {10_000 / worth[1000]:.1f}, not far "
    f"from exp(0.05² · 1000) = {math.exp(SIGMA**2 * 1000):.1f}.",
    {
        "a": "the step is small for a token. Over 1000 tokens the log-ratios add up.",
        "b": "that would be about 20 tokens: exp(-0.05² · 20) = 0.95.",
        "d": "that takes some 3700 tokens: exp(-0.05² · 3700) is about one in 10 000.",
    },
)

# %% [markdown]
r"""
The *worth* is $N / \mathbb E[W^2]$. In a large batch that is the **effective sample size**, $(\sum
W)^2 / \sum W^2$: how many equally weighted samples would be as good. (Divided by $N$ it tends to $1
/ \mathbb E[W^2]$.) Of a batch that has been drawn it is never below 1. A worth of 1.6e-7 says that
10 000 answers are far from that limit: it would take six million times as many to be worth one. By
the book, importance sampling of long answers is hopeless; at 10 000 tokens practically all weight
sits on answers that are never drawn. That is why the product is used neither by PPO nor by GRPO nor
by GSPO. Each of them accepts a bias to be rid of that variance. (The $L$-th root is what one token
contributes: nearly the same at every length, and close to $e^{\sigma^2} = 1.0025$.)

## 7 · Bias or variance?

Which error hurts depends on the batch. Bias stays; variance falls with the number $N$ of answers:

$$ \text{mean squared error} = |\text{bias}|^2 + \text{variance} / N $$

Without a true gradient of its own nobody can see that sum in training. Here we can.
"""

# %%
ten = {spread: [make_step(s, 10, spread) for s in SEEDS] for spread in (0.05, 0.1, 0.2)}
at_ten = {
    (name, spread): [moments_of(step, name) for step in some]
    for name in ESTIMATORS
    for spread, some in ten.items()
}


def error(name, spread, batch):
    """Root mean squared error of a batch's gradient, in its lengths: mean over the six pairs."""
    pairs = zip(at_ten[name, spread], ten[spread], strict=True)
    return np.mean([at.error(step.gradient, batch) for at, step in pairs])


print("L = 10. Error of a batch's gradient, in lengths of the true one")
print("spread   answers   " + "".join(f"{name:>10}" for name in ESTIMATORS))
for spread in ten:
    for batch in (64, 1024, 16_384):
        cells = "".join(f"{error(name, spread, batch):10.3f}" for name in ESTIMATORS)
        print(f"{spread:6.2f} {batch:9d}   {cells}")
assert error("token", 0.2, 64) < error("product", 0.2, 64)
assert error("product", 0.2, 16_384) < error("token", 0.2, 16_384)
assert error("token", 0.2, 16_384) < error("sequence", 0.2, 16_384)
close = [error(name, 0.05, 64) for name in ESTIMATORS]
assert max(close) < 1.03 * min(close)

# %% [markdown]
r"""
In the last three lines the step is large. With 64 answers noise rules, and the product is worst.
With 1024 and more the biases show: first those of sequence ratio and no correction, then that of
the token ratios, and the product, which has none, goes on improving. In the first line the step is
small, and all four errors agree to a fiftieth. With steps that small, on answers this short, *it
hardly matters which ratio one takes*, or whether one takes one.

## 8 · What does clipping do to the noise?

Now with the ranges of the GSPO paper: 0.2/0.27 for token ratios, 3e-4/4e-4 for $s$. A last row
gives $s$ a wider range, which silences about as much of a learning step as GRPO's does.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "04 clipping",
    "L = 10, spread 0.2. GRPO's clipping is switched on. What happens to bias and variance?",
    {
        "a": "both fall: clipping removes the outliers that spoil the average",
        "b": "the variance falls, the bias stays: it only cuts what is too large",
        "c": "the variance falls, the bias rises",
        "d": "the variance rises, the bias stays",
    },
    my_guess,
)

# %%
RANGES = {
    "token": ("grpo", NO_CLIP),
    "token, clipped": ("grpo", {}),
    "sequence": ("gspo", NO_CLIP),
    "sequence, clipped": ("gspo", {}),
    "sequence, wider": ("gspo", {"clip_low": 0.075, "clip_high": 0.102}),
}


def noise_facts(step, name):
    """Silenced share, variance (fresh: 1), bias, cosine; mean and std along the gradient."""
    weights, p = weights_of(step, name, RANGES), step.probabilities(step.old)
    at = moments(answer_gradients(step.new, step.answers, weights), p)
    silenced = (p @ (weights == 0).double().mean(dim=1)).item()
    variance = at.variance / fresh_moments(step).variance
    unit = step.gradient / step.gradient.norm() ** 2  # the true gradient has length 1 in it
    mean, std = at.mean @ unit, (unit @ at.covariance @ unit).sqrt()
    bias, cosine = at.bias(step.gradient), at.cosine(step.gradient)
    return silenced, variance, bias, cosine, mean.item(), std.item()


def print_facts(some):
    """The means over some steps, as a table; returns it."""
    print("                                                       along the true gradient")
    print("weights             silenced  variance   bias   cosine      mean    std")
    rows = {}
    for name in RANGES:
        rows[name] = np.mean([noise_facts(step, name) for step in some], axis=0)
        print("{:19} {:8.2f} {:9.2f} {:6.2f} {:8.2f} {:9.2f} {:6.2f}".format(name, *rows[name]))
    return rows


by_chance = print_facts(ten[0.2])

# %% tags=["reconcile"] jupyter={"source_hidden": true}
SILENCED, VARIANCE, BIAS, COSINE, MEAN, STD = range(6)
plain_row, clipped_row = by_chance["token"], by_chance["token, clipped"]
assert clipped_row[VARIANCE] < plain_row[VARIANCE]
assert clipped_row[BIAS] > 3 * plain_row[BIAS]
reconcile(
    "04 clipping",
    "c",
    f"the variance goes from {plain_row[VARIANCE]:.2f} to {clipped_row[VARIANCE]:.2f}, the bias "
    f"from {plain_row[BIAS]:.2f} to {clipped_row[BIAS]:.2f}.",
    {
        "a": "the silenced tokens are no random outliers. They are those that have moved in the "
        "direction of their advantage, so leaving them out shifts the average: "
        f"{plain_row[BIAS]:.2f} becomes {clipped_row[BIAS]:.2f}.",
        "b": "it does not cut, it silences; and it silences by the sign of the advantage.",
        "d": f"fewer tokens speak, so the plain variance falls, to {clipped_row[VARIANCE]:.2f}.",
    },
)

# %% [markdown]
r"""
That was a step in a random direction. In training, part of the step is learning: it follows the
gradient. Six such steps, of the same size:
"""

# %%
learning = [make_step(seed, 10, along="learning") for seed in SEEDS]
before, after = (
    np.mean([step.expected_reward(policy) for step, policy in pairs])
    for pairs in ([(x, x.old) for x in learning], [(x, x.new) for x in learning])
)
print(f"expected reward, mean of six: {before:.2f} before, {after:.2f} after the step\n")
by_learning = print_facts(learning)
assert after > before + 0.1
for plain, clipped in (("token", "token, clipped"), ("sequence", "sequence, clipped")):
    by_mean = [by_chance[name][STD] / by_chance[name][MEAN] for name in (plain, clipped)]
    assert by_mean[1] > 1.3 * by_mean[0]
    assert by_learning[clipped][MEAN] < 0
    assert 1.05 < by_mean[0] < 1.2
    assert math.isclose(by_mean[1], {"token": 1.45, "sequence": 1.75}[plain], rel_tol=0.04)
assert 1.2 < by_learning["token"][VARIANCE] < 1.3
assert 1.35 < by_learning["sequence"][VARIANCE] < 1.45
token, wider = by_learning["token, clipped"], by_learning["sequence, wider"]
assert abs(token[SILENCED] - wider[SILENCED]) < 0.02
assert token[COSINE] < 0
assert wider[COSINE] > 0.7

# %% [markdown]
r"""
Is noise "made worse by clipping", then?

- The plain variance falls, in both tables and with every range.
- But what one wants to see is the part along the true gradient, and of that clipping takes away
  more than of its scatter. After a random step the standard deviation grows from 1.1 to about 1.5
  times the mean under GRPO, and to 1.8 times under GSPO. So in this sense: yes.
- After a learning step hardly anything is left along the true gradient. With the papers' ranges the
  average even points a little *against* it.
- It matters *what* is silenced. With the wider range $s$ silences as large a share of a learning
  step as GRPO does, and still points the right way: whole answers fall silent, and the others keep
  all their tokens.

An average that points the wrong way looks like a fault, and is none. Clipping is not meant to
estimate the gradient. It is a brake: answers that have moved far enough in the right direction fall
silent, and those that went the wrong way are left to speak. After a good step little but the wrong-
way part is left, and it holds back a policy that has just improved by this much.

How far is "far enough"? There the two ranges differ by far more than the ratios do. The same
learning steps, only a tenth as large:
"""

# %%
careful = print_facts([make_step(seed, 10, 0.02, along="learning") for seed in SEEDS])
assert careful["token, clipped"][SILENCED] == 0
for some in (by_learning, careful):
    assert 0.835 < some["sequence, clipped"][SILENCED] < 0.855  # lesson 06 quotes it
for column in (MEAN, STD):
    assert math.isclose(careful["token"][column], careful["sequence"][column], rel_tol=0.05)

# %% [markdown]
r"""
GRPO's range does not notice such a step, and GSPO's has already put the brake on. Without clipping
the two estimators are the same here to a twentieth, in size, noise and direction. **As weights the
two ratios hardly differ. What differs is the clipping: its range, and its unit, token or answer.**
(For ten tokens, that is. GSPO's range is meant for answers of thousands, on which $s$ scatters far
less; lesson 05 is about that.)

"""

# %% [markdown]
r"""
## 9 · What is left of the claim

Claim by claim, on a language that can be listed:

- *One sample per position cannot correct the distribution.* The number of samples is not the point:
  a single sample is right on average. But a token ratio corrects one token at a time, and that is a
  bias, of the order of the step. GSPO's $s$ has one as well; here it is the larger.
- *Token ratios bring high-variance noise.* After a step in a random direction they multiply the
  variance of sampling by about $e^{\sigma^2}$, here a few per cent more. After a large learning
  step they add about a quarter, and $s$ about two fifths: then weight and advantage go together,
  which the rule of thumb leaves out. The weight with high variance is the product, which neither
  PPO nor GRPO nor GSPO uses.
- *The noise adds up over long answers.* It does, and so does that of fresh answers without any
  ratio. By the rule of thumb the share that the token ratio adds does not grow; here, after random
  steps, it is within a few per cent of nothing at every length from two tokens on.
- *Clipping makes it worse.* Plain variance falls. Measured along the true gradient the noise grows,
  and the bias a lot, under both objectives. At one matched range, after learning steps (about a
  fifth silenced either way), silencing answers kept the direction better than silencing tokens.
- *Unit of correction and unit of reward do not match.* True as said. But the right unit does not
  make a weight the right weight.
- *Irreversible collapse.* Reported by the authors, on their models. Nothing here speaks to it.

Before you conclude that the authors are wrong, look at what this language does not have:

- **Length and spread.** Ten tokens, not thousands; a spread that all tokens share.
- **Loud tokens**, whose ratio is far from 1. $\mathbb E[r^2]$ is close to $e^{\sigma^2}$ only while
  log-ratios are small and tame. In a mixture of experts a token can be sent to other experts after
  an update, and its ratio jumps for that reason alone. A few ratios of 10 make
  $\mathbb E[r^2]$ large. The authors' strongest observations are on such models.
- **Many updates in a row.** A small bias or a little noise can feed on itself. A collapse is a
  story of thousands of updates, and we looked at one.

What arithmetic can do is to move the question to the right place. It is not "token ratios are noisy
and sequence ratios are not". It is: how do the ratios of *your* policy behave, and what does your
clip range do with them?

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    1.5 * 0.8,
    [
        (0.8, "That is the token ratio. By the book the other token counts, too."),
        (math.sqrt(1.5 * 0.8), "That is GSPO's s. By the book there is no root."),
        ((1.5 + 0.8) / 2, "That is the arithmetic mean. Probabilities multiply."),
    ],
)
question_2 = (
    1.02**100 - 1,
    [
        (1.02**100, "That is E[W²]. Subtract the square of the mean, which is 1."),
        (
            100 * 0.02,
            "Variances of a sum add up; this is a product, whose second moments multiply.",
        ),
        (0.02, "That is one token's."),
    ],
)
question_3 = (
    (16 - 10) / 0.1**2,
    [
        ((16 - 10) / 0.1, "Square the bias: the sum is |bias|² + variance / N."),
        (16 / 0.1**2, "The token ratios have a variance, too: 16/N against 0.01 + 10/N."),
        (10 / 0.1**2, "That is where their own bias and noise are equal."),
    ],
)

# %% [markdown]
r"""
**1.** An answer of two tokens has the ratios 1.5 and 0.8, and $A = 1$. Which weight does importance
sampling by the book put on the score of the *second* token?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Each token ratio has $\mathbb E[r_t^2] = 1.02$ under the old policy, whatever came before.
What is the variance of the product over 100 tokens? (Its mean is 1.)
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** In lengths of the true gradient: token ratios have a bias of 0.1 and a variance of 10 per
answer; the product has no bias and a variance of 16. From how many answers per batch on is the
product the better one?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 01: 1 / (1 + e^-(3 - 1)) = {1 / (1 + math.exp(-2)):.4f}")
print(f"From lesson 03: 0.5 / sqrt((0.25 + 0 + 0.25) / 3) = {0.5 / math.sqrt(0.5 / 3):.4f}")
print(f"1. 1.5 · 0.8 = {1.5 * 0.8:.4f}, the same for both tokens")
print(f"2. 1.02^100 - 1 = {1.02**100 - 1:.4f}")
print(f"3. 16/N = 0.01 + 10/N at N = (16 - 10) / 0.01 = {(16 - 10) / 0.01:.0f}")
both = 16 / question_3[0], 0.1**2 + 10 / question_3[0]
assert math.isclose(*both)

# %% [markdown]
r"""
## If you have time

Four additions, each a few minutes, in any order. No later lesson needs them.

### How good is the rule of thumb?
"""

# %%
print("L = 10, spread 0.2      rule of thumb   measured")
for name, exponent in (("token", 1), ("product", 10), ("sequence", 2 / 10 - 1)):
    rule, measured = math.exp(0.2**2 * exponent), relative_variance(name, 10).mean()
    print(f"{name:20} {rule:16.2f} {measured:10.2f}")
    assert (rule > 1.2) == (measured > 1.2) == (name == "product")

# %% [markdown]
r"""
It says which of the weights is large, and no more: it takes the weights to have nothing to do with
the advantages, and they do have to do with them.

### From how many answers on is the product the best?

The table of section 7, for the large step, as curves:
"""

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (ax,) = new_figure(width=6.5, height=3.2)
batches = np.geomspace(8, 1e5, 41)
for name, style in LOOK.items():
    ax.plot(batches, [error(name, 0.2, batch) for batch in batches], lw=2.2, **style)
ax.set(xscale="log", yscale="log", xlabel="answers in the batch N (log scale)")
ax.set_ylabel("error (lengths of the gradient, log)")
ax.legend(fontsize=8, frameon=False)
show(
    figure,
    "Error of a batch's gradient over its number of answers, length 10, spread 0.2. In small "
    "batches the product is worst. Sequence ratio and no correction level off at about 0.27 and "
    "0.29, token ratios at 0.16; the product falls on and is best from some hundreds on.",
)
assert error("product", 0.2, 32) > error("sequence", 0.2, 32)
assert error("product", 0.2, 200) < error("sequence", 0.2, 200)
assert error("token", 0.2, 200) < error("product", 0.2, 200)
assert error("product", 0.2, 400) < error("token", 0.2, 400)

# %% [markdown]
r"""
**How to read it.** On the left noise rules: the three biased weights are close together, and the
product is worse. To the right each curve flattens at its own bias, first those of sequence ratio
and no correction, then that of the token ratios; the product goes on falling. It is the best from
about a hundred answers on, compared with $s$, and from some three hundred on, compared with token
ratios.
"""

# %% [markdown]
r"""
### Do samples agree with the list?

Everything so far was computed from lists of all answers. To be sure that the lists are right, take
the other way: draw 20 000 answers from the old policy, token by token, and estimate. Along the true
gradient, with the true length as unit, an unbiased estimator must give 1.
"""

# %%
step, count = ten[0.2][0], 20_000
drawn = sampled_answers(step.old, 10, count, torch.Generator().manual_seed(1))
advantage = more_zeros(drawn) - step.expected_reward(step.old)
unit = step.gradient / step.gradient.norm() ** 2
print("weights     listed   sampled   95 % interval        inside")
for name, (objective, settings) in ESTIMATORS.items():
    listed = (moments_of(step, name).mean @ unit).item()
    weights = answer_weights(objective, step.new, step.old, drawn, advantage, **settings)
    along = answer_gradients(step.new, drawn, weights) @ unit
    half = 1.96 * along.std().item() / math.sqrt(count)
    low, high = along.mean().item() - half, along.mean().item() + half
    print(
        f"{name:9} {listed:8.3f} {along.mean():9.3f}   {low:.3f} to {high:.3f}"
        f"   {low < listed < high}"
    )
    assert low < listed < high
    assert half < 0.15

# %% [markdown]
r"""
### A crude picture of an exchanged expert

In `make_step` let only one row of the table move (`direction[1:] = 0` before the last line): only
what follows a 0 has changed. Take `make_step(seed, 10, 0.6)`. Some ratios are now far from 1: a few
tokens are loud, the others are as they were. Which weights suffer most? Try it with
`moments_of(step, name).variance` and `fresh_moments(step).variance`, for six seeds, before you open
the folded cell.
"""

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
SPREAD = 0.6


def one_row_moved(seed):
    """Two policies that differ only in what follows a 0."""
    step = make_step(seed, 10)
    direction = step.new - step.old
    direction[1:] = 0
    return Step(step.old, policy_at_spread(step.old, direction, 10, SPREAD), 10)


moved = [one_row_moved(seed) for seed in SEEDS]
logs = [log_probs(step.new, step.answers) - log_probs(step.old, step.answers) for step in moved]
smallest, largest = min(x.min() for x in logs).exp(), max(x.max() for x in logs).exp()
print(f"token ratios from {smallest:.2f} to {largest:.2f}")
print("weights     variance, fresh = 1       bias")
variances, biases = {}, {}
for name in ESTIMATORS:
    pairs = [(moments_of(step, name), step) for step in moved]
    v = [at.variance / fresh_moments(step).variance for at, step in pairs]
    b = [at.bias(step.gradient) for at, step in pairs]
    variances[name], biases[name] = np.array(v), np.array(b)
    print(f"{name:9}   {min(v):.2f} to {max(v):<12.4g} {min(b):.2f} to {max(b):.2f}")
print("The product, by far. Of the other three, token ratios have the least variance and the")
print("least bias, and no correction has the most of both, in each of the six pairs.")
assert variances["product"].min() > 4
assert variances["token"].max() < 1.6
for less, more in (("token", "sequence"), ("sequence", "none")):
    assert (variances[less] < variances[more]).all()
    assert (biases[less] < biases[more]).all()

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("04")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=4))

# %% [markdown]
r"""
## What comes next

You know what the token ratio is accused of, and what the arithmetic says. **Lesson 05** takes apart
the ratio that GSPO puts in its place: what the root does, and why its clip range is more than
600 times narrower.

**Sources.** The claim: sections 1 and 3 of the first. The surrogate that token ratios estimate:
section 2 of the second. Token ratios as a first-order approximation: the third.
"""

# %%
for key in ("gspo", "trpo", "stabilizing_rl"):
    print(source(key))
