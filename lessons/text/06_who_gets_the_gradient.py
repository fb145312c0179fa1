# %% [markdown]
r"""
# 06 · Who gets the gradient

GRPO, DAPO, CISPO, GSPO: each name is a formula, and each formula answers one question. *How hard
does this update pull at this token?* This lesson puts the answers beside each other, token by
token.

**Afterwards you can**

- say of any token how hard GRPO and GSPO pull at it, and derive why;
- read a table of gradient weights, and say where a weight of exactly zero comes from;
- tell GSPO-token from GSPO, and name the choices in which libraries differ.

**You need** lessons 02 (clipping), 03 (group advantage) and 05 (sequence ratio). **Time:** 50
minutes. Nothing is trained here; every cell is done in a moment.
"""

# %% jupyter={"source_hidden": true}
import math

import torch
from IPython.display import display

from gspo_edu.advantages import group_advantages
from gspo_edu.bibliography import source
from gspo_edu.conventions_table import table as conventions_table
from gspo_edu.glossary import table
from gspo_edu.gradient_map import SHOWN, gradient_figure, silent, token_weights, weight_lines
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.plots import LABELS, show
from gspo_edu.predictions import predict, reconcile, summary_picture
from gspo_edu.questions import check_answer
from gspo_edu.ratios import sequence_ratio, token_ratio
from gspo_edu.widgets import GradientWeights

# %% [markdown]
r"""
## Two questions from before

**From lesson 05.** An answer of three tokens has the ratios 0.8, 1.5 and 1. What is its sequence
ratio s? (The folded cell holds what your answers are compared with: run it, but leave it folded.)
"""

# %% tags=["check"] jupyter={"source_hidden": true}
warm_up_1 = (
    (0.8 * 1.5) ** (1 / 3),
    [
        (0.8 * 1.5, "That is the product. Take its third root."),
        ((0.8 + 1.5 + 1) / 3, "That is the arithmetic mean. Take the geometric one."),
        (math.sqrt(0.8 * 1.5), "A token with ratio 1 counts in the length, too: L is 3."),
    ],
)
right = torch.tensor([1.0, 1.0, 1.0, 0.0])
warm_up_2 = (
    group_advantages(right, [0] * 4)[3].item(),
    [
        ((0 - 0.75), "Centred, but not yet divided by the group's std."),
        ((0 - 0.75) / right.std().item(), "That std has n - 1 in it; this course takes n."),
        (math.sqrt(3), "Right size, but the answer is worse than its group."),
    ],
)

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_1)

# %% [markdown]
r"""
**From lesson 03.** Four answers to one prompt have the rewards 1, 1, 1 and 0. What is the advantage
of the last?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *warm_up_2)

# %% [markdown]
r"""
## 1 · One number per token

Each objective of this lesson sees the policy only through the log-probs $\log\pi_\theta(y_{i,t})$
of the tokens that were sampled. So its gradient can always be written as a sum over these tokens:

$$\nabla_\theta J = \sum_i \sum_t g_{i,t}\; \nabla_\theta \log \pi_\theta(y_{i,t}),
\qquad g_{i,t} = \frac{\partial J}{\partial \log \pi_\theta(y_{i,t})}$$

The second factor, the **score function** of the token, is the direction in parameter space that
makes this token likelier. It is the same for all objectives. They differ in the first factor alone,
the token's **gradient weight**: positive pulls the token up, negative pushes it down, zero leaves
it out of this update.

Every objective of the course returns it as `token_weight`, for the loss as it stands, mean
included. A formula that is written down twice can go wrong twice, so we ask autograd. And we check
the claim itself, that the weights are all one needs: on a tiny policy with parameters of its own.
"""

# %%
batch = ONE_BATCH.tensors()
A = group_advantages(batch.rewards, batch.group)
given = (batch.logp_old, A, batch.mask)
SETTINGS = {"dr_grpo": {"max_len": 8}}  # twice the longest answer; the others keep their defaults


def autograd_weights(name, logp, logp_old, advantages, mask):
    """(B, T) minus d loss / d logp, by automatic differentiation."""
    logp = logp.clone().requires_grad_()
    OBJECTIVES[name](logp, logp_old, advantages, mask, **SETTINGS.get(name, {})).loss.backward()
    return -logp.grad


worst = 0.0
for name in OBJECTIVES:
    result = OBJECTIVES[name](batch.logp, *given, **SETTINGS.get(name, {}))
    by_autograd = autograd_weights(name, batch.logp, *given)
    worst = max(worst, (result.token_weight - by_autograd).abs().max().item())
print(f"{len(OBJECTIVES)} objectives, largest difference from autograd: {worst:.9f}")
assert worst < 1e-12

logits = torch.randn(4, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
logits.requires_grad_()  # the parameters: one logit for each place and each of five symbols
logp = logits.log_softmax(dim=-1)[..., 0]  # symbol 0 was sampled everywhere
result = OBJECTIVES["gspo"](logp, batch.logp_old, A, batch.mask)
(through_loss,) = torch.autograd.grad(-result.loss, logits, retain_graph=True)
(through_weights,) = torch.autograd.grad((result.token_weight * logp).sum(), logits)
print(f"parameters: {through_loss.numel()}, largest difference: ", end="")
print(f"{(through_loss - through_weights).abs().max().item():.9f}")
assert torch.allclose(through_loss, through_weights, rtol=1e-12, atol=1e-15)
assert through_loss.abs().max() > 0.01

# %% [markdown]
r"""
The weights are right, and they are all one needs. Now to the batch itself: the four answers of
lessons 02, 03 and 05.
"""

# %%
r = token_ratio(batch.logp, batch.logp_old, batch.mask)
s = sequence_ratio(batch.logp, batch.logp_old, batch.mask)
L, G = batch.mask.sum(dim=1), len(A)
print("answer  length  reward        A         s   token ratios")
for i in range(G):
    ratios = "  ".join(f"{x:.2f}" for x in r[i, : L[i]])
    print(f"{i + 1:6d} {L[i]:7d} {batch.rewards[i]:7.1f} {A[i]:+8.4f}  {s[i]:8.6f}   {ratios}")
assert math.isclose(A.sum(), 0, abs_tol=1e-12)
assert f"{s[3]:.6f}" == "1.044009"

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "06 loud and bad",
    "The second token of answer 2 has r = 2 and A = -0.90: a bad token that has become twice as "
    "likely. GRPO, range 0.8 to 1.27, mean per answer (L = 2) over G = 4 answers. Its weight?",
    {
        "a": "0: it lies outside the range",
        "b": "1.27·A / (G·L) = -0.144: the ratio counts up to the bound",
        "c": "A / (G·L) = -0.113: the ratio decides whether it counts, not how much",
        "d": "r·A / (G·L) = -0.226",
    },
    my_guess,
)

# %% [markdown]
r"""
## 2 · GRPO and GSPO: the same 1/L, another ratio

