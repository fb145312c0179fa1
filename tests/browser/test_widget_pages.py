"""Each widget as one HTML file from disk: moved by mouse and keyboard, its numbers checked."""

import re
import statistics
from itertools import pairwise

import pytest

pytest.importorskip("anywidget")

from gspo_edu.gradient_map import SHOWN, silent
from gspo_edu.widgets import (
    WIDGETS,
    GradientWeights,
    GroupAdvantage,
    LengthSpread,
    OneAnswer,
    RatioClip,
    Routes,
    TrainingReplay,
    to_html,
)

pytestmark = pytest.mark.browser


@pytest.fixture
def show(open_page, tmp_path):
    """show(widget, page, width=...) → a page, perhaps a given one, with the widget, offline."""

    def open_widget(widget, page=None, **options):
        file = tmp_path / f"{widget.name}.html"
        file.write_text(to_html(widget), encoding="utf-8")
        page = page or open_page(offline=True, **options)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(".gspo-w")
        assert asked == [file.as_uri()]
        return page

    return open_widget


def state(page, widget_class):
    """A Python widget with the settings that the page has now."""
    settings = page.evaluate("widgetState")
    settings.pop("presets", None)
    return widget_class(**settings)


def fact(page, name):
    return page.locator(f'[data-fact="{name}"]').inner_text().replace("−", "-")


def drag(page, locator, start, end, steps=8):
    """Drag inside ``locator`` from one (x, y) to another, both as shares of its box."""
    box = locator.bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=steps)
    page.mouse.up()


def redraw(page):
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_ratio_clip(show):
    page = show(RatioClip())
    chart, slider = page.locator("svg.gspo-plot"), page.get_by_label("ratio r")

    def agrees(digits):
        redraw(page)
        mine = state(page, RatioClip)
        assert fact(page, "objective") == f"{mine.surrogate:+.{digits}f}"
        assert float(fact(page, "slope")) == mine.slope
        assert float(fact(page, "weight")) == pytest.approx(mine.slope * mine.ratio, abs=1e-9)
        assert fact(page, "outside") == ("yes" if mine.outside else "no")
        assert fact(page, "zero") == ("yes" if mine.clipped else "no")
        cell = page.locator('td[data-mine="true"]')
        assert cell.locator("strong").inner_text() == f"gradient {'0' if mine.clipped else 'A'}"
        return mine

    assert agrees(2).ratio == 1.3
    drag(page, chart, (0.6, 0.5), (0.2, 0.5))
    assert agrees(2).ratio < 0.8
    page.get_by_label("A < 0").check()
    mine = agrees(2)
    assert mine.clipped
    assert mine.advantage == -1
    slider.focus()
    page.keyboard.press("End")
    mine = agrees(2)
    assert mine.ratio == 1.7
    assert mine.outside
    assert not mine.clipped
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert agrees(2).ratio == 1.67

    page.get_by_label("PPO").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    mine = agrees(5)
    assert (mine.objective, mine.clip_low, mine.clip_high) == ("gspo", 3e-4, 4e-4)
    assert 1.0004 < mine.ratio < 1.0014
    page.get_by_label("sequence ratio s").focus()
    page.keyboard.press("ArrowLeft")
    assert agrees(5).ratio == pytest.approx(mine.ratio - 1e-5)
    page.get_by_label("sequence ratio s").fill("1.0004")
    assert not agrees(5).outside  # the bound belongs to the range, in both languages
    page.wait_for_function(
        "document.querySelector('[aria-live]').textContent.includes('inside the range')"
    )


def test_a_range_of_ones_own_marks_no_preset(show):
    page = show(RatioClip("grpo", clip_high=0.4))
    assert page.locator('input[type="radio"]:checked').count() == 1  # the sign of A
    page.get_by_label("GRPO").check()
    assert state(page, RatioClip).clip_high == 0.27


