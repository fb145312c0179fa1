# %% [markdown]
r"""
# 02 · PPO: ratio and clipping

**What you will be able to do:** compute PPO's objective for a small batch by hand, say for every
token whether clipping stops its gradient, and name three things that clipping does *not* do.

**Time:** 35 minutes. **You need:** lesson 00, or a rough idea of policy, reward and gradient.
Log-probs are natural logarithms of probabilities.

PPO stands for *proximal policy optimization* (Schulman et al. 2017, arXiv 1707.06347). GRPO and
GSPO, the subjects of this course, are PPO with one part exchanged at a time. So we take PPO apart
first.
"""

# %% [markdown]
r"""
## The parts

A **policy** is the language model that we train: it gives every possible next token a probability.
It samples an answer. A **reward model** (or a program that can check the answer) turns the answer
into one number, the reward. A **reference policy**, a frozen copy from before the training, says
how far the policy has drifted; that distance (KL) is taken off the reward. And a **critic**, a
second network about as large as the policy, guesses after each token which reward the answer will
get in the end.

What counts for learning is not the reward but the surprise: reward minus guess. That is the
**advantage**. An answer with reward 0.5 is good news where the critic expected 0.1, and bad news
where it expected 0.9.
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.diagrams import parts_figure
from gspo_edu.plots import show

show(
    parts_figure("ppo"),
    "PPO's parts. The policy samples one answer. A fixed reward model, a fixed reference policy "
    "and a trained critic look at it; together they give an advantage for each token. From it "
    "comes a loss with clipping, and a gradient step changes the policy.",
)

# %% [markdown]
r"""
**How to read it.** Blue parts are trained, grey ones only read. Follow the arrows once around: one
answer goes in, one advantage per token comes out, and the loop closes with a gradient step. Four
large networks must be held in memory, and two of them are trained. Lesson 03 removes the critic.
The rest of this lesson is about the arrow at the bottom: the loss with clipping.
"""

# %% [markdown]
r"""
## Why there are two policies: old answers are used more than once

Sampling answers is the slow part, so one does it in bulk: the policy of this moment, call it
$\pi_{\text{old}}$, writes a few hundred answers. They are split into **mini-batches**, and each
mini-batch gives one gradient step. After the first step the policy $\pi_\theta$ (its weights are
called $\theta$) is no longer the one that wrote the answers. From then on we learn **off-policy**:
from texts of somebody else, who was us a moment ago.

**Importance sampling** corrects for that. Where the new policy would choose a token more often than
the old one did, count it more; where less often, count it less. The weight is the ratio of the two
probabilities. A coin shows that the books balance:
"""

# %%
import math

import numpy as np

old = np.array([0.5, 0.5])  # probabilities of heads and tails under the old policy
new = np.array([0.8, 0.2])  # under the new one
reward = np.array([1.0, 0.0])  # heads pays 1

weight = new / old
corrected = (old * weight * reward).sum()
wanted = (new * reward).sum()
print(f"weights {weight[0]:.1f} and {weight[1]:.1f}")
print(f"old samples, uncorrected: {(old * reward).sum():.2f}")
print(f"old samples, weighted:    {corrected:.2f}")
print(f"new policy itself:        {wanted:.2f}")
assert math.isclose(corrected, wanted)

# %% [markdown]
r"""
The weighted average is right *on average over many samples*. One single toss gives $1.6$ or $0$,
never $0.8$. Keep that in mind: a language model draws **one** token at each position, so there the
correction is a noisy one. It is also incomplete: the tokens before it were written by the old
policy, and the ratio of one token does not correct for that. While the two policies are close, that
error is small.
"""

# %% [markdown]
r"""
## One small batch for the whole course

