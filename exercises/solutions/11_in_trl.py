# %% [markdown]
r"""
# Exercise 11 · The same in TRL: what do these settings train?

{{card}}

**You need** lesson 11. TRL itself is not needed, except in one cell that you may skip. A cell with
`# YOUR CODE HERE` is yours; the cell below it answers at once.
"""

# %%
import tempfile
from importlib.util import find_spec

import torch

from gspo_edu import checks
from gspo_edu.advantages import group_advantages
from gspo_edu.objectives import gspo
from gspo_edu.predictions import predict, reconcile

checks.begin("11")

# %% [markdown]
r"""
## 1 · What a rollout holds

TRL counts in *backward passes*: each passes over `per_device_train_batch_size` answers in every
process. `steps_per_generation` of them use up a rollout, `gradient_accumulation_steps` of them make
an update. `num_generations` answers share a prompt.

**1a.** {{ask 11 updates}}

**1b.** As a function, to be asked before a run costs money. `batch` is
`per_device_train_batch_size`, `processes` how many there are, `steps` is `steps_per_generation`,
`accumulation` is `gradient_accumulation_steps`, `group` is `num_generations`; `num_iterations` is
1. Give back two numbers: prompts in a rollout, updates per rollout.

<details><summary>First hint</summary>

How many answers does one pass go over, in all processes together? How many passes are there before
new answers are sampled?
</details>
<details><summary>Second hint</summary>

Answers in a rollout: batch × processes × steps. The accumulation changes nothing about that.
</details>
<details><summary>Third hint</summary>

Divide the answers by the size of a group, and the passes by those that make one update.
</details>
"""


# %% role="solution"
my_updates = None
### BEGIN SOLUTION
my_updates = 8 / 2
### END SOLUTION


def my_rollout(batch, processes, steps, accumulation, group):
    """Prompts in a rollout, and updates per rollout."""
    ### BEGIN SOLUTION
    answers = batch * processes * steps
    return answers / group, steps / accumulation
    ### END SOLUTION


# %% check="11 updates" answer="my_updates"

# %% check="trl_rollout" answer="my_rollout"

# %% [markdown]
r"""
## 2 · Three numbers that mislead (by hand)

**2a.** {{ask 11 window}}

**2b.** {{ask 11 longest}}

**2c.** {{ask 11 rounding}}

<details><summary>First hint</summary>

2a: number the updates from 1; which of 11 to 20 are a rollout's first? 2b: at sequence level the
default lets every *token* count the same. 2c: the log of a sequence ratio is a mean.
</details>
<details><summary>Second hint</summary>

2a: the firsts are 1, 5, 9, 13, … 2b: compare two shares, each answer's under the default and under
the paper's form. 2c: one log-ratio is 1/64, seven are 0.
</details>
<details><summary>Third hint</summary>

2a: two of the ten are zeros. 2b: its length over the mean length. 2c: divide by 8, and compare the
result with 0.0003.
</details>
"""

# %% role="solution"
my_second_line = None
my_longest = None
my_rise = None
### BEGIN SOLUTION
my_second_line = 8 * 0.5 / 10  # updates 13 and 17 are firsts
my_longest = 60 / ((10 + 10 + 20 + 60) / 4)
my_rise = 1 / 64 / 8  # six times the range's width below 1
### END SOLUTION

# %% check="11 window" answer="my_second_line"

# %% check="11 longest" answer="my_longest"

# %% check="11 rounding" answer="my_rise"

# %% [markdown]
r"""
## 3 · Predict, then run

A rollout of 32 prompts × 8 answers, rewards 0 or 1, four mini-batches. TRL shuffles the *answers*
before it cuts the rollout. Nothing has been learned yet, so every ratio is 1.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x11 first loss",
    "What does the log show as the loss of the rollout's first mini-batch?",
    {
        "a": "0, as the advantages of each group sum to 0",
        "b": "some number between about -0.3 and 0.3, another one in each rollout",
        "c": "about 1, the standard deviation of the advantages",
    },
    my_guess,
)

# %% tags=["reconcile"]
dice = torch.Generator().manual_seed(0)
prompt_of = torch.arange(32).repeat_interleave(8)


def loss_at_ratio_one(advantages):
    """GSPO's loss before the first update, and the largest entry of its gradient."""
    old = torch.full((len(advantages), 5), -1.0)
    logp = old.clone().requires_grad_()
    loss = gspo(logp, old, advantages, torch.ones_like(old)).loss
    (slope,) = torch.autograd.grad(loss, logp)
    return loss.item(), slope.abs().max().item()


print("          whole groups   shuffled answers   largest gradient entry")
shuffled_losses = []
for rollout in range(1, 5):
    rewards = torch.bernoulli(torch.full((256,), 0.4), generator=dice)
    A = group_advantages(rewards, prompt_of)
    whole, _ = loss_at_ratio_one(A[:64])
    shuffled, pull = loss_at_ratio_one(A[torch.randperm(256, generator=dice)][:64])
    shuffled_losses.append(shuffled)
    print(f"rollout {rollout} {abs(whole):12.3f} {shuffled:18.3f} {pull:24.4f}")
    assert abs(whole) < 1e-6 < 1e-3 < pull
