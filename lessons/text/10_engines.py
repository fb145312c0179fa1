# %% [markdown]
r"""
# 10 · Engines

So far one program sampled the answers and trained on them. Large systems use two. A fast
**inference engine** writes the answers, in low precision and perhaps on other machines; a trainer
learns from them. They share the weights, or should. This lesson measures what lies between the two:
rounding, old weights, answers with several authors, and tokens that nobody in the family wrote.

**Afterwards you can**

- say which two log-probs $\pi_\text{old}$ can mean, and compute what TIS and IcePop make of them;
- tell what averaging over an answer takes away from an engine's error, and what it leaves;
- handle an answer with several authors, a dialogue, and a sampler that runs behind.

**You need** lessons 05 (sequence ratio, its range) and 09 (Routing Replay). **Time:** 45 minutes.
Four cells train, for some seconds each; one of them starts a second process.
"""

# %% jupyter={"source_hidden": true}
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from IPython.display import display

from gspo_edu.bibliography import source
from gspo_edu.config import PRESETS, TrainConfig, read_toml
from gspo_edu.engine_figures import distance_figure
from gspo_edu.engines import engine_copy, quantize
from gspo_edu.glossary import table
from gspo_edu.initial import initial_policy
from gspo_edu.moe import drift
from gspo_edu.objectives.corrections import correction_weight
from gspo_edu.partial import PartialRollouts
from gspo_edu.plots import show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.remote_sampler import RemoteSampler, train_with
from gspo_edu.route_figures import forgiveness_figure
from gspo_edu.route_split import changed_tokens
from gspo_edu.sampler import answer_log_probs, answer_pass, sampled_rollout
from gspo_edu.stored_studies import stored_study
from gspo_edu.tasks import TwoTurnWalk
from gspo_edu.tasks.base import PAD, prompts_of_split, text
from gspo_edu.trainer import Trainer

# %% [markdown]
r"""
## Two questions from before

**From lesson 05.** Token log-ratios are independent with a standard deviation of 0.02. At which
length is one standard deviation of log s equal to half of GSPO's upper bound, 2e-4? (The folded
cell holds what your answers are compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    (0.02 / 2e-4) ** 2,
    [
        (0.02 / 2e-4, "The spread falls with the root of the length: square this."),
        ((0.02 / 4e-4) ** 2, "Half of the bound was asked for."),
        ((0.02 / 3e-4) ** 2, "That is the lower bound, and the whole of it."),
    ],
)
warm_up_2 = (
    0.12 * math.sqrt(0.02 / 100),
    [
        (0.12 * 0.02, "That holds if all of them jump in one direction."),
        (0.12 / math.sqrt(100), "Only 2 % of the tokens jump."),
        (0.12 * math.sqrt(0.02 * 100), "That is the product of the ratios. Divide by the length."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 09.** In an answer of 100 tokens 2 % of the tokens jump by 0.12 in log r, up or down
at random. What is the standard deviation of log s from that?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · The same weights, other numbers

Two engines, each a copy of the policy with the same weights:

- **bf16** stores and computes in bfloat16, a number format with eight bits of precision; only the
  last logits become float32 again before the softmax, as in vLLM;
- **int8** keeps the matrices of attention and experts as integers from −127 to 127, with one scale
  per output channel (**quantisation**). Router, embedding and head stay as they are.

No noise is added. Here is int8, on a matrix that you can check by hand.
"""

# %%
weight = torch.tensor([[0.10, -0.25, 0.31], [2.0, 0.5, -1.27]])
numbers, scale = quantize(weight)
print("weights                  int8               scale       read back")
for row, whole, step in zip(weight, numbers, scale[:, 0], strict=True):
    line = "".join(f"{w:7.2f}" for w in row) + "    " + "".join(f"{n:5}" for n in whole.tolist())
    print(line + f"    {step:.6f}" + "".join(f"{w:9.4f}" for w in whole * step))
