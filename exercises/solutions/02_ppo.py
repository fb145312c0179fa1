# %% [markdown]
r"""
# Exercise 02 · PPO: ratio and clipping

{{card}}

**You need** lesson 02. A cell with `# YOUR CODE HERE` is yours. The cell below it says at once what
is right, and if it knows your mistake, which one it is. You may try as often as you like; nothing
is sent anywhere. The last cell adds up the points. Run the cells from the top, after a restart too:
each needs those before it.

The same small batch will come three times: here PPO is worked in full, in exercise 03 GRPO has
blanks, and in exercise 05 the page is empty.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import ppo
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.predictions import predict, reconcile

checks.begin("02")

# %% [markdown]
r"""
## 1 · By hand

**1a.** {{ask 02 ratio}}

**1b.** {{ask 02 bad and likelier}}

**1c.** {{ask 02 corners}}

<details><summary>First hint</summary>

For 1b write down both terms before you choose. Minus one and a half is less than minus one.
</details>
<details><summary>Second hint</summary>

The clipped term of 1b has r = 1.2 in it. Then take the smaller of the two numbers.
</details>
<details><summary>Third hint</summary>

For 1c: the clipped term does not depend on the policy. Count where the minimum takes it.
</details>
"""

# %% role="solution"
my_ratio = None
my_term = None
my_corners = None
### BEGIN SOLUTION
my_ratio = 0.3 / 0.25
my_term = min(1.5 * -1, 1.2 * -1)
my_corners = 2  # A > 0 above the range, A < 0 below it
### END SOLUTION

# %% check="02 ratio" answer="my_ratio"

# %% check="02 bad and likelier" answer="my_term"

# %% check="02 corners" answer="my_corners"

# %% [markdown]
r"""
## 2 · PPO, worked in full

Four answers to one prompt, of 3, 2, 1 and 4 tokens, with the group's advantages in place of a
critic's. Follow the fourth answer, token by token, and then the whole loss.
"""

# %%
t = ONE_BATCH.tensors()
A = group_advantages(t.rewards, t.group)
print(ONE_BATCH.table())

# %%
print("the fourth answer: A =", round(A[3].item(), 4))
print("token   r       r·A       clip(r)·A   the smaller")
for place, token in enumerate(ONE_BATCH.answers[3]):
    r, a = ONE_BATCH.prob[3, place] / ONE_BATCH.prob_old[3, place], A[3].item()
    inside = max(0.8, min(r, 1.2))
    print(f"{token:>5} {r:7.3f} {r * a:9.4f} {inside * a:11.4f} {min(r * a, inside * a):13.4f}")

# %% [markdown]
r"""
The mean of these minima over all ten tokens of the batch, with a minus, is PPO's loss. In a plain
loop, and from the package:
"""

# %%
total, count = 0.0, 0
for row in range(4):
    for place in range(int(ONE_BATCH.lengths[row])):
        r = ONE_BATCH.prob[row, place] / ONE_BATCH.prob_old[row, place]
        r = round(r, 10)
        inside = max(0.8, min(r, 1.2))
        total += min(r * A[row].item(), inside * A[row].item())
        count += 1
by_hand = -total / count
by_package = ppo(t.logp, t.logp_old, A, t.mask).loss.item()
print(f"loop {by_hand:.6f}, package {by_package:.6f}")
assert abs(by_hand - by_package) < 1e-9

# %% [markdown]
r"""
## 3 · Write the token ratio

Now for a whole batch at once. `logp`, `logp_old` and `mask` have the shape (answers, places); give
back the ratios in that shape, and 0 in the padding. `mask` is true on an answer's tokens, which
need not stand side by side. PyTorch, NumPy (import it yourself) or a loop: as you like.

<details><summary>First hint</summary>

You are given log-probs, not probabilities. What becomes of a quotient under a log?
</details>
<details><summary>Second hint</summary>

$r_t = \exp(\log \pi_\theta - \log \pi_\text{old})$
</details>
<details><summary>Third hint</summary>

