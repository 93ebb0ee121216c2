"""Alerts to an Alertmanager behind TLS that asks for a certificate and a password, and what is said where it fails."""

import http.server
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest
from alertmanager_server import PROGRAM, Alertmanager, Pusher, Webhook, free_port, wait_until

sys.path.append(str(Path(__file__).resolve().parents[1] / "web"))

from web_server import Authority, hashed, trusting  # noqa: E402

CONFIG = """
basic_auth: {username: pusher, password_file: password}
tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
"""


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("ca"))
    for name in ("server", "client"):
        authority.issue(name)
    authority.issue("elsewhere", "DNS:elsewhere.example")
    return authority


@pytest.fixture(scope="module")
def manager(ca):
    (ca.folder / "web.yml").write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: RequireAndVerifyClientCert, "
        f"client_ca_file: ca.crt}}\nbasic_auth_users: {{pusher: '{hashed('right')}'}}\n")
    known = trusting(ca.certificate, ca.folder / "client.crt")

    def asked(request, timeout):
        if isinstance(request, str):
            request = urllib.request.Request(request)
        request.add_header("Authorization", "Basic " + b64encode(b"pusher:right").decode())
        return urllib.request.urlopen(request, timeout=timeout, context=known)

    webhook = Webhook()
    server = Alertmanager(ca.folder, webhook, web_config=ca.folder / "web.yml", is_asked=asked)
    yield server
    server.close()
    webhook.shutdown()


@pytest.fixture
def config(ca):
    """The name of a file with that text, and a password next to it."""
    def written(text=CONFIG, password="right\n"):
        (ca.folder / "password").write_text(password)
        (ca.folder / "http.yml").write_text(text)
        return str(ca.folder / "http.yml")
    return written


def pushed(url, run, **environment):
    """Of an incident, told once when it opens and once at the end: whether it was taken, and the latest error."""
    with Pusher(url, run, **environment) as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("finish 2000")
        taken, _, error = pusher.end()
    return taken > 0, error


def refused(url, run, **environment):
    """The latest error of an incident that is not taken. No try is cut off by the end, which would be another error."""
    with Pusher(url, run, **environment) as pusher:
        pusher.say("open nonfinite_grad 1")
        time.sleep(2.5)
        pusher.say("finish 0")
        taken, failed, error = pusher.end()
    assert taken == 0 and failed > 0, (taken, failed, error)
    return error


def test_an_alert_reaches_an_alertmanager_that_asks_for_a_certificate_and_a_password(manager, config):
    assert pushed(manager.url, "guarded", ALERTMANAGER_HTTP_CONFIG=config()) == (True, "")
    (alert,) = manager.alerts("guarded")
    assert alert["labels"]["alertname"] == "GradvaneTrainingNonFinite"


def test_a_password_that_is_renewed_is_taken_with_the_next_request(manager, config, ca):
    with Pusher(manager.url, "renewed", ALERTMANAGER_HTTP_CONFIG=config(password="wrong")) as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("open nonfinite_loss 2")
        (ca.folder / "password").write_text("right")
        pusher.say("open loss_spike 3")
        pusher.say("finish 5000")
        _, failed, error = pusher.end()
    assert not error, "the latest request went well"
    assert {alert["labels"]["alertname"] for alert in manager.alerts("renewed")} >= {"GradvaneTrainingNonFinite"}
    assert failed <= 2


def test_a_wrong_password_is_said_and_never_shown(manager, config):
    error = refused(manager.url, "wrong", ALERTMANAGER_HTTP_CONFIG=config(password="hunter2"))
    assert "answered 401" in error and "hunter2" not in error


@pytest.mark.parametrize(("change", "said"), [
    (("ca_file: ca.crt", "ca_file: client.crt"), "the certificate: unable to get local issuer certificate"),
    ((", cert_file: client.crt, key_file: client.key", ""), "certificate"),
    (("{ca_file", "{server_name: elsewhere.example, ca_file"), "the certificate: hostname mismatch"),
])
def test_what_is_wrong_with_a_certificate_is_said(manager, config, change, said):
    error = refused(manager.url, "odd", ALERTMANAGER_HTTP_CONFIG=config(CONFIG.replace(*change)))
    assert said in error, error
    assert not manager.alerts("odd")


def test_a_name_is_checked_and_a_check_can_be_switched_off(manager, config):
    by_name = manager.url.replace("127.0.0.1", "localhost")
    assert pushed(by_name, "named", ALERTMANAGER_HTTP_CONFIG=config())[0]
    careless = CONFIG.replace("ca_file: ca.crt", "insecure_skip_verify: true")
    assert pushed(manager.url, "careless", ALERTMANAGER_HTTP_CONFIG=config(careless))[0]