def test_one_answer(show):
    page = show(OneAnswer())
    chart = page.locator("svg.gspo-plot")

    def agrees():
        redraw(page)
        mine = state(page, OneAnswer)
        total = len(mine.ratios)
        assert float(fact(page, "product")) == pytest.approx(mine.product, rel=1e-5)
        assert fact(page, "mean") == f"{mine.geometric_mean:.6f}"
        for name in ("grpo", "gspo"):
            for key, count in (
                ("", mine.outside(name)),
                ("1", mine.clipped(name, 1.0)),
                ("-1", mine.clipped(name, -1.0)),
            ):
                cell = page.locator(f'[data-count="{name.upper()}{key}"]')
                assert cell.inner_text() == f"{count} of {total}"
        return mine

    assert fact(page, "mean") == "1.044009"
    agrees()
    drag(page, chart, (0.9, 0.3), (0.9, 0.08))
    mine = agrees()
    assert mine.token == 4
    assert mine.ratios[3] > 1.27
    assert mine.clipped("grpo", 1.0) == 1
    page.get_by_role("button", name="nine ones and a 3").click()
    assert agrees().geometric_mean == pytest.approx(3**0.1)
    page.get_by_role("button", name="99 ones and a 10").click()
    mine = agrees()
    assert (len(mine.ratios), mine.clipped("gspo", 1.0)) == (100, 100)
    page.get_by_label("ratio of token 100").focus()
    page.keyboard.press("ArrowLeft")
    assert agrees().ratios[99] == 9.9
    for wanted in (10, 11, 12):
        page.keyboard.press("ArrowRight")
        assert agrees().ratios[99] == wanted
    page.get_by_label("token", exact=True).focus()
    page.keyboard.press("Home")
    assert agrees().token == 1
    page.get_by_role("button", name="Remove the last").click()
    assert len(agrees().ratios) == 99


def test_length_spread(show):
    page = show(LengthSpread())

    def agrees():
        redraw(page)
        mine = state(page, LengthSpread)
        for name, share in (
            ("outside", mine.spread.outside),
            ("positive", mine.spread.above),
            ("negative", mine.spread.below),
            ("half", mine.spread.outside / 2),
        ):
            text = "< 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
            assert fact(page, name) == text.replace("%", "\u00a0%")
        return mine

    agrees()
    drag(page, page.locator("svg.gspo-plot").nth(1), (0.5, 0.5), (0.95, 0.5))
    assert agrees().length > 5000
    page.get_by_label("σ: std").focus()
    for wanted in (0.021, 0.022, 0.023):
        page.keyboard.press("ArrowRight")
        assert agrees().sigma == wanted
    page.get_by_label("L: tokens").focus()
    page.keyboard.press("Home")
    for wanted in (2, 3, 4):
        page.keyboard.press("ArrowRight")
        assert agrees().length == wanted
    page.get_by_label("GRPO").check()
    mine = agrees()
    assert (mine.clip_low, mine.clip_high) == (0.2, 0.27)
    assert mine.spread.outside == 0


def test_group_advantage(show):
    page = show(GroupAdvantage())

    def agrees():
        redraw(page)
        mine = state(page, GroupAdvantage)
        assert fact(page, "mean") == f"{mine.mean:.3f}"
        assert fact(page, "std") == f"{mine.std:.3f}"
        assert fact(page, "sum") == "0"
        shown = page.locator(".gspo-push-text").all_text_contents()
        signs = {True: "▲ ", False: "▼ "}
        assert [text.replace("−", "-") for text in shown] == [
            "0" if a == 0 else f"{signs[a > 0]}{a:+.2f}" for a in mine.advantages
        ]
        return mine

    agrees()
    first = page.get_by_label("answer 1")
    drag(page, first, (0.97, 0.5), (0.4, 0.5))
    mine = agrees()
    assert 0.3 < mine.rewards[0] < 0.5
    first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert agrees().rewards == [0.01, 0, 0.5, 0]
    page.get_by_label("std with n − 1").check()
    assert agrees().ddof == 1
    page.get_by_role("button", name="Add an answer").click()
    assert len(agrees().rewards) == 5
    page.get_by_role("button", name="all wrong").click()
    assert agrees().advantages == [0, 0, 0, 0]
    assert "dead group" in page.locator(".gspo-words").inner_text()