The answer can be derived. Take GRPO and GSPO before clipping, and differentiate.

**GRPO.** The term of one token is $r_t A$, and the mean over the answer and over the group puts
$\frac{1}{G L}$ in front. Since $r_t = \exp(\log\pi_\theta - \log\pi_\text{old})$, its derivative
with respect to $\log\pi_\theta$ is $r_t$ again:

$$g_{i,t} = \frac{A_i\; r_{i,t}}{G\, L_i}$$

**GSPO.** The term of the whole answer is $s A$, with only $\frac1G$ in front: there is no mean over
tokens. But $s = \exp\big(\frac1L\sum_t \log r_t\big)$, and each token's log-prob enters the
exponent with the factor $\frac1L$. So the derivative of $s$ with respect to any of them is
$\frac{s}{L}$:

$$g_{i,t} = \frac{A_i\; s_i}{G\, L_i}$$

The $\frac1L$ is the same. In GRPO it comes from the mean over tokens, in GSPO from the root. What
differs is the ratio: each token's own, or one for all (arXiv 2507.18071, section 4.2, compares the
two gradients like this).
"""

# %%
by_hand = 2 * A[1].item() / (4 * 2)
found = autograd_weights("grpo", batch.logp, *given)[1, 1].item()
print(f"GRPO, answer 2, token 2: 2 · ({A[1]:+.4f}) / (4 · 2) = {by_hand:+.4f}")
print(f"autograd                                         {found:+.4f}")
assert math.isclose(by_hand, found, rel_tol=1e-9)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
options = [f"{factor * A[1].item() / 8:.3f}" for factor in (1.27, 1, 2)]
assert options == ["-0.144", "-0.113", "-0.226"]
reconcile(
    "06 loud and bad",
    "d",
    f"2 · (-0.9045) / 8 = {found:.4f}: A < 0 and above the range is the unclipped branch.",
    {
        "a": "for A < 0 only ratios below 0.8 are silenced. This token went the wrong way.",
        "b": "clipping never caps a gradient. It leaves it alone or switches it off.",
        "c": "that would be the slope with respect to r. The log-prob brings in a factor r.",
    },
)

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "06 whole answer",
    "Add up the weights of all tokens of ONE answer, before clipping. Whose sum is larger in size, "
    "GRPO's or GSPO's?",
    {
        "a": "GSPO's: there is no mean over tokens in it",
        "b": "they are equal: the same 1/L, and the same ratios go in",
        "c": "GRPO's, or at most they are equal",
        "d": "now one, now the other: it depends on the ratios",
    },
    my_guess,
)

# %%
wide = {"clip_low": 0.9, "clip_high": 9.0}  # so wide that GRPO clips nothing here
print("answer 1           token 1   token 2   token 3   their sum")
sums = {}
for name, ratio, settings in (("grpo", r[0, :3], wide), ("gspo", s[0].expand(3), {})):
    by_hand = A[0] * ratio / (G * L[0])
    weight = OBJECTIVES[name](batch.logp, *given, **settings).token_weight[0, :3]
    assert torch.allclose(weight, by_hand, rtol=1e-12)
    sums[name] = weight.sum().item()
    what = "A·r/(G·L)" if name == "grpo" else "A·s/(G·L)"
    cells = "".join(f"{x:+10.4f}" for x in weight)
    print(f"{LABELS[name]} {what:12}{cells}  {sums[name]:+10.4f}")

arithmetic, geometric = r[0, :3].mean().item(), s[0].item()
print(f"\nsums in units of A/G: {arithmetic:.4f} is the arithmetic mean of the ratios,")
print(f"                      {geometric:.4f} the geometric mean, s")
assert math.isclose(sums["grpo"], A[0].item() / 4 * arithmetic)
assert math.isclose(sums["gspo"], A[0].item() / 4 * geometric)
assert geometric < arithmetic

# %% tags=["reconcile"] jupyter={"source_hidden": true}
dice = torch.Generator().manual_seed(0)
some = torch.rand(1000, 5, generator=dice, dtype=torch.float64) * 3  # ratios of 1000 answers
assert (some.mean(dim=1) >= some.log().mean(dim=1).exp()).all()
reconcile(
    "06 whole answer",
    "c",
    f"GRPO's sum is A/G times the arithmetic mean of the ratios, here {arithmetic:.4f}, GSPO's is "
    f"A/G times the geometric mean, {geometric:.4f}. The geometric mean is never the larger one.",
    {
        "a": "the root divides by L instead: each log-prob enters log s with 1/L.",
        "b": "they go in differently: added up in GRPO, multiplied in GSPO.",
        "d": "of 1000 answers with random ratios, it is GRPO's in all. Only if all ratios of an "
        "answer are the same are the two sums equal.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
unclipped = token_weights(
    batch.logp,
    *given,
    {"grpo": wide, "gspo": {"clip_low": 0.9, "clip_high": 0.3}},
    ("grpo", "gspo"),
)
show(
    gradient_figure({"Before clipping: A·r / (G·L) above, A·s / (G·L) below": unclipped}),
    "Heat map of GRPO and GSPO without clipping, ten tokens in four answers. GRPO's weights vary "
    "with the token's ratio, GSPO's are equal within an answer; both agree on one-token answers.",
)
assert math.isclose(unclipped["grpo"][2][0], unclipped["gspo"][2][0])
for answer in unclipped["gspo"]:
    assert max(answer) == min(answer)

# %% [markdown]
r"""
**How to read it.** In the upper row the depth follows the ratio of each token, in the lower row all
tokens of an answer have one colour. Where an answer has a single token, both rows agree.

