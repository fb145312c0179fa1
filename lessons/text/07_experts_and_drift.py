# %% [markdown]
r"""
# 07 · Mixture of experts and drift

Qwen3's large models are mixtures of experts, and so is the tiny model of this course. In such a
model a token's importance ratio can jump for a reason that plain learning does not have: another
expert was chosen. This lesson builds the mixture by hand, watches its choices drift while it
trains, and measures how much of each ratio they make up.

**Afterwards you can**

- compute by hand what a mixture of experts puts out for a token, and say why it can jump;
- tell drift per update from drift per rollout, and measure both;
- split a token's log-ratio into a part of the routes and a part of the weights, exactly.

**You need** lessons 02 (ratio), 03 (advantage) and 05 (sequence ratio). **Time:** 35 minutes. Three
short trainings run on the way; each takes seconds.
"""

# %% jupyter={"source_hidden": true}
import copy
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from IPython.display import display

from gspo_edu.advantages import group_advantages
from gspo_edu.batch import mini_batch_rows
from gspo_edu.bibliography import source
from gspo_edu.config import PRESETS, TrainConfig, read_toml
from gspo_edu.glossary import table
from gspo_edu.initial import initial_policy
from gspo_edu.metrics import effective_sample_size
from gspo_edu.moe import drift, replay_gates
from gspo_edu.plots import show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.route_figures import (
    drift_figure,
    flip_figure,
    route_map,
    split_figure,
    step_figure,
    tie_figure,
)
from gspo_edu.route_split import (
    changed_tokens,
    mean_pull,
    rms,
    router_margin,
    split_log_ratio,
)
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.tasks.base import SYMBOLS
from gspo_edu.trainer import Trainer
from gspo_edu.widgets import Routes, route_record

# %% [markdown]
r"""
## Two questions from before

**From lesson 06.** A group of four answers. One has five tokens and A = +2; one of its tokens has
the ratio 1.1. Which gradient weight does GRPO (mean per answer, range 0.8 to 1.27) give to that
token? (The folded cell holds what your answers are compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    2 * 1.1 / (4 * 5),
    [
        (2 * 1.1 / 5, "Divide by the four answers of the group as well."),
        (2 * 1.1 / 4, "Divide by the five tokens of the answer as well."),
        (2 / (4 * 5), "The derivative of r with respect to log π is r again: a factor 1.1."),
        (0.0, "1.1 lies inside the range, so nothing is clipped."),
    ],
)
warm_up_2 = (
    effective_sample_size(torch.tensor([1.0, 1.0, 1.0, 3.0])).item(),
    [
        (4.0, "That is the number of samples. Unequal weights count as fewer."),
        (2.0, "That is the sum over the largest weight. Take (Σw)² / Σw²."),
        (12 / 36, "The other way round: (Σw)² / Σw²."),
        (6 / 12, "Square the sum first: (Σw)² / Σw²."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 04.** Four samples have the importance weights 1, 1, 1 and 3. What is their effective
sample size?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · One token, four experts

A usual transformer sends each token through one feed-forward block per layer. A **mixture of
experts** has many small blocks there, the *experts*, and a **router** that picks a few of them for
each token. The rest do not compute at all: **sparse activation**. So a model can have many weights
and use few of them at a time.

By hand: a token with the hidden state $x = (1, 2)$, and four experts. The router is a matrix with
one row per expert. A row times $x$ is that expert's **router logit**.
"""

# %%
x = torch.tensor([1.0, 2.0])
router = torch.tensor([[1.0, 0.5], [0.4, 0.3], [0.1, 0.4], [-0.6, -0.2]])
logits = router @ x
for expert, (row, logit) in enumerate(zip(router, logits, strict=True)):
    print(f"expert {expert}: {row[0]:+.1f} · 1 {row[1]:+.1f} · 2 = {logit:+.1f}")
assert torch.allclose(logits, torch.tensor([2.0, 1.0, 0.9, -1.0]))

# %% [markdown]
r"""
**Top-k routing**, here with $k = 2$, as in our model (Qwen3's take 8 of 128): the two experts with
the largest logits compute. How much each counts is its **gate**, the softmax over the *chosen*
logits. The layer puts out the gated sum. To keep it short, let each expert put out one number: +1,
+2, −3 and +5.
"""

# %%
expert_output = torch.tensor([1.0, 2.0, -3.0, 5.0])


def layer_output(logits):
    chosen = logits.topk(2).indices
    gates = logits[chosen].softmax(dim=0)
    return chosen, gates, (gates * expert_output[chosen]).sum()


