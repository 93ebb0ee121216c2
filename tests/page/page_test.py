"""What a person sees: the state, the charts, NaN, the views, and that nothing is said that is not so."""

from __future__ import annotations

import csv
import io
import re

import pytest
from browser import TABS
from mock_run import MockRun
from playwright.sync_api import expect


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_healthy_run_is_called_healthy_and_asks_nobody_else(serve, window):
    server = serve(MockRun(rate=20))
    page = window()
    for tab in TABS:
        page.open(server.address, f"/{tab}")
        page.page.wait_for_timeout(600)
        assert page.sentence == "Healthy"
    page.wait_for_link("live")
    page.check_quiet(server.address)


def test_every_chart_shows_a_line(serve, window):
    server = serve(MockRun(rate=5))
    page = window()
    page.open(server.address)
    titles = page.page.locator("figure h3").count()
    assert titles >= 12
    for i in range(titles):
        page.pixels(page.page.locator("figure").nth(i), {"--line": 100})
    page.check_quiet(server.address)


def test_new_steps_arrive_without_a_reload(serve, window):
    server = serve(MockRun(rate=30))
    page = window()
    page.open(server.address)
    page.wait_for_link("live")
    page.wait_for_steps(page.step_shown + 60)


def test_nan_is_named_first_and_marked_on_the_charts(serve, window):
    run = MockRun(bad=[(500, 560), (580, 10_000)])
    server = serve(run)
    page = window()
    page.open(server.address)
    page.wait_for_sentence(f"NaN since step 580 in the gradient of {run.culprit}")
    expect(page.page).to_have_title(re.compile("NaN"))
    healthy = window()
    healthy.open(serve(MockRun()).address)
    for title in ("Loss", "Gradient norm", "Weight norm"):
        page.pixels(page.chart(title), {"--bad-paper": 1000, "--bad": 100})
        calm = healthy.pixels(healthy.chart(title), {"--line": 100})
        assert calm.get(page.colour("--bad"), 0) == 0, title
    expect(page.chart("Loss")).to_contain_text("not finite in steps 501–560 and 1 other stretch")
    # Where something else was not finite, a strip says so.
    page.pixels(page.chart("Learning rate"), {"--line": 100, "--bad": 20})


def test_a_line_never_crosses_what_is_not_finite(serve, window):
    server = serve(MockRun(bad=[(200, 400)]))
    page = window()
    page.open(server.address)
    expect(page.chart("Loss")).to_contain_text("not finite in steps 201–400")
    page.pixels(page.chart("Loss"), {"--line": 100, "--bad-paper": 1000})
    # The column in the middle of the bad stretch holds band and hatch, and nothing of the line's blue.
    blue = page.chart("Loss").locator("canvas").evaluate("""(canvas) => {
      const u = canvas.getContext("2d");
      const box = canvas.getBoundingClientRect(), px = canvas.width / box.width;
      const left = 62 * px, right = canvas.width - 18 * px;
      const x = Math.round(left + (300 / 600) * (right - left));
      const { data } = u.getImageData(x, 0, 1, canvas.height);
      let blue = 0;
      for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] > 128 && data[i + 2] > data[i] + 60) ++blue;
      return blue;
    }""")
    assert blue == 0


def test_at_a_step_that_is_not_finite_the_value_reads_nan(serve, window):
    server = serve(MockRun(bad=[(500, 10_000)]))
    page = window()
    page.open(server.address)
    value = page.chart("Loss").locator("b")
    expect(value).to_have_text("NaN")
    slider = page.cursor("Loss")
    page.page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^step 1, "))
    expect(value).to_have_text(re.compile(r"^\d"))


def test_a_run_that_was_never_finite_is_shown_all_the_same(serve, window):
    server = serve(MockRun(step=300, bad=[(1, 1000)]))
    page = window()
    for tab in TABS:
        page.open(server.address, f"/{tab}")
        page.page.wait_for_timeout(400)
        assert page.sentence.startswith("NaN since step 1")
    page.check_quiet(server.address)


def test_an_empty_run_says_so_in_every_view(serve, window):
    server = serve(MockRun(is_empty=True, has_syncs=False))
    page = window()
    words = {"overview": "No step has been seen yet", "layers": "No layers are being watched",
             "parameters": "No parameters are being watched", "incidents": "None since the start",
             "syncs": "Host syncs are not counted", "configuration": "0 parameters"}
    for tab, said in words.items():
        page.open(server.address, f"/{tab}")
        page.page.get_by_text(said).first.wait_for()
    page.wait_for_sentence("Starting: no step has been seen yet")
    page.check_quiet(server.address)


