"""A web config that changes while the endpoint serves."""

import hashlib
import os
import shutil
import socket
import ssl
import threading
import time

import pytest
from web_server import Authority, Server, ask, hashed, trusting

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key"
IN_FORCE = "has changed and is in force"


@pytest.fixture()
def ca(tmp_path):
    authority = Authority(tmp_path)
    authority.issue("server")
    return authority


def shown(server):
    pem = ssl.get_server_certificate(("127.0.0.1", server.port), timeout=20)
    return hashlib.sha256(pem.encode()).hexdigest()


def test_a_renewed_certificate_is_shown_and_no_request_fails_meanwhile(ca):
    context = trusting(ca.certificate)
    with Server(ca.folder, TLS + "}") as server:
        over, answers = threading.Event(), []

        def scrape():
            while not over.is_set():
                answers.append(ask(f"{server.url}/metrics", context)[0])

        scrapers = [threading.Thread(target=scrape) for _ in range(3)]
        for thread in scrapers:
            thread.start()
        before = shown(server)
        for _ in range(3):
            ca.issue("server")  # the key first, then the certificate: for a moment they do not fit
            until = time.monotonic() + 20
            while shown(server) == before:
                assert time.monotonic() < until, server.errors
                time.sleep(0.2)
            before = shown(server)
        over.set()
        for thread in scrapers:
            thread.join()
        assert len(answers) > 20 and set(answers) == {200}
    assert server.errors.count(IN_FORCE) == 3, server.errors


def test_a_volume_of_kubernetes_is_followed_where_its_link_changes(ca):
    """A Secret's files are links to a folder that is replaced as a whole."""
    folder = ca.folder / "mounted"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"..{number}").mkdir()
        ca.issue("server")
        for name in ("server.crt", "server.key"):
            shutil.copy(ca.folder / name, folder / f"..{number}" / name)
    os.symlink("..1", folder / "..data")
    for name in ("server.crt", "server.key"):
        os.symlink(f"..data/{name}", folder / name)
    with Server(folder, TLS + "}") as server:
        before = shown(server)
        os.symlink("..2", folder / "..new")
        os.replace(folder / "..new", folder / "..data")
        until = time.monotonic() + 20
        while shown(server) == before:
            assert time.monotonic() < until, server.errors
            time.sleep(0.2)


def test_passwords_change_and_a_file_that_is_wrong_changes_nothing(tmp_path):
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('old')}'}}") as server:
        def status(password):
            return ask(f"{server.url}/metrics", user=f"alice:{password}")[0]

        def wait_for(words, count=1):
            until = time.monotonic() + 20
            while server.errors.count(words) < count:
                assert time.monotonic() < until, server.errors
                ask(f"{server.url}/-/healthy")  # it looks when a request comes
                time.sleep(0.2)

        assert (status("old"), status("new")) == (200, 401)
        server.file.write_text("basic_auth_users: {alice: plain}")
        wait_for("what was in force stays")
        assert (status("old"), status("new")) == (200, 401)
        for _ in range(5):
            ask(f"{server.url}/-/healthy")
            time.sleep(0.5)
        assert server.errors.count("stays") == 1, server.errors  # said once
        server.file.write_text(f"basic_auth_users: {{alice: '{hashed('new')}'}}")
        wait_for(IN_FORCE)
        assert (status("old"), status("new")) == (401, 200)
        server.file.unlink()
        wait_for("what was in force stays", 2)
        assert (status("old"), status("new")) == (401, 200)
        server.file.write_text(TLS + "}")
        (tmp_path / "server.crt").write_text("")
        wait_for("what was in force stays", 3)
        assert status("new") == 200


def test_a_handshake_that_began_before_a_renewal_comes_to_its_end(ca):
    """The server that it began with is gone by then; the names of clients were its."""
    client = ca.issue("client", "DNS:prometheus.example")
    config = TLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: [prometheus.example]}"
    with Server(ca.folder, config) as server:
        begun = []
        for _ in range(8):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = trusting(ca.certificate, client).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            with pytest.raises(ssl.SSLWantReadError):
                session.do_handshake()
            wire = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            wire.sendall(outgoing.read())
            begun.append((session, incoming, outgoing, wire))
        ca.issue("server")
        until = time.monotonic() + 4  # a handshake has five seconds
        while IN_FORCE not in server.errors:
            assert time.monotonic() < until, server.errors
            ask(f"{server.url}/-/healthy", trusting(ca.certificate, client))
            time.sleep(0.1)
        for session, incoming, outgoing, wire in begun:
            incoming.write(wire.recv(1 << 16))
            session.do_handshake()
            session.write(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            wire.sendall(outgoing.read())
            incoming.write(wire.recv(1 << 16))
            assert session.read(4096).startswith(b"HTTP/1.1 200 OK")
            wire.close()


def test_a_file_that_would_let_everyone_read_does_not_take_the_place_of_one_with_users(tmp_path):
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right')}'}}") as server:
        server.file.write_text("")
        until = time.monotonic() + 20
        while "which would let everyone read; what was in force stays" not in server.errors:
            assert time.monotonic() < until, server.errors
            assert ask(f"{server.url}/metrics")[0] == 401
            time.sleep(0.2)
        assert ask(f"{server.url}/metrics")[0] == 401


def test_a_user_who_was_removed_long_ago_is_not_let_in_once_more(tmp_path):
    """No request has come since."""
    with Server(tmp_path, f"basic_auth_users: {{alice: '{hashed('right')}', bob: '{hashed('right')}'}}") as server:
        assert ask(f"{server.url}/metrics", user="alice:right")[0] == 200
        server.file.write_text(f"basic_auth_users: {{bob: '{hashed('right')}'}}")
        time.sleep(2.5)
        assert ask(f"{server.url}/metrics", user="alice:right")[0] == 401


def test_tls_is_neither_switched_off_nor_on(ca):
    with Server(ca.folder, TLS + "}") as server:
        server.file.write_text("rate_limit: {interval: 1s, burst: 100}")
        until = time.monotonic() + 20
        while "TLS cannot be switched on or off" not in server.errors:
            assert time.monotonic() < until, server.errors
            assert ask(f"{server.url}/-/healthy", trusting(ca.certificate))[0] == 200
            time.sleep(0.2)


def test_a_file_that_names_one_that_comes_later_is_taken_then(ca):
    with Server(ca.folder, TLS + "}") as server:
        before = shown(server)
        server.file.write_text("tls_server_config: {cert_file: later.crt, key_file: later.key}")
        until = time.monotonic() + 20
        while "stays" not in server.errors:
            assert time.monotonic() < until, server.errors
            assert shown(server) == before
            time.sleep(0.2)
        ca.issue("later")
        until = time.monotonic() + 20
        while shown(server) == before:
            assert time.monotonic() < until, server.errors
            time.sleep(0.2)