Four answers to one prompt of the clock task (lesson 00): start at 6, stop at 7, moves of 3 or 4.
They have 3, 2, 1 and 4 tokens, one for each move; the token `end`, with which each of them closes,
is left out to keep the arithmetic short. The probabilities are invented, so that the numbers stay
round. You will meet this batch again under GRPO (lesson 03) and GSPO (lesson 05).
"""

# %%
from gspo_edu.one_batch import ONE_BATCH as batch

print(batch.table())

# %% [markdown]
r"""
The **importance ratio** of token $t$ is

$$ r_t(\theta) = \frac{\pi_\theta(y_t)}{\pi_{\text{old}}(y_t)}
   = \exp\bigl(\log \pi_\theta(y_t) - \log \pi_{\text{old}}(y_t)\bigr) $$

(arXiv 1707.06347, section 3; each probability is that of the token after the prompt and the tokens
before it). In words: how many times likelier the token has become. Above 1 it was pushed up, below
1 it was pushed down, exactly 1 means unchanged. The first token of the first answer: $0.3 / 0.2 =
1.5$. Programs subtract log-probs instead of dividing, which is the same and safer. (The arrays are
as wide as the longest answer. `mask` is true on tokens; padding holds junk, as in real batches.)
"""

# %%
ratio = np.exp(batch.logp - batch.logp_old)
assert np.allclose(ratio[batch.mask], (batch.prob / batch.prob_old)[batch.mask])

for row, answer in enumerate(batch.answers):
    numbers = "  ".join(f"{r:.2f}" for r in ratio[row, : len(answer)])
    print(f"answer {row + 1}: {numbers}")

# %% [markdown]
r"""
## The advantage

Our critic has one opinion about this prompt: the answer will get 0.4. (A real critic guesses anew
at every token, so that the tokens of one answer can have different advantages. Nothing in the
formulas below changes then.) The advantage of each answer, written $\hat A$ with a hat because it
is an estimate, is its reward minus 0.4:
"""

# %%
critic = 0.4
advantage = batch.rewards - critic
for row, (r, a) in enumerate(zip(batch.rewards, advantage, strict=True)):
    print(f"answer {row + 1}: reward {r:.1f}, advantage {a:+.1f}")

# %% [markdown]
r"""
Answers 1 and 3 were better than expected, so their tokens should become likelier. Answers 2 and 4
were worse, so their tokens should become less likely.

### A guess before every token

What changes when the critic guesses anew? Its guess rises when the answer goes well, so each token
brings a surprise of its own: the next guess (after the last token: the reward) minus the guess
before it. A token's advantage is its own surprise, plus $\lambda$ times the next one, plus
$\lambda^2$ times the one after that, and so on. This is **generalised advantage estimation** (GAE,
arXiv 1506.02438, eq. 16, here without its discount: $\gamma = 1$). With $\lambda = 0$ a token is
judged by its own surprise alone. With $\lambda = 1$ all guesses in between cancel, and what is left
is reward minus guess, as in the table above. The guesses here are invented, like the probabilities;
the first one of every answer is 0.4, since the critic has seen nothing but the prompt then:
"""

# %%
import torch

from gspo_edu.advantages import gae

guesses = [[0.4, 0.6, 0.9], [0.4, 0.2], [0.4], [0.4, 0.5, 0.3, 0.1]]
LAMBDA = 0.5
values, by_hand = np.zeros(batch.mask.shape), np.zeros(batch.mask.shape)
print("answer  guess  surprise      A")
for row, guess in enumerate(guesses):
    surprise = np.diff([*guess, batch.rewards[row]])
    later = 0.0
    for place in reversed(range(len(guess))):
        later = surprise[place] + LAMBDA * later
        by_hand[row, place] = later
    values[row, : len(guess)] = guess
    for place, own in enumerate(surprise):
        print(f"{row + 1:6d} {guess[place]:6.1f} {own:+9.1f} {by_hand[row, place]:+6.3f}")

given = (torch.tensor(batch.rewards), torch.tensor(values), torch.tensor(batch.mask))
assert np.allclose(gae(*given, lam=LAMBDA)[0], by_hand)
to_the_end = gae(*given, lam=1.0)[0].numpy()
assert np.allclose(to_the_end[:, 0], advantage)  # reward minus 0.4, as above

# %% [markdown]
r"""
In answer 1 every token brings good news, and each gets its share. In answer 4 the first token looks
like good news (+0.1), but the next ones spoil it, and $\lambda$ lets it answer for a part of that:
its advantage is negative. The rest of this lesson keeps to one guess per prompt.

