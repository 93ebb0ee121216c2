"""What five viewers cost: step time and scrape time with and without them, in turns, in one run.

A viewer does what the page does: it follows the events, and asks for the run, the heat map and the parameters every
2.5 seconds. Viewers are a process of their own, of low priority: in life they are on another machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

from watched_run import watched_run

POLLED = ("/api/v1/history", "/api/v1/heatmap", "/api/v1/params?limit=200", "/api/v1/syncs")


def follow(url):
    with urllib.request.urlopen(url + "/api/v1/events", timeout=60) as stream:
        for _ in stream:
            pass


def poll(url):
    while True:
        for path in POLLED:
            urllib.request.urlopen(urllib.request.Request(url + path, headers={"Accept-Encoding": "gzip"}),
                                   timeout=30).read()
        time.sleep(2.5)


def view(url, viewers):
    os.nice(10)
    threads = [threading.Thread(target=what, args=[url], daemon=True) for _ in range(viewers) for what in (follow, poll)]
    for thread in threads:
        thread.start()
    sys.stdin.read()


def window(run, seconds):
    begin = time.time()
    scrapes = []
    while time.time() - begin < seconds:
        scrapes.append(run.ask("/metrics")[1])
        time.sleep(0.5)
    return {"step": statistics.median(run.step_seconds(begin, time.time())), "scrape": statistics.median(scrapes),
            "slowest_scrape": max(scrapes)}


def measure(rounds, seconds, viewers):
    with watched_run() as run:
        time.sleep(20)  # a history to send
        without, beside = [], []
        for _ in range(rounds):
            without.append(window(run, seconds))
            others = subprocess.Popen([sys.executable, __file__, "--view", run.url, "--viewers", str(viewers)],
                                      stdin=subprocess.PIPE)
            time.sleep(3)
            beside.append(window(run, seconds))
            others.stdin.close()
            others.wait()
        status = json.loads(run.ask("/api/v1/status")[0])
    ratios = {key: [b[key] / a[key] for a, b in zip(without, beside)] for key in ("step", "scrape")}
    return {"viewers": viewers, "rounds": rounds, "seconds_each": seconds, "steps": status["steps"],
            "step_seconds": statistics.median(w["step"] for w in without),
            "step_ratio": statistics.median(ratios["step"]), "step_ratios": ratios["step"],
            "scrape_seconds": statistics.median(w["scrape"] for w in without),
            "scrape_ratio": statistics.median(ratios["scrape"]), "scrape_ratios": ratios["scrape"],
            "slowest_scrape_without": max(w["slowest_scrape"] for w in without),
            "slowest_scrape_beside": max(w["slowest_scrape"] for w in beside)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--viewers", type=int, default=5)
    parser.add_argument("--view", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.view:
        view(arguments.view, arguments.viewers)
    else:
        print(json.dumps(measure(arguments.rounds, arguments.seconds, arguments.viewers)))
