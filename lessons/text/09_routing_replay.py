# %% [markdown]
r"""
# 09 · Routing Replay

In lesson 07 token ratios jumped because experts changed. **Routing Replay** stops the jumps at the
root: write down which experts $\pi_\text{old}$ took, and use the same ones whenever a ratio is
computed. It is one line of code, and it has a price. GSPO's authors say that their method can do
without it. This lesson takes both apart.

**Afterwards you can**

- write Routing Replay, and compute the memory it takes for a model of any size;
- say what it fixes and what stays free, and where a careless version kills a gradient silently;
- compute how far a few jumping tokens move a sequence ratio, and judge what that forgives.

**You need** lessons 05 (sequence ratio) and 07 (drift, the two parts). **Time:** 35 minutes. One
cell trains, for about half a minute.
"""

# %% jupyter={"source_hidden": true}
import copy
import math
import sys
from dataclasses import replace

import torch
import torch.nn.functional as F
from IPython.display import display
from tqdm import tqdm

from gspo_edu.advantages import group_advantages
from gspo_edu.batch import mini_batch_rows
from gspo_edu.bibliography import source
from gspo_edu.config import PRESETS, TrainConfig, read_toml
from gspo_edu.figures import per_rollout
from gspo_edu.glossary import table
from gspo_edu.initial import initial_policy
from gspo_edu.moe import drift, replay_gates
from gspo_edu.plots import BLUE, VERMILION, show
from gspo_edu.predictions import predict, reconcile, say, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.ratios import sequence_log_ratio
from gspo_edu.route_figures import arms_figure, forgiveness_figure
from gspo_edu.route_split import changed_tokens, rms, split_log_ratio
from gspo_edu.sampler import answer_log_probs, sampled_rollout
from gspo_edu.stored_studies import stored_study
from gspo_edu.trainer import Trainer
from gspo_edu.verdict_rules import FAILS, HOLDS, OPEN
from gspo_edu.verdicts import finding

# %% [markdown]
r"""
## Two questions from before

**From lesson 07.** A model has 48 layers with 8 experts per token in each. An update changes 5 % of
the slots. How many of a token's slots change on average? (The folded cell holds what your answers
are compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    48 * 8 * 0.05,
    [
        (48 * 0.05, "That counts layers. Each has eight slots."),
        (8 * 0.05, "That is one layer."),
        (1 - 0.95 ** (48 * 8), "That is the chance that any of them changes."),
    ],
)
warm_up_2 = (
    1.5 ** (10 / 200),
    [
        (1.5**10, "That is the product. Take its 200th root."),
        ((190 + 10 * 1.5) / 200, "That is the arithmetic mean. Take the geometric one."),
        (1.5, "The 190 ratios of 1 count in the length."),
        (1.5 ** (1 / 200), "Ten tokens have the ratio 1.5, not one."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 05.** An answer has 200 tokens: 190 ratios of 1 and ten of 1.5. What is its sequence
ratio s?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · One line

Here is the layer of lesson 07 again, token by token, with one line changed: if a route is given,
the router is not asked *whom* to choose. It still says *how much* each counts.
"""

# %% tags=["nbval-ignore-output"]
stormy = read_toml(PRESETS / "stormy.toml")
config = TrainConfig(**stormy, objective="grpo", seed=0, eval_every=0, eval_prompts=32)
policy, task, card = initial_policy(config)
moe = policy.blocks[0].moe


def mixture(x, moe, route=None):
    """(S, width) -> the same; route (S, K) are experts to use, None lets the router choose."""
    out = []
    for t in range(len(x)):
        logits = moe.router.weight @ x[t]
        experts = logits.topk(2).indices if route is None else route[t]
        gates = logits[experts].softmax(dim=0)
        parts = 0
        for gate, e in zip(gates, experts, strict=True):
            a, b = (x[t] @ moe.gate_up[e]).chunk(2)
            parts = parts + gate * (F.silu(a) * b) @ moe.down[e]
        out.append(parts)
    return torch.stack(out)


dice = torch.Generator().manual_seed(0)
x = torch.randn(40, 48, generator=dice)
old_route = moe(x + 0.05 * torch.randn(40, 48, generator=dice))[1]  # another time, other choices
with torch.no_grad():
    live_route = moe(x)[1]
    assert torch.allclose(mixture(x, moe), moe(x)[0], atol=1e-5)
    assert torch.allclose(mixture(x, moe, old_route), moe(x, old_route)[0], atol=1e-5)
print(f"drift between the two routes: {drift(live_route, old_route):.1%} of the slots")
assert 0.03 < drift(live_route, old_route) < 0.3

