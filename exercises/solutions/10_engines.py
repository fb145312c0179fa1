# %% [markdown]
r"""
# Exercise 10 · Engines: whose log-probs?

{{card}}

**You need** lesson 10. A cell with `# YOUR CODE HERE` is yours; the cell below it answers at once.
"""

# %%
import torch

from gspo_edu import checks
from gspo_edu.predictions import predict, reconcile
from gspo_edu.ratios import sequence_log_ratio

checks.begin("10")

# %% [markdown]
r"""
## 1 · Corrections by hand, and in code

**1a.** {{ask 10 icepop}}

**1b.** As a function: `logp_old` are the trainer's log-probs of the sampled tokens, `logp_engine`
the engine's, both (answers, places). Give back the weights of truncated importance sampling,
min(ρ, cap), and 0 in the padding.

<details><summary>First hint</summary>

ρ corrects for who sampled. Who did, and who should have?
</details>
<details><summary>Second hint</summary>

ρ is the trainer's probability over the engine's.
</details>
<details><summary>Third hint</summary>

exp of the difference, limited from above only, times the mask.
</details>
"""


# %% role="solution"
my_icepop = None
### BEGIN SOLUTION
my_icepop = 2.718281828459045 ** (-1.5 + 2.3)  # inside the range, so it stays
### END SOLUTION


def my_tis(logp_old, logp_engine, mask, cap):
    """Weights of truncated importance sampling."""
    ### BEGIN SOLUTION
    rho = (logp_old - logp_engine).exp()
    return rho.clamp(max=cap) * mask
    ### END SOLUTION


# %% check="10 icepop" answer="my_icepop"

# %% check="tis_weights" answer="my_tis"

# %% [markdown]
r"""
## 2 · What an average leaves (by hand)

{{ask 10 shift}}

<details><summary>First hint</summary>

The trainer's probability over the engine's has the mean 1, if the engine samples.
</details>
<details><summary>Second hint</summary>

So its log has a mean below 0.
</details>
<details><summary>Third hint</summary>

For small errors that mean is minus half the variance.
</details>
"""

# %% role="solution"
my_shift = None
### BEGIN SOLUTION
my_shift = -(0.04**2) / 2
### END SOLUTION

# %% check="10 shift" answer="my_shift"

# %% [markdown]
r"""
## 3 · Predict, then run

Before any update, 2000 answers. The engine's error is normal, σ = 0.02 per token. How many answers
are outside GSPO's range, 0.9997 to 1.0004, if log s is taken against the engine's log-probs?
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "x10 outside",
    "Answers of 1000 tokens: which share lies outside, though nothing has been learned yet?",
    {"a": "none: the errors average out", "b": "about a tenth", "c": "more than a third"},
    my_guess,
)

# %% tags=["reconcile"]
dice = torch.Generator().manual_seed(0)
print("length   outside")
for length in (10, 100, 1000):
    error = 0.02 * torch.randn(2000, length, generator=dice, dtype=torch.float64) - 0.02**2 / 2
    zero = torch.zeros_like(error)
    s = sequence_log_ratio(error, zero, torch.ones_like(error)).exp()
    outside = float(((s < 0.9997) | (s > 1.0004)).double().mean())
    print(f"{length:6d}   {outside:.2f}")
assert outside > 1 / 3
reconcile(
    "x10 outside",
    "c",
    f"{outside:.0%}: averaging makes the error smaller by √1000, but the range is that small, too.",
    {
        "a": "log s keeps a spread of σ/√L = 0.0006, more than the range.",
        "b": "the range is about half a standard deviation wide on either side.",
    },
)

# %% [markdown]
r"""
## 4 · The environment speaks, too

**4a.** {{ask 10 dialogue}}
"""

# %% role="solution"
my_dialogue = None
### BEGIN SOLUTION
my_dialogue = 2.718281828459045 ** ((0.4 + 0.2) / (8 + 4))
### END SOLUTION

# %% check="10 dialogue" answer="my_dialogue"

# %% [markdown]
r"""
**4b. Find the bug.** This function worked for years of single-turn training. Since the dialogues
came, answers with a long reply of a tool have ratios that nobody can explain: `mask` is false on
the reply's tokens, in the middle of a row.
"""


# %% tags=["faulty"]
def faulty_ratio(logp, logp_old, mask):
    """One sequence ratio per answer; mask is true on the policy's own tokens."""
    ratios = []
    for new, old, own in zip(logp, logp_old, mask, strict=True):
        last = max(t for t in range(len(own)) if own[t])
        ratios.append((new[: last + 1] - old[: last + 1]).mean().exp())
    return torch.stack(ratios)


# %% [markdown]
r"""
<details><summary>First hint</summary>

Which tokens are averaged, and which should be?
</details>
<details><summary>Second hint</summary>

The slice ends at the last own token. What lies between the first and the last?
</details>
<details><summary>Third hint</summary>

A mask can pick entries: `new[own]`.
</details>
"""


# %% role="solution"
def my_mended_ratio(logp, logp_old, mask):
    """One sequence ratio per answer; mask is true on the policy's own tokens."""
    ### BEGIN SOLUTION
    ratios = []
    for new, old, own in zip(logp, logp_old, mask, strict=True):
        ratios.append((new[own] - old[own]).mean().exp())
    return torch.stack(ratios)
    ### END SOLUTION


# %% check="10 bug" answer="my_mended_ratio"

# %% [markdown]
r"""
## 5 · In your own words

A team trains with GSPO and the paper's range, samples with a bf16 engine, and wants to save the
forward pass that recomputes π_old. In about six sentences: what would you tell them to measure, and
which choices have they got?

| points | the answer … |
|---|---|
| 1 | says what clipping sees when the engine's log-probs are trusted, with a number |
| 1 | names the choices: recompute, correct (TIS or IcePop), or widen the range |
| 1 | names a measurement: the clip fraction of a rollout's first mini-batch, which should be 0 |
"""

# %% [markdown] open="10 open question"
r"""
### BEGIN SOLUTION
A model answer. With the engine's log-probs as π_old the ratio is exact importance sampling, but
clipping takes the engine's error for a move of the policy. With an error of 0.02 per token and 1000
tokens, log s has a spread of 0.0006 before any update, so more than a third of the answers are
outside 0.9997 to 1.0004, and about half of those are clipped. I would log the clip fraction of each
rollout's first mini-batch: it is 0 when π_old is recomputed, so what it shows is the engine. Then
they can recompute after all; or recompute and weigh by ρ, truncated (TIS) or with outliers dropped
(IcePop); or trust the engine and take a range that is wide against its error. Whether it costs
reward has to be measured; the answer's ratio tolerates such errors in its size, not in so narrow a
range.
### END SOLUTION
"""

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