def test_gradient_weights(show):
    page = show(GradientWeights())
    chart = page.locator("svg.gspo-plot")

    def agrees():
        redraw(page)
        mine = state(page, GradientWeights)
        weights, (answer, token) = mine.weights(), mine.chosen()
        total = sum(map(len, mine.ratios))
        for name in SHOWN:
            value = weights[name][answer][token]
            shown = page.locator(f'[data-weight="{name}"]').inner_text().replace("−", "-")
            assert shown == "0" if value == 0 else abs(float(shown) - value) < 5.1e-5
            zeros = page.locator(f'[data-silent="{name}"]').inner_text()
            assert zeros == f"{silent(weights[name])} of {total}"
        dashed = page.locator('.gspo-weight[data-zero="true"]').count()
        assert dashed == sum(silent(rows) for rows in weights.values())
        return mine

    agrees()
    box = chart.bounding_box()
    page.mouse.click(box["x"] + 0.95 * box["width"], box["y"] + box["height"] - 20)
    mine = agrees()
    assert (mine.objective, mine.chosen()) == ("sapo", (3, 3))
    drag(page, chart, (0.95, 0.2), (0.95, 0.1))
    mine = agrees()
    assert mine.ratios[3][3] > 1.27
    page.get_by_label("advantage of answer 4").focus()
    page.keyboard.press("End")
    assert agrees().advantages[3] == 3
    page.get_by_label("temperature, A > 0").focus()
    page.keyboard.press("ArrowRight")
    assert agrees().sapo_pos == 1.1
    page.get_by_label("Dr. GRPO", exact=True).check()
    page.get_by_label("constant length").focus()
    page.keyboard.press("ArrowLeft")
    assert agrees().max_len == 7
    page.get_by_label("GSPO", exact=True).check()
    page.get_by_label("range: above 1 by").focus()
    page.keyboard.press("End")
    assert agrees().gspo_high == 4
    page.get_by_role("button", name="first update").click()
    mine = agrees()
    assert [silent(rows) for rows in mine.weights().values()] == [0] * 7
    page.get_by_role("button", name="Add a token").click()
    page.get_by_role("button", name="Add an answer").click()
    assert [len(row) for row in agrees().ratios] == [4, 2, 1, 4, 1]
    page.get_by_role("button", name="Remove the last answer").click()
    page.get_by_role("button", name="Remove its last token").click()
    assert [len(row) for row in agrees().ratios] == [4, 2, 1, 3]
    page.get_by_role("button", name="one loud token").click()
    assert agrees().weights()["grpo"][0][0] == pytest.approx(-10 / 20)


