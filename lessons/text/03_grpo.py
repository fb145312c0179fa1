# %% [markdown]
r"""
# 03 · GRPO: the group replaces the critic

**What you will be able to do:** turn the rewards of a group into advantages by hand, write GRPO's
objective for a small batch, and say when a group teaches nothing, and why a loss of 0 can.

**Time:** 35 minutes. **You need:** lesson 02 (ratio, clip, the batch of four answers).

GRPO stands for *group relative policy optimization*. It comes from the DeepSeekMath paper (Shao et
al. 2024, arXiv 2402.03300) and trained DeepSeek-R1 (arXiv 2501.12948).

**First, one from lesson 02.** A token has $r = 1.3$ and $\hat A = -1$; the range is $[0.8, 1.2]$.
What is the slope of the objective with respect to its log-prob? (The folded cell holds what your
answer is compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
from gspo_edu.questions import check_answer

r, a = 1.3, -1.0
warm_up = (
    r * a,  # A < 0 and above the range: not clipped, so r times A
    [
        (0.0, "For A < 0 only ratios below 0.8 are clipped. This token went the wrong way."),
        (1.2 * a, "Clipping does not cap a gradient; it switches it off or leaves it alone."),
        (a, "That is the slope with respect to r. With respect to the log-prob it is r·A."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up)

# %% [markdown]
r"""
## What is wrong with a critic?

The critic of lesson 02 guesses the reward. It is a network of about the policy's size: it needs
memory, it needs training of its own, and as long as it guesses badly, the advantages are bad. For
language models the reward usually comes once, at the end of the answer, so a guess for every token
is hard to learn.

GRPO's idea: do not guess how good an average answer to this prompt is. **Sample several answers and
look.** The mean reward of the group is the yardstick. An answer better than its siblings is good
news, a worse one bad news.
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.diagrams import parts_figure
from gspo_edu.plots import show

show(
    parts_figure("ppo", "grpo"),
    "Above PPO, below GRPO. In PPO one answer goes to a reward model, a reference policy and a "
    "trained critic, which give an advantage per token. In GRPO a group of G answers goes to a "
    "verifier; mean and std of the G rewards give one advantage per answer. There is no critic, "
    "and the KL to the reference policy enters the loss.",
)

# %% [markdown]
r"""
**How to read it.** Compare the two pictures from left to right. One answer becomes a group of $G$.
The critic, the second blue box, is gone; two numbers computed from the rewards stand in its place.
The advantage belongs to a whole answer, so all its tokens share it. And the KL to the reference
policy moves from the reward into the loss. What has *not* changed is the ratio of each token and
the clip.

## The advantage of an answer

$$ \hat A_i = \frac{R_i - \operatorname{mean}(R_1, \dots, R_G)}
                    {\operatorname{std}(R_1, \dots, R_G)} $$

(arXiv 2402.03300, section 4.1.2; the papers write a small $r_i$ for the reward, which here is the
ratio.) In words: how far is this answer from the group's mean, measured in the group's own spread?
The std takes the mean of the squared deviations, so it divides by $n$ (this course's choice; more
below).

**By hand**, for our batch with rewards 1, 0, 0.5 and 0:
"""

# %%
import math

import numpy as np

from gspo_edu.one_batch import ONE_BATCH as batch

R = batch.rewards
G = len(R)
mean = R.sum() / G
variance = ((R - mean) ** 2).sum() / G  # n, this course's choice; more on n - 1 below
std = math.sqrt(variance)
print(f"mean     (1 + 0 + 0.5 + 0) / 4 = {mean:.4f}")
print(f"variance {variance:.6f}, std {std:.6f}")
print(f"advantage of answer 1: (1 - {mean:.4f}) / {std:.4f} = {(R[0] - mean) / std:+.4f}")
assert math.isclose(mean, 0.375)
assert math.isclose(std, R.std())