# %% [markdown]
r"""
In the package the record is a `RouteTrace`. The sampler writes one while it samples, and
`answer_log_probs(policy, rollout, replay=trace)` computes log-probs along it. To train with it:
`--replay r2` or `--replay r3` on the command line.

## 2 · What is kept, and what it weighs

A **route trace** holds the numbers of the chosen experts, per token and layer. No gates, no scores,
no hidden states.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "09 bytes",
    "A model with 48 layers, 128 experts and 8 of them per token (the shape of Qwen3-30B-A3B). How "
    "many bytes does its trace take per token, if each number takes as few whole bytes as it can?",
    {
        "a": "8",
        "b": "48",
        "c": "384",
        "d": "6144",
    },
    my_guess,
)

# %%
dice = torch.Generator().manual_seed(99)
rollout = sampled_rollout(policy, task, task.random_prompts(32, dice), 8, generator=dice)
trace = rollout.routes
positions = trace.prompt.shape[:2].numel() + trace.answer.shape[:2].numel()
layers, top_k = trace.answer.shape[2:]
assert trace.nbytes == positions * layers * top_k * 2  # int16


def bytes_per_token(layers, top_k, width):
    """Each slot holds one number of ``width`` bytes."""
    return layers * top_k * width


print(f"here: {layers} layers of {top_k}, int16: {bytes_per_token(layers, top_k, 2)} bytes a token")
big = {width: bytes_per_token(48, 8, width) for width in (1, 2, 4)}
tokens = 64 * 16 * 8000
print(f"\n48 layers of 8; a rollout of 64 prompts, 16 answers each, 8000 tokens: {tokens} tokens")
for width, each in big.items():
    print(f"{width} byte(s) per number: {each:5} bytes per token, {each * tokens / 1e9:6.2f} GB")
print(f"for comparison, the log-probs (4 bytes each): {4 * tokens / 1e9:.3f} GB")
assert big == {1: 384, 2: 768, 4: 1536}
assert math.isclose(big[2] * tokens, 6.291456e9)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "09 bytes",
    "c",
    f"48 · 8 = {big[1]} numbers, and one byte holds 128 experts. That is {big[1] / 4:.0f} times a "
    "log-prob.",
    {
        "a": "that is one layer. Each layer has its own router.",
        "b": "that would be one expert per layer; there are eight.",
        "d": f"48 · 128 = {48 * 128} is the number of router scores. Only the chosen are kept.",
    },
)

# %% [markdown]
r"""
Gigabytes, where log-probs take some tens of megabytes: not prohibitive, but no longer free either.
And they travel: from the engine that generates to the one that trains, and there to whichever
device holds a layer. (Engines offer the record by now: vLLM returns it as int16, one row per token
but the last, in pull request 28284.) The GSPO paper names two costs of replay: memory and
communication, and that it may limit the model's actual capacity (section 5.3, its authors' words in
short). The second is about learning; section 5 below looks at what is behind it.

## 3 · R2 and R3: whose routes?

Two routes can be called "old":

- **R2** replays those that the *training* engine finds when it computes $\log\pi_\text{old}$;
- **R3** replays those that the *generating* engine took while it sampled.

Here one engine does both, so they must be the same. We check that, and then build a second engine:
the same weights in bfloat16.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "09 same weights",
    "A copy of the policy with the same weights, only stored and computed in bfloat16, reads the "
    "same answers. For which share of the tokens does it choose another expert in some layer?",
    {
        "a": "none: same weights, same routes",
        "b": "a few in a hundred",
        "c": "about half of them",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
inside = rollout.mask
with torch.no_grad():
    trainer_side = answer_log_probs(policy, rollout)
    other_engine = copy.deepcopy(policy).bfloat16()
    rounded = answer_log_probs(other_engine, rollout)
    rounded_replayed = answer_log_probs(other_engine, rollout, replay=trace)

r2_r3 = drift(trainer_side.routes.answer, trace.answer).item()
print(f"one engine:  R2 and R3 differ in {r2_r3:.2%} of the slots, ", end="")
print(f"log-probs by at most {(trainer_side.logp - rollout.logp_old).abs().max():.0e}")
other = changed_tokens(rounded.routes.answer, trace.answer)[inside].float().mean().item()
apart = rms(rounded.logp.float() - rollout.logp_old, inside)
replayed = rms(rounded_replayed.logp.float() - rollout.logp_old, inside)
print(f"two engines: {other:.1%} of the tokens take another expert somewhere")
print(f"             log-probs apart by {apart:.3f} (rms), with replay {replayed:.3f}")
# A tie nearer than rounding may fall either way even within one engine.
assert r2_r3 < 0.001
assert 0.005 < other < 0.15
assert replayed < apart

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "09 same weights",
    "b",
    f"{other:.1%}, from rounding alone: near ties again.",
    {
        "a": "rounding moves a router logit in its third digit. For a near tie that is enough.",
        "c": "not with two layers. But every layer adds its own near ties; see below.",
    },
)