def test_routes(show):
    page = show(Routes())
    grid = page.locator("svg.gspo-plot").first

    def agrees():
        redraw(page)
        mine = state(page, Routes)
        total = len(mine.record["tokens"])
        assert fact(page, "drift") == f"{mine.drift:.1%}".replace("%", "\u00a0%")
        assert fact(page, "touched") == f"{len({t for t, _ in mine.flips()})} of {total}"
        assert float(fact(page, "ratio")) == pytest.approx(mine.ratios[mine.token - 1], rel=1e-3)
        assert fact(page, "outside") == f"{mine.outside} of {total}"
        used = page.locator('.gspo-route[data-line=""]').evaluate_all(
            "(paths) => paths.map((path) => path.getAttribute('d').split('M').length - 1)"
        )
        fresh = round(mine.drift * mine.experts().numel())
        assert used == [mine.experts().numel() - fresh, fresh]
        return mine

    mine = agrees()
    assert (mine.update, mine.replay) == (1, False)
    assert f"({mine.token - 1}, {mine.layer})" in str(mine.flips())
    experts, gates = mine.experts(), mine.gates()
    new = page.locator(".gspo-words").inner_text()
    at = (mine.token - 1, mine.layer)
    named = [f"{e} (gate {g:.2f})" for e, g in zip(experts[at], gates[at], strict=True)]
    assert any(text in new for text in named)
    page.get_by_label("replayed").check()
    mine = agrees()
    assert mine.drift == 0
    assert page.locator('.gspo-route[data-line="dotted"]').get_attribute("d") != ""
    page.get_by_label("update").focus()
    for wanted in (2, 3, 4):
        page.keyboard.press("ArrowRight")
        assert agrees().update == wanted
    page.get_by_label("replayed").focus()
    page.keyboard.press("ArrowLeft")
    assert agrees().replay is False
    drag(page, grid, (0.2, 0.5), (0.99, 0.5))
    mine = agrees()
    assert (mine.token, mine.layer) == (len(mine.record["tokens"]), 1)
    page.get_by_label("token", exact=True).focus()
    page.keyboard.press("Home")
    page.get_by_label("layer", exact=True).focus()
    page.keyboard.press("Home")
    mine = agrees()
    assert (mine.token, mine.layer) == (1, 0)
    bars = page.locator("svg.gspo-plot").nth(1)
    box = bars.bounding_box()
    page.mouse.click(box["x"] + 0.98 * box["width"], box["y"] + 0.5 * box["height"])
    assert agrees().token == len(mine.record["tokens"])
    page.get_by_label("update").focus()
    page.keyboard.press("Home")
    mine = agrees()
    assert mine.ratios == [1] * len(mine.ratios)


def test_training_replay(show):
    page = show(TrainingReplay("stormy"))

    def agrees():
        redraw(page)
        mine = state(page, lambda **settings: TrainingReplay(**settings))
        for place, arm in enumerate(mine.record["arms"]):
            for metric, value in mine.values(arm).items():
                shown = page.locator(f'[data-value="{metric} {place}"]').inner_text()
                assert abs(float(shown) - value) < 5.1e-4
        return mine

    assert agrees().rollout == 10
    drag(page, page.locator("svg.gspo-plot").nth(2), (0.3, 0.5), (0.99, 0.5))
    mine = agrees()
    assert mine.rollout == mine.last
    page.get_by_label("rollout", exact=True).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert agrees().rollout == 2
    page.get_by_label("3", exact=True).check()
    assert agrees().seed == 3
    page.get_by_label("mean of 8").check()
    assert agrees().seed is None
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("widgetState.rollout > 4")
    page.get_by_role("button", name="Pause").click()
    stopped = agrees().rollout
    page.wait_for_timeout(400)
    assert agrees().rollout == stopped


MOVES = {
    RatioClip: (0, (0.2, 0.5), (0.9, 0.5)),
    OneAnswer: (0, (0.9, 0.4), (0.9, 0.1)),
    LengthSpread: (1, (0.2, 0.5), (0.95, 0.5)),
    GroupAdvantage: (0, (0.05, 0.5), (0.9, 0.5)),
    GradientWeights: (0, (0.95, 0.15), (0.95, 0.05)),
    Routes: (0, (0.2, 0.5), (0.95, 0.5)),
    TrainingReplay: (1, (0.2, 0.5), (0.95, 0.5)),
}


PRESS = """
(name) => {
  const button = [...document.querySelectorAll("button")].find((one) => one.textContent === name);
  for (let press = 0; press < 250; press++) button.click();
}
"""


@pytest.mark.parametrize(
    ("widget_class", "name", "sizes"),
    [
        (OneAnswer, "Remove the last", [1]),
        (OneAnswer, "Add a token", [200]),
        (GroupAdvantage, "Remove the last", [2]),
        (GroupAdvantage, "Add an answer", [16]),
        (GradientWeights, "Remove its last token", [1, 2, 1, 4]),
        (GradientWeights, "Add a token", [12, 2, 1, 4]),
        (GradientWeights, "Remove the last answer", [3]),
        (GradientWeights, "Add an answer", [3, 2, 1, 4, 1, 1]),
    ],
)
def test_presses_between_two_drawings_stop_at_the_limit(show, widget_class, name, sizes):
    page = show(widget_class())
    page.evaluate(PRESS, name)
    redraw(page)
    mine = state(page, widget_class)
    rows = mine.ratios if widget_class is GradientWeights else [getattr(mine, "ratios", None)]
    if widget_class is GroupAdvantage:
        rows = [mine.rewards]
    assert [len(row) for row in rows] == sizes
    assert page.get_by_role("button", name=name).is_disabled()


