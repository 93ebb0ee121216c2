"""gradvane status and gradvane top: names are shown as they are, no terminal obeys them, and only the agent is asked."""

import contextlib
import http.server
import io
import subprocess
import sys
import threading

import pytest
import running
import torch
from rich.console import Console

from gradvane._errors import described, text_of
from gradvane.cli import agent_api
from gradvane.cli.terminal import view

ESCAPES = "\x1b[2J\x1b]0;title\x07 \x9b2J \x9d0;x\x9c \u202etxt.exe \u2066x \u200b \x7f \x08"
NAMES = ["a[/x]", "layers[/a]", "blocks[attn]", "[bold red]x[/]", "[link=http://x]y", r"back\[slash]", ":smile: 100 %"]


def shown(status: dict, params: dict) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False, force_terminal=True, color_system=None).print(view(status, params))
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_names_with_brackets_are_shown_as_they_are(name):
    first = {"kind": "nan", "site": "grad", "param": name, "element": 3, "run_step": 7}
    text = shown({"run": name, "state": "failed", "reason": f"ValueError: {name}", "nonfinite": {"first": first}},
                 {"params": [{"name": name, "state": "finite", "grad": {"norm": 1.0, "abs_max": "nan"}}]})
    assert text.count(name) == 4


def test_no_control_character_reaches_the_terminal():
    text = shown({"run": ESCAPES, "state": ESCAPES, "reason": ESCAPES, "latest": {"loss": ESCAPES},
                  "nonfinite": {"first": {"kind": ESCAPES, "site": ESCAPES, "param": ESCAPES}}},
                 {"params": [{"name": ESCAPES, "state": ESCAPES, "grad": {"norm": ESCAPES}}]})
    assert set(filter(lambda c: not c.isprintable(), text)) == {"\n"}
    assert "?[2J?]0;title? ?2J" in text


def names_of_a_model():
    model = torch.nn.Module()
    for name in ("layers[/a]", "blocks[attn]", "\x1b[2Jx"):
        model.add_module(name, torch.nn.Linear(4, 4))
    return model


def a_few_steps(watching, **options):
    model = names_of_a_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, run="a[/x]\x1b[2J", port=0, step_log="", weight_every=1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.ones(2, 4)
        for layer in model.children():
            x = layer(x)
        x.sum().backward()
        optimizer.step()
    assert agent.flush(60)
    return agent


def test_status_and_top_show_a_live_run_through_no_proxy(tmp_path, watching):
    agent = a_few_steps(watching)
    nowhere = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    done = running.python("-m", "gradvane", "status", agent.url, cwd=tmp_path, COLUMNS="200", **nowhere)
    assert "a[/x]?[2J" in done.stdout and "\x1b" not in done.stdout
    top = subprocess.Popen([sys.executable, "-m", "gradvane", "top", agent.url, "--every", "0.1"], cwd=tmp_path,
                           env=running.environment(COLUMNS="200", **nowhere), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        top.wait(timeout=5)
    agent.detach()
    stdout, stderr = top.communicate(timeout=60)
    assert top.returncode == 0, stderr
    assert stderr == "gradvane top: the agent has gone; this is the last it said\n"
    for name in ("layers[/a].weight", "blocks[attn].weight", "?[2Jx.weight", "a[/x]?[2J"):
        assert name in stdout
    assert "\x1b[2J" not in stdout
    ratio = next(line for line in stdout.splitlines() if "blocks[attn].weight" in line).split()[-2]
    assert 0 < float(ratio) < 10, "the update ratio is the last column, before the frame"


@contextlib.contextmanager
def server(answer):
    """Answers every GET by answer(handler), and counts them."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self)

        def log_message(self, *_):
            pass

    running_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running_server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running_server.server_port}", asked
    finally:
        running_server.shutdown()
        running_server.server_close()


def send(handler, status, body, kind="application/json", **fields):
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    for name, value in fields.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def refused(url):
    with pytest.raises(agent_api.UnreachableError) as told:
        agent_api.fetch(url, "/api/v1/status")
    assert str(told.value).isprintable()
    return str(told.value)


def test_an_address_elsewhere_is_asked_through_the_proxy_and_one_here_is_not(monkeypatch):
    with server(lambda handler: send(handler, 200, b'{"run": "x"}')) as (url, asked):
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert agent_api.fetch("http://gradvane.invalid:9464", "/api/v1/status") == {"run": "x"}
        assert asked == ["http://gradvane.invalid:9464/api/v1/status"]
        for here in ("http://localhost:1", "http://127.9.9.9:1", "http://[::1]:1", "http://a.localhost:1"):
            refused(here)
        assert len(asked) == 1


def test_no_redirect_is_followed():
    with server(lambda handler: send(handler, 200, b'{"run": "x"}')) as (other, asked), \
            server(lambda handler: send(handler, 302, b"", Location=other + "/")) as (url, _):
        assert "302" in refused(url)
        assert asked == []


def test_an_answer_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(agent_api, "_MOST_BYTES", 1000)
    with server(lambda handler: send(handler, 200, b'{"run": "' + b"x" * 1000 + b'"}')) as (url, _):
        assert "is larger than" in refused(url)


@pytest.mark.parametrize(("status", "kind", "body", "told"), [
    (421, "text/plain", "name it in \x1b[2Jallowed_hosts\n", "refuses: name it in ?[2Jallowed_hosts"),
    (500, "text/html", "<p>", "refuses: 500"),
    (200, "text/html", "<html>", "is no agent of Gradvane"),
    (200, "application/json", "[" * 100_000, "is no agent of Gradvane"),
    (200, "application/json", "[1]", "is no agent of Gradvane"),
])
def test_what_is_no_answer_of_an_agent_is_told_in_a_sentence(status, kind, body, told):
    with server(lambda handler: send(handler, status, body.encode(), kind)) as (url, _):
        assert told in refused(url)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "http://", "http://[", "ftp://127.0.0.1/x", "http://a\x1b[2J:b"])
def test_an_address_that_is_none_is_refused(url):
    refused(url)


# ---- texts of exceptions -----------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_the_text_of_an_exception_is_bounded_and_raises_nothing():
    assert described(ValueError("seven")) == "ValueError: seven"
    assert described(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert described(Unprintable()) == "Unprintable"
    assert len(described(ValueError("x" * 10_000_000))) == 1024
    assert text_of(3) == "3"


def test_the_reason_of_a_failed_run_is_a_kibibyte_at_most(tmp_path, watching):
    agent = a_few_steps(watching, linger_seconds=0, linger_incident_seconds=0)
    agent.fail("ü" * 100_000)
    reason = agent.status()["reason"]
    assert reason.endswith("ü…") and 1000 < len(reason.encode()) <= 1024


def test_an_exception_without_words_ends_a_watched_script_as_it_ends_a_plain_one(tmp_path):
    script = running.write(tmp_path, """
        import torch
        class Unprintable(Exception):
            def __str__(self):
                raise RuntimeError("no words")
        raise Unprintable
        """)
    plain = running.python(script, cwd=tmp_path, check=False)
    ours = running.python("-m", "gradvane", "run", "--quiet", script, cwd=tmp_path, check=False)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