class Listener(http.server.ThreadingHTTPServer):
    """Takes all alerts, over TLS with the certificate of that name if there is one, and remembers who sent them."""

    def __init__(self, ca=None, name="server"):
        self.senders = []
        super().__init__(("127.0.0.1", 0), self.Handler)
        if ca is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(ca.folder / f"{name}.crt", ca.folder / f"{name}.key")
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if ca else ''}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.server.senders.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    def handle_error(self, *_):
        pass


@pytest.mark.parametrize(("text", "sent"), [
    ("authorization: {credentials: a-token}", "Bearer a-token"),
    ("authorization: {type: Key, credentials_file: password}", "Key right"),
    ("bearer_token_file: password", "Bearer right"),
    ("basic_auth: {username: u, password: 'p:q'}", "Basic " + b64encode(b"u:p:q").decode()),
    ("{}", None),
])
def test_who_sends_is_said_as_prometheus_says_it(config, text, sent):
    listener = Listener()
    assert pushed(listener.url, "bearer", ALERTMANAGER_HTTP_CONFIG=config(text))[0]
    assert set(listener.senders) == {sent}
    listener.shutdown()


def test_without_a_file_the_systems_certificates_count(ca):
    listener = Listener(ca)
    assert pushed(listener.url, "system", SSL_CERT_FILE=str(ca.certificate))[0]
    error = refused(listener.url, "strange")
    assert ("unable to get local issuer certificate" in error or "no file with the system's" in error)
    listener.shutdown()


def test_a_certificate_for_another_name_is_refused(ca, config):
    listener = Listener(ca, "elsewhere")
    error = refused(listener.url, "other", ALERTMANAGER_HTTP_CONFIG=config("tls_config: {ca_file: ca.crt}"))
    assert "the certificate: IP address mismatch" in error, error
    listener.shutdown()


def test_a_server_without_tls_or_without_an_answer_is_said_in_time(ca, config):
    listener = Listener()
    name = config("tls_config: {ca_file: ca.crt}")
    error = refused(listener.url.replace("http:", "https:"), "plain", ALERTMANAGER_HTTP_CONFIG=name)
    assert "what answers there speaks no TLS" in error
    listener.shutdown()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with Pusher(f"https://127.0.0.1:{silent.getsockname()[1]}", "silent", ALERTMANAGER_HTTP_CONFIG=name) as pusher:
            pusher.say("open nonfinite_grad 1")
            pusher.say("finish 1000")
            taken, failed, error = pusher.end()
    assert (taken, failed >= 1) == (0, True) and "no TLS with" in error and "timed out" in error, error


@pytest.mark.parametrize(("text", "said"), [
    ("basic_auth: {username: u, passwort: hunter2}", "basic_auth.passwort is not known; known are username"),
    ("basic_auth: {username: u, password: hunter2, password_file: password}", "basic_auth.password and password_file are both there"),
    ("basic_auth: {username: u}\nauthorization: {credentials: hunter2}", "exclude each other"),
    ("authorization: {type: Basic, credentials: hunter2}", "for Basic there is basic_auth"),
    ("authorization: {type: Bearer}", "authorization.credentials is not there"),
    ("tls_config: {cert_file: client.crt}", "tls_config.key_file is not there"),
    ("tls_config: {ca_file: none.crt}", "none.crt: No such file"),
    ("tls_config: {ca_file: password}", "the servers' CA"),
    ("tls_config: {ca_file: ca.crt, min_version: TLS10}", "'TLS10' is not allowed; allowed are TLS12, TLS13"),
    ("tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: server.key}", "the key is not that of the certificate"),
    ("proxy_url: http://proxy", "proxy_url is not known"),
    ("basic_auth: {", "http config"),
])
def test_a_file_that_is_wrong_is_refused_at_once_with_what_is_allowed(config, text, said):
    done = subprocess.run([PROGRAM, f"https://127.0.0.1:{free_port()}", "refused", "0", "0"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={"ALERTMANAGER_HTTP_CONFIG": config(text)})
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.skipif(bool(os.environ.get("GRADVANE_SANITIZE")), reason="the package is not built with sanitizers everywhere")
def test_a_run_takes_it_as_an_option_and_says_what_is_wrong(ca, config, manager):
    """Through `gradvane run`, with an alert of a real run."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "support"))
    import running

    script = running.write(ca.folder, """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(5):
            optimizer.zero_grad()
            (model(torch.ones(2, 4)).sum() * (float("nan") if step == 3 else 1.0)).backward()
            optimizer.step()
        """)
    options = ("--run", "pushes", "--alertmanager-url", manager.url, "--linger-seconds", "0")
    running.python("-m", "gradvane", "run", *options, "--alertmanager-http-config", config(), script, cwd=ca.folder, TMPDIR=str(ca.folder))
    wait_until(lambda: manager.alerts("pushes"), "the alert of the run")
    refused = running.python("-m", "gradvane", "run", *options, "--alertmanager-http-config", config("basic_auth: 1"), script,
                             cwd=ca.folder, TMPDIR=str(ca.folder))
    assert "basic_auth has to be a mapping" in refused.stderr