@pytest.mark.parametrize(("widget_class", "most"), [(OneAnswer, 100), (GradientWeights, 10)])
def test_a_bar_pulled_again_and_again_ends_where_its_slider_ends(show, widget_class, most):
    page = show(widget_class())
    for _ in range(14):
        drag(page, page.locator("svg.gspo-plot"), (0.35, 0.1), (0.35, 0.0), steps=1)
        redraw(page)
    assert page.get_by_label("ratio of token").evaluate("(node) => node.value === node.max")
    assert page.evaluate("Math.max(...widgetState.ratios.flat())") == most


def test_only_exactly_zero_is_written_as_zero(show):
    page = show(GradientWeights([[30.0, 1.0]], [1e-4], objective="sapo"))
    shown = page.locator('[data-weight="sapo"]').inner_text()
    assert re.fullmatch(r"\+\d(\.\d)?·10⁻[⁰¹²³⁴-⁹]+", shown)
    assert page.locator('[data-weight="grpo"]').inner_text() == "0"
    texts = page.locator("svg text").all_text_contents()
    assert "≈\u00a00" in texts
    page = show(RatioClip(advantage=0.001, ratio=0.9), page)
    assert fact(page, "slope") == "+0.001"
    page = show(OneAnswer([0.0004, 1.0], grpo_low=0.9999), page)
    assert "≈\u00a00" in page.locator("svg text").all_text_contents()


def test_a_closed_gate_is_not_called_a_range(show):
    page = show(GradientWeights([[10.0, 1.0]], [1], objective="sapo", sapo_pos=5))
    assert state(page, GradientWeights).weights()["sapo"][0][0] == 0
    assert "gate is closed" in page.locator(".gspo-words").inner_text()


@pytest.mark.parametrize(("ratio", "power"), [(100.0, "⁴⁰⁰"), (0.01, "⁻⁴⁰⁰"), (1e-300, "⁻⁹⁰⁰")])
def test_a_product_beyond_all_floats_is_a_power_of_ten(show, ratio, power):
    widget = OneAnswer([ratio] * (3 if ratio < 1e-9 else 200))
    page = show(widget)
    assert fact(page, "product") == f"10{power}".replace("−", "-")
    drawn = page.locator("svg").evaluate("(svg) => svg.outerHTML")
    assert "NaN" not in drawn
    assert "Infinity" not in drawn
    exponent = {"⁴⁰⁰": 400, "⁻⁴⁰⁰": -400, "⁻⁹⁰⁰": -900}[power]
    assert f"product of the ratios 10^{exponent}," in widget.words()


def test_marks_of_the_advantage_axis_are_where_they_say(show):
    page = show(GroupAdvantage([1.0, 0, 0, 0, 0, 0]))
    marks = page.locator(".gspo-tick").all_text_contents()
    assert marks == ["−2.5", "−1.25", "0", "+1.25", "+2.5"]


def test_small_rewards_keep_their_digits(show):
    page = show(GroupAdvantage([0.001, 0.002], low=0, high=0.01))
    assert fact(page, "mean") == "0.00150"
    assert fact(page, "std") == "0.00050"
    assert page.get_by_label("answer 1").get_attribute("aria-valuetext").startswith("0.0010, ")


def test_what_rounding_leaves_pushes_nobody(show):
    widget = GroupAdvantage([0.1, 0.2, 0.3])
    assert widget.advantages[1] != 0
    assert "advantages -1.22, +0.00, +1.22" in widget.words()
    page = show(widget)
    assert page.locator(".gspo-push-text").all_text_contents() == ["▼ −1.22", "0", "▲ +1.22"]
    assert fact(page, "signal") == "2 of 3"


