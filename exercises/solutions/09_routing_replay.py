# %% [markdown]
r"""
# Exercise 09 · Routing Replay: why changed experts spoil a token's ratio

{{card}}

**You need** lessons 07 and 09, and the GSPO paper (arXiv 2507.18071), section 5. It is free to read
at arXiv; you need it for the last part only. A cell with `# YOUR CODE HERE` is yours; the cell
below it answers at once.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.config import PRESETS, TrainConfig, read_toml
from gspo_edu.initial import initial_policy
from gspo_edu.predictions import predict, reconcile
from gspo_edu.ratios import sequence_log_ratio
from gspo_edu.route_split import rms, split_log_ratio
from gspo_edu.trainer import Trainer

checks.begin("09")

# %% [markdown]
r"""
## 1 · Replay by hand, and in code

**1a.** {{ask 09 gate}}

**1b.** {{ask 09 bytes}}

**1c.** As a function: `logits` are the live router logits (tokens, experts), `experts` the recorded
choice (tokens, K), `old_gates` the gates that were recorded with it. Give back the gates with which
the recorded experts run now, in the order of `experts`. Not everything that you are given is
needed.

<details><summary>First hint</summary>

Replay fixes *who* runs. Who decides how much each counts?
</details>
<details><summary>Second hint</summary>

The live logits, but only those of the recorded experts.
</details>
<details><summary>Third hint</summary>

`gather` picks entries by number, along the experts; then softmax.
</details>
"""


# %% role="solution"
my_gate = None
my_bytes = None
### BEGIN SOLUTION
e = 2.718281828459045
my_gate = e**0.3 / (e**1.2 + e**0.3)
my_bytes = 16 * 4 * 500
### END SOLUTION


def my_replay(logits, experts, old_gates):
    """Gates of the recorded experts, (tokens, K)."""
    ### BEGIN SOLUTION
    chosen = logits.gather(1, experts)
    return chosen.softmax(dim=1)
    ### END SOLUTION


# %% check="09 gate" answer="my_gate"

# %% check="09 bytes" answer="my_bytes"

# %% check="replay_gates" answer="my_replay"

# %% [markdown]
r"""
## 2 · What the ratio sees (by hand)

**2a.** {{ask 09 route factor}}

**2b.** {{ask 09 forgiven}}

<details><summary>First hint</summary>

Without replay nothing is known of a log-prob with old experts: the ratio is now over then.
</details>
<details><summary>Second hint</summary>

2b: five jumps of factor 2 multiply to 32. Then the root.
</details>
<details><summary>Third hint</summary>

The root is the 200th, since all tokens count in the length.
</details>
"""

# %% role="solution"
my_clipped_by = None
my_s = None
### BEGIN SOLUTION
my_clipped_by = e ** (-0.5 - (-1.2))
my_s = 2 ** (5 / 200)
### END SOLUTION

# %% check="09 route factor" answer="my_clipped_by"

# %% check="09 forgiven" answer="my_s"

# %% [markdown]
r"""
## 3 · A small computation that proves the point

The stormy model of lesson 07 (32 experts, two layers) trains for three rollouts. After the first
update of the third, every token's log-ratio is split:

$$\log r = \text{route part} + \text{weights part}$$
"""


# %%
class Watched(Trainer):
    """A trainer that splits the log-ratios of its rollout after the first update."""

    def as_old_policy(self, rollout):
        self.shown, self.split = super().as_old_policy(rollout), None
        return self.shown

    def one_update(self, batch, advantages):
        record = super().one_update(batch, advantages)
        if self.split is None:
            self.split = split_log_ratio(self.model, self.shown)
        return record


stormy = read_toml(PRESETS / "stormy.toml")
config = TrainConfig(**stormy, objective="grpo", seed=0, eval_every=0, eval_prompts=32)
trainer = Watched(config, *initial_policy(config)[:2])
for _ in range(3):
    trainer.next_rollout()
split, inside = trainer.split, trainer.shown.mask
print(f"{int(inside.sum())} tokens, {float(split.changed[inside].float().mean()):.0%} with another")
print("expert in some layer")

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x09 parts",
    "Compare tokens that kept all their experts with tokens that have another one. How do the root "
    "mean squares of their route parts compare?",
    {
        "a": "about equal: every token attends to changed tokens",
        "b": "two to twenty times as large for those with another expert",
        "c": "those that kept their experts have no route part at all",
    },
    my_guess,
)

# %% tags=["reconcile"]
kept, other = inside & ~split.changed, inside & split.changed


def leaving(log_ratio, where):
    """Share of tokens outside GRPO's range."""
    ratio = log_ratio[where].exp()
    return float(((ratio < 0.8) | (ratio > 1.27)).float().mean())


print("                     rms of the parts      outside GRPO's range")
print("                     route    weights      now      with the old experts")
for name, where in (("kept their experts", kept), ("another expert", other)):
    route, weights = rms(split.route, where), rms(split.weights, where)
    now, replayed = leaving(split.total, where), leaving(split.weights, where)
    print(f"{name:20} {route:.3f}    {weights:.3f}        {now:3.0%}      {replayed:3.0%}")