The two sums that you predicted are close to each other, here and whenever the ratios are not far
from 1. So before clipping GSPO changes mostly *who inside the answer* gets how much. A **loud**
token, one whose ratio is far above those of its neighbours, does not get more than they do.

Whether that is good is another question. GSPO's authors call weights that differ from token to
token a source of noise and of instability (arXiv 2507.18071, sections 3 and 4.2). One can also hold
that each token's own ratio is what corrects for that token's own change of probability. The formula
does not decide it.

## 3 · Seven objectives on one page

Five of the seven are new. What each of them changes in GRPO, and why, in its authors' view:

- **Dr. GRPO** (arXiv 2503.20783) divides by a constant, not by the answer's length. With $1/L$ a
  long wrong answer is pushed down more softly than a short one, token by token, so wrong answers
  grow long. It does not divide the advantages by the group's std, either, because that favours
  prompts that are nearly always or nearly never solved.
- **DAPO** (arXiv 2503.14476) takes one mean over all tokens, so that a token of a long answer
  counts as much as one of a short answer. And it raises the upper bound to 1.28, so that unlikely
  tokens can grow further before they fall silent.
- **CISPO** (MiniMax-M1, arXiv 2506.13585) silences nobody. The authors saw that clipping took the
  gradient from rare tokens at which reasoning turns ("However", "Wait"). So they cap the *weight*
  of a token, and let it speak.
- **GMPO** (arXiv 2507.20673) takes a geometric mean, as GSPO does, since a mean of the terms
  themselves follows outliers. But it clips each token *inside* that mean, in a wide range, and so
  can silence a token without its answer.
- **SAPO** (arXiv 2511.20347, by the team that made GSPO) has no range. A gate closes smoothly as a
  token's ratio leaves 1. GSPO's clip drops a whole answer for a few far tokens; the gate is to turn
  down these few.

Four lines of code each, written so that neighbours differ as little as possible. Each returns $J$,
which is maximised. First the four whose ratio belongs to the token.
"""

# %%
old, mask, N = batch.logp_old, batch.mask, batch.mask.sum()
a, length = A.unsqueeze(1), L.unsqueeze(1)  # (B, 1): one number per answer


def grpo(logp):
    r = (logp - old).exp()
    term = torch.minimum(r * a, r.clamp(0.8, 1.27) * a)
    per_answer = (term * mask / length).sum(dim=1)
    return per_answer.mean()


def dr_grpo(logp):
    r = (logp - old).exp()
    term = torch.minimum(r * a, r.clamp(0.8, 1.27) * a)
    per_answer = (term * mask / 8).sum(dim=1)
    return per_answer.mean()


def dapo(logp):
    r = (logp - old).exp()
    term = torch.minimum(r * a, r.clamp(0.8, 1.28) * a)
    per_answer = (term * mask).sum(dim=1)
    return per_answer.sum() / N


def cispo(logp):
    r = (logp - old).exp().detach()
    term = r.clamp(max=5) * a * logp
    per_answer = (term * mask).sum(dim=1)
    return per_answer.sum() / N


# %% [markdown]
r"""
`detach()` is the **stop-gradient**, sg[·] in papers: the number counts, its derivative does not. In
CISPO it leaves $\log\pi_\theta$ as the only way for a gradient, so the cap limits a weight instead
of ending it. Now those whose ratio belongs to the answer, and one without a clip.
"""


# %%
def gspo(logp):
    log_s = ((logp - old) * mask / length).sum(dim=1, keepdim=True)
    s = log_s.exp()
    per_answer = torch.minimum(s * a, s.clamp(1 - 3e-4, 1 + 4e-4) * a)
    return per_answer.mean()


def gmpo(logp):
    x = logp - old
    x = torch.where(a > 0, x.clamp(max=0.4), x.clamp(min=-0.4))
    per_answer = (x * mask / length).sum(dim=1, keepdim=True).exp() * a
    return per_answer.mean()


def sapo(logp):
    r, tau = (logp - old).exp(), torch.full_like(a, 1.05).masked_fill(a > 0, 1.0)
    term = 4 / tau * torch.sigmoid(tau * (r - 1)) * a
    per_answer = (term * mask / length).sum(dim=1)
    return per_answer.mean()


pages = {f.__name__: f for f in (grpo, dr_grpo, dapo, cispo, gspo, gmpo, sapo)}
for name, four_lines in pages.items():
    logp = batch.logp.clone().requires_grad_()
    J = four_lines(logp)
    J.backward()
    package = OBJECTIVES[name](batch.logp, *given, **SETTINGS.get(name, {}))
    assert math.isclose(J.item(), -package.loss.item(), rel_tol=1e-12)
    assert torch.allclose(logp.grad, package.token_weight, atol=1e-15)
    print(f"{LABELS[name]:9} J = {J.item():+.6f}   as in the package, and so is its gradient")

# %% [markdown]
r"""
The same in one table. "Silent" is where the weight is exactly 0; elsewhere it is what the fourth
column says. *Past the range* means above it for A > 0 and below it for A < 0. N is the number of
all tokens, C is Dr. GRPO's constant (here 8). Two symbols need a formula:

- GMPO's $s' = \exp\big(\frac1L\sum_t x_t\big)$, where $x_t$ is the log-ratio of token t, but not
  above 0.4 if A > 0 and not below −0.4 if A < 0. Without these bounds it would be GSPO's $s$.
- SAPO's gate $h = 4\,p\,(1-p)$ with $p = 1 / (1 + e^{-\tau (r - 1)})$: what is left of
  $\frac4\tau\, p$ when one differentiates. It is open ($h = 1$) at r = 1, and closes to both sides.
  τ is 1 for A > 0 and 1.05 for A < 0, so it closes a little sooner for bad answers.

| objective | ratio of the | mean over | weight | silent |
|---|---|---|---|---|
| GRPO | token | tokens of the answer, answers | A·r / (G·L) | tokens past the range |
| Dr. GRPO | token | constant, answers | A·r / (G·C) | the same |
| DAPO | token | all tokens | A·r / N | the same, wider above |
| CISPO | token, as a weight | all tokens | A·min(r, cap) / N | nobody |
| GSPO | answer | answers | A·s / (G·L) | answers past the range |
| GMPO | answer, of clipped tokens | answers | A·s′ / (G·L) | tokens past the range |
| SAPO | token | tokens of the answer, answers | A·r·h / (G·L) | nobody |

(Dr. GRPO also leaves its advantages undivided by the std. That is one factor for all answers of a
group, and for a fair view of the *distribution* all rows here get the same advantages.)
"""

# %% tags=["predict"]
my_guess = None  # "a", "b" or "c"
predict(
    "06 more silence",
    "GSPO's range is more than 600 times narrower than GRPO's. Under which of the two do more of "
    "the ten tokens get a gradient of exactly zero?",
    {
        "a": "under GSPO, many more",
        "b": "under GRPO",
        "c": "the same number",
    },
    my_guess,
)

# %%
weights = token_weights(batch.logp, *given, SETTINGS)
print(weight_lines(weights))
print("\ntokens without gradient, of 10:")
for name in SHOWN:
    print(f"  {LABELS[name]:9} {silent(weights[name])}")

x = [min(math.log(1.5), 0.4), math.log(0.5), 0]  # answer 1: A > 0, so only the upper bound acts
clipped_s = math.exp(sum(x) / 3)
p = 1 / (1 + math.exp(-1.0 * (1.5 - 1)))
h = 4 * p * (1 - p)
print(f"\nanswer 1: GMPO's s' = {clipped_s:.4f}, GSPO's s = {s[0]:.4f}")
print(f"          SAPO's gate at r = 1.5: h = {h:.4f}")
assert math.isclose(weights["gmpo"][0][1], A[0] * clipped_s / (G * L[0]))
assert math.isclose(weights["sapo"][0][0], A[0] * 1.5 * h / (G * L[0]))
assert f"{h:.0%}" == "94%"
assert [silent(weights[name]) for name in SHOWN] == [2, 2, 2, 0, 1, 2, 0]
assert (0.2 + 0.27) / (3e-4 + 4e-4) > 600

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
show(
    gradient_figure({"Gradient weight of each token; hatched: exactly zero": weights}),
    "Heat map: seven objectives by ten tokens in four answers. Within an answer GSPO has one "
    "colour, GRPO, Dr. GRPO, DAPO, CISPO and SAPO vary from token to token. GRPO, Dr. GRPO, DAPO "
    "and GMPO give nothing to the first token of answers 1 and 2, GSPO nothing to answer 3, CISPO "
    "and SAPO give something to every token.",
)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
reconcile(
    "06 more silence",
    "b",
    f"GRPO silences {silent(weights['grpo'])} tokens, GSPO {silent(weights['gspo'])}, a whole "
    "answer of one token. Three of the four answers are outside GSPO's range, but two of these "
    "have moved the wrong way and keep their full gradient.",
    {
        "a": "being outside is not enough. Answer 1 is good and has become less likely, answer 4 "
        "is bad and has become likelier: both stay. (In training it is otherwise; see "
        "below.)",
        "c": "two against one.",
    },
)

# %% [markdown]
r"""
**How to read it.** Blue is pushed up, orange down, the depth says how hard; hatched cells get
exactly nothing. Go down the first column (r = 1.5, A > 0): a good token that has gone too far in
the right direction.