def swipe(page, start, end):
    """One finger from (x, y) to another, in the steps in which a phone reports it."""
    phone = page.context.new_cdp_session(page)

    def send(kind, *points):
        touches = [{"x": x, "y": y} for x, y in points]
        phone.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    send("touchStart", start)
    for step in range(1, 9):
        send("touchMove", [a + (b - a) * step / 8 for a, b in zip(start, end, strict=True)])
        page.wait_for_timeout(16)
    send("touchEnd")
    page.wait_for_timeout(600)  # the page glides on


@pytest.mark.parametrize("widget_class", [k for k in WIDGETS if k is not GroupAdvantage])
def test_a_finger_scrolls_over_a_plot_or_moves_in_it(show, widget_class):
    page = show(widget_class(), width=360, has_touch=True, is_mobile=True)
    page.set_viewport_size({"width": 360, "height": 500})
    index, start, end = MOVES[widget_class]
    chart = page.locator("svg.gspo-plot").nth(index)
    chart.scroll_into_view_if_needed()
    chart.evaluate("(svg) => scrollBy(0, Math.round(svg.getBoundingClientRect().top) - 90)")
    box, scrolled = chart.bounding_box(), page.evaluate("scrollY")
    before = page.evaluate("JSON.stringify(widgetState)")
    has_bars = widget_class in (OneAnswer, GradientWeights)

    def at(x, y):
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    # Up, in a place where nothing is pulled up and down
    swipe(page, at(0.5, 0.85), at(0.5, 0.6))
    assert page.evaluate("scrollY") > scrolled
    assert page.evaluate("JSON.stringify(widgetState)") == before
    # As a hand moves it
    page.evaluate("(y) => scrollTo(0, y)", scrolled)
    swipe(page, at(*start), at(*end))
    assert abs(page.evaluate("scrollY") - scrolled) < 2
    assert page.evaluate("JSON.stringify(widgetState)") != before
    if not has_bars:
        return
    # A tap below the bars chooses a token
    page.touchscreen.tap(*at(0.35, 0.9))
    redraw(page)
    assert state(page, widget_class).token == (1 if widget_class is OneAnswer else 2)


LISTEN = """
() => {
  globalThis.said = 0;
  const all = { childList: true, characterData: true, subtree: true };
  new MutationObserver(() => said++).observe(document.querySelector("[aria-live]"), all);
}
"""


@pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)
def test_the_words_are_there_at_once_and_interrupt_nobody(show, widget_class):
    page = show(widget_class())
    said = page.locator("[aria-live]").inner_text()
    assert said
    page.evaluate(LISTEN)
    page.wait_for_timeout(700)
    assert page.evaluate("said") == 0


OVERLAPS = """
() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent);
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const over = (p, q) =>
    Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1.5 &&
    Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4;
  return texts.flatMap((text, i) =>
    texts.slice(i + 1).filter((_, k) => over(boxes[i], boxes[i + 1 + k]))
      .map((other) => `${text.textContent} | ${other.textContent}`));
})
"""


def test_no_text_of_a_plot_covers_another(show):
    page = None
    for widget in [*(kind() for kind in WIDGETS), *EXTREMES, *EDGES]:
        page = show(widget, page)
        for width in (360, 800):
            page.set_viewport_size({"width": width, "height": 900})
            redraw(page)
            assert page.evaluate(OVERLAPS) == [], widget.words()


@pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)
def test_paper_is_white_whatever_the_look(show, widget_class):
    page = show(widget_class())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    ink = "getComputedStyle(document.querySelector('.gspo-w')).color"
    dark = page.evaluate(ink)
    page.emulate_media(media="print")
    assert page.evaluate(ink) != dark