assert numbers[0, 2] == 127
assert ((numbers * scale - weight).abs() <= scale / 2).all()

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "10 outside",
    "The bf16 engine writes 1024 answers of about nine tokens. Nothing has been trained yet. For "
    "which share of the answers does s (trainer over engine) lie outside GSPO's range, 3e-4 below "
    "and 4e-4 above 1?",
    {
        "a": "none: the weights are the same",
        "b": "one in twenty",
        "c": "about half",
        "d": "more than four in five",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
calm = read_toml(PRESETS / "calm.toml")
config = TrainConfig(**calm, eval_every=0, eval_prompts=32, device="cpu")
policy, task, card = initial_policy(config)
LOW, HIGH = 3e-4, 4e-4


def written_by(kind):
    """What an engine of this kind writes, and the trainer's and the engine's word on it."""
    dice = torch.Generator().manual_seed(5)
    prompts = prompts_of_split(task, 128, dice, held_out=False)
    engine = engine_copy(policy, kind)
    rollout = sampled_rollout(engine, task, prompts, 8, generator=dice)
    with torch.no_grad():
        return engine, rollout, answer_log_probs(policy, rollout)


print("engine   log r: std  largest   log s: std   tokens with   outside the range of")
print("                                           other experts   GRPO      GSPO")
distances, outside = {}, {}
for kind in ("fp32", "bf16", "int8"):
    engine, rollout, score = written_by(kind)
    inside = rollout.mask
    log_r = token_log_ratio(score.logp, rollout.logp_old, inside)[inside]
    log_s = sequence_log_ratio(score.logp, rollout.logp_old, inside)
    r, s = log_r.exp(), log_s.exp()
    tokens_out = ((r < 0.8) | (r > 1.27)).float().mean().item()
    answers_out = ((s < 1 - LOW) | (s > 1 + HIGH)).float().mean().item()
    other = changed_tokens(score.routes.answer, rollout.routes.answer)[inside].float().mean()
    print(f"{kind:6} {log_r.std():12.1e} {log_r.abs().max():9.1e} {log_s.std():12.1e}", end="")
    print(f"{other:12.1%} {tokens_out:13.2%} {answers_out:9.1%}")
    outside[kind] = answers_out
    distances[kind] = {"token": log_r, "answer": log_s}
assert outside["fp32"] == 0
assert min(outside["bf16"], outside["int8"]) > 0.8
assert distances["bf16"]["answer"].std() < 0.7 * distances["bf16"]["token"].std()

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "10 outside",
    "d",
    f"{outside['bf16']:.0%}, and {outside['int8']:.0%} for int8.",
    {
        "a": "same weights, other rounding. For one engine alone it holds: the line fp32.",
        "b": "that would be a range of about 0.02.",
        "c": "about half will be clipped: those outside whose advantage has the sign for it.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    distance_figure(
        {kind: distances[kind] for kind in ("bf16", "int8")},
        {"token": (0.2, "GRPO's bound"), "answer": (LOW, "GSPO's bound")},
    ),
    "For each engine two falling curves over the distance of the log-ratio from 0, on a "
    "logarithmic axis: the share of tokens and of answers farther away. The answers' curve lies "
    "left of the tokens'. GSPO's bound lies far to the left, where nine tenths of the answers are "
    "still beyond it, and GRPO's bound at 0.2 far to the right, where hardly a token is.",
)

# %% [markdown]
r"""
**How to read it.** The solid curve falls first: log s is about half as large as log r. So far the
GSPO paper's argument is right: the likelihood of a whole answer is hurt less by rounding than that
of a token (section 5.4, its authors call it intuitive and measure nothing). But what decides is the
distance *relative to the range*, the vertical lines. GRPO's 0.2 is out of reach for all but one or
two tokens in a thousand. Beyond GSPO's 0.0003 nearly all answers already are, before anything was
learned.

The comparison is unfair to GSPO in one respect: nine tokens. Its range is meant for thousands.
"""

# %% [markdown]
r"""
## 2 · What averaging takes away, and what it leaves

We have no answers of thousands of tokens, but we can build them: draw tokens from the bf16 engine's
errors above and average L of them, as if they were independent.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "10 long",
    "At 10 000 tokens the spread of log s from the engine's error has fallen to about 0.0002. "
    "Where is its middle?",
    {
        "a": "at 0: errors go up and down alike",
        "b": "below 0 by two or three ten-thousandths, at this and at every other length",
        "c": "above 0 by two or three ten-thousandths",
        "d": "below 0, and farther so the longer the answer is",
    },
    my_guess,
)

# %% [markdown]
r"""
Think of who chose the tokens. The *engine* did, so it has a weakness for tokens that it overrates a
little. Averaged over what the engine writes,

$$\mathbb E\bigl[\log\pi_\text{trainer} - \log\pi_\text{engine}\bigr]
  = -\mathrm{KL}(\pi_\text{engine}\,\|\,\pi_\text{trainer}) \;\approx\; -\tfrac12\sigma^2 ,$$

and a KL is never negative. A mean over more tokens does not make a bias go away. The sampled mean
of log r is too noisy to show it (its standard error is as large), so we compute the KL from both
distributions at every position.
"""

# %% tags=["nbval-ignore-output"]
engine, rollout, score = written_by("bf16")
with torch.no_grad():
    of_engine = answer_pass(engine, rollout, rollout.routes)[0].logits.float().log_softmax(dim=-1)
    of_trainer = answer_pass(policy, rollout)[0].logits.log_softmax(dim=-1)
kl = (of_engine.exp() * (of_engine - of_trainer)).sum(dim=-1).mean().item()
errors = distances["bf16"]["token"]
sigma = errors.std().item()
print(f"sigma of log r {sigma:.4f}    sigma^2 / 2 = {sigma**2 / 2:.1e}    KL = {kl:.1e}")
print(f"sampled mean of log r {errors.mean():+.1e}, give or take {sigma / len(errors) ** 0.5:.1e}")
if_independent = sigma * (1 / rollout.lengths.float()).mean().sqrt().item()
spread_of_s = distances["bf16"]["answer"].std().item()
print(f"std of log s {spread_of_s:.4f}; were the tokens independent {if_independent:.4f}")
assert 0.7 < spread_of_s / if_independent < 2
assert 0.5 < kl / (sigma**2 / 2) < 2
assert 1e-4 < kl < 6e-4


def long_answers(length, middle, answers=2000):
    """(answers,) log s of answers built from the engine's token errors, centred on ``middle``."""
    dice = torch.Generator().manual_seed(length)
    total = torch.zeros(answers)
    for start in range(0, length, 500):
        width = min(500, length - start)
        drawn = torch.randint(len(errors), (answers, width), generator=dice)
        total += (errors[drawn] - errors.mean()).sum(dim=1)
    return total / length + middle