To train with a real critic: `python course.py train --objective ppo --critic`. In its
`metrics.jsonl`, `explained_variance` says how much of the differences between rewards the critic
has foreseen (1: all, 0: nothing).
"""

# %% [markdown]
r"""
## The objective without a brake

Weight each advantage with its ratio and average over all tokens (arXiv 1707.06347, eq. 6):

$$ L^{\text{CPI}}(\theta) = \hat{\mathbb E}_t\bigl[\, r_t(\theta)\, \hat A_t \,\bigr] $$

We want this to be large. It has a flaw: if $\hat A_t > 0$ it grows with $r_t$ without end. The same
few answers, used step after step, would push a token from 0.2 to 0.9 on the strength of one lucky
reward. The ratio is trustworthy only near 1, and nothing keeps it there.

## The clip

PPO takes the smaller of two numbers (arXiv 1707.06347, eq. 7):

$$ L^{\text{CLIP}}(\theta) = \hat{\mathbb E}_t\Bigl[ \min\bigl( r_t \hat A_t,\;
   \operatorname{clip}(r_t, 1-\varepsilon, 1+\varepsilon)\, \hat A_t \bigr) \Bigr] $$

$\operatorname{clip}$ replaces what lies outside the range by the nearest bound. With
$\varepsilon = 0.2$ the range is $[0.8,\, 1.2]$: one minus and one plus $\varepsilon$, not
$[0.2,\, 1.2]$. Every token has its own ratio and is clipped, or not, on its own: **token-level
clipping**.

**By hand**, for the first token ($r = 1.5$, $\hat A = 0.6$): unclipped $1.5 \cdot 0.6 = 0.90$,
clipped $1.2 \cdot 0.6 = 0.72$. The smaller is 0.72. It is called the **surrogate**, because it
stands in for the new policy's reward, which cannot be measured without sampling anew. Now all ten
tokens, averaged over tokens as PPO's paper averages over time steps (lesson 03 comes back to that
choice):
"""

# %%
EPSILON = 0.2
low, high = 1 - EPSILON, 1 + EPSILON
A = np.broadcast_to(advantage[:, None], ratio.shape)

unclipped = ratio * A
clipped = np.clip(ratio, low, high) * A
surrogate = np.minimum(unclipped, clipped)

print("answer  ratio     A    r*A  clip*A    min")
for row, place in np.argwhere(batch.mask):
    cells = [x[row, place] for x in (ratio, A, unclipped, clipped, surrogate)]
    print("{:6d} {:6.2f} {:+5.1f} {:+6.3f} {:+7.3f} {:+6.3f}".format(row + 1, *cells))

objective = surrogate[batch.mask].mean()
print(f"mean over {batch.mask.sum()} tokens: {objective:+.4f}")
assert math.isclose(objective, -0.106, abs_tol=1e-9)
assert math.isclose(surrogate[0, 0], 0.72, abs_tol=1e-9)

# %% [markdown]
r"""
Libraries minimise, so the **loss** is the objective with its sign turned. The function of this
course agrees with our table:
"""

# %%
from gspo_edu.objectives import ppo

t = batch.tensors()
result = ppo(t.logp, t.logp_old, torch.tensor(advantage), t.mask)  # the range 0.2 is its default
print(f"loss of gspo_edu.objectives.ppo: {result.loss.item():+.4f}")
assert math.isclose(result.loss.item(), -objective, abs_tol=1e-12)

# %% [markdown]
r"""
## Outside the range, or without gradient?