@pytest.mark.parametrize(
    ("kind", "look"),
    [
        ("vscode-dark", "dark"),
        ("vscode-high-contrast", "dark"),
        ("vscode-light", "light"),
        ("vscode-high-contrast-light", "light"),
    ],
)
def test_look_is_that_of_vs_code_and_not_of_the_system(show, kind, look):
    page = show(RatioClip(), color_scheme="light" if look == "dark" else "dark")
    scheme = "getComputedStyle(document.querySelector('.gspo-w')).colorScheme"
    assert page.evaluate(scheme) == "light dark"
    page.evaluate("(kind) => document.body.dataset.vscodeThemeKind = kind", kind)
    assert page.evaluate(scheme) == look
    # Its widgets bring JupyterLab's light colours even in a dark theme.
    page.add_style_tag(content=":root { --jp-layout-color1: white; --jp-ui-font-color1: black; }")
    ground = page.evaluate("getComputedStyle(document.querySelector('.gspo-w')).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (look == "light")


def test_high_contrast_keeps_legend_sliders_and_the_chosen_cell(show):
    page = show(GradientWeights(), forced_colors="active")
    look = "([place, what]) => getComputedStyle(document.querySelector(place))[what]"
    swatches = {
        page.evaluate(look, [f".gspo-swatch[data-tone={tone}]", "backgroundColor"])
        for tone in ("blue", "red", "green")
    }
    assert len(swatches) == 3
    assert page.evaluate(look, [".gspo-slider input", "forcedColorAdjust"]) == "none"
    assert page.evaluate(look, ["td[data-mine=true]", "outlineStyle"]) == "solid"


def test_without_scripts_the_words_are_there(open_page, tmp_path):
    widget = OneAnswer()
    (tmp_path / "page.html").write_text(to_html(widget), encoding="utf-8")
    page = open_page(java_script_enabled=False)
    page.goto((tmp_path / "page.html").as_uri())
    assert widget.words() in page.locator("body").inner_text()


SIZE = "[document.documentElement.scrollWidth, document.querySelector('.gspo-w').offsetHeight]"
# What is wider than its place: a number in its box, or a text of a plot outside the widget.
CUT = """
() => {
  const whole = document.querySelector(".gspo-w").getBoundingClientRect();
  const outside = (node) => {
    const box = node.getBoundingClientRect();
    return node.textContent && (box.left < whole.left || box.right > whole.right);
  };
  const cut = (node) => node.scrollWidth > node.clientWidth + 1;
  return [
    ...[...document.querySelectorAll("svg text")].filter(outside),
    ...[...document.querySelectorAll("dd, td, th, button, .gspo-choice span")].filter(cut),
  ].map((node) => node.textContent);
}
"""


@pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)
def test_nothing_jumps_or_overflows(show, widget_class):
    page = show(widget_class())
    index, start, end = MOVES[widget_class]
    what = "input[type=range]" if widget_class is GroupAdvantage else "svg.gspo-plot"
    target = page.locator(what).nth(index)
    for width in (360, 800, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        redraw(page)
        before = page.evaluate(SIZE)
        assert before[0] == width
        for share in (0, 0.25, 0.5, 0.75, 1):
            at = [a + (b - a) * share for a, b in zip(start, end, strict=True)]
            drag(page, target, start, at, steps=2)
            redraw(page)
            assert page.evaluate(SIZE) == before
            assert page.evaluate(CUT) == []


EXTREMES = [
    RatioClip("gspo", advantage=-1),
    RatioClip(advantage=250, ratio=3.2),
    OneAnswer([0.004]),
    OneAnswer([1.001, 0.98] * 100),
    LengthSpread(sigma=1, length=10_000),
    LengthSpread(sigma=0.001, length=10_000),
    LengthSpread(sigma=0.3, length=12, clip_low=0.2, clip_high=0.27),
    GroupAdvantage([0.1, 0.1]),
    GroupAdvantage([0.0] * 15 + [1]),
    GroupAdvantage([-5, 12, 3], low=-10, high=20, normalize=False),
    GradientWeights([[0.01]], [0]),
    GradientWeights([[1.5] * 12, [30.0] * 12, [0.5] * 12], [-3, -3, 2.5]),
    GradientWeights([[1.0]] * 6, [3, -3, 3, -3, 0, 1], objective="sapo"),
    Routes(update=4),
    Routes(update=3, replay=True, token=11),
    TrainingReplay("calm", arms=("GSPO, measured range", "no clipping"), rollout=40, seed=7),
]


# Where texts come near each other: far from the range, or at the edge of the plot.
EDGES = [
    RatioClip("gspo", ratio=3),
    RatioClip("gspo", ratio=0.9986, advantage=-1),
    RatioClip(ratio=0.3, advantage=-1),
    RatioClip(ratio=1e6),
    OneAnswer([1e-9, 1e9]),
    GradientWeights([[1e-6]], [1]),
    GroupAdvantage([1.0, 0, 0, 0, 0, 0]),
]


def test_extreme_states_fit(show):
    page = None
    for widget in EXTREMES:
        page = show(widget, page)
        for width in (360, 800):
            page.set_viewport_size({"width": width, "height": 900})
            redraw(page)
            assert page.evaluate(SIZE)[0] == width, widget.words()
            assert page.evaluate(CUT) == [], widget.words()


@pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)
def test_every_control_has_a_name_and_keeps_its_keys(show, widget_class):
    page = show(widget_class())
    controls = page.locator("input, button")
    assert controls.count() > 3
    for control in controls.all():
        assert control.get_attribute("data-lm-suppress-shortcuts") == "true"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, button')]"
        ".filter((node) => !(node.labels?.[0] ?? node).textContent.trim()).length"
    )
    assert unnamed == 0
    assert page.locator("[aria-live=polite]").count() == 1
    for plot in page.locator("svg.gspo-plot").all():
        assert plot.get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("widget_class", WIDGETS, ids=lambda c: c.__name__)