print(
    "\nlength   std of log s   outside GSPO's range   below   above   outside, were there no shift"
)
shares = {}
for length in (10, 100, 1000, 10_000):
    log_s, centred = long_answers(length, -kl), long_answers(length, 0.0)
    below, above = (log_s.exp() < 1 - LOW).float().mean(), (log_s.exp() > 1 + HIGH).float().mean()
    even = ((centred.exp() < 1 - LOW) | (centred.exp() > 1 + HIGH)).float().mean()
    shares[length] = (below + above).item()
    print(
        f"{length:6} {log_s.std():14.1e} {below + above:16.0%} {below:15.0%} {above:7.0%}", end=""
    )
    print(f"{even:19.0%}")
assert shares[10] > 0.8
assert shares[10_000] < 0.8
assert above < 0.05 < even < below

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "10 long",
    "b",
    f"by {kl:.1e}, against GSPO's lower bound of 3e-4.",
    {
        "a": "the engine chooses the tokens, and those it overrates come up more often.",
        "c": "the trainer's log-prob is in the numerator, and the engine's favourites lose.",
        "d": "the *sum* does that. s has the root.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
LENGTHS = (10, 30, 100, 300, 1000, 3000, 10_000)
figure = forgiveness_figure(
    LENGTHS,
    {
        "spread of log s, σ/√L": [sigma / math.sqrt(n) for n in LENGTHS],
        "shift of log s, KL": [kl] * len(LENGTHS),
    },
    LOW,
    "GSPO's lower bound, 3e-4",
    left=True,
)
figure.axes[0].set(ylabel="distance from 0", ylim=(1e-4, 1e-2))
show(
    figure,
    "Against the answer's length from 10 to 10 000 tokens on logarithmic axes: the spread of log s "
    "falls like one over the root of the length and crosses GSPO's lower bound near five thousand "
    "tokens; the shift stays level, a little below the bound.",
)

# %% [markdown]
r"""
**How to read it.** The falling line is what averaging takes away, the level one what it leaves. At
some thousand tokens one standard deviation of the engine's *noise* is as large as GSPO's lower
bound, and at 10 000 about an eighth of the answers would still be outside from noise alone (last
column of the table). The *bias*, about two thirds of the lower bound, is all on one side: with it a
third is outside, nearly all below. Below the range only bad answers (A < 0) are silenced. And this
is the kind case: we drew tokens as if they were independent. At nine tokens the measured spread is
already an eighth above that (first lines), and errors that go together average out more slowly.

How large is it for real engines? Ma et al. (arXiv 2510.11370) give a KL of 1.5e-3 between engines
on a mixture of experts, and 6.4e-4 on a dense model (figures that we know through notes; of the
paper itself we have read the abstract). If it is the KL of this direction, s settles near $1 -
0.0015$ for long answers, five times as far as GSPO's lower bound, and trusted log-probs would put
*every* long answer below it. So before you trust an engine, look at one number: the mean of log s
on answers that nobody has trained on. It should be well inside the range.

One more way to disagree, without any rounding: **truncated sampling**. An engine that samples from
the top k tokens reports log-probs of what it sampled from; a trainer that uses the plain softmax
does not.
"""

# %% tags=["nbval-ignore-output"]
TOP = 8
kept = of_trainer.topk(TOP, dim=-1).values.logsumexp(dim=-1)  # log of the mass that survives
print(f"top-{TOP} of 13 tokens keeps {kept.exp().mean():.1%} of the mass on average")
print(f"so log r = log(mass): mean {kept.mean():+.3f}, always below 0")
print(f"that is {-kept.mean() / kl:.0f} times the bias of the bf16 engine")
assert kept.max() <= 1e-6
assert kept.mean() < -0.02

# %% [markdown]
r"""
A far larger bias than that of rounding, with exact arithmetic (TRL's pull request 7269
measures it on vLLM). In this course both sides use the same temperature and no truncation; a test
holds the sampler's and the trainer's log-probs together to 1e-5, at temperature 0.7 as well.

## 3 · Whose routes? Now it matters

Lesson 09 had one engine, so R2 (replay the trainer's routes) and R3 (replay the engine's) were the
same. With the bf16 engine they part.
"""

# %% tags=["nbval-ignore-output"]
trace = rollout.routes.check(policy.config, rollout.mask, rollout.prompts)
with torch.no_grad():
    along = answer_log_probs(policy, rollout, replay=trace)
inside = rollout.mask
print("trainer's routes    slots that differ     std of log r   std of log s   answers outside")
print("                    from the engine's                                   GSPO's range")
spread = {}
for name, one in (("its own (none, R2)", score), ("the engine's (R3)", along)):
    log_r = token_log_ratio(one.logp, rollout.logp_old, inside)[inside]
    log_s = sequence_log_ratio(one.logp, rollout.logp_old, inside)
    s = log_s.exp()
    out = ((s < 1 - LOW) | (s > 1 + HIGH)).float().mean()
    slots = drift(one.routes.answer, trace.answer)
    spread[name] = log_r.std().item()
    print(f"{name:20}{slots:16.2%} {log_r.std():17.4f} {log_s.std():14.4f} {out:15.1%}")
assert spread["the engine's (R3)"] < 0.8 * spread["its own (none, R2)"]
assert out > 0.7

# %% [markdown]
r"""
R3 takes away the largest errors, those of flipped routes, and halves the spread. What is left is
plain rounding, and for GSPO's range at nine tokens that is still far too much.
(`python course.py train --engine bf16 --replay r3` trains like this. With R3 the trainer replays in
both of its passes, when it computes $\log\pi_\text{old}$ and when it learns.)

## 4 · Whose π_old?

The samples come from the engine. The ratio can refer to the engine's log-probs or to the trainer's
own, which cost one more forward pass:

$$\text{trusted:}\quad \frac{\pi_\theta}{\pi_\text{engine}} \qquad\qquad
\text{recomputed:}\quad \frac{\pi_\theta}{\pi_\text{old}} \qquad\qquad
\text{corrected:}\quad \rho\cdot\frac{\pi_\theta}{\pi_\text{old}},\quad
\rho = \frac{\pi_\text{old}}{\pi_\text{engine}} .$$

*Trusted* has the right denominator, since the engine is who sampled; but clipping then sees the
engine's error as if the policy had moved. *Recomputed* clips what training has moved and forgets
that somebody else sampled. The third has both: $\pi_\theta/\pi_\text{old}$ is clipped, and $\rho$
weighs the term. A large $\rho$ is dangerous, so **truncated importance sampling** (TIS, Yao et al.
2025) takes $\min(\rho, 2)$; **IcePop** (arXiv 2510.18855) drops tokens whose $\rho$ is outside a
range, here 0.5 to 5. For GSPO this course applies both per answer, to the geometric mean; TRL and
verl, where they correct per answer, take the product. What that choice changes comes at the end of
this section.
"""

# %%
log_old = torch.tensor([[-1.0, -2.0, -0.5, -3.0]])
log_engine = torch.tensor([[-1.0, -3.0, -0.4, -1.8]])
ones = torch.ones(1, 4)
tis = correction_weight({"kind": "tis", "cap": 2.0}, log_old, log_engine, ones)
icepop = correction_weight({"kind": "icepop", "low": 0.5, "high": 5.0}, log_old, log_engine, ones)
print("rho    ", " ".join(f"{rho:7.4f}" for rho in (log_old - log_engine).exp()[0].tolist()))
print("TIS    ", " ".join(f"{weight:7.4f}" for weight in tis[0].tolist()))
print("IcePop ", " ".join(f"{weight:7.4f}" for weight in icepop[0].tolist()))
assert math.isclose(tis[0, 1], 2.0)
assert math.isclose(icepop[0, 1], math.e, rel_tol=1e-6)
assert icepop[0, 3] == 0 < tis[0, 3]

# %% [markdown]
r"""
First the mechanism. Five rollouts with a bf16 sampler; each feeds four mini-batches. In the first
of them nothing has moved yet, so clipping should have nothing to do.
"""

# %% tags=["nbval-ignore-output"]
print("share of each answer that is clipped, by mini-batch      1       2       3       4    mean")
first, overall = {}, {}
for objective in ("grpo", "gspo"):
    for again in (False, True):
        own = replace(config, objective=objective, engine="bf16", recompute_old=again)
        trainer = Trainer(own, *initial_policy(own)[:2])
        records = [record for _ in range(5) for record in trainer.next_rollout()]
        clipped = [sum(r["clip_fraction_seq"] for r in records[place::4]) / 5 for place in range(4)]
        what = "recomputed" if again else "trusted"
        first[objective, what], overall[objective, what] = clipped[0], sum(clipped) / 4
        shown = "".join(f"{share:8.2%}" for share in (*clipped, overall[objective, what]))
        print(f"{objective.upper():6}{what:46}{shown}")
assert first["grpo", "recomputed"] == first["gspo", "recomputed"] == 0
assert first["gspo", "trusted"] > 0.25
assert first["grpo", "trusted"] < 0.02
assert min(overall["gspo", "trusted"], overall["gspo", "recomputed"]) > 0.35

# %% [markdown]
r"""
With trusted log-probs GSPO loses about half of its answers in the first mini-batch to rounding
alone. In the other three it clips half either way, since there the policy has moved. So trusting
changes one mini-batch in four, from "all speak" to "half speak"; over all updates that adds some
twelve points to a clip fraction of about 40 % (last column). Does that cost reward?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "10 trusted",
    "Thirty rollouts, eight seeds, bf16 sampler. Who ends clearly lower when the engine's "
    "log-probs are trusted than when they are recomputed?",
    {
        "a": "GRPO: its ratios per token take up every error",
        "b": "GSPO with the paper's range",
        "c": "both",
        "d": "neither: an engine's rounding is too small to matter",
    },
    my_guess,
)

# %%
study = stored_study("engines")
minutes = sum(row["cpu_seconds"] for row in study.runs) / 60
print(f"made by: {study.command}    ({minutes:.0f} minutes on one core)\n")


def line_of(first, second):
    """One paired difference, with the interval that holds for all of the study's together."""
    pair = study.pair(first, second)
    low, high = pair.adjusted
    print(f"  {first} minus {second}:")
    clear = "a difference" if low * high > 0 else "no clear difference"
    print(f"      {pair.mean:+.3f} ({low:+.3f} to {high:+.3f}), up on {pair.above} of 8: {clear}")
    return pair


print(
    "held-out reward: "
    + ", ".join(f"{arm} {study.group(arm).mean:.3f}" for arm in ("GRPO", "GSPO"))
)
print("differences, adjusted 95 % interval:")
grpo = line_of("GRPO, bf16 trusted", "GRPO, bf16 recomputed")
paper_range = line_of("GSPO, bf16 trusted", "GSPO, bf16 recomputed")
wide = line_of("GSPO wide, bf16 trusted", "GSPO wide, bf16 recomputed")
trusted = {}
for arm in ("GRPO", "GSPO", "GSPO wide"):
    rows = [row for row in study.updates if row["arm"] == f"{arm}, bf16 trusted"]
    trusted[arm] = sum(row["engine_clip_fraction_seq"] for row in rows) / len(rows)
told = ", ".join(f"{arm} {share:.1%}" for arm, share in trusted.items())
print(f"clipped through the engine alone, before a rollout's first update: {told}")
all_updates = []
for what in ("trusted", "recomputed"):
    rows = [row for row in study.updates if row["arm"] == f"GSPO, bf16 {what}"]
    all_updates.append(sum(row["clip_fraction_seq"] for row in rows) / len(rows))
print("clipped over all updates, GSPO: trusted {:.0%}, recomputed {:.0%}".format(*all_updates))
assert 0.3 < all_updates[1] < all_updates[0] - 0.1 < 0.5
assert paper_range.adjusted[1] < 0
assert paper_range.above == 0
assert trusted["GSPO"] > 0.4 > 0.1 > trusted["GSPO wide"]
for pair in (grpo, wide):
    assert pair.adjusted[0] < 0 < pair.adjusted[1]

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "10 trusted",
    "b",
    f"{paper_range.mean:+.3f} on average, lower on each of the eight seeds.",
    {
        "a": f"GRPO ends {grpo.mean:+.3f}: if anything higher, but not clearly among so many "
        "comparisons. Its range of 0.2 never notices the engine.",
        "c": "GRPO's range is too wide to notice.",
        "d": "small beside 0.2, large beside 0.0003.",
    },
)

