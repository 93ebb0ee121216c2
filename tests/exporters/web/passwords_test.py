"""Users with passwords, and the limit of requests."""

import base64
import socket
import statistics
import threading
import time

import pytest
from web_server import Server, ask, hashed

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    config = f"basic_auth_users: {{alice: '{hashed('open sesame')}', zoé: '{hashed('sésame')}'}}"
    with Server(tmp_path_factory.mktemp("users"), config) as server:
        yield server


def test_who_knows_the_password_gets_in(server):
    for user in ("alice:open sesame", "zoé:sésame"):
        status, _, body = ask(f"{server.url}/metrics", user=user)
        assert status == 200 and b"gradvane_steps_total" in body


@pytest.mark.parametrize("user", [None, "alice:", "alice:wrong", "bob:open sesame", ":", "alice:open sesame\0", "zoé:open sesame",
                                  "alice:open sesame" + "x" * 200])
def test_nobody_else_does(server, user):
    for path in ("/metrics", "/", "/api/v1/status", "/nothing"):
        status, headers, body = ask(server.url + path, user=user)
        assert status == 401 and b"name and password" in body and b"gradvane_steps" not in body
        assert headers["WWW-Authenticate"] == 'Basic realm="gradvane", charset="UTF-8"'


def test_probes_need_no_password(server):
    assert ask(f"{server.url}/-/healthy")[0] == 200
    assert ask(f"{server.url}/-/ready")[0] == 200


def test_a_token_or_a_password_will_do(tmp_path):
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right')}'}}", "--token", TOKEN) as server:
        url = f"{server.url}/metrics"
        assert ask(url)[0] == 401
        assert ask(url, user="alice:wrong")[0] == 401
        assert ask(url, user="alice:right")[0] == 200
        assert ask(url, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(url, Authorization=f"Bearer {TOKEN}x")[0] == 401
        assert ask(f"{url}?token={TOKEN}x")[0] == 401


def test_each_kind_of_bcrypt_hash_is_taken(tmp_path):
    hash_ = hashed("right")
    users = ", ".join(f"{kind}: '$2{kind}{hash_[3:]}'" for kind in "aby")
    with Server(tmp_path, f"basic_auth_users: {{{users}}}") as server:
        for kind in "aby":
            assert ask(f"{server.url}/metrics", user=f"{kind}:right")[0] == 200
            assert ask(f"{server.url}/metrics", user=f"{kind}:left")[0] == 401


def test_an_unknown_name_takes_as_long_as_a_wrong_password(tmp_path):
    """Otherwise names could be found out. Medians; without the check of a hash an unknown name took a hundredth."""
    def took(url, user):
        time.sleep(0.5)  # so that it does not wait for the rest after the one before
        begin = time.perf_counter()
        assert ask(url, user=user)[0] == 401
        return time.perf_counter() - begin

    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right', 10)}'}}") as server:
        url = f"{server.url}/metrics"
        known, unknown = [], []
        for number in range(5):
            known.append(took(url, f"alice:{number}"))
            unknown.append(took(url, f"bob:{number}"))
    assert 0.4 < statistics.median(unknown) / statistics.median(known) < 2.5, (known, unknown)


def test_wrong_passwords_at_rate_keep_no_scrape_waiting(tmp_path):
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right', 10)}'}}") as server:
        url = f"{server.url}/metrics"
        assert ask(url, user="alice:right")[0] == 200
        over = threading.Event()
        answers = []

        def guess(number):
            count = 0
            while not over.is_set():
                count += 1
                answers.append(ask(url, user=f"alice:{number}.{count}", timeout=60)[0])

        guessers = [threading.Thread(target=guess, args=(number,)) for number in range(12)]
        for thread in guessers:
            thread.start()
        longest = 0.0
        for _ in range(25):
            begin = time.monotonic()
            assert ask(url, user="alice:right")[0] == 200
            longest = max(longest, time.monotonic() - begin)
            time.sleep(0.1)
        over.set()
        for thread in guessers:
            thread.join()
        assert set(answers) == {401}
        assert longest < 1, longest


def test_who_waits_for_a_password_and_hangs_up_keeps_nobody_out(tmp_path):
    """Each of them waits with a password that is not checked yet, on as many connections as there may be."""
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right', 10)}'}}") as server:
        url = f"{server.url}/metrics"
        assert ask(url, user="alice:right")[0] == 200
        waiting = []
        for number in range(64):
            wire = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            word = base64.b64encode(f"alice:{number}".encode())
            wire.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + word + b"\r\n\r\n")
            waiting.append(wire)
        for wire in waiting[::2]:
            wire.close()
        for _ in range(20):
            begin = time.monotonic()
            assert ask(url, user="alice:right")[0] == 200
            assert ask(f"{server.url}/-/healthy")[0] == 200
            assert time.monotonic() - begin < 1
        begin = time.monotonic()
    assert time.monotonic() - begin < 3, "nor does the end wait for them"
    for wire in waiting[1::2]:
        wire.close()


def test_more_requests_than_the_limit_are_refused_and_probes_are_not(tmp_path):
    with Server(tmp_path, "rate_limit: {interval: 1h, burst: 5}") as server:
        answers = [ask(f"{server.url}/metrics") for _ in range(8)]
        assert [status for status, _, _ in answers] == [200] * 5 + [429] * 3
        assert b"more requests than rate_limit allows" in answers[-1][2]
        assert ask(f"{server.url}/-/healthy")[0] == 200


def test_the_limit_lets_more_in_as_time_passes(tmp_path):
    with Server(tmp_path, "rate_limit: {interval: 100ms, burst: 1}") as server:
        assert ask(f"{server.url}/metrics")[0] == 200
        until = time.monotonic() + 10
        while ask(f"{server.url}/metrics")[0] == 429:
            assert time.monotonic() < until
            time.sleep(0.02)
