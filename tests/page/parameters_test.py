"""Ten thousand parameters."""

from __future__ import annotations

import pytest
from mock_run import MockRun
from playwright.sync_api import expect


@pytest.fixture
def many(serve, window):
    server = serve(MockRun(layers=100, params_per_layer=100, step=3000, bad=[(900, 910)]))
    page = window()
    page.open(server.address, "/parameters?sort=index")
    page.page.locator("tbody a").first.wait_for()
    return page


def test_all_of_them_scroll_without_a_long_frame(many):
    expect(many.page.locator("table")).to_have_attribute("aria-rowcount", "10003")
    assert many.longest_task_of(many.scroll_table_through) < 100
    last = many.page.locator("tbody tr:not(.spacer)").last
    last.get_by_text("head.weight").wait_for()
    expect(last).to_have_attribute("aria-rowindex", "10003")
    assert many.page.locator("tbody tr").count() < 100


def test_a_search_finds_one_of_them_without_a_long_frame(many):
    def search() -> None:
        field = many.page.get_by_role("searchbox")
        field.fill("")
        many.page.get_by_text("10,002 parameters").wait_for()
        field.press_sequentially("layers.42.experts.7.", delay=15)
        many.page.get_by_text("1 of 10,002 parameters", exact=True).wait_for()

    assert many.longest_task_of(search) < 100
    expect(many.page.locator("tbody a")).to_have_text(["layers.42.experts.7.weight"])


def test_what_is_typed_while_the_search_begins_stays(many):
    """Keys come one by one, about as far apart as the page waits before it searches."""
    field = many.page.get_by_role("searchbox")
    for pause in range(245, 290, 10):
        field.fill("")
        field.press_sequentially("layer", delay=pause)
        many.page.wait_for_timeout(300)
        expect(field).to_have_value("layer")


def test_a_long_task_would_be_seen(many):
    """The control. Time of the processor counts, so it is a number of calculations and not a time."""
    def calculate() -> None:
        many.page.evaluate("() => { let sum = 0; for (let i = 0; i < 2e8; ++i) sum += Math.sqrt(i); return sum; }")

    assert 100 < many.longest_task_of(calculate, below=float("inf")) < float("inf")


def test_a_click_on_a_header_sorts_and_says_so(many):
    head = many.page.get_by_role("columnheader", name="grad norm")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    many.page.wait_for_function("""() => {
      const cells = [...document.querySelectorAll("tbody td:nth-child(5)")].map((cell) => cell.innerText);
      const values = cells.filter(Boolean).map((text) => Number(text.replace("−", "-")));
      return values.length > 10 && values.every((value, i) => i === 0 || values[i - 1] <= value);
    }""")


def test_a_parameter_that_was_bad_comes_first_and_opens(many):
    many.page.get_by_role("button", name="Worst first").click()
    first = many.page.locator("tbody a").first
    expect(first).to_have_text("layers.3.attn.qkv.weight")
    first.click()
    many.page.locator(".param-panel figure").first.wait_for()
    expect(many.page.locator(".param-panel")).to_contain_text(
        "first in step 900: NaN in the gradient, element [192, 0]")


def test_a_tensor_without_a_finite_element_has_no_norm(serve, window):
    server = serve(MockRun(bad=[(500, 10_000)]))
    page = window()
    page.open(server.address, "/parameters")
    row = page.page.locator("tbody tr").first
    row.get_by_text("nonfinite").wait_for()
    for column in range(3, 8):
        expect(row.locator("td").nth(column)).to_have_text("NaN")


def test_a_heat_map_of_ten_thousand_rows_stays_quick(many):
    def look() -> None:
        many.page.evaluate("() => { location.hash = '#/layers?rows=params'; }")
        many.page.locator(".heat-rows canvas").wait_for()
        many.page.wait_for_timeout(800)
        many.page.evaluate("() => { location.hash = '#/parameters'; }")

    assert many.longest_task_of(look, below=200) < 200
