"""How the page keeps up: restarts, refusals, ends, and hours of a fast run."""

from __future__ import annotations

import re

import pytest
from mock_run import START, MockRun
from playwright.sync_api import expect


def test_after_a_restart_it_shows_the_new_run(serve, window):
    server = serve(MockRun(rate=20, step=600))
    page = window()
    page.open(server.address)
    page.wait_for_link("live")
    server.stop()
    page.wait_for_link("lost")
    expect(page.page.locator("header")).to_contain_text("No answer since")
    assert page.step_shown >= 600
    server.restart(MockRun(rate=20, step=30, started=START + 500, pid=5555))
    page.wait_for_steps_below(600)
    page.wait_for_link("live")


def test_a_restart_between_two_looks_is_noticed(serve, window):
    server = serve(MockRun(step=600, rate=5))
    page = window()
    page.open(server.address)
    page.wait_for_link("live")
    server.restart(MockRun(step=40, rate=5, started=START + 500, pid=5555))
    page.wait_for_steps_below(600)


@pytest.mark.parametrize("refuses", [False, True])
def test_when_another_optimizer_leads_the_run_the_page_goes_on_with_it(serve, window, refuses):
    run = MockRun(rate=20, optimizers=("Adam", "Adam"))
    server = serve(run)
    server.refuses_events = refuses
    page = window()
    page.open(server.address)
    loss = page.chart("Loss").locator("b")
    expect(loss).to_have_text(re.compile(r"^\d\.\d"))
    run.leading = 1
    expect(loss).to_have_text(re.compile(r"^10\d"))
    page.wait_for_steps(page.step_shown + 40)


def test_where_events_are_refused_it_polls(serve, window):
    run = MockRun(rate=20)
    server = serve(run)
    server.refuses_events = True
    page = window()
    page.open(server.address)
    page.wait_for_link("polling")
    page.wait_for_steps(page.step_shown + 60)
    # A browser reports the refusal itself; nothing else may have gone wrong.
    assert all("503" in error for error in page.errors)


def test_when_the_process_has_ended_what_was_seen_stays(serve, window):
    run = MockRun(step=600)
    server = serve(run)
    page = window()
    page.open(server.address)
    page.wait_for_link("live")
    run.state = "finished"
    page.wait_for_sentence("Finished after step 600")
    server.stop()
    page.wait_for_link("ended")
    expect(page.page.locator("header")).to_contain_text("The process has ended; this is the last that was seen.")
    page.pixels(page.chart("Loss"), {"--line": 100})


def test_a_page_that_nobody_looks_at_gives_its_stream_back(serve, window):
    run = MockRun(step=600, rate=20)
    server = serve(run)
    page = window()
    page.open(server.address)
    page.wait_for_link("live")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.page.evaluate(hide, True)
    page.page.wait_for_timeout(1000)
    before = page.step_shown
    page.page.wait_for_timeout(1500)
    assert page.step_shown == before
    page.page.evaluate(hide, False)
    page.wait_for_steps(before + 40)
    page.wait_for_link("live")


def test_steps_that_nobody_recorded_break_the_line(serve, window):
    run = MockRun(step=600)
    server = serve(run)
    page = window()
    page.open(server.address)
    whole = run.history

    def with_a_hole(*question: object) -> dict:
        answer = whole(*question)  # type: ignore[arg-type]
        keep = [i for i, step in enumerate(answer["last"]) if not 200 <= step <= 400]
        pick = lambda values: [values[i] for i in keep]  # noqa: E731
        for key in ("first", "last", "time", "skipped"):
            answer[key] = pick(answer[key])
        answer["series"] = {name: {part: pick(values) for part, values in track.items()}
                            for name, track in answer["series"].items()}
        answer["nonfinite"] = {site: pick(values) for site, values in answer["nonfinite"].items()}
        return answer

    run.history = with_a_hole  # type: ignore[method-assign]
    page.open(server.address)
    page.cursor("Loss")
    page.page.keyboard.press("Home")
    for _ in range(10):
        page.page.keyboard.press("PageUp")
    # 199 steps, then the gap.
    page.page.keyboard.press("ArrowLeft")
    expect(page.chart("Loss").locator("b")).to_have_text("not recorded")


def test_hours_of_a_fast_run_keep_the_memory_bounded(serve, window):
    # 4,000 steps per second is as much as 40 seconds of a fast run in each.
    server = serve(MockRun(rate=4000, step=30_000))
    page = window()
    page.open(server.address)
    page.page.wait_for_timeout(9_000)
    sizes, nodes = [page.heap_bytes()], [page.live_nodes()]
    for _ in range(3):
        page.page.wait_for_timeout(5_000)
        sizes.append(page.heap_bytes())
        nodes.append(page.live_nodes())
    print("heap in MB:", [round(size / 1e6, 1) for size in sizes], "elements:", nodes)
    assert page.step_shown > 60_000
    assert min(sizes[-2:]) < sizes[0] + 4_000_000
    assert nodes[-1] <= nodes[0] + 50
