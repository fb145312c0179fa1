"""The Python side of the widgets: settings, derived numbers, picture, page."""

import base64
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
import torch

pytest.importorskip("anywidget")

from PIL import Image
from traitlets import TraitError

from gspo_edu.advantages import group_advantages
from gspo_edu.gradient_map import SHOWN, silent
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.widgets import (
    WIDGETS,
    GradientWeights,
    GroupAdvantage,
    LengthSpread,
    OneAnswer,
    RatioClip,
    Routes,
    TrainingReplay,
    static_outputs,
    to_html,
)
from gspo_edu.widgets.assets import module, parts, source
from gspo_edu.widgets.base import CLIP_RANGES, STATE
from gspo_edu.widgets.gradient_weights import KEYWORDS

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
every_widget = pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)


def python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **kwargs
    )


def test_import_needs_no_torch():
    done = python("import sys, gspo_edu.widgets; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_missing_anywidget_is_one_sentence():
    done = python("import sys; sys.modules['anywidget'] = None; import gspo_edu.widgets")
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: gspo_edu.widgets needs the package anywidget; "
        "install it with `pip install anywidget`."
    )


@pytest.mark.parametrize("name", CLIP_RANGES)
def test_clip_ranges_are_the_objectives_defaults(name):
    defaults = inspect.signature(OBJECTIVES[name]).parameters
    assert CLIP_RANGES[name] == (defaults["clip_low"].default, defaults["clip_high"].default)


@pytest.mark.parametrize(
    ("widget_class", "settings", "message"),
    [
        (RatioClip, {"ratio": -1}, "ratio is -1.0; expected a positive number"),
        (RatioClip, {"ratio": float("nan")}, "ratio is nan"),
        (RatioClip, {"advantage": 0}, "advantage is 0.0; expected a number other than 0"),
        (RatioClip, {"clip_low": 1.2}, "clip_low is 1.2; expected a number between 0 and 1"),
        (RatioClip, {"clip_high": 0}, "clip_high is 0.0; expected a positive number"),
        (RatioClip, {"objective": "dapo"}, "expected any of"),
        (OneAnswer, {"ratios": []}, "0 long; expected 1 to 200"),
        (OneAnswer, {"ratios": [1.0] * 201}, "201 long"),
        (OneAnswer, {"ratios": [1, -2]}, "expected 1 to 200 positive numbers"),
        (OneAnswer, {"ratios": "12"}, "expected a float"),
        (OneAnswer, {"token": 0}, "token is 0; expected 1 to 200"),
        (OneAnswer, {"gspo_low": 1}, "gspo_low is 1.0"),
        (LengthSpread, {"sigma": 3}, "sigma is 3.0; expected 0.001 to 1"),
        (LengthSpread, {"length": 0}, "length is 0; expected 1 to 10000"),
        (GroupAdvantage, {"rewards": [1]}, "one answer alone has no group"),
        (GroupAdvantage, {"rewards": [1, 2]}, "numbers from 0 to 1 .set low and high"),
        (GroupAdvantage, {"rewards": [1, float("nan")]}, "numbers from 0 to 1"),
        (GroupAdvantage, {"low": 2}, r"low, high is \(2.0, 1.0\)"),
        (GradientWeights, {"ratios": []}, r"of lengths \[\]; expected 1 to 6 answers"),
        (GradientWeights, {"ratios": [[1.0], []]}, r"of lengths \[1, 0\]; expected 1 to 6"),
        (GradientWeights, {"ratios": [[1.0] * 13]}, r"of lengths \[13\]"),
        (GradientWeights, {"ratios": [[1.0] * 11] * 4}, "40 tokens in all"),
        (GradientWeights, {"ratios": [[1, 0], [2], [3], [4]]}, "expected positive numbers"),
        (GradientWeights, {"advantages": [1]}, r"advantages is \[1.0\]; expected 4 numbers"),
        (GradientWeights, {"advantages": [1, 2, 3, float("nan")]}, "expected 4 numbers"),
        (GradientWeights, {"objective": "ppo"}, "expected any of"),
        (GradientWeights, {"answer": 0}, "answer is 0; expected 1 or more"),
        (GradientWeights, {"max_len": 0}, "max_len is 0; expected 1 or more"),
        (GradientWeights, {"cispo_cap": 0}, "cispo_cap is 0.0; expected a positive number"),
        (GradientWeights, {"dapo_low": 1.5}, "dapo_low is 1.5; expected a number between 0 and 1"),
        (
            Routes,
            {"record": {"tokens": []}},
            "a dict with tokens; expected what route_record returns",
        ),
        (Routes, {"update": -1}, "update is -1; expected 0 or more"),
        (Routes, {"token": 0}, "token is 0; expected 1 or more"),
        (Routes, {"grpo_high": 0}, "grpo_high is 0.0; expected a positive number"),
        (
            TrainingReplay,
            {"record": {}},
            "a dict with nothing; expected what replay_record returns",
        ),
        (TrainingReplay, {"rollout": 0}, "rollout is 0; expected 1 or more"),
        (TrainingReplay, {"seed": 77}, r"seed is 77; expected None or one of \[0, 1"),
        (GroupAdvantage, {"ddof": 2}, r"ddof is 2; expected 0 \(divide by n\)"),
    ],
)
def test_bad_settings_are_named(widget_class, settings, message):
    with pytest.raises(TraitError, match=message):
        widget_class(**settings)
    (name,) = settings
    widget = widget_class()
    before = widget.settings()
    with pytest.raises(TraitError):
        setattr(widget, name, settings[name])
    assert widget.settings() == before


