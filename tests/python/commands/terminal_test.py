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
from gradvane.cli.run_view import percent, view
from gradvane.cli.telling import folded

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


# ---- what is shown ---------------------------------------------------------------------------------


def rows_at(width, rows, height=50):
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, highlight=False, force_terminal=True, color_system=None)
    console.print(view({"run": "x", "state": "running"}, {"total": 9, "params": rows}, console))
    return [line.strip("│ ") for line in out.getvalue().splitlines()[2:-1]]


def row(name="a", state="finite", **grad):
    numbers = {"numel": 4, "norm": 1.5, "abs_max": 0.5, "zero_ratio": 0.25, "nonfinite": {"nan": 0, "pos_inf": 0}}
    return {"name": name, "state": state, "grad": {**numbers, **grad}, "update_ratio": {"value": 0.001, "run_step": 50}}


def test_a_gradient_of_an_earlier_step_is_not_shown_as_that_of_this_one():
    for state in ("missing", "frozen", "unsupported"):
        assert rows_at(200, [row(state=state)])[-1].split() == ["a", state, "0.001"]
    assert rows_at(200, [row()])[-1].split() == ["a", "finite", "1.5", "0.5", "25", "%", "0.001"]


def test_a_norm_is_shown_where_an_element_is_finite_and_a_dash_where_none_is():
    some = row(state="nonfinite", nonfinite={"nan": 2, "pos_inf": 1})
    none = row(state="nonfinite", nonfinite={"nan": 3, "pos_inf": 1}, norm=0, abs_max=0)
    assert rows_at(200, [some])[-1].split()[2:4] == ["1.5", "0.5"]
    assert rows_at(200, [none])[-1].split()[2:4] == ["–", "–"]


def test_a_name_is_never_cut_and_columns_go_before_it_is_folded():
    name = "model.layers.31.self_attn.q_proj.weight"
    assert rows_at(80, [row(name)])[-2:] == [
        "parameter                                state   gradient norm  update ratio",
        f"{name}  finite            1.5         0.001"]
    long = "transformer." + "layer." * 20 + "weight"
    shown = rows_at(80, [row(long)])
    assert shown[-3].split()[0] + shown[-2].split()[0] + shown[-1].split()[0] == long
    assert shown[-3].split()[1:] == ["finite", "1.5"]


@pytest.mark.parametrize("height", [7, 12, 24])
def test_a_screen_is_not_higher_than_the_terminal(height):
    lines = rows_at(80, [row(f"layer.{i}") for i in range(15)], height)
    shown = sum("layer." in line for line in lines)
    assert len(lines) + 3 < height and f"{shown} of 9 parameters, worst first" in "".join(lines) + "0 of 9 parameters, worst first"


@pytest.mark.parametrize(("ratio", "text"), [
    (None, ""), (0, "0 %"), (1e-9, "< 0.1 %"), (0.0012, "0.1 %"), (0.25, "25 %"), (0.9991, "99.9 %"),
    (0.99999, "> 99.9 %"), (1, "100 %")])
def test_a_share_is_never_none_or_all_by_rounding(ratio, text):
    assert percent(ratio) == text


def test_several_kinds_at_once_and_sites_without_a_parameter_have_words():
    def told(**first):
        return shown({"state": "running", "nonfinite": {"first": {"run_step": 1234, **first}}}, {})

    assert "first non-finite: NaN and Inf in the gradient of a, element 7, at step 1,234 " in told(
        site="grad", param="a", element=7)
    assert "first non-finite: -Inf in the loss at step 1,234 " in told(site="loss", kind="neg_inf", element=0)


@pytest.mark.parametrize(("line", "told"), [
    ("short", "short"),
    ("", ""),
    ("  step 5: one two three four", "  step 5: one two\n    three four"),
    ("aaaa bbbb cccccc, dddd", "aaaa bbbb cccccc,\n  dddd"),
    ("/a/path/that/is/wider/than/a/line and so on", "/a/path/that/is/wider/than/a/line\n  and so on"),
    ("日本語日本語 日本語日本語", "日本語日本語\n  日本語日本語"),
])
def test_lines_are_folded_at_spaces_and_words_stay_whole(line, told):
    assert folded(line, 20) == told


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
    reason = agent.status().reason
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
