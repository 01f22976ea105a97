"""The report in a real Chromium: every control does what it says, nothing is asked of anyone, everyone can read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from smidgen.fitting import fit
from tests.support.browser import DESK, FAINT, MISSED, PHONE, SORTED, WIDER, browsing, chromium, visiting
from tests.support.once import Once
from tests.support.shapes import draw_shapes
from tests.support.small_network import small_network

pytestmark = pytest.mark.skipif(chromium() is None, reason="NO CHROMIUM HERE: apt install chromium to try the report")
LARGEST = 2_000_000  # bytes
LEAST_CONTRAST = 4.5  # of text, by WCAG's level AA
SIZES = {"desk": DESK, "phone": PHONE, "small phone": (320, 640)}
NAME = "<script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def report(once: Once) -> Path:
    """The report of a small fit, of a model whose name would like to be a script."""
    return once("report", write_report)


def write_report(folder: Path) -> Path:
    folder = folder / "out"
    fit(small_network(NAME), draw_shapes(12, 6), folder, budget="48KB", epochs=2, command="smidgen fit small.smg")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def open_all(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def test_a_report_is_one_small_file_that_asks_nothing_of_anyone_and_has_nothing_to_complain_of(
    report: Path, browser: Browser
) -> None:
    assert report.stat().st_size < LARGEST
    with visiting(browser, report) as visit:
        visit.page.evaluate("() => document.querySelectorAll('summary').forEach((one) => one.click())")
        assert visit.page.locator("details:not([open])").count() == 0
        visit.page.evaluate("() => document.querySelectorAll('button, a').forEach((one) => one.click())")
        assert [url for url in visit.asked if not url.startswith("data:")] == [report.as_uri()]
        assert visit.complaints == []
        assert NAME in visit.page.title()


@pytest.mark.slow
def test_a_page_refuses_scripts_that_are_not_its_own(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        added = (
            "() => { const s = document.createElement('script'); s.text = 'window.ran = 1'; document.body.append(s); }"
        )
        visit.page.evaluate(added)
        assert visit.page.evaluate("() => window.ran") is None
        assert any("Content Security Policy" in one for one in visit.complaints)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_follows_the_system_until_its_button_says_otherwise(
    report: Path, browser: Browser, dark: bool
) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    with visiting(browser, report, dark=not dark) as visit:
        other = visit.page.evaluate(ground)
    with visiting(browser, report, dark=dark) as visit:
        own, button = visit.page.evaluate(ground), visit.page.locator("#theme")
        assert own != other
        assert button.get_attribute("aria-label") == ("Use light colours" if dark else "Use dark colours")
        button.click()
        assert visit.page.evaluate(ground) == other
        assert button.get_attribute("aria-label") == ("Use dark colours" if dark else "Use light colours")
        button.click()
        assert visit.page.evaluate(ground) == own


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_no_window_is_too_narrow(report: Path, browser: Browser, size: str) -> None:
    with visiting(browser, report, SIZES[size]) as visit:
        open_all(visit.page)
        root = "document.documentElement"
        assert visit.page.evaluate(f"() => {root}.scrollWidth <= {root}.clientWidth")
        assert visit.page.evaluate(WIDER) == []
        shown = "wide" if size == "desk" else "slim"
        assert visit.page.locator(f".plot.{shown}:visible").count() == visit.page.locator(".chart").count() >= 4
        letters = "() => Array.from(document.querySelectorAll('.plot svg')).filter((s) => s.clientWidth)"
        scales = visit.page.evaluate(f"{letters}.map((s) => s.clientWidth / s.viewBox.baseVal.width)")
        assert min(scales) > 0.6  # letters of figures stay about as large as they are meant


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(report: Path, browser: Browser, dark: bool, size: str) -> None:
    with visiting(browser, report, SIZES[size], dark) as visit:
        open_all(visit.page)
        seen, faint = visit.page.evaluate(FAINT, LEAST_CONTRAST)
        assert seen > 300
        assert faint == []


@pytest.mark.slow
def test_a_screen_reader_misses_nothing(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        open_all(visit.page)
        assert visit.page.evaluate(MISSED) == []


@pytest.mark.slow
def test_every_control_is_reached_by_tab_in_the_order_of_the_page_and_shows_it(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        page = visit.page
        wanted = page.evaluate("""() => Array.from(document.querySelectorAll("a, button, summary, [tabindex='0']"))
            .filter((one) => one.checkVisibility()).map((one, i) => { one.dataset.stop = i; return i; })""")
        reached, unseen = [], []
        for _ in wanted:
            page.keyboard.press("Tab")
            stop, outline = page.evaluate("""() => [Number(document.activeElement.dataset.stop),
                parseFloat(getComputedStyle(document.activeElement).outlineWidth)]""")
            reached.append(stop)
            unseen += [stop] if outline < 2 else []
        assert reached == wanted
        assert unseen == []


def marks(page: Page, chart: int) -> list[str]:
    """What the marks of a chart tell, on one line each, in their order."""
    told = page.locator(".chart").nth(chart).locator(".plot:visible title").all_text_contents()
    return [one.replace("\n", " · ") for one in told]


@pytest.mark.slow
def test_arrow_keys_tell_every_mark_of_a_figure(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        for place in range(visit.page.locator(".chart").count()):
            chart, told = visit.page.locator(".chart").nth(place), marks(visit.page, place)
            readout = chart.locator(".readout")
            hint = readout.text_content()
            chart.locator(".plot:visible").focus()
            heard = []
            for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "End", "ArrowDown", "Home"):
                visit.page.keyboard.press(key)
                heard.append(readout.text_content())
            assert heard == [told[0], told[1], told[0], told[0], told[-1], told[-1], told[0]]
            assert chart.locator(".at").count() == 1
            visit.page.keyboard.press("Escape")
            assert readout.text_content() == hint != told[0]
            assert chart.locator(".at").count() == 0


@pytest.mark.slow
def test_a_finger_or_a_pointer_tells_a_mark(report: Path, browser: Browser) -> None:
    with visiting(browser, report, PHONE, has_touch=True, is_mobile=True) as visit:
        chart = visit.page.locator(".chart").nth(1)
        chart.locator(".plot:visible circle").first.tap()
        assert chart.locator(".readout").text_content() == marks(visit.page, 1)[0]
    with visiting(browser, report) as visit:
        chart = visit.page.locator(".chart").nth(1)
        chart.locator(".plot:visible circle").nth(1).hover()
        assert chart.locator(".readout").text_content() == marks(visit.page, 1)[1]


@pytest.mark.slow
def test_tables_sort_by_every_column_numbers_by_value(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        columns = visit.page.evaluate(SORTED)
        assert len(columns) > 30
        for turns in columns:
            assert sorted(told for (told,), _, _ in turns) == ["ascending", "descending"]
            for (told,), numbers, same_rows in turns:
                assert numbers == sorted(numbers, reverse=told == "descending")
                assert same_rows


@pytest.mark.slow
def test_without_scripts_everything_is_there_to_read(report: Path, browser: Browser) -> None:
    with visiting(browser, report, java_script_enabled=False) as visit:
        assert visit.page.locator("#theme:visible").count() == 0
        assert visit.page.locator(".plot.wide:visible").count() == visit.page.locator(".chart").count()
        for summary in visit.page.locator("summary").all():
            summary.click()
        assert visit.page.locator("table:visible").count() == visit.page.locator("table").count()
        assert visit.page.locator(".readout:visible").count() == 0


@pytest.mark.slow
def test_pictures_of_the_test_are_shown_before_and_after(report: Path, browser: Browser) -> None:
    with visiting(browser, report) as visit:
        pictures = visit.page.locator(".gallery img")
        assert pictures.count() == 12
        assert visit.page.evaluate("() => Array.from(document.images).every((one) => one.complete && one.naturalWidth)")
        assert visit.page.locator(".gallery dd").count() == 24


@pytest.mark.slow
def test_nothing_moves_for_those_who_ask_for_that(report: Path, browser: Browser) -> None:
    behaviour = "() => getComputedStyle(document.documentElement).scrollBehavior"
    for asked, moves in (("no-preference", "smooth"), ("reduce", "auto")):
        with visiting(browser, report, reduced_motion=asked) as visit:
            assert visit.page.evaluate(behaviour) == moves