# %% [markdown]
r"""
### Your turn: blank 1

Fill in the advantages of all four answers: one line with `R`, `mean` and `std`. If you would rather
read on, leave `None`; everything below works without it.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
import torch

from gspo_edu.advantages import group_advantages

t = batch.tensors()
blank_1 = (
    group_advantages(t.rewards, t.group),
    [
        (R - mean, "This is only centred. Divide by the group's std as well."),
        ((R - mean) / R.std(ddof=1), "This std has n - 1 in it; this course divides by n."),
        ((R - mean) / variance, "This is divided by the variance; take its square root."),
        (R / std, "The group's mean is missing: every answer would be good news."),
    ],
)

# %% tags=["question"]
my_advantages = None  # four numbers

check_answer(my_advantages, *blank_1)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
my_solution = (R - mean) / std
print("my_advantages = (R - mean) / std")
print("  ".join(f"{x:+.4f}" for x in my_solution))
assert np.allclose(my_solution, group_advantages(t.rewards, t.group).numpy())

# %% [markdown]
r"""
From here on we use the function of the course. Two things hold whenever the rewards of a group
differ, and are worth a check where you see printed advantages: they sum to 0, and their squares
average to 1.
"""

# %%
A = group_advantages(t.rewards, t.group).numpy()
for row in range(G):
    print(f"answer {row + 1}: reward {R[row]:.1f}, advantage {A[row]:+.4f}")
print(f"sum {abs(A.sum()):.4f}, mean square {(A**2).mean():.4f}")
assert math.isclose(A.sum(), 0, abs_tol=1e-9)
assert math.isclose((A**2).mean(), 1)

# %% [markdown]
r"""
## Drag the rewards

Give all four answers the same reward. Then let one of them differ by a hair. Watch the advantages.
Without a running notebook you see a picture.
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.widgets import GroupAdvantage

group = GroupAdvantage(R)
group

# %% tags=["nbval-ignore-output"]
print(group.words())  # run this again after dragging
assert math.isclose(sum(group.advantages), 0, abs_tol=1e-9)

# %% [markdown]
r"""
## Dead groups

If all answers of a group get the same reward, nobody is better than anybody: all advantages are 0,
and the group teaches nothing. It does not matter whether all were right or all were wrong.

Suppose an answer is either right (1) or wrong (0), and right with probability $p = 0.18$. To save
time you sample only **two** answers per prompt.
"""

# %% tags=["predict"]
from gspo_edu.predictions import predict

my_guess = None  # a number between 0 and 1
predict(
    "03 pairs without signal",
    "Which share of the pairs teaches nothing? (For example 0.25.)",
    guess=my_guess,
)

# %% [markdown]
r"""
All right has probability $p^G$, all wrong $(1-p)^G$. The share of dead groups is the sum:

$$ p^G + (1-p)^G $$
"""

# %%
from gspo_edu.metrics import signalless_group_fraction


def dead_share(p: float, size: int) -> float:
    """Probability that all answers of a group are right or all are wrong."""
    return p**size + (1 - p) ** size


p = 0.18
for size in (2, 4, 8, 16):
    print(f"G = {size:2d}: {dead_share(p, size):.4f} of the groups teach nothing")

# A trial with dice, counted by the metric that the trainer reports.
dice = np.random.default_rng(0)
rewards = torch.tensor(dice.random(20_000) < p).float()
counted = signalless_group_fraction(rewards, torch.arange(10_000).repeat_interleave(2)).item()
print(f"10,000 pairs, counted: {counted:.2f}")
assert abs(counted - dead_share(p, 2)) < 0.02

# %% tags=["reconcile"] jupyter={"source_hidden": true}
from gspo_edu.predictions import reconcile

pairs = dead_share(p, 2)
reconcile(
    "03 pairs without signal",
    pairs,
    f"{p}² + {1 - p:.2f}² = {pairs:.4f}: seven pairs in ten teach nothing.",
    {
        round((1 - p) ** 2, 4): "those are the pairs of two wrong answers. Two right ones, "
        f"{p**2:.4f}, teach nothing either.",
        round(p**2, 4): "those are the pairs of two right answers only.",
        0.5: "half of the pairs are dead at p = 0.5, where it is best.",
        round(2 * p * (1 - p), 4): "those are the pairs that do teach something.",
    },
)

# %% tags=["nbval-ignore-output"]
from gspo_edu.plots import BLACK, new_figure

figure, (ax,) = new_figure(width=6, height=3.2)
grid = np.linspace(0, 1, 201)
for size, line in ((2, "-"), (4, "--"), (8, "-."), (16, ":")):
    ax.plot(grid, dead_share(grid, size), color=BLACK, ls=line, lw=2, label=f"G = {size}")