chosen, gates, output = layer_output(logits)
print(f"chosen: experts {chosen.tolist()}")
print(f"gates:  exp(2) / (exp(2) + exp(1)) = {gates[0]:.4f}, and {gates[1]:.4f}")
print(f"output: {gates[0]:.4f} · 1 + {gates[1]:.4f} · 2 = {output:.4f}")
assert chosen.tolist() == [0, 1]
assert torch.allclose(gates, replay_gates(logits, chosen))
assert f"{output:.4f}" == "1.2689"

# %% [markdown]
r"""
Expert 2 was a **near tie**: its logit of 0.9 is only 0.1 below the second one. That gap, between
the last expert that was chosen and the first that was not, is the **margin**.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "07 near tie",
    "An update moves one router weight a little, and the logit of expert 2 grows from 0.9 to 1.1. "
    "Everything else stays. The output was 1.27. What is it now?",
    {
        "a": "still 1.27: the best expert is the same",
        "b": "about 1.2: expert 2 comes in little by little",
        "c": "-0.16",
        "d": "0.42: all four experts, each with its probability",
    },
    my_guess,
)

# %%
moved = torch.tensor([2.0, 1.0, 1.1, -1.0])
chosen, gates, jumped = layer_output(moved)
everybody = (moved.softmax(dim=0) * expert_output).sum()
print(f"chosen: experts {chosen.tolist()}, gates {gates[0]:.4f} and {gates[1]:.4f}")
print(f"output: {gates[0]:.4f} · 1 + {gates[1]:.4f} · (-3) = {jumped:.4f}")
print(f"all four experts, softmax over all logits: {everybody:.4f}")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert f"{jumped:.2f}" == "-0.16"
assert f"{everybody:.2f}" == "0.42"
reconcile(
    "07 near tie",
    "c",
    f"expert 1 is out, expert 2 is in, at once with a gate of {gates[1]:.2f}: {jumped:.2f}.",
    {
        "a": "two experts compute, and the second one is another now.",
        "b": "at the tie the newcomer takes over the whole gate of the one that leaves.",
        "d": "only the chosen two compute. That is what makes the model cheap.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
slide = [0.5 + 0.002 * step for step in range(501)]
curves = {"top 2 of 4": [], "all four": []}
for value in slide:
    at = torch.tensor([2.0, 1.0, value, -1.0])
    curves["top 2 of 4"].append(layer_output(at)[2].item())
    curves["all four"].append((at.softmax(dim=0) * expert_output).sum().item())
show(
    tie_figure(slide, curves, tie=1.0),
    "Output of the layer while the third expert's logit grows from 0.5 to 1.5. With all four "
    "experts it falls smoothly. With the top two it is level at 1.27, jumps down to about -0.08 "
    "at the tie, and goes on from there.",
)
gate_at_tie = 1 / (1 + math.e)
largest_step = {name: max(abs(b - a) for a, b in pairwise(y)) for name, y in curves.items()}
assert math.isclose(largest_step["top 2 of 4"], gate_at_tie * 5, rel_tol=0.01)
assert largest_step["all four"] < 0.01

# %% [markdown]
r"""
**How to read it.** The dashed curve, all experts weighted, is smooth. The solid one has a step: at
the tie the gate of 0.2689 passes as a whole from an expert that says +2 to one that says −3, so the
output falls by 0.2689 · 5 = 1.34. The step is there however slowly the logit moves. So a mixture of
experts is not a continuous function of its weights. Everything in this lesson follows from that.

## 2 · The same in the shipped policy

The course ships a policy for stormy weather: two layers, 32 experts in each, two of them per token.
Here is a layer of it, from scratch, token by token. An expert is a SwiGLU block, as in Qwen3.
"""

# %%
stormy = read_toml(PRESETS / "stormy.toml")
config = TrainConfig(**stormy, objective="grpo", seed=0, eval_every=0, eval_prompts=32)
policy, task, card = initial_policy(config)
moe = policy.blocks[0].moe


def mixture(x, moe):
    """(S, width) -> the same, one token after the other."""
    out = torch.zeros_like(x)
    for t in range(len(x)):
        logits = moe.router.weight @ x[t]
        experts = logits.topk(2).indices
        gates = logits[experts].softmax(dim=0)
        for gate, e in zip(gates, experts, strict=True):
            a, b = (x[t] @ moe.gate_up[e]).chunk(2)
            out[t] += gate * (F.silu(a) * b) @ moe.down[e]
    return out


some_tokens = torch.randn(6, 48, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    assert torch.allclose(mixture(some_tokens, moe), moe(some_tokens)[0], atol=1e-5)

every = sum(weight.numel() for weight in policy.parameters())
one_expert = moe.gate_up[0].numel() + moe.down[0].numel()
used = every - 2 * (32 - 2) * one_expert
print(f"weights in all: {every}; one expert: {one_expert}")
print(f"used for one token: {used}, which is {used / every:.1%}")
assert (every, used) == (465_408, 50_688)

# %% [markdown]
r"""
A token uses a tenth of the weights. (Qwen3-30B-A3B has it in its name: 30 billion weights, 3
billion active. The proportion is about the same.)

