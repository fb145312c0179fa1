# %% [markdown]
r"""
# 12 · Critical reading

The course ends where your own work begins: with a paper, a figure, a press report, and the question
what to believe. GSPO is the example. The next method will come next month.

**Afterwards you can**

- tell what a paper measured from what it argues and what it hopes;
- say of each claim about GSPO who showed it, what speaks against it, and what is open;
- find what is wrong with a figure in which every number is true;
- fill in one page about a new paper before you change your training run.

**You need** lessons 04 to 06 (token ratios, clip range, gradient weights), 08 (the studies) and 09
(Routing Replay). **Time:** 40 minutes. Nothing is trained here; the numbers come from stored
studies and are computed in seconds.
"""

# %% jupyter={"source_hidden": true}
import math

import numpy as np
from IPython.display import display

from gspo_edu.bibliography import source
from gspo_edu.claims import KINDS, STATUS, claim, claims, overview
from gspo_edu.figure_reading import (
    check_faults,
    chosen_bars,
    honest_figure,
    pleasing_figure,
    print_statements,
    small_print,
    statements,
    times_as_high,
)
from gspo_edu.glossary import table
from gspo_edu.intervals import mean_interval
from gspo_edu.paper_page import GSPO_ANSWERS, QUESTIONS, page
from gspo_edu.plots import show
from gspo_edu.predictions import predict, reconcile, say, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.stored_studies import stored_study
from gspo_edu.verdict_rules import difference_of

# %% [markdown]
r"""
## Two questions from before

**From lesson 05.** Token log-ratios scatter with σ = 0.05 and are independent. What is the standard
deviation of log s for an answer of 1000 tokens? (The folded cell holds what your answers are
compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    0.05 / math.sqrt(1000),
    [
        (0.05 / 1000, "The mean of L independent numbers scatters with σ/√L, not σ/L."),
        (0.05, "That is the spread of one token's log-ratio."),
        (0.05 * math.sqrt(1000), "That is the spread of the sum. Log s is the mean."),
        (0.05**2 / 2, "That is how far the mean of log s slips from 0."),
    ],
)
warm_up_2 = (
    -1 / (4 * 10),
    [
        (-1 / 4, "The root divides as well: each token's log-prob enters log s with 1/L."),
        (-1 / 10, "The mean over the four answers of the group is missing."),
        (0, "At the first update s = 1, which is inside every range."),
        (1 / 40, "Right size; but A = -1 pushes down."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 06.** First update of a rollout, all ratios 1, a group of 4 answers. One of them has
10 tokens and A = −1. Which gradient weight does GSPO give each of its tokens?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "12 what was measured",
    "Four statements of the GSPO paper (arXiv 2507.18071), retold. Which of them does the paper "
    "support by a measurement of its own?",
    {
        "a": "a token ratio rests on one sample, so it brings noise instead of a correction",
        "b": "the likelihood of a whole answer tolerates differences between engines",
        "c": "under GSPO about a hundred times as many tokens are clipped",
        "d": "RL will be scaled further with GSPO, and advances will follow",
    },
    my_guess,
)

# %% [markdown]
r"""
## 1 · Four kinds of sentence

A paper is not true or false as a whole. Its sentences are of four kinds, often in one paragraph:

- a **measurement**: somebody ran something, and the place can be named (a figure, a table);
- an **argument**: a reason why something should be so, perhaps with a formula;
- a **report**: it is said to have happened, without the numbers;
- an **opinion**: praise, a plan, a forecast.

An argument can be right. But it does not become a measurement by standing beside one.
"""

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 what was measured",
    "c",
    "Figure 2 of the paper shows the clipped shares.",
    {
        "a": "section 3 argues this; no variance is measured. Lesson 04 computed what holds of it.",
        "b": "section 5.4, where the authors themselves call it intuitive. Nothing is measured.",
        "d": "a plan and a forecast: the last sentence of the conclusion.",
    },
)

# %% [markdown]
r"""
## 2 · Who says so?