exp of the difference, then times the mask: exp(0) is 1, so the mask comes last.
</details>
"""


# %% role="solution"
def my_token_ratio(logp, logp_old, mask):
    """One ratio per token, 0 in the padding."""
    ### BEGIN SOLUTION
    return (logp - logp_old).exp() * mask
    ### END SOLUTION


# %% check="token_ratio" answer="my_token_ratio"

# %% [markdown]
r"""
## 4 · Write the clipped term

`ratio` and `advantage` are tensors of N numbers. Give back min(r·A, clip(r, 1 − clip_low,
1 + clip_high)·A) for each of them.

<details><summary>First hint</summary>

Two lists, compared entry by entry. The sign of A needs no case distinction.
</details>
<details><summary>Second hint</summary>

First limit the ratios; multiply both versions by A; then compare.
</details>
<details><summary>Third hint</summary>

In PyTorch `clamp` limits and `minimum` compares; NumPy has `clip` and `minimum`.
</details>
"""


# %% role="solution"
def my_clipped_term(ratio, advantage, clip_low, clip_high):
    """The term of PPO's objective for each token."""
    ### BEGIN SOLUTION
    limited = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(ratio * advantage, limited * advantage)
    ### END SOLUTION


# %% check="clipped_term" answer="my_clipped_term"

# %% [markdown]
r"""
## 5 · Predict, then run

ε = 0.2 stands for the batch of section 2. Now make the range twice as wide, ε = 0.4. Does the loss
get smaller?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x02 wider range",
    "What can a wider range do to PPO's loss, with everything else the same?",
    {
        "a": "it can only rise",
        "b": "it can only fall, or stay",
        "c": "both can happen",
    },
    my_guess,
)

# %% tags=["reconcile"]
print(" ε      loss")
losses = []
for clip in (0.05, 0.1, 0.2, 0.4, 0.8):
    wide = {"clip_low": clip, "clip_high": clip}
    losses.append(ppo(t.logp, t.logp_old, A, t.mask, **wide).loss.item())
    print(f"{clip:.2f}  {losses[-1]:+.5f}")
assert losses == sorted(losses, reverse=True)
reconcile(
    "x02 wider range",
    "b",
    "the clipped term is the smaller one where it counts, so a wider range raises the objective or "
    "leaves it. Whether that makes for better learning is another question.",
    {
        "a": "the clip is a lower bound. Loosen it and the objective rises, so the loss falls.",
        "c": "min() only ever lowers the objective; a wider range lowers it less.",
    },
)

# %% [markdown]
r"""
## 6 · The clip fraction

Here are the ten tokens of the batch, ε = 0.2. A ratio of exactly 1.2 counts as inside.
"""

# %%
quotients = ONE_BATCH.prob / ONE_BATCH.prob_old
for row, length in enumerate(ONE_BATCH.lengths):
    ratios = "  ".join(f"{r:.3f}" for r in quotients[row, :length])
    print(f"answer {row + 1}: A = {A[row]:+.3f}, ratios {ratios}")

# %% [markdown]
r"""
**6a.** {{ask 02 clipped share}}

**6b.** Write the function. `ratio` and `mask` are (answers, places), `advantages` has one number
per answer. The result is one number: the share of all tokens that have lost their gradient.

<details><summary>First hint</summary>

Outside is not enough. Which two of the four corners lose the gradient?
</details>
<details><summary>Second hint</summary>

A token counts if A > 0 and its ratio is above the range, or if A < 0 and it is below.
</details>
<details><summary>Third hint</summary>

Give `advantages` a second axis, so that it fits the ratios; count under the mask only; divide by
the number of tokens, not of places.
</details>
"""


# %% role="solution"
my_share = None
### BEGIN SOLUTION
my_share = 3 / 10
### END SOLUTION


def my_clip_fraction(ratio, advantages, mask, clip_low, clip_high):
    """Share of the tokens whose gradient is exactly zero."""
    ### BEGIN SOLUTION
    A = advantages[:, None]
    clipped = ((A > 0) & (ratio > 1 + clip_high)) | ((A < 0) & (ratio < 1 - clip_low))
    return (clipped & mask).sum() / mask.sum()
    ### END SOLUTION


# %% check="02 clipped share" answer="my_share"

# %% check="clip_fraction" answer="my_clip_fraction"

# %% [markdown]
r"""
## 7 · The critic's advantage (by hand)

