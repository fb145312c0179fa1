# %% [markdown]
r"""
# 00 · Start here

You will meet a tiny language model, give it a task, and watch it learn by reinforcement learning:
once with **GRPO** and once with **GSPO**, the two methods that this course compares. You need to
understand none of it yet. Everything you see here comes back later, slowly.

**What you will be able to do:** run a lesson, make predictions, say what the model's task is, and
read the three curves that the course keeps coming back to.

**Time:** 10 minutes to run it and look; 20 if you read every word and answer the three questions.
**You need:** some Python.

## How to use a notebook

Click into a cell and press **Shift + Enter**: it runs, and the next cell is selected. Do that from
top to bottom. (If something has become muddled: menu *Kernel → Restart Kernel and Run All Cells*.)

Some cells are folded: they draw a picture, or they would give an answer away. Run them like all
others; a click on the dots opens them. This is your own copy. Change whatever you like;
`python course.py reset 00` brings it back.
"""

# %%
import math
import sys

import torch
from IPython.display import display
from tqdm import tqdm

from gspo_edu.config import TrainConfig
from gspo_edu.figures import run_figure
from gspo_edu.glossary import table
from gspo_edu.initial import initial_policy
from gspo_edu.plots import show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.sampler import sampled_rollout
from gspo_edu.tasks.base import SYMBOLS, text
from gspo_edu.trainer import Trainer
from gspo_edu.widgets import GroupAdvantage

print("Everything is installed.")

# %% [markdown]
r"""
## The task: a walk on a clock

Imagine a clock with ten hours, 0 to 9. After 9 comes 0 again. A prompt looks like this:

    3 8 2 7 =

*Start at 3, stop at 8. Each move goes 2 or 7 hours forward.* An answer lists the hours that the
walk comes through, and then says `end`. One right answer is `5 7 4 6 8 end`: 3+2 = 5, 5+2 = 7,
7+7 = 14, which is 4, then 6, then 8. There are many right answers, short ones and long ones.

A few lines of code can check an answer, so the reward needs no human and no second model. It is a
**verifiable reward**: 1 for a right answer. A wrong one still gets something for what it did right:
half of the share of its moves that are allowed, so never more than 0.5. One that never says `end`,
or makes no move, gets 0.
"""

# %%
config = TrainConfig()
policy, task, card = initial_policy(config)


def ids(line):
    """(1, T) token numbers of a line of text."""
    return torch.tensor([[SYMBOLS.index(word) for word in line.split()]])


def reward_of(prompt, answer):
    """The verifier's reward for one answer."""
    tokens, ended = ids(answer), torch.tensor([answer.endswith("end")])
    return task.rewards(ids(prompt), tokens, torch.ones_like(tokens).bool(), ended).item()


right = reward_of("3 8 2 7 =", "5 7 4 6 8 end")
print(f"5 7 4 6 8 end: reward {right:.2f}")
assert right == 1

# %% [markdown]
r"""
**Your first prediction.** This is how it goes in all lessons: before something surprising happens
you are asked what you expect. Put your guess after `my_guess =`, with quotation marks if it is a
letter, and run the cell. It is kept for the end of the lesson. If you type nothing, the lesson goes
on all the same, but predicting first is what makes it stick, even when the prediction is wrong.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "00 reward",
    "Same prompt, 3 8 2 7 =. The answer is 5 7 9 end: three allowed moves, but it stops at 9 "
    "instead of 8. Which reward does it get?",
    {
        "a": "0: the goal was missed",
        "b": "0.5",
        "c": "0.75: three of four tokens are right",
        "d": "1: all moves are allowed",
    },
    my_guess,
)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
missed = reward_of("3 8 2 7 =", "5 7 9 end")
partly = reward_of("3 8 2 7 =", "5 6 8 end")
print(f"5 7 9 end: reward {missed:.4f}   (3 of 3 moves allowed, goal missed)")
print(f"5 6 8 end: reward {partly:.4f}   (2 of 3 moves allowed, goal reached)\n")
assert missed == 0.5
assert math.isclose(partly, 1 / 3, rel_tol=1e-6)
reconcile(
    "00 reward",
    "b",
    f"{missed:.2f}: the share of allowed moves is 1, and half of that is what a wrong answer gets.",
    {
        "a": f"allowed moves are worth something in a wrong answer, too: {missed:.2f} here.",
        "c": "`end` is not a move; 3 of 3 moves are allowed.",
        "d": "the walk has to stop at the goal to be right, and only a right one gets 1.",
    },
)

# %% [markdown]
r"""
## The model

The model that comes with the course is a *policy*: shown a prompt and the beginning of an answer,
it gives each possible next token a probability. It is a **mixture of experts**, built like Qwen3's
large ones, only tiny. It has had a *cold start*: it has imitated walks with mistakes in them (a
digit is replaced by a random one with probability 0.3). So it knows the shape of an answer, but is
right only about once in twenty times.