# %% [markdown]
r"""
So even before the first update, with identical weights, ratios are not 1 if one engine samples and
another one trains, and routes have a large part in that: replay brings the distance down to that of
plain rounding. This is what R3 was made for (Ma et al., arXiv 2510.11370). They report that about
10 % of the routers decide differently between two such engines, and that about 94 % of the tokens
have at least one other expert. Does that fit together?
"""

# %%
independent = 1 - 0.9**48
print(f"48 layers, each differs with 10 %, if independent: {independent:.1%} of the tokens")
assert f"{independent:.3f}" == "0.994"

# %% [markdown]
r"""
99 % if layers were independent, 94 % reported: close enough to fit. (Layers need not be
independent; where disagreements come together, fewer tokens are touched.) The other half of the
story, engines that disagree, is a subject of its own; from here on there is one engine again.

## 4 · The router still learns

Replay fixes *who* computes. The **gates** are computed anew, from the router's present logits over
the old experts. Does the router get a gradient then?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "09 router",
    "With replay, what is the gradient of the router's weights?",
    {
        "a": "zero: its choice is not used, so it is frozen",
        "b": "not zero, through the gates",
        "c": "not zero, but only for tokens whose live choice equals the replayed one",
        "d": "zero in this rollout; it catches up in the next",
    },
    my_guess,
)

# %% [markdown]
r"""
We ask autograd, for the layer of section 1 and four ways of making the gates.
"""


# %% tags=["nbval-ignore-output"]
def gates_of(kind, logits, experts):
    """(S, K) gates of the given experts."""
    if kind == "live, no replay":
        experts = logits.detach().topk(2).indices
    if kind == "from zeroed scores":
        # What a library has at hand after top-k: all scores outside the live top 2 are 0.
        best = logits.softmax(dim=-1)
        keep = torch.zeros_like(best).scatter(1, logits.topk(2).indices, 1.0)
        scores = (best * keep).gather(1, experts)
        return scores / scores.sum(dim=1, keepdim=True).clamp(min=1e-9), experts
    gates = logits.gather(1, experts).softmax(dim=-1)
    return (gates.detach() if kind == "copied" else gates), experts


changed_slots = ~(old_route.unsqueeze(-1) == live_route.unsqueeze(-2)).any(dim=-1)
direction = torch.randn(40, 48, generator=torch.Generator().manual_seed(1))
print("gates                 router's gradient   gates that are exactly 0")
found = {}
for kind in ("live, no replay", "replay", "copied", "from zeroed scores"):
    logits = (x @ moe.router.weight.T).detach().requires_grad_()
    gates, experts = gates_of(kind, logits, old_route)
    a, b = torch.einsum("sw,skwf->skf", x, moe.gate_up[experts]).chunk(2, dim=-1)
    each = torch.einsum("skf,skfw->skw", F.silu(a) * b, moe.down[experts])
    out = (gates.unsqueeze(-1) * each).sum(dim=1)
    loss = (out * direction).sum()
    (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
    size = 0.0 if gradient is None else gradient.norm().item()
    zeros = int((gates == 0).sum())
    found[kind] = (size, zeros)
    print(f"{kind:22}{size:13.3f}{zeros:20} of {gates.numel()}")
    if kind == "replay":
        assert torch.allclose(gates, replay_gates(logits, experts))
        assert torch.allclose(out, moe(x, old_route)[0], atol=1e-4)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert found["replay"][0] > found["live, no replay"][0] / 2
assert found["copied"][0] == 0
assert found["from zeroed scores"][1] == int(changed_slots.sum()) > 0
assert found["replay"][1] == 0
reconcile(
    "09 router",
    "b",
    "of about the same size as without replay.",
    {
        "a": "that is what happens if the gates are copied along with the experts (third line).",
        "c": "that comes close to a fault that real code has had, the fourth line.",
        "d": "the gates depend on the router in every forward pass.",
    },
)

# %% [markdown]
r"""
Three lessons in one table.

- **Replay with live gates** (second line) trains the router about as much as no replay does. What
  it cannot learn from is a choice that it would make now and that was not made then.
- **Copied gates** (third line) freeze the router. Some summaries describe replay like that; the
  engines that offer it recompute gates from the live router (for example NVIDIA's NeMo Automodel,
  pull request 2797).
- **Gates gathered from zeroed scores** (fourth line): after top-k a library often has scores in
  which all losers are 0. Looking up an old expert there gives exactly 0 whenever it is no longer
  among the live ones. That expert then neither counts nor learns, and nothing complains. A fork of
  Megatron-LM has a mend for just that, with a test (pull request 79).

With top-1 routing there is one more trap: a single gate, normalised over one expert, is always 1,
and the router gets no gradient even without replay. Our `ModelConfig` refuses that combination.

## 5 · What replay hides

