# %% [markdown]
r"""
# 11 · The same in TRL

Everything you have trained so far was this course's own code. People train with libraries, and
**TRL** is one of the most used. This lesson moves the tiny policy into its `GRPOTrainer`, as a
Qwen3-MoE of the transformers library, on the same task. The questions are those of someone about to
start a real run: what do I set, what will I see, and how do I know that it works?

**Afterwards you can**

- write down the settings that make TRL compute the paper's GSPO, and say what the defaults compute;
- say which of TRL's clip ratios is which, and when 0, 1 or one half is no alarm;
- recognise the defaults that spoil such a run without an error, each within seconds.

**You need** lessons 05 (sequence ratio, range) and 08 (two clip fractions). **Time:** 40 minutes.
The cells train for about 15 seconds in all; loading the libraries takes ten. If the first cell
cannot find `trl`, install the extra: `pip install -e ".[real]" -c constraints.txt`. All of it
was run with TRL 1.16 and transformers 5.24.
"""

# %% jupyter={"source_hidden": true}
import math
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from statistics import NormalDist

import torch
from IPython.display import display
from trl import GRPOConfig

from gspo_edu.bibliography import source
from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.glossary import table
from gspo_edu.objectives import grpo, gspo
from gspo_edu.objectives.corrections import correction_weight
from gspo_edu.plots import new_figure, objective_style, show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.ratios import sequence_log_ratio, token_log_ratio
from gspo_edu.trl_recorder import record_run
from gspo_edu.trl_toy import (
    loss_of,
    paper_settings,
    said_by_trl,
    tokenizer,
    toy_policy,
    toy_trainer,
    trained,
    watched,
)

torch.set_num_threads(1)

# %% [markdown]
r"""
## Two questions from before

**From lesson 10.** An engine reports a log-prob of −2.0 for a token that it sampled; the trainer
finds −1.2 for it. With which weight does TIS with a cap of 2 multiply the token's term? (The folded
cell holds what your answers are compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    min(math.exp(-1.2 + 2.0), 2.0),
    [
        (math.exp(0.8), "That is the ratio. The cap is below it."),
        (math.exp(-0.8), "Trainer over engine, not the other way round."),
        (0.8, "That is the log-ratio."),
    ],
)
warm_up_2 = (
    (6 + 8) / (2 + 4 + 6 + 8),
    [
        (2 / 4, "That is the share of answers. Here tokens are counted."),
        (2 / 20, "Count the tokens of the clipped answers, all of them."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 08.** Four answers of 2, 4, 6 and 8 tokens; GSPO clips the two longer ones. What is
the token-weighted clip fraction?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · The same policy in another house

A causal language model of transformers, a tokenizer and a reward function are all that TRL needs.
The policy is the one of lesson 08's calm setting, exported; the tokenizer has 13 words, one token
each; the reward is the task's verifier.
"""

# %%
ours, card = load_policy(shipped_policies()["calm"])
theirs = toy_policy("calm")
words = tokenizer()
prompt = "3 8 2 7 ="
ids = torch.tensor([words(prompt).input_ids])
print(type(theirs).__name__, f"with {sum(p.numel() for p in theirs.parameters())} weights")
print(prompt, "->", ids.tolist())
dice = torch.Generator().manual_seed(0)
many = torch.randint(0, 13, (8, 30), generator=dice)
with torch.no_grad():
    apart = (theirs(many).logits - ours(many).logits).abs().max().item()
assert apart < 1e-5
print("largest difference of 3120 logits from ours: below 1e-5")

# %% [markdown]
r"""
The logits agree, so whatever differs from here on is the trainer's doing.

## 2 · What to set

The paper's GSPO needs seven settings. Next to each stands what TRL takes if you say nothing.
"""

# %%
defaults = {field.name: field.default for field in fields(GRPOConfig)}
paper = {
    "importance_sampling_level": "sequence",
    "loss_type": "grpo",
    "beta": 0.0,
    "epsilon": 3e-4,
    "epsilon_high": 4e-4,
    "steps_per_generation": 4,
    "gradient_accumulation_steps": 1,
}
assert paper.items() <= paper_settings("sequence").items()
why = {
    "importance_sampling_level": "one ratio per answer",
    "loss_type": "mean over answers, each counting once",
    "beta": "no KL term",
    "epsilon": "lower end of the range (clip_low here)",
    "epsilon_high": "upper end (clip_high here)",
    "steps_per_generation": "mini-batches per rollout",
    "gradient_accumulation_steps": "an update after each of them",
}
print(f"{'setting':29}{'paper':>10}{'default':>9}   what it is")
for name, value in paper.items():
    print(f"{name:29}{value!s:>10}{defaults[name]!s:>9}   {why[name]}")