It draws each next token at random by its probabilities, so it gives different answers to one
prompt. Here are eight:
"""

# %% tags=["nbval-ignore-output"]
weights = sum(weight.numel() for weight in policy.parameters())
print(f"weights: {weights}\n")

dice = torch.Generator().manual_seed(10)
rollout = sampled_rollout(policy, task, ids("3 8 2 7 ="), group_size=8, generator=dice)
print("prompt 3 8 2 7 =")
for tokens, mask, reward in zip(rollout.tokens, rollout.mask, rollout.rewards, strict=True):
    print(f"   reward {reward:.2f}   {text(tokens[mask])}")

assert 100_000 < weights < 200_000
assert len(rollout) == 8
assert rollout.rewards.min() < rollout.rewards.max()

# %% [markdown]
r"""
This is a *group*: several answers to one prompt. Both methods learn from such groups in the same
way: an answer better than its siblings gets a positive **advantage** and is made likelier, one
that is worse gets a negative one and is made less likely. Drag the rewards and see how the
advantages follow. Make them all equal: what can be learned from such a group?
"""

# %% tags=["nbval-ignore-output"]
group = GroupAdvantage([round(reward, 2) for reward in rollout.rewards.tolist()])
display(group)

# %%
flat = GroupAdvantage([0.5] * 8)
print(f"All rewards equal: the advantages add up to {sum(map(abs, flat.advantages)):.1f}. ", end="")
print("Nothing to learn.")
assert not any(flat.advantages)

# %% [markdown]
r"""
## Two methods, one rollout after the other

Now training. A **rollout** is a batch of answers: 32 prompts, 8 answers each. It is used in four
parts, the *mini-batches*, one gradient update each. After the first update the policy is no longer
the one that wrote the answers, and the longer it goes on, the staler they get. Both methods guard
against this by **clipping**: what has already moved far enough in the direction it should go gets
no further gradient.

- **GRPO** (DeepSeek, 2024) asks of each *token* how far it has moved.
- **GSPO** (Qwen, 2025) asks it of the *answer* as a whole, and allows it very little: its range is
  more than 600 times narrower.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "00 clipping",
    "One of them will throw away more of its gradient by clipping. What does that do to its "
    "reward over twelve rollouts?",
    {
        "a": "it does not learn at all",
        "b": "it learns, too",
        "c": "it gets worse and worse",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
runs, gains = {}, {}
for objective in ("grpo", "gspo"):
    config = TrainConfig(objective=objective, seed=0, rollouts=12, eval_every=0)
    trainer = Trainer(config, *initial_policy(config)[:2])
    before = trainer.initial_held_out["held_out_reward"]
    records = []
    bar = "{desc} {bar:30} {n_fmt}/{total_fmt} rollouts"
    for _ in tqdm(range(config.rollouts), desc=objective, bar_format=bar, file=sys.stdout):
        records += trainer.next_rollout()
    runs[objective] = [records]
    gains[objective] = records[-1]["held_out_reward"] - before

clipped = {
    name: sum(record["clip_fraction_seq"] for record in records) / len(records)
    for name, (records,) in runs.items()
}
print(f"\nreward on prompts never trained on, before: {before:.3f}")
for name, gain in gains.items():
    print(f"{name}: after {before + gain:.3f}, gain {gain:+.3f}, clipped {clipped[name]:.1%}")

for name, (records,) in runs.items():
    assert len(records) == 48
    assert all(math.isfinite(record["loss"]) for record in records)
    assert sum(record["drift_per_update"] for record in records) > 0
    assert gains[name] > 0.03
assert clipped["gspo"] > 10 * clipped["grpo"]

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    run_figure(runs, start=before),
    "Three panels over twelve rollouts for GRPO and GSPO: the reward rises under both; the clip "
    "fraction is about 0.4 under GSPO and falls below 0.03 under GRPO; the drift per update is "
    "around one per cent or less under both.",
)

# %% [markdown]
r"""
**How to read it.** Left: the mean reward of each rollout's answers; the grey line is where both
began. It goes up and down, since each rollout has other prompts, but the direction is clear.
Middle: the share of each answer that got *no* gradient. Mind the axis: GSPO's share is about twenty
times GRPO's. Right: **drift**, the share of expert choices that one update changed. A mixture of
experts picks two of its eight experts for every token, and an update can change such a choice; here
fewer than one in a hundred. Lesson 05 explains the middle picture.
"""

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "00 clipping",
    "b",
    f"GSPO clips {clipped['gspo']:.0%} and gains {gains['gspo']:+.3f}; GRPO clips "
    f"{clipped['grpo']:.1%} and gains {gains['grpo']:+.3f}. Both learn, and one seed cannot tell "
    "which learns better.",
    {
        "a": f"it gains {gains['gspo']:+.3f}: clipping silences answers that have already moved in "
        "the right direction, not all of them.",
        "c": f"it gains {gains['gspo']:+.3f}.",
    },
)