- **GRPO, Dr. GRPO, DAPO** switch it off. **GMPO** switches it off, too, but clips *inside* the
  geometric mean, so its neighbours share one value.
- **CISPO** does the opposite: this token gets the largest weight of its answer. The ratio, up to
  the cap of 5, is the weight.
- **SAPO** closes its gate gradually: at r = 1.5 it leaves 94 % of what the ratio alone would give,
  further out less and less. It never closes entirely.
- **GSPO** does not see the token, only that the answer as a whole has become less likely.

Then go along a row. Only GSPO has one colour per answer. And the third answer: one token, r = s =
1.25, inside GRPO's range and far outside GSPO's, so only GSPO silences it.

**Two against one is the score of this batch only.** In training GSPO silences far more than GRPO.
How much depends on the signs: where those of A have nothing to do with s, at most one half of the
answers (lesson 05); after a step that has learned from these very answers, where they agree, 84 to
85 % (lesson 04, section 8).

Do not read the depth of different rows as "more learning". A factor that all weights of a row share
acts like another learning rate, and an optimiser such as AdamW divides most of it out. What no
optimiser divides out is the *pattern*: which share of the pull each answer gets. (Look at
the lines of the first update below. Answer 4 has the same advantage as answer 2 and is twice as
long: it gets twice the pull where tokens count equally, and the same where answers do.)
"""

# %%
print("share of the pull, sum of |weights|   answer 1   answer 2   answer 3   answer 4")
shares = {}
for name in SHOWN:
    pull = torch.tensor([sum(map(abs, answer)) for answer in weights[name]])
    shares[name] = pull / pull.sum()
    print(f"{LABELS[name]:36}" + "".join(f"{share:10.1%} " for share in shares[name]))
assert all(torch.isclose(share.sum(), torch.tensor(1.0)) for share in shares.values())

start = token_weights(batch.logp_old, *given, SETTINGS)
print("\nat the first update, all ratios 1")
for name in ("grpo", "dapo", "dr_grpo"):
    pull = torch.tensor([sum(map(abs, answer)) for answer in start[name]])
    print(f"{LABELS[name]:36}" + "".join(f"{share:10.1%} " for share in pull / pull.sum()))

for same in (("grpo", "gspo", "gmpo", "sapo"), ("dapo", "cispo")):
    for name in same[1:]:
        for one, other in zip(start[same[0]], start[name], strict=True):
            assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-12)
for one, other in zip(start["dapo"], start["dr_grpo"], strict=True):
    ratio = torch.tensor(one) / torch.tensor(other)
    assert torch.allclose(ratio, torch.tensor(4 * 8 / 10))

# %% [markdown]
r"""
The lower part is the first update of a rollout. GRPO, GSPO, GMPO and SAPO are then one and the
same; DAPO and CISPO are a second one; Dr. GRPO differs from these by one factor for all tokens. So
two questions are hidden in seven names: *which mean* (answers equal, or tokens equal), which
matters from the first update on, and *which ratio and clip*, which matters from the second on.

## 4 · Set it yourself

Everything can be moved: drag a bar (a ratio), choose a cell, set advantages, lengths and the range
of the chosen objective. Without a running notebook you see a picture. Things to try:

1. Press *first update*. Which rows are equal? Then move one ratio a little.
2. *One loud token*: a bad answer with r = 10. Compare GRPO, DAPO and GSPO. And CISPO's cap?
3. Choose GSPO and widen its range until answer 3 of the one batch gets a gradient.
"""

# %% tags=["nbval-ignore-output"]
gradients = GradientWeights()
display(gradients)

# %%
loud = GradientWeights([[10.0] + [1.0] * 9, [1.0] * 10], [-1.0, 1.0]).weights()
print("one loud, bad token of ten:   weight   share of its answer's pull")
for name in ("grpo", "dapo", "cispo", "gspo", "sapo"):
    answer = [abs(weight) for weight in loud[name][0]]
    print(f"{LABELS[name]:26} {loud[name][0][0]:+10.4f}   {answer[0] / sum(answer):10.1%}")
assert math.isclose(loud["grpo"][0][0], -10 / 20)
assert math.isclose(loud["cispo"][0][0], -5 / 20)
assert math.isclose(loud["gspo"][0][0], -(10 ** (1 / 10)) / 20)
assert f"{10 ** (1 / 10):.2f}" == "1.26"
widened = GradientWeights(gspo_high=0.3).weights()["gspo"][2][0]
assert math.isclose(widened, A[2].item() * 1.25 / 4)

# %% [markdown]
r"""
For A < 0 nothing bounds GRPO's weight from above: ten times as likely, ten times the push. That is
why some implementations add a floor there (dual clip, lesson 02). GSPO spreads the push evenly:
$10^{1/10} = 1.26$ times the usual weight, on all ten tokens. SAPO gives the token next to nothing,
because its gate closes for either sign of A.

## 5 · The other sign

Which token is silenced depends on the ratio *and* on the sign of A. Now leave all ratios as they
are and turn every advantage around.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "06 other sign",
    "Under GRPO the tokens with r = 1.5 (answer 1) and r = 0.5 (answer 2) were silent. All "
    "advantages change their sign, all ratios stay. Which tokens are silent now?",
    {
        "a": "the same two: a ratio outside the range is outside",
        "b": "two others",
        "c": "none",
        "d": "all four whose ratio is outside 0.8 to 1.27",
    },
    my_guess,
)