# %% [markdown]
r"""
That is the opposite of what one reads, and it is worth being careful about why.

- **It is more likely the range than the unit.** "GSPO wide" has the same sequence ratio with a
  range that fits short answers: 0.0323 below 1 and 0.0251 above. That is the range which lesson 05
  read off this policy's ratios so that 30 % of them lie outside (its section "A range for a run of
  your own"). There the engine alone clips few answers, and trusting makes no clear difference. (Its
  interval is wide, so that a loss of the same size is not excluded.)
- **It is the length.** Nine tokens average little. At some thousand tokens the noise comes down to
  the size of the paper's range, and then the bias of section 2 weighs as much.

The two remedies, against recomputing alone:
"""

# %%
remedies = [
    line_of(f"{name}, bf16 {remedy}", f"{name}, bf16 recomputed")
    for name in ("GRPO", "GSPO")
    for remedy in ("TIS", "IcePop")
]
for pair in remedies:
    assert pair.adjusted[0] < 0 < pair.adjusted[1]
same = study.group("GSPO, bf16 TIS").values == study.group("GSPO, bf16 IcePop").values
print(f"\nGSPO's TIS and IcePop, every seed the same: {same}")
rho = {
    (row["seed"], row["rollout"]): row["engine_sequence_log_ratio_max"]
    for row in study.updates
    if row["arm"] == "GSPO, bf16 TIS"
}
far = sum(value > math.log(2) for value in rho.values())
print(f"rollouts in which rho of some answer leaves 0.5 to 2: {far} of {len(rho)}")
assert same
assert far < 0.02 * len(rho)

