# %% [markdown]
r"""
# 01 · From human feedback to verifiable rewards

Reinforcement learning makes likelier what is rewarded. So everything depends on where the reward
comes from. For chatbots it came from people, by way of a model that learned what people prefer. For
mathematics and programs it can be computed. In this lesson you do both on the clock task, and see
what each is worth.

**Afterwards you can**

- say what pre-training and post-training are, and what RLHF consists of;
- fit a reward model to comparisons, and say how many comparisons buy how much accuracy;
- explain how a policy exploits a reward model that is right in 97 of 100 comparisons, and what a
  verifier changes.

**Time:** 40 minutes. **You need:** lesson 00 (the clock task and its reward).

**First, one from lesson 00.** Prompt `2 7 3 6 =` (start at 2, stop at 7, moves of 3 or 6), answer
`5 8 4 end`. Which reward? (The folded cells import, and hold what your answer is compared with:
run them, but leave them folded.)
"""

# %% jupyter={"source_hidden": true}
import math
import sys
from dataclasses import replace

import numpy as np
import torch
from IPython.display import display
from tqdm import tqdm

from gspo_edu.bibliography import source
from gspo_edu.config import TrainConfig
from gspo_edu.feedback_diagram import feedback_figure
from gspo_edu.glossary import table
from gspo_edu.initial import initial_policy
from gspo_edu.intervals import mean_interval
from gspo_edu.plots import BLACK, BLUE, GREY, ORANGE, new_figure, show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.reward_model import (
    FEATURES,
    ModelledWalk,
    best_of,
    error_rate_behind,
    fitted_reward_model,
    pair_accuracy,
    preferences,
    probability_first_wins,
    walk_features,
)
from gspo_edu.sampler import sampled_rollout
from gspo_edu.tasks.base import SYMBOLS, distinct_held_out_prompts, prompts_of_split, text
from gspo_edu.trainer import Trainer

# %% tags=["check"] jupyter={"source_hidden": true}
torch.set_num_threads(1)
policy, task, _ = initial_policy(TrainConfig())


def ids(line):
    """(1, T) token numbers of a line of text."""
    return torch.tensor([[SYMBOLS.index(word) for word in line.split()]])


def reward_of(prompt, answer):
    """The verifier's reward for one answer."""
    tokens = ids(answer)
    return task.rewards(ids(prompt), tokens, tokens >= 0, torch.tensor([True])).item()


