"""The static site from disk: read, searched, moved and checked in Chromium."""

import re
import sys
from pathlib import Path

import pytest

for needed in ("anywidget", "jinja2", "latex2mathml", "mdit_py_plugins", "pygments"):
    pytest.importorskip(needed)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

from course_site import pages  # noqa: E402

from gspo_edu.widgets import LengthSpread, OneAnswer  # noqa: E402

pytestmark = pytest.mark.browser
SHOWN = [
    "index.html",
    "lessons/05_gspo.html",
    "glossary.html",
    "widgets/index.html",
    "widgets/one_answer.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    assert pages.Site(folder, ["05", "06"]).build() == []
    return folder


@pytest.fixture
def visit(open_page, site):
    """visit(page, width=...) → that page of the site, offline; nothing may be asked of the net."""
    asked, said = [], []

    def go(name, **options):
        page = open_page(offline=True, **options)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto((site / name).as_uri())
        return page

    yield go
    assert said == []
    assert [address for address in asked if not re.match("file:|data:", address)] == []


def state(place, widget_class):
    """A Python widget with the settings that the place on the page has now."""
    settings = place.evaluate("(place) => place.widgetState")
    settings.pop("presets", None)
    return widget_class(**settings)


def test_from_the_map_to_a_lesson_whose_widgets_follow_the_keyboard(visit):
    page = visit("index.html")
    page.get_by_role("link", name="05 GSPO").click()
    page.wait_for_selector(".gspo-w")
    answer, spread = page.locator(".widget").all()
    assert state(answer, OneAnswer).ratios == [3.0] + [1.0] * 9

    answer.get_by_label("ratio of token 1", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    moved = state(answer, OneAnswer)
    assert moved.ratios[0] < 3
    mean = f"{moved.geometric_mean:.6f}"
    page.wait_for_function(f"document.querySelector('[data-fact=mean]').textContent === '{mean}'")

    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    spread.get_by_label("σ: std").focus()
    page.keyboard.press("ArrowRight")
    assert state(spread, LengthSpread).sigma > 0.05


def test_an_outcome_shows_after_a_prediction_and_is_kept(visit):
    page = visit("lessons/05_gspo.html")
    question = page.locator(".question").first
    verdict = page.locator(".outcome .verdict").first
    assert not verdict.is_visible()
    question.get_by_role("button").click()
    assert question.get_by_role("status").inner_text() == "Choose one."
    assert not verdict.is_visible()
    question.get_by_role("radio").nth(1).focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    assert verdict.is_visible()
    assert "1.044009" in verdict.inner_text()
    assert verdict.locator(".mine").inner_text().startswith("Not b: 1.05")
    page.reload()
    assert page.locator(".outcome .verdict").first.is_visible()

    number = page.locator(".question").nth(2)
    number.get_by_label("A number").fill("three")
    number.get_by_role("button").click()
    assert number.get_by_role("status").inner_text() == "Give a number, such as 0.25."
    for given in ("", "1/3", "50 %", "0x10", "Infinity", "1e400", "1.2.3"):
        number.get_by_label("A number").fill(given)
        page.keyboard.press("Enter")
        assert number.get_by_role("status").inner_text() == "Give a number, such as 0.25.", given
    number.get_by_label("A number").fill("1,044")
    page.keyboard.press("Enter")
    assert number.get_by_role("status").inner_text().startswith("Write 1044 or 1.044")
    assert not page.locator(".outcome").nth(2).locator(".verdict").is_visible()
    for given, read in (("–0,5", "-0.5"), ("− 3e-4", "-3e-4"), ("1 000", "1000")):
        number.get_by_label("A number").fill(given)
        page.keyboard.press("Enter")
        assert number.get_by_role("status").inner_text() == f"You predicted: {read}"
    number.get_by_label("A number").fill("3")
    page.keyboard.press("Enter")
    assert page.locator(".outcome").nth(2).locator(".mine").inner_text().startswith("Not 3:")


def test_without_a_prediction_the_outcome_opens_by_hand(visit):
    page = visit("lessons/05_gspo.html")
    outcome = page.locator(".outcome").first
    outcome.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert outcome.locator(".verdict").is_visible()


def test_search_by_keyboard(visit):
    page = visit("glossary.html")
    page.keyboard.press("/")
    page.keyboard.type("why the root")
    first = page.locator(".results a").first
    first.wait_for()
    assert "7 · Why the root?" in first.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/05_gspo.html#7-why-the-root")
    page.keyboard.press("/")
    page.keyboard.type("xyzzy")
    page.get_by_text("Nothing found").wait_for()
    page.keyboard.press("Escape")
    assert not page.locator(".results").is_visible()


def test_a_link_into_a_hidden_place_opens_it(visit):
    page = visit("lessons/06_who_gets_the_gradient.html")
    place = page.locator(".outcome h2").first
    anchor = place.get_attribute("id")
    assert not place.is_visible()
    page.locator(f'.side a[href="#{anchor}"]').evaluate("(link) => link.click()")
    place.wait_for(state="visible")


def test_the_look_can_be_chosen_and_is_kept(visit):
    page = visit("lessons/05_gspo.html", color_scheme="light")
    ground = "getComputedStyle(document.querySelector('{}')).backgroundColor"
    before = [page.evaluate(ground.format(place)) for place in ("body", ".gspo-w")]
    page.get_by_role("button", name="Dark").click()
    after = [page.evaluate(ground.format(place)) for place in ("body", ".gspo-w")]
    assert all(old != new for old, new in zip(before, after, strict=True))
    page.reload()
    assert page.evaluate(ground.format("body")) == after[0]


def test_search_shows_whole_words_and_formulas_without_tex(visit):
    page = visit("lessons/05_gspo.html")
    page.locator("#search").fill("geometric mean")
    page.locator(".results a").first.wait_for()
    texts = [f" {text} " for *_, text in page.evaluate("searchIndex")]
    for shown in page.locator(".results a span").all_text_contents():
        assert "\\" not in shown
        assert len(shown) < 150
        assert any(f" {shown.strip('… ')} " in text for text in texts)


def test_paper_is_white_whatever_the_look_and_code_is_whole(visit):
    page = visit("lessons/05_gspo.html", color_scheme="light", width=700)
    ink = "getComputedStyle(document.body).color"
    light = page.evaluate(ink)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ink) != light
    page.emulate_media(media="print")
    assert page.evaluate(ink) == light
    cut = "[...document.querySelectorAll('pre')].filter((n) => n.scrollWidth > n.clientWidth + 1)"
    assert page.evaluate(f"{cut}.length") == 0


def test_tables_of_widgets_have_no_lines_of_the_page(visit):
    page = visit("widgets/one_answer.html")
    widths = page.locator(".gspo-w :is(th, td)").evaluate_all(
        "(cells) => cells.map((cell) => getComputedStyle(cell).borderBottomWidth)"
    )
    assert set(widths) == {"0px"}


def test_a_projected_widget_is_large_and_its_plot_follows_the_pointer(visit):
    page = visit("widgets/one_answer.html", width=1600)
    box = page.locator(".gspo-w").bounding_box()
    assert box["width"] > 1300
    bars = page.locator("svg.gspo-plot").bounding_box()
    page.mouse.click(bars["x"] + 0.9 * bars["width"], bars["y"] + 0.1 * bars["height"])
    moved = state(page.locator(".widget"), OneAnswer)
    assert moved.token == 4
    assert moved.ratios[3] > 1.27


@pytest.mark.parametrize("width", [360, 900, 1200, 1600])
def test_no_page_is_wider_than_the_screen(visit, site, width):
    page = visit("index.html", width=width)
    wide = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        content, screen = page.evaluate(wide)
        assert content <= screen, path.name


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SHOWN)
def test_axe_finds_nothing_serious(visit, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(name, color_scheme=scheme)
    found = axe.run(page, options={"preload": False}).response  # it would fetch the styles
    serious = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
    told = [(rule["id"], [node["target"] for node in rule["nodes"]][:3]) for rule in serious]
    assert told == []
