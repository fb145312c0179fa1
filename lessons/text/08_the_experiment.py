# %% [markdown]
r"""
# 08 · The experiment

GRPO against GSPO on a mixture of experts: the comparison that made GSPO known, once as its authors
report it, and once on the tiny model, with every seed shown. Much of it does not come out as in the
paper, and you will be able to say what that means and what it does not.

**Afterwards you can**

- say how the paper's experiment was set up, and what its plots can and cannot show;
- read a study of many seeds: paired differences, intervals, tuned and equal learning rates;
- explain why the clip fractions of GRPO and GSPO differ by more than an order of magnitude.

**You need** lessons 05 (the range), 06 (who is silenced) and 07 (drift). **Time:** 40 minutes. One
cell trains, for half a minute on two cores; all others read results that ship with the course.
"""

# %% jupyter={"source_hidden": true}
import math
import tempfile
from pathlib import Path

import numpy as np
from IPython.display import clear_output, display

from gspo_edu.bibliography import source
from gspo_edu.glossary import table
from gspo_edu.intervals import mean_interval, student_t_quantile
from gspo_edu.plots import new_figure, show
from gspo_edu.predictions import predict, reconcile, say, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.stored_studies import stored_study
from gspo_edu.study import read_study, run_study
from gspo_edu.study_figure import COLOURS, arm_styles, study_alt, study_figure
from gspo_edu.study_summary import paired, summarise
from gspo_edu.study_table import read_table
from gspo_edu.verdict_rules import FAILS, HOLDS, OPEN
from gspo_edu.verdicts import finding, findings
from gspo_edu.widgets import TrainingReplay

# %% [markdown]
r"""
## Two questions from before

**From lesson 07.** A model has 12 layers of 4 experts each for every token. An update changes each
expert slot with probability 0.01, independently of the others. Which share of the tokens is touched
by it, that is, has at least one other expert? (The folded cell holds what your answers are compared
with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    1 - 0.99 ** (12 * 4),
    [
        (0.01, "That is the drift, the share of slots. One changed slot of 48 touches the token."),
        (0.01 * 48, "Chances do not add up like that: two changed slots touch one token."),
        (1 - 0.99**12, "Each of the 12 layers has 4 slots: 48 in all."),
        (0.99**48, "That is the share of tokens that are not touched."),
    ],
)
warm_up_2 = (
    2 / 5,
    [
        (4 / 5, "Four are outside. But min() silences only those that went the right way already."),
        (2 / 4, "Divide by all five answers, not by those outside."),
        (1 / 5, "Both signs can be clipped: A > 0 above the range, A < 0 below it."),
        (3 / 5, "Look at the last one again: A > 0 and s below the range is not clipped."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 05.** Five answers have s = 1.003, 0.996, 1.002, 1.0001 and 0.998, and the advantages
+1, −1, −1, +1 and +1. What is GSPO's clip fraction with the paper's range, 0.9997 to 1.0004?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · The experiment as its authors report it

Everything in this section is a report: Zheng et al., arXiv 2507.18071, section 5.

| | in the paper |
|---|---|
| start | a cold start from Qwen3-30B-A3B-Base, a mixture of experts with 48 layers |
| one rollout | is split into four mini-batches, one update each |
| GSPO | clip range 3·10⁻⁴ below and 4·10⁻⁴ above |
| GRPO | clip range 0.2 and 0.27; with Routing Replay, since it would not converge without |
| watched | the training reward; AIME'24 (mathematics), LiveCodeBench, CodeForces (programs) |
| outcome | GSPO ahead all along for the same compute, and it goes on improving |
| on CodeForces | GRPO settles below a rating of 2000, GSPO keeps rising |

The last three that were watched are **benchmarks**, fixed sets of tasks on which models are
compared. From plots like these the
authors conclude that GSPO has the better **scalability**: that more compute, prompt sets that are
refreshed and longer answers go on paying off.

And the models that came out of it, as reported by their makers: Qwen3 is a family of dense models
and mixtures of experts, its flagship said to be at the level of DeepSeek-R1, o3-mini and Gemini 2.5
Pro. Of the updated Qwen3-235B-A22B-Instruct-2507-FP8 it is said that it beats Kimi-K2, DeepSeek-V3
and Claude-Opus4-Non-thinking. It does so in many rows of its makers' table, not in all of them; in
MMLU-Pro, for example, the table has Claude Opus 4 ahead. And what a finished model can do is no
test of one formula: data, size and months of other work are in it as well.

**What would you want to know** before you believe that the *objective* made the difference? Take a
minute and write down two or three things. Then open the folded cell.
"""

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("Some that this lesson will ask:")
print("- How far would two runs of the SAME method lie apart? The plots have one curve each.")
print("- Was each method given the learning rate that suits it?")
print("- What did the unit do (token or answer), and what the range (0.2 or 3e-4)?")
print("- Does GSPO take smaller steps, and would GRPO with smaller steps do as well?")
print("- Is it the experts? A dense model of the same size would tell.")