The second question about any sentence is who showed it. The course keeps a **ledger**: each claim
with what speaks for it and against it, and three letters for where that comes from.
"""

# %% tags=["nbval-ignore-output"]
for letter, meaning in KINDS.items():
    print(f"{letter}: {meaning}")
print()
for status, meaning in STATUS.items():
    print(f"{status}: {meaning}")
display(overview())

# %% [markdown]
r"""
**How to read it.** Go down the column *Evidence*. P alone means: nobody outside has shown it. I
means that others have looked; T that this course has tried something on its tiny model. Then the
column *Status*. How many claims of the list are settled, and how many of these by an experiment?
Count before you run the next cell.
"""

# %%
found = claims()
by_authors_alone = [c.key for c in found if "I" not in c.kinds and "P" in c.kinds]
backed_by_others = [
    c.key for c in found if any(e.side == "for" and e.kind == "I" for e in c.evidence)
]
contradicted = [c.key for c in found if c.side("against")]
settled = [c.key for c in found if c.status in ("arithmetic", "wrong as written")]
print(f"claims in the ledger:                      {len(found)}")
print(f"evidence by the authors, none by others:   {len(by_authors_alone)}")
print(f"others found something in favour:          {len(backed_by_others)}")
print(f"something speaks against it or limits it:  {len(contradicted)}")
print(f"settled, by calculation or by reading:     {len(settled)}  ({', '.join(settled)})")
assert settled == ["on_policy", "consistent_activations"]
assert len(contradicted) > len(found) / 2

# %% [markdown]
r"""
Two, and neither by an experiment: one is arithmetic, the other is settled by reading the source.
That is no scandal. It is the usual state of a young field. One row in full:
"""

# %% tags=["nbval-ignore-output"]
display(claim("stable_on_moe"))

# %% [markdown]
r"""
Notice four things, because you will meet them in every paper.

- **The plots are the authors' own, on their own models.** They know their method best and tune it
  best, without any bad intention. The paper says that GRPO's ranges were carefully tuned; it does
  not say how many values were tried for either method.
- **The comparison changes two things.** GRPO ran with Routing Replay, GSPO without.
- **"Others" have methods of their own.** The table in favour is from a paper that recommends a
  third remedy (R3). Its authors gain if both GRPO and GSPO can be improved upon.
- **The entry says how it was read.** Where only notes or an abstract were read, the row says so.

## 3 · What our own studies say

The letter T is you and this course. Lesson 08 went through the two studies; here is the core of
them again, because now the question is not what came out, but **what one may write about it**.
`calm`: 8 experts, 40 rollouts. `stormy`: 32 experts, 30 rollouts, longer walks. Each method has the
learning rate that suits it best.
"""

# %%
calm, stormy = stored_study("calm"), stored_study("stormy")
BEST = "lr tuned"
lengths = []
for study in (calm, stormy):
    runs = [row for row in study.runs if row["setting"] == BEST]
    lengths.append(np.mean([row["length"] for row in runs]))
    print(f"{study.name}: answers of {lengths[-1]:.1f} tokens on average")
print("held-out reward minus GRPO's on the same seed (interval adjusted for all comparisons)")
pairs = {}
for study in (calm, stormy):
    for arm in ("GSPO", "GSPO, measured range"):
        pairs[study.name, arm] = pair = study.pair(arm, "GRPO", BEST)
        low, high = pair.adjusted
        print(f"{study.name:7} {arm:21} {pair.mean:+.3f} ({low:+.3f} to {high:+.3f}), ", end="")
        print(f"above 0 on {pair.above} of {len(pair.differences)} seeds: {pair.verdict}")
for name in ("calm", "stormy"):
    assert pairs[name, "GSPO"].above == 0
    assert pairs[name, "GSPO"].adjusted[1] < 0
    assert pairs[name, "GSPO, measured range"].verdict == "no clear difference"
measured = pairs["calm", "GSPO, measured range"]

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "12 which sentence",
    "Which of these sentences do the four lines allow?",
    {
        "a": "GRPO is better than GSPO; the paper is refuted",
        "b": "on this task GSPO with the paper's range ends lower; with a measured range there is "
        "no clear difference",
        "c": "with a measured range GSPO and GRPO are equally good",
        "d": "none: a model of this size cannot say anything",
    },
    my_guess,
)

# %%
low, high = measured.adjusted
print(f"measured range, calm: every difference from {low:+.3f} to {high:+.3f} stays possible")
gained = calm.group("GRPO", BEST).mean - calm.group("GRPO", BEST).means["start"]
print(f"what GRPO gained by training: {gained:+.3f}")
print(f"so GSPO's gain may be smaller by up to {-low / gained:.0%} of that, unseen")
assert 0.05 < -low / gained < 0.2

many = [pair for pair in calm.pairs if pair.settings == (BEST, BEST)]
alone = [pair for pair in many if not pair.interval[0] <= 0 <= pair.interval[1]]
kept = [pair for pair in many if pair.verdict == "a difference"]
print(f"{len(many)} comparisons: {len(alone)} differ by their own interval, {len(kept)} adjusted")
assert len(alone) > len(kept)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 which sentence",
    "b",
    "it names the task and the range, and it does not turn what was not seen into a finding.",
    {
        "a": f"the paper's range was meant for much longer answers than {lengths[0]:.0f} to "
        f"{lengths[1]:.0f} tokens. And a paper about 48 layers is not refuted by two.",
        "c": f"no clear difference is not equality: {low:+.3f} and {high:+.3f} stay possible.",
        "d": f"eight paired seeds are enough for {pairs['calm', 'GSPO'].mean:+.3f}. They say "
        "something about this task, and nothing about others.",
    },
)

# %% [markdown]
r"""
You must read your own result as strictly as the authors'. Three habits from the cell above:

- **Conditions belong into the sentence.** Not "GSPO is worse", but where, with which range, at
  which rates.
- **"No clear difference" comes with its interval**, which says what was too small to be seen.
- **Multiple comparisons.** Of twenty true nothings one, on average, looks like a difference by its
  own 95 % interval. So a study with many comparisons widens its intervals (last line), and what was
  a difference may be none any more.

The same statements for all studies, with their numbers, stand in
[What the tiny model shows](../docs/what-the-tiny-model-shows.md).

## 4 · A number, and what it is taken to show

> **What the authors report** (section 5.2). GSPO clips two orders of magnitude more tokens than
> GRPO, other ranges do not change that order, and still it learns faster. They conclude that token
> gradients are noisy.

These are three claims: a **count**, a remark on **ranges**, and a **conclusion**. Lesson 08 asked
where the count comes from. Hold the other two against the study.
"""

# %%
grpo_clip = calm.group("GRPO", BEST).means["clip"]
print(f"calm    {'GRPO':21} {grpo_clip:8.2%}")
times = {}
for arm in ("GSPO", "GSPO, measured range", "GSPO, 0.2"):
    share, reward = calm.group(arm, BEST).means["clip"], calm.group(arm, BEST).mean
    times[arm] = share / grpo_clip
    print(f"calm    {arm:21} {share:8.2%}   {times[arm]:5.2f} times GRPO's   reward {reward:.3f}")
assert 20 < times["GSPO"] < 30
assert 0.38 < times["GSPO"] * grpo_clip < 0.42
assert 3 / 4 * 0.5 < times["GSPO"] * grpo_clip < 3 / 4 * 0.6
assert 5 < times["GSPO, measured range"] < 12
assert times["GSPO, 0.2"] < 0.5
large = [stormy.group(arm, "lr 0.004").means["clip"] for arm in ("GSPO", "GRPO")]
print(f"stormy, rate 0.004: {large[0]:.1%} and {large[1]:.1%}, {large[0] / large[1]:.2f} times")
assert 5 < large[0] / large[1] < 6

# %% [markdown]
r"""
**The count** holds with one order of magnitude instead of two, and in the storm at the large rate
with less than one. GSPO's two fifths are about the most that one pass over the answers can give: a
rollout's first update clips nothing, and of the answers outside the range somewhat more than half
are clipped in the other three (lesson 08). So it is GRPO's share that makes the factor.

**"Other ranges do not change it"** does not hold here. From 3e-4 to 0.2 the factor goes from above
20 to below 1. The authors may have tried a narrower set of ranges; the paper does not list them.

**The conclusion** does not follow from the count, whoever counts. A high clipped share and a good
reward show that one can throw away much of a batch. They do not show *why* it was harmless: because
the token signal is noise, or because more clipping made smaller steps? That is the general pattern:
**a better curve does not prove its explanation.**

To tell the two apart, one compares at equal step size. This course has done so, in the storm at the
large rate: GSPO with a learning rate that moves the policy as far per rollout as GRPO moves it.
"""

# %%
matched = stored_study("step_size")
control = matched.pair("GSPO measured, same step", "GRPO")
low, high = control.adjusted
print(
    f"GSPO, measured range, same step, minus GRPO: {control.mean:+.3f} ({low:+.3f} to {high:+.3f})"
)
print(f"above 0 on {control.above} of {len(control.differences)} seeds: {control.verdict}")
for arm in ("GRPO", "GSPO measured, same step"):
    means = matched.group(arm).means
    print(f"{arm:25} KL {means['step_size']:.3f}, right answers {means['right']:.1%}")
assert control.verdict == "a difference"
assert control.mean > 0

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "12 the control",
    "At last a result in favour of GSPO, with a control that the paper does not have. Before you "
    "write it down: which other explanation is the most pressing?",
    {
        "a": "chance: eight seeds are few",
        "b": "the step was matched by giving GSPO a lower learning rate",
        "c": "GSPO's larger clipped share",
        "d": "none: at equal steps only the ratio is left as a cause",
    },
    my_guess,
)

# %%
rates = {arm: matched.group(arm).means["lr"] for arm in (control.first, "GRPO")}
print(f"learning rates: GSPO {rates[control.first]:.4f}, GRPO {rates['GRPO']:.4f}")
print("GRPO in the storm, mean of the three tuning seeds, by learning rate")
tried = {}
for row in stormy.tuning:
    tried.setdefault((row["arm"], row["lr"]), []).append(row["reward"])
by_rate = {rate: float(np.mean(tried["GRPO", rate])) for rate in (0.001, 0.002, 0.004)}
for rate, reward in by_rate.items():
    print(f"   {rate:g}: {reward:.3f}")
arms = {arm for arm, _ in tried}
gaining = [arm for arm in arms if np.mean(tried[arm, 0.002]) > np.mean(tried[arm, 0.004])]
print(f"better at 0.002 than at 0.004: {len(gaining)} of {len(arms)} arms")
assert len(gaining) == len(arms)
halved = by_rate[0.002] - by_rate[0.004]
print(f"halving the large rate gives GRPO {halved:+.3f}")
rival = matched.pair(control.first, "GRPO, at that rate")
print(f"GSPO minus GRPO, both at GSPO's rate {rival.mean:+.3f}: {rival.verdict}")
assert rival.verdict == "no clear difference"
assert rival.mean < 0
assert 0.002 < rates[control.first] < 0.8 * rates["GRPO"]
assert halved > control.mean

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 the control",
    "b",
    f"halving the rate gives GRPO {halved:+.3f}. GSPO's was lowered by "
    f"{1 - rates[control.first] / rates['GRPO']:.0%}, and {control.mean:+.3f} are in question.",
    {
        "a": f"it is on all {control.above} seeds, and the interval is already adjusted.",
        "c": "that belongs to the method. It is what the control wants to let through.",
        "d": "two things differ, the ratio and the rate. Matching one quantity moves another.",
    },
)

# %% [markdown]
r"""
Matching the step means turning another knob, and in the storm every arm fares better with that knob
turned down from where the comparison stands. So this course ran the fair rival as well: *GRPO at
GSPO's rate*. It ends no lower than GSPO. The sentence that is left: *at equal steps GSPO was ahead,
and its lower rate is reason enough.* A study of your own course can have a hole, too. Look for it
first where the result pleases you.