def test_a_recording_is_called_one_and_is_not_asked_again(serve, window):
    server = serve(MockRun(recording="run.gvr", state="failed", reason="RuntimeError: no more data"))
    page = window()
    page.open(server.address)
    page.wait_for_link("recording")
    page.wait_for_sentence("Failed after step 600: RuntimeError: no more data")
    expect(page.page.locator("header")).to_contain_text("This is a recording: run.gvr")
    asked = len(server.requests)
    page.page.wait_for_timeout(4000)
    assert len(server.requests) == asked
    assert not any("/events" in each for each in server.requests)
    page.check_quiet(server.address)


def test_many_ranks_are_listed_with_a_way_to_each(serve, window):
    server = serve(MockRun(world_size=128))
    page = window()
    page.open(server.address, "/ranks")
    page.page.locator("tbody tr").nth(63).wait_for()
    expect(page.page.locator("tbody tr")).to_have_count(64)
    expect(page.page.locator("tbody a").first).to_have_attribute("href", "http://127.0.0.1:9469/")  # it has failed
    expect(page.page.locator("tbody a").nth(1)).to_have_attribute("href", "http://127.0.0.1:9465/")
    expect(page.page.locator("main")).to_contain_text("64 of 128 have no endpoint here")


def test_an_incident_shows_its_order_and_leads_to_its_steps(serve, window):
    run = MockRun(bad=[(300, 360)])
    server = serve(run)
    page = window()
    page.open(server.address, "/incidents")
    expect(page.page.locator(".order li")).to_have_text([re.compile(f"^step {step}:") for step in (300, 301, 301)])
    page.page.get_by_text("Show these steps on the charts").click()
    page.page.wait_for_url(re.compile(r"#/overview\?from=240&to=420$"))
    expect(page.chart("Loss")).to_contain_text("not finite in steps 301–360")


def test_open_incidents_come_first(serve, window):
    server = serve(MockRun(bad=[(300, 10_000)], spikes=(410, 420, 430)))
    page = window()
    page.open(server.address)
    latest = page.page.locator(".latest-incidents li a")
    expect(latest).to_have_text(["Non-finite gradient", "Loss spike", "Loss spike"])
    page.open(server.address, "/incidents")
    expect(page.page.locator(".card h3 .badge")).to_have_text(["open", "over", "over", "over"])
    steps = [row["first_step"] for row in rows_of(page.download("Export CSV"))]
    assert steps == ["300", "430", "420", "410"]


def test_host_syncs_are_listed_by_place(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address, "/syncs")
    places = page.page.locator(".site summary")
    expect(places).to_have_count(2)
    expect(places.first).to_contain_text("train.py:88")
    expect(places.first).to_contain_text("10 % of the time; 1,200 calls, 2 per step; "
                                         "waited for a value read from the device")
    expect(places.last).to_contain_text("the whole device")


def test_nothing_that_a_run_names_becomes_markup(serve, window):
    evil = "<img src=x onerror=alert(1)>"
    run = MockRun(name=evil, bad=[(580, 10_000)], state="failed", reason=evil)
    run.param_names = lambda: [(evil, evil)]  # type: ignore[method-assign]
    server = serve(run)
    page = window()
    for tab in TABS:
        page.open(server.address, f"/{tab}")
        page.page.wait_for_timeout(400)
        assert evil in page.sentence
        expect(page.page.locator("img")).to_have_count(0)
    page.check_quiet(server.address)


def test_other_incidents_are_marked_where_they_opened(serve, window):
    server = serve(MockRun(spikes=(450,)))
    page = window()
    page.open(server.address)
    page.pixels(page.chart("Learning rate"), {"--warn": 50})
    page.open(server.address, "/overview?from=440&to=450")
    page.cursor("Loss")
    page.page.keyboard.press("End")
    expect(page.chart("Loss").locator(".at")).to_have_text("step 450 · Loss spike")


def test_a_link_shows_what_its_sender_saw(serve, window):
    server = serve(MockRun(bad=[(300, 360)]))
    page = window()
    places = ["/overview?from=250&to=400&log=1", "/layers?range=500&value=update_ratio",
              "/layers?rows=params&group=layers.3&param=layers.3.mlp.in.weight",
              "/parameters?search=layers.1&sort=grad_norm&order=asc", "/incidents?incident=1"]
    for place in places:
        page.open(server.address, place)
        expect(page.page.locator("main")).not_to_contain_text("Loading")
        page.page.wait_for_timeout(700)
        seen = page.page.locator("main").inner_text()
        other = window()
        other.open(server.address, page.place)
        expect(other.page.locator("main")).to_have_text(seen, use_inner_text=True)
        assert page.place == place