# %% [markdown]
r"""
(`epsilon_high=None` means: as `epsilon`. `steps_per_generation=None` means: as
`gradient_accumulation_steps`.)
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "11 one option",
    'Someone takes TRL\'s defaults and adds importance_sampling_level="sequence", nothing else. '
    "What does that run train?",
    {
        "a": "the paper's GSPO",
        "b": "GSPO with a range that is too wide to bind",
        "c": "the same as without the option",
        "d": "GSPO with answers weighted by their length",
    },
    my_guess,
)

# %% [markdown]
r"""
Two trainers, one seed; only the level differs. One update per rollout, the range 0.2 and the loss
type are TRL's defaults.
"""

# %% tags=["nbval-ignore-output"]
once = {"steps_per_generation": 1, "per_device_train_batch_size": 256}
once |= {name: defaults[name] for name in ("loss_type", "epsilon", "epsilon_high")}
weights, ratios = {}, []
for level in ("token", "sequence"):
    trainer = toy_trainer(**paper_settings(level, **once))
    seen = watched(trainer)
    log = trained(trainer, 3)
    weights[level] = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    ratios += [token_log_ratio(b.logp, b.logp_old, b.mask).abs().max().item() for b in seen]
    kept = "kept" if seen[0].has_old else "not kept"
    shown = [f"{record['clip_ratio/region_mean']:.3f}" for record in log]
    print(f"{level:9} clip ratio in three updates: {', '.join(shown)}; old log-probs {kept}")
apart = (weights["token"] - weights["sequence"]).abs().max().item()
moved = (weights["token"] - torch.cat([p.detach().flatten() for p in theirs.parameters()])).abs()
print(f"largest |log r|: {max(ratios):.0e}")
print(
    f"weights after three updates: apart by at most {apart:.0e}, moved by up to {moved.max():.0e}"
)
assert max(ratios) == 0
assert apart < moved.max() / 50

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "11 one option",
    "c",
    "with one update per rollout every ratio is 1, at either level, and the gradients agree.",
    {
        "a": "the paper makes four updates per rollout. With one there is no old policy.",
        "b": "the range would be too wide, but with ratios of exactly 1 no range binds.",
        "d": "the default loss_type does weigh so, but at ratio 1 it does at token level, too.",
    },
)

# %% [markdown]
r"""
So `importance_sampling_level` is an option of *off-policy* training. Whether a run is off-policy is
decided by two other numbers: TRL keeps log-probs of the sampling policy only if
`gradient_accumulation_steps` is no multiple of `steps_per_generation` × `num_iterations` (or if
vLLM samples, to correct for that). If your clip ratio is exactly 0 in every line of the log, look
there first.

## 3 · Four updates per rollout