Replay takes the route part out of the ratio. Does it take it out of the *policy*? Four updates with
replay in a fifth rollout, and then the split of lesson 07:
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "09 the next rollout",
    "After four updates with replay, the policy samples its next rollout, with its own routes. How "
    "large is the difference between its own log-probs and the replayed ones that training saw?",
    {
        "a": "zero: they are the same weights",
        "b": "small, since replay keeps the router from drifting",
        "c": "about as large as the route part in training without replay",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
SEEDS = (0, 1, 2)


def after_four_updates(how, seed):
    """Drift per rollout, and rms of route part and weights part, in the fifth rollout."""
    own = replace(config, replay=how, seed=seed)
    trainer = Trainer(own, *initial_policy(own)[:2])
    for _ in range(4):
        trainer.next_rollout()
    dice = torch.Generator().manual_seed(99)
    shown = sampled_rollout(trainer.model, task, trainer.training_prompts(), 16, generator=dice)
    advantages = group_advantages(shown.rewards, shown.group)
    for rows in mini_batch_rows(shown.group, 4, trainer.order):
        trainer.one_update(shown.rows(rows), advantages[rows])
    split = split_log_ratio(trainer.model, shown)
    drifted = drift(split.routes.answer, shown.routes.answer).item()
    return drifted, rms(split.route, shown.mask), rms(split.weights, shown.mask)


print("after four updates of the fifth rollout     (rms over tokens)")
print("replay   seed   drift per rollout   route part   weights part")
mean = {}
for how in ("none", "r2"):
    found = [after_four_updates(how, seed) for seed in SEEDS]
    for seed, (drifted, route, weights) in zip(SEEDS, found, strict=True):
        print(f"{how:8} {seed:4} {drifted:19.1%} {route:12.3f} {weights:14.3f}")
    mean[how] = [sum(values) / len(SEEDS) for values in zip(*found, strict=True)]
assert 0.6 < mean["r2"][0] / mean["none"][0] < 1.6
assert 0.5 < mean["r2"][1] / mean["none"][1] < 2

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "09 the next rollout",
    "c",
    f"{mean['r2'][1]:.3f} with replay, {mean['none'][1]:.3f} without, on average.",
    {
        "a": "the same weights, but other experts: that is the route part.",
        "b": f"the live choices drift as before, by {mean['r2'][0]:.1%} per rollout (without "
        f"replay {mean['none'][0]:.1%}). Replay does not hold the router; "
        "it does not listen to it.",
    },
)

# %% [markdown]
r"""
So replay does not remove the jumps. It removes them from the *ratio*: clipping and weighting see
the weights part alone, which is the part that carries the learning (lesson 07, section 5). The
route part is still there and becomes real as soon as the policy samples again. In other words, the
update optimises a model that is slightly not the one that will be used: the new weights on old
routes. Dong et al. (arXiv 2606.00395) call it router staleness, and it is one way to read the GSPO
paper's remark on capacity: within a rollout the policy may not use the experts that it would choose
now.

## 6 · A trace can be wrong

A trace is a table of small integers. A wrong one often looks like a right one, and the run goes on.
Four faults that real code has had, each tried here.
"""


# %% tags=["nbval-ignore-output"]
def refused(changed, mask=rollout.mask):
    """What ``check`` says about a trace."""
    try:
        changed.check(policy.config, mask, rollout.prompts)
        return "accepted"
    except ValueError as error:
        return str(error)


twice = trace.answer.clone()
twice[3, 1, 1] = 7  # both slots
holes = trace.answer.clone()
holes[2, 0, 0] = -1
tries = {
    "the trace as it is": trace,
    "the same expert twice for one token": replace(trace, answer=twice),
    "an expert missing in the middle": replace(trace, answer=holes),
    "layers 1 and 2 in place of 0 and 1": replace(trace, layers=(1, 2)),
    "one token short": replace(trace, answer=trace.answer[:, :-1]),
    "two tokens short": replace(trace, answer=trace.answer[:, :-2]),
}
answers = {what: refused(changed) for what, changed in tries.items()}
for what, answer in answers.items():
    print(f"{what}:\n   {answer}")
assert [answer == "accepted" for answer in answers.values()] == [True, *[False] * 3, True, False]

# %% [markdown]
r"""
- **Twice the same expert** counts one of them double and silences another.
- **Layers shifted**: if some layers are dense, "the second record" and "layer 2" are different
  things. So a trace carries its layer numbers.
- **One token short is right**: the last sampled token is never fed back into the model, and engines
  differ in whether they record it. One is accepted by rule and chosen live, two are an error.

The fourth fault is in the padding. Expert 0 is a valid expert; a pad that says 0 says "expert 0
served this token". Watch what that does to the drift.
"""

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    moved = copy.deepcopy(policy)
    noise = torch.Generator().manual_seed(2)
    for block in moved.blocks:
        block.moe.router.weight += 0.05 * torch.randn(32, 48, generator=noise)
    now = answer_log_probs(moved, rollout).routes.answer
