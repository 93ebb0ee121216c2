"""The page, open in Chromium for as long as one likes beside a run of 100 steps a second: does anything grow?

Prints a JSON object a minute: the browser's heap after a collection, its nodes and listeners, the resident memory of
the training process, and the steps so far.
"""

import argparse
import json
import time

from playwright.sync_api import sync_playwright
from watched_run import watched_run


def sample(session, run):
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")
    counters = session.send("Memory.getDOMCounters")
    status = json.loads(run.ask("/api/v1/status")[0])
    return {"steps": status["steps"], "heap_mib": round(heap["usedSize"] / 2**20, 2), "nodes": counters["nodes"],
            "listeners": counters["jsEventListeners"], "training_rss_mib": round(run.resident_mib(), 1)}


def watch(minutes, tab):
    complaints = []
    with watched_run() as run, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(run.url + "/" + tab)
        session = page.context.new_cdp_session(page)
        begin = time.monotonic()
        for minute in range(minutes + 1):
            page.wait_for_timeout(max(0.0, begin + 60 * minute - time.monotonic()) * 1000 + (5000 if minute == 0 else 0))
            print(json.dumps({"minute": minute, **sample(session, run), "complaints": complaints}), flush=True)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--tab", default="", help="for example #/layers")
    arguments = parser.parse_args()
    watch(arguments.minutes, arguments.tab)