# %% [markdown]
r"""
Neither does anything visible here, and for GSPO the two are even the same run. That follows from
this course's choice of the geometric mean: over a whole answer it as good as never leaves 0.5 to 2,
so next to nothing is truncated or dropped. A bound that is meant for tokens says little about
such a mean, which is lesson 05's point about 0.2 once more. With the product as $\rho$ it is
another matter. First for the 1024 answers of section 1, then for long ones built as in section 2:
"""

# %% tags=["nbval-ignore-output"]
log_s = sequence_log_ratio(score.logp, rollout.logp_old, rollout.mask)
log_products = {"9, measured": log_s * rollout.lengths}
for length in (100, 1000, 10_000):
    log_products[f"{length}, built"] = long_answers(length, -kl) * length
print("length        share of products outside 0.5 to 2")
beyond = {}
for name, values in log_products.items():
    beyond[name] = (values.abs() > math.log(2)).float().mean().item()
    print(f"{name:15} {beyond[name]:10.1%}")
assert (log_s.abs() < math.log(2)).all()
assert beyond["9, measured"] < 0.01
assert beyond["1000, built"] > 0.1
assert beyond["10000, built"] > 0.6

# %% [markdown]
r"""
At nine tokens the product, too, rarely gets that far. At a thousand TIS and IcePop on products
would cut or drop a good share of the answers, and they would no longer be the same run. (TRL does
that by default when vLLM samples; lesson 11 computes what is left.)

So "with GSPO one may use the engine's log-probs" is a statement about a pair of engines, a length
and a range. Measure those three; it takes one rollout.

## 5 · Partial rollout: answers with several authors

A rollout ends when its *longest* answer ends. Until then most of the machine waits. **Partial
rollout** (Kimi k1.5, arXiv 2501.12599) cuts: each round grants every answer a budget of tokens;
what has ended (here: a group all of whose answers have ended) is trained on, and the rest continues
in the next round, under the policy of then.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "10 partial",
    "A budget of six tokens per round, answers of about nine. Once this runs evenly: which share "
    "of the tokens that an update learns from was written by an earlier policy?",
    {
        "a": "about a tenth: most answers need no second round",
        "b": "about a third: what lies beyond the sixth token",
        "c": "about nine tenths",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
trainer = Trainer(replace(config, objective="gspo", prompts=64), *initial_policy(config)[:2])
dice = torch.Generator().manual_seed(3)
open_answers = PartialRollouts(task, budget=6, group_size=8)
usual = rollout.lengths.float().mean().item()
print(f"mean length of whole answers {usual:.1f}; up to {task.max_new_tokens} are allowed\n")
print(
    "round   groups complete   waiting   length   tokens of earlier authors   std of log r at those"
)
lengths, apart, old = [], [], []
for number in range(7):
    found = open_answers.next_round(trainer.model, trainer.training_prompts(), dice)
    waiting = sum(len(groups.prompts) for groups in open_answers.waiting)
    if found is None:
        print(f"{number:5} {0:17} {waiting:9}")
        continue
    done = found.rollout
    log_r = token_log_ratio(
        trainer.score(trainer.model, done).logp.detach(), done.logp_old, done.mask
    )
    older = (found.author < number) & done.mask
    own = done.mask & ~older
    lengths.append(done.lengths.float().mean().item())
    apart.append((log_r[older].std().item() if older.any() else 0.0, log_r[own].abs().max().item()))
    print(f"{number:5} {len(done) // 8:17} {waiting:9} {lengths[-1]:8.1f}", end="")
    old.append((older.sum() / done.mask.sum()).item())
    print(f"{old[-1]:20.0%} {apart[-1][0]:23.3f}")
    trainer.train_on(done)
print("\none answer, and the round in which each token was written:")
row = int(found.author.amax(dim=1).sub(found.author[:, 0]).argmax())
long = done.mask[row]
print(f"  {text(done.tokens[row][long])}\n  {' '.join(map(str, found.author[row][long].tolist()))}")
assert lengths[0] < usual
assert min(old[1:]) > 0.75
assert max(newest for _, newest in apart) < 1e-4
assert max(older for older, _ in apart) > 1e-2

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "10 partial",
    "c",
    f"{sum(old[1:]) / len(old[1:]):.0%}, since a group waits for the longest of its eight answers.",
    {
        "a": "most groups do: one long answer among eight is enough.",
        "b": "the first six tokens of a group that waits are a round old by then.",
    },
)

# %% [markdown]
r"""
Two things to keep in mind.