# %% [markdown]
r"""
## 2 · The same set-up in miniature

| | in the paper | here |
|---|---|---|
| model | 48 layers, 30 billion weights | 2 layers, 8 or 32 experts, top-2; 0.1 to 0.5 million |
| start | cold start on demonstrations | cold start on walks with mistakes in them |
| reward | mathematics and programs, checked | walks on a clock, checked (lesson 00) |
| one rollout | four mini-batches | four mini-batches, of 64 answers each |
| clip ranges | 0.2/0.27 and 3e-4/4e-4 | the same |
| answers | thousands of tokens | five to nine |
| runs per method | one is shown | eight seeds, all shown |

The row that matters most is the last but one. Lesson 05 has shown that a range means nothing
without the length of the answers, and theirs was chosen for long ones. So there will be more arms
than two: GSPO also with a range *measured* on this model's own ratios, and GSPO with 0.2.

First a short version on your machine: both methods, twelve rollouts, three seeds. Three seeds
sound better than one. How much better?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "08 three seeds",
    "The 95 % interval of a mean from three seeds, beside that from eight, if the seeds scatter as "
    "much in both: how many times as wide is it?",
    {
        "a": "as wide: the scatter is the same",
        "b": "1.6 times: it goes with the root of 8/3",
        "c": "3 times",
    },
    my_guess,
)

# %%
half_width = {n: student_t_quantile(0.975, n - 1) / math.sqrt(n) for n in (2, 3, 5, 8, 20)}
for n, half in half_width.items():
    print(f"{n:2} seeds: mean ± {half:5.2f} standard deviations")
wider = half_width[3] / half_width[8]
print(f"three seeds against eight: {wider:.2f} times as wide")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert round(wider, 1) == 3.0
assert math.isclose(math.sqrt(8 / 3), 1.63, rel_tol=0.01)
reconcile(
    "08 three seeds",
    "c",
    f"{wider:.2f} times.",
    {
        "a": "a mean of more values is surer, even if each value scatters as before.",
        "b": "that would be it if the scatter were known. With three values one hardly knows it, "
        "and Student's t makes the interval wider for that: 4.30 instead of 2.36.",
    },
)

# %% [markdown]
r"""
Now run it. A study is one small text: what all runs share, a list of seeds, and one block for each
**arm**, which is what we call a method with its settings. Two processes share the work.
"""

# %% tags=["nbval-ignore-output"]
STUDY = """
rollouts = 12
eval_every = 0
seed = [0, 1, 2]

[[arm]]
name = "GRPO"
objective = "grpo"

[[arm]]
name = "GSPO"
objective = "gspo"
"""
folder = Path(tempfile.mkdtemp())
(folder / "live.toml").write_text(STUDY)
made = run_study(read_study(folder / "live.toml"), folder / "out", jobs=2)
clear_output()
assert {row["status"] for row in made.rows} == {"finished"}, made.text

live_runs = read_table(folder / "out" / "runs.csv")
live_updates = read_table(folder / "out" / "updates.csv.gz")
print("held-out reward     before   seed 0   seed 1   seed 2    mean")
for group in summarise(live_runs):
    seeds = "".join(f"{value:9.3f}" for value in group.values.values())
    print(f"{group.arm:18}{group.means['start']:8.3f}{seeds}{group.mean:8.3f}")
(live,) = paired(summarise(live_runs), [("GSPO", "GRPO")])
low, high = live.interval
print(
    f"\nGSPO minus GRPO, seed by seed: {', '.join(f'{d:+.3f}' for d in live.differences.values())}"
)
print(f"mean {live.mean:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}: {live.verdict}")

for group in summarise(live_runs):
    assert min(group.values.values()) > group.means["start"]
assert high - low > 0.01
assert live.verdict == "too few seeds to tell (at least 5)"

# %% [markdown]
r"""
Both have learned something, on each seed. Read the last line, and resist reading more into it. The
interval covers what three **paired differences** leave open: on each seed both methods start from
the same policy and meet the same prompts, so what they share cancels in the difference. It is still
wide; twelve rollouts are only the beginning of a curve; and the learning rate is one that somebody
chose. This was a rehearsal.

## 3 · Eight seeds, forty rollouts: the calm study

The full studies take from ten minutes to an hour. They were run once, and their tables ship with
the course: every run, every update, with the file and the command that made them.
"""

# %%
calm = stored_study("calm")
print(f"made by: {calm.command}")
print(
    f"on: {calm.description['machine']['cpu']}, {calm.description['machine']['cores']} cores, ",
    end="",
)
print(f"torch {calm.description['machine']['torch']}")
arms = list(dict.fromkeys(group.arm for group in calm.groups))
print(f"{len(arms)} arms, {len(calm.group('GRPO').values)} seeds: {', '.join(arms)}")

print("\nmean reward on the tuning seeds, by learning rate")
rates = sorted({row["lr"] for row in calm.tuning})
print(" " * 22 + "".join(f"{rate:9g}" for rate in rates) + "   chosen")
for arm in ("GRPO", "GSPO", "GSPO, measured range", "GSPO, 0.2"):
    of_arm = [row for row in calm.tuning if row["arm"] == arm]
    means = [np.mean([row["reward"] for row in of_arm if row["lr"] == rate]) for rate in rates]
    (chosen,) = {row["lr"] for row in of_arm if row["chosen"]}
    print(f"{arm:22}" + "".join(f"{mean:9.3f}" for mean in means) + f"{chosen:9g}")
    assert chosen == rates[int(np.argmax(means))]
    assert 0.25 < 1 - means[3] / means[1] < 0.4
assert {row["lr"] for row in calm.tuning if row["chosen"]} == {1e-3}
assert not {row["seed"] for row in calm.tuning} & {row["seed"] for row in calm.runs}

# %% [markdown]
r"""
**How to read it.** Each arm was tried at four rates on three *tuning seeds*, which appear in no
result, and got the best of them. Without that, a comparison tells which method likes the rate that
somebody happened to choose. Here every arm chose the same, 0.001, so "tuned" and "all equal" are
the same runs this time. The rate matters more than the method: four times the rate costs every arm
about a third of its reward.

**An arm to know: *GSPO, measured range*.** Its range was read off the tuning seeds so that 30 % of
the answers lie outside at the beginning. On this model that is about 0.025, eighty times the
paper's.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "08 calm",
    "Calm setting: eight experts, a rate that suits each arm. Held-out reward after 40 rollouts, "
    "with the paper's two ranges: how do GSPO and GRPO compare over eight seeds?",
    {
        "a": "GSPO ends clearly higher",
        "b": "no clear difference",
        "c": "GSPO ends clearly lower, but it learns",
        "d": "GSPO hardly learns: its range silences nearly all answers",
    },
    my_guess,
)