assert leaving(split.total, other) > 1.5 * leaving(split.total, kept)
larger = rms(split.route, other) / rms(split.route, kept)
assert 2 < larger < 20
reconcile(
    "x09 parts",
    "b",
    f"{larger:.1f} times. A change of experts shows in the token's own ratio most of all.",
    {
        "a": "they do, but what reaches them through attention is smaller.",
        "c": "they attend to tokens whose experts changed, so a part of it reaches them.",
    },
)

# %% [markdown]
r"""
And what the answer's ratio sees of it:
"""

# %%
zero = torch.zeros_like(split.route)
for name, part in (("route", split.route), ("weights", split.weights), ("both", split.total)):
    log_s = sequence_log_ratio(part.where(inside, zero), zero, inside)
    print(f"{name:8} rms per token {rms(part, inside):.3f}   std of log s {log_s.std():.3f}")

# %% [markdown]
r"""
## 4 · Find the bug

This replay runs in a training loop without an error, and the loss falls. But the gates of a token
do not add up to 1, and less the more experts there are. Mend it.
"""


# %% tags=["faulty"]
def faulty_replay(logits, experts, old_gates):
    """Gates of the recorded experts, (tokens, K)."""
    kept = torch.zeros_like(logits).scatter(1, experts, logits.gather(1, experts))
    return kept.softmax(dim=1).gather(1, experts)


# %%
dice = torch.Generator().manual_seed(0)
for size in (4, 16, 64):
    logits = torch.randn(1, size, generator=dice)
    total = faulty_replay(logits, torch.tensor([[0, 1]]), None).sum()
    print(f"{size:3d} experts, two of them recorded: gates add up to {total:.3f}")

# %% [markdown]
r"""
<details><summary>First hint</summary>

What does a logit of 0 mean to a softmax?
</details>
<details><summary>Second hint</summary>

exp(0) is 1: the experts that do not run still take their share.
</details>
<details><summary>Third hint</summary>

Fill with minus infinity, or take the softmax over the recorded ones only.
</details>
"""


# %% role="solution"
def my_mended_replay(logits, experts, old_gates):
    """Gates of the recorded experts, which add up to 1."""
    ### BEGIN SOLUTION
    nothing = torch.full_like(logits, -torch.inf)
    kept = nothing.scatter(1, experts, logits.gather(1, experts))
    return kept.softmax(dim=1).gather(1, experts)
    ### END SOLUTION


# %% check="09 bug" answer="my_mended_replay"

# %% [markdown]
r"""
## 5 · Read, and explain it in your own words

Read section 5.3 of the paper, *Benefit of GSPO for MoE Training* (about a page). While you read,
look for answers to these:

1. Which figure do the authors give for how many experts change, after what, and for which model?
2. What exactly do they say this does to $w_{i,t}$, the token's ratio? Do they show it, or state it?
3. What does Routing Replay keep, and at which moments is it used?
4. Which price do they name, and which do they not name?
5. Why, in their view, does GSPO need no such thing? Which quantity do they say is stable?

Then close the paper and explain to a colleague who knows PPO but no mixture of experts: *why do
changed experts spoil a token's ratio, what does replay do about it, and what does GSPO do instead?*
Ten to fifteen sentences, with at least two numbers of your own from sections 2 and 3. Write first;
your teacher has a model answer, and so has `exercises/solutions` in the course's folder.

| points | the answer … |
|---|---|
| 1 | says what a ratio compares, and that it should measure what the update has done |
| 1 | says that now another set of weights computes the token: two causes in one number |
| 1 | says what follows for clipping and weighting: tokens are cut or pushed for the wrong reason |
| 1 | says what replay keeps and what stays free, and names a price |
| 1 | says why a geometric mean suffers less, with a number, and what it does not do |
| 1 | keeps apart what the authors report, what was computed here, and what is opinion |
"""

# %% [markdown] open="09 open question"
r"""
### BEGIN SOLUTION
A model answer. The importance ratio of a token compares its probability now with its probability
when it was sampled; it is meant to correct for, and to brake, what the updates have done since. In
a mixture of experts each token is computed by a few experts that a router picks. If an update moves
two nearly level scores past each other, another expert, with other weights, computes the same
token. Its probability then changes for two reasons, and the ratio shows only their product. In
section 2 the weights moved a token's log-prob by 0.3 and the routes by 0.4: GRPO clips by
exp(0.7) = 2.01, though learning accounts for 1.35 of it. In my run of section 3 the route part of
tokens with another expert was some four times that of the others, and a third of them had left the
range, against a tenth with their old experts replayed. So
tokens are clipped, or pushed harder, because of a by-product of the update. The authors report
about 10 % changed experts per gradient update for a model of 48 layers; that is their measurement,
and they state rather than show that it keeps GRPO from converging. Routing Replay records which
experts π_old took and uses the same ones when the ratio is computed. The gates still come from the
live router, so it goes on learning. It costs memory and traffic, and it takes from the policy the
freedom to use other experts during the update. GSPO takes the geometric mean over the answer: five
jumps of factor 2 among 200 tokens move s by 1.7 % only. That is still far outside its range of
0.04 %, so it forgives in the size of the push more than in the decision to clip. GSPO does not keep
the experts constant, it suffers less from their change. That it makes replay unnecessary is the
authors' experience; later reports are mixed.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
