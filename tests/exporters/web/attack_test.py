"""Scrapes over TLS with a password, while others do their worst."""

import os
import random
import socket
import ssl
import subprocess
import threading
import time

import pytest
from web_server import Authority, Server, ask, hashed, trusting

HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("attack"))
    authority.issue("server")
    return authority


class Attack:
    """One way, again and again until it is over."""

    def __init__(self, server, ca):
        self.port, self.over, self.count = server.port, threading.Event(), 0
        self.context, self.random = trusting(ca.certificate), random.Random(1)

    def plain(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def wire(self):
        return self.context.wrap_socket(self.plain(), server_hostname="127.0.0.1")

    def connects_without_a_word(self):
        self.plain()  # left to the garbage collector, or to the server

    def connects_and_holds(self):
        held = [self.plain() for _ in range(50)]
        self.over.wait(0.5)
        for one in held:
            one.close()

    def begins_a_handshake(self):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        with self.plain() as wire:
            wire.sendall(outgoing.read()[:self.random.randrange(1, 400)])
            self.over.wait(0.05)

    def sends_records_of_garbage(self):
        with self.plain() as wire:
            size = self.random.randrange(1, 65536)
            wire.sendall(bytes([self.random.choice((20, 21, 22, 23, 128)), 3, self.random.randrange(5)]) + size.to_bytes(2, "big") +
                         self.random.randbytes(self.random.randrange(0, 20000)))
            wire.recv(100)

    def sends_garbage_after_the_handshake(self):
        with self.wire() as wire:
            raw = socket.socket(fileno=socket.dup(wire.fileno()))
            raw.sendall(self.random.randbytes(1000))
            raw.close()
            wire.recv(100)

    def sends_headers_slowly(self):
        with self.wire() as wire:
            for byte in HEAD:
                wire.sendall(bytes([byte]))
                if self.over.wait(0.05):
                    return

    def sends_headers_without_end(self):
        with self.wire() as wire:
            wire.sendall(HEAD)
            for number in range(10000):
                wire.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))

    def sends_a_body(self):
        with self.wire() as wire:
            wire.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n")
            for _ in range(1000):
                wire.sendall(b"\0" * 1000)

    def asks_and_does_not_read(self):
        with self.wire() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.sendall((HEAD + b"Authorization: Basic YWxpY2U6cmlnaHQ=\r\n\r\n") * 50)
            self.over.wait(2)

    def guesses_passwords(self):
        ask(f"https://127.0.0.1:{self.port}/metrics", self.context, user=f"alice:{self.random.random()}", timeout=5)

    def run(self, way):
        while not self.over.is_set():
            try:
                getattr(self, way)()
            except (OSError, ValueError):
                pass
            self.count += 1


WAYS = [name for name in vars(Attack) if name.split("_")[0] in ("connects", "begins", "sends", "asks", "guesses")]


def test_no_scrape_takes_a_second_while_others_do_their_worst(ca):
    config = f"tls_server_config: {{cert_file: server.crt, key_file: server.key}}\nbasic_auth_users: {{alice: '{hashed('right', 10)}'}}"
    with Server(ca.folder, config) as server:
        context, url = trusting(ca.certificate), f"{server.url}/metrics"
        assert ask(url, context, user="alice:right")[0] == 200
        attacks = [Attack(server, ca) for _ in WAYS]
        threads = [threading.Thread(target=attack.run, args=(way,)) for attack, way in zip(attacks, WAYS)]
        for thread in threads:
            thread.start()
        took, lost = [], 0
        for _ in range(60):
            begin = time.monotonic()
            try:
                status, _, body = ask(url, context, user="alice:right", timeout=5)
                assert status == 200 and body.endswith(b"\n")
                took.append(time.monotonic() - begin)
            except OSError:
                lost += 1
            time.sleep(0.1)
        for attack in attacks:
            attack.over.set()
        for thread in threads:
            thread.join()
        counts = {way: attack.count for way, attack in zip(WAYS, attacks)}
        memory = [int(line.split()[1]) for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmHWM")][0]
        print(f"scrapes {len(took)}, longest {max(took):.3f} s, lost {lost}, peak {memory} kB, attacks {counts}")
        assert all(counts.values()), counts
        assert lost == 0 and max(took) < 1, (lost, sorted(took)[-5:])
        assert memory < 200_000 or os.environ.get("GRADVANE_SANITIZE"), memory  # a sanitizer keeps what was freed
        assert ask(url, context, user="alice:right")[0] == 200


def test_a_client_cannot_renegotiate(ca):
    with Server(ca.folder, "tls_server_config: {cert_file: server.crt, key_file: server.key}") as server:
        client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(1)
        said = client.communicate("R\n", timeout=20)[0]
        assert "no renegotiation" in said, said[-500:]
        assert ask(f"{server.url}/-/healthy", trusting(ca.certificate))[0] == 200


def test_ten_thousand_connections_leave_the_server_as_it_was(ca):
    with Server(ca.folder, "tls_server_config: {cert_file: server.crt, key_file: server.key}") as server:
        for _ in range(10000):
            socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
        begin = time.monotonic()
        assert ask(f"{server.url}/metrics", trusting(ca.certificate))[0] == 200
        assert time.monotonic() - begin < 1
        descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        assert descriptors < 100, descriptors