# %% jupyter={"source_hidden": true}
def print_groups(study, arms, setting):
    """One line per arm: mean, interval, and each seed's value."""
    print(f"{'':21} mean   95 % interval   each seed")
    for arm in arms:
        group = study.group(arm, setting)
        low, high = group.t_interval
        seeds = " ".join(f"{value:.3f}" for value in group.values.values())
        print(f"{arm:21}{group.mean:.3f}  {low:.3f} to {high:.3f}  {seeds}")


def print_pair(pair):
    """One difference with its adjusted interval and verdict."""
    low, high = pair.adjusted
    print(
        f"{pair.first} minus {pair.second}: {pair.mean:+.3f} ({low:+.3f} to {high:+.3f}), ", end=""
    )
    print(f"above 0 on {pair.above} of {len(pair.differences)} seeds: {pair.verdict}")


# %%
FOUR = ["GRPO", "GSPO", "GSPO, measured range", "GSPO, 0.2"]
print_groups(calm, FOUR, "lr tuned")
print(f"\nat the start: {calm.group('GRPO').means['start']:.3f}\n")
gspo_grpo = calm.pair("GSPO", "GRPO", "lr tuned")
print_pair(gspo_grpo)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert gspo_grpo.verdict == "a difference"
assert gspo_grpo.adjusted[1] < 0
assert gspo_grpo.above == 0
lowest = min(calm.group("GSPO", "lr tuned").values.values())
assert lowest > calm.group("GSPO").means["start"] + 0.2
reconcile(
    "08 calm",
    "c",
    f"GSPO minus GRPO is {gspo_grpo.mean:+.3f}, below zero on all eight seeds.",
    {
        "a": "that is what the paper reports, of another model, with answers of another length.",
        "b": "eight paired seeds see this one clearly: even the adjusted interval excludes zero.",
        "d": f"its lowest seed ends at {lowest:.3f}, from "
        f"{calm.group('GSPO').means['start']:.3f}. Outside is not silenced (section 5).",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
THREE = ["GRPO", "GSPO", "GSPO, measured range"]
show(
    study_figure(calm.updates, calm.runs, setting="lr tuned", arms=THREE),
    "Calm study, reward over 40 rollouts and at the end. All arms rise; GSPO with the paper's "
    "range stays below the other two from the tenth rollout on. "
    + study_alt(calm.runs, setting="lr tuned", arms=THREE),
    colours=COLOURS,
)

# %% [markdown]
r"""
**How to read it.** Left: a pale line is one seed, the thick line the mean, the band its 95 %
interval. Right: each dot is a seed at the end. The dots of one arm scatter by some hundredths: that
is what another seed does to the *same* method. A difference smaller than that, from one run each,
would have meant nothing.

**The interval** in the line above is *adjusted*. The study file asks for twenty differences. Of
twenty true nothings one would look like something by its own interval, so each interval is made
wide enough that all of them hold at once in 95 % of studies (Bonferroni). That is strict, here too
strict: since both settings are the same runs, only ten differences are really there.

## 4 · The unit, or the range?

GSPO with the paper's settings differs from GRPO in two things: one ratio per answer instead of per
token, and a range that is hundreds of times tighter. Which of them makes it end lower here? The
other two arms take them apart. They have GSPO's ratio, and wider ranges.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "08 wider",
    "Leave GSPO's ratio as it is and widen its range, to the measured one (about 0.025) or to 0.2. "
    "What happens to the reward at the end, beside GSPO with the paper's range?",
    {
        "a": "it falls: a wide range never binds, and nothing holds the policy back",
        "b": "nothing: the ratio is what matters, not the range",
        "c": "it rises with both ranges, to about GRPO's level",
        "d": "it rises far above GRPO's",
    },
    my_guess,
)

# %%
to_measured = calm.pair("GSPO, measured range", "GSPO", "lr tuned")
to_fifth = calm.pair("GSPO, 0.2", "GSPO", "lr tuned")
print_pair(to_measured)
print_pair(to_fifth)
unit = calm.pair("GSPO, measured range", "GRPO", "lr tuned")
print()
print_pair(unit)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
for pair in (to_measured, to_fifth):
    assert pair.verdict == "a difference"
    assert pair.adjusted[0] > 0
    assert pair.above == 8
assert unit.verdict == "no clear difference"
assert unit.adjusted[0] < 0 < unit.adjusted[1] < 0.05
level = calm.group("GRPO", "lr tuned").mean
for arm in ("GSPO, measured range", "GSPO, 0.2"):
    assert abs(calm.group(arm, "lr tuned").mean - level) < 0.03
reconcile(
    "08 wider",
    "c",
    f"measured range {to_measured.mean:+.3f}, 0.2 {to_fifth.mean:+.3f}, each on all eight seeds.",
    {
        "a": "0.2 hardly ever binds, true. But at a rate that suits, little needs holding back "
        "within four updates.",
        "b": "the ratio is the same in all three arms, and the reward is not.",
        "d": f"measured range minus GRPO: {unit.mean:+.3f}, and the interval has zero in it.",
    },
)

# %% [markdown]
r"""
So on this model, with answers of about six tokens, the *range* costs reward and the *unit* makes no
difference that eight seeds can see: if there is one, it is smaller than the interval in the last
line. That is no verdict on the paper's range, which was meant for answers of thousands of tokens.
It is a verdict on copying it.
"""

# %% [markdown]
r"""
## 5 · The clipping paradox

Section 5.2 of the paper reports something that has been retold ever since: GSPO clips *two orders
of magnitude* more tokens than GRPO (a share of 0.15 against 0.0013), and yet learns more from the
same compute.

- **The authors' reading:** a sign that token ratios give a noisy gradient that is used badly, while
  the answer's ratio gives a reliable one, of which even a part is enough.
- **A sober reading:** the clipped share is what you get from how tight a range is for the spread of
  its ratio. It says little about the quality of what is left.

You can measure both factors. Something is clipped if it is *outside* its range **and** went the way
its advantage wanted:

$$\text{clipped share} = \text{outside share} \times \text{clipped share of those outside}$$
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "08 outside",
    "At the last update of a rollout nearly all answers are outside GSPO's range, and a few tokens "
    "are outside GRPO's. Of those outside, which share is clipped?",
    {
        "a": "all of them, under both: outside means no gradient",
        "b": "a little more than half, under both",
        "c": "half under GSPO, nearly all under GRPO",
        "d": "nearly all under GSPO, half under GRPO",
    },
    my_guess,
)


# %%
def by_place(rows, arm, metric, setting=None):
    """(4,) the metric's mean at the first, second, third and last update of a rollout."""
    chosen = [r for r in rows if r["arm"] == arm and setting in (None, r["setting"])]
    at = [[r[metric] for r in chosen if (r["update"] - 1) % 4 == place] for place in range(4)]
    return np.mean(at, axis=1)


shares = {}
print("calm, last update of a rollout    outside   clipped   clipped of those outside")
for arm in ("GRPO", "GSPO", "GSPO, measured range", "GSPO, 0.2", "product, no root"):
    outside = by_place(calm.updates, arm, "outside_fraction_seq", "lr tuned")
    clipped = by_place(calm.updates, arm, "clip_fraction_seq", "lr tuned")
    shares[arm] = (outside[3], clipped[3])
    print(f"{arm:32}{outside[3]:9.4f}{clipped[3]:10.4f}{clipped[3] / outside[3]:15.2f}")
    assert outside[0] == clipped[0] == 0  # before a rollout's first update all ratios are 1

# %% tags=["reconcile"] jupyter={"source_hidden": true}
went_right = {arm: clipped / outside for arm, (outside, clipped) in shares.items()}
assert all(0.5 < share < 0.65 for share in went_right.values())
assert shares["GSPO"][0] > 0.98
assert shares["GRPO"][0] < 0.1
reconcile(
    "08 outside",
    "b",
    f"{went_right['GRPO']:.2f} of the tokens outside under GRPO, {went_right['GSPO']:.2f} of the "
    "answers under GSPO.",
    {
        "a": "whatever is outside but went the wrong way keeps its full gradient (lesson 02).",
        "c": "the rule is the same for both, and so is the share: somewhat above one half.",
        "d": "the rule is the same for both, and so is the share: somewhat above one half.",
    },
)

# %% [markdown]
r"""
The second factor is nearly the same for all five arms: one half if ratios and signs were
independent, a little more because learning carries over (lesson 05). So **nearly all of the
difference in clipping is in the first factor**, and the first factor has a plain cause: how wide is
the range, in standard deviations of the ratio that it clips?
"""

# %%
RATIO_OF = {"GRPO": "token_log_ratio_std", "GSPO, 0.2": "sequence_log_ratio_std"}
RATIO_OF |= {"GSPO": "sequence_log_ratio_std", "GSPO, measured range": "sequence_log_ratio_std"}
measured = next(r for r in calm.runs if r["arm"] == "GSPO, measured range")
RANGE = {"GRPO": (0.2, 0.27), "GSPO": (3e-4, 4e-4), "GSPO, 0.2": (0.2, 0.2)}
RANGE["GSPO, measured range"] = (measured["clip_low"], measured["clip_high"])

print(f"{'':23} range, mean   std of its   range in    outside   clipped   reward at")
print(f"{'':23} of the sides  log-ratio    its stds                        the end")
widths = {}
for arm in ("GSPO, 0.2", "GRPO", "GSPO, measured range", "GSPO"):
    spread = by_place(calm.updates, arm, RATIO_OF[arm], "lr tuned")[3]
    half = sum(RANGE[arm]) / 2
    widths[arm] = half / spread
    outside, clipped = shares[arm]
    reward = calm.group(arm, "lr tuned").mean
    print(f"{arm:21}{half:13.5f}{spread:13.3f}{half / spread:12.3f}{outside:11.3f}", end="")
    print(f"{clipped:10.3f}{reward:11.3f}")
times = widths["GRPO"] / widths["GSPO"]
print(f"\nIn these units GRPO's range is {times:.0f} times as wide as GSPO's.")

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
tuned = [group for group in calm.groups if group.setting == "lr tuned"]
styles = arm_styles(tuned, calm.runs)
figure, (ax,) = new_figure(width=7.4, height=3.6)
for group in tuned:
    clips = calm.means(group.arm, "lr tuned", "clip_fraction_seq")
    style = {name: styles[group.arm][name] for name in ("color", "marker", "label")}
    ax.plot(clips, list(group.values.values()), linestyle="none", markersize=5, **style)
ax.set_xscale("symlog", linthresh=1e-3)
ax.set(
    xlim=(-2e-4, 1),
    xlabel="clipped share of each answer, mean over the run (log scale from 0.001 on)",
)
ax.set_ylabel("held-out reward at the end")
figure.legend(fontsize=8, frameon=False, loc="outside right upper")
show(
    figure,
    "Calm study, clipped share against reward at the end, a mark for each of eight seeds of ten "
    "arms. GSPO with the paper's range is alone at the right, at 0.4, and lowest. The others lie "
    "between 0 and 0.15 with rewards from 0.6 to 0.72 and show no trend.",
    colours=COLOURS,
)

# %% [markdown]
r"""
**How to read it.** A mark is a run: how much of it was clipped, and where it ended. On the right
stands GSPO with the paper's range. Left of it there is no trend: arms that clip nothing, 2 % or
14 % have means between 0.63 and 0.70, in no order. *How much is clipped does not tell how much is
learned.*

The first table says it in one line. From *GSPO, 0.2* to *GSPO* nothing changes but the range. The
clipped share grows fifty-fold and more, past GRPO's on the way, and the unit is the same in both.
So here the paradox comes apart:

- *More clipping* comes from the range. The factor is one order of magnitude here and not two,
  since token ratios scatter more: GRPO clips 1.6 % of all tokens, and 0.13 % in the paper.
- *Learning more in spite of it* does not happen here, see section 3.

Does this refute the authors' reading? No. It shows that the clip fractions alone are no evidence
for it: they would come out like this if both gradients were equally good.
"""

# %%
tokens = {
    arm: float(np.mean(calm.means(arm, "lr tuned", "clip_fraction_token_weighted"))) for arm in FOUR
}
for arm, share in tokens.items():
    print(f"{arm:22} {share:.4f} of all tokens clipped, {share / tokens['GRPO']:6.2f} times GRPO's")
others = [group.mean for group in tuned if group.arm != "GSPO"]
assert 0.625 < min(others) < max(others) < 0.705
assert widths["GSPO, 0.2"] > widths["GRPO"] > widths["GSPO, measured range"] > widths["GSPO"]
order = ("GSPO, 0.2", "GRPO", "GSPO, measured range", "GSPO")
assert [shares[arm][0] for arm in order] == sorted(shares[arm][0] for arm in order)
assert tokens["GSPO, 0.2"] < tokens["GRPO"]
assert f"{tokens['GRPO']:.1%}" == "1.6%"
assert 10**0.5 < tokens["GSPO"] / tokens["GRPO"] < 10**1.5  # one order, not two
seqs = {arm: np.mean(calm.means(arm, "lr tuned", "clip_fraction_seq")) for arm in FOUR}
assert seqs["GSPO"] / seqs["GSPO, 0.2"] > 50

# %% [markdown]
r"""
**Your turn.** Do the same for the two runs on your own machine, and explain the difference between
the two clip fractions in two sentences of your own. Then open the folded cell.
"""

# %% tags=["nbval-ignore-output"]
print("your runs         update 1   update 2   update 3   update 4     mean")
mine = {}
for arm in ("GRPO", "GSPO"):
    for metric in ("outside_fraction_seq", "clip_fraction_seq"):
        at = mine[arm, metric] = by_place(live_updates, arm, metric)
        line = "".join(f"{share:11.4f}" for share in at)
        print(f"{arm} {metric.split('_')[0]:10}{line}{at.mean():9.4f}")
assert mine["GSPO", "clip_fraction_seq"].mean() > 5 * mine["GRPO", "clip_fraction_seq"].mean()
assert (mine["GSPO", "clip_fraction_seq"][1:] < 0.7).all()

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("A good answer names three things:")
print("- The first update of a rollout clips nothing under either: all ratios are 1. The mean over")
print("  four updates therefore understates the share at the later ones.")
print("- GSPO's range is a small part of one standard deviation of its ratio, so nearly all")
print("  answers are outside; GRPO's is nearly two, so few tokens are.")
print("- Of those outside somewhat more than half went where their advantage wants them, and only")
print("  these are clipped. So GSPO's share is about one half at the later updates, and as long as")
print("  each answer is used once it can hardly be more.")
print("It does not say that GSPO throws half of the learning away, or that its gradient is better.")

# %% [markdown]
r"""
## 6 · The storm

The calm study has eight experts and a rate that suits. The paper's argument is about stormier
weather: experts change, token ratios jump, training breaks. So the second study has 32 experts and
walks of up to 20 moves, and every arm runs twice: at its own tuned rate, and at 0.004, which is
large on purpose. First, how much weather is there?
"""

# %%
storm = stored_study("stormy")
print(f"made by: {storm.command}\n")
print("drift, mean over seeds and rollouts   per update   per rollout, at the last update")
weather = {}
for study, setting in ((calm, "lr tuned"), (storm, "lr tuned"), (storm, "lr 0.004")):
    for arm in ("GRPO", "GSPO"):
        per_update = by_place(study.updates, arm, "drift_per_update", setting).mean()
        per_rollout = by_place(study.updates, arm, "drift_per_rollout", setting)[3]
        weather[study.name, setting, arm] = per_update, per_rollout
        print(f"{study.name:6} {setting:9} {arm:21}{per_update:9.2%}{per_rollout:16.2%}")

print("\nchosen rates:", ", ".join(sorted({f"{r['lr']:g}" for r in storm.tuning if r["chosen"]})))
assert {row["lr"] for row in storm.tuning if row["chosen"]} == {1e-3}
for arm in ("GRPO", "GSPO"):
    assert weather["stormy", "lr 0.004", arm][0] > 4 * weather["calm", "lr tuned", arm][0]
    assert 0.02 < weather["stormy", "lr 0.004", arm][0] < 0.05
    assert 0.06 < weather["stormy", "lr 0.004", arm][1] < 0.1

# %% [markdown]
r"""
At the large rate an update changes about 3 % of the expert slots, and at a rollout's last update
7 to 8 % differ from the ones that the answers were sampled with. The paper reports about 10 % after
one update, in 48 layers. So the storm here is weaker than theirs, but it is more than a breeze.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "08 storm",
    "32 experts, a rate four times too large, thirty rollouts. What do the eight seeds of GRPO and "
    "of GSPO show?",
    {
        "a": "GRPO breaks down, GSPO holds",
        "b": "both get stuck: the reward rises a little, the share of right answers does not",
        "c": "both learn, GSPO clearly more",
        "d": "both end below the reward that they started with",
    },
    my_guess,
)

# %%
print_groups(storm, FOUR, "lr 0.004")
start, right = (storm.group("GRPO", "lr 0.004").means[name] for name in ("start", "right"))
print(f"\nreward at the start: {start:.3f}")
before = np.mean(storm.means("GRPO", "lr 0.004", "held_out_exact_before"))
print(f"right answers: {before:.1%} at the start; at the end ", end="")
ends = {arm: storm.group(arm, "lr 0.004").means["right"] for arm in FOUR}
print(", ".join(f"{arm} {share:.1%}" for arm, share in ends.items()), "\n")
stormy_pair = storm.pair("GSPO", "GRPO", "lr 0.004")
print_pair(stormy_pair)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
for arm in ("GRPO", "GSPO"):
    assert min(storm.group(arm, "lr 0.004").values.values()) > start
    assert storm.group(arm, "lr 0.004").mean < 0.5
    assert not storm.group(arm, "lr 0.004").diverged
    assert ends[arm] < 2 * before
assert stormy_pair.verdict == "no clear difference"
reconcile(
    "08 storm",
    "b",
    f"rewards of {storm.group('GRPO', 'lr 0.004').mean:.2f} and "
    f"{storm.group('GSPO', 'lr 0.004').mean:.2f}, and about as few right answers as before.",
    {
        "a": "no run of either broke down, and GSPO does not hold better: no clear difference.",
        "c": "neither learned to give right answers.",
        "d": "every seed of both ends above its start, in reward.",
    },
)

# %% [markdown]
r"""
How can a reward rise without right answers? The verifier pays half of the share of allowed moves to
a wrong answer. A policy that only makes allowed moves and never finds the goal earns up to 0.5.
That is where both end: a rate that is too large has taught them the cheap part (lesson 01).

And at the rate that suits each arm?
"""

# %%
print_groups(storm, [*FOUR, "GRPO + R2"], "lr tuned")
print()
stormy_tuned = {}
for first, second in (
    ("GSPO", "GRPO"),
    ("GSPO, measured range", "GRPO"),
    ("GSPO, measured range", "GSPO"),
    ("GRPO + R2", "GRPO"),
):
    stormy_tuned[first, second] = pair = storm.pair(first, second, "lr tuned")
    print_pair(pair)
unclipped = storm.pair("no clipping", "GRPO", "lr 0.004")
print("\nat the large rate, what clipping is worth:")
print_pair(unclipped)

assert stormy_tuned["GSPO", "GRPO"].adjusted[1] < 0
assert stormy_tuned["GSPO, measured range", "GRPO"].verdict == "no clear difference"
assert stormy_tuned["GSPO, measured range", "GSPO"].adjusted[0] > 0
assert stormy_tuned["GRPO + R2", "GRPO"].verdict == "no clear difference"
assert unclipped.adjusted[1] < 0
assert unclipped.above == 0
assert storm.pair("no clipping", "GRPO", "lr tuned").verdict == "no clear difference"

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    study_figure(storm.updates, storm.runs, setting="lr 0.004", arms=THREE, metric="kl_from_old"),
    "Stormy study at the large rate: KL to the policy that sampled, over 30 rollouts, and the "
    "reward at the end. " + study_alt(storm.runs, setting="lr 0.004", arms=THREE),
    colours=COLOURS,
)

# %% [markdown]
r"""
The same picture as in the calm: with the paper's range GSPO ends lower, with a measured range there
is no clear difference, and Routing Replay (R2, lesson 09) adds nothing that eight seeds can see.
One thing does show in the storm: clipping itself. Without it every seed ends lower at the large
rate, while at a rate that suits there is no clear difference.

**How to read the figure.** Left: how far the policy has moved from the one that sampled, on average
over a rollout's updates. This is the storm: the distance that ratios have to bridge. It is greatest
at the very beginning. Right: where it ends. One dot lies far off. A single run could have been that
one.

**Try it.** The same two arms at the large rate, rollout by rollout, with three things at once:
reward, clip fraction and drift. Let the mean play, then choose single seeds. On which of them would
you have said that GSPO wins, had it been your only run?
"""

# %% tags=["nbval-ignore-output"]
replay = TrainingReplay("stormy", setting="lr 0.004")
display(replay)

# %%
wins = [seed for seed, value in stormy_pair.differences.items() if value > 0]
print(f"GSPO ends higher in held-out reward on {len(wins)} of {len(stormy_pair.differences)} seeds")
assert len(wins) == stormy_pair.above

# %% [markdown]
r"""
## 7 · Smaller steps?

A fair objection to every comparison so far: perhaps the methods only differ in how far they move.
One that moves less in a storm would look stabler, and so would its rival at a smaller rate. How far
a policy moves can be measured: the KL divergence per token from the policy that sampled, at the
last update of a rollout.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "08 steps",
    "The same large rate for both. GSPO with the paper's range gives about half of its answers no "
    "gradient, GRPO silences a few tokens. How far does GSPO move per rollout, beside GRPO?",
    {
        "a": "about half as far: half of the gradient is missing",
        "b": "a little farther",
        "c": "about a tenth: its ratios stay close to 1",
    },
    my_guess,
)