- **Each token keeps the log-prob of its author.** Then the ratio is right at every token: exactly 1
  for what the present policy wrote, off for the rest. If one recomputed the whole answer with the
  present policy and called that $\pi_\text{old}$, all ratios would be 1 and the age would be
  hidden.
- **The order is biased.** Groups of short answers are learned from first and long ones last, when
  they are old. And since advantages need the whole group, short answers age with the longest one.
  Whoever trains on single answers instead has fresher ones and must get the baseline elsewhere.

Keys and values of the earlier author come from its weights. Here the next author does not use them:
it reads what is there as a prompt.

## 6 · Two turns: tokens that nobody in the family wrote

In **multi-turn RL** the environment answers in between: a tool's output, a user's reply, the next
task. Its tokens stand in the sequence, because the policy must see them. But the policy did not
choose them.
"""

# %% tags=["nbval-ignore-output"]
two = TwoTurnWalk()
dice = torch.Generator().manual_seed(1)
dialogues = sampled_rollout(policy, two, two.random_prompts(32, dice), 8, generator=dice)
row = int((dialogues.rewards * dialogues.finished).argmax())
width = int((dialogues.tokens[row] != PAD).sum())
print("prompt ", text(dialogues.prompts[dialogues.group[row]]))
print("answer ", " ".join(f"{text(token[None]):>3}" for token in dialogues.tokens[row, :width]))
print("mask   ", " ".join(f"{int(inside):3}" for inside in dialogues.mask[row, :width]))
print(
    f"\nlength {dialogues.lengths[row]} (of {width} tokens), reward {dialogues.rewards[row]:.2f}: "
)
print("the mean of both walks. After the first end the environment says where to go next.")
assert dialogues.lengths[row] == width - 5
assert (dialogues.logp_old[~dialogues.mask] == 0).all()

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "10 turns",
    "After a rollout's four updates, with the right mask: how is log s changed if somebody forgets "
    "the mask and counts the reply's five tokens too?",
    {
        "a": "hardly: nobody trained on these tokens, so their probabilities stay",
        "b": "it comes nearer to 0: five ratios of 1 join the mean",
        "c": "it becomes another number: these tokens' ratios move as far as the policy's own",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
own = replace(config, task="two_turn", objective="gspo")
trainer = Trainer(own, initial_policy(config)[0], two)
there = dialogues.tokens != PAD
everything = replace(dialogues, mask=there)
with torch.no_grad():
    before = answer_log_probs(trainer.model, everything).logp
trainer.train_on(dialogues)
with torch.no_grad():
    after = answer_log_probs(trainer.model, everything).logp

reply = there & ~dialogues.mask
of_policy = token_log_ratio(after, before, dialogues.mask)[dialogues.mask].std().item()
of_reply = token_log_ratio(after, before, reply)[reply].std().item()
right = sequence_log_ratio(after, before, dialogues.mask)
wrong = sequence_log_ratio(after, before, there)
print(f"std of log r: the policy's tokens {of_policy:.3f}, the environment's {of_reply:.3f}")
print(
    f"std of log s {right.std():.4f}; of the error of a forgotten mask {(wrong - right).std():.4f}"
)


def is_out(log_s):
    """(B,) whether s lies outside GSPO's range, and on which side: -1, 0 or 1."""
    s = log_s.exp()
    return (s > 1 + HIGH).int() - (s < 1 - LOW).int()