Now the paper's form, and its GRPO baseline with the range 0.2, 0.27. 32 prompts × 8 answers, four
mini-batches, 8 rollouts each.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "11 two clip ratios",
    "Mean of clip_ratio/region_mean over these runs: which pair do you expect?",
    {
        "a": "token level about 0.03, sequence level about 0.4",
        "b": "token level about 0.4, sequence level about 0.03",
        "c": "both below 0.01: the steps are small",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
ROLLOUTS = 8
logs, batches = {}, {}
recorded = Path(tempfile.mkdtemp()) / "run"
for level in ("token", "sequence"):
    trainer = toy_trainer(**paper_settings(level))
    if level == "sequence":
        record_run(trainer, recorded)  # for section 7
    batches[level] = watched(trainer)
    logs[level] = trained(trainer, ROLLOUTS)


def logged(level, name):
    """What TRL logged under that name, one value per update."""
    return [record[name] for record in logs[level] if name in record]


print("level      reward: first, last rollout   clip ratio, mean   in the first four updates")
mean_clip = {}
for level in logs:
    reward, clip = logged(level, "reward"), logged(level, "clip_ratio/region_mean")
    mean_clip[level] = sum(clip) / len(clip)
    first = "  ".join(f"{value:.2f}" for value in clip[:4])
    print(f"{level:9} {reward[0]:15.2f} {reward[-1]:11.2f} {mean_clip[level]:18.3f}   {first}")
assert mean_clip["token"] < 0.12
assert 0.25 < mean_clip["sequence"] < 0.55

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "11 two clip ratios",
    "a",
    f"{mean_clip['token']:.3f} and {mean_clip['sequence']:.3f}: lesson 08's paradox, in TRL.",
    {
        "b": "the narrow range belongs to the sequence level.",
        "c": "3e-4 is small against any step that learns something.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (axis,) = new_figure(width=6.5, height=2.8)
for level, objective in (("token", "grpo"), ("sequence", "gspo")):
    clip = logged(level, "clip_ratio/region_mean")
    style = objective_style(objective) | {"label": f"{level} level"}
    axis.plot(range(1, len(clip) + 1), clip, marker=".", **style)
axis.set_xlabel("update (four per rollout)")
axis.set_ylabel("clip_ratio/region_mean")
axis.legend(fontsize=8)
show(
    figure,
    "TRL's logged clip ratio over 32 updates, at token and at sequence level. Both are saw-toothed "
    "with a zero at every fourth update, the first of each rollout. At sequence level the other "
    "three lie near one half, at token level mostly below 0.1.",
)

# %% [markdown]
r"""
**How to read it.** Every fourth value is 0: the first mini-batch of a rollout meets the policy that
sampled it. TRL logs every tenth update by default and averages over the ten; ten is no multiple of
four, so the average then moves although nothing happened. Set `logging_steps` to a multiple of
`steps_per_generation`. At sequence level about half of the answers in the other three updates are
clipped, and that is no alarm: with a range this tight the share tends to one half (lesson 05).

Another thing differs from this course's trainer: TRL shuffles *answers*, not groups, before it
makes mini-batches. Their advantages then do not sum to 0 in a mini-batch, and the logged loss jumps
around 0 even where every ratio is 1. The loss is no measure of progress here. The reward is.

## 4 · Which clip ratio is which

TRL logs five numbers that begin with `clip_ratio/`, and one that only sounds like them. We
recompute them from the mini-batches that its loss saw.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "11 high max",
    "clip_ratio/high_max is the largest share of clipped tokens (above the range) of any one "
    "answer. Which values can it take at sequence level?",
    {
        "a": "anything between 0 and 1",
        "b": "only 0 and 1",
        "c": "multiples of 1/L, where L is the answer's length",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
objectives = {
    "token": (grpo, "clip_fraction_token_weighted"),
    "sequence": (gspo, "clip_fraction_seq"),
}
worst = {}
for level, (objective, metric) in objectives.items():
    worst[level] = 0.0
    for batch, record in zip(batches[level], logs[level], strict=True):
        mine = objective(batch.logp, batch.logp_old, batch.advantages, batch.mask).metrics[metric]
        worst[level] = max(worst[level], abs(mine.item() - record["clip_ratio/region_mean"]))
    print(f"{level:9} region_mean = our {metric}: apart by {worst[level]:.0e} at most")
    parts = [
        record["clip_ratio/low_mean"] + record["clip_ratio/high_mean"] for record in logs[level]
    ]
    assert (
        max(abs(a - b) for a, b in zip(parts, logged(level, "clip_ratio/region_mean"), strict=True))
        < 1e-6
    )
assert max(worst.values()) < 1e-6

print("\n           values of low_min            values of high_max")
for level in logs:
    low, high = (
        sorted(set(logged(level, f"clip_ratio/{name}"))) for name in ("low_min", "high_max")
    )
    some = ", ".join(f"{value:.2f}" for value in high[:5]) + (", …" if len(high) > 5 else "")
    print(f"{level:9}  {', '.join(f'{value:.2f}' for value in low):28} {some}")
high_max = set(logged("sequence", "clip_ratio/high_max"))
assert high_max == {0.0, 1.0}

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "11 high max",
    "b",
    "an answer is clipped whole or not at all, and the largest of 64 such numbers is 1 as soon "
    "as one of them is.",
    {
        "a": "that is the token level.",
        "c": "one ratio per answer: its tokens share their fate.",
    },
)

# %% [markdown]
r"""
- **`clip_ratio/region_mean`**, token level: the share of *tokens* without gradient, our
  `clip_fraction_token_weighted`. Sequence level: the share of *answers*, our `clip_fraction_seq`.
- **`low_mean`**, **`high_mean`**: its two parts, A < 0 below the range and A > 0 above it.
- **`low_min`**, **`high_max`**: smallest and largest share within one answer. At sequence level 0
  or 1, and hardly ever of use.
- **`cispo_clip_ratio`**, with `loss_type="cispo"`: our `cap_fraction_trl`.
- **`completions/clipped_ratio`** is *no* clip fraction: it is the share of answers that the length
  limit cut.

None counts what lies *outside* the range while min() keeps the gradient. verl's clip fraction for
GSPO weighs answers by their tokens; compare it with our `clip_fraction_token_weighted`.

## 5 · The same number

What is measured here holds there only if both minimise the same thing. For one mini-batch of the
run above:
"""

# %% tags=["nbval-ignore-output"]
batch = batches["sequence"][-1]
logp = batch.logp.clone().requires_grad_()
mine = gspo(logp, batch.logp_old, batch.advantages, batch.mask).loss
trl, _ = loss_of(trainer, logp, batch.logp_old, batch.advantages, batch.mask)
by_mine, by_trl = (torch.autograd.grad(loss, logp)[0] for loss in (mine, trl))
apart = ((by_mine - by_trl).abs().max() / by_mine.abs().max()).item()
print(f"loss in the run {batch.loss:.7f}, TRL's code again {trl:.7f}, ours {mine:.7f}")
print(f"gradients apart by {apart:.0e} of the largest entry")
assert math.isclose(mine.item(), trl.item(), rel_tol=1e-5, abs_tol=1e-7)
assert math.isclose(mine.item(), batch.loss.item(), rel_tol=1e-5, abs_tol=1e-7)
assert apart < 1e-6

# %% [markdown]
r"""
`docs/parity.md` has the same for seventeen settings of TRL (GRPO, Dr. GRPO, DAPO, CISPO, SAPO, with
KL and without) and for verl's formulas, and says which of their words is which of ours.

## 6 · What goes wrong without an error

**Rounding.** TRL computes in bfloat16 unless told otherwise, on a CPU too. The run below uses TRL's
default learning rate, 1e-6, so the policy hardly moves between mini-batches.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "11 bf16",
    "One rollout, four updates, learning rate 1e-6, GSPO's range. How does the clip ratio of the "
    "last update compare between float32 and bfloat16?",
    {
        "a": "about equal: bf16 has the exponents of float32",
        "b": "bf16 clips less: small differences round to 0",
        "c": "bf16 clips many times more",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
print("                          std of log s in updates 1 to 4            clip ratio")
slow = {}
for bf16 in (False, True):
    small = toy_trainer(**paper_settings("sequence", bf16=bf16, learning_rate=1e-6))
    seen = watched(small)
    log = trained(small, 1)
    spread = [sequence_log_ratio(b.logp, b.logp_old, b.mask).std().item() for b in seen]
    clip = [record["clip_ratio/region_mean"] for record in log]
    slow[bf16] = (spread[1:], clip[1:])
    line = "  ".join(f"{value:8.1e}" for value in spread)
    print(f"{'bfloat16' if bf16 else 'float32':10} {line}    ", "  ".join(f"{c:.2f}" for c in clip))
assert min(slow[True][0]) > 5 * max(slow[False][0])
assert min(slow[True][1]) > 0.2 > max(slow[False][1])

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "11 bf16",
    "c",
    f"{slow[True][1][-1]:.2f} against {slow[False][1][-1]:.2f}: nearly all of it is rounding.",
    {
        "a": "the exponents, yes. But it has 8 significant bits, steps of 0.4 to 0.8 %.",
        "b": "the forward pass rounds at each layer. Weights that moved by a hair round elsewhere.",
    },
)

# %% [markdown]
r"""
Two log-probs of bfloat16 passes differ by some thousandths as soon as the weights differ at all,
and GSPO's range is 3 to 4 ten-thousandths. On your own model: make one rollout's updates at a
hundredth of the learning rate. What is still clipped, rounding clips. (At real scale bf16 passes
are usual, and errors of random sign average out over thousands of tokens. How far, only
measuring tells.)

**Length.** With the default `loss_type`, what happens to two answers of 2 and 20 tokens that have
the same ratio and the same advantage?
"""

# %%
mask = (torch.arange(20) < torch.tensor([[2], [20]])).long()
old = torch.full((2, 20), -1.0)
for kind in ("grpo", "dapo", "bnpo"):
    trl = toy_trainer(**paper_settings("sequence", loss_type=kind))
    logp = old.clone().requires_grad_()
    loss, _ = loss_of(trl, logp, old, torch.ones(2), mask)
    pull = torch.autograd.grad(loss, logp)[0].abs().sum(dim=1)
    share = (pull / pull.sum()).tolist()
    default = "  (TRL's default)" if kind == defaults["loss_type"] else ""
    print(f"loss_type={kind!r}: shares of the pull {share[0]:.3f} and {share[1]:.3f}{default}")
    assert math.isclose(share[1], 0.5 if kind == "grpo" else 20 / 22, rel_tol=1e-5)

[warning] = said_by_trl(**paper_settings("sequence", loss_type="dapo"))
print("\nTRL says once, among the first lines:")
print(f"  {warning.split(',')[1].strip()} …")
assert said_by_trl(**paper_settings("sequence")) == []

# %% [markdown]
r"""
**The router's second loss.** A Qwen3-MoE asks for an auxiliary load-balancing loss, and TRL adds it
unless its coefficient is set to 0. **Padding.** An answer that ends in a sampled padding token
counts as finished. **Sizes.** The rollout must hold whole groups.
"""

# %%
silent = {k: v for k, v in paper_settings("sequence").items() if k != "router_aux_loss_coef"}
balanced = toy_trainer(**silent)
print(f"auxiliary loss on: {balanced.aux_loss_enabled}, weight {balanced.router_aux_loss_coef}")
assert balanced.aux_loss_enabled
assert not trainer.aux_loss_enabled

END, PAD = words.eos_token_id, words.pad_token_id
answers = {"ends": [3, 5, END], "was cut": [3, 5, 7], "was cut, last token padding": [3, 5, PAD]}
trainer._generate_single_turn = lambda *_, **__: (list(answers.values()), None)
trainer._metrics["train"].clear()
trainer._generate([prompt] * 3)
[cut] = trainer._metrics["train"]["completions/clipped_ratio"]
print(f"answers cut, as TRL counts: {cut:.3f}   (two of three were)")
assert math.isclose(cut, 1 / 3, rel_tol=1e-6)

try:
    toy_trainer(**paper_settings("sequence", per_device_train_batch_size=33))
except ValueError as error:
    print(error)

config = GRPOConfig(
    output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], activation_checkpointing=True
)
assert config.bf16
assert defaults["gradient_checkpointing"]

# %% [markdown]
r"""
**The engine's correction.** With `use_vllm=True` another engine samples, and TRL corrects for what
it computes differently, unless told otherwise: each answer's term is multiplied by

$$W = \prod_t \frac{\pi_\text{trainer}(y_t)}{\pi_\text{engine}(y_t)}, \qquad
\text{and by 0 if } W > 3 .$$

That is a *product*, also where `importance_sampling_level="sequence"` takes a root: such a run has
two ratios per answer, the root for how far the policy moved and the product for the engine.
"""

# %%
with_vllm = {
    "use_vllm": False,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
}
assert with_vllm.items() <= defaults.items()
for name, value in with_vllm.items():
    print(f"{name:37}{value!s:>14}")

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "11 engine weight",
    "Answers of 1000 tokens, an engine that is off by a KL of 1.5e-3 per token. Over all answers "
    "the weight W has the mean 1. What is left of this mean after answers with W > 3 are dropped?",
    {
        "a": "1: what is dropped is made up for",
        "b": "about 0.95: few answers are above 3",
        "c": "about 0.4",
        "d": "about 0.01",
    },
    my_guess,
)

