"""The page and the report of an experiment in a real browser."""

import itertools
import threading
import time

import numpy as np
import pytest

import irsppl
from irsppl import _html

from . import browser as drive

T = 20
LABELS = ["plain", "photo", "a banner with quite a long name that no phone shows in one line"]


@pytest.fixture(scope="module")
def browser():
    with drive.chromium() as made:
        yield made


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    belief = irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5])
    bandit = irsppl.Bandit(belief, T, labels=LABELS)
    where = tmp_path_factory.mktemp("shop") / "shop.db"
    with irsppl.Experiment.create(where, bandit, "ts", seed=1, floor=0.05) as made:
        made.advise(100)
        for decision in made.ask(8)[:6]:
            made.tell(decision.id, decision.period % 2)
        made.advice = made.advise(100)
        yield made


@pytest.fixture(scope="module")
def address(experiment):
    """The page, served by a thread of this process."""
    uvicorn = pytest.importorskip("uvicorn")
    serve = pytest.importorskip("irsppl.live.serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve.Adviser, "look", lambda self, status: experiment.advice)
        config = uvicorn.Config(serve.make_app(experiment), port=0, log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def report(experiment, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    experiment.report(path, 100)
    return path.as_uri()


def text_of(browser, name):
    return browser.find_element("id", f"live-{name}").text


def shows(browser, experiment):
    """The numbers of the experiment are on the page."""
    status = experiment.status()
    facts = text_of(browser, "facts")
    assert f"{status['period']} of {T}" in facts
    assert f"reward so far\n{status['reward']:g}" in facts
    assert f"pending\n{status['pending']}" in facts
    rows = browser.find_elements("css selector", "#live-arms tbody tr")
    for row, arm, told in zip(rows, status["arms"], experiment.believed(), strict=True):
        for number in (f"{arm['mean']:.4g}", f"{told.best:.1%}", str(arm["pulls"])):
            assert number in row.text
    assert "costs at most" in text_of(browser, "advice")
    assert "was played with probability" in text_of(browser, "decisions")


def test_the_page_shows_the_experiment_and_what_is_told(browser, experiment, address):
    drive.requested(browser), drive.complaints(browser)
    drive.resize(browser, 1200)
    browser.get(address)
    shows(browser, experiment)
    # Somebody reads a table and has opened the numbers of a picture: an update leaves both alone.
    browser.find_element("css selector", "summary").click()
    browser.execute_script("document.getElementById('live-arms').focus()")
    before = experiment.status()["reward"]
    experiment.tell(experiment.pending[0], 1)
    end = time.monotonic() + 30
    while f"reward so far\n{before + 1:g}" not in text_of(browser, "facts"):
        assert time.monotonic() < end, "the page was not renewed"
        time.sleep(0.2)
    shows(browser, experiment)
    assert browser.switch_to.active_element.get_attribute("id") == "live-arms"
    assert browser.find_element("css selector", "details").get_attribute("open")
    assert drive.complaints(browser) == []
    assert {url for url in drive.requested(browser)} == {address}


def test_the_report_stands_alone(browser, experiment, report):
    browser.get("about:blank")  # a page that renews itself may still be open
    drive.requested(browser), drive.complaints(browser)
    browser.get(report)
    shows_facts = text_of(browser, "facts")
    assert f"{experiment.status()['period']} of {T}" in shows_facts
    assert browser.find_elements("css selector", "svg.chart polyline")
    assert drive.complaints(browser) == [] and drive.requested(browser) == [report]


@pytest.mark.parametrize("which", ["address", "report"])
def test_on_a_phone_and_by_keyboard(browser, request, which):
    """No sideways scrolling at 380 pixels; every part that scrolls or opens is reached by Tab."""
    from selenium.webdriver.common.keys import Keys

    drive.resize(browser, 380)
    browser.get(request.getfixturevalue(which))
    assert drive.sideways(browser) == 0
    for summary in browser.find_elements("css selector", "summary"):
        summary.click()
    assert drive.sideways(browser) == 0
    small = browser.execute_script(
        "return [...document.querySelectorAll('p, td, th, dd, dt, svg.chart text')].filter(e => {"
        " const scale = e.ownerSVGElement"
        "   ? e.ownerSVGElement.clientWidth / e.ownerSVGElement.viewBox.baseVal.width : 1;"
        " return scale * parseFloat(getComputedStyle(e).fontSize) < 10}).map(e => e.textContent)"
    )
    assert small == []
    wanted = browser.execute_script(
        "return [...document.querySelectorAll('summary, .scroll')].length"
    )
    reached = set()
    body = browser.find_element("css selector", "body")
    body.click()
    for _ in range(wanted + 3):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.switch_to.active_element
        if element.tag_name == "summary" or "scroll" in (element.get_attribute("class") or ""):
            reached.add(element.id)
    assert len(reached) == wanted


def test_whoever_cannot_see_is_told(browser, address):
    """Landmarks, one first heading, names for every picture and region, a table beside each."""
    browser.get(address)

    def count(query):
        return len(browser.find_elements("css selector", query))

    assert count("html[lang]") == count("h1") == count("main") == count("header") == 1
    assert count("section") == count("section[aria-labelledby]") == count("h2")
    assert count("svg") == count("svg[role=img][aria-label]") + count("svg[aria-hidden=true]")
    assert count("[role=region]") == count("[role=region][aria-label]")
    assert count("table") == count("table caption") and count("tbody tr") == count(
        "tbody th[scope=row]"
    )
    ids = [e.get_attribute("id") for e in browser.find_elements("css selector", "[id]")]
    assert len(ids) == len(set(ids))


# ------------------------------------------------------------------ colours


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one, two):
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


# Viénot, Brettel and Mollon (1999), on linear RGB: what red-blind and green-blind eyes see.
SEEN = {
    "red-blind": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "green-blind": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def test_colours_can_be_told_apart():
    """Text 4.5:1 and lines 3:1 against the ground (WCAG 2); no two colours look alike to the
    red-blind or the green-blind, and 30 lines differ in colour or dash."""
    grounds = {"#ffffff": _html.LIGHT, "#14171a": _html.DARK}
    for ground, colours in grounds.items():
        assert all(contrast(colour, ground) >= 3 for colour in colours), ground
        for name, matrix in SEEN.items():
            seen = [np.clip(np.array(matrix) @ linear(c), 0, 1) ** (1 / 2.2) for c in colours]
            for one, two in itertools.combinations(seen, 2):
                assert np.abs(one - two).max() > 0.15, (ground, name)
    styles = {(i % len(_html.LIGHT), i % len(_html.DASHES)) for i in range(30)}
    assert len(styles) == 30
    for ink, ground in (("#1a1a1a", "#ffffff"), ("#595959", "#f3f5f7"), ("#b4b4b4", "#1f2428")):
        assert ink in _html.STYLE and contrast(ink, ground) >= 4.5


def test_report_of_a_study_on_a_desktop_and_on_a_phone(browser, tmp_path):
    import numpyro.distributions as dist

    from irsppl.studies import Study
    from irsppl.studies.page import page
    from irsppl.studies.report import figure_files, narrow_figure

    from .test_plots import studied

    options = {"labels": LABELS, "delay": dist.Geometric(0.25)}
    study = Study(
        "made-up",
        "Arms",
        irsppl.BetaBernoulli([3, 1, 1], [1, 1, 3]),
        20,
        **{
            "policies": ("ts", "irs.index"),
            "penalties": ("irs.ff",),
            "options": options,
            "replications": 200,
        },
    )
    data = studied().assign_attrs(replications=200, table_horizon=200, key=0)
    cells = ["policy, bound", "**0.767 (0.086)**", "-314.9%", "0.525 (0.015)", "68.5%", "542 us"]
    heads = ["", "role", "regret (s.e.)", "improvement", "regret bound (s.e.)", "share", "time"]
    rows = [[name, *cells] for name in ("irs.v-zero-separable", "ts")]
    drawn = figure_files(data)["png"], narrow_figure(data)
    path = tmp_path / "report.html"
    path.write_text(page(study, data, "told", heads, rows, "", *drawn))

    seen = {}
    for width in (1200, 380):
        drive.resize(browser, width)
        browser.get(path.as_uri())
        assert drive.sideways(browser) == 0, width
        picture = browser.find_element("css selector", "figure img")
        shown, source = browser.execute_script(
            "return [arguments[0].clientWidth, arguments[0].currentSrc]", picture
        )
        seen[width] = source
        assert shown <= width
        table = browser.find_element("css selector", ".scroll")
        hidden = browser.execute_script(
            "return arguments[0].scrollWidth - arguments[0].clientWidth", table
        )
        assert width < 600 or hidden == 0
    assert seen[1200] != seen[380], "a phone has a picture of its own"
    words = browser.find_element("tag name", "dl").text
    assert "BetaBernoulli of 3 arms: alpha 3, 1, 1 | beta 1, 1, 3 (plain, photo, a banner" in words
    assert "delay GeometricProbs(probs 0.25)" in words and '["' not in words
    assert drive.complaints(browser) == []