turned = (is_out(wrong) != is_out(right)).float().mean().item()
print(f"{turned:.0%} of the answers end up on another side of the range")
assert of_reply > 0.3 * of_policy
assert turned > 0.03

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "10 turns",
    "c",
    f"a standard deviation of {of_reply:.3f} against {of_policy:.3f} of the policy's own tokens.",
    {
        "a": "they share all weights with the tokens that were trained on.",
        "b": "their ratios are not 1.",
    },
)

# %% [markdown]
r"""
With the mask these tokens are in no ratio, no length, no loss and no mean of the metrics. The tests
put NaN into their log-probs and compare: every objective gives the same loss and gradient as if the
columns were not there. Without it one would also *train the policy to speak like the environment*.

## 7 · Two processes, and old weights

**Training–inference disaggregation**: one process samples, another trains, on the same machine or
far apart. Weights go over in a file, rollouts come back in another. If the sampler may run ahead,
no one waits, and the answers come from weights that are some rollouts old: a **lag**. Here are
both, on your machine. The sampler's lag is two rollouts.
"""

# %% tags=["nbval-ignore-output"]
own = replace(config, objective="grpo", rollouts=6, lag=2, prompts=16)
trainer = Trainer(own, *initial_policy(own)[:2])
print("rollout   sampled with the weights after   std of log r       distance of the")
print("                                           before any update   weights since then")
stds, distances_since = [], []


def weights_now():
    """The trainer's weights, as one vector."""
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


past = [weights_now()]  # past[n]: after n rollouts
with tempfile.TemporaryDirectory() as folder, RemoteSampler(own, Path(folder) / "swap") as sampler:
    for number, records in enumerate(train_with(trainer, sampler)):
        stds.append(records[0]["engine_token_log_ratio_std"])
        made_after = max(0, number - own.lag)
        distances_since.append((past[number] - past[made_after]).norm().item())
        past.append(weights_now())
        print(f"{number:7} {made_after:22} rollouts {stds[-1]:16.4f}", end="")
        print(f"{distances_since[-1]:20.2f}")
print(f"\nthe sampler has ended: {sampler.process.poll() is not None}")
assert stds[0] < 1e-4 < min(stds[1:])
assert distances_since[2] > 1.3 * distances_since[5]

# %% [markdown]
r"""
Which weights serve which rollout follows from the numbers in the file names and never from who was
faster, so the same seed gives the same run. Every file is written under another name and renamed
when it is whole. If the sampler dies, the trainer says so and why; if the trainer dies, the sampler
ends. (`python course.py train --lag 4` has the same lag inside one process, for studies.)

With this lag the spread is about ten times that of rounding. It falls after rollout 2 although the
lag is the same: AdamW starts afresh here and its first steps are its longest, so two rollouts
carried the weights farther at the start than later (last column). Whose log-probs now?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "10 lag",
    "The sampler is four rollouts behind. Which old log-probs give the higher reward?",
    {
        "a": "the sampler's: that is who chose the tokens",
        "b": "those that the trainer recomputes with its present weights",
        "c": "no clear difference",
    },
    my_guess,
)

# %%
print("held-out reward:")
for name in ("GRPO", "GSPO"):
    arms = [name, *(f"{name}, lag 4 {what}" for what in ("trusted", "recomputed", "TIS"))]
    print("  " + ", ".join(f"{arm} {study.group(arm).mean:.3f}" for arm in arms))
print("differences, adjusted 95 % interval:")
lags = {}
for name in ("GRPO", "GSPO"):
    for what, other in (("trusted", "recomputed"), ("TIS", "recomputed")):
        pair = line_of(f"{name}, lag 4 {what}", f"{name}, lag 4 {other}")
        lags[name, what] = pair
clipped = {}
for name in ("GRPO", "GSPO"):
    rows = [row for row in study.updates if row["arm"] == f"{name}, lag 4 trusted"]
    clipped[name] = sum(row["engine_clip_fraction_seq"] for row in rows) / len(rows)
    print(f"{name}, trusted: {clipped[name]:.0%} clipped before the first update of a rollout")
for name in ("GRPO", "GSPO"):
    assert lags[name, "trusted"].adjusted[1] < 0
    assert lags[name, "trusted"].above == 0
    assert lags[name, "TIS"].adjusted[0] < 0 < lags[name, "TIS"].adjusted[1]
assert 0.1 < clipped["GRPO"] < 0.4

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "10 lag",
    "b",
    f"by {-lags['GRPO', 'trusted'].mean:.3f} under GRPO and {-lags['GSPO', 'trusted'].mean:.3f} "
    "under GSPO, on all eight seeds.",
    {
        "a": "that ratio has the right denominator, but a lot is clipped before the first update.",
        "c": "on every one of the eight seeds it is the same one.",
    },
)

# %% [markdown]
r"""
Clipping is a leash. With the sampler's log-probs it is tied to where the policy was four rollouts
ago, and a fifth of GRPO's tokens or more strain at it before the first update. With recomputed ones
it is tied to where the policy is now. AReaL (arXiv 2505.24298) calls that a decoupled objective:
one policy that sampled, another one for the leash, and $\rho$ between them. Adding $\rho$ by TIS
makes no clear difference here. (In section 5 recomputing "hides the age", as if that were a fault.
It is the same act: what is hidden is who sampled, which the denominator should say and $\rho$ can
put back; what is gained is a leash of the right length. Here the gain weighs more.)