# %% [markdown]
r"""
Lesson 10 has the two numbers that we need: where the engine sampled, each token's log-ratio has the
mean −KL and the variance 2 KL. If errors are independent, log W of L tokens is normal with the mean
−KL·L and the variance 2 KL·L. The share dropped is what lies above log 3. And multiplying a normal
density by W moves its middle from −KL·L to +KL·L, so the mean weight of those kept is the share of
*that* curve below log 3.
"""

# %%
TOP = defaults["vllm_importance_sampling_clip_max"]


def engine_weight(kl, length):
    """Share dropped, mean weight (0 for those dropped) and median weight of an answer."""
    shift, std = kl * length, math.sqrt(2 * kl * length)
    dropped = 1 - NormalDist(-shift, std).cdf(math.log(TOP))
    return dropped, NormalDist(shift, std).cdf(math.log(TOP)), math.exp(-shift)


print("             KL 2e-4 (lesson 10's bf16 engine)     KL 1.5e-3 (reported for an MoE)")
print("length    dropped  mean weight  median weight    dropped  mean weight  median weight")
for length in (10, 100, 1000, 10_000):
    cells = ""
    for kl in (2e-4, 1.5e-3):
        dropped, mean, median = engine_weight(kl, length)
        cells += f"{dropped:10.1%}{mean:13.3f}{median:15.2g} "
    print(f"{length:6} {cells}".rstrip())