right = drift(now, trace.answer).item()
zeros = drift(now.clamp(min=0), trace.answer.clamp(min=0)).item()
share = rollout.mask.float().mean().item()
print(f"drift, padding marked with -1: {right:.2%}")
print(f"drift, padding filled with 0:  {zeros:.2%}   (only {share:.0%} of the places are tokens)")
assert math.isclose(zeros, right * share, rel_tol=1e-3)

# %% [markdown]
r"""
The pads agree with each other, so they dilute the drift. As *routes* they would send padding to
expert 0 and load it.

One more rule, which no check of a trace can see: replay concerns the policy being trained, and
nobody else. A critic, a teacher or a reference policy has routers of its own.

## 7 · How much does a geometric mean forgive?

Now to GSPO, which has no replay. Let a share $q$ of an answer's $L$ tokens jump: their log-ratio
moves by $j$, up or down at random; the others stay. The sequence ratio averages, so

$$\operatorname{std}(\log s) = j\,\sqrt{\frac{q}{L}}, \qquad
\text{but if all jump in one direction:}\quad \log s = q\,j .$$

Take $j = 0.3$, a ratio of 1.35 or of 1/1.35, about what lesson 07 measured for tokens with another
expert.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "09 ten percent",
    "An answer of 1000 tokens. One hundred of them jump by 1.35, up or down at random. By how much "
    "does that move s, typically?",
    {
        "a": "by 35 %",
        "b": "by 3 %",
        "c": "by 0.3 %",
        "d": "by 0.03 %",
    },
    my_guess,
)

# %%
JUMP, LENGTHS, SHARES = 0.3, (10, 30, 100, 300, 1000), (0.01, 0.05, 0.10)


def simulated(length, share, answers=20_000):
    """(answers,) log s if each token jumps with probability ``share``, up or down."""
    dice = torch.Generator().manual_seed(length)
    tokens = torch.full((answers,), float(length))
    jumping = torch.binomial(tokens, torch.full_like(tokens, share), generator=dice)
    up = torch.binomial(jumping, torch.full_like(tokens, 0.5), generator=dice)
    return JUMP * (2 * up - jumping).double() / length


print("one standard deviation of log s           product without root   all in one direction")
print("length       1 %      5 %     10 %             1 %    10 %            1 %     10 %")
for length in (10, 100, 1000):
    cells = [JUMP * math.sqrt(share / length) for share in SHARES]
    for share, cell in zip(SHARES, cells, strict=True):
        assert math.isclose(simulated(length, share).std().item(), cell, rel_tol=0.05)
    product = [length * cells[0], length * cells[2]]
    line = f"{length:6} " + "".join(f"{cell:9.4f}" for cell in cells)
    line += f"{product[0]:16.2f} {product[1]:7.2f}"
    print(line + "".join(f"{JUMP * share:{width}.4f}" for share, width in ((0.01, 15), (0.1, 9))))

# %% tags=["reconcile"] jupyter={"source_hidden": true}
ten_percent = JUMP * math.sqrt(0.1 / 1000)
assert f"{ten_percent:.4f}" == "0.0030"
reconcile(
    "09 ten percent",
    "c",
    f"0.3 · √(0.1 / 1000) = {ten_percent:.4f}.",
    {
        "a": "that is one token's ratio.",
        "b": f"0.1 · 0.3 = {0.1 * JUMP:.2f} would need all jumps to go in one direction.",
        "d": f"0.3 / 1000 = {JUMP / 1000:.4f} is what a single jump does.",
    },
)

# %% [markdown]
r"""
That is the forgiveness: a tenth of the tokens jumps by a third, and $s$ moves by three per mille.
The product of the ratios moves the more, the *longer* the answer; the geometric mean moves the
less. It is the averaging of *random signs* that does it. Jumps in one direction are not forgiven:
they move $s$ by $qj$ at any length.

And now the other half. How does three per mille compare with GSPO's range?
"""

# %% tags=["nbval-ignore-output"]
GSPO_LOW, GSPO_HIGH = 3e-4, 4e-4
print("answers outside GSPO's range from jumps alone (weights do not move at all)")
print("length       1 %      5 %     10 %")
outside = {}
for length in (10, 100, 1000):
    for share in SHARES:
        s = simulated(length, share).exp()
        out = ((s < 1 - GSPO_LOW) | (s > 1 + GSPO_HIGH)).float().mean().item()
        outside[length, share] = out
    print(f"{length:6} " + "".join(f"{outside[length, share]:9.0%}" for share in SHARES))
assert 0.5 < outside[1000, 0.1] < 0.97
assert outside[1000, 0.01] > 0.3

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    forgiveness_figure(
        LENGTHS,
        {
            f"{share:.0%} of the tokens jump": [JUMP * math.sqrt(share / n) for n in LENGTHS]
            for share in SHARES
        },
        GSPO_HIGH,
        "GSPO's upper bound, 4e-4",
    ),
    "Standard deviation of log s against the answer's length, for 1, 5 and 10 per cent of jumping "
    "tokens: three falling lines, from 0.01 to 0.03 at ten tokens down to 0.001 to 0.003 at a "
    "thousand, all above the level of GSPO's upper bound.",
)

# %% [markdown]
r"""
**How to read it.** All lines fall like $1/\sqrt L$; at a thousand tokens they are still above
GSPO's bound. So the two halves are:

- in the *size* of a gradient weight, $sA/(GL)$, route jumps hardly count: 0.3 % in the last corner
  of the table, while GRPO gives a tenth of the tokens a weight that is off by a third;
- in the *decision* whether an answer is clipped they count a lot. The range is so narrow that
  jumps alone put most long answers outside it. About half of those have the wrong sign for
  being clipped. But whether a given answer is silenced is then, in part, decided by routes.

"GSPO tolerates changed experts" is right about the first and silent about the second. Now the real
thing: the split of section 5, without replay, per answer.
"""

# %% tags=["nbval-ignore-output"]
trainer = Trainer(config, *initial_policy(config)[:2])
for _ in range(4):
    trainer.next_rollout()
dice = torch.Generator().manual_seed(7)
shown = sampled_rollout(trainer.model, task, trainer.training_prompts(), 32, generator=dice)
advantages = group_advantages(shown.rewards, shown.group)
for rows in mini_batch_rows(shown.group, 4, trainer.order):
    trainer.one_update(shown.rows(rows), advantages[rows])
split = split_log_ratio(trainer.model, shown)
mean_route = sequence_log_ratio(split.route, torch.zeros_like(split.route), shown.mask)
print("answers of     how many   route part of log r   of log s, measured   if independent")
factors = []
for low, high in ((4, 8), (8, 14), (14, 31)):
    here = (shown.lengths >= low) & (shown.lengths < high)
    one_token = rms(split.route[here], shown.mask[here])
    measured = mean_route[here].std().item()
    expected = one_token * (1 / shown.lengths[here].float()).mean().sqrt().item()
    factors.append(measured / expected)
    where = f"{low} to {high - 1}"
    print(f"{where:>8} {int(here.sum()):13} {one_token:18.3f} {measured:20.4f} {expected:17.4f}")
    assert measured < 0.9 * one_token
    assert 0.6 < factors[-1] < 2.5

# %% [markdown]
r"""
The averaging works on real answers, too. Where the measured value is above the one for independent
jumps, jumps within an answer go together: one changed expert early on is felt by what follows.

## 8 · GSPO does not hold experts still