Five of the ten ratios lie outside $[0.8, 1.2]$: 1.5 and 0.5 in the first answer, 0.5 and 2.0 in the
second, 1.25 in the third. (The 1.2 of the fourth lies on the bound, which counts as inside.)

Before you go on, predict. Type your choice into the next cell, then run the cells after it, also
the folded one that looks like a thin bar: it compares your prediction with what came out.
"""

# %% tags=["predict"]
from gspo_edu.predictions import predict

my_guess = None  # "a", "b" or "c"
predict(
    "02 tokens without gradient",
    "Of the ten tokens, how many get a gradient of exactly zero?",
    {
        "a": "five: all that lie outside the range",
        "b": "three",
        "c": "none: clipping makes a gradient smaller, not zero",
    },
    my_guess,
)

# %% [markdown]
r"""
Automatic differentiation (autograd) knows. We ask for the slope of the objective with respect to
each token's log-prob:
"""

# %%
logp = t.logp.clone().requires_grad_()
loss = ppo(logp, t.logp_old, torch.tensor(advantage), t.mask).loss
loss.backward()
slope = (0.0 - logp.grad * t.mask.sum()).numpy()  # of the objective, without the mean's 1/10

outside = (ratio < low) | (ratio > high)
print("answer  ratio     A  outside  slope")
for row, place in np.argwhere(batch.mask):
    r, a, s = ratio[row, place], A[row, place], slope[row, place]
    print(f"{row + 1:6d} {r:6.2f} {a:+5.1f}  {'yes' if outside[row, place] else '-':>7} {s:+6.2f}")

without = int((slope[batch.mask] == 0).sum())
print(f"outside: {outside[batch.mask].sum()} tokens; slope exactly zero: {without} tokens")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
from gspo_edu.predictions import reconcile

reconcile(
    "02 tokens without gradient",
    {5: "a", 3: "b", 0: "c"}[without],
    f"{without} tokens have slope zero: those that have already gone where they should.",
    {
        "a": f"{outside[batch.mask].sum() - without} tokens outside the range keep their gradient, "
        "because min() chose the unclipped branch.",
        "c": "where min() chose the bound, the ratio no longer appears in the objective: slope 0.",
    },
)

# %% [markdown]
r"""
The rule has a sign in it. Clipping is a brake for tokens that **have already been moved far enough
in the direction in which they should go**:

- $\hat A > 0$ (should rise) and $r > 1+\varepsilon$ (has risen): no more gradient.
- $\hat A < 0$ (should fall) and $r < 1-\varepsilon$ (has fallen): no more gradient.
- $\hat A > 0$ but the token has *fallen* below $1-\varepsilon$, or $\hat A < 0$ but it has *risen*
  above $1+\varepsilon$: it went the wrong way, and the gradient that brings it back is complete.