# %%
flipped = token_weights(batch.logp, batch.logp_old, -A, batch.mask, SETTINGS)
print(weight_lines(flipped))
zero_now = [
    (i + 1, t + 1)
    for i, answer in enumerate(flipped["grpo"])
    for t, weight in enumerate(answer)
    if weight == 0
]
print("\nGRPO, silent now (answer, token):", zero_now)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert zero_now == [(1, 2), (2, 2)]
assert [silent(flipped["gspo"][i : i + 1]) for i in range(4)] == [3, 0, 0, 4]
assert ((s < 1 - 3e-4) | (s > 1 + 4e-4)).tolist() == [True, False, True, True]
for one, other in zip(weights["cispo"], flipped["cispo"], strict=True):
    assert one == [-weight for weight in other]
reconcile(
    "06 other sign",
    "b",
    "the second tokens of answers 1 (r = 0.5, now A < 0) and 2 (r = 2, now A > 0).",
    {
        "a": "A = -1.51 with r = 1.5 has gone the wrong way, so it now gets a full push.",
        "c": "each sign has its own side: above for A > 0, below for A < 0.",
        "d": "outside and silenced are two things; for each sign only one side is silenced.",
    },
)

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
few = ("grpo", "cispo", "gspo", "gmpo", "sapo")
show(
    gradient_figure(
        {
            "as sampled": {name: weights[name] for name in few},
            "every advantage turned around, same ratios": {name: flipped[name] for name in few},
        }
    ),
    "Two heat maps of five objectives. With all advantages turned around, colours swap, and the "
    "silent cells move: under GRPO to the second tokens of answers 1 and 2, under GSPO to all "
    "tokens of answers 1 and 4. CISPO only changes its signs.",
)

# %% [markdown]
r"""
**How to read it.** CISPO's lower row is its upper row with the signs changed: its weights do not
ask for the sign. For all others the pattern moves. GSPO now silences answers 1 and 4, seven of the
ten tokens, and answer 3 has come back. Under GSPO three answers are outside the range either way;
the sign of A decides which of them are silent.

The truth table of lesson 02, once more for all objectives: an answer of two tokens with the same
ratio, below, inside or above the range.
"""

# %%
print("          A > 0: below  inside   above    A < 0: below  inside   above")
flows = {}
for name in SHOWN:
    places = (0.9992, 1.0002, 1.0008) if name == "gspo" else (0.6, 1.05, 1.6)
    line = f"{LABELS[name]:9}"
    for sign in (1.0, -1.0):
        two = [GradientWeights([[place] * 2], [sign]).weights()[name][0][0] for place in places]
        flows[name, sign] = [weight != 0 for weight in two]
        line += " " * 7 + "".join(f"{f'{w:+.3f}' if w else '0':>8}" for w in two)
    print(line)
for name in ("grpo", "dr_grpo", "dapo", "gspo", "gmpo"):
    assert flows[name, 1.0] == [True, True, False]
    assert flows[name, -1.0] == [False, True, True]
for name in ("cispo", "sapo"):
    assert flows[name, 1.0] == flows[name, -1.0] == [True] * 3

# %% [markdown]
r"""
## 6 · GSPO-token: equal, and not equal

Sometimes one wants an advantage for each token: a critic or a judge scores single steps, or the
turns of a conversation. GSPO, with its one ratio and one advantage per answer, has no place for
that. Its authors give a variant, GSPO-token (arXiv 2507.18071, eq. 13 and 14):

$$s_{i,t} = \mathrm{sg}[s_i]\cdot
\frac{\pi_\theta(y_{i,t})}{\mathrm{sg}[\pi_\theta(y_{i,t})]}, \qquad
J = \frac1G\sum_i \frac1{L_i}\sum_t
\min\big(s_{i,t} \hat A_{i,t},\ \mathrm{clip}(s_{i,t})\, \hat A_{i,t}\big)$$

The fraction is 1 as a number, so the value of $s_{i,t}$ is $s_i$ for every token. Its derivative is
not 0: it lets the gradient through to token $t$ alone.
"""


# %%
def gspo_token(logp, advantages):
    log_s = ((logp - old) * mask / length).sum(dim=1, keepdim=True)
    s = log_s.exp().detach() * (logp - logp.detach()).exp()
    term = torch.minimum(s * advantages, s.clamp(1 - 3e-4, 1 + 4e-4) * advantages)
    return (term * mask / length).sum(dim=1).mean()


logp = batch.logp.clone().requires_grad_()
J = gspo_token(logp, a)
J.backward()
whole = OBJECTIVES["gspo"](batch.logp, *given)
print(f"one advantage per answer: J = {J.item():+.9f}, GSPO {-whole.loss.item():+.9f}")
print(f"largest difference of a weight: {(logp.grad - whole.token_weight).abs().max():.9f}")
assert math.isclose(J.item(), -whole.loss.item(), rel_tol=1e-12)
assert torch.allclose(logp.grad, whole.token_weight, atol=1e-15)

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "06 own advantage",
    "Answer 4 has s = 1.044 and A = -0.90. A step judge likes its last token: only this token gets "
    "A = +1. What does GSPO-token do with that token?",
    {
        "a": "it pushes it up with s·1 / (G·L) = +0.065",
        "b": "nothing: its weight becomes exactly 0",
        "c": "it pushes it down like the rest: one ratio, one sign per answer",
        "d": "it pushes all four down less, by the mean advantage",
    },
    my_guess,
)