assert len({round(loss, 3) for loss in shuffled_losses}) == 4
assert 0.01 < max(abs(loss) for loss in shuffled_losses) < 0.3

reconcile(
    "x11 first loss",
    "b",
    "64 answers drawn across the groups: their advantages have a mean of about ±0.1.",
    {
        "a": "they do, but a shuffled mini-batch holds no whole groups.",
        "c": "the loss is their mean, with a minus. The spread shows in the gradient.",
    },
)

# %% [markdown]
r"""
With whole groups the loss is 0 and the gradient is not; with shuffled answers the loss jumps. In
neither case does it say how much is learned.

## 4 · Find the bug

A colleague has written a function that makes the settings of the paper's GSPO: range 3e-4 and 4e-4,
no KL term, each answer counting once, a rollout cut into mini-batches with an update for each. It
is given the prompts of a rollout, the answers per prompt, the number of mini-batches and the number
of processes. TRL takes the settings and trains; the reward even rises. **Two** things are wrong.
"""


# %% tags=["faulty"]
def faulty_settings(prompts, group, mini_batches, processes):
    """Settings of TRL's GRPOConfig for GSPO as in the paper."""
    return {
        "importance_sampling_level": "sequence",
        "beta": 0.0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "num_generations": group,
        "per_device_train_batch_size": prompts * group // (mini_batches * processes),
        "steps_per_generation": mini_batches,
        "gradient_accumulation_steps": mini_batches,  # saves memory
    }


# %% [markdown]
r"""
<details><summary>First hint</summary>

One fault is a wrong value, the other a setting that is not there. Your function of 1b tells
something about the first.
</details>
<details><summary>Second hint</summary>

How many updates does a rollout feed here? And what does TRL do with answers of different lengths
if nobody says anything?
</details>
<details><summary>Third hint</summary>

An update after every backward pass; and `loss_type` has to be set to the value that lesson 11's
table calls "mean over answers, each counting once".
</details>
"""


# %% role="solution"
def my_settings(prompts, group, mini_batches, processes):
    """The mended settings. Copy the faulty function's, then change them."""
    ### BEGIN SOLUTION
    return {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "num_generations": group,
        "per_device_train_batch_size": prompts * group // (mini_batches * processes),
        "steps_per_generation": mini_batches,
        "gradient_accumulation_steps": 1,
    }
    ### END SOLUTION


# %% check="11 bug" answer="my_settings"

# %% [markdown]
r"""
What does TRL say to your settings? Without TRL (it comes with `pip install -e ".[real]"`) skip this
cell; loading the library takes some seconds. (A FutureWarning about checkpointing is about TRL's
defaults, not about your settings.)
"""

# %%
settings = my_settings(32, 8, 4, 1)
if settings is None or find_spec("trl") is None:
    print("nothing to show: the settings are not written yet, or TRL is not installed")
else:
    from trl import GRPOConfig

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, use_cpu=True, report_to=[], **settings)
    print("answers in a rollout:", config.generation_batch_size)
    print("passes over it:", config.steps_per_generation)
    print("passes that make an update:", config.gradient_accumulation_steps)
    print("and, unless you set them: bf16", config.bf16, "and learning rate", config.learning_rate)

# %% [markdown]
r"""
## 5 · In your own words

Someone shows you a log of TRL: sequence level, 200 updates, reward rising, and a clip ratio of
0.000 in every single line. "GSPO hardly ever clips," she says, "so the range does not matter, and
GSPO is better than GRPO, as you can see." In about eight sentences: what do you answer, what do you
ask for, and what should the next log show?

| points | the answer … |
|---|---|
| 1 | says what a clip ratio of exactly 0 in every line means for the ratios and for the range |
| 1 | names settings to look at, and what they should be |
| 1 | says what the log of an off-policy run looks like: where it has 0, and what elsewhere |
| 1 | says what a rising reward of one run shows about GSPO against GRPO |
"""

# %% [markdown] open="11 open question"
r"""
### BEGIN SOLUTION
A model answer. A clip ratio of exactly 0 in all 200 lines does not look like clipping that is rare:
it looks like ratios that are all 1, one update per rollout. Then no range binds, and the token
level would have given the same gradient, so this run says nothing about the range or about GSPO. I
would ask for `steps_per_generation` and `gradient_accumulation_steps`: the second has to be
smaller, for four updates for instance 4 and 1; and for `epsilon` and `epsilon_high`, because with
TRL's 0.2 a sequence ratio nearly always stays inside, even off-policy. `loss_type` should be
"grpo", or long answers count more. In the next log, written every update, each rollout's first has
0 and the others do not; with a range of 3e-4 and steps that learn something they may well come near
one half, and that is no alarm. If it is still 0 there, compare the range with the spread of log s.
A rising reward shows that the policy gradient works. Whether GSPO does better than GRPO takes both
arms, each with its own tuned range and rate, and several seeds.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