So of the four corners outside the range, two are clipped. The truth table, with the slope from
autograd and the signed rule next to it:
"""


# %%
def slope_of_surrogate(r: float, a: float) -> float:
    """d min(r A, clip(r) A) / d r at one point, by autograd."""
    x = torch.tensor(r, dtype=torch.float64, requires_grad=True)
    torch.minimum(x * a, x.clamp(low, high) * a).backward()
    return float(x.grad)


print("  A     r  outside  slope  clipped by the signed rule")
for a in (+1.0, -1.0):
    for r in (0.5, 1.0, 1.5):
        by_rule = (a > 0 and r > high) or (a < 0 and r < low)
        s = slope_of_surrogate(r, a)
        assert (s == 0) == by_rule
        assert s == (0 if by_rule else a)
        beyond = "yes" if r < low or r > high else "-"
        print(f"{a:+3.0f} {r:5.1f} {beyond:>8} {s:+6.0f}  {'yes' if by_rule else '-'}")

# %% [markdown]
r"""
That is why a program must not report one thing under the other's name. Here `clip_fraction` counts
slope zero and `outside_fraction` counts the range:
"""

# %%
print(f"clip fraction    {result.metrics['clip_fraction_token_weighted']:.1f}")
print(f"outside fraction {result.metrics['outside_fraction_token_weighted']:.1f}")
assert result.metrics["clip_fraction_token_weighted"].item() == without / 10
assert result.metrics["outside_fraction_token_weighted"].item() == outside[batch.mask].sum() / 10

# %% tags=["nbval-ignore-output"]
from gspo_edu.plots import BLACK, GREEN, GREY, new_figure

figure, axes = new_figure(2, width=3.9, height=3.2)
grid = np.linspace(0.3, 2.15, 400)
for ax, a, corner in ((axes[0], 0.6, "upper left"), (axes[1], -0.4, "upper right")):
    value = np.minimum(grid * a, np.clip(grid, low, high) * a)
    flat = (grid > high) if a > 0 else (grid < low)
    ax.axvspan(low, high, color=GREEN, alpha=0.15, lw=0)
    ax.plot(grid, grid * a, "--", color=GREY, lw=1, label="r·A")
    ax.plot(grid, np.where(flat, np.nan, value), color=BLACK, lw=2.5, label="PPO, gradient flows")
    ax.plot(grid, np.where(flat, value, np.nan), ":", color=BLACK, lw=3, label="PPO, gradient zero")
    for row, place in np.argwhere(batch.mask):
        if math.isclose(A[row, place], a):
            fill = "white" if slope[row, place] == 0 else BLACK
            ax.plot(ratio[row, place], surrogate[row, place], "o", ms=7, mfc=fill, mec=BLACK)
    ax.set_title(f"A {'>' if a > 0 else '<'} 0", loc="left", fontsize=10)
    ax.set(xlabel="importance ratio r (green: 0.8 to 1.2)", ylabel="objective")
    ax.legend(fontsize=8, frameon=False, loc=corner)
show(
    figure,
    "PPO's objective over the ratio. For a positive advantage it rises and is flat above 1.2; for "
    "a negative one it is flat below 0.8 and falls without end above 1.2. The tokens lie on "
    "it; those on the flat parts have no gradient.",
)

# %% [markdown]
r"""
**How to read it.** Left: tokens that should rise. The curve climbs and goes flat at 1.2; climbing
further earns nothing. Below 0.8 it is *not* flat. Right: tokens that should fall. Flat below 0.8.
Above 1.2 the curve keeps falling steeply, without end: there is no limit on the punishment for a
bad token that has become likelier. Hollow points are tokens of our batch without gradient. (The
token of answer 3 has another advantage, 0.1, and is not drawn.)
"""

# %% [markdown]
r"""
## Drag it

Move the point or use the arrow keys. Try $A = -1$ with a ratio of 0.6, then of 1.6. Without a
running notebook you see a picture.
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.widgets import RatioClip

clip = RatioClip("ppo", ratio=1.5, advantage=1.0)
clip

# %% tags=["nbval-ignore-output"]
print(clip.words())  # run this again after dragging
assert clip.clipped == (clip.slope == 0)

# %% [markdown]
r"""
## The trap: "for a negative advantage, take the maximum"

It sounds plausible: if the smaller one is right for good tokens, the larger one must be right for
bad ones. Compare the slopes:
"""


# %%
def slope_with_max(r: float, a: float) -> float:
    """The same slope with the fault in it: max for A < 0."""
    x = torch.tensor(r, dtype=torch.float64, requires_grad=True)
    choose = torch.minimum if a > 0 else torch.maximum
    choose(x * a, x.clamp(low, high) * a).backward()
    return float(x.grad)


for r, story in ((0.5, "a bad token that has fallen"), (2.0, "a bad token that has risen")):
    print(f"{story}: min {slope_of_surrogate(r, -1.0):+.0f}, max {slope_with_max(r, -1.0):+.0f}")
