"""The endpoint over TLS, asked by curl, by OpenSSL and by Python."""

import http.client
import json
import socket
import ssl
import subprocess

import pytest
from web_server import Authority, Server, ask, refusal, trusting

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key"


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.issue("server")
    return authority


@pytest.fixture(scope="module")
def server(ca):
    with Server(ca.folder, TLS + "}") as server:
        yield server


def curl(*words):
    return subprocess.run(["curl", "-sS", "--max-time", "20", *map(str, words)], capture_output=True, text=True)


def handshake(server, ca, *words):
    """What openssl's client says of it."""
    return subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-CAfile", ca.certificate, *words],
                          input="", capture_output=True, text=True, timeout=20)


def test_the_address_says_https_and_curl_reads_it(server, ca):
    assert server.url.startswith("https://")
    done = curl("--cacert", ca.certificate, f"{server.url}/metrics")
    assert done.returncode == 0 and "gradvane_steps_total" in done.stdout, done.stderr


@pytest.mark.parametrize(("words", "version"), [(("--tls-max", "1.2"), "TLSv1.2"), (("--tlsv1.3",), "TLSv1.3")])
def test_both_versions_are_spoken(server, ca, words, version):
    done = curl("-v", "--cacert", ca.certificate, *words, f"{server.url}/-/healthy")
    assert done.stdout == "healthy\n" and f"SSL connection using {version}" in done.stderr, done.stderr


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_older_versions_are_refused(server, ca, version):
    done = handshake(server, ca, version, "-cipher", "ALL:@SECLEVEL=0")
    assert done.returncode != 0 and "alert" in done.stderr, done.stderr


def test_a_client_that_does_not_know_the_ca_gets_nothing(server, tmp_path):
    done = curl("--cacert", Authority(tmp_path, "other").certificate, f"{server.url}/metrics")
    assert done.returncode == 60, done.stderr  # the certificate cannot be verified


def test_http_without_tls_is_told_so(server):
    done = curl("-i", f"http://127.0.0.1:{server.port}/metrics")
    assert "400 Bad Request" in done.stdout and "speaks TLS: ask by https://" in done.stdout, done


def test_http2_is_not_agreed_upon(server, ca):
    done = curl("-v", "--http2", "--cacert", ca.certificate, f"{server.url}/-/healthy")
    assert done.stdout == "healthy\n" and "accepted http/1.1" in done.stderr, done.stderr


def test_large_answers_arrive_whole_and_many_on_one_connection(ca):
    context = trusting(ca.certificate)
    with Server(ca.folder, TLS + "}", "--layers", "400", "--max-series", "100000") as server:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
        sizes = set()
        for _ in range(5):
            for path in ("/metrics", "/api/v1/params", "/api/v1/history", "/-/healthy"):
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status == 200 and len(body) == int(answer.headers["Content-Length"])
                sizes.add(len(body))
                if path.startswith("/api"):
                    json.loads(body)
        assert max(sizes) > 300_000, sizes
        connection.close()


def test_requests_that_come_together_are_answered_in_order(server, ca):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
        with trusting(ca.certificate).wrap_socket(plain, server_hostname="127.0.0.1") as wire:
            wire.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20 +
                         b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            said = b""
            while part := wire.recv(65536):
                said += part
    assert said.count(b"healthy\n") == 20 and said.count(b"404 Not Found") == 1
    assert said.index(b"404 Not Found") > said.rindex(b"healthy\n")


