# %% [markdown]
r"""
# A museum of faults

{{card}}

The exhibits are modelled on mistakes that were met in public libraries, trainers and courses. They
looked harmless there as well. For each: read the symptom, run the probe, find the fault, and write
the mended function. Two or three minutes each; take them in any order.

Copy the faulty function's lines into your cell, the one with `# YOUR CODE HERE`, and change them.
The check below it tries your version on
inputs drawn anew each time.

<details><summary>First hint</summary>

Begin with the probe. Which number is wrong, and in which direction?
</details>
<details><summary>Second hint</summary>

Go through the function line by line with two answers of different length, or with A = −1.
</details>
<details><summary>Third hint</summary>

Every fault is in one line, and every one of them was a mistake that a lesson names.
</details>
"""

# %%
import math

import torch

from gspo_edu import checks

checks.begin("museum")

# %% [markdown]
r"""
## 1 · The range that vanished

**Symptom.** Each s of a run is exactly 1, in every update, though the policy clearly moves.
"""


# %% tags=["faulty"]
def faulty_01(logp, logp_old, mask):
    """One sequence ratio per answer."""
    logp, logp_old = logp.bfloat16(), logp_old.bfloat16()  # half the memory
    log_ratio = (logp - logp_old) * mask
    return (log_ratio.sum(dim=1) / mask.sum(dim=1)).exp()