## 5 · How to read a figure

Here is a figure as it might stand in a paper. All numbers in it are true, and they come from the
same study.
"""

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    pleasing_figure(),
    "Two bar charts, each with GRPO and GSPO (ours). In both GSPO's bar is several times as high. "
    "The vertical axes begin at 0.56.",
)

# %% tags=["predict"]
my_guess = None  # a number
predict(
    "12 how much better",
    "Experiment 1: how many times as large is GSPO's reward as GRPO's? (For example 1.5.)",
    guess=my_guess,
)

# %%
first, second = chosen_bars()
for bars in (first, second):
    values = " against ".join(f"{bar.arm} {bar.value:.3f}" for bar in bars)
    print(f"{values}: {bars[1].value / bars[0].value:.2f} times as large, ", end="")
    print(f"drawn {times_as_high(bars):.1f} times as high")
assert first[1].value / first[0].value < 1.1
assert times_as_high(first) > 2

# %% tags=["reconcile"] jupyter={"source_hidden": true}
true_factor = first[1].value / first[0].value
reconcile(
    "12 how much better",
    true_factor,
    f"{first[1].value:.3f} / {first[0].value:.3f} = {true_factor:.2f}.",
    {
        round(times_as_high(first), 1): "that is how the bars look. Bars are compared by length, "
        "so a bar must begin at 0.",
        2.0: "about twice as high is what the eye sees. Read the axis first, then the bars.",
    },
)

# %% [markdown]
r"""
### Your turn: find the faults

Here is the small print that such a figure has in the appendix, if you are lucky, and eight true
statements about it. **Which of them are faults** that make the figure misleading, and which are
harmless or even good practice?
"""

# %%
for line in small_print().splitlines():
    say(line)
print()
print_statements()

# %% tags=["question"]
my_faults = None  # a list of numbers, such as [2, 7]
check_faults(my_faults)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
faults = [number for number, s in enumerate(statements(), 1) if s.fault]
check_faults(range(1, len(statements()) + 1))
assert faults == [1, 3, 5, 6, 8]
starts = {round(row["held_out_reward_before"], 6) for row in calm.runs}
assert len(starts) == 1, "statement 2"

# %% [markdown]
r"""
Five faults, and none of them a false number. Now the same study, drawn as it is: all seeds, an axis
from 0, the start, the differences on equal seeds.
"""

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
ends = [calm.group(arm, BEST).mean for arm in ("GRPO", "GSPO", "GSPO, measured range")]
show(
    honest_figure(),
    "Left: held-out reward of eight seeds after 40 rollouts for GRPO, GSPO with the paper's range "
    f"and GSPO with a measured range, about {ends[0]:.2f}, {ends[1]:.2f} and {ends[2]:.2f}, all "
    f"well above the start of {calm.group('GRPO', BEST).means['start']:.2f}. Right: "
    "paired differences to GRPO, all below 0 for the paper's range, around 0 for the other.",
)

# %% [markdown]
r"""
**How to read it.** A dot is a seed, the bar beside the dots is the mean with its 95 % interval.
Left, everything has learned a lot, and the three differ little beside what all of them gained.
Right, the same seeds are compared with each other, so what the seeds have in common drops out: now
the small difference is plain. All dots of the paper's range lie below 0, those of the measured
range on both sides.