ax.plot(p, pairs, "o", color=BLACK, ms=7)
ax.annotate(f"p = {p}: {pairs:.2f}", (p, pairs), (8, 4), textcoords="offset points", fontsize=9)
ax.set(xlabel="probability p that an answer is right", ylabel="share of groups without signal")
ax.set_ylim(0, 1.02)
ax.legend(fontsize=8, frameon=False, loc="upper center")
show(
    figure,
    "Share of groups without signal over the probability of a right answer, for group sizes 2, 4, "
    "8 and 16. All curves are 1 at both ends and lowest in the middle; larger groups are lower.",
)

# %% [markdown]
r"""
**How to read it.** At both ends, prompts that are never or always solved, every group is dead
whatever its size. In the middle a group of 8 is hardly ever dead, a pair half of the time. So the
group must be large enough for the *hard* prompts, and prompts that are always solved are wasted
computing time. DAPO (arXiv 2503.14476) therefore throws dead groups away and samples again. Rewards
with steps in between, as in our clock task, make dead groups rarer.

What about a group of one? It has no siblings, hence no yardstick:
"""

# %%
try:
    group_advantages([1.0], [0])
except ValueError as error:
    print(error)
else:
    raise AssertionError("a group of one must be refused")

# %% [markdown]
r"""
## n or n − 1, and other small choices

There are two standard deviations: divide the squared deviations by $n$ (this course's choice) or by
$n - 1$ (what `torch.std` does if you say nothing). The papers of GRPO and GSPO write only
$\operatorname{std}(\cdot)$ and fix no divisor.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "03 the other divisor",
    "Our group has four answers. What does n - 1 in place of n do to its advantages?",
    {
        "a": "nothing: the std cancels out",
        "b": "all of them shrink by the same share, more than a tenth",
        "c": "it matters in the third digit only",
    },
    my_guess,
)

# %%
conventions = {
    "this course": {"ddof": 0},
    "TRL": {"ddof": 1, "eps": 1e-4},
    "verl": {"ddof": 1, "eps": 1e-6},
    "Dr. GRPO": {"normalize": False},
}
print("convention                  answer 1  answer 2  answer 3  answer 4")
for name, settings in conventions.items():
    found = group_advantages(t.rewards, t.group, **settings).numpy()
    print(f"{name:26s}" + "".join(f"{x:+10.4f}" for x in found))
    assert math.isclose(found.sum(), 0, abs_tol=1e-9)

for size in (2, 4, 8, 64):
    print(f"G = {size:2d}: n - 1 multiplies every advantage by {math.sqrt((size - 1) / size):.4f}")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
factor = (group_advantages(t.rewards, t.group, ddof=1).numpy() / A).mean()
assert math.isclose(factor, math.sqrt(3 / 4))
reconcile(
    "03 the other divisor",
    "b" if factor < 0.9 else "c",
    f"Every advantage is multiplied by √(3/4) = {factor:.4f}.",
    {
        "a": f"the mean cancels, the std does not: answer 1 has {A[0] * factor:+.4f} instead of "
        f"{A[0]:+.4f}.",
        "c": f"that is true of large groups (G = 64: {math.sqrt(63 / 64):.4f}); here it is "
        f"{1 - factor:.0%}.",
    },
)

# %% [markdown]
r"""
One factor for all is like another learning rate. It matters when something else in the loss does
not scale along (a KL term), when groups differ in size, and when you compare your numbers with
those of another library. The small number `eps` guards against a division by 0; it also dampens
groups whose rewards differ very little.

Such groups are a weak point of the formula. Three answers with reward 1 and one with 0.99:
"""

# %%
close = torch.tensor([1.0, 1.0, 1.0, 0.99], dtype=torch.float64)
divided = group_advantages(close, [0, 0, 0, 0])
centred = group_advantages(close, [0, 0, 0, 0], normalize=False)
print("divided by std:  " + "  ".join(f"{x:+.4f}" for x in divided))
print("only centred:    " + "  ".join(f"{x:+.4f}" for x in centred))
assert math.isclose(divided[3], -math.sqrt(3), rel_tol=1e-6)

# %% [markdown]
r"""
A hundredth of reward weighs as much as the difference between right and wrong would. Dr. GRPO
(arXiv 2503.20783) leaves the division out, because it gives most weight to the prompts whose
answers differ least; most others keep it.