## 8 · What others report

- **GSPO's authors** (arXiv 2507.18071, section 5.4): engine log-probs may be used directly. *An
  argument.*
- **Yao et al.**, 2025: the mismatch of engines makes training off-policy; TIS repairs it.
- **Ling Team**, 2025 (arXiv 2510.18855): on a mixture of experts TIS was not enough; drop the
  tokens that disagree (IcePop).
- **Ma et al.**, 2025 (arXiv 2510.11370): replay the engine's routes.
- **NeMo RL**, 2026 (pull request 3295, not merged): reuse the generation's log-probs, which spares
  the recomputing pass; two seeds, rewards within 0.007.
- **TRL**, 2026 (pull request 5815, not merged): a correction per answer that *sums* the log-ratios
  has a mean weight of 0.569, one that *averages* them 0.993, so average. The maintainer's answer
  (issue 5814): the sum is the answer's importance ratio, and the root is GSPO's, another thing.

Each of these comes from those who propose the method. The last dispute you can judge yourself, with
lesson 04: the sum is importance sampling by the book, and its mean is 1 only with the rare large
weights that a cap cuts; the average stays near 1 and corrects hardly anything.

## 9 · What is shown, and what is not

*Arithmetic:* the expected log-ratio is −KL whatever the length; what TIS and IcePop do to a token;
truncated sampling shifts every ratio to one side.

*Measured here:* rounding alone puts nine short answers in ten outside GSPO's range and moves hardly
a token outside GRPO's; trusting a bf16 engine costs GSPO with the paper's range reward, and no
clear amount with a wider range or under GRPO; with a lag of four rollouts, recomputed log-probs do
better; TIS and IcePop make no clear difference in either. For GSPO that is said of $\rho$ as a
geometric mean, as in this course, and of answers of nine tokens; of the product nothing is shown.

*Not shown:* any of it on answers of thousands of tokens, on real engines, or in a setting where
mismatch makes training collapse, which is what TIS and IcePop were made for.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    math.exp(0.9),
    [
        (2.0, "That is TIS with a cap of 2. IcePop keeps what lies inside its range as it is."),
        (math.exp(-0.9), "That is the engine over the trainer; rho is the other way round."),
        (0.0, "It would be dropped above 5; this one lies inside the range."),
        (0.9, "That is log rho."),
    ],
)
question_2 = (
    -(0.03**2) / 2,
    [
        (0.0, "The noise averages out, but the engine chose the tokens: a shift remains."),
        (0.03**2 / 2, "Of the right size, on the wrong side: the engine's favourites lose."),
        (-(0.03**2), "Half of that."),
        (-0.03, "That is the spread of one token."),
    ],
)
question_3 = (
    math.exp(0.45 / 9),
    [
        (math.exp(1.45 / 14), "That counts the reply, above and below."),
        (math.exp(0.45 / 14), "The reply's tokens are still in the length."),
        (math.exp(1.45 / 9), "The reply's log-ratios are still in the sum."),
        (math.exp(0.45), "The root is missing."),
    ],
)

# %% [markdown]
r"""
**1.** The trainer gives a token a log-prob of −2.0, the engine gave it −2.9. Which weight has it
under IcePop with the range 0.5 to 5?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** An engine's errors have a standard deviation of 0.03 per token. Near which value does log s
of trainer over engine settle for very long answers, before any update?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** A dialogue: the first turn has 6 tokens whose log-ratios sum to 0.3, the environment's reply
5 tokens that sum to 1.0, the second turn 3 tokens that sum to 0.15. What is its sequence ratio s?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 05: (0.02 / 2e-4)² = {warm_up_1[0]:.0f}")
print(f"From lesson 09: 0.12 · √(0.02 / 100) = {warm_up_2[0]:.6f}")
print(f"1. exp(−2.0 + 2.9) = {question_1[0]:.4f}, inside the range, so it stays")
print(f"2. −0.03² / 2 = {question_2[0]:.6f}")
print(f"3. exp((0.3 + 0.15) / (6 + 3)) = {question_3[0]:.6f}")
token = {"kind": "icepop", "low": 0.5, "high": 5.0}
weight = correction_weight(token, *torch.tensor([[[-2.0]], [[-2.9]]]), torch.ones(1, 1))
assert math.isclose(weight.item(), question_1[0], rel_tol=1e-6)

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("10")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=10))

# %% [markdown]
r"""
## What comes next

Everything so far was our own code. [Lesson 11](11_in_trl.ipynb) leaves it: the same objectives in
TRL, on a Qwen3-MoE of the transformers library, with the settings that give the paper's form. Until
then: `python course.py train --engine bf16 --recompute-old`, and compare `engine_clip_fraction_seq`
in its `metrics.jsonl` with and without `--clip-low 0.0323 --clip-high 0.0251`, lesson 05's range.

**Sources.** The pull requests are read as of December 2026.
"""

# %%
for key in ("gspo", "tis", "icepop", "r3", "areal", "kimi_k15"):
    print(source(key))
for key in ("nemo_rl_3295", "trl_5815", "trl_7269"):
    print(source(key))