assert (slope_of_surrogate(0.5, -1.0), slope_with_max(0.5, -1.0)) == (0, -1)
assert (slope_of_surrogate(2.0, -1.0), slope_with_max(2.0, -1.0)) == (-1, 0)

# %% [markdown]
r"""
With the maximum the brake sits on the wrong side: a bad token that has fallen is pushed down for
ever, and a bad token that has become *likelier* is left alone. The minimum is right for both signs.
It makes the objective a careful one: of two estimates always the less favourable.

Two other spellings are right, and you will meet them in code. One writes the bound by the sign of
$\hat A$: $\min(r \hat A,\; g)$ with $g = (1+\varepsilon)\hat A$ for $\hat A \ge 0$ and
$(1-\varepsilon)\hat A$ otherwise. The other works on the loss, where every sign is turned and the
minimum becomes a maximum: $\max(-r \hat A,\; -\operatorname{clip}(r)\hat A)$. That maximum is the
origin of the trap.
"""

# %%
by_sign = np.minimum(unclipped, np.where(A >= 0, high, low) * A)
by_loss = -np.maximum(-unclipped, -clipped)
assert np.allclose(by_sign, surrogate)
assert np.allclose(by_loss, surrogate)
largest = max(np.abs(by_sign - surrogate).max(), np.abs(by_loss - surrogate).max())
print(f"largest difference between the three spellings: {largest:.4f}")

# %% [markdown]
r"""
## How hard is a token pushed?

The network does not set $r$, it sets log-probs. Because $r = \exp(\log\pi_\theta -
\log\pi_{\text{old}})$, the slope with respect to the log-prob is $r\,\hat A$ where the gradient
flows.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "02 size of the push",
    "The token of answer 2 with r = 2.0 has A = -0.4. How hard is its log-prob pushed, compared "
    "with a token that has the same A and r = 1?",
    {
        "a": "not at all: 2.0 is outside the range",
        "b": "1.2 times as hard: clipping caps the ratio at 1.2",
        "c": "twice as hard",
    },
    my_guess,
)

# %%
risen, unmoved = slope[1, 1], slope[3, 2]
times = risen / unmoved
print(f"slope at r = 2.0: {risen:+.2f};  at r = 1.0: {unmoved:+.2f};  {times:.1f} times as hard")
assert math.isclose(risen, 2.0 * -0.4, abs_tol=1e-9)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "02 size of the push",
    "c" if math.isclose(times, 2.0, abs_tol=1e-9) else "b",
    f"the push is r·A, {times:.1f} times that of an unmoved token. Clipping puts no cap on it.",
    {
        "a": f"it went the wrong way, so min() keeps the unclipped branch: slope {risen:+.2f}.",
        "b": f"a cap at 1.2 would give {high * unmoved:+.2f}; the slope is {risen:+.2f}. The clip "
        "switches gradients off, it never shortens one.",
    },
)

# %% [markdown]
r"""
"Clipping caps the gradient" is thus doubly wrong: where it acts the gradient is zero, and where it
does not act the gradient grows with $r$. (A variant, *dual clip*, adds a floor for exactly this
corner: arXiv 1912.09729.)

## Is clipping a wall?

An experiment. A policy over ten digits gives one digit the probability 0.2. That digit was sampled
and has $\hat A = +1$. We take forty gradient steps on this one sample, with and without clipping,
and watch the ratio.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "02 after forty steps",
    "With clipping at 1.2, where is the ratio after forty steps?",
    {
        "a": "exactly at 1.2",
        "b": "somewhat above 1.2, and it stays there",
        "c": "as high as without clipping, only later",
    },
    my_guess,
)


# %%
from itertools import pairwise