@every_widget
def test_unknown_setting(widget_class):
    with pytest.raises(TypeError, match="has no setting 'ratoi'; it has "):
        widget_class(ratoi=1)


@pytest.mark.parametrize("name", ["ppo", "grpo", "gspo"])
def test_objective_sets_range_and_keeps_the_place(name):
    low, high = CLIP_RANGES[name]
    fresh = RatioClip(name)
    assert (fresh.clip_low, fresh.clip_high) == (low, high)
    assert fresh.outside
    moved = RatioClip("grpo", ratio=1.27)
    moved.objective = name
    assert (moved.clip_low, moved.clip_high) == (low, high)
    assert moved.ratio == pytest.approx(1 + 0.27 * max(low, high) / 0.27)
    far = RatioClip("gspo", ratio=0.998)
    far.objective = name
    assert 0 < far.ratio < 1
    own = RatioClip(name, clip_low=0.1, clip_high=0.3)
    assert (own.clip_low, own.clip_high) == (0.1, 0.3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [(1.5, 1, 0), (0.5, 1, 1), (1.5, -1, -1), (0.5, -1, 0), (1.1, 2, 2), (1.2, 1, 1)],
)
def test_slope_is_the_gradient_that_autograd_finds(ratio, advantage, slope):
    widget = RatioClip(ratio=ratio, advantage=advantage)
    assert widget.slope == slope
    assert widget.clipped == (slope == 0)
    logp = torch.tensor([[np.log(ratio)]], requires_grad=True)
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1)
    given = torch.tensor([float(advantage)], dtype=torch.float64)
    loss = OBJECTIVES["ppo"](logp, zero, given, one).loss
    assert widget.surrogate == pytest.approx(-loss.item())
    if ratio != 1.2:  # exactly on the bound min() may take either branch
        (gradient,) = torch.autograd.grad(loss, logp)
        assert widget.slope * ratio == pytest.approx(-gradient.item())


def test_one_answer_worked_numbers():
    four = OneAnswer()
    assert four.product == pytest.approx(1.188)
    assert four.geometric_mean == pytest.approx(1.188**0.25)
    nine = OneAnswer([1] * 9 + [3])
    assert nine.geometric_mean == pytest.approx(3**0.1)
    assert (nine.clipped("grpo", 1), nine.clipped("grpo", -1), nine.outside("grpo")) == (1, 0, 1)
    hundred = OneAnswer(np.array([1.0] * 99 + [10.0]))
    assert hundred.geometric_mean == pytest.approx(10**0.01)
    found = (hundred.clipped("gspo", 1), hundred.clipped("gspo", -1), hundred.outside("gspo"))
    assert found == (100, 0, 100)


def test_length_spread_is_what_sampling_gives():
    widget = LengthSpread(sigma=0.2, length=50, clip_low=0.03, clip_high=0.02)
    spread = widget.spread
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40_000, 50, generator=generator)
    s = (noise * 0.2 - 0.2**2 / 2).mean(dim=1).exp()
    for share, found in ((spread.below, s < 0.97), (spread.above, s > 1.02)):
        measured = found.double().mean().item()
        assert measured == pytest.approx(share, abs=4 * (share * (1 - share) / 40_000) ** 0.5)
    product = s**50
    low, high = spread.product_90
    held = ((product > low) & (product < high)).double().mean().item()
    assert held == pytest.approx(0.9, abs=0.006)
    assert spread.outside == spread.below + spread.above