Both panels are needed. Left alone hides a small difference, right alone makes it look large: its
axis is as cut off as the one you have just criticised. It is allowed to be, since dots are compared
by position and not by length, and 0 is on it.

### The best of many

Statement 5 was the quietest of the faults, and the most common. Suppose two methods are *equally
good*. One side reports a single run, the other the best of eight.
"""

# %% tags=["predict"]
my_guess = None  # a number between 0 and 1
predict(
    "12 best of eight",
    "How often is the best of eight ahead of the single run? (For example 0.6.)",
    guess=my_guess,
)

# %%
dice = np.random.default_rng(0)
draws = dice.normal(size=(200_000, 9))  # nine runs of equally good methods
ahead = (draws[:, :8].max(axis=1) > draws[:, 8]).mean()
by_thought = 8 / 9
gain = draws[:, :8].max(axis=1).mean()
spread = np.std(list(calm.group("GRPO", BEST).values.values()), ddof=1)
print(f"by thought: the best of nine equal runs is among the eight: 8/9 = {by_thought:.4f}")
print(f"with dice:  {ahead:.2f}")
print(f"the best of eight lies {gain:.2f} standard deviations above the mean")
print(f"in our study one standard deviation is {spread:.3f}: a gift of {gain * spread:.3f}")
assert abs(ahead - by_thought) < 0.005
assert 1.40 < gain < 1.45
assert gain * spread > abs(measured.mean)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 best of eight",
    by_thought,
    f"{by_thought:.3f}: eight of nine equal places.",
    {
        0.5: "that is one run against one.",
        0.125: "that is how often a given one of the eight is their best.",
        1 - 0.5**8: "that is how often at least one of eight coins shows heads. But all eight are "
        "compared with one and the same run, and that one may be good.",
    },
)

# %% [markdown]
r"""
The gift is larger than the whole difference between GRPO and GSPO with a measured range. Choosing
what to show after the results are known is called **cherry-picking**, and it need not be
meant: it is enough to run again when a run "looks odd".

## 6 · A press sentence to correct

One press report says that GSPO stabilises training of mixtures of experts *"through consistent
expert activations"*. (The report itself was not opened for this course; the sentence stands here
because it is so easy to believe.) Lesson 09 measured the drift of experts in six rollouts. Here it
is in the studies, beside how far the policy has moved.
"""

# %%
arms = ("GSPO", "GSPO, measured range", "GRPO", "GSPO, 0.2", "CISPO")
print(f"calm{'':17} KL at the last update   drift per update")
rows = {}
for arm in arms:
    means = calm.group(arm, BEST).means
    rows[arm] = means["step_size"], means["drift"]
    print(f"{arm:21} {means['step_size']:21.4f}   {means['drift']:16.2%}")
steps, drifts = np.array(list(rows.values())).T
together = np.corrcoef(steps, drifts)[0, 1]
print(f"correlation of step and drift over these five arms: {together:.2f}")
storm_drift = [stormy.group(arm, "lr 0.004").means["drift"] for arm in ("GSPO", "GRPO")]
print(f"stormy, rate 0.004:   {storm_drift[0]:.2%} under GSPO, {storm_drift[1]:.2%} under GRPO")
assert 0.5 < rows["GSPO"][1] / rows["GRPO"][1] < 1
assert rows["GSPO, 0.2"][1] > rows["GRPO"][1]
assert together > 0.9
assert 0.9 < storm_drift[0] / storm_drift[1] < 1.1

# %% [markdown]
r"""
Experts change under GSPO as well. In the calm a little less than under GRPO with the narrow range,
a little more with the wide one; in the storm as much. In the calm, drift goes with how far the
policy moves. (Five arms of one study: a hint that the step is the reason, and no proof.) What the
*paper* says is something else: the experts change, and the likelihood of a whole answer hardly
notices. Keeping the activations consistent is what **Routing Replay** does, the remedy that GSPO is
meant to make needless.

**Your turn.** Rewrite the press sentence so that it is right, in at most 25 words. A good one says
who claims it, does not say that activations stay the same, and names what stays stable instead.
"""

# %% tags=["question"]
my_sentence = None  # your sentence in quotation marks
if my_sentence is None:
    print("Not filled in yet. Write your sentence, run the cell, then open the folded one.")
else:
    print(f"{len(my_sentence.split())} words. Compare it with the folded cell.")

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
mine = (
    "According to its authors, GSPO tolerates changing experts, because its ratio for a whole "
    "answer hardly moves when single tokens take other routes."
)
print(mine)
print(f"{len(mine.split())} words")
assert len(mine.split()) <= 25

# %% [markdown]
r"""
## 7 · When the evidence stands on both sides