# %%
moved = {}
print("KL per token at a rollout's last update      GRPO     GSPO   GSPO/GRPO")
for study, setting in ((calm, "lr tuned"), (storm, "lr tuned"), (storm, "lr 0.004")):
    grpo_kl, gspo_kl = (np.mean(study.means(arm, setting, "step_size")) for arm in ("GRPO", "GSPO"))
    moved[study.name, setting] = gspo_kl / grpo_kl
    print(f"{study.name:6} {setting:9}{grpo_kl:33.4f}{gspo_kl:9.4f}{gspo_kl / grpo_kl:12.2f}")

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert 1 < moved["stormy", "lr 0.004"] < 1.5
assert all(0.5 < moved[name, "lr tuned"] < 0.8 for name in ("calm", "stormy"))
reconcile(
    "08 steps",
    "b",
    f"{moved['stormy', 'lr 0.004']:.2f} times as far. AdamW divides most of a gradient's size out "
    "(lesson 06), so a smaller gradient need not be a smaller step.",
    {
        "a": "half of the gradient missing makes a smaller gradient, not a smaller step of AdamW. "
        "At the tuned rates it does move less, by a third.",
        "c": "what the range bounds is who gets a gradient, not how far the answers then move.",
    },
)

# %% [markdown]
r"""
So the control is needed. In the study *step_size* GSPO gets the rate at which it moves as far as
GRPO does at 0.004. The rate was searched on tuning seeds.
"""

