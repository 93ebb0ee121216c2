"""What commands must not touch: the ports that dead runs had, and files that are none."""

import json
import os
import socket
import threading
import time

import pytest
from find_runs_test import endpoint_file, found_in, gradvane

from gradvane.cli import agent_api, live_runs


def test_the_token_of_a_dead_run_is_shown_to_nobody(tmp_path, monkeypatch):
    """Its port may be another's by now."""
    kept = {}
    monkeypatch.setattr(live_runs, "remember_token", kept.__setitem__)
    url = endpoint_file(tmp_path, token="secret") and "http://127.0.0.1:9"
    assert found_in(monkeypatch, tmp_path) and kept[url] == "secret"
    kept.clear()
    for changed in ({"pid": 2**22 - 1}, {"pid": 2**22 - 1, "state": "finished"}, {"started": time.time() - 7 * 24 * 3600}):
        endpoint_file(tmp_path, token="secret", **changed)
        assert found_in(monkeypatch, tmp_path) == [] and not kept


def test_sd_replaces_no_device_and_what_a_link_leads_to_but_not_the_link(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answer = gradvane(tmp_path, "sd", "--out", "pipe", check=False)
    assert answer.returncode != 0 and "not a regular file" in answer.stderr and pipe.is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "targets.json")
    gradvane(tmp_path, "sd", "--out", "link")
    assert (tmp_path / "link").is_symlink() and isinstance(json.loads((tmp_path / "targets.json").read_text()), list)


@pytest.fixture
def dripping():
    """The address of something that sends a byte of an answer every tenth of a second, and never an end."""
    over = threading.Event()

    def drip(client):
        with client:
            client.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not over.wait(0.1):
                try:
                    client.sendall(b"{")
                except OSError:
                    return

    def serve(listener):
        while not over.is_set():
            try:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()


def test_what_sends_a_byte_now_and_then_at_the_port_of_a_run_holds_up_no_list(tmp_path, monkeypatch, dripping):
    endpoint_file(tmp_path, url=dripping)
    assert [entry.status for entry in found_in(monkeypatch, tmp_path)] == [None]
    with pytest.raises(agent_api.UnreachableError, match=f"no agent answers at {dripping}: the answer was not complete after 0.5 s"):
        agent_api.fetch(dripping, "/api/v1/status", within=0.5)
    with pytest.raises(TimeoutError):  # the control: a socket's own limit is for the time between two bytes
        agent_api._within(1.5, lambda: agent_api._ask(dripping, "/api/v1/status", 0.5))