# %%
per_token = a.expand(4, 4).clone()
per_token[3, 3] = 1.0
one_each = OBJECTIVES["gspo_token"](batch.logp, old, per_token, mask).token_weight[3]
averaged = OBJECTIVES["gspo"](batch.logp, old, per_token, mask).token_weight[3]
print("answer 4                     token 1   token 2   token 3   token 4")
print("advantage                 " + "".join(f"{x:+10.4f}" for x in per_token[3]))
print("GSPO-token, weight        " + "".join(f"{x:+10.4f}" if x else f"{0:>10}" for x in one_each))
print("GSPO (mean advantage)     " + "".join(f"{x:+10.4f}" for x in averaged))

mean_advantage = per_token[3].mean()
assert one_each[3] == 0
assert torch.allclose(one_each[:3], A[3] * s[3] / 16)
assert torch.allclose(averaged, mean_advantage * s[3] / 16)

# %% tags=["reconcile"] jupyter={"source_hidden": true}
assert f"{s[3].item() / 16:+.3f}" == "+0.065"
reconcile(
    "06 own advantage",
    "b",
    "the answer's s = 1.044 lies above 1.0004, so a token of it with A > 0 is clipped. Its own "
    "ratio of 1.1 is not asked. The other three keep their full weight.",
    {
        "a": "that would be its weight inside the range. The clip looks at s, and s is above it.",
        "c": "the ratio is one, but the sign is each token's own, and with it the clip.",
        "d": "that is what GSPO proper makes of it, the lower line: it knows one advantage only.",
    },
)

# %% [markdown]
r"""
## 7 · Same batch, other numbers: what libraries do

The papers leave choices open, and libraries fill them in. The course keeps a table of such
conventions, each with the number that it gives for our batch and with the libraries that compute
it. It is long, so we look at the parts that change how you read a log; the rest is for looking up.

**Which mean?** `ratio × advantage` is one number per token. What the loss makes of ten of them:
"""

# %%
display(conventions_table("mean"))

# %% [markdown]
r"""
**How to read it.** Each block is one open question, each line one answer to it, with the number for
our batch and who computes it. The functions are in `gspo_edu.conventions`, one per line.

**`importance_sampling_level="sequence"` alone is not the paper's GSPO.** With TRL's default
`loss_type` (and in AReaL) long answers weigh more. TRL says so in a warning.

**What does a clip fraction count?** Clipped answers or clipped tokens; what was silenced, or what
was outside, whatever the sign of A:
"""

# %%
clips = conventions_table("clip")
display(clips)
fractions = [row.number for row in clips if row.topic == "Clip fraction of GSPO"]
assert [round(fraction, 9) for fraction in fractions] == [0.25, 0.1]

# %% [markdown]
r"""
The same GSPO update is a clip fraction of 0.25 in one library and 0.1 in another. **Before you
compare two libraries' clip fractions or losses, look up what they count and which mean they take.**

**Which number is the cap?** One more, because it is so easily misread.
"""

# %% tags=["predict"]
my_guess = None  # "a", "b", "c" or "d"
predict(
    "06 absolute cap",
    "CISPO's upper bound is 1 + ε_high in its paper. TRL 1.16 takes the number that you set as "
    "epsilon_high for the cap itself. You copy ε_high = 0.28 from somebody's run into TRL. What "
    "weight on log π (in units of A, before the mean) does a token with r = 1 get?",
    {
        "a": "1: it has not moved, so no bound touches it",
        "b": "1.28",
        "c": "0.28",
        "d": "0: it lies above the cap, so it is silent",
    },
    my_guess,
)

# %%
display(conventions_table("cap"))

# %% tags=["reconcile"] jupyter={"source_hidden": true}
one, zero, yes = torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1, 1)
at_one = {
    cap: OBJECTIVES["cispo"](zero, zero, one, yes, cap=cap).token_weight.item()
    for cap in (0.28, 1.28)
}
assert math.isclose(at_one[0.28], 0.28, rel_tol=1e-6)
assert at_one[1.28] == 1
reconcile(
    "06 absolute cap",
    "c",
    f"min(1, 0.28) = {at_one[0.28]:.2f}. Every token of a fresh rollout is capped, and the ratio "
    "plays no part any more. TRL follows ScaleRL, whose authors recommend a cap of 5.",
    {
        "a": f"so it is in the paper's reading, with a cap of 1.28: weight {at_one[1.28]:.0f}.",
        "b": "the weight is min(r, cap), never more than r.",
        "d": "that is what a clip does. A cap limits the weight, and the token goes on speaking.",
    },
)

# %% [markdown]
r"""
**To look up: the std, the ratio, the KL.**

- **n or n − 1** is a factor for all groups of one size, $\sqrt{3/4}$ here. It changes the balance
  with a KL term, and it differs between groups of different size.
- **One ratio per answer** does not always mean GSPO's: the product is in use, too.
- **KL.** Per token, k1 is the difference $d = \log\pi_\theta - \log\pi_\text{ref}$, k3 is
  $e^{-d} + d - 1$ (lesson 03), and **k2** is $d^2/2$: never negative either, but on average only
  close to the KL.
- **A KL in the reward changes the advantages**, and with them every weight in this lesson; a KL in
  the loss adds its own gradient beside them.
"""

# %%
display(conventions_table("std", "ratio", "kl"))
print("Versions of the libraries, and the papers:")
for line in conventions_table().sources():
    print(f"- {line}")

