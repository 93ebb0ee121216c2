"""Scrapes over TLS with a password, while others do their worst."""

import os
import socket
import subprocess
import time

import attack
import pytest
from web_server import Authority, Server, ask, hashed, trusting


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("attack"))
    authority.issue("server")
    return authority


def test_no_scrape_takes_a_second_while_others_do_their_worst(ca):
    config = f"tls_server_config: {{cert_file: server.crt, key_file: server.key}}\nbasic_auth_users: {{alice: '{hashed('right', 10)}'}}"
    with Server(ca.folder, config) as server:
        context, url = trusting(ca.certificate), f"{server.url}/metrics"
        assert ask(url, context, user="alice:right")[0] == 200
        took, lost = [], 0
        with attack.All(server.port, ca.certificate) as attacks:
            for _ in range(60):
                begin = time.monotonic()
                try:
                    status, _, body = ask(url, context, user="alice:right", timeout=5)
                    assert status == 200 and body.endswith(b"\n")
                    took.append(time.monotonic() - begin)
                except OSError:
                    lost += 1
                time.sleep(0.1)
        counts = attacks.counts()
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