The group must also be the answers to **one** prompt, not the whole batch. Take an easy prompt with
rewards 1.0 and 0.8 and a hard one with 0.2 and 0.0:
"""

# %%
mixed = torch.tensor([1.0, 0.8, 0.2, 0.0], dtype=torch.float64)
per_prompt = group_advantages(mixed, [0, 0, 1, 1])
whole_batch = group_advantages(mixed, [0, 0, 0, 0])
print("prompt            easy    easy    hard    hard")
print("per prompt     " + "".join(f"{x:+8.2f}" for x in per_prompt))
print("whole batch    " + "".join(f"{x:+8.2f}" for x in whole_batch))
assert per_prompt[2] > 0 > whole_batch[2]

# %% [markdown]
r"""
With the whole batch as yardstick the best answer to the hard prompt is punished for its prompt, and
the worst answer to the easy one is praised.

## GRPO's objective

$$ J_{\text{GRPO}}(\theta) = \mathbb E\Biggl[ \frac1G \sum_{i=1}^{G} \frac{1}{|y_i|}
   \sum_{t=1}^{|y_i|} \min\bigl( r_{i,t} \hat A_i,\;
   \operatorname{clip}(r_{i,t}, 1-\varepsilon, 1+\varepsilon)\, \hat A_i \bigr) \Biggr] $$

(arXiv 2402.03300, eq. 3, without its KL term, which comes below; as in eq. 2 of the GSPO paper,
arXiv 2507.18071, where the ratio is called $w_{i,t}$.) Read it from the inside: PPO's min for each
token; then the **mean over the tokens of each answer**; then the mean over the answers. So every
answer has the same weight, and a token of a short answer weighs more than one of a long answer.

We take the range that the GSPO paper gave its GRPO runs, 0.2 down and 0.27 up. The token of answer
3, with $r = 1.25$, was clipped in lesson 02. Now it is not.
"""

# %%
ratio = np.exp(batch.logp - batch.logp_old)
advantage = np.broadcast_to(A[:, None], ratio.shape)
surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.27) * advantage)

sums = (surrogate * batch.mask).sum(axis=1)  # (G,) sum over each answer's tokens
lengths = batch.lengths  # (G,)
for row, answer in enumerate(batch.answers):
    tokens = "  ".join(f"{x:+.4f}" for x in surrogate[row, : len(answer)])
    print(f"answer {row + 1}: length {lengths[row]}, sum {sums[row]:+.4f} of  {tokens}")

# %% [markdown]
r"""
### Your turn: blank 2

The last step of the formula: from `sums`, `lengths` and `G` to one number.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
from gspo_edu.objectives import grpo

result = grpo(t.logp, t.logp_old, torch.tensor(A), t.mask)
blank_2 = (
    -result.loss.item(),
    [
        (sums.sum() / lengths.sum(), "This is the mean over all tokens, as in lesson 02."),
        (sums.mean(), "Divide each sum by the length of its answer before averaging."),
        ((sums / lengths).sum(), "The mean over the answers is missing: divide by G."),
        (
            (sums / batch.mask.shape[1]).mean(),
            "Each sum is divided by 4, the padded width. Divide it by its own answer's length.",
        ),
        (surrogate.mean(), "This mean forgets the mask: it runs over the padding, too."),
        (
            (surrogate.sum(axis=1) / lengths).mean(),
            "These sums forget the mask: they run over the padding, too.",
        ),
        (result.loss.item(), "That is the loss; the objective has the other sign."),
    ],
)

# %% tags=["question"]
my_objective = None  # one number

check_answer(my_objective, *blank_2)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("my_objective = (sums / lengths).mean()")
print(f"{(sums / lengths).mean():+.6f}")
assert math.isclose((sums / lengths).mean(), -result.loss.item(), abs_tol=1e-12)

# %% [markdown]
r"""
How much does one token count? Under GRPO $1 / (G\,|y_i|)$, under a mean over all tokens (lesson
02, also DAPO) the same for everybody:
"""

# %%
print("answer  length  token, per answer  token, per token  answer, per answer  per token")
for row, length in enumerate(lengths):
    per_answer, per_token = 1 / (G * length), 1 / lengths.sum()
    print(
        f"{row + 1:6d} {length:7d} {per_answer:18.4f} {per_token:17.4f}"
        f" {length * per_answer:19.4f} {length * per_token:10.4f}"
    )