{{ask 02 advantage}}

<details><summary>First hint</summary>

Begin at the end. Each error δ is reward plus next value minus this value; after the last token the
value is 0.
</details>
<details><summary>Second hint</summary>

The three errors are 0.2, 0.1 and 0.2.
</details>
<details><summary>Third hint</summary>

An error n steps ahead counts λⁿ.
</details>
"""

# %% role="solution"
my_advantage = None
### BEGIN SOLUTION
my_advantage = 0.2 + 0.95 * 0.1 + 0.95**2 * 0.2
### END SOLUTION

# %% check="02 advantage" answer="my_advantage"

# %% [markdown]
r"""
## 8 · Find the bug

This loop uses one batch for several updates of a policy that knows no context: `logits` hold a
number per word, `answers` the words of each answer. The steps grow from update to update, although
the rate is constant. Mend it (one line is missing).
"""


# %% tags=["faulty"]
def faulty_training(logits, answers, advantages, updates, rate, clip_low, clip_high):
    """The logits after some updates with one batch."""
    policy = logits.detach().clone().requires_grad_()
    logp_old = policy.detach().log_softmax(dim=0)[answers]
    mask = torch.ones_like(answers, dtype=torch.bool)
    clip = {"clip_low": clip_low, "clip_high": clip_high}
    for _ in range(updates):
        logp = policy.log_softmax(dim=0)[answers]
        ppo(logp, logp_old, advantages, mask, **clip).loss.backward()
        with torch.no_grad():
            policy -= rate * policy.grad
    return policy.detach()


# %% [markdown]
r"""
<details><summary>First hint</summary>

Print `policy.grad` in each update. Does `backward()` set it, or add to it?
</details>
<details><summary>Second hint</summary>

What an optimiser does with `zero_grad()` nobody does here.
</details>
<details><summary>Third hint</summary>

Set `policy.grad` to None at the beginning of each round.
</details>
"""


# %% role="solution"
def my_training(logits, answers, advantages, updates, rate, clip_low, clip_high):
    """The mended loop. Copy the faulty one, then change it."""
    ### BEGIN SOLUTION
    policy = logits.detach().clone().requires_grad_()
    logp_old = policy.detach().log_softmax(dim=0)[answers]
    mask = torch.ones_like(answers, dtype=torch.bool)
    clip = {"clip_low": clip_low, "clip_high": clip_high}
    for _ in range(updates):
        policy.grad = None  # backward() adds to what is there
        logp = policy.log_softmax(dim=0)[answers]
        ppo(logp, logp_old, advantages, mask, **clip).loss.backward()
        with torch.no_grad():
            policy -= rate * policy.grad
    return policy.detach()
    ### END SOLUTION


# %% check="ppo_updates" answer="my_training"

# %% [markdown]
r"""
## 9 · In your own words

"PPO's clip keeps every ratio between 0.8 and 1.2, so the policy cannot move too far." In about six
sentences: what is wrong with this, what does the clip do instead, and what follows for a ratio that
has left the range the wrong way?

| points | the answer … |
|---|---|
| 1 | says that the clip takes away a gradient and holds no ratio back |
| 1 | says how a ratio can leave the range all the same, for example through other tokens |
| 1 | says that on the wrong side the full gradient remains, and why that is good |
"""

# %% [markdown] open="02 open question"
r"""
### BEGIN SOLUTION
A model answer. The clip limits no ratio. Where min() takes the clipped term, that token's gradient
is exactly zero, and that is all. A ratio can still leave the range: a single step can carry it
across, momentum goes on pushing, and the gradients of other tokens move the same weights. Once
outside on the side where the clip acts (A > 0 above, A < 0 below), nothing pushes it further for
this token, but nothing pulls it back either. On the other side (A > 0 below, A < 0 above) min()
takes the plain term: the token has moved the wrong way and keeps its full gradient, which brings it
back. The clip is a brake on the incentive, not a wall.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