# %%
steps = stored_study("step_size")
print(f"made by: {steps.command}\n")
print(f"{'':26}rate       KL   reward   right answers")
for group in steps.groups:
    kl, means = np.mean(steps.means(group.arm, None, "step_size")), group.means
    print(f"{group.arm:25}{means['lr']:<9g}{kl:6.3f}{group.mean:8.3f}{means['right']:12.1%}")
print()
for pair in steps.pairs:
    print_pair(pair)

same_step = steps.pair("GSPO, same step", "GRPO")
same_step_measured = steps.pair("GSPO measured, same step", "GRPO")
for arm in {row["arm"] for row in storm.tuning}:
    of_arm = [row for row in storm.tuning if row["arm"] == arm]
    at = {rate: np.mean([r["reward"] for r in of_arm if r["lr"] == rate]) for rate in rates}
    assert at[1e-3] > at[2e-3] > at[4e-3]  # lower rates suit all arms better
assert same_step.verdict == "no clear difference"
assert same_step_measured.adjusted[0] > 0
assert same_step_measured.above == 8
rival = steps.pair("GSPO measured, same step", "GRPO, at that rate")
assert rival.verdict == "no clear difference"
assert rival.mean < 0
assert steps.group(rival.second).means["lr"] == steps.group(rival.first).means["lr"]
for pair in (same_step, same_step_measured):
    assert steps.group(pair.first).means["lr"] < 4e-3
    same_rate = steps.pair(pair.first.replace("step", "rate"), "GRPO")
    assert same_rate.verdict == "no clear difference"
    assert same_rate.mean < 0 < pair.mean
    far = [np.mean(steps.means(arm, None, "step_size")) for arm in (pair.first, "GRPO")]
    assert 0.8 < far[0] / far[1] < 1.2