assert math.isclose(sum(lengths * (1 / (G * lengths))), 1)

# %% [markdown]
r"""
Neither is wrong; they are two conventions, and a library's name does not tell which one it uses.

## A loss of zero

Look at the very first update after sampling, when $\pi_\theta$ is still $\pi_{\text{old}}$, and
$\log \pi_{\text{old}}$ comes from the engine that trains. (With log-probs from a separate inference
engine the ratios are not exactly 1, and the loss is not exactly 0.)
"""

# %%
logp = t.logp_old.clone().requires_grad_()
first = grpo(logp, t.logp_old, torch.tensor(A), t.mask)
print(f"loss at the first update: {abs(first.loss.item()):.6f}")
assert math.isclose(first.loss.item(), 0, abs_tol=1e-12)

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "03 loss of zero",
    "The loss is 0. What does this update do to the policy?",
    {
        "a": "nothing: there is nothing to improve",
        "b": "it changes all ten tokens",
        "c": "it changes only tokens whose ratio is not 1",
    },
    my_guess,
)

# %%
first.loss.backward()
gradient = logp.grad.numpy()
print("answer  A         gradient of the loss on each of its tokens")
for row, answer in enumerate(batch.answers):
    values = "  ".join(f"{x:+.4f}" for x in gradient[row, : len(answer)])
    print(f"{row + 1:6d}  {A[row]:+.4f}   {values}")
    assert np.allclose(gradient[row, : len(answer)], -A[row] / (G * len(answer)))
changed = int((gradient[batch.mask] != 0).sum())
print(f"tokens with gradient: {changed} of {batch.mask.sum()}")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "03 loss of zero",
    "b" if changed == batch.mask.sum() else "c",
    f"{changed} of {batch.mask.sum()} tokens have a gradient, -A / (G · length) each.",
    {
        "a": "with all ratios 1 the loss is minus the mean advantage, always 0. Its slope is not: "
        f"answer 1 is pulled up with {-gradient[0, 0]:.4f} per token.",
        "c": f"at r = 1 the slope of r·A is A, not 0; all {changed} tokens have r = 1 here.",
    },
)

# %% [markdown]
r"""
At $r = 1$ the objective is the mean of the advantages, and that is 0 by construction. It is the
*slope* that teaches. Later updates add only how far the ratios have moved with the advantages or
against them; how good the policy is does not appear in the loss at any time. A smaller loss is
neither progress nor a smaller step. Watch the reward instead.

## The KL to the reference policy

GRPO adds a rubber band, the **KL penalty**: $-\beta\, D_{\text{KL}}(\pi_\theta \,\|\,
\pi_{\text{ref}})$ in the objective, which pulls towards a frozen reference policy. The exact KL
would need every possible answer, so it is estimated from the sampled tokens (arXiv 2402.03300, eq.
4; known as k3):

$$ \hat D_t = \frac{\pi_{\text{ref}}(y_t)}{\pi_\theta(y_t)}
   - \log \frac{\pi_{\text{ref}}(y_t)}{\pi_\theta(y_t)} - 1 $$

**By hand**, for a token with log-prob $-1$ under the policy and $-2$ under the reference: the log
of the quotient is $-1$, so $e^{-1} + 1 - 1 = e^{-1}$. Watch the direction: the reference stands on
top.
"""

# %%
from gspo_edu.metrics import k1, k3

lp = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)
estimate = k3(lp, torch.tensor(-2.0, dtype=torch.float64))
estimate.backward()
print(f"k3 {estimate.item():.5f}, its slope with respect to the log-prob {lp.grad.item():.5f}")
assert math.isclose(estimate.item(), math.exp(-1))
assert math.isclose(lp.grad.item(), 1 - math.exp(-1))

policy = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
reference = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
exact = (policy * (policy / reference).log()).sum()
each = k3(policy.log(), reference.log())
print(f"exact KL {exact:.4f}; k3 of the three tokens " + ", ".join(f"{x:.4f}" for x in each))
print(f"k3 averaged with the policy's probabilities {(policy * each).sum():.4f}")
assert math.isclose(exact, (policy * each).sum())
assert (each >= 0).all()
assert (k1(policy.log(), reference.log()) < 0).any()

