"""The documentation site: built strictly, complete, searchable, and alone."""

import re
import shutil
import subprocess
import sys

import pytest

import irsppl

from . import browser as drive
from .test_docs import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    where = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(where)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    yield where
    shutil.rmtree(where)


def test_every_public_name_is_in_the_reference(site):
    anchors = set(re.findall(r'id="irsppl\.([\w.]+)"', (site / "api" / "index.html").read_text()))
    homes = {f"{irsppl._HOME[name]}.{name}" for name in irsppl.__all__}
    assert homes <= anchors, homes - anchors


def test_nothing_is_loaded_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source)[^>]+src=\"?([^\s\">]+)", page.read_text()
        )
        for link in re.findall(r"<link[^>]+>", page.read_text()):
            if "canonical" not in link:
                loaded += re.findall(r"href=\"?([^\s\">]+)", link)
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], page


# A page that a search for the word must offer.
FOUND = {"delay": "delays/", "certificate": "glossary/", "particles": "representations/"}


def found(browser):
    """Addresses that the search offers now."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.md-search-result__item a')].map(link => link.href)"
    )


def test_in_a_browser(site):
    """A phone shows pages without scrolling sideways; searches find; no complaints."""
    import functools
    import http.server
    import threading
    import time

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    try:
        with drive.chromium() as browser:
            for page in ("", "tour/", "tutorials/first-bandit/", "api/"):
                for width in (1200, 380):
                    drive.resize(browser, width)
                    browser.get(home + page)
                    assert drive.sideways(browser) == 0, (page, width)
            drive.resize(browser, 1200)
            browser.get(home)
            box = browser.find_element("css selector", "input[data-md-component=search-query]")
            browser.execute_script("arguments[0].focus()", box)
            for word, page in FOUND.items():
                box.clear()
                box.send_keys(word)
                end = time.monotonic() + 60
                while not any(home + page in url for url in found(browser)):
                    assert time.monotonic() < end, f"{word} finds {found(browser)}"
                    time.sleep(0.2)
            assert drive.complaints(browser) == []
            assert all(url.startswith(home) for url in drive.requested(browser))
    finally:
        server.shutdown()