warm_up = (
    reward_of("2 7 3 6 =", "5 8 4 end"),
    [
        (1.0, "All moves are allowed. But where does the walk stop?"),
        (1 / 3, "8 to 4 is six hours forward (8, 9, 0, 1, 2, 3, 4), so it is allowed, too."),
        (0.0, "A wrong answer keeps half of the share of its allowed moves."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up)

# %% [markdown]
r"""
## Two phases

A language model is made in two phases.

**Pre-training:** predict the next token, on very much text. Out comes a model that can go on with
any text as its authors might have done, mistakes included.

**Post-training:** everything after that. First comes **fine-tuning** on examples of what one wants
(follow an instruction, show the steps): imitation again, on better text. Then reinforcement
learning. It does not show the model what to write; it lets the model write and says how good that
was. It is the part of post-training that people scale up to make models reason, in the mathematics
of competitions and in programming (with this the GSPO paper opens, arXiv 2507.18071).

Our policy has had the first kind of training: it imitated walks on the clock, in which each digit
had been replaced by a random one with probability 0.3.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "01 imitation",
    "Some of these spoilt demonstrations are still right. How often is the policy right, which was "
    "trained to imitate them?",
    {
        "a": "more often than they are: the mistakes are random, so they average out",
        "b": "about as often as they are",
        "c": "less often than they are",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
dice = torch.Generator().manual_seed(0)
prompts = prompts_of_split(task, 1000, dice, held_out=True)
shown, mask = task.demonstrations(prompts, 0.3, dice)
shown_right = task.exact(prompts, shown, mask, torch.ones(len(prompts)).bool()).double().mean()
written = sampled_rollout(policy, task, prompts, 1, generator=dice)
written_right = (written.rewards == 1).double().mean()
print(f"right among the demonstrations:    {shown_right:.2f}")
print(f"right among the policy's answers:  {written_right:.2f}")
assert 0.1 < shown_right < 0.25
assert 0.02 < written_right < 0.1

print("\nthe same policy, its probabilities sharpened before sampling (temperature below 1)")
right_at = {}
for temperature in (0.5, 0.3, 0.01):
    sharper = sampled_rollout(policy, task, prompts, 1, temperature=temperature, generator=dice)
    right_at[temperature] = (sharper.rewards == 1).double().mean()
    print(f"temperature {temperature:4}: right {right_at[temperature]:.2f}")
assert shown_right < right_at[0.5] < right_at[0.3] < right_at[0.01]
assert right_at[0.01] > 0.7

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
reconcile(
    "01 imitation",
    "c",
    f"{written_right:.0%} against {shown_right:.0%}. It learns to make the mistakes as well, and "
    "adds its own.",
    {
        "a": f"they do if it always takes its likeliest token: {right_at[0.01]:.0%} (temperature "
        "0.01). But it samples, and has learned to write a random digit in three places of ten.",
        "b": "a perfect imitation would be. This one is not perfect.",
    },
)

# %% [markdown]
r"""
Sampled as it was trained, a policy is at best as good as its examples. At a low **temperature**,
where it writes hardly anything but its likeliest tokens, this one is far better than they are,
since their mistakes are random and cancel out. (The course samples at temperature 1, because
training needs answers that differ.) But imitation alone never says which answers are good. Mistakes
that all examples share would stay. Somebody has to judge.

## People compare

Ask people for a mark between 0 and 10, and everybody's 7 means something else. Which of two answers
is better is an easier question. That is the idea of **RLHF**, reinforcement learning from human
feedback:

1. The policy writes several answers to a prompt. People say which is better, or rank them all.
2. A **reward model** learns from this to give every answer a number.
3. The policy is optimised against that number, with PPO (lesson 02).

> **What OpenAI reports.** InstructGPT (arXiv 2203.02155) was made so, by about 40 people, selected
> and trained for it. They ranked 4 to 9 answers at a time; nine ranked answers give 36 pairs at
> once. They agreed with each other 72.6 ± 1.5 % of the time (section 3.4, which does not say on
> which of their tasks). ChatGPT, the announcement says, was made by the same method: ranked
> answers, a reward model, PPO. It is sometimes retold as if the best answers served as examples.
> They do not: what the reward model learns from is the *order*.

The people are slow and cost money, they have to be trained, and they err. The model that stands in
for them is trained, too.
"""

# %% tags=["nbval-ignore-output"]
show(
    feedback_figure(),
    "Above, human feedback: the policy samples answers; people compare a few of them; their labels "
    "train a reward model, which then scores all answers; the score is the reward for a gradient "
    "step. Below, a verifiable reward: a program checks all answers, and its result is the reward.",
)
assert math.comb(9, 2) == 36

# %% [markdown]
r"""
**How to read it.** Above, the loop goes through a model that is trained itself. People enter it at
one place only, and see only a few of the answers. Below, there is no person and no second model. A
program looks at every answer. We build the upper picture first.

## A model of preferences

Give each answer a number, its score $u$. The **Bradley–Terry model** (1952, made for ranking by
pairs) says that the first of two answers is preferred with the probability

$$ P(\text{first preferred}) = \frac{1}{1 + e^{-(u_1 - u_2)}} $$

(arXiv 2203.02155, eq. 1, takes the log of it). **By hand**, for the scores 2 and 1: the difference
is 1, so $P = 1 / (1 + e^{-1})$.
"""

# %%
u_1, u_2 = 2.0, 1.0
P = 1 / (1 + math.exp(-(u_1 - u_2)))
same = probability_first_wins(torch.tensor(u_1 - u_2, dtype=torch.float64)).item()
print(f"P(first preferred) = 1 / (1 + {math.exp(-1):.4f}) = {P:.4f}")
print(f"with the scores 102 and 101: {1 / (1 + math.exp(-(102 - 101))):.4f}")
assert math.isclose(P, same)

# %% [markdown]
r"""
Only the difference counts. A reward model's score has no zero and no meaning of its own: 102 is
good only if other answers to the *same prompt* get less.

**Fitting** means to choose the scores under which the choices that people made are likeliest: for
each pair take $-\log P(\text{what was chosen})$ and make the mean small.

What does our model look at? A real one is a language model and finds its own features. Ours gets 31
numbers per answer: which shares of the moves are 0, 1, … 9 hours longer than the smaller allowed
step, the same for the larger one, where the walk stops as seen from the goal, and the number of
moves. The score is a weighted sum of them. It must *find out* that "0 hours longer than an allowed
step" is good, and so on; nobody tells it.
"""

# %%
answer = ids("5 2 9 end")
seen = walk_features(ids("3 8 2 7 ="), answer, answer >= 0)[0]
print("prompt 3 8 2 7 =, answer 5 2 9 end (moves of 2, 7 and 7; stops one hour after the goal)")
for name, value in zip(FEATURES, seen, strict=True):
    if value:
        print(f"   {name:18} {value:.2f}")
assert len(FEATURES) == 31

# %% [markdown]
r"""
## Our raters

They are simulated: they see what the verifier sees, prefer the answer with the higher reward, and
sometimes err. How often?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "01 how often a rater errs",
    "Two raters, independent of each other, agree on 72.6 % of the pairs, as often as "
    "InstructGPT's did. Suppose that one answer of each pair is really better. On which share of "
    "the pairs does ONE rater err? (Take a pencil.)",
    {"a": "27.4 %", "b": "16.4 %", "c": "14.8 %", "d": "13.7 %"},
    my_guess,
)

# %%
AGREEMENT = 0.726
ERROR = error_rate_behind(AGREEMENT)
print(f"error rate e = (1 - √(2 · {AGREEMENT} - 1)) / 2 = {ERROR:.3f}")
print(f"both right {(1 - ERROR) ** 2:.3f} + both wrong {ERROR**2:.3f} = {AGREEMENT}")
assert math.isclose((1 - ERROR) ** 2 + ERROR**2, AGREEMENT)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
options = (1 - AGREEMENT, ERROR, 1 - math.sqrt(AGREEMENT), (1 - AGREEMENT) / 2)
assert [f"{share:.1%}" for share in options] == ["27.4%", "16.4%", "14.8%", "13.7%"]
reconcile(
    "01 how often a rater errs",
    "b",
    f"they agree if both are right or both are wrong: (1 - e)² + e² = {AGREEMENT}, so e = "
    f"{ERROR:.3f}.",
    {
        "a": "that is how often they disagree. Either of them can be the one who errs.",
        "c": "that counts only the pairs on which both are right. If both are wrong, they agree "
        "as well.",
        "d": "that leaves out the pairs on which both err: there they agree.",
    },
)

# %% [markdown]
r"""
(For real people that is a crude model. Much of their disagreement is not error: they want different
things.) So our raters err in about one pair of six. Of two answers that are equally good they pick
one at random. Now collect comparisons: two answers of our policy to each prompt.
"""


# %% tags=["nbval-ignore-output"]
def collect(count, seed):
    """(pairs, first): two answers to each of ``count`` prompts, and what a rater prefers."""
    dice = torch.Generator().manual_seed(seed)
    prompts = prompts_of_split(task, count, dice, held_out=False)
    pairs = sampled_rollout(policy, task, prompts, 2, generator=dice)
    return pairs, preferences(pairs.rewards.view(-1, 2), ERROR, dice)


pairs, first = collect(300, seed=0)
for row in range(3):
    mine = [text(pairs.tokens[2 * row + i][pairs.mask[2 * row + i]]) for i in (0, 1)]
    worth = pairs.rewards[2 * row : 2 * row + 2]
    chosen = "first" if first[row] else "second"
    verdict = "rightly" if first[row] == (worth[0] > worth[1]) else "wrongly"
    print(f"prompt {text(pairs.prompts[row])}   the rater prefers the {chosen}, {verdict}")
    for line, reward in zip(mine, worth, strict=True):
        print(f"   {line:36} verifier: {reward:.2f}")
truth = pairs.rewards.view(-1, 2)
differ = truth[:, 0] != truth[:, 1]
agree = (first == (truth[:, 0] > truth[:, 1]))[differ].double().mean()
print(f"\nof 300 pairs {differ.sum()} have a better answer; the rater finds it in {agree:.0%}")
assert 0.75 < agree < 0.9

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "01 labels with errors",
    "Fit the reward model to 300 such comparisons, one in six of them wrong. How often does it "
    "pick the truly better answer of a new pair?",
    {
        "a": "in less than 84 %: it learns the raters' errors and adds its own",
        "b": "in about 84 %, as often as a rater does: no model is better than its labels",
        "c": "in more than 84 %",
    },
    my_guess,
)