# %% [markdown]
r"""
The sign turns round. At the same *rate* both GSPOs end a little lower than GRPO, without a clear
difference; at the same *step* both end a little higher, and with the measured range the difference
is clear: on all eight seeds. It is the one result of these studies that seems to speak for the
unit, so look at it as hard as at those that speak against it:

- The step was matched by a lower rate, and in this setting lower rates suit everybody. The last
  row is the fair rival: GRPO at that very rate. It ends above GSPO, without a clear difference. So
  the lower rate alone buys what the equal step seemed to.
- The matching was done on three other seeds and holds to within a fifth, see the column KL.
- The lower end of the interval is just above zero.

*Equal rate* and *equal step* are both fair, and they answer different questions. A paper that shows
one of them shows one of them.
"""

# %% [markdown]
r"""
## 8 · Is it the experts?

The last item of the list from section 1. The paper's argument about changing experts says nothing
of a **dense** model, which has no routes that could change. A public run on a small dense model
found similar scores for both methods, with GRPO a little faster and clip shares of 10 to 30 %
against 0.03 % (verl's pull request 2775; one run). So give the mixture a twin without experts, as
wide as the two experts that a token uses, and another as wide as all 32 together, and compare GSPO
with GRPO in each. If experts are what GRPO suffers from, GSPO's lead must be *larger with experts
than without*. What matters is that difference of two differences. In the storm of section 6 GSPO
had no lead with experts, which leaves the twins little to explain.
"""