## 3 · Drift, in two figures

While the policy trains, its choices change. **Expert drift** is the share of expert slots, over all
tokens and layers, whose expert was not among those of the reference. Order does not count: {3, 7}
and {7, 3} are the same choice.
"""

# %%
before = torch.tensor([[3, 7], [0, 5]])  # one token: two layers, two experts each
after = torch.tensor([[7, 3], [5, 9]])
print(f"drift: {drift(after, before):.2f}   (one of four slots: expert 9 is new)")
assert drift(after, before) == 0.25

# %% [markdown]
r"""
Which reference? There are two, and papers and logs are not always clear about it:

- **drift per update**: against the policy just before this update;
- **drift per rollout**: against $\pi_\text{old}$, which sampled the answers. This is the one that
  the ratio sees, and it grows from mini-batch to mini-batch.

To measure both on the same tokens we watch a trainer at work: after each update it looks at all
answers of the rollout once more. (The trainer's own records hold cheaper versions under the names
`drift_per_update`, on a few answers, and `drift_per_rollout`, on the mini-batch about to be used.)
"""


# %%
class Watched(Trainer):
    """A trainer that looks at the whole rollout's routes after each update."""

    def as_old_policy(self, rollout):
        self.shown = super().as_old_policy(rollout)
        self.last = self.shown.routes.answer
        return self.shown

    def one_update(self, batch, advantages):
        record = super().one_update(batch, advantages)
        with torch.no_grad():
            now = answer_log_probs(self.model, self.shown).routes.answer
        record["per_update"] = drift(now, self.last).item()
        record["per_rollout"] = drift(now, self.shown.routes.answer).item()
        self.last = now
        return record


# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "07 four updates",
    "Say each of the four updates of a rollout changes 5 % of the slots. How large is the drift "
    "per rollout after the fourth?",
    {
        "a": "20 %: shares add up",
        "b": "more than 5 %, less than 20 %",
        "c": "5 %: each update is small, and so is the whole",
        "d": "more than 20 %: changes build on each other",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
SEEDS, ROLLOUTS = (0, 1, 2), 6
trainers, runs = {}, {}
for seed in SEEDS:
    config = TrainConfig(**stormy, objective="grpo", seed=seed, eval_every=0, eval_prompts=32)
    trainer = trainers[seed] = Watched(config, *initial_policy(config)[:2])
    records = [record for _ in range(ROLLOUTS) for record in trainer.next_rollout()]
    runs[seed] = [[record[name] for record in records] for name in ("per_update", "per_rollout")]

print("seed   rollout   per update, four times       sum     per rollout at the end")
for seed, (updates, so_far) in runs.items():
    for rollout in range(ROLLOUTS):
        four, end = updates[4 * rollout :][:4], so_far[4 * rollout + 3]
        cells = "  ".join(f"{share:5.1%}" for share in four)
        print(f"{seed:4} {rollout + 1:9}   {cells}   {sum(four):6.1%} {end:12.1%}")
        assert max(four) / 2 < end <= sum(four) + 1e-9
        assert math.isclose(four[0], so_far[4 * rollout])

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
sums = sum(sum(updates) for updates, _ in runs.values())
ends = sum(sum(so_far[3::4]) for _, so_far in runs.values())
assert 0.5 < ends / sums < 0.95
reconcile(
    "07 four updates",
    "b",
    f"over these rollouts the end comes to {ends / sums:.0%} of the sum.",
    {
        "a": "that is the upper limit. A slot that changes twice counts twice in the sum, but once "
        "in the end, or not at all if it changes back.",
        "c": "it grows with each update, just not by the full 5 %.",
        "d": "drift is a distance: it can never exceed the sum of its steps.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    drift_figure({f"seed {seed}": both for seed, both in runs.items()}, rollout=4),
    "Two panels over 24 updates, three seeds. Drift per update starts near 14 per cent, falls "
    "within the first two rollouts to about 3 to 6 per cent. Drift per rollout climbs within each "
    "rollout like a saw-tooth, to between 25 and 30 per cent in the first and 9 to 18 later.",
)
for updates, so_far in runs.values():
    assert 0.05 < updates[0] < 0.3
    assert 0.01 < sum(updates[8:]) / 16 < 0.12
    assert all(so_far[i + 3] > so_far[i] for i in range(0, 24, 4))

# %% [markdown]
r"""
**How to read it.** Left: what one update changes. The first updates change most. (Adam's first
steps move every weight by about the learning rate, however small its gradient. That may be a
reason; it was not tested.) Right: what has piled up since the rollout was sampled. It is a
saw-tooth, because each new rollout has a new $\pi_\text{old}$. Reading the right panel's peaks as
"drift of an update" would overstate it about threefold.

> **What the authors report** (Zheng et al., arXiv 2507.18071, section 5.3): in their 48-layer
> Qwen3-30B-A3B-Base about 10 % of the experts that are activated for the same sample differ after
> each gradient update. That is their model, their learning rate, and their measurement. Ours has
> two layers, and a learning rate that was made large on purpose so that there is something to see.
> The two figures are not comparable beyond their order of magnitude.

How many *tokens* does it touch? A token is touched if any of its slots changes, and a deep model
has many. If slots changed independently, each with probability $d$, a share of $1-(1-d)^{NK}$ would
be touched.
"""

# %% tags=["nbval-ignore-output"]
trainer = trainers[0]
rollout, inside = trainer.shown, trainer.shown.mask
share = drift(trainer.last, rollout.routes.answer).item()
touched = changed_tokens(trainer.last, rollout.routes.answer)[inside].float().mean().item()
print(f"here, 2 layers of 2: drift {share:.1%}, tokens touched {touched:.1%}")
print(f"                     if independent            {1 - (1 - share) ** 4:.1%}")
deep = 1 - 0.9 ** (48 * 8)
print(f"48 layers of 8, drift 10 %, if independent: {deep:.6%} of all tokens")
assert 0.8 * touched < 1 - (1 - share) ** 4 < 1.4 * touched
assert deep > 0.999999

# %% [markdown]
r"""
In a deep model a drift of 10 % leaves practically no token on its old route as a whole. (That is a
computation under independence, not a measurement.)

## 4 · Who changes
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "07 who changes",
    "Which choices change in an update?",
    {
        "a": "any: it is a matter of chance",
        "b": "those of tokens with a large advantage, since they get the largest gradient",
        "c": "those that were near ties before",
        "d": "those in the last layer, since the gradient is largest there",
    },
    my_guess,
)

# %% [markdown]
r"""
We freeze the moment: a fresh rollout of each of the three policies (32 prompts, 16 answers each),
which then feeds four updates. First one answer as a picture, after the first update.
"""

# %%
GROUP = 16


def fresh_rollout(trainer):
    """A new rollout, its advantages, the router logits, and the weights that sampled it."""
    dice = torch.Generator().manual_seed(99)
    rollout = sampled_rollout(
        trainer.model, trainer.task, trainer.training_prompts(), GROUP, generator=dice
    )
    trainer.shown, trainer.last = rollout, rollout.routes.answer
    with torch.no_grad():
        logits = answer_log_probs(trainer.model, rollout).router_logits
    advantages = group_advantages(rollout.rewards, rollout.group)
    return rollout, advantages, logits, copy.deepcopy(trainer.model.state_dict())


studies, moments = {}, {}
for seed, trainer in trainers.items():
    rollout, advantages, logits, start = fresh_rollout(trainer)
    moments[seed] = [copy.deepcopy(trainer.model)]
    splits = []
    for rows in mini_batch_rows(rollout.group, 4, trainer.order):
        trainer.one_update(rollout.rows(rows), advantages[rows])
        splits.append(split_log_ratio(trainer.model, rollout))
        moments[seed].append(copy.deepcopy(trainer.model))
    studies[seed] = (rollout, advantages, logits, start, splits)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
rollout, advantages, logits, start, splits = studies[0]
first = splits[0]
in_answer = (first.changed & rollout.mask).sum(dim=1)
row = int(((rollout.lengths >= 8) & (rollout.lengths <= 12) & (in_answer >= 2)).float().argmax())
length = int(rollout.lengths[row])
words = [SYMBOLS[int(token)] for token in rollout.tokens[row, :length]]
old_map = rollout.routes.answer[row, :length].tolist()
new_map = first.routes.answer[row, :length].tolist()
new_slots = sum(
    expert not in then
    for old, new in zip(old_map, new_map, strict=True)
    for then, now in zip(old, new, strict=True)
    for expert in now
)
show(
    route_map(words, old_map, new_map),
    f"One answer of {length} tokens, two layers. Each cell holds the two experts of a token after "
    f"one update; {new_slots} of {4 * length} slots have a new expert and are filled, with the "
    "expert that left in brackets. All others are as before.",
)
assert 2 <= new_slots < length

# %% [markdown]
r"""
**How to read it.** A column per token, a row per layer. A filled cell has changed; in brackets
stands the expert that left. Nearly always one of the two stayed. Now all tokens of the three
rollouts, sorted by their margin *before* the update:
"""

# %% tags=["nbval-ignore-output"]
edges = [0, 0.02, 0.05, 0.1, 0.2, 0.4, math.inf]
margins, flips = [], []
for rollout, _, logits, _, splits in studies.values():
    inside, was, now = rollout.mask, rollout.routes.answer, splits[0].routes.answer
    margins.append(router_margin(logits, top_k=2)[inside])
    flips.append(changed_tokens(now.unsqueeze(-2), was.unsqueeze(-2))[inside])  # layer by layer
margin, flipped = torch.cat(margins), torch.cat(flips)
bins, counts = {}, []
for low, high in pairwise(edges):
    here = (margin >= low) & (margin < high)
    name = f"{low} to {high}" if high < math.inf else f"over {low}"
    bins[name] = flipped[here].float().mean().item()
    counts.append(int(here.sum()))
for name, share in bins.items():
    print(f"margin {name:12} {share:6.1%} changed")
near, *_, far = bins.values()
assert near > 0.2
assert far < 0.02

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
size = torch.cat([a.abs()[:, None].expand_as(r.mask)[r.mask] for r, a, *_ in studies.values()])
large = (size > size.median())[:, None].expand_as(flipped)
by_size = [flipped[large].float().mean().item(), flipped[~large].float().mean().item()]
by_layer = flipped.float().mean(dim=0).tolist()
assert max(by_size) < 2 * min(by_size)
reconcile(
    "07 who changes",
    "c",
    f"of the nearest ties {near:.0%} changed, of the clear choices {far:.1%}.",
    {
        "a": "margin tells nearly all: see the table.",
        "b": f"with large |A| {by_size[0]:.1%} changed, with small |A| {by_size[1]:.1%}. An update "
        "moves shared weights: it reaches all tokens, also those without any gradient.",
        "d": f"layer 0: {by_layer[0]:.1%}, layer 1: {by_layer[1]:.1%}. The last changes more, "
        "since its input has moved as well, but within each layer it is the near ties that change.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    flip_figure(bins, counts),
    "Bars: share of the choices that changed in one update, by margin before it. Nearly half of "
    "those with a margin below 0.02 changed, then each bar is less than half of the one before; "
    "above 0.4 almost none did.",
)
assert all(nearer > farther for nearer, farther in pairwise(bins.values()))

# %% [markdown]
r"""
An update changes all router logits a little. Where two experts were nearly level, a little is
enough. So drift depends on two things: how far an update moves the logits, and how many choices are
near ties. Both differ from model to model, which is why one model's drift says little about
another's.

## 5 · Two parts of one ratio

Now to what it does to the ratio of a token. Its log-prob has changed because the *weights* have
changed and because the *route* has. **Routing Replay** can tell the two apart: it lets the new
policy compute with the experts that $\pi_\text{old}$ had chosen. Put that log-prob in between:

$$\log r =
\underbrace{\log\pi_\theta - \log\pi_\theta^{\text{old routes}}}_{\text{route part}} +
\underbrace{\log\pi_\theta^{\text{old routes}} - \log\pi_\text{old}}_{\text{weights part}}$$
"""

# %%
rollout, advantages, logits, start, splits = studies[0]
trainer, inside = trainers[0], rollout.mask
with torch.no_grad():
    live = answer_log_probs(trainer.model, rollout)
    replayed = answer_log_probs(trainer.model, rollout, replay=rollout.routes)
route_part = live.logp - replayed.logp
weights_part = replayed.logp - rollout.logp_old
log_r = live.logp - rollout.logp_old

assert torch.allclose(route_part + weights_part, log_r, atol=1e-5)
assert torch.equal(replayed.routes.answer, rollout.routes.answer)
last = splits[-1]
assert torch.allclose(last.route, route_part, atol=1e-5)
assert torch.allclose(last.weights[inside], weights_part[inside], atol=1e-5)
print("route part + weights part = log r, for every token")

# %% [markdown]
r"""
The sum is exact by construction. The *order* is a choice: one could also change the routes first,
under the old weights, and would find other parts. And a token whose own experts stayed can have a
route part as well, since it attends to tokens whose experts changed.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "07 leaving",
    "After the first update about 5 % of the tokens that kept their experts have left GRPO's range "
    "(0.8 to 1.27). What about the tokens with a changed expert?",
    {
        "a": "also about 5 %: the gates of near ties are small",
        "b": "fewer: a new expert starts with a small gate",
        "c": "a good 20 %",
        "d": "nearly all: another expert, another distribution",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
LOW, HIGH = 0.8, 1.27


def leaving(log_ratio, where):
    """Share of the tokens ``where`` whose ratio is outside GRPO's range."""
    ratio = log_ratio[where].exp()
    return ((ratio < LOW) | (ratio > HIGH)).float().mean().item()


print("after the first update      tokens with        tokens with      the same tokens,")
print("outside 0.8 to 1.27        the same experts   another expert   computed on old routes")
left = {}
for seed, (rollout, _, _, _, splits) in studies.items():
    split, inside = splits[0], rollout.mask
    same, other = inside & ~split.changed, inside & split.changed
    left[seed] = [
        leaving(split.total, same),
        leaving(split.total, other),
        leaving(split.weights, other),
    ]
    print(f"seed {seed} {left[seed][0]:29.1%} {left[seed][1]:16.1%} {left[seed][2]:16.1%}")
    assert left[seed][1] > 2 * left[seed][0]
    assert left[seed][1] > 2 * left[seed][2]
    assert 0.1 < left[seed][1] < 0.5

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
mean_left = [sum(values) / len(values) for values in zip(*left.values(), strict=True)]
second_gate = replay_gates(logits, studies[0][0].routes.answer.clamp(min=0)).min(dim=-1).values
small = second_gate[studies[0][0].mask].mean().item()
assert 0.15 < small < 0.5
reconcile(
    "07 leaving",
    "c",
    f"{mean_left[1]:.0%} on average, against {mean_left[0]:.0%} of those that kept their experts.",
    {
        "a": f"the second expert's gate is {small:.2f} on average, not small.",
        "b": "at a tie the newcomer takes over the whole gate of the one that leaves (section 1).",
        "d": "one of two experts in one of two layers changed, and everything else stayed.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
split, inside = studies[0][4][0], studies[0][0].mask
panels = {}
for title, where in (
    ("tokens that kept their experts", inside & ~split.changed),
    ("tokens with another expert", inside & split.changed),
):
    places = where.nonzero()
    some = places[:: max(1, len(places) // 900)]
    rows, columns = some[:, 0], some[:, 1]
    panels[title] = (split.weights[rows, columns].tolist(), split.route[rows, columns].tolist())
show(
    split_figure(panels, LOW, HIGH),
    "Two scatter plots of route part against weights part, a dot per token, after one update. "
    "Tokens that kept their experts lie along the horizontal axis; those with another expert "
    "are spread more widely up and down, many beyond the slanted lines of GRPO's range.",
)
other = inside & split.changed
assert rms(split.route, other) > 3 * rms(split.route, inside & ~split.changed)
assert rms(split.route, other) > rms(split.weights, other)

# %% [markdown]
r"""
**How to read it.** Left and right is what the weights did, up and down what the routes did; beyond
the slanted lines the ratio is out of range. The same kind of tokens, the same update, but on the
right-hand side a second cause has come in, and it is the larger one. The last column of the table
is the counter-test: the same tokens on their old routes leave hardly more often than others do. So
it is the change of route that throws them out, not a peculiarity of these tokens.

**Try it.** The answer from the picture in section 4, after each of the four updates: all 32 experts
as rows, the tokens as columns, and below them the ratios. Find a token with a new expert and watch
the lines of its router logits cross. Then have the old experts *replayed*. Which ratios return to
the range, and which stay away because the weights have moved them?
"""

# %% tags=["nbval-ignore-output"]
record = route_record(moments[0], studies[0][0], row)
routes = Routes(record)
display(routes)

# %%
held = Routes(record, update=4, replay=True)
assert held.drift == 0
assert torch.allclose(torch.tensor(held.ratios), weights_part[row, :length].exp(), atol=1e-4)
print("with the old experts replayed, a ratio is the exponential of its weights part alone")

# %% [markdown]
r"""
**Is that learning?** A ratio *should* move: up for good answers, down for bad ones. Multiply each
answer's mean log-ratio with its advantage and average. That is positive if the change goes in the
direction of the reward. Both parts can be asked.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "07 is it learning",
    "For the weights part the mean of A · log r comes out clearly positive after four updates: the "
    "policy learns. And for the route part?",
    {
        "a": "about as positive: which expert serves a token is learned like everything else",
        "b": "clearly negative: it works against the learning",
        "c": "close to zero: less than a quarter of the other",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
print("after four updates      spread over tokens (rms)     mean of A · log r (standard error)")
print("                           route   weights               route            weights")
pulls = {}
for seed, (rollout, advantages, _, _, splits) in studies.items():
    split, inside = splits[-1], rollout.mask
    parts = (split.route, split.weights)
    sizes = [rms(part, inside) for part in parts]
    pulls[seed] = [mean_pull(part, advantages, inside) for part in parts]
    cells = "   ".join(f"{mean:+.4f} ± {error:.4f}" for mean, error in pulls[seed])
    print(f"seed {seed} {sizes[0]:25.3f} {sizes[1]:9.3f}       {cells}")
    (route, _), (weights, error) = pulls[seed]
    assert weights > 3 * error
    assert abs(route) < weights / 2
    assert sizes[0] > sizes[1] / 5

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
sums = [sum(pull[part][0] for pull in pulls.values()) for part in (0, 1)]
assert abs(sums[0]) < sums[1] / 4
reconcile(
    "07 is it learning",
    "c",
    f"over the three seeds the route part pulls {sums[0] / sums[1]:+.0%} of what the weights do.",
    {
        "a": "its spread is a good part of the other one, its pull is not. The router is learned, "
        "but which near ties flip in a single update is mostly by-product.",
        "b": "it scatters in both directions; little of it points either way.",
    },
)

# %% [markdown]
r"""
This is what "the ratio jumps because of the route, not because of learning" means, in numbers: the
route part brings much spread into the ratios, and next to no movement in the direction of the
reward. The ratio cannot tell the two apart. GRPO clips, or weights, by the sum.

A saying has it that under drift one trains *a different model on different data at every step*.
With the numbers of this lesson one can judge it: it points at something real, and it exaggerates.
After the first rollout an update left nineteen of twenty slots as they were.

## 6 · Smaller steps are no cure

The obvious remedy is a smaller learning rate. So we go only a part of the way from the old weights
to the new ones, and split again.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "07 smaller steps",
    "One sixteenth of the way. The weights part shrinks to about one sixteenth. The route part?",
    {
        "a": "to one sixteenth as well",
        "b": "to about a quarter",
        "c": "to zero: so small a step changes no expert",
        "d": "not at all: a jump is a jump",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
fractions = [1 / 2**n for n in range(7)]
sizes = {"route": [0.0] * 7, "weights": [0.0] * 7, "tokens": [0.0] * 7, "jump": [0.0] * 7}
for seed, (rollout, _, _, start, _) in studies.items():
    end, there = trainers[seed].model.state_dict(), copy.deepcopy(trainers[seed].model)
    for at, fraction in enumerate(fractions):
        there.load_state_dict({n: start[n] + fraction * (end[n] - start[n]) for n in start})
        split, inside = split_log_ratio(there, rollout), rollout.mask
        sizes["route"][at] += rms(split.route, inside) / 3
        sizes["weights"][at] += rms(split.weights, inside) / 3
        sizes["tokens"][at] += split.changed[inside].float().mean().item() / 3
        sizes["jump"][at] += rms(split.route, inside & split.changed) / 3
print("part of    weights     route    tokens with     route part")
print("the way       part      part    other experts   of those tokens")
for at, fraction in enumerate(fractions):
    w, r, t, j = (sizes[name][at] for name in ("weights", "route", "tokens", "jump"))
    print(f"1/{1 / fraction:<4.0f} {w:12.4f} {r:9.4f} {t:12.2%} {j:15.3f}")


def slope(values):
    """Mean slope in the double-log picture over the six halvings."""
    return math.log(values[0] / values[-1]) / math.log(fractions[0] / fractions[-1])


slopes = {name: slope(values) for name, values in sizes.items()}
print("\nexponent of the step: " + ", ".join(f"{n} {s:.2f}" for n, s in slopes.items()))
assert 0.85 < slopes["weights"] < 1.1
assert 0.35 < slopes["route"] < 0.75
assert abs(slopes["jump"]) < 0.3
assert sizes["route"][0] < sizes["weights"][0]
assert sizes["route"][-1] > sizes["weights"][-1]

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
kept = [sizes[name][4] / sizes[name][0] for name in ("route", "weights")]
assert 0.12 < kept[0] < 0.4
assert kept[1] < 0.1
reconcile(
    "07 smaller steps",
    "b",
    f"to {kept[0]:.2f} of its size, while the weights part fell to {kept[1]:.3f}.",
    {
        "a": "a smooth change would. This one consists of jumps.",
        "c": f"with this step still {sizes['tokens'][4]:.1%} of the tokens have another expert: "
        "some ties are very near.",
        "d": "each jump keeps its size, but fewer tokens jump.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    step_figure(fractions, sizes["route"], sizes["weights"]),
    "Double-log plot over fractions of the way from 1/64 to 1. The weights part falls in "
    "proportion to the step, the route part only like its square root; below about a quarter of "
    "the way the route part is the larger one.",
)

# %% [markdown]
r"""
**How to read it.** A straight line in this picture is a power law. The weights part has slope 1:
half the step, half the change. The route part has a slope of about one half, and the table shows
why. The *number* of tokens that jump is proportional to the step, since margins lie about evenly
near zero. The *size* of a jump does not shrink: it is the difference between two experts, at full
gate. A mean square is number times squared size, so its root goes like $\sqrt{\text{step}}$.

Two consequences. With a smaller learning rate there is less noise from routes, but *relative* to
the learning there is more: at a quarter of these steps the routes make up half of a token ratio's
spread and more. And even two engines with the same weights, which differ by rounding only, will
disagree on some routes. A dense model has none of this: it has no routes, and its route part is
zero.

## 7 · What is shown, and what is not

*Arithmetic:* top-k routing jumps at a tie; log r is the sum of two parts; drift per rollout never
exceeds the sum of the drifts per update.

*Measured here,* in one setting (two layers, 32 experts, a large learning rate, three seeds): near
ties change; a changed expert throws token ratios out of GRPO's range several times as often; the
route part carries spread but hardly any learning; it shrinks like the root of the step.

*Not shown:* that this harms training. Noise in the ratio is a reason to expect harm; whether the
reward suffers, and how much of it GSPO or Routing Replay avoids, needs runs with many seeds. The
GSPO paper reports that GRPO did not converge on its mixture of experts without Routing Replay. That
is a result of its authors, on their models. Lessons 08 and 09 look at the tiny one.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    1 / (1 + math.exp(0.8 - 0.5)),
    [
        (
            math.exp(0.5) / sum(map(math.exp, (0.8, 0.5, 0.4, -1))),
            "That is the softmax over all four. Only the chosen two share the gate.",
        ),
        (1 / (1 + math.exp(0.5 - 0.8)), "That is the gate of the first expert."),
        (0.5, "The gates follow the logits; equal gates need equal logits."),
    ],
)
question_2 = (
    1 / 6,
    [
        (3 / 6, "Order within a layer does not count: {2, 9} and {9, 2} are the same choice."),
        (1 / 3, "One of three layers has changed, but only one of its two experts."),
        (5 / 6, "Drift counts the slots that changed, not those that stayed."),
        (1.0, "That says that the token is touched. Drift counts its slots."),
    ],
)
question_3 = (
    math.exp(0.3),
    [
        (math.exp(0.4), "That is the whole ratio. Part of it comes from the weights."),
        (math.exp(0.1), "That is the weights part: log-prob on the old routes minus the old one."),
        (0.3, "That is the route part of log r. By which factor is r multiplied?"),
        (math.exp(-0.3), "The sign: live routes minus old routes is -0.6 - (-0.9)."),
    ],
)

# %% [markdown]
r"""
**1.** Four experts, top-2, router logits 0.8, 0.5, 0.4 and −1. What is the gate of the second
chosen expert?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** A token goes through three layers with two experts each. Before: {2, 9}, {0, 4}, {5, 7}.
After: {9, 2}, {0, 4}, {7, 1}. What is its drift?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** A token had the log-prob −1.0 when it was sampled. Now it has −0.6; with the old routes
replayed it would have −0.9. By which factor has the change of routes alone multiplied its ratio?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 06: 2 · 1.1 / (4 · 5) = {warm_up_1[0]:.4f}")
print(f"From lesson 04: 6² / 12 = {warm_up_2[0]:.4f}")
print(f"1. exp(0.5) / (exp(0.8) + exp(0.5)) = {question_1[0]:.4f}")
three_before = torch.tensor([[2, 9], [0, 4], [5, 7]])
three_after = torch.tensor([[9, 2], [0, 4], [7, 1]])
print(f"2. one slot of six: {drift(three_after, three_before):.4f}")
print(f"3. exp(-0.6 - (-0.9)) = {question_3[0]:.4f}")
assert math.isclose(drift(three_after, three_before), question_2[0], rel_tol=1e-6)

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("07")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=7))

# %% [markdown]
r"""
## What comes next

[Lesson 08](08_the_experiment.ipynb) asks what all this does to the reward: GRPO against GSPO, over
many seeds. [Lesson 09](09_routing_replay.ipynb) turns the instrument of this lesson into a method:
replay the old routes in every update. What does it cost, and what does it hide?

**Sources.** The mixture: Shazeer et al.; the 10 %: section 5.3 of the GSPO paper; a method that
weighs tokens by how far their routes moved: RSPO.
"""

# %%
for key in ("sparsely_gated", "switch", "qwen3", "gspo", "rspo"):
    print(source(key))
