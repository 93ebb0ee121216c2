"""What pages of other sites get from the endpoint, in a browser: nothing. People who follow a link get the page."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

BUILD = Path(os.environ.get("GRADVANE_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "release"))
# Tries in every way that a page has; says for each whether something was read.
TRY = """
async (url) => {
  const seen = {};
  const asked = async (name, ask) => {
    try { seen[name] = await ask(); } catch (error) { seen[name] = "nothing"; }
  };
  await asked("cors", async () => (await fetch(url + "/metrics")).text());
  await asked("no-cors", async () => (await fetch(url + "/metrics", { mode: "no-cors" })).type);
  const element = (tag, key) => () => new Promise((resolve, reject) => {
    const made = document.createElement(tag);
    made.onload = () => resolve("loaded");
    made.onerror = reject;
    made[key] = url + (tag === "img" ? "/icon.svg" : "/page.js");
    document.body.append(made);
  });
  await asked("image", element("img", "src"));
  await asked("script", element("script", "src"));
  await asked("events", () => new Promise((resolve, reject) => {
    const source = new EventSource(url + "/api/v1/events");
    source.onopen = () => resolve("open");
    source.onerror = () => { source.close(); reject(); };
  }));
  return seen;
}
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    program = subprocess.Popen([BUILD / "bin" / "fake_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin and program.stdout
    yield program.stdout.readline().strip()
    program.stdin.close()
    program.wait(timeout=30)


class Site(http.server.SimpleHTTPRequestHandler):
    """Another program's server on this machine, which looks at no host name."""

    def do_GET(self) -> None:
        url = self.path.partition("?")[2]
        body = f"<!doctype html><title>other</title><a href='{url}/'>the run</a>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def other_port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def refusals(endpoint: str, code: int) -> int:
    with urllib.request.urlopen(endpoint + "/metrics", timeout=10) as answer:
        found = re.search(rf'http_requests_total{{.*code="{code}"}} (\d+)', answer.read().decode())
    return int(found[1]) if found else 0


# The first is another site to 127.0.0.1, the second the same site with another port.
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_of_another_site_reads_nothing(window, endpoint, other_port, host):
    page = window().page
    page.goto(f"http://{host}:{other_port}/?{endpoint}")
    before = refusals(endpoint, 403)
    assert set(page.evaluate(TRY, endpoint).values()) == {"nothing"}
    assert refusals(endpoint, 403) >= before + 3, "the server refused, not the browser alone"


def test_the_same_tries_succeed_from_the_page_itself(window, endpoint):
    page = window().page
    page.goto(endpoint)
    seen = page.evaluate(TRY, endpoint)
    assert "gradvane_steps_total" in seen.pop("cors")
    assert seen == {"no-cors": "basic", "image": "loaded", "script": "loaded", "events": "open"}


def test_a_link_of_another_site_opens_the_page_and_leaves_no_hold_on_it(window, endpoint, other_port):
    driver = window()
    driver.page.goto(f"http://localhost:{other_port}/?{endpoint}")
    driver.page.get_by_text("the run").click()
    expect(driver.page).to_have_title(re.compile("fake-gpt"))
    assert driver.page.evaluate("window.opener") is None
    assert not driver.errors


def test_a_name_that_its_owner_points_here_reads_nothing(window, endpoint, other_port):
    name = "http://rebind.attacker.example"
    page = window().page
    # The browser does resolve it to this machine: a server that looks at no name answers.
    assert page.goto(f"{name}:{other_port}/").status == 200
    port = endpoint.rpartition(":")[2]
    assert page.goto(f"{name}:{port}/").status == 421
    expect(page.locator("body")).to_contain_text("allowed_hosts")
    said = page.evaluate("async () => { const a = await fetch('/api/v1/status'); return [a.status, await a.text()]; }")
    assert said[0] == 421 and "fake-gpt" not in said[1]


def test_localhost_and_the_address_both_show_the_page(window, endpoint):
    for address in (endpoint, endpoint.replace("127.0.0.1", "localhost")):
        driver = window()
        driver.page.goto(address)
        expect(driver.page).to_have_title(re.compile("fake-gpt"))
        assert not driver.errors