The most instructive row is about replay (lesson 09, section 9). Read it before you go on.
"""

# %% tags=["nbval-ignore-output"]
display(claim("replay_needless"))

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "12 five months later",
    "Five months after GSPO a paper of the same team, with the same first author, publishes a "
    "recipe that clips tokens and uses Routing Replay. Which sentence may one write?",
    {
        "a": "Qwen has given GSPO up",
        "b": "so GSPO needs replay after all",
        "c": "the team's published recipe is another one now; GSPO was not tested there",
        "d": "the recipe is GSPO in other words",
    },
    my_guess,
)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 five months later",
    "c",
    "arXiv 2512.01374, section 4.1: a footnote names clipping by the answer's likelihood as an "
    "alternative and leaves it for later.",
    {
        "a": "a paper says what was tried in it, not what a company uses.",
        "b": "replay was essential there with token ratios. Nothing was run with answer ratios.",
        "d": "it weights and clips each token by its own ratio, and does not divide by the length.",
    },
)

# %% [markdown]
r"""
Three more things can be learned from this row.

**Conditions again.** In that paper replay is essential *with several updates per rollout*; with one
it brought nothing. Which kind of replay is better depends on how many. Without its conditions the
sentence is wrong wherever they are not met.

**Remedies overlap.** In the R3 paper's table (as reading notes give it) GSPO and replay both help
GRPO. Question 3 below asks how much each explains, and the shares add up to more than 1. Two
remedies for one illness do.

**No illness, no test.** In `calm` and `stormy` replay makes no clear difference (below). In `calm`
the routes hardly move. In `stormy` at the large rate they do, but so little is learned there that
the share of right answers hardly leaves its start. Absence of a difference where there is no
illness, or hardly any life, says nothing about the medicine.
"""

# %%
for where, setting in ((calm, BEST), (stormy, BEST), (stormy, "lr 0.004")):
    replayed = where.pair("GRPO + R2", "GRPO", setting)
    low, high = replayed.adjusted
    drift = where.group("GRPO", setting).means["drift"]
    print(f"{where.name}, {setting}: drift per update {drift:.2%}, GRPO + R2 minus GRPO ", end="")
    print(f"{replayed.mean:+.3f} ({low:+.3f} to {high:+.3f}), {replayed.verdict}")
    assert replayed.verdict == "no clear difference"
    same = where.group("GRPO + R2", setting).values == where.group("GRPO + R3", setting).values
    assert same
print("R2 and R3 are the same here, seed by seed, since one engine samples and trains.")
before = np.mean([row["held_out_exact_before"] for row in stormy.runs])
after = stormy.group("GRPO", "lr 0.004").means["right"]
print(f"stormy, lr 0.004: right answers {before:.1%} before training, {after:.1%} after it")
assert after - before < 0.02

# %% [markdown]
r"""
A third study, `replay`, is made for the question: another engine samples (in bfloat16), so that R2
and R3 differ, and GSPO is run with and without replay, too. At the rate that suited both in
`stormy`:
"""

# %%
with_engine = stored_study("replay")
measured_range = "GSPO, measured range"
gains = {arm: with_engine.pair(f"{arm} + R3", arm, "lr 0.001") for arm in ("GRPO", measured_range)}
for arm, pair in gains.items():
    low, high = pair.adjusted
    print(f"R3 adds {pair.mean:+.3f} ({low:+.3f} to {high:+.3f}) to {arm}: {pair.verdict}")
assert gains["GRPO"].verdict == "a difference"
assert gains[measured_range].verdict != "a difference"

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "12 one yes, one no",
    "A clear gain under GRPO, no clear gain under GSPO. Which sentence do these two lines allow?",
    {
        "a": "GRPO needs replay and GSPO does not, as the paper says, in miniature",
        "b": "replay gains more under GRPO than under GSPO",
        "c": "replay gains something under GRPO; whether it gains less under GSPO is open",
        "d": "under GSPO replay does nothing",
    },
    my_guess,
)

# %%
gap, (low, high) = difference_of(gains["GRPO"], gains[measured_range])
print(f"gain under GRPO minus gain under GSPO: {gap:+.3f} ({low:+.3f} to {high:+.3f})")
print("(this interval is not even adjusted for other comparisons)")
learned = with_engine.group("GRPO", "lr 0.001")
print(f"GRPO without replay: from {learned.means['start']:.3f} to {learned.mean:.3f}")
assert low < 0 < high
assert {stormy.group(arm, BEST).means["lr"] for arm in gains} == {0.001}
assert gains[measured_range].adjusted[1] > gains["GRPO"].mean
assert min(learned.values.values()) > learned.means["start"] + 0.2

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "12 one yes, one no",
    "c",
    f"the two gains differ by {gap:+.3f} ({low:+.3f} to {high:+.3f}), and 0 lies inside.",
    {
        "a": f"GRPO learns without it, from {learned.means['start']:.2f} to {learned.mean:.2f}. A "
        "gain is not a need.",
        "b": "that is a third comparison, of the two gains with each other, seed by seed. Neither "
        "line makes it; the cell above does.",
        "d": f"up to {gains[measured_range].adjusted[1]:+.3f} stays possible, which is more than "
        "what was found under GRPO.",
    },
)

# %% [markdown]
r"""
**One yes and one no are not a difference.** An interval that just leaves 0 out, beside one that
just keeps it in: the eye takes the two verdicts for opposites, and the two numbers may be
neighbours. Whoever claims that a remedy helps *here and not there* owes the difference of the two
gains. Look for it in the next paper, and in the next summary of our own studies.

