"""Drives the page in Chromium and looks at it as a person would. It knows nothing of who serves the page."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

# The shell has no windows of its own: a page takes a third of the processor time that it takes in the whole browser.
CHROMIUM = (os.environ.get("GRADVANE_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
            or "/usr/bin/chromium")
# Machines that run tests run several at once.
expect.set_options(timeout=60_000)

TABS = ("overview", "layers", "parameters", "incidents", "syncs", "ranks", "configuration")

PIXELS = """
(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = {};
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] < 128) continue;
    const key = [data[i], data[i + 1], data[i + 2]].map((part) => part >> 4).join(",");
    counts[key] = (counts[key] || 0) + 1;
  }
  return counts;
}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--host-resolver-rules=MAP *.attacker.example 127.0.0.1"])
        yield browser
        browser.close()


def tasks_in(trace: dict[str, Any]) -> list[float]:
    """Processor time in ms of each task on the main thread of a page, as Chromium traces it."""
    events = trace["traceEvents"]
    main = {(event["pid"], event["tid"]) for event in events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"}
    return [event["tdur"] / 1000 for event in events
            if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in main and "tdur" in event]


class PageDriver:
    """One page in a window of its own, with everything that went wrong in it."""

    def __init__(self, browser: Browser, *, width: int = 1280, height: int = 900, theme: str = "light",
                 scripts: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme,  # type: ignore[arg-type]
            java_script_enabled=scripts, accept_downloads=True)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def close(self) -> None:
        self.context.close()

    def open(self, address: str, place: str = "") -> None:
        """`place`: what stands after the # of the address. Back when the first answers are there."""
        self.page.goto("about:blank")
        self.page.goto(f"{address}/{place and '#' + place}")
        self.page.wait_for_selector("nav a")
        self.page.wait_for_selector("[data-link]:not([data-link=connecting])")
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    # What it says

    @property
    def sentence(self) -> str:
        return self.page.locator("h1").inner_text()

    @property
    def link(self) -> str:
        return self.page.locator("[data-link]").get_attribute("data-link") or ""

    @property
    def place(self) -> str:
        return self.page.url.partition("#")[2]

    @property
    def step_shown(self) -> int:
        """The last step of the window that is shown."""
        return int(self.page.locator("input[type=number]").nth(1).input_value())

    def wait_for_steps(self, steps: int, seconds: float = 60) -> None:
        self._wait_for_step_shown(f">= {steps}", seconds)

    def wait_for_steps_below(self, steps: int, seconds: float = 60) -> None:
        self._wait_for_step_shown(f"< {steps}", seconds)

    def _wait_for_step_shown(self, holds: str, seconds: float) -> None:
        self.page.wait_for_function(
            f"() => Number(document.querySelectorAll('input[type=number]')[1]?.value) {holds}", timeout=seconds * 1000)

    def wait_for_link(self, link: str, seconds: float = 60) -> None:
        self.page.wait_for_selector(f"[data-link={link}]", timeout=seconds * 1000)

    def wait_for_sentence(self, words: str, seconds: float = 60) -> None:
        self.page.get_by_role("heading", level=1).filter(has_text=words).wait_for(timeout=seconds * 1000)

    def chart(self, title: str):
        """The figure with that title."""
        heading = self.page.get_by_role("heading", level=3, name=title)
        return self.page.locator("figure", has=heading).first

    def cursor(self, title: str):
        """The figure's plot, where arrow keys move the cursor, once there is something to move over."""
        expect(self.chart(title).locator("b").first).not_to_be_empty()
        slider = self.chart(title).get_by_role("slider")
        slider.focus()
        return slider

    def pixels(self, holder, least: dict[str, int]) -> dict[str, int]:
        """Pixels of the canvas in there by colour, four bits a part; those that are clear are left out. Waits until
        there are more than so many of each colour of the style sheet."""
        # What is out of sight is not painted.
        holder.scroll_into_view_if_needed()
        canvas = holder.locator("canvas").first
        canvas.wait_for()
        wanted = {self.colour(name): count for name, count in least.items()}
        until = time.monotonic() + 60
        while True:
            self.page.wait_for_timeout(200)
            found = canvas.evaluate(PIXELS)
            if all(found.get(colour, 0) > count for colour, count in wanted.items()):
                return found
            assert time.monotonic() < until, f"{holder.inner_text()}: wanted {wanted}, found {found}"

    def colour(self, name: str) -> str:
        """A colour of the style sheet, as pixels() names it."""
        value = self.page.evaluate(
            "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)
        return ",".join(str(int(value[i:i + 2], 16) >> 4) for i in (1, 3, 5))

    def animation_clock(self) -> Callable[[float], object]:
        """Sets how fast the clock of animations goes: 0 stops it, on the pages that come too; 1 is as usual."""
        session = self.context.new_cdp_session(self.page)
        session.send("Animation.enable")
        return lambda rate: session.send("Animation.setPlaybackRate", {"playbackRate": rate})

    # How quick it is

    def longest_task_of(self, act: Callable[[], None], below: float = 100) -> float:
        """The longest task of the page's main thread while that is done, in ms of processor time: what else the machine
        does counts little. The best of some tries. Infinite if there was no trace of the whole of it within a minute."""
        best = float("inf")
        until = time.monotonic() + 60
        while best >= below and time.monotonic() < until:
            browser = self.context.browser
            assert browser is not None
            browser.start_tracing(page=self.page, categories=["toplevel", "__metadata", "blink.user_timing"])
            self.page.evaluate("() => { performance.mark('traced'); }")
            act()
            trace = json.loads(browser.stop_tracing())
            if not any(event["name"] == "traced" for event in trace["traceEvents"]):
                continue  # the page's process heard too late that it is traced
            best = min(best, max(tasks_in(trace)))
            print(f"longest task {best:.0f} ms")
        return best

    def scroll_table_through(self) -> None:
        """From the first row to the last, a frame at a time."""
        self.page.evaluate("""async () => {
          const box = document.querySelector(".table-scroll");
          for (let i = 0; i <= 60; ++i) {
            box.scrollTop = (box.scrollHeight - box.clientHeight) * i / 60;
            await new Promise(requestAnimationFrame);
          }
        }""")
        self.page.wait_for_timeout(500)

    def heap_bytes(self) -> int:
        """What is in use after everything that can go is gone. The least of a few looks: in some of them an answer
        is being read, or a chart painted."""
        session = self.context.new_cdp_session(self.page)
        session.send("HeapProfiler.enable")
        looks = []
        for _ in range(5):
            session.send("HeapProfiler.collectGarbage")
            looks.append(int(session.send("Runtime.getHeapUsage")["usedSize"]))
            self.page.wait_for_timeout(300)
        session.detach()
        return min(looks)

    def live_nodes(self) -> int:
        return int(self.page.evaluate("() => document.getElementsByTagName('*').length"))

    # Rules that hold for all of it

    def check_quiet(self, address: str) -> None:
        """Nothing went wrong, and nobody else was asked."""
        assert self.errors == [], self.errors
        strangers = [url for url in self.requests
                     if not url.startswith((address + "/", "about:", "data:", f"blob:{address}"))]
        assert strangers == [], strangers

    def check_accessible(self, axe: Path) -> None:
        self.page.evaluate(axe.read_text(encoding="utf-8") + "\n;null")
        found: dict[str, Any] = self.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        told = [f"{each['id']}: {each['help']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
                for each in found["violations"] for node in each["nodes"]]
        assert told == [], "\n".join(told)

    def download(self, button: str) -> str:
        with self.page.expect_download() as coming:
            self.page.get_by_role("button", name=button).first.click()
        return Path(coming.value.path()).read_text(encoding="utf-8")