# %% [markdown]
r"""
No single token shows the KL; the average does, if the tokens come from $\pi_\theta$ itself. (The
plain log quotient, k1, has the same average but is negative for some tokens; k3 never is.) After
a few off-policy updates they do not quite, so the logged "KL" is an estimate with an error.
DeepSeekMath used $\beta = 0.04$. The GSPO paper leaves the term out of its formulas, and this
course trains with $\beta = 0$ unless it says otherwise.

k3 averages to the KL in *value* only. Its gradient inside the loss, $1 - \pi_{\text{ref}} /
\pi_\theta$ per token with respect to the log-prob, is not the gradient of this KL, not even on
average:
"""

# %%
logits = policy.log().requires_grad_()
log_policy = logits.log_softmax(dim=0)
kl = (log_policy.exp() * k1(log_policy, reference.log())).sum()
sampled = (policy * k3(log_policy, reference.log())).sum()  # policy: how often each is drawn
(of_kl,) = torch.autograd.grad(kl, logits, retain_graph=True)
(of_k3,) = torch.autograd.grad(sampled, logits)
print(f"KL {kl.item():.4f}, k3 on average {sampled.item():.4f}")
print("gradient of the KL with respect to the logits: " + "  ".join(f"{x:+.4f}" for x in of_kl))
print("gradient of k3 on average:                     " + "  ".join(f"{x:+.4f}" for x in of_k3))
assert torch.isclose(kl, sampled)
assert torch.allclose(of_k3, policy - reference)
assert not torch.allclose(of_kl, of_k3, atol=0.01)

# %% [markdown]
r"""
## Let it run

The tiny mixture-of-experts model of this course, a few seconds on a laptop: 20 rollouts of 32
prompts with 8 answers each, four mini-batches per rollout. One seed, so an illustration and no
evidence.
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.config import TrainConfig
from gspo_edu.initial import initial_policy
from gspo_edu.trainer import Trainer

config = TrainConfig(objective="grpo", rollouts=20, seed=0)
model, task, _ = initial_policy(config)
trainer = Trainer(config, model, task)
start = trainer.initial_held_out["held_out_reward"]
records = [record for _ in range(config.rollouts) for record in trainer.next_rollout()]
end = records[-1]["held_out_reward"]

first_updates = records[:: config.mini_batches]
largest_loss = max(abs(record["loss"]) for record in first_updates)
print(f"reward on held-out prompts: {start:.2f} before, {end:.2f} after")
print(f"first update of each rollout: largest |loss| {largest_loss:.1e}")
assert end > start + 0.05
assert largest_loss < 1e-4
assert all(record["clip_fraction_token_weighted"] == 0 for record in first_updates)
assert min(record["grad_norm"] for record in first_updates) > 0.1

# %% tags=["nbval-ignore-output"]
from gspo_edu.plots import GREY, objective_style

style = objective_style("grpo") | {"lw": 1.5}
by_rollout = np.arange(1, config.rollouts + 1)
clips = np.array([record["clip_fraction_token_weighted"] for record in records])
losses = np.array([record["loss"] for record in records]).reshape(-1, config.mini_batches)
figure, (left, middle, right) = new_figure(3, width=2.7, height=2.6)
left.plot(by_rollout, [record["reward"] for record in first_updates], **style)
left.set(xlabel="rollout", ylabel="mean reward of the rollout")
middle.axhline(0, color=GREY, lw=0.8)
middle.plot(by_rollout, losses.mean(axis=1), **style | {"linestyle": "-", "lw": 1})
middle.set(xlabel="rollout", ylabel="loss (mean of its updates)")
right.plot([1, 2, 3, 4], clips.reshape(-1, 4).mean(axis=0), marker="o", **style)
right.set(xlabel="mini-batch of the rollout", ylabel="clip fraction (mean, tokens)")
right.set_xticks([1, 2, 3, 4])
show(
    figure,
    "GRPO over 20 rollouts, one seed. The reward rises, the loss goes up and down around 0, and "
    "the clip fraction is 0 in the first mini-batch of a rollout and rises to the fourth.",
)

# %% [markdown]
r"""
**How to read it.** Left, the reward rises. Middle, the loss stays close to 0 (mind the axis),
mostly a little below, since after the first update the ratios have moved with the advantages. It
tells nothing about the reward. Right, averaged over the rollouts: in the first mini-batch after
sampling all ratios are 1 and nothing is clipped; the further the policy has moved from the one that
sampled, the more is clipped.