# %%
old = torch.full((1, 4), -1.0)
new = old + 3.5e-4
print(f"s should be {math.exp(3.5e-4):.6f}, here it is {faulty_01(new, old, old < 0).item():.6f}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

How many digits has a number of 16 bits near 1?
</details>
"""


# %% role="solution"
def mended_01(logp, logp_old, mask):
    """One sequence ratio per answer."""
    ### BEGIN SOLUTION
    logp, logp_old = logp.float(), logp_old.float()
    log_ratio = (logp - logp_old) * mask
    return (log_ratio.sum(dim=1) / mask.sum(dim=1)).exp()
    ### END SOLUTION


# %% check="exhibit 1" answer="mended_01"

# %% [markdown]
r"""
## 2 · The loss that knows the padding

**Symptom.** The gradient halves when a batch is padded to twice its width.
"""


# %% tags=["faulty"]
def faulty_02(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GRPO's loss."""
    ratio, A = (logp - logp_old).exp(), advantages[:, None]
    term = torch.minimum(ratio * A, ratio.clamp(1 - clip_low, 1 + clip_high) * A)
    return -(term * mask).mean()


# %%
for width in (4, 8):
    logp = torch.full((1, width), -1.0)
    loss = faulty_02(logp, logp, torch.ones(1), torch.arange(width)[None] < 4, 0.2, 0.2)
    print(f"four tokens, width {width}: loss {loss:+.3f}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

By what does a mean over a table divide?
</details>
"""


# %% role="solution"
def mended_02(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GRPO's loss."""
    ### BEGIN SOLUTION
    ratio, A = (logp - logp_old).exp(), advantages[:, None]
    term = torch.minimum(ratio * A, ratio.clamp(1 - clip_low, 1 + clip_high) * A)
    return -((term * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    ### END SOLUTION


# %% check="exhibit 2" answer="mended_02"

# %% [markdown]
r"""
## 3 · The helpful case distinction

**Symptom.** Bad answers that have become likelier are never pushed back down.
"""


# %% tags=["faulty"]
def faulty_03(ratio, advantage, clip_low, clip_high):
    """The clipped term of each token."""
    plain = ratio * advantage
    limited = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    return torch.where(advantage > 0, torch.minimum(plain, limited), torch.maximum(plain, limited))


# %%
r = torch.tensor([1.5], requires_grad=True)
faulty_03(r, torch.tensor([-1.0]), 0.2, 0.2).sum().backward()
print(f"r = 1.5, A = -1: gradient {r.grad.item():+.1f}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Lesson 02: what does the minimum do by itself when A is negative?
</details>
"""


# %% role="solution"
def mended_03(ratio, advantage, clip_low, clip_high):
    """The clipped term of each token."""
    ### BEGIN SOLUTION
    plain = ratio * advantage
    limited = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    return torch.minimum(plain, limited)
    ### END SOLUTION


# %% check="exhibit 3" answer="mended_03"

# %% [markdown]
r"""
## 4 · The lopsided fence

**Symptom.** Ratios below the range are hardly ever clipped.
"""


# %% tags=["faulty"]
def faulty_04(ratio, advantage, clip_low, clip_high):
    """The clipped term of each token."""
    limited = ratio.clamp(clip_low, 1 + clip_high)
    return torch.minimum(ratio * advantage, limited * advantage)


# %%
r = torch.tensor([0.5], requires_grad=True)
faulty_04(r, torch.tensor([-1.0]), 0.2, 0.2).sum().backward()
print(f"r = 0.5, A = -1: gradient {r.grad.item():+.1f}, expected 0")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Say the two bounds in words: one minus …, one plus ….
</details>
"""


# %% role="solution"
def mended_04(ratio, advantage, clip_low, clip_high):
    """The clipped term of each token."""
    ### BEGIN SOLUTION
    lowest, highest = 1 - clip_low, 1 + clip_high
    limited = ratio.clamp(lowest, highest)
    return torch.minimum(ratio * advantage, limited * advantage)
    ### END SOLUTION


# %% check="exhibit 4" answer="mended_04"

# %% [markdown]
r"""
## 5 · The policy that stands still

**Symptom.** The loss is right to the last digit, and nothing is learned.
"""


# %% tags=["faulty"]
def faulty_05(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss."""
    with torch.no_grad():  # saves memory
        s = (((logp - logp_old) * mask).sum(dim=1) / mask.sum(dim=1)).exp()
    limited = s.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(s * advantages, limited * advantages).mean()


# %%
logp = torch.full((1, 3), -1.0, requires_grad=True)
loss = faulty_05(logp, logp.detach(), torch.ones(1), torch.ones(1, 3), 3e-4, 4e-4)
print(f"loss {loss.item():+.1f}, does it need a gradient: {loss.requires_grad}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Through which quantity does the gradient reach the policy?
</details>
"""


# %% role="solution"
def mended_05(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss."""
    ### BEGIN SOLUTION
    s = (((logp - logp_old) * mask).sum(dim=1) / mask.sum(dim=1)).exp()  # with its graph
    limited = s.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(s * advantages, limited * advantages).mean()
    ### END SOLUTION


# %% check="exhibit 5" answer="mended_05"

# %% [markdown]
r"""
## 6 · The long answers' advantage

**Symptom.** Answers of 20 tokens get ten times the gradient of answers of two.
"""


# %% tags=["faulty"]
def faulty_06(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss."""
    log_s = ((logp - logp_old) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)
    s, A = log_s.exp(), advantages[:, None]
    term = torch.minimum(s * A, s.clamp(1 - clip_low, 1 + clip_high) * A)
    return -(term * mask).sum() / mask.sum()


# %%
logp = torch.full((2, 20), -1.0, requires_grad=True)
mask = torch.arange(20)[None] < torch.tensor([[2], [20]])
faulty_06(logp, logp.detach(), torch.ones(2), mask, 3e-4, 4e-4).backward()
print("gradient of each answer:", [round(x, 3) for x in logp.grad.sum(dim=1).tolist()])

# %% [markdown]
r"""
<details><summary>Where to look</summary>

How many terms has GSPO's objective for an answer?
</details>
"""


# %% role="solution"
def mended_06(logp, logp_old, advantages, mask, clip_low, clip_high):
    """GSPO's loss."""
    ### BEGIN SOLUTION
    log_s = ((logp - logp_old) * mask).sum(dim=1) / mask.sum(dim=1)
    s = log_s.exp()
    limited = s.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(s * advantages, limited * advantages).mean()
    ### END SOLUTION


# %% check="exhibit 6" answer="mended_06"

# %% [markdown]
r"""
## 7 · The band that pushes

**Symptom.** For tokens that the policy likes and the reference does not, the KL estimate grows
without end.
"""


# %% tags=["faulty"]
def faulty_07(logp, logp_ref):
    """The estimate k3 of the KL to the reference, for each token."""
    log_quotient = logp - logp_ref
    return log_quotient.exp() - log_quotient - 1


# %%
found = faulty_07(torch.tensor(-0.1), torch.tensor(-6.0)).item()
print(f"{found:.1f} for one token, should be {math.exp(-5.9) + 5.9 - 1:.1f}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Which of the two policies stands on top in lesson 03?
</details>
"""


# %% role="solution"
def mended_07(logp, logp_ref):
    """The estimate k3 of the KL to the reference, for each token."""
    ### BEGIN SOLUTION
    log_quotient = logp_ref - logp
    return log_quotient.exp() - log_quotient - 1
    ### END SOLUTION


# %% check="exhibit 7" answer="mended_07"

# %% [markdown]
r"""
## 8 · The dead group

**Symptom.** Training goes well for an hour. Then every weight is NaN.
"""


# %% tags=["faulty"]
def faulty_08(rewards):
    """Advantages (prompts, answers)."""
    mean = rewards.mean(dim=1, keepdim=True)
    return (rewards - mean) / rewards.std(dim=1, keepdim=True, correction=0)


# %%
print(faulty_08(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])))

# %% [markdown]
r"""
<details><summary>Where to look</summary>

What is the std of a group in which all answers are right?
</details>
"""


# %% role="solution"
def mended_08(rewards):
    """Advantages (prompts, answers)."""
    ### BEGIN SOLUTION
    mean = rewards.mean(dim=1, keepdim=True)
    std = rewards.std(dim=1, keepdim=True, correction=0)
    return torch.where(std > 0, (rewards - mean) / std.clamp(min=1e-12), 0.0)
    ### END SOLUTION


# %% check="exhibit 8" answer="mended_08"

# %% [markdown]
r"""
## 9 · Easy prompts, good answers

**Symptom.** Every answer to an easy prompt is praised, the wrong ones, too.
"""


# %% tags=["faulty"]
def faulty_09(rewards):
    """Advantages (prompts, answers)."""
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-9)


# %%
print(faulty_09(torch.tensor([[0.9, 0.8], [0.2, 0.1]])))

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Who belongs to a group?
</details>
"""


# %% role="solution"
def mended_09(rewards):
    """Advantages (prompts, answers)."""
    ### BEGIN SOLUTION
    mean = rewards.mean(dim=1, keepdim=True)
    return (rewards - mean) / (rewards.std(dim=1, keepdim=True, correction=0) + 1e-9)
    ### END SOLUTION


# %% check="exhibit 9" answer="mended_09"

# %% [markdown]
r"""
## 10 · One range for all lengths

**Symptom.** Long answers are nearly all clipped, short ones never.
"""


# %% tags=["faulty"]
def faulty_10(logp, logp_old, mask):
    """One sequence ratio per answer."""
    return ((logp - logp_old) * mask).sum(dim=1).exp()


# %%
for length in (2, 2000):
    gap = torch.full((1, length), 0.001)
    print(f"{length:4d} tokens: {faulty_10(gap, 0 * gap, gap > 0).item():.4f}")

# %% [markdown]
r"""
<details><summary>Where to look</summary>

What makes the ratio comparable across lengths?
</details>
"""


# %% role="solution"
def mended_10(logp, logp_old, mask):
    """One sequence ratio per answer."""
    ### BEGIN SOLUTION
    total = ((logp - logp_old) * mask).sum(dim=1)
    return (total / mask.sum(dim=1)).exp()
    ### END SOLUTION


# %% check="exhibit 10" answer="mended_10"

# %% [markdown]
r"""
## 11 · The router that stopped learning

**Symptom.** With replay switched on, the router's weights never change again.
"""


# %% tags=["faulty"]
def faulty_11(logits, experts, old_gates):
    """Gates of the replayed experts."""
    return old_gates  # they are in the record, so why compute them again?


# %%
logits = torch.zeros(1, 4, requires_grad=True)
gates = faulty_11(logits, torch.tensor([[0, 1]]), torch.tensor([[0.7, 0.3]]))
print("does the gate depend on the router:", gates.requires_grad)

# %% [markdown]
r"""
<details><summary>Where to look</summary>

What does replay fix, and what not? (lesson 09, section 4)
</details>
"""


# %% role="solution"
def mended_11(logits, experts, old_gates):
    """Gates of the replayed experts."""
    ### BEGIN SOLUTION
    return logits.gather(1, experts).softmax(dim=1)
    ### END SOLUTION


# %% check="exhibit 11" answer="mended_11"

# %% [markdown]
r"""
## 12 · Answers that nobody uses

**Symptom.** A tenth of all answers are sampled, paid for, and never seen by an update. (Mended, all
are used, and the sizes differ by one at most.)
"""


# %% tags=["faulty"]
def faulty_12(answers, mini_batches):
    """Sizes of the mini-batches, a list."""
    return [answers // mini_batches] * mini_batches


# %%
print("10 answers in four mini-batches:", faulty_12(10, 4), "sum", sum(faulty_12(10, 4)))

# %% [markdown]
r"""
<details><summary>Where to look</summary>

Where does the rest of a division go?
</details>
"""


# %% role="solution"
def mended_12(answers, mini_batches):
    """Sizes of the mini-batches, a list."""
    ### BEGIN SOLUTION
    size, rest = divmod(answers, mini_batches)
    return [size + 1] * rest + [size] * (mini_batches - rest)
    ### END SOLUTION


# %% check="exhibit 12" answer="mended_12"

# %% [markdown]
r"""
## 13 · Louder padding

**Symptom.** The mean ratio comes ever closer to 1 the wider the batch is padded.
"""


# %% tags=["faulty"]
def faulty_13(logp, logp_old, mask):
    """One ratio per token, 0 in the padding."""
    return ((logp - logp_old) * mask).exp()


# %%
print(faulty_13(torch.tensor([[-1.0, -3.0]]), torch.tensor([[-1.5, -1.0]]), torch.tensor([[1, 0]])))

# %% [markdown]
r"""
<details><summary>Where to look</summary>

What is exp(0)?
</details>
"""


# %% role="solution"
def mended_13(logp, logp_old, mask):
    """One ratio per token, 0 in the padding."""
    ### BEGIN SOLUTION
    return torch.where(mask > 0, (logp - logp_old).exp(), 0.0)
    ### END SOLUTION


# %% check="exhibit 13" answer="mended_13"

# %% [markdown]
r"""
## Your score
"""

# %%
checks.summary()