# %% [markdown]
r"""
None of these is an error. An error is to compare numbers across them.

## 8 · What is shown, and what is not

*Arithmetic, checked above:* who gets which weight under which objective, for given ratios; that
GRPO and GSPO share the 1/L and differ in the ratio; when GSPO-token and GSPO agree; that at the
first update only the mean tells seven objectives apart.

*Not shown:* which distribution trains better. The batch was made up so that all corners occur. Real
token ratios are mostly much closer to 1: then GRPO's range clips few tokens, and GSPO's, if it is
as narrow as in the paper, many answers (lesson 05). The authors of each method report that
theirs does better in their setting; comparisons by others differ with model, data and ranges (for
example ScaleRL, arXiv 2510.13786, on an 8B dense model).

## Three questions to compute

Four digits are enough. The folded cell here holds what your answers are compared with: run it, but
leave it folded. The folded cell after the questions works them out.
"""

# %% tags=["check"] jupyter={"source_hidden": true}
s_1 = (2 * 0.5 * 1.1 * 1) ** (1 / 4)
question_1 = (
    -s_1 / (8 * 4),
    [
        (s_1 / (8 * 4), "Right size. But A = -1."),
        (-s_1 / 8, "The root brings in 1/L: divide by the four tokens as well."),
        (-2 / (8 * 4), "That is GRPO's weight, with the token's own ratio."),
        (-1.1 / (8 * 4), "That is the product; take its fourth root."),
        (0.0, "s is above the range, but A < 0: not clipped."),
    ],
)
question_2 = (
    (1 / 30) / (1 / (2 * 10)),
    [
        ((1 / (2 * 10)) / (1 / 30), "The other way round: DAPO over GRPO is asked."),
        ((1 / 30) / (1 / (2 * 20)), "That is the token of the long answer."),
        (1.0, "GRPO gives 1/(2·10) here, DAPO 1/30."),
        ((1 / 30) / (1 / 10), "GRPO divides by the two answers as well: 1/(2·10)."),
        ((1 / 15) / (1 / 20), "DAPO divides by all 30 tokens, once."),
    ],
)
ratios_3 = torch.tensor([[1.3, 1.3, 0.7]], dtype=torch.float64).log()
question_3 = (
    OBJECTIVES["grpo"](ratios_3, torch.zeros(1, 3), torch.tensor([2.0]), torch.ones(1, 3))
    .token_weight.sum()
    .item(),
    [
        ((1.3 + 1.3 + 0.7) * 2 / 3, "1.3 lies above 1.27 and A > 0: these two get nothing."),
        ((1.27 + 1.27 + 0.7) * 2 / 3, "Clipping switches a gradient off, it does not cap it."),
        (0.7 * 2, "Divide by the length: 3 tokens, silent ones included."),
        (0.8 * 2 / 3, "r = 0.7 is below the range, but for A > 0 it is not clipped: r counts."),
        (0.0, "For A > 0 a ratio below the range keeps its gradient."),
    ],
)

# %% [markdown]
r"""
**1.** Eight answers in the group. One of them has A = −1 and the four ratios 2, 0.5, 1.1 and 1.
Which weight does GSPO, with the paper's range, give to its first token?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_1)

# %% [markdown]
r"""
**2.** Two answers, of 10 and 20 tokens, all ratios 1. Take one token of the *short* answer: what is
its weight under DAPO divided by its weight under GRPO?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_2)

# %% [markdown]
r"""
**3.** A batch of one answer with A = 2 and the ratios 1.3, 1.3 and 0.7; GRPO with the range 0.8 to
1.27. What do its three weights add up to?
"""

# %% tags=["question"]
my_answer = None
check_answer(my_answer, *question_3)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"From lesson 05: (0.8 · 1.5 · 1)^(1/3) = {(0.8 * 1.5) ** (1 / 3):.6f}")
print(f"From lesson 03: (0 - 0.75) / √0.1875 = {-0.75 / math.sqrt(0.1875):.4f}")
print(f"1. s = 1.1^(1/4) = {s_1:.6f}; s·A / (G·L) = -{s_1:.6f} / 32 = {question_1[0]:.6f}")
print(f"2. (1/30) / (1/20) = {question_2[0]:.4f}")
print(f"3. 0 + 0 + 0.7 · 2 / 3 = {question_3[0]:.4f}")
assert math.isclose(question_3[0], 0.7 * 2 / 3)
eight = GradientWeights([[2, 0.5, 1.1, 1]] + [[1.0]] * 3, [-1.0, 1, 1, 1]).weights()["gspo"][0]
assert math.isclose(eight[0] / 2, question_1[0])  # four answers here, eight there

# %% [markdown]
r"""
## Your predictions
"""

# %% tags=["nbval-ignore-output"]
summary_picture("06")

# %% [markdown]
r"""
## New words
"""

# %%
display(table(lesson=6))

# %% [markdown]
r"""
## What comes next

All weights in this lesson follow from the ratios. In a mixture of experts ratios also jump for a
reason that has nothing to do with learning: another expert was chosen. That is the subject of
[lesson 07](07_experts_and_drift.ipynb).

**Sources.** The two gradients, GSPO-token and its equations 13 and 14: section 4 of the GSPO paper.
"""

# %%
for key in ("gspo", "grpo", "dr_grpo", "dapo", "cispo", "gmpo", "sapo", "scale_rl"):
    print(source(key))