**Without experts.** On a dense model the argument about routes falls away altogether, so one might
expect a small difference. The row `dense_small` has one public run of each that says so, and one
large study that points the other way (its rival is DAPO's loss, not GRPO's own). The tiny model
without experts is run by `python course.py compare --dense`: predict first.
"""

# %% tags=["nbval-ignore-output"]
display(claim("dense_small"))

# %% [markdown]
r"""
## 8 · Sources, praise and forecasts

Three texts started the talk about GSPO. They are good for different things.

- **The paper**, arXiv 2507.18071, a preprint of the authors. Good for definitions, settings and
  what was run. Not an outside view.
- **Qwen's post** (July 2025), the authors' summary. Good for what they find important. It has no
  number that the paper has not.
- **NetMind.AI's post** (August 2025; not opened for this course), a retelling whose title made the
  word "ill-posed" known. Good for finding the paper. A retelling adds no evidence, however often it
  is shared.

"Ill-posed" is the paper's own word (section 3). In mathematics it has a definition: no solution, or
not only one, or one that does not depend continuously on the data. Nothing of the kind is shown
there; read it as "wrongly set up".

The paper ends with GSPO as a *"scalable algorithmic cornerstone"* (the post: *"our algorithmic
cornerstone"*) and the plan to scale RL further. Others wrote "breakthrough" and "new standard".
These are rows of the ledger like all others, with the status *opinion*:
"""

# %% tags=["nbval-ignore-output"]
display(claim("cornerstone"))
display(claim("breakthrough"))
display(claim("qwen3"))
assert {claim(key).status for key in ("cornerstone", "breakthrough")} == {"opinion"}

# %% [markdown]
r"""
Opinions are not worthless. "Standard" contains something that can be checked: who uses it, and what
do its inventors use today? And a good benchmark result of a finished model is a fact about the
*model*. It says nothing about one part of its training, because everything else differs, too. For
that, one needs an **ablation**: the same recipe without that part.

### What is open

The last line of each row says what nobody has shown so far, and which measurement would tell. (It
is what the course has not found, not what cannot exist: if you know better, you have a row to
mend.) Read it as a list of experiments that somebody could run.
"""

# %% tags=["nbval-ignore-output"]
for row in found:
    say(f"{row.key} ({row.status}): {row.open}")

# %% [markdown]
r"""
Go through them once more. How often is the answer *several seeds*, *equal care*, or *the difference
of two differences*? Much of what is open about GSPO is open for want of controls.

## 9 · One page for the next paper

Twelve questions, on one page. Print it empty, or fill it here. **Fill it for GSPO first**: you have
read enough. An honest "not said" is a full answer.
"""

# %%
for question in QUESTIONS:
    print(f"{question.key:10} {question.text}")

# %% tags=["question"]
my_page = {
    "claim": None,  # your words in quotation marks
    "kind": None,
    "who": None,
    "what": None,
    "metric": None,
    "seeds": None,
    "tuning": None,
    "compute": None,
    "ablation": None,
    "mechanism": None,
    "others": None,
    "mine": None,
}
mine_so_far = page(my_page, paper="Group Sequence Policy Optimization")
print(f"Still open: {', '.join(mine_so_far.open_questions) or 'nothing'}")
display(mine_so_far)

# %% [markdown]
r"""
To print it, give it a name: `.html` for the browser's print menu, `.md` for an editor. The folded
cell has a model answer. Yours may differ; compare what you wrote under *tuning*, *ablation* and
*mine*.
"""

# %% tags=["question"]
file_name = None  # for example "gspo.html", or "empty.html" with page() in place of mine_so_far
if file_name is None:
    print("Nothing saved.")
else:
    print(f"Saved: {mine_so_far.save(file_name)}")

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
model_page = page(GSPO_ANSWERS, paper="Group Sequence Policy Optimization")
display(model_page)
assert model_page.open_questions == []
assert page().open_questions == [question.key for question in QUESTIONS]

# %% [markdown]
r"""
## What to take along

1. Measurement, argument, report, opinion: sort the sentences first.
2. P, I, T: who showed it, and who would gain?
3. A figure lies without a false number: cut axis, one run, the best of many, unequal compute,
   unequal care.
4. A better curve does not prove its explanation; a difference needs an interval, many differences a
   wider one.
5. Read your own result as strictly as theirs.
6. About GSPO: it works in its authors' hands; others have seen it win and seen it diverge; its
   range must fit *your* answers.

Your predictions:
"""

# %% tags=["nbval-ignore-output"]
summary_picture("12")

# %% [markdown]
r"""
## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
four = [0.04, 0.01, 0.03, 0.0]
half = np.std(four, ddof=1) / 2
lower = mean_interval(four)[0]
question_1 = (
    12 / 15,
    [
        (12 / 13, "That would be twelve runs against one."),
        (3 / 15, "That is how often the best of three wins."),
        (0.5, "Equal methods, but not equal numbers of tries."),
        (3 / 12, "Count all runs: which of the 15 is the best?"),
    ],
)
question_2 = (
    lower,
    [
        (np.mean(four) - 1.96 * half, "1.96 is for many seeds; with four it is 3.182."),
        (np.mean(four) - 3.182 * np.std(four, ddof=1), "Divide the std by √4 as well."),
        (np.mean(four) - 3.182 * np.std(four) / 2, "That std has n in it; take n - 1."),
        (np.mean(four) + 3.182 * half, "That is the upper end."),
        (-np.mean(four) - 3.182 * half, "The interval is around +0.02."),
    ],
)
GRPO, GSPO, GRPO_R3, BOTH = 48.84, 66.76, 68.05, 69.00  # arXiv 2510.11370, eight updates
gap = BOTH - GRPO
question_3 = (
    (GSPO - GRPO) / gap + (GRPO_R3 - GRPO) / gap,
    [
        (1.0, "They would add up to 1 if the two remedies did not overlap. Compute it."),
        ((GSPO - GRPO) / gap, "That is GSPO's share alone."),
        ((GRPO_R3 - GRPO) / gap, "That is replay's share alone."),
        ((BOTH - GSPO + BOTH - GRPO_R3) / gap, "That is what is left after the other one."),
    ],
)

# %% [markdown]
r"""
**1.** Two equally good methods. The authors tried twelve settings of their own and three of the
baseline, and show the best of each. How often does their method win?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Four seeds, differences +0.04, +0.01, +0.03 and 0. What is the lower end of the 95 % t
interval of their mean? (Student's factor for four values is 3.182.)
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** The R3 paper's table, as reading notes give it (means of four tests, at the best checkpoint):
GRPO 48.84, GSPO 66.76, GRPO + R3 68.05, GSPO + R3 69.00. Of the way from the first to the last,
which share does GSPO alone make, which replay alone? Give the **sum** of the two shares.
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"1. the best of 15 equal runs is one of the 12: 12/15 = {12 / 15:.4f}")
print(f"2. {np.mean(four):.4f} - 3.182 · {np.std(four, ddof=1):.6f} / √4 = {lower:.6f}")
print("   0 lies inside: four differences, none below 0, are not yet enough.")
parts = [(value - GRPO) / gap for value in (GSPO, GRPO_R3)]
print(f"3. {parts[0]:.4f} + {parts[1]:.4f} = {sum(parts):.4f}: the two overlap.")
assert math.isclose(lower, np.mean(four) - 3.182446 * half, rel_tol=1e-4)
assert lower < 0
assert 1.8 < sum(parts) < 1.9

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=12))

# %% [markdown]
r"""
## What to read next

You have reached the end of the course's road. Each of these is worth a filled page:

- **arXiv 2507.18071** itself, sections 3 to 5, if you have only met it here.
- **arXiv 2512.01374**: the same team on token ratios, clipping and replay. Read section 2 beside
  lesson 04.
- **arXiv 2510.13786** (ScaleRL): how to compare recipes by the ceiling of a fitted curve; appendix
  A.18 is about clip ranges.
- **arXiv 2510.11370** (R3) and **arXiv 2510.23027** (RSPO): two other answers to experts that move.
- **arXiv 2506.13585** (CISPO), **2511.20347** (SAPO), **2507.20673** (GMPO): neighbours of lesson
  06.

And the reading that nobody can do for you: your own curves. `python course.py compare` gives the
paired differences of the two methods on your machine; `gspo-edu study NAME` runs a whole study.
Write down first what you expect, and what would change your mind.

**Sources.** What is quoted or retold here, with the place, the date and the way it was read, stands
in the ledger (`gspo_edu.claims.ledger()` shows all of it).
"""

# %%
keys = ["gspo", "qwen_gspo_post", "netmind_gspo", "stabilizing_rl", "r3", "rspo", "scale_rl"]
for key in [*keys, "cispo", "sapo", "gmpo", "verl_2775"]:
    print(source(key))