One press report explains GSPO's stability by *consistent expert activations*. That can be checked.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "09 consistent",
    "Same start, same seeds, GRPO and GSPO, no replay. How does the drift per rollout under GSPO "
    "compare with GRPO's?",
    {
        "a": "close to zero: GSPO keeps its experts",
        "b": "about the same",
        "c": "about half of it: one ratio per answer makes smaller steps",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
ROLLOUTS = 6
ARMS = {
    "GRPO": ("grpo", "none"),
    "GRPO + R2": ("grpo", "r2"),
    "GSPO": ("gspo", "none"),
    "GSPO + R2": ("gspo", "r2"),
}
SHOWN = ("reward", "drift_per_rollout", "token_log_ratio_std")
arms = {name: [] for name in ARMS}
bar = "{desc} {bar:30} {n_fmt}/{total_fmt} runs"
jobs = [(name, seed) for name in ARMS for seed in SEEDS]
for name, seed in tqdm(jobs, desc="training", bar_format=bar, file=sys.stdout):
    objective, how = ARMS[name]
    own = replace(config, objective=objective, replay=how, seed=seed)
    trainer = Trainer(own, *initial_policy(own)[:2])
    records = [record for _ in range(ROLLOUTS) for record in trainer.next_rollout()]
    arms[name].append({metric: per_rollout(records, metric) for metric in SHOWN})

print("\nmeans over the run         reward of the   drift per   std of the token")
print("              seed          last two          rollout      log-ratio")
means = {name: [] for name in ARMS}
for name, seeds in arms.items():
    for seed, found in zip(SEEDS, seeds, strict=True):
        end = sum(found["reward"][-2:]) / 2
        drifted, spread = (sum(found[m]) / ROLLOUTS for m in SHOWN[1:])
        means[name].append((drifted, spread))
        print(f"{name:14} {seed:3} {end:17.3f} {drifted:16.1%} {spread:14.3f}")
assert all(0 < x < 1 for runs in arms.values() for run in runs for x in run["reward"])

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
drifted = {name: sum(value for value, _ in seeds) / 3 for name, seeds in means.items()}
spread = {name: sum(value for _, value in seeds) / 3 for name, seeds in means.items()}
assert 0.6 < drifted["GSPO"] / drifted["GRPO"] < 1.6
assert spread["GRPO + R2"] < spread["GRPO"]
assert spread["GSPO + R2"] < spread["GSPO"]
reconcile(
    "09 consistent",
    "b",
    f"{drifted['GSPO']:.1%} under GSPO, {drifted['GRPO']:.1%} under GRPO.",
    {
        "a": "nothing in the objective looks at routes. It tolerates their change.",
        "c": "Adam rescales gradients: the size of a step depends little on that of the gradient.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    arms_figure(
        arms,
        {
            "GRPO": (VERMILION, "--"),
            "GRPO + R2": (VERMILION, ":"),
            "GSPO": (BLUE, "-"),
            "GSPO + R2": (BLUE, "-."),
        },
        {
            "reward": "reward of the rollout",
            "drift_per_rollout": "drift per rollout (live routes)",
            "token_log_ratio_std": "std of the token log-ratio",
        },
    ),
    "Three panels over six rollouts, four arms, three seeds each. The reward rises a little in "
    "all arms, and they overlap. The drift falls from about 14 to about 5 per cent in all four "
    "alike. The spread of the token log-ratio falls as well and is lower with replay "
    "than without, for both objectives.",
)

# %% [markdown]
r"""
**How to read it.** Middle: drift per rollout, of the choices that the router itself would make
(mean over the four mini-batches, of which the first is 0 by definition). All four arms drift alike:
GSPO does not keep experts consistent, and neither does replay. Right: replay lowers the spread of
the token ratios under either objective, as it must. Left: the reward. Look at
the thin lines before the thick ones: after six rollouts the seeds of one arm lie as far apart as
the arms do.

So this cell shows *mechanisms*. To rank the four takes whole trainings, more seeds, and a learning
rate of its own for each. Lesson 08 does that, with eight seeds; section 10 has those with replay.

## 9 · What others found

The claim in the GSPO paper (its authors, July 2025): GRPO needs Routing Replay to converge on their
mixture of experts, and GSPO needs none. What came later points in more than one direction.

- **GSPO's authors**, 2025 (2507.18071): GRPO does not converge without replay, GSPO does. *For GSPO
  without replay.*
- **Ma et al.**, 2025 (2510.11370), average scores: GRPO 48.84 (it collapsed), GSPO 66.76, GRPO + R3
  68.05, GSPO + R3 69.00. *For replay, with both.*
- **Zheng et al.**, Qwen, 2025 (2512.01374): token ratios *with* replay; R2 does better when
  training is mildly off-policy, R3 when it is strongly so. *For replay, from the company that made
  GSPO.*
- **Zhang et al.**, 2025 (2510.23027): rescale each token's ratio by how far its routes have moved;
  on their tasks that does better than GRPO, GSPO and GMPO. *For a third way.*
- **Dong et al.**, 2026 (2606.00395): replayed routes grow stale within a rollout; predict where the
  routes are going and replay that. *For a better replay.*
- **prime-rl**, 2026 (pull request 2703, a proposal): replay an expert only while the trainer's own
  score for it is not too low. *For a softer replay.*

Each is reported by those who propose the method, on models far larger than ours. Two readings are
safe. That routes move, and token ratios with them, is reported by several groups and was measured
here. And "GSPO makes replay needless" is
not settled: where both were tried together, replay helped GSPO as well, a little.

## 10 · What the tiny model says

Whole trainings, from the stored study *replay*: the stormy policy, eight seeds, two learning rates,
and the second engine of section 3, which samples in bfloat16, so that R2 and R3 are not the same.
Ratios refer to the trainer's own pass.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "09 whole trainings",
    "At the rate that suits GRPO without replay, whose reward does R3 clearly raise, over eight "
    "seeds?",
    {
        "a": "that of both: steadier ratios mean better steps",
        "b": "GRPO's: there each token's ratio is clipped by itself",
        "c": "GSPO's: its range is so narrow that routes decide who is clipped",
        "d": "nobody's: replay changes the ratio, not the reward",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
found = [finding(key) for key in ("replay", "replay_r3", "gspo_replay")]
for one in found:
    say(f"{one.statement} {one.verdict.capitalize()}.")
    say(one.numbers)
assert [one.verdict for one in found] == [FAILS, HOLDS, OPEN]
study, rate, gspo = stored_study("replay"), "lr 0.001", "GSPO, measured range"
to_grpo, to_gspo = (study.pair(f"{arm} + R3", arm, rate) for arm in ("GRPO", gspo))
faster = study.pair("GRPO + R3", "GRPO", "lr 0.004")
beyond = study.pair("GRPO + R3", "GRPO + R2", rate)
assert to_grpo.adjusted[0] > 0
assert (to_grpo.above, len(study.pairs)) == (7, 10)
assert all(pair.adjusted[0] < 0 < pair.adjusted[1] for pair in (to_gspo, faster, beyond))

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "09 whole trainings",
    "b",
    f"{to_grpo.mean:+.3f} under GRPO, {to_gspo.mean:+.3f} under GSPO (no clear difference).",
    {
        "a": "they do get steadier under both. Under GSPO no gain follows that would show here.",
        "c": "routes decide that in part (section 7). It costs GSPO nothing that would show here.",
        "d": "so it is at the higher rate. But the ratio decides whom clipping silences.",
    },
)

# %% [markdown]
r"""
**How to read it.** Three statements, three verdicts. GRPO learns without replay: this model needs
none to converge. Yet at the rate that suits it, replay of the rollout's routes brings it some more
reward, on seven seeds of eight, and the interval stays above zero when adjusted for all ten
comparisons. At four times that rate nothing of it is left. Under GSPO replay does nothing that
eight seeds could tell, for better or worse.

Three cautions. The interval ends just above zero: another task could put it on the other side. A
gain under GRPO and none to be seen under GSPO are not yet two different gains (lesson 12 computes
that). And R3 is not told apart from R2 here, so it need not be the engine's rounding that replay
mends; the updates' own changes of experts will do as an explanation.

## 11 · What is shown, and what is not

*Arithmetic:* memory per token; which gates give a gradient; $j\sqrt{q/L}$; what a wrong trace does.

*Measured here* (stormy policy, three seeds at most): replay with live gates leaves the router its
gradient and its drift; the route part goes out of the ratio and stays in the policy; GSPO's experts
drift as GRPO's do.

*Measured over eight seeds:* section 10, for one small model and one task.

*Not shown:* who earns more reward on a large model.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    24 * 4 * 1 * 2000,
    [
        (24 * 60 * 2000, "Only the four chosen experts are kept, not the scores of all 60."),
        (24 * 2000, "Four experts per token and layer."),
        (24 * 4 * 2 * 2000, "One byte per number was asked; 60 experts fit."),
        (24 * 4, "That is one token."),
    ],
)
question_2 = (
    math.exp(0.2) / (math.exp(1.0) + math.exp(0.2)),
    [
        (0.0, "That is what looking up zeroed scores gives: the fault of section 4."),
        (
            math.exp(0.6) / (math.exp(1.0) + math.exp(0.6)),
            "That is the gate of expert 2, the live choice. Experts 0 and 1 are replayed.",
        ),
        (
            math.exp(0.2) / (math.exp(1.0) + math.exp(0.2) + math.exp(0.6)),
            "The softmax is taken over the replayed experts only.",
        ),
    ],
)
question_3 = (
    0.4 * math.sqrt(0.04 / 400),
    [
        (0.4 * 0.04, "That holds if all jumps go in one direction."),
        (0.4 * math.sqrt(0.04 * 400), "That is the product of the ratios. Divide by the length."),
        (0.4 / math.sqrt(400), "Only 4 % of the tokens jump."),
        (0.4 * 0.04 / math.sqrt(400), "The share goes under the root as well."),
    ],
)