def ratios_over_steps(clip_high: float, steps: int = 40, lr: float = 0.1) -> list[float]:
    """The sampled digit's ratio after each step of plain gradient ascent."""
    start = torch.full((10,), 0.8 / 9, dtype=torch.float64)
    start[9] = 0.2
    logits = start.log().requires_grad_()
    logp_old, one = start.log()[9].reshape(1, 1), torch.ones(1, 1, dtype=torch.float64)
    path = [1.0]
    for _ in range(steps):
        logp = logits.log_softmax(dim=0)[9].reshape(1, 1)
        ppo(logp, logp_old, one, one, clip_high=clip_high).loss.backward()
        with torch.no_grad():
            logits -= lr * logits.grad
            logits.grad.zero_()
            path.append(float(logits.softmax(dim=0)[9] / 0.2))
    return path


with_clip, without_clip = ratios_over_steps(0.2), ratios_over_steps(1e6)
stopped = sum(after != before for before, after in pairwise(with_clip))
print(f"with clipping:    {with_clip[-1]:.4f}, unchanged after step {stopped}")
print(f"without clipping: {without_clip[-1]:.4f} (5 would be probability 1)")
assert with_clip[stopped] == with_clip[-1] > high
assert without_clip[-1] > 2 * with_clip[-1]

# %% tags=["nbval-ignore-output"]
from gspo_edu.plots import objective_style

figure, (ax,) = new_figure(width=6, height=3)
ax.axhspan(low, high, color=GREEN, alpha=0.15, lw=0)
ax.plot(without_clip, "--", color=GREY, label="without clipping")
ax.plot(with_clip, **objective_style("ppo") | {"label": "PPO, range 0.2", "lw": 2.5})
ax.set(xlabel="gradient step on the same sample", ylabel="importance ratio (green: 0.8 to 1.2)")
ax.legend(fontsize=8, frameon=False)
show(
    figure,
    "Ratio over forty steps on one sample. Without clipping it climbs towards 5. With clipping it "
    "steps a little beyond 1.2 and stays there.",
)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
end = with_clip[-1]
reconcile(
    "02 after forty steps",
    "a" if math.isclose(end, high, abs_tol=1e-6) else "b" if end < 2 else "c",
    f"it ends at {end:.4f}: the step that crossed 1.2 is not taken back, and none follows.",
    {
        "a": f"the ratio is never put back to 1.2. Clipping acts on the objective, and only after "
        f"the step to {end:.4f} has been made.",
        "c": f"beyond the range the gradient is exactly zero, not small: step {stopped} was the "
        "last that moved anything.",
    },
)

# %% [markdown]
r"""
Clipping is no wall. It stops pushing, and it does so one step late. A larger step overshoots more,
an optimiser with momentum rolls on, and a token without any gradient of its own still moves when
other tokens change the weights that they share. That is why ratios outside the range are a normal
sight.

## The first step is not clipped at all

Right after sampling, $\pi_\theta$ is $\pi_{\text{old}}$: every ratio is 1.
"""

# %%
logp = t.logp_old.clone().requires_grad_()
first = ppo(logp, t.logp_old, torch.tensor(advantage), t.mask)
first.loss.backward()
mean_advantage = A[batch.mask].mean()
print(f"clip fraction {first.metrics['clip_fraction_token_weighted']:.2f}")
print(f"objective {-first.loss.item():+.4f} = mean advantage {mean_advantage:+.4f}")
print(f"tokens with gradient: {(logp.grad[t.mask] != 0).sum()} of {t.mask.sum()}")
assert math.isclose(-first.loss.item(), mean_advantage, abs_tol=1e-12)
assert first.metrics["clip_fraction_token_weighted"] == 0

