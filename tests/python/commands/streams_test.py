"""Commands whose output goes nowhere: their exit status is the same, and no traceback comes instead of it."""

import http.server
import json
import os
import subprocess
import sys
import threading

import pytest
import running

STATUS = {"run": "café\udce9 ⚡", "state": "running", "rank": 0, "latest": {"run_step": 3, "loss": 0.5}}


@pytest.fixture(scope="module")
def agent():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({**STATUS, **answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    answer = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answer
    server.shutdown()
    server.server_close()


def gradvane(folder, *words, stdout, **environment):
    env = {**running.environment(**environment), "PYTHONPATH": str(running.PACKAGE), "TMPDIR": str(folder)}
    return subprocess.run([sys.executable, "-m", "gradvane", *words], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          cwd=folder, env=env, timeout=60)


def pipe_without_a_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


COMMANDS = [("status",), ("status", "--check"), ("status", "--json"), ("ls",), ("ls", "--json"), ("--version",), ("--help",),
            ("completions", "bash"), ("sd",), ("doctor", "--help")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_without_a_reader_and_a_closed_output_change_no_exit_status(tmp_path, agent, words):
    url, _ = agent
    words = [*words, url] if words[0] == "status" else words
    with open(tmp_path / "out", "wb") as file:
        assert gradvane(tmp_path, *words, stdout=file).returncode == 0
    writer = pipe_without_a_reader()
    done = gradvane(tmp_path, *words, stdout=writer)
    os.close(writer)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    closed = subprocess.run([sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])",
                             sys.executable, "-m", "gradvane", *words], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env={**running.environment(), "PYTHONPATH": str(running.PACKAGE)}, timeout=60)
    assert closed.returncode == 0 and "Traceback" not in closed.stderr


@pytest.mark.parametrize("words", [words for words in COMMANDS if "--help" not in words and words != ("ls",)], ids=" ".join)
def test_a_full_disk_is_said_in_a_sentence(tmp_path, agent, words):
    url, _ = agent
    words = [*words, url] if words[0] == "status" else words
    with open("/dev/full", "wb") as full:
        done = gradvane(tmp_path, *words, stdout=full)
    assert done.returncode == 2
    assert done.stderr == f"gradvane {words[0]}: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("words", [("status",), ("status", "--check")], ids=" ".join)
def test_what_the_encoding_of_the_output_lacks_is_shown_as_its_code(tmp_path, agent, words, encoding):
    with open(tmp_path / "out", "wb") as file:
        done = gradvane(tmp_path, *words, agent[0], stdout=file, PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and done.stderr == ""
    assert "running" in (tmp_path / "out").read_bytes().decode(encoding)


@pytest.mark.parametrize("wrong", [{"latest": 3}, {"incidents": 5}, {"latest": {"step_seconds": "x"}}, {"state": ["x"]},
                                   {"nonfinite": "x"}, {"incidents": [1]}, {"run": None}], ids=str)
def test_an_answer_of_other_types_is_none_of_an_agent(tmp_path, agent, wrong):
    url, answer = agent
    answer.update(wrong)
    try:
        for words in (("status", url), ("status", "--check", url), ("status", "--json", url)):
            with open(tmp_path / "out", "wb") as file:
                done = gradvane(tmp_path, *words, stdout=file)
            assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)
    finally:
        answer.clear()


@pytest.mark.parametrize("every", ["nan", "-1", "x"])
def test_top_wants_a_number_of_seconds(tmp_path, agent, every):
    done = gradvane(tmp_path, "top", f"--every={every}", agent[0], stdout=subprocess.DEVNULL)
    assert done.returncode == 2 and "--every" in done.stderr and "Traceback" not in done.stderr