def test_bytes_that_come_one_by_one_are_read(server, ca):
    """Records of one byte each, and the records' own bytes one by one."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = trusting(ca.certificate).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def until_done(what):
            while True:
                try:
                    return what()
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        wire.sendall(bytes([byte]))
                    incoming.write(wire.recv(1 << 16))
                finally:
                    for byte in outgoing.read():
                        wire.sendall(bytes([byte]))

        until_done(session.do_handshake)
        for byte in b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n":
            until_done(lambda one=byte: session.write(bytes([one])))
        assert until_done(lambda: session.read(4096)).startswith(b"HTTP/1.1 200 OK")


def test_events_go_on_over_tls(ca):
    with Server(ca.folder, TLS + "}", "--live", "50") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
            with trusting(ca.certificate).wrap_socket(plain, server_hostname="127.0.0.1") as wire:
                wire.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = b""
                while said.count(b"event: step") < 5:
                    part = wire.recv(65536)
                    assert part, said
                    said += part


def test_a_client_has_to_show_a_certificate_of_the_right_ca_and_name(ca, tmp_path):
    good = ca.issue("prometheus", "DNS:prometheus.example,IP:10.1.2.3")
    nameless = ca.issue("someone", "DNS:someone.example")
    stranger = Authority(tmp_path, "stranger").issue("prometheus", "DNS:prometheus.example")
    config = TLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt"
    for names, allowed in ((None, [good, nameless]), ("[prometheus.example]", [good]), ("['10.1.2.3']", [good])):
        with Server(ca.folder, config + (f", client_allowed_sans: {names}" if names else "") + "}") as server:
            for certificate in (good, nameless, stranger, None):
                words = ["--cert", certificate, "--key", certificate.with_suffix(".key")] if certificate else []
                done = curl("--cacert", ca.certificate, *words, f"{server.url}/-/healthy")
                assert (done.stdout == "healthy\n") == (certificate in allowed), (names, certificate, done.stderr)


def test_addresses_match_however_they_are_written(ca):
    client = ca.issue("sixth", "IP:2001:db8::1,IP:10.0.0.7")
    config = TLS + ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt, client_allowed_sans: ['%s']}"
    for name, is_allowed in (("2001:db8::1", True), ("2001:DB8:0:0:0:0:0:1", True), ("10.0.0.7", True), ("2001:db8::2", False), ("10.0.0.70", False)):
        with Server(ca.folder, config % name) as server:
            done = curl("--cacert", ca.certificate, "--cert", client, "--key", client.with_suffix(".key"), f"{server.url}/-/healthy")
            assert (done.stdout == "healthy\n") == is_allowed, (name, done.stderr)


def test_certificates_are_optional_where_the_config_says_so(ca, tmp_path):
    stranger = Authority(tmp_path, "stranger").issue("client")
    good = ca.issue("client")
    for kind, extra, allowed in (("RequestClientCert", "", {None, stranger, good}), ("RequireAnyClientCert", "", {stranger, good}),
                                 ("VerifyClientCertIfGiven", ", client_ca_file: ca.crt", {None, good})):
        with Server(ca.folder, f"{TLS}, client_auth_type: {kind}{extra}}}") as server:
            for certificate in (None, stranger, good):
                words = ["--cert", certificate, "--key", certificate.with_suffix(".key")] if certificate else []
                done = curl("--cacert", ca.certificate, *words, f"{server.url}/-/healthy")
                assert (done.stdout == "healthy\n") == (certificate in allowed), (kind, certificate, done.stderr)


def test_versions_ciphers_and_curves_are_those_of_the_config(ca):
    with Server(ca.folder, TLS + ", min_version: TLS13, curve_preferences: [CurveP384]}") as server:
        assert "Server Temp Key: ECDH, secp384r1" in handshake(server, ca).stdout
        assert handshake(server, ca, "-tls1_2").returncode != 0
    with Server(ca.folder, TLS + ", max_version: TLS12, cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]}") as server:
        assert "ECDHE-ECDSA-CHACHA20-POLY1305" in handshake(server, ca).stdout
        assert handshake(server, ca, "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256", "-tls1_2").returncode != 0


def test_suites_of_tls_1_3_alone_leave_no_older_version(ca):
    with Server(ca.folder, TLS + ", cipher_suites: [TLS_AES_128_GCM_SHA256]}") as server:
        assert handshake(server, ca, "-tls1_3").returncode == 0
        assert handshake(server, ca, "-tls1_2").returncode != 0


def test_keys_of_rsa_and_chains_and_texts_in_the_file_are_taken(ca):
    rsa = ca.issue("rsa", key="rsa:2048")
    text = rsa.read_text() + ca.certificate.read_text()
    config = "tls_server_config:\n  cert: |\n" + "".join(f"    {line}\n" for line in text.splitlines()) + \
        "  key: |\n" + "".join(f"    {line}\n" for line in rsa.with_suffix(".key").read_text().splitlines())
    with Server(ca.folder, config) as server:
        assert ask(f"{server.url}/-/healthy", trusting(ca.certificate))[0] == 200
        assert " 1 s:CN = ca" in handshake(server, ca, "-showcerts").stdout  # the chain is sent


def test_what_cannot_be_used_is_refused_with_a_sentence(ca):
    ca.issue("second")
    folder = ca.folder
    (folder / "empty.crt").write_text("")
    (folder / "broken.crt").write_text((folder / "server.crt").read_text().replace("MII", "mii", 1))
    subprocess.run(["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", "server.key", "-out", "locked.key"], cwd=folder,
                   check=True, capture_output=True)
    for certificate, key, words in (
        ("server.crt", "second.key", "the key is not that of the certificate"),
        ("server.crt", "locked.key", "the key, which must have no passphrase"),
        ("server.crt", "server.crt", "the key"), ("empty.crt", "server.key", "is not there, nor is cert"),
        ("broken.crt", "server.key", "the certificate"), ("server.key", "server.key", "the certificate"),
    ):
        said = refusal(folder, f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}")
        assert words in said and "web.yml" in said, said
        assert "PRIVATE" not in said
    for extra, words in ((", cipher_suites: [TLS_NONE]", "'TLS_NONE' is not known"), (", curve_preferences: [P1]", "'P1' is not known"),
                         (", client_auth_type: RequireAndVerifyClientCert, client_ca_file: server.key", "the clients' CA")):
        assert words in refusal(folder, TLS + extra + "}")


def test_headers_of_the_config_come_with_each_answer_and_stand_in_for_ours(ca):
    config = TLS + "}\nhttp_server_config: {headers: {Strict-Transport-Security: max-age=60, Content-Security-Policy: default-src 'self'}}"
    with Server(ca.folder, config) as server:
        for path in ("/-/healthy", "/nothing"):
            _, headers, _ = ask(server.url + path, trusting(ca.certificate))
            assert headers["Strict-Transport-Security"] == "max-age=60"
            assert headers.get_all("Content-Security-Policy") == ["default-src 'self'"]
            assert headers["X-Content-Type-Options"] == "nosniff"