# %% tags=["nbval-ignore-output"]
dice = torch.Generator().manual_seed(999)
fresh_prompts = prompts_of_split(task, 2000, dice, held_out=True)
fresh = sampled_rollout(policy, task, fresh_prompts, 2, generator=dice)

COUNTS, SEEDS = (30, 100, 300, 1000, 3000), range(5)
collected = {seed: collect(3000, seed) for seed in SEEDS}


def model_of(n, seed):
    """The reward model after the first n comparisons of one collection."""
    pairs, first = collected[seed]
    return fitted_reward_model((pairs.rows(torch.arange(2 * n)), first[:n]))


models = {(n, seed): model_of(n, seed) for n in COUNTS for seed in SEEDS}
accuracy = {at: pair_accuracy(model, fresh) for at, model in models.items()}
print("comparisons   accuracy on new pairs, five models")
for n in COUNTS:
    five = [accuracy[n, seed] for seed in SEEDS]
    low, high = mean_interval(five)
    numbers = "  ".join(f"{x:.2f}" for x in five)
    print(f"{n:11d}   {numbers}   mean {np.mean(five):.3f}, 95 % interval {low:.3f} to {high:.3f}")
errors = {n: 1 - np.mean([accuracy[n, seed] for seed in SEEDS]) for n in COUNTS}
assert errors[3000] < 0.35 * errors[300]
assert errors[30] > 0.25

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
at_300 = [accuracy[300, seed] for seed in SEEDS]
assert mean_interval(at_300)[0] > 1 - ERROR
assert min(accuracy[3000, seed] for seed in SEEDS) > 0.95
reconcile(
    "01 labels with errors",
    "c",
    f"{np.mean(at_300):.0%} on average, against {1 - ERROR:.0%} of a rater. Errors that do not "
    "agree with each other are outvoted: the model has 31 weights for 300 comparisons.",
    {
        "a": "that happens with few comparisons: 30 give "
        f"{np.mean([accuracy[30, seed] for seed in SEEDS]):.0%}.",
        "b": "random errors are not what the weights can follow. (Errors that all raters share "
        "would be: a model is not better than its labels' *bias*.)",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (ax,) = new_figure(width=6, height=3.1)
for n in COUNTS:
    five = [accuracy[n, seed] for seed in SEEDS]
    low, high = mean_interval(five)
    ax.plot([n, n], [low, min(high, 1)], color=BLUE, lw=3, alpha=0.35)
    ax.plot([n] * 5, five, "o", color=BLUE, ms=4, mfc="white")
means = [np.mean([accuracy[n, seed] for seed in SEEDS]) for n in COUNTS]
ax.plot(COUNTS, means, color=BLUE, lw=2, label="reward model, mean of five")
ax.axhline(1 - ERROR, color=GREY, ls="--", lw=1.2, label="one rater")
ax.axhline(1, color=BLACK, ls=":", lw=1.2, label="verifier")
ax.set(xscale="log", xlabel="comparisons (log scale)", ylabel="accuracy on new pairs")
ax.set_xticks(COUNTS, [str(n) for n in COUNTS])
ax.legend(fontsize=8, frameon=False, loc="lower right")
show(
    figure,
    "Accuracy on new pairs over the number of comparisons, five models each with mean and 95 per "
    "cent interval. It rises from about 0.64 with 30 comparisons to 0.87 with 300 and 0.97 with "
    "3000; one rater has 0.84, the verifier 1.",
)

# %% [markdown]
r"""
**How to read it.** Circles are five models at each size: five collections of 3000 comparisons, and
the model after the first 30, 100, … of each. The bar is the 95 % interval of the five's mean. Ten
times as many comparisons, from 300 to 3000, take away nearly three quarters of the errors. The axis
is logarithmic: each step upwards costs far more comparisons than the one before. The dotted line
needs no comparison at all.

## What has it learned?

Take the first of the five models of 3000 comparisons, and look at its weights:
"""

# %% tags=["nbval-ignore-output"]
best = models[3000, 0]
ranked = sorted(zip(best.weights.tolist(), FEATURES, strict=True), reverse=True)
for weight, name in [*ranked[:3], *ranked[-3:]]:
    print(f"{name:18} {weight:+.2f}")
at_goal = best.weights[FEATURES.index("stop = goal + 0")].item()
print(f"\nstop = goal + 0    {at_goal:+.2f}")
print(f"accuracy on new pairs: {accuracy[3000, 0]:.1%}; mean of the five {1 - errors[3000]:.1%}")
assert abs(1 - errors[3000] - 0.97) < 0.01
assert {name for _, name in ranked[:2]} == {"step = smaller + 0", "step = larger + 0"}
assert abs(at_goal) < 0.1 * ranked[1][0]

# %% [markdown]
r"""
It has found out that allowed steps are good and that others are not. But stopping at the goal,
which is what the task is about, is worth next to nothing to it. Why? In the comparisons it hardly
ever matters. Our policy is right once in twenty answers. And to stop at the goal by a forbidden
move earns nothing. So in nearly all pairs it is the share of allowed moves that decides, and who
gets that right gets nearly all pairs right.

## Optimise against it

Now use the score. The gentlest way is **best-of-n**: let the policy write $n$ answers, take the one
with the highest score. The larger $n$, the harder we optimise. With the verifier in the model's
place this is certain to help: with enough answers, one of them is right.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "01 best of many",
    "Take the answer that the model of 3000 comparisons scores highest, among 1, 2, 4, … 512. What "
    "does its TRUE reward do as n grows?",
    {
        "a": "it rises as it does with the verifier: 97 % is nearly perfect",
        "b": "it rises more slowly, to a lower level, and stays there",
        "c": "it rises first, then falls",
        "d": "it falls from the beginning",
    },
    my_guess,
)


# %% tags=["nbval-ignore-output"]
def many_answers(prompts, count, dice):
    """``count`` answers to each prompt, side by side; sampled in groups of 8, as in training."""
    again = prompts.repeat_interleave(count // 8, dim=0)
    answers = sampled_rollout(policy, task, again, 8, generator=dice)
    return replace(answers, prompts=prompts, group=answers.group // (count // 8), routes=None)


MANY, SIZES = 512, [2**k for k in range(10)]
dice = torch.Generator().manual_seed(5)
pool_prompts = distinct_held_out_prompts(task, 24, dice)
pool = many_answers(pool_prompts, MANY, dice)
true = pool.rewards.view(-1, MANY)


def chosen_by(scores):
    """True reward of the answer with the highest score among n, for each n; exact, not sampled."""
    return [best_of(scores, true, n) for n in SIZES]


by_verifier = chosen_by(true)
by_model = {
    at: chosen_by(model.of_rollout(pool).view(-1, MANY))
    for at, model in models.items()
    if at[0] in (30, 300, 3000)
}
print("true reward of the best of n" + "".join(f"{n:7d}" for n in SIZES[::3]))
print("chosen by the verifier      " + "".join(f"{x:7.2f}" for x in by_verifier[::3]))
for (n, seed), curve in by_model.items():
    if n != 30:
        numbers = "".join(f"{x:7.2f}" for x in curve[::3])
        print(f"{n:4d} comparisons, model {seed}   {numbers}")
at_goal = {
    at: models[at].weights[FEATURES.index("stop = goal + 0")].item() for at in sorted(by_model)
}
for n in (300, 3000):
    five = "".join(f"{at_goal[n, seed]:+7.2f}" for seed in SEEDS)
    print(f"weight of stop = goal + 0, {n:4d} comparisons, models 0 to 4: {five}")

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
curves = np.array([by_model[3000, seed] for seed in SEEDS])
assert max(max(by_model[30, seed]) for seed in SEEDS) < 0.6
lucky = max(SEEDS, key=lambda seed: by_model[300, seed][-1])
assert lucky == max(SEEDS, key=lambda seed: at_goal[300, seed])
assert 0.15 < at_goal[300, lucky] < 0.25
peaks, ends = curves.max(axis=1), curves[:, -1]
assert (peaks > curves[:, 0] + 0.3).all()
assert (ends < peaks - 0.1).all()
assert by_verifier[-1] > 0.99
reconcile(
    "01 best of many",
    "c",
    f"in all five models: up to {peaks.mean():.2f} at best, then down to {ends.mean():.2f} at "
    f"n = {MANY}, where the verifier's choice has {by_verifier[-1]:.2f}.",
    {
        "a": "so it does up to n = 8 or so. Then the answers that the model likes best are no "
        "longer like the pairs on which 97 % was measured.",
        "b": "it does not stay. The harder one looks, the more surely one finds what the model "
        "overrates.",
        "d": "a model that knows allowed from forbidden moves is useful at first.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, axes = new_figure(columns=3, width=2.8, height=2.9)
for ax, n in zip(axes, (30, 300, 3000), strict=True):
    for seed in SEEDS:
        ax.plot(SIZES, by_model[n, seed], color=ORANGE, lw=1.3, label="_" if seed else "model")
    ax.plot(SIZES, by_verifier, color=BLUE, ls="--", lw=1.6, label="verifier")
    mean_accuracy = np.mean([accuracy[n, seed] for seed in SEEDS])
    ax.set_title(f"{n} comparisons, accuracy {mean_accuracy:.2f}", fontsize=9)
    ax.set(xscale="log", xlabel="n answers (log scale)", ylim=(0.2, 1.02))
axes[0].set_ylabel("true reward of the chosen answer")
axes[0].legend(fontsize=8, frameon=False, loc="upper left", title="chosen by", title_fontsize=8)
top = {n: [max(by_model[n, seed]) for seed in SEEDS] for n in (30, 300, 3000)}
last = {n: sorted(by_model[n, seed][-1] for seed in SEEDS) for n in (300, 3000)}
show(
    figure,
    "True reward of the best of n answers over n from 1 to 512. Chosen by the verifier it rises to "
    f"{by_verifier[-1]:.2f}. With models of 30 comparisons none of five gets above "
    f"{max(top[30]):.2f}. With 300 they peak between {min(top[300]):.2f} and {max(top[300]):.2f}; "
    f"four of five end below {last[300][3] + 0.005:.2f}, one at {last[300][4]:.2f}. With 3000 they "
    f"peak between {min(top[3000]):.2f} and {max(top[3000]):.2f} and end between "
    f"{last[3000][0]:.2f} and {last[3000][4]:.2f}.",
)

# %% [markdown]
r"""
**How to read it.** Each orange line is one model; the dashed one is the verifier. On the right, the
most accurate models: they follow the verifier up to $n = 8$ or so, peak near $n = 64$, and fall. In
the middle they differ: one of the five hardly falls. It happened to get the largest weight of the
five for stopping at the goal (model 4, in the last lines of the table), out of noise. On the left
looking harder brings next to nothing. More comparisons have reduced the noise, and with it good
luck and bad, but the models on the right still hardly look at the goal. Among walks of allowed
moves their scores are nearly a tie, so what is left of the noise decides: they end up *preferring*
some wrong stops. The blindness allows the fall, the noise makes it.

What does the winner of 512 look like?
"""

# %% tags=["nbval-ignore-output"]
scores = best.of_rollout(pool).view(-1, MANY)
winner = scores.argmax(dim=1) + torch.arange(len(scores)) * MANY
for prompt, row in list(zip(pool_prompts, winner, strict=True))[:6]:
    line = text(pool.tokens[row][pool.mask[row]])
    print(f"{text(prompt)}   {line:34} true reward {pool.rewards[row]:.2f}")
share_right = (pool.rewards[winner] == 1).double().mean()
share_half = (pool.rewards[winner] == 0.5).double().mean()
print(f"\nof {len(winner)} winners {share_half:.0%} are allowed walks that stop somewhere else")
assert share_half > 0.5

# %% [markdown]
r"""
Faultless moves to nowhere: exactly the part of the task that the model has learned, and nothing of
the part that it has not. This is known as **reward hacking**, or over-optimisation of the reward
model; Gao, Schulman and Hilton (arXiv 2210.10760) measured it for language models, with a large
reward model in the part of the people: the true reward rises, then falls, as one optimises harder
against the learned one. "When a measure becomes a target, it ceases to be a good measure" is
Goodhart's law.

## And with reinforcement learning?

The trainer of this course takes its rewards from the task. So put the model where the verifier was,
change nothing else, and train with GRPO. Three seeds, each with its own model of 3000 comparisons,
and for comparison the same three seeds with the verifier.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "01 trained on the model",
    "25 rollouts. The policy starts with 5 % right answers; with the verifier it comes to about 40 "
    "%. And with the reward model?",
    {
        "a": "about as far: it knows the better answer in 97 % of the pairs",
        "b": "the model's score rises all the way, the right answers stay behind",
        "c": "the right answers vanish",
    },
    my_guess,
)


# %% tags=["nbval-ignore-output"]
ROLLOUTS = 25


def train(task, seed, bar):
    """One run; (rollouts, 2) mean reward that it was trained on, and share of right answers."""
    known = {"eval_every": 0, "eval_prompts": 32, "drift_probe": 1}  # measures less: saves time
    config = TrainConfig(objective="grpo", seed=seed, rollouts=ROLLOUTS, **known)
    trainer = Trainer(config, initial_policy(config)[0], task)
    curve = []
    for _ in range(ROLLOUTS):
        record = trainer.next_rollout()[0]
        curve.append([record["reward"], record["exact"]])
        bar.update()
    return np.array(curve)


runs = {}
look = {"bar_format": "{desc} {bar:30} {n_fmt}/{total_fmt} rollouts", "file": sys.stdout}
with tqdm(total=6 * ROLLOUTS, desc="six runs", **look) as bar:
    for seed in range(3):
        modelled = ModelledWalk(model=models[3000, seed])
        runs["verifier", seed] = train(task, seed, bar)
        runs["model", seed] = train(modelled, seed, bar)

print("\n                    what it was trained on     right answers")
print("reward from  seed   first    last five         first    last five")
late = {}
for (name, seed), curve in runs.items():
    late[name, seed] = curve[-5:].mean(axis=0)
    (r, x), (late_r, late_x) = curve[0], late[name, seed]
    print(f"{name:12} {seed:4d} {r:7.2f} {late_r:12.2f} {x:13.2f} {late_x:12.2f}")
for seed in range(3):
    assert late["model", seed][0] > runs["model", seed][0, 0] + 0.4
    assert late["model", seed][1] > 0.08

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
by_name = {
    name: np.mean([late[name, seed][1] for seed in range(3)]) for name in ("model", "verifier")
}
assert by_name["verifier"] > by_name["model"] + 0.03
reconcile(
    "01 trained on the model",
    "b",
    f"{by_name['model']:.0%} right with the model, {by_name['verifier']:.0%} with the verifier "
    "(mean of three seeds, last five rollouts), while the model's score rises in all three.",
    {
        "a": f"{by_name['model']:.0%} against {by_name['verifier']:.0%}.",
        "c": "with 25 rollouts they do not: the cold start has taught the policy something about "
        "the goal, and this reward does not ask it to forget that.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
figure, (left, right) = new_figure(columns=2, width=3.8, height=3.0)
rollouts = np.arange(1, ROLLOUTS + 1)
for (name, seed), curve in runs.items():
    style = {"model": (ORANGE, "-"), "verifier": (BLUE, "--")}[name]
    look = {"color": style[0], "ls": style[1], "lw": 1.4, "label": "_" if seed else name}
    if name == "model":
        left.plot(rollouts, curve[:, 0], **look)
    right.plot(rollouts, curve[:, 1], **look)
left.set(xlabel="rollout", ylabel="score by the reward model")
left.set_title("what the policy is paid for", fontsize=10)
right.set(xlabel="rollout", ylabel="share of right answers", ylim=(0, None))
right.set_title("what was wanted", fontsize=10)
right.legend(fontsize=8, frameon=False, loc="upper left", title="reward from", title_fontsize=8)
show(
    figure,
    "Three seeds each. Left: trained on the reward model, its score rises from about 1.4 to about "
    "2.4 over 25 rollouts. Right: the share of right answers rises from 0.05 to about 0.2 and "
    "stalls with the reward model; with the verifier it goes on to about 0.4.",
)

# %% [markdown]
r"""
**How to read it.** Left, the score by which the policy is trained: it rises in every run, and
whoever watches only this curve is content. Right, what was wanted. In the first rollouts both kinds
of run improve, since allowed moves are needed for right answers, too. Then the orange runs stall:
there is nothing in their reward that asks for the goal. All runs are shown: three seeds,
one setting. With `ROLLOUTS = 60` you see where the orange curves go from there.

## Where to spend labels

The 3000 comparisons were of typical pairs. What if we spend 300 more on pairs that the model itself
likes best: let the policy write 32 answers to a prompt, and ask a rater about the model's two
favourites?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "01 three hundred more",
    "One comparison in eleven is then of the new kind, favourites among 32. What happens to the "
    "true reward of the best of 512?",
    {
        "a": "it hardly changes, by less than 0.1: 3000 against 300",
        "b": "it rises by more than 0.1",
        "c": "it falls by more than 0.1: the favourites are not typical answers",
    },
    my_guess,
)


# %% tags=["nbval-ignore-output"]
def favourites(model, seed):
    """{16: (pairs, first), 32: …}: the model's two favourites of so many answers, compared."""
    dice = torch.Generator().manual_seed(seed)
    prompts = prompts_of_split(task, 300, dice, held_out=False)
    answers = many_answers(prompts, 32, dice)
    score, found = model.of_rollout(answers).view(-1, 32), {}
    for width in (16, 32):
        two = score[:, :width].topk(2, dim=1).indices
        pairs = answers.rows((two + torch.arange(300)[:, None] * 32).flatten())
        found[width] = pairs, preferences(pairs.rewards.view(-1, 2), ERROR, dice)
    return found


def best_of_many(*comparisons):
    """True reward of the best of 512 by a model of these comparisons, and its accuracy."""
    model = fitted_reward_model(*comparisons)
    end = best_of(model.of_rollout(pool).view(-1, MANY), true, MANY)
    return end, pair_accuracy(model, fresh)


print("best of 512, true reward: 3000 typical pairs, and 300 more")
print("           none   typical   favourites of 16   favourites of 32")
spent = []
for seed in range(3):
    liked = favourites(models[3000, seed], seed + 200)
    extras = [[], [collect(300, seed + 100)], [liked[16]], [liked[32]]]
    spent.append([best_of_many(collected[seed], *extra) for extra in extras])
    none, typical, sixteen, more = (end for end, _ in spent[-1])
    print(f"model {seed} {none:7.2f} {typical:9.2f} {sixteen:18.2f} {more:18.2f}")

# %% tags=["reconcile", "nbval-ignore-output"] jupyter={"source_hidden": true}
ends, accuracies = np.moveaxis(np.array(spent), 2, 0)
assert (ends[:, 3] > ends[:, 0] + 0.1).all()
assert ends[:, 3].mean() > ends[:, 1].mean() + 0.1
assert np.abs(accuracies[:, 3] - accuracies[:, 0]).max() < 0.02
reconcile(
    "01 three hundred more",
    "b",
    f"with the favourites of 32 it goes from {ends[:, 0].mean():.2f} to {ends[:, 3].mean():.2f} "
    f"(mean of three); 300 more typical pairs give {ends[:, 1].mean():.2f}. The accuracy on "
    f"typical pairs hardly changes: {accuracies[:, 0].mean():.3f} and "
    f"{accuracies[:, 3].mean():.3f}.",
    {
        "a": f"so it is with favourites among 16 ({ends[:, 2].mean():.2f}): those are not yet "
        "selected hard enough. What counts is whether a pair can teach what the model does not "
        "know. Among the favourites of 32 nearly all moves are allowed, so the goal decides.",
        "c": "they are typical of what one meets when one optimises.",
    },
)

# %% [markdown]
r"""
The harder the favourites were selected, the more the same 300 labels teach, since the answers are
the more like those that optimisation ends at.

So accuracy on typical pairs, the number that one would report, says little about what counts when
one optimises. Whoever works with reward models collects new comparisons again and again, of answers
of the policy as it is *now*, and keeps the policy near the answers that the raters have seen; that
is what a KL penalty is for (lessons 02 and 03). Both cost.

## Verifiable rewards

For some tasks all this can be left out, because an answer can be *checked*: the number at the end
of a calculation, a program's tests, a proof, our walk. That is a **verifiable reward**. It has no
labels, no rater's noise, no model beside the policy, and it says the same about the millionth
answer as about the first.

> **What the authors report.** DeepSeek-R1 (arXiv 2501.12948) made this step for reasoning: the
> reward is computed by rules (is the result right, is the form kept), with no person in the loop.
> The authors left neural reward models out of that training on purpose; they feared reward hacking
> and the cost of training them again and again. For helpfulness in general, where nothing can be
> computed, they used reward models, too. The name "reinforcement learning with verifiable rewards"
> comes from Tülu 3 (arXiv 2411.15124).

A verifier is no guarantee, either. It rewards what somebody wrote into it. Ours pays 0.5 for
allowed moves to nowhere, and a policy can settle there: a reward near 0.5 with few right answers
would be the sign. But a rule can be read, and mended:
"""

# %%
for answer in ("5 7 4 6 8 end", "5 end", "5 7 9 1 3 end", "8 end"):
    print(f"3 8 2 7 =   {answer:16} reward {reward_of('3 8 2 7 =', answer):.2f}")
assert reward_of("3 8 2 7 =", "5 end") == 0.5
assert reward_of("3 8 2 7 =", "8 end") == 0

# %% [markdown]
r"""
| | reward model | verifier |
|---|---|---|
| needs | people, comparisons, a model, its training | a rule that can be computed |
| works for | anything that people can compare | tasks with an answer to check |
| wrong | by noise, and by what the comparisons did not show | by what the rule forgot |
| optimised hard | finds the model's blind spots | finds the rule's loopholes |

From here on the course uses the verifier.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    1 / (1 + math.exp(-1.5)),
    [
        (1 / (1 + math.exp(-1.2)), "That is the first score alone. Take the difference."),
        (1 / (1 + math.exp(-0.9)), "The second score is negative: the difference is 1.5."),
        (1 / (1 + math.exp(1.5)), "That is the probability that the second is preferred."),
        (math.exp(1.5), "Those are the odds. Divide by 1 plus the odds."),
    ],
)
question_2 = (
    0.9**2 + 0.1**2,
    [
        (0.9**2, "If both are wrong, they agree as well."),
        (0.9, "That is how often one of them is right."),
        (1 - 2 * 0.1, "Nearly: pairs on which both err are counted as disagreement there."),
    ],
)
question_3 = (
    3 * 0.2**2 * 0.8 + 0.2**3,
    [
        (0.2**3, "That is the probability that all three err. Two are enough."),
        (3 * 0.2**2 * 0.8, "Exactly two err. If all three do, the majority is wrong as well."),
        (0.2 / 3, "Errors do not divide by the number of raters. Count the ways in which two err."),
        (0.2**2, "That is for two given raters."),
    ],
)

# %% [markdown]
r"""
**1.** Two answers have the scores 1.2 and −0.3. With which probability is the first preferred?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Two independent raters each err on one pair in ten. On which share of the pairs do they
agree?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** Three independent raters, each of whom errs with probability 0.2, decide by majority. How
often is the majority wrong?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("From lesson 00: 3, 3 and 6 hours, all allowed, but it stops at 4 and not at 7: 0.5")
print(f"1. 1 / (1 + e^-1.5) = {1 / (1 + math.exp(-1.5)):.4f}")
print(f"2. 0.9² + 0.1² = {0.9**2 + 0.1**2:.4f}")
print(f"3. 3 · 0.2² · 0.8 + 0.2³ = {3 * 0.2**2 * 0.8 + 0.2**3:.4f}")
assert math.isclose(question_3[0], 0.104)

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("01")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=1))

# %% [markdown]
r"""
## What comes next

The reward says how good an answer was. **Lesson 02** is about the next step: how PPO turns it into
a gradient, and uses each batch of answers for more than one update.

**Sources**
"""

# %%
for key in (
    *("bradley_terry", "instructgpt", "chatgpt", "overoptimisation"),
    *("deepseek_r1", "tulu3", "gspo"),
):
    print(source(key))