## What to take along

1. $\hat A_i = (R_i - \text{mean}) / \text{std}$ within the answers to one prompt; they sum to 0.
2. Equal rewards make a dead group: share $p^G + (1-p)^G$ for right-or-wrong rewards.
3. Ratio and clip are PPO's, per token. The mean is taken over each answer first.
4. The loss is 0 at the first update (with log-probs from the engine that trains), and learning goes
   on all the same.

Your predictions:
"""

# %% tags=["nbval-ignore-output"]
from gspo_edu.predictions import summary_picture

summary_picture("03")

# %% [markdown]
r"""
## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
five = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
question_1 = (
    group_advantages(torch.tensor(five), [0] * 5)[0].item(),
    [
        ((1 - five.mean()) / five.std(ddof=1), "That std has n - 1 in it; take n."),
        (1 - five.mean(), "Centred, but not yet divided by the std."),
        ((1 - five.mean()) / five.var(), "Divided by the variance; take its square root."),
    ],
)
needed = next(size for size in range(2, 100) if dead_share(0.1, size) <= 0.2)
question_2 = (
    needed,
    [
        (needed - 1, f"Close: that leaves {dead_share(0.1, needed - 1):.4f} dead, above 0.2."),
        (8, f"With 8 answers {dead_share(0.1, 8):.4f} of the groups are dead."),
        (
            10,
            f"One right answer on average, yet {dead_share(0.1, 10):.4f} of the groups are dead.",
        ),
        (2, f"Two answers leave {dead_share(0.1, 2):.4f} of the pairs dead."),
    ],
)
question_3 = (
    -1 / (2 * 10),
    [
        (-1 / 12, "That is the mean over all twelve tokens."),
        (-1 / 10, "The mean over the two answers is missing."),
        (-1 / 2, "The mean over the ten tokens is missing."),
        (1 / (2 * 10), "Right size. But A = -1, and the question is about the objective."),
        (0.0, "The objective is 0 here, its slope is not."),
    ],
)

# %% [markdown]
r"""
**1.** Five answers, rewards 1, 1, 0, 0, 0. What is the advantage of a right answer, with the std
that divides by $n$?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** An answer is right with probability 0.1. How large must the group be at least, so that no
more than one group in five is dead?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** A group of two answers, of 2 and 10 tokens, at the first update (all ratios 1). The long one
has $\hat A = -1$. What is the slope of GRPO's objective with respect to the log-prob of **one** of
its ten tokens?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"1. mean {five.mean():.1f}, std {five.std():.4f}: {(1 - five.mean()) / five.std():.4f}")
below, above = dead_share(0.1, needed - 1), dead_share(0.1, needed)
print(f"2. 0.1^G + 0.9^G: {below:.4f} at G = {needed - 1}, {above:.4f} at G = {needed}")

two = torch.zeros(2, 10, dtype=torch.float64, requires_grad=True)
mask = torch.tensor([[1.0] * 2 + [0.0] * 8, [1.0] * 10])
grpo(two, torch.zeros(2, 10), torch.tensor([1.0, -1.0]), mask).loss.backward()
print(f"3. A / (G x length) = -1 / (2 x 10) = {-two.grad[1, 0].item():.4f}")
assert math.isclose(-two.grad[1, 0].item(), -1 / 20)

# %% [markdown]
r"""
## New words
"""

# %%
from IPython.display import display

from gspo_edu.glossary import table

display(table(lesson=3))

# %% [markdown]
r"""
## What comes next

GRPO gives every token its own ratio, but all tokens of an answer share one advantage. Does a ratio
per token make sense when the reward judges the whole answer? **Lesson 04** computes what can be
said against it, and **lesson 05** shows GSPO's reply: one ratio for the whole answer.

**Sources.** GRPO: section 4.1 of the first, objective and KL in its equations 3 and 4. The range
0.2 and 0.27 for GRPO: section 5.1 of the GSPO paper.
"""

# %%
from gspo_edu.bibliography import source

for key in ("grpo", "deepseek_r1", "dr_grpo", "dapo", "gspo"):
    print(source(key))