left = engine_weight(1.5e-3, 1000)

# The same from sampled answers.
dice = torch.Generator().manual_seed(0)
drawn = (torch.randn(200_000, generator=dice) * math.sqrt(3) - 1.5).exp()
kept = drawn.where(drawn <= TOP, 0.0)
assert math.isclose(kept.mean().item(), left[1], abs_tol=0.01)
assert math.isclose((kept == 0).float().mean().item(), left[0], abs_tol=0.01)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "11 engine weight",
    "c",
    f"{left[1]:.2f}, although only {left[0]:.0%} of the answers are dropped: these few carried the "
    "rest.",
    {
        "a": "a dropped answer counts as 0, and nothing else grows for it.",
        "b": "few are dropped, but they are the ones with the large weights.",
        "d": "so it is at 10 000 tokens.",
    },
)

# %% [markdown]
r"""
So on average the pull of an answer falls with its *length*: ten tokens count in full, ten thousand
by a third or next to nothing, for the engine's rounding alone and whatever they were worth. TRL's
pull request 5815 (not merged) reports a mean weight of 0.569 in a run and proposes the root; lesson
10 has the dispute. (Independent, normal errors are our assumption. The KL of 1.5e-3 is from Ma et
al., arXiv 2510.11370, known to us through notes, and taken as of this direction. Your run logs its
own mean weight: `sampling/importance_sampling_ratio/mean`.)

All together, with what to set:

- **One update per rollout.** You see a clip ratio of exactly 0 in every line.
  `steps_per_generation=4`, `gradient_accumulation_steps=1`.
- **Range 0.2 on sequence ratios.** A clip ratio near 0 at sequence level. `epsilon=3e-4`,
  `epsilon_high=4e-4`, or a range of your own (next section).
- **bf16, on a CPU too.** Slower there; answers are clipped at any learning rate, however small.
  `bf16=False` where you can afford it.
- **Answers weighted by length.** One warning at the start. `loss_type="grpo"`.
- **The auxiliary loss.** A metric `aux_loss` in the log. `router_aux_loss_coef=0.0`.
- **vLLM's correction** is on, by the product over the answer. A
  `sampling/importance_sampling_ratio/mean` well below 1, lower the longer the answers are.
  `vllm_importance_sampling_mode="token_truncate"` weighs token by token (TIS);
  `vllm_importance_sampling_correction=False` gives lesson 10's *recomputed*.
- **Gradient checkpointing** is on: a second forward pass in each update. With memory to spare
  `activation_checkpointing=False` (`gradient_checkpointing` before transformers 5).
- **A sampled padding token ends an answer.** Answers without an end count as finished. Let the
  reward function look for the end token.
- **Sizes that do not fit.** An error, at once. Batch × processes × steps must be divisible by
  `num_generations`.
- **The KL term is multiplied by the ratio**, if `beta` is not 0. For the plain term
  `use_bias_correction_kl=False`.
- **A learning rate of 1e-6**, falling to 0. On a small model nothing moves. `learning_rate`,
  `lr_scheduler_type`.

## 7 · How do I know it works?

`record_run` wrote each update of section 3 to a file, without changing the run; it works on any
`GRPOTrainer`. `gspo-edu inspect` reads such files:
"""

