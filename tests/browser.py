"""A real browser for tests: Debian's chromium, driven by Selenium."""

import contextlib
import json
import os
import shutil

import pytest


def refuse(why):
    """Skip; or fail, where somebody has promised a browser (as CI does)."""
    if os.environ.get("IRSPPL_NEEDS_BROWSER"):
        pytest.fail(f"no browser: {why}")
    pytest.skip(f"no browser: {why}")


@contextlib.contextmanager
def chromium():
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ModuleNotFoundError:
        refuse("pip install selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        refuse("apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options, Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def resize(browser, width, height=800):
    """A screen of so many CSS pixels; windows themselves cannot be as narrow as a phone."""
    told = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", told)


def sideways(browser):
    """Pixels by which the page is wider than the screen."""
    return browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def complaints(browser):
    """What the console says."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requested(browser):
    """Addresses that were asked for since the last look, but for data within the page."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return [url for url in found if not url.startswith(("data:", "chrome", "about:"))]


def whole_page(browser, path):
    """A screenshot of all of it."""
    tall = browser.execute_script("return document.documentElement.scrollHeight")
    wide = browser.execute_script("return document.documentElement.clientWidth")
    resize(browser, wide, tall)
    browser.save_screenshot(str(path))