# %% [markdown]
r"""
## What one seed cannot show

You have seen one run of each method. With another seed the prompts, the samples and the order would
be others, and the one that is ahead here might be behind, or further ahead. So these curves say
*that* both learn. They do not say *which is better*. For that one needs several seeds, the same for
both methods, and an interval:

    python course.py compare

trains both on five seeds and prints the paired differences (a few minutes). And the model is a
hundred thousand times smaller than the ones that the methods were made for: what holds here need
not hold there. The lessons say each time whether something is arithmetic, was measured here, or was
reported by somebody. Lesson 05 ends with an experiment on that command.

## The map

| lesson | afterwards you can |
|---|---|
| [01 The reward](01_reward.ipynb) | say where rewards come from, and how a wrong one is exploited |
| [02 PPO](02_ppo.ipynb) | compute an importance ratio, and say when clipping stops the gradient |
| [03 GRPO](03_grpo.ipynb) | turn the rewards of a group into advantages, without a critic |
| [04 Token ratios](04_token_ratios.ipynb) | compute how biased and how noisy a gradient is |
| [05 GSPO](05_gspo.ipynb) | compute one ratio per answer, and explain its tiny clip range |
| [06 Who gets the gradient](06_who_gets_the_gradient.ipynb) | compare objectives token by token |
| [07 Experts and drift](07_experts_and_drift.ipynb) | say why experts change, and how ratios jump |
| [08 The experiment](08_the_experiment.ipynb) | read a study of many seeds |
| [09 Routing Replay](09_routing_replay.ipynb) | replay old routes, and say what that costs |
| [10 Engines](10_engines.ipynb) | say whose log-probs count as old, and what that does to ratios |
| [11 The same in TRL](11_in_trl.ipynb) | set TRL to the paper's GSPO, and read its clip ratios |
| [12 Critical reading](12_critical_reading.ipynb) | judge a claim, a figure and the next paper |

Take them in this order. Each asks for predictions, has cells for you to fill, and ends with three
questions. `check_answer` tells you at once whether a number is right and, if it is a usual mistake,
which. Try it here. The folded cell holds what your answers are compared with: run it, but leave it
folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    12 * 4,
    [
        (12, "Each rollout is used in four mini-batches, with one update each."),
        (2 * 12 * 4, "That is both trainings together."),
        (32 * 8 * 12, "That is the number of answers."),
    ],
)
question_2 = (
    12 * 32 * 8,
    [
        (32 * 8, "That is one rollout; there were twelve."),
        (12 * 32, "That counts prompts. Each got 8 answers."),
        (12 * 32 * 8 * 4, "The four mini-batches share a rollout; they do not sample anew."),
    ],
)
question_3 = (
    reward_of("0 5 1 4 =", "1 5 6 end"),
    [
        (1.0, "All three moves are allowed. But where does the walk stop?"),
        (2 / 3, "6 is one hour after 5, so that move is allowed, too."),
        (0.0, "A wrong answer keeps half of the share of its allowed moves."),
        (1 / 3, "All three moves are allowed: 0+1, 1+4, 5+1."),
    ],
)

# %% [markdown]
r"""
**1.** How many gradient updates did each of the two trainings make?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** How many answers did each of them sample for training?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** Prompt `0 5 1 4 =` (start at 0, stop at 5, moves of 1 or 4), answer `1 5 6 end`. Which
reward?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"1. 12 rollouts x 4 mini-batches = {12 * 4}")
print(f"2. 12 rollouts x 32 prompts x 8 answers = {12 * 32 * 8}")
print(f"3. 3 of 3 moves allowed, but it stops at 6: {reward_of('0 5 1 4 =', '1 5 6 end'):.2f}")

# %% [markdown]
r"""
At the end of each lesson you see your predictions beside the outcomes:
"""

# %% tags=["nbval-ignore-output"]
summary_picture("00")

# %% [markdown]
r"""
And the new words, in four languages. `gspo_edu.glossary.term("rollout")` looks one up;
`gspo_edu.glossary.table()` shows all of them.
"""

# %%
display(table(lesson=0))

# %% [markdown]
r"""
## What comes next

[Lesson 01](01_reward.ipynb) asks where a reward comes from: from people, or from a program that
checks. [Lesson 02](02_ppo.ipynb) starts with the idea that everything here is built on: how much
likelier has the policy made this token? The method is from 2017, and GRPO and GSPO each exchange
one part of it.

*Sources:* GRPO: Shao et al. 2024, arXiv 2402.03300. GSPO: Zheng et al. 2025, arXiv 2507.18071.
"""
