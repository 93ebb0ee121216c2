"""For everyone: by keyboard, by screen reader, on a phone, in the dark."""

from __future__ import annotations

import re

import pytest
from browser import TABS
from mock_run import MockRun
from playwright.sync_api import expect

PLACES = [*(f"/{tab}" for tab in TABS), "/layers?rows=params&group=layers.3&param=layers.3.mlp.in.weight",
          "/parameters?param=layers.3.attn.qkv.weight"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(serve, window, axe, theme):
    server = serve(MockRun(bad=[(300, 320), (580, 10_000)]))
    page = window(theme=theme)
    for place in PLACES:
        page.open(server.address, place)
        page.page.wait_for_timeout(700)
        page.check_accessible(axe)


def test_axe_finds_nothing_in_a_run_without_steps_or_syncs(serve, window, axe):
    server = serve(MockRun(is_empty=True, has_syncs=False))
    page = window()
    for tab in TABS:
        page.open(server.address, f"/{tab}")
        page.page.wait_for_timeout(400)
        page.check_accessible(axe)


@pytest.mark.parametrize("place", PLACES)
def test_on_a_phone_nothing_sticks_out_sideways(serve, window, place):
    server = serve(MockRun(bad=[(580, 10_000)], world_size=8))
    page = window(width=390, height=844)
    page.open(server.address, place)
    page.page.wait_for_timeout(600)
    wide = page.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390


def test_the_tab_key_reaches_everything_in_order(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address)
    seen = []
    for _ in range(40):
        page.page.keyboard.press("Tab")
        seen.append(page.page.evaluate("""() => {
          const { activeElement: now } = document;
          return now.getAttribute("aria-label") || now.innerText || now.value || now.type || now.tagName;
        }"""))
    wanted = ["Skip to the content", "Colours", "Overview", "Configuration", "Last 100", "Whole run",
              "Export CSV", "Loss by step", "Gradient norm by step"]
    places = [next(i for i, name in enumerate(seen) if name.startswith(each)) for each in wanted]
    assert places == sorted(places)


def test_charts_can_be_read_and_zoomed_by_keyboard(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address)
    slider = page.cursor("Loss")
    page.page.keyboard.press("End")
    page.page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^step 599, loss "))
    expect(page.chart("Gradient norm").locator(".at")).to_have_text("step 599")
    page.page.keyboard.press("+")
    page.page.wait_for_function("() => location.hash.includes('from=')")


def test_the_chosen_colours_stay_chosen(serve, window):
    server = serve(MockRun())
    page = window(theme="light")
    page.open(server.address)
    light = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.page.get_by_label("Colours").select_option("dark")
    dark = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.open(server.address)
    expect(page.page.locator("body")).to_have_css("background-color", dark)
    page.pixels(page.chart("Loss"), {"--line": 100})