# %% [markdown]
r"""
**1.** 24 layers, 60 experts, 4 per token, one byte per number. How many bytes is the trace of an
answer of 2000 tokens?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Three experts, top-2. The old route was {0, 1}; the live logits are 1.0, 0.2 and 0.6, so the
router would now choose {0, 2}. Which gate does expert 1 get in replay?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** In an answer of 400 tokens 4 % of the tokens jump by 0.4 in log r, up or down at random. What
is the standard deviation of log s from that?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 07: 48 · 8 · 0.05 = {warm_up_1[0]:.1f}")
print(f"From lesson 05: 1.5^(10/200) = {warm_up_2[0]:.6f}")
print(f"1. 24 · 4 · 2000 = {question_1[0]}")
print(f"2. exp(0.2) / (exp(1.0) + exp(0.2)) = {question_2[0]:.4f}")
print(f"3. 0.4 · √(0.04 / 400) = {question_3[0]:.6f}")
gate = replay_gates(torch.tensor([1.0, 0.2, 0.6]), torch.tensor([0, 1]))[1]
assert math.isclose(gate, question_2[0], rel_tol=1e-6)

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("09")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=9))

# %% [markdown]
r"""
## What comes next

Section 3 had two engines for a moment: one samples, one trains, and they disagree although their
weights are the same. What that means for the choice of objective, and what else large systems do
between a prompt and an update, is the subject of [lesson 10](10_engines.ipynb). With two engines R2
and R3 are no longer the same: try
`python course.py train --config stormy --objective grpo --engine bf16 --replay r3`.
For a mixture of experts of the transformers library, `gspo_edu.moe.hf_routes` has the same:
`recorded_routes(model)` keeps a forward pass's routes, `replayed_routes(model, routes)` replays
them.

**Sources.** The papers are named in section 9; the pull requests are read as of
December 2026.
"""

# %%
for key in ("gspo", "r3", "stabilizing_rl", "rspo", "pr2"):
    print(source(key))
for key in ("vllm_28284", "automodel_2797", "megatron_lite_79", "prime_rl_2703"):
    print(source(key))