def test_axe_finds_nothing_serious(show, widget_class, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(show(widget_class(), color_scheme=scheme)).response
    assert len(found["passes"]) > 10
    assert [
        (rule["id"], rule["impact"], [node["html"][:120] for node in rule["nodes"]])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ] == []


def test_dark_and_light_differ(show):
    colour = "getComputedStyle(document.querySelector('.gspo-w')).color"
    seen = {
        scheme: show(RatioClip(), color_scheme=scheme).evaluate(colour)
        for scheme in ("light", "dark")
    }
    assert seen["light"] != seen["dark"]


FRAMES = """
(chart) => new Promise((done) => {
  const box = chart.getBoundingClientRect();
  const times = [];
  const move = (type, share) => chart.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, bubbles: true, button: 0,
    clientX: box.left + box.width * (0.2 + 0.6 * share), clientY: box.top + box.height / 3 * share,
  }));
  chart.setPointerCapture = () => {};
  chart.hasPointerCapture = () => true;
  move("pointerdown", 0);
  const step = (time) => {
    times.push(time);
    if (times.length > 60) return done(times);
    move("pointermove", 0.5 + 0.5 * Math.sin(times.length / 8));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


@pytest.mark.parametrize(
    ("widget", "index"),
    [
        (RatioClip(), 0),
        (OneAnswer([1.0] * 99 + [10.0]), 0),
        (LengthSpread(), 1),
        (GradientWeights(), 0),
        (Routes(), 0),
        (TrainingReplay(), 0),
    ],
    ids=[
        "RatioClip",
        "OneAnswer of 100 tokens",
        *[c.__name__ for c in (LengthSpread, *WIDGETS[4:])],
    ],
)
def test_frames_while_dragging(show, record_property, widget, index):
    page = show(widget)
    times = page.locator("svg.gspo-plot").nth(index).evaluate(FRAMES)
    frames = [b - a for a, b in pairwise(times)]
    median = statistics.median(frames)
    record_property("median_frame_ms", round(median, 2))
    assert median < 25  # 60 frames a second are 16.7 ms; a busy machine gets some room