def test_group_advantage_numbers():
    group = GroupAdvantage([1, 0, 0, 1])
    assert group.advantages == [1, -1, -1, 1]
    assert (group.mean, group.std) == (0.5, 0.5)
    group.ddof = 1
    assert group.advantages == pytest.approx([3**0.5 / 2 * a for a in (1, -1, -1, 1)])
    group.normalize = False
    assert group.advantages == [0.5, -0.5, -0.5, 0.5]
    dead = GroupAdvantage([0.1, 0.1, 0.1])
    assert dead.advantages == [0, 0, 0]
    assert "dead group" in dead.words()
    assert GroupAdvantage([-1, 3], low=-1, high=3).advantages == [-1, 1]


def test_gradient_weights_are_those_of_the_one_batch():
    widget = GradientWeights()
    batch = ONE_BATCH.tensors()
    advantages = torch.tensor(widget.advantages, dtype=torch.float64)
    assert advantages.tolist() == pytest.approx(group_advantages(batch.rewards, batch.group))
    given = (batch.logp, batch.logp_old, advantages, batch.mask)
    found = widget.weights()
    assert list(found) == list(SHOWN)
    for name in SHOWN:
        extra = {"max_len": 8} if name == "dr_grpo" else {}
        wanted = OBJECTIVES[name](*given, **extra).token_weight
        for row, inside, shown in zip(wanted, batch.mask, found[name], strict=True):
            torch.testing.assert_close(torch.tensor(shown).double(), row[inside], rtol=1e-6, atol=0)
    assert [silent(found[name]) for name in SHOWN] == [2, 2, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("name", SHOWN)
def test_every_setting_of_gradient_weights_is_used(name):
    """Defaults are the objective's own, and each trait changes its weights."""
    defaults = inspect.signature(OBJECTIVES[name]).parameters
    plain = GradientWeights([[0.3, 1.4, 9.0], [0.4, 1.0, 0.7]], [1.0, -1.0])
    for keyword, trait in KEYWORDS[name].items():
        if keyword != "max_len":
            assert getattr(plain, trait) == defaults[keyword].default
        before = plain.weights()[name]
        changed = plain.settings()
        extreme = {"max_len": 3, "cispo_cap": 1.1}.get(trait, 0.9)
        other = GradientWeights(**{**changed, trait: extreme})
        assert other.weights()[name] != before, trait


def test_gradient_weights_takes_arrays_and_other_lengths():
    widget = GradientWeights(np.array([[1.0, 1.2], [0.9, 1.0]]))
    assert widget.advantages == [1, 1]
    with widget.hold_trait_notifications():
        widget.ratios, widget.advantages = [[1.0]] * 3, [1, 0, -1]
    assert [row[0] for row in widget.weights()["grpo"]] == pytest.approx([1 / 3, 0, -1 / 3])
    with pytest.raises(TraitError, match="expected 2 numbers, one for each answer"):
        widget.ratios = [[1.0], [1.0]]
    widget.answer, widget.token = 9, 9
    assert widget.chosen() == (2, 0)
    assert "Token 1 of answer 3 (ratio 1, A = -1.00)" in widget.words()


@every_widget
def test_cell_output_has_live_view_picture_and_words(widget_class):
    data, metadata = widget_class()._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", WIDGET_VIEW, STATE}
    assert data[STATE]["widget"] == widget_class.name
    assert data[STATE]["state"] == json.dumps(widget_class().settings())
    assert len(data["image/png"]) < 60_000
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.width == 2 * metadata["image/png"]["width"]
    assert len(image.convert("RGB").getcolors(256)) > 5
    assert metadata["image/png"]["alt"] == data["text/plain"] == widget_class().words()


@every_widget
def test_equal_settings_give_equal_outputs(widget_class):
    first, second = (widget_class()._repr_mimebundle_()[0] for _ in range(2))
    for kind in ("text/plain", "image/png", STATE):
        assert first[kind] == second[kind]


def test_pictures_show_the_state():
    curves = RatioClip("gspo", ratio=0.999, advantage=-1).picture().axes
    (point,) = [line for line in curves[1].lines if line.get_marker() == "o"]
    assert (point.get_xdata(), point.get_ydata()) == ([0.999], [-0.9997])
    bars = GroupAdvantage([1, 0, 0.5, 0]).picture().axes[1].patches
    assert [bar.get_width() for bar in bars] == GroupAdvantage().advantages
    top, strips = OneAnswer([1] * 9 + [3]).picture().axes
    assert [bar.get_height() for bar in top.patches[1:]] == [0] * 9 + [2]
    colours = [bar.get_facecolor() for bar in strips.patches]
    assert len(colours) == 40
    assert colours.count(colours[9]) == 11  # GRPO clips the last token if A > 0, GSPO all ten
    assert top.get_xlabel() == "ratio of each token"
    bars, cells = GradientWeights([[1.0, 2.0], [0.5]], [1.0, -1.0]).picture().axes
    assert [bar.get_height() for bar in bars.patches[-3:]] == [0, 1, -0.5]
    hatched = [bar.get_hatch() is not None for bar in cells.patches]
    assert hatched[:3] == [False, True, True]  # GRPO: clipped above for A > 0, below for A < 0
    assert hatched[9:12] == [False, False, False]  # CISPO clips nobody
    assert cells.get_xticklabels()[1].get_text() == "answer 2\nA = −1.00"
    density, _ = LengthSpread().picture().axes
    names = [text.get_text() for text in density.get_legend().get_texts()]
    assert names == ["below the range", "above the range"]
    dots = [line for line in LengthSpread().picture().axes[1].lines if line.get_marker() == "o"]
    spread = LengthSpread().spread
    shares = [100 * spread.outside, 100 * spread.above, 100 * spread.below]
    assert [dot.get_ydata()[0] for dot in dots] == shares


def test_pictures_leave_pyplot_alone():
    done = python(
        "import sys; from gspo_edu.widgets import LengthSpread; LengthSpread()._repr_mimebundle_();"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr


@every_widget
def test_page_is_self_contained(widget_class):
    widget = widget_class()
    page = to_html(widget, title="A <title> & more")
    assert "<title>A &lt;title&gt; &amp; more</title>" in page
    outside = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", page)
    assert set(outside) == {"http://www.w3.org/2000/svg"}  # a namespace, not an address
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=|@import|\burl\(|\bfetch\(", page)
    state = re.search(r'id="state">(.*)</script>', page).group(1)
    assert json.loads(state) == json.loads(json.dumps(widget.settings()))


@every_widget
def test_assembled_module(widget_class, tmp_path):
    code = module(widget_class.name)
    assert code == widget_class._esm
    assert not re.search(r"^import ", code, flags=re.MULTILINE)
    assert re.findall(r"^export .*", code, flags=re.MULTILINE) == ["export default { render };"]
    if shutil.which("node"):
        file = tmp_path / "widget.mjs"
        file.write_text(code, encoding="utf-8")
        done = subprocess.run(["node", "--check", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@every_widget
def test_imports_of_the_scripts_are_used_and_exist(widget_class):
    for part in parts(widget_class.name):
        code = source(f"{part}.js")
        imports = re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";', code, flags=re.MULTILINE)
        assert imports or part in {"math", "text", "frame"}
        body = re.sub(r"^import [^;]*;$", "", code, flags=re.MULTILINE)
        for names, file in imports:
            exported = re.findall(r"^export (?:function|const) (\w+)", source(f"{file}.js"), re.M)
            for name in re.findall(r"\w+", names):
                assert name in exported
                assert re.search(rf"\b{name}\b", body), f"{part}: {name} is not used"


def test_every_script_is_of_a_widget():
    used = {part for widget_class in WIDGETS for part in parts(widget_class.name)}
    assert used == {file.stem for file in (files("gspo_edu.widgets") / "static").glob("*.js")}


def test_static_outputs_keeps_the_picture_only():
    widget = {
        "data": {WIDGET_VIEW: {"model_id": "x"}, "image/png": "…", "text/plain": "words"},
        "metadata": {WIDGET_VIEW: {}, "image/png": {"alt": "words"}},
    }
    foreign = {"data": {WIDGET_VIEW: {"model_id": "y"}, "text/plain": "slider"}, "metadata": {}}
    stream = {"output_type": "stream", "text": "hello"}
    notebook = {
        "cells": [
            {"cell_type": "code", "outputs": [stream, widget]},
            {"cell_type": "markdown"},
            {"cell_type": "code", "outputs": [foreign]},
        ],
        "metadata": {"widgets": {"state": {}}, "kernelspec": {}},
    }
    assert static_outputs(notebook) == 1
    assert set(widget["data"]) == {"image/png", "text/plain"}
    assert set(widget["metadata"]) == {"image/png"}
    assert WIDGET_VIEW in foreign["data"]
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert static_outputs(notebook) == 0


@pytest.mark.parametrize("objective", ["ppo", "GSPO", ""])
def test_one_answer_names_its_objectives(objective):
    answer = OneAnswer()
    message = f"objective is '{objective}'; expected 'grpo' or 'gspo'"
    with pytest.raises(ValueError, match=message):
        answer.clipped(objective, 1.0)
    with pytest.raises(ValueError, match=message):
        answer.outside(objective)


@pytest.mark.parametrize(("ratios", "said"), [([1.1], "1 token:"), ([1.1, 1.0], "2 tokens:")])
def test_one_token_is_singular(ratios, said):
    answer = OneAnswer(ratios)
    assert answer.words().startswith(f"One answer of {said}")
    assert answer.picture().axes[0].get_title(loc="left").startswith(said)