# %% tags=["nbval-ignore-output"]
experts = finding("experts")
for sentence in (experts.statement, f"{experts.verdict.capitalize()}.", experts.numbers):
    say(sentence)
say(f"Limits: {experts.limits}")
assert experts.verdict in (HOLDS, FAILS, OPEN)
assert stormy_pair.mean < 0

# %% [markdown]
r"""
To try it yourself in a few minutes, with five seeds and the calm setting:
`python course.py compare --dense`.

## 9 · What this shows, and what it does not

One cell collects the statements that one meets about GSPO, with what the stored studies say about
them. A statement *holds in miniature* if the adjusted interval lies on its side of zero, *does not
hold* if it lies on the other side, and *cannot be told* otherwise. The page [What the tiny model
shows](../docs/what-the-tiny-model-shows.md) has the same with all numbers.
"""

# %% tags=["nbval-ignore-output"]
for one in findings():
    print(f"{one.verdict:28} {one.statement}")

verdict = {one.key: one.verdict for one in findings()}
assert verdict["efficient"] == FAILS
assert verdict["unit"] == OPEN
assert verdict["clipping"] == FAILS
assert verdict["step"] == verdict["where_grpo_collapses"] == verdict["replay_r3"] == HOLDS
assert {verdict[f"growth_{size}"] for size in ("experts", "layers", "task_size")} == {OPEN}
assert verdict["collapse"] == OPEN