def test_of_several_optimizers_each_has_its_own_charts(serve, window):
    server = serve(MockRun(rate=10, optimizers=("Adam", "SGD", "Adam"), leading=1))
    page = window()
    page.open(server.address)
    choice = page.page.get_by_label("Steps of")
    loss, tile = page.chart("Loss").locator("b"), page.page.locator(".tile", has_text="Loss").locator("dd").first
    expect(choice.locator("option:checked")).to_have_text("the one that leads (optimizer 1: SGD)")
    for value in (loss, tile):
        expect(value).to_have_text(re.compile(r"^10\d"))
    choice.select_option("2")
    for value in (loss, tile):
        expect(value).to_have_text(re.compile(r"^20\d"))
    page.page.wait_for_url(re.compile(r"#/overview\?optimizer=2$"))
    page.wait_for_link("live")
    page.wait_for_steps(page.step_shown + 20)
    losses = [float(row["loss"]) for row in rows_of(page.download("Export CSV"))]
    assert len(losses) > 600 and min(losses) > 190
    page.page.get_by_role("link", name="Layers").click()
    page.page.get_by_role("link", name="Overview").click()
    expect(choice).to_have_value("2")
    page.page.go_back()
    page.page.go_back()
    page.page.go_back()
    expect(choice).to_have_value("")
    expect(loss).to_have_text(re.compile(r"^10\d"))
    alone = window()
    alone.open(serve(MockRun()).address)
    expect(alone.page.get_by_label("Steps of")).to_have_count(0)
    page.check_quiet(server.address)


def test_back_and_forward_walk_through_views(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address)
    page.page.get_by_role("link", name="Layers").click()
    page.page.get_by_role("button", name="Last 500").click()
    page.page.wait_for_url(re.compile(r"#/layers\?range=500$"))
    page.page.go_back()
    page.page.wait_for_url(re.compile("#/layers$"))
    page.page.go_back()
    page.chart("Loss").wait_for()
    page.page.go_forward()
    page.page.locator(".heat-rows canvas").wait_for()


def test_dragging_zooms_all_charts_and_escape_goes_back(serve, window):
    server = serve(MockRun())
    page = window()
    page.open(server.address)
    box = page.chart("Loss").locator(".u-over").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
    page.page.mouse.up()
    page.page.get_by_role("button", name="Reset zoom").wait_for()
    page.page.wait_for_function("""() => {
      const start = Number(document.querySelectorAll("input[type=number]")[0].value);
      return 140 <= start && start <= 160;
    }""")
    page.page.keyboard.press("Escape")
    page.page.wait_for_function("() => !location.hash.includes('from')")


def test_what_is_exported_is_what_is_seen(serve, window):
    run = MockRun(bad=[(300, 320)])
    server = serve(run)
    page = window()
    page.open(server.address, "/overview?from=290&to=330")
    rows = rows_of(page.download("Export CSV"))
    assert [int(row["last_step"]) for row in rows] == list(range(290, 331))
    for row in rows:
        step = int(row["last_step"])
        loss = run.series(step)["loss"]
        assert row["loss"] == "" if loss is None else float(row["loss"]) == pytest.approx(loss)
        assert row["nonfinite_grad_steps"] == str(int(300 <= step <= 320))

    page.open(server.address, "/parameters?search=layers.1.&sort=name")
    rows = rows_of(page.download("Export CSV"))
    assert [row["name"] for row in rows] == sorted(name for name, _ in run.param_names() if "layers.1." in name)

    page.open(server.address, "/layers?from=300&to=302")
    page.page.locator(".heat-rows canvas").wait_for()
    rows = rows_of(page.download("Export CSV"))
    assert len(rows) == 3 * len(run.groups)
    assert sum(int(row["nonfinite_steps"]) for row in rows) == 3


def test_a_long_run_is_shown_with_its_lows_and_highs(serve, window):
    server = serve(MockRun(step=200_000, bad=[(60_000, 60_000)]))
    page = window()
    page.open(server.address)
    expect(page.page.locator(".bar").first).to_contain_text("256 steps a point")
    expect(page.chart("Gradient norm")).to_contain_text("not finite within steps")
    page.pixels(page.chart("Gradient norm"), {"--bad": 20})
    page.page.get_by_role("button", name="Last 500").click()
    page.page.get_by_text("every step").wait_for()


def test_without_javascript_the_plain_page_stays(serve, window):
    server = serve(MockRun())
    page = window(scripts=False)
    page.page.goto(server.address)
    expect(page.page.locator("#plain")).to_contain_text("Healthy")
