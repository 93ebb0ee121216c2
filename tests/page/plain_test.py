"""The plain page of the agent's endpoint, with scripts off or failed: what the script shows, in the same words."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

BUILD = Path(os.environ.get("GRADVANE_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "release"))
TILES = ["Loss", "Gradient norm", "Learning rate", "Steps/s", "NaN and infinity", "Update / weight"]


@pytest.fixture
def endpoint() -> Iterator[Callable[..., str]]:
    """Starts the agent's endpoint over a synthetic run; the address."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: object) -> str:
        started.append(subprocess.Popen([BUILD / "bin" / "fake_server", *map(str, options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1].stdout.readline().strip()

    yield start
    for program in started:
        program.stdin.close()
        program.wait(timeout=30)


def tiles_of(page) -> list[list[str]]:
    """Label, value and note of the first six."""
    return page.evaluate("""() => [...document.querySelectorAll("main .tile")].slice(0, 6)
        .map((tile) => [...tile.children].map((part) => part.textContent))""")


def state_of(page) -> list[str]:
    """The sentence, the step and when it ended, without how long ago."""
    sentence, facts = page.locator("h1").inner_text(), page.locator("header .facts").inner_text()
    return [sentence, facts.split(" · ")[0], facts.split(" · ")[-1].split(",")[0]]


def incidents_of(page) -> list[str]:
    lines = page.locator(".incidents li").all_inner_texts()
    return [re.sub(r"\s+", " ", line) for line in lines]


@pytest.mark.parametrize("options", [[], ["--poison", 60], ["--poison", 120], ["--poison", 60, "--state", "failed"],
                                     ["--state", "finished"], ["--state", "stalled"], ["--steps", 20_000]],
                         ids=lambda options: " ".join(map(str, options)) or "healthy")
def test_state_tiles_and_incidents_are_those_of_the_script(endpoint, window, options):
    address = endpoint(*options)
    plain, whole = window(scripts=False), window()
    plain.page.goto(address)
    whole.open(address)
    expect(whole.page.locator("main .tile").first).to_be_visible()
    assert [tile[0] for tile in tiles_of(plain.page)] == TILES
    assert tiles_of(plain.page) == tiles_of(whole.page)
    assert state_of(plain.page) == state_of(whole.page)
    assert incidents_of(plain.page) == incidents_of(whole.page)
    assert ("--poison" in options) == (len(incidents_of(plain.page)) == 1)
    assert plain.page.title() == whole.page.title()
    plain.check_quiet(address)


def test_with_scripts_off_it_has_six_tiles_and_one_sentence_on_what_is_missing(endpoint, window):
    address = endpoint("--poison", 60)
    page = window(scripts=False).page
    page.goto(address)
    expect(page.locator(".tile")).to_have_count(6)
    expect(page.locator("table, svg, figure")).to_have_count(0)
    expect(page.locator(".about-script")).to_be_visible()
    expect(page.locator(".about-script")).to_have_text(re.compile(r"^Charts, .* need JavaScript[^.]*\.$"))
    links = {link.get_attribute("href") for link in page.locator("footer a").all()}
    assert {"metrics", "api/v1/status"} <= links
    for link in links:
        assert page.request.get(f"{address}/{link}").ok


def test_names_of_a_run_are_text(endpoint, window):
    page = window(scripts=False).page
    page.goto(endpoint("--state", "failed"))
    expect(page.locator("h1")).to_have_text("Failed after step 120: out of <memory>")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_when_the_script_fails_it_stays_and_is_accessible(endpoint, window, axe, theme, width):
    address = endpoint("--poison", 60)
    driver = window(theme=theme, width=width)
    driver.page.route("**/page.js", lambda route: route.abort())
    driver.page.goto(address)
    expect(driver.page.locator(".about-script")).to_be_visible()
    driver.check_accessible(axe)
    assert driver.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_while_the_script_loads_nothing_is_called_failed(endpoint, window):
    address = endpoint()
    driver = window()
    page = driver.page
    held = []
    page.route("**/page.js", lambda route: held.append(route))
    clock = driver.animation_clock()
    clock(0)  # however long the machine takes
    page.goto(address, wait_until="commit")
    expect(page.locator("h1")).to_have_text("Healthy")
    expect(page.locator(".about-script")).to_be_hidden()
    clock(1)
    expect(page.locator(".about-script")).to_be_visible()
    held[0].continue_()
    page.wait_for_selector("nav a")
    expect(page.locator(".about-script")).to_have_count(0)