# %% [markdown]
r"""
Little of it holds here. One statement that does speaks for GRPO with Routing Replay (lesson 09).
Two are controls. One is the equal step of section 7. The other comes from the study *rescue*, at
twice the large rate. There GRPO does collapse; from the same policies GSPO goes on better, on all
eight seeds. Its narrow range lets it move less, which may be all; GRPO at an eighth of that rate
does better still. And with more experts, layers or tokens GSPO's lead does not clearly grow, though
experts change more often in deeper models and among more experts.

Before you conclude that the paper is wrong, list what differs:

- **Length.** Five to nine tokens instead of thousands. A geometric mean over so few hardly
  averages, and the paper's range was chosen for long answers. This alone could turn it round.
- **Size and depth.** Two layers. A change of experts in one of 48 layers goes through all that
  follow.
- **Time.** 160 updates. The instability that the authors describe builds up over thousands, and is
  said to be irreversible when it comes.
- **One start per setting, one task.** Eight seeds cover prompts, samples and order. They do not
  cover another cold start, another task, another model.

And before you conclude that the paper is right all the same: none of these points is evidence *for*
it. What the study gives you is narrower and firmer. *There is* a mixture of experts on which token
ratios train well without replay, on which GSPO's unit makes no visible difference, and on which the
copied range costs reward. So whoever says that GSPO is better has to say where.

That is also how to use it: before you switch a run of your own to GSPO, measure the spread of
log s at your length, see which share of the answers your range clips, give both methods their
learning rate, and run more than one seed.

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
question_1 = (
    0.42 * 4 / 3,
    [
        (0.42, "The first update of a rollout clips nothing, and is in that mean."),
        (0.42 * 3 / 4, "The other way round: the zero of the first update has lowered the mean."),
        (0.42 * 4, "That is the sum over the four. Three of them share it."),
    ],
)
question_2 = (
    3.5e-4 / (0.1 / math.sqrt(400)),
    [
        (3.5e-4 / 0.1, "That is in standard deviations of a token's log-ratio; log s has σ/√L."),
        (3.5e-4 / (0.1 / 400), "The spread shrinks with the square root of the length."),
        (
            0.1 / math.sqrt(400),
            "That is the standard deviation of log s. How many of it are 3.5e-4?",
        ),
    ],
)
grpo_ends, gspo_ends = np.array([0.60, 0.64, 0.58, 0.62]), np.array([0.57, 0.62, 0.57, 0.58])
gaps = gspo_ends - grpo_ends
upper = mean_interval(gaps.tolist())[1]
unpaired = math.sqrt((grpo_ends.var(ddof=1) + gspo_ends.var(ddof=1)) / 4)
question_3 = (
    upper,
    [
        (gaps.mean() + 1.96 * gaps.std(ddof=1) / 2, "Four seeds: Student's t is 3.182, not 1.96."),
        (gaps.mean() + 3.182 * gaps.std() / 2, "That std has n in it; an interval takes n - 1."),
        (gaps.mean() + 3.182 * gaps.std(ddof=1), "Divide the std by √4: it is that of a mean."),
        (gaps.mean() + 3.182 * unpaired, "Take the std of the four differences: they are paired."),
        (gaps.mean() - 3.182 * gaps.std(ddof=1) / 2, "That is the lower end."),
        (gaps.mean(), "That is the mean difference, the middle of the interval."),
    ],
)

# %% [markdown]
r"""
**1.** A log shows a clip fraction of 0.42, the mean over all updates of a GSPO run with four
mini-batches per rollout. What is the mean over those updates that can clip at all?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Your token log-ratios have σ = 0.1, your answers 400 tokens, independent of each other. How
many standard deviations of log s is 3.5·10⁻⁴, the mean of the two sides of the paper's range?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** Four seeds. GRPO ends at 0.60, 0.64, 0.58, 0.62, GSPO on the same seeds at 0.57, 0.62, 0.57,
0.58. What is the upper end of the 95 % interval of GSPO minus GRPO? (Student's t for four values
is 3.182.)
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 07: 1 - 0.99^(12 · 4) = {warm_up_1[0]:.4f}")
print(f"From lesson 05: the first (A > 0, above) and the second (A < 0, below): {warm_up_2[0]:.2f}")
print(f"1. 0.42 · 4 / 3 = {question_1[0]:.4f}")
print(f"2. std of log s = 0.1 / √400 = {0.1 / 20:.4f}; 3.5e-4 / 0.005 = {question_2[0]:.4f}")
print(f"3. differences {', '.join(f'{gap:+.2f}' for gap in gaps)}: mean {gaps.mean():+.3f},")
print(f"   std {gaps.std(ddof=1):.5f}; {gaps.mean():+.3f} + 3.182 · std / 2 = {upper:+.4f}")
print("   Below zero: with pairs four seeds suffice here. Without pairs they would not:")
print(f"   {gaps.mean():+.3f} + 3.182 · {unpaired:.5f} = {gaps.mean() + 3.182 * unpaired:+.4f}")
assert math.isclose(student_t_quantile(0.975, 3), 3.182, rel_tol=1e-3)
assert upper < 0 < gaps.mean() + 3.182 * unpaired

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("08")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=8))

# %% [markdown]
r"""
## What comes next

[Lesson 09](09_routing_replay.ipynb) takes up the arm that was mentioned in passing: replay the
experts that the old policy chose. What it costs, what it takes away, and whether GSPO can do
without.

**A study of your own** is one text file and one command: copy the one that you ran above into
`mine.toml`, add `task_size = 20` and `experts = 32`, give it eight seeds, and call
`python course.py study mine.toml`. It can be interrupted and goes on where it was. Write down your
prediction first.

**Sources.** The experiment: section 5 of the GSPO paper; the models: the Qwen3 report and the model
card; runs on dense models: verl's pull request, one run, and ScaleRL, a study of many methods.
"""

# %%
for key in ("gspo", "qwen3", "qwen3_2507", "verl_2775", "scale_rl"):
    print(source(key))
