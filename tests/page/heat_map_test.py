"""The heat map: seen, pointed at, walked through."""

from __future__ import annotations

import re

from mock_run import MockRun
from playwright.sync_api import expect


def test_layers_are_coloured_and_nan_stands_out(serve, window):
    server = serve(MockRun(bad=[(300, 360)]))
    page = window()
    page.open(server.address, "/layers")
    rows = page.page.locator(".heat-rows")
    rows.wait_for()
    assert len(page.pixels(rows, {"--bad": 300})) > 40
    page.check_quiet(server.address)


def test_the_keyboard_walks_from_cell_to_cell_and_opens_a_row(serve, window):
    server = serve(MockRun(bad=[(300, 360)]))
    page = window()
    page.open(server.address, "/layers")
    page.page.get_by_role("application").focus()
    press = page.page.keyboard.press
    for _ in range(5):
        press("ArrowDown")
    told = page.page.locator("#heat-cell")
    expect(told).to_contain_text("layers.3, step 600: ")
    press("Home")
    expect(told).to_contain_text("layers.3, step 1: ")
    press("Enter")
    page.page.wait_for_url(re.compile("rows=params&group=layers.3$"))
    page.page.get_by_role("application", name=re.compile("^4 rows")).focus()
    press("ArrowDown")
    expect(told).to_contain_text("layers.3.attn.qkv.weight")
    press("Enter")
    page.page.locator(".param-panel figure").first.wait_for()
    assert "param=layers.3.attn.qkv.weight" in page.place
    expect(page.page.locator(".param-panel")).to_contain_text("in 61 steps, first in step 300")


def test_pointing_at_a_cell_tells_its_value(serve, window):
    server = serve(MockRun(bad=[(300, 360)]))
    page = window()
    page.open(server.address, "/layers")
    box = page.page.locator(".heat-rows canvas").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 10)
    expect(page.page.locator("#heat-cell")).to_contain_text("embed, step ")


def test_dragging_zooms_and_the_rows_stay(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address, "/layers")
    box = page.page.locator(".heat-rows canvas").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=5)
    page.page.mouse.up()
    page.page.get_by_role("button", name="Reset zoom").wait_for()
    assert "rows=params" not in page.place


def test_values_that_are_zero_are_not_taken_for_small_ones(serve, window):
    run = MockRun()
    living = run.cell
    run.cell = lambda value, row, step: 0.0 if row == 4 else living(value, row, step)  # type: ignore[method-assign]
    server = serve(run)
    page = window()
    page.open(server.address, "/layers")
    rows = page.page.locator(".heat-rows")
    rows.wait_for()
    page.pixels(rows, {"--zero": 3000})