# %% [markdown]
r"""
A clip fraction of 0 in the first mini-batch of every rollout is therefore no bug. If you take only
one step per rollout, it is 0 for ever, and clipping has no effect whatever its range.

This holds when $\log \pi_{\text{old}}$ comes from the same engine that trains, as here. Large
setups sample with a separate **inference engine**, a program made for fast generation. Its
log-probs differ a little from those of the training code for the very same weights; use them as
$\log \pi_{\text{old}}$, and the first ratios are not exactly 1.

## What to take along

1. $r_t = \pi_\theta(y_t) / \pi_{\text{old}}(y_t)$ corrects for answers that an older policy wrote.
2. $\min(r\hat A, \operatorname{clip}(r)\hat A)$ stops the gradient where the token has already gone
   far enough in the right direction, and only there: two of four corners.
3. Clipping does not cap a gradient, is not a wall, and does not happen in the first step (with
   log-probs of $\pi_{\text{old}}$ from the engine that trains).

Your predictions:
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.predictions import summary_picture

summary_picture("02")

# %% [markdown]
r"""
## Three questions to compute

Pencil or code, as you like. Four digits are enough. The folded cell here holds what your answers
are compared with: run it, but leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
from gspo_edu.questions import check_answer

r, a = 0.7, -2.0
question_1 = (
    min(r * a, np.clip(r, low, high) * a),
    [
        (r * a, "That is the larger of the two (or a range of [0.2, 1.2]): take the smaller."),
        (-low * a, "That is the loss; the objective has the other sign."),
        (EPSILON * a, "The lower bound is 1 - 0.2 = 0.8, not 0.2."),
    ],
)
r, a = 1.5, -2.0
question_2 = (
    r * slope_of_surrogate(r, a),
    [
        (0.0, "Outside the range, but on its wrong side: the gradient flows."),
        (high * a, "That caps the ratio at 1.2; clipping never shortens a gradient."),
        (a, "That is the slope with respect to r; the log-prob's is r times that."),
        (-r * a, "That is the slope of the loss."),
    ],
)
question_3 = (
    1 / high,
    [
        (low, "0.8 is the lower bound of the ratio. Ask for p with 1.2 p = 1."),
        (1 - 1 / high, "That is what is missing to 1. The bound itself is 1 over 1.2."),
        (high, "That is the ratio itself, not a probability."),
    ],
)

# %% [markdown]
r"""
**1.** A token has $r = 0.7$ and $\hat A = -2$; $\varepsilon = 0.2$. What is its contribution to the
objective?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Another token has $r = 1.5$ and $\hat A = -2$. What is the slope of the objective with
respect to its **log-prob**?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** A token that the old policy was almost sure of cannot reach $r = 1.2$, since no probability
is above 1. From which old probability on can its upper bound of 1.2 never be crossed?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
r, a = 0.7, -2.0
print(f"1. min({r} x {a:.0f}, {low} x {a:.0f}) = min({r * a:.1f}, {low * a:.1f}) = {low * a:.1f}")
r = 1.5
print(f"2. A < 0 and r > 1.2: not clipped. Slope r x A = {r} x {a:.0f} = {r * a:.1f}")
print(f"3. 1 / p = 1.2 gives p = {1 / high:.4f}. Likelier tokens are never clipped from above.")
assert math.isclose(min(0.7 * a, 0.8 * a), low * a)
assert math.isclose(1.5 * slope_of_surrogate(1.5, a), r * a)

# %% [markdown]
r"""
## New words
"""

# %%
from IPython.display import display

from gspo_edu.glossary import table

display(table(lesson=2))

# %% [markdown]
r"""
## What comes next

The critic is as large as the policy, must be trained with it, and is wrong at first. **Lesson 03**
throws it out: GRPO asks the other answers of the group instead. The ratio and the clip stay as they
are here.

**Sources.** Ratio and clip: section 3 and equations 6 and 7 of the first. PPO for language models,
with all four networks: section 4.1.1 and figure 4 of the second. Dual clip: equation 5 of the
third. Generalised advantage estimation: equation 16 of the fourth.
"""

# %%
from gspo_edu.bibliography import source

for key in ("ppo", "grpo", "dual_clip", "gae"):
    print(source(key))