# %% tags=["nbval-ignore-output"]
command = [sys.executable, "-m", "gspo_edu.cli", "inspect", str(recorded)]
report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
sections = report.split("\n\n")
print("\n\n".join(part for part in sections if part.startswith(("run", "Ratios", "A range"))))
assert "sigma" in report

# %% [markdown]
r"""
Three checks for a run of your own, in this order:

1. **The first update of each rollout has clip ratio 0, the others do not.** If all are 0, the run
   is on-policy (section 2). If the first is not, two passes with the same weights disagree. An
   engine that disagrees (lesson 10) does not show here, since TRL recomputes the old log-probs;
   with vLLM look at `sampling/sampling_logp_difference/mean` and
   `sampling/importance_sampling_ratio/mean` (section 6).
2. **The range fits the spread of log s**, from the quantiles that `inspect` prints. Here 3e-4 is
   far below the spread, and that is what clips half of the answers; the paper's answers are
   thousands of tokens long, these have eight.
3. **The reward rises over several seeds.** Loss and clip ratio say nothing about that.

## 8 · More than one process

The same trainer runs in several processes, on one machine or many:

```
python -m gspo_edu.trl_toy
accelerate launch --multi_gpu --num_processes 2 -m gspo_edu.trl_toy
```

The second works without a GPU too (gloo does the talking). With `--cpu` in place of
`--multi_gpu`, accelerate starts *one* process and says nothing. `docs/real_trainers.md` compares
one process with two: the same batch, the same clip ratios, other samples.

## What is shown, and what is not

*Shown:* logits, loss, gradient and clip ratios agree with this course's code; the seven settings;
what each default does to this run. *Not shown:* anything about reward. Two arms, one seed, eight
rollouts: that ranks nothing. Lesson 08 has the study.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    16 * 2 * 8 / 8,
    [
        (16 * 8 / 8, "Both processes contribute answers."),
        (16 * 2 * 8, "That is the number of answers. Eight of them share a prompt."),
        (16 * 2 / 8, "That is one mini-batch. A rollout feeds eight of them."),
    ],
)
question_2 = (
    0.39 * 4 / 3,
    [
        (0.39, "One of the four updates always has 0."),
        (0.39 * 3 / 4, "The other way round: the mean is over four, one of them 0."),
        (0.39 * 4, "The sum is shared by three updates."),
    ],
)
question_3 = (
    90 / (30 + 90),
    [
        (0.5, 'That is loss_type="grpo".'),
        (30 / 120, "That is the shorter answer's share."),
        (3.0, "That is how many times the other's pull it is."),
    ],
)

# %% [markdown]
r"""
**1.** `per_device_train_batch_size=16`, two processes, `steps_per_generation=8`,
`num_generations=8`, no accumulation. How many different prompts does a rollout hold?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Four updates per rollout; the log shows 0.39 as the clip ratio averaged over whole rollouts.
What is it in the updates that can clip at all, on average?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** Two answers of 30 and 90 tokens, sequence level, same ratio, same advantage, TRL's default
`loss_type`. Which share of the pull has the longer one?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 10: min(exp(−1.2 + 2.0), 2) = {warm_up_1[0]:.1f}")
print(f"From lesson 08: (6 + 8) / 20 = {warm_up_2[0]:.2f}")
print(f"1. 16 · 2 · 8 / 8 = {question_1[0]:.0f}")
print(f"2. 0.39 · 4 / 3 = {question_2[0]:.2f}")
print(f"3. 90 / (30 + 90) = {question_3[0]:.2f}")
tis = {"kind": "tis", "cap": 2.0}
weight = correction_weight(tis, *torch.tensor([[[-1.2]], [[-2.0]]]), torch.ones(1, 1))
assert math.isclose(weight.item(), warm_up_1[0], rel_tol=1e-6)

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("11")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=11))

# %% [markdown]
r"""
## What comes next

You can now run the method, here and in a library. Whether to believe what is claimed for it is
another question: [lesson 12](12_critical_reading.ipynb) reads papers, figures and a press report
about GSPO, and ends with a page to fill in before you change your training run.

If your own model is a mixture of experts of transformers, `gspo_edu.moe.hf_routes` records its
routes and replays them (`recorded_routes`, `replayed_routes`), as lesson 09 does for ours.

**Sources.** TRL's code is read and run in the version named; what vLLM adds is read, not run.
"""

# %%
for key in ("gspo", "trl", "trl_paper_index", "trl_5815", "r3", "verl"):
    print(source(key))
