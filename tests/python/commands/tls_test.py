"""A run whose endpoint has TLS, certificates of clients and passwords: who may read, and that the commands need none of them."""

import json
import sys
import time

import pytest
import running
from prometheus_server import Prometheus

sys.path.append(str(running.TESTS.parent / "exporters" / "web"))

from web_server import Authority, ask, hashed, trusting  # noqa: E402

CONFIG = "tls_server_config: {cert_file: server.crt, key_file: server.key%s}\nbasic_auth_users: {alice: '%s'}\n"


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.issue("server")
    authority.issue("client")
    return authority


def config(ca, extra="", password="right", name="web.yml"):
    (ca.folder / name).write_text(CONFIG % (extra, hashed(password)))
    return name


def started(ca, *options, **environment):
    process = running.waiting(ca.folder, *options, **environment)
    assert process.stdout.readline() == "trained\n", process.communicate()[1]
    return process


def entry_of(ca, run, rank=0):
    (file,) = ca.folder.glob(f"gradvane-*/{run}/endpoint.rank{rank}.json")
    return json.loads(file.read_text())


def local(url):
    """The certificate is for this name."""
    return "https://127.0.0.1:" + url.rpartition(":")[2]


def gradvane(ca, *words, check=True, **environment):
    return running.python("-m", "gradvane", *words, cwd=ca.folder, check=check, TMPDIR=str(ca.folder), **environment)


@pytest.fixture(scope="module")
def run(ca):
    """It asks for everything that it can ask for, on all addresses."""
    name = config(ca, ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt")
    process = started(ca, "--run", "guarded", "--address", "0.0.0.0", "--web-config", name)
    yield entry_of(ca, "guarded")
    process.communicate("\n", timeout=60)


def test_only_a_client_with_a_certificate_and_a_password_reads_it(ca, run):
    url = local(run["url"])
    assert run["url"].startswith("https://") and run["node_url"] == run["url"]
    known = trusting(ca.certificate, ca.folder / "client.crt")
    for path in ("/", "/metrics", "/api/v1/status"):
        assert ask(url + path, known, user="alice:right")[0] == 200, path
        assert ask(url + path, known, user="alice:wrong")[0] == 401, path
    with pytest.raises(OSError):
        ask(url + "/metrics", trusting(ca.certificate), user="alice:right")


def test_the_commands_on_this_machine_need_neither(ca, run):
    assert [entry["answers"] for entry in json.loads(gradvane(ca, "ls", "--json").stdout) if entry["run"] == "guarded"] == [True]
    assert "guarded" in gradvane(ca, "status", "guarded").stdout
    assert "guarded" in gradvane(ca, "status", run["url"]).stdout
    assert gradvane(ca, "open", "guarded").stdout == run["url"] + "/\n"


def test_the_socket_that_they_ask_is_this_users_alone(ca, run):
    (socket,) = ca.folder.glob(f"gradvane-*/guarded/{run['socket']}")
    assert socket.stat().st_mode & 0o777 == 0o600


def test_prometheus_scrapes_it_and_sd_says_how(ca, run, tmp_path):
    folder = ca.folder
    job = (f"scheme: https, basic_auth: {{username: alice, password: right}}, tls_config: {{ca_file: {folder}/ca.crt, "
           f"cert_file: {folder}/client.crt, key_file: {folder}/client.key}}")
    with Prometheus(tmp_path, local(run["url"]).removeprefix("https://"), job) as prometheus:
        prometheus.wait_for_samples(0, 2)
    (target,) = [target for target in json.loads(gradvane(ca, "sd").stdout) if target["labels"]["__meta_gradvane_run"] == "guarded"]
    assert target["labels"]["__scheme__"] == "https"


def test_a_command_elsewhere_gives_the_name_in_the_address_and_takes_the_ca_from_the_environment(ca):
    process = started(ca, "--run", "far", "--web-config", config(ca, name="far.yml"))
    try:
        address = local(entry_of(ca, "far")["url"]).replace("https://", "https://alice:right@")
        elsewhere = {"TMPDIR": str(ca.folder / "nowhere"), "GRADVANE_RUN_DIR": ""}
        done = running.python("-m", "gradvane", "status", address, cwd=ca.folder, check=False, SSL_CERT_FILE=str(ca.certificate), **elsewhere)
        assert done.returncode == 0 and "far" in done.stdout, done.stderr
        done = running.python("-m", "gradvane", "status", address.replace("right", "left"), cwd=ca.folder, check=False,
                              SSL_CERT_FILE=str(ca.certificate), **elsewhere)
        assert done.returncode != 0 and "asks for a user's name and password" in done.stderr
        done = running.python("-m", "gradvane", "status", address, cwd=ca.folder, check=False, **elsewhere)
        assert done.returncode != 0 and "CERTIFICATE_VERIFY_FAILED" in done.stderr, done.stderr
    finally:
        process.communicate("\n", timeout=60)


def test_the_run_says_that_a_changed_file_is_in_force(ca):
    name = config(ca, name="changing.yml")
    process = started(ca, "--run", "changing", "--web-config", name)
    url = local(entry_of(ca, "changing")["url"]) + "/metrics"
    context = trusting(ca.certificate)
    assert ask(url, context, user="alice:right")[0] == 200
    config(ca, password="other", name=name)
    until = time.monotonic() + 30
    while ask(url, context, user="alice:other")[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.2)
    time.sleep(1)  # the worker says it
    said = process.communicate("\n", timeout=60)[1]
    assert f"web_config {ca.folder / name} has changed and is in force" in said, said


def test_ranks_share_a_port_with_tls_and_another_takes_it_over(ca):
    name = config(ca, name="ranks.yml")
    both = [started(ca, "--run", "ranks", "--web-config", name, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                    LOCAL_WORLD_SIZE="2", GRADVANE_RUN_ID="one") for rank in range(2)]
    entry = entry_of(ca, "ranks")
    url, context = local(entry["node_url"]), trusting(ca.certificate)
    assert entry["url"] == entry["node_url"] + "/rank/0"

    def metrics():
        status, _, body = ask(url + "/metrics", context, user="alice:right")
        return body.decode() if status == 200 else ""

    assert 'rank="0"' in metrics() and 'rank="1"' in metrics()
    assert ask(url + "/rank/1/api/v1/status", context)[0] == 401
    both[0].kill()
    both[0].communicate()
    until = time.monotonic() + 30
    while True:
        try:
            if 'rank="1"' in metrics():
                break
        except OSError:
            pass
        assert time.monotonic() < until
        time.sleep(0.1)
    both[1].communicate("\n", timeout=60)


def test_a_config_that_is_wrong_is_said_and_the_script_runs(ca):
    (ca.folder / "wrong.yml").write_text("basic_auth_users: {alice: hunter2}")
    process = started(ca, "--run", "wrong", "--web-config", "wrong.yml")
    said = process.communicate("\n", timeout=60)[1]
    assert "basic_auth_users.alice is no bcrypt hash" in said and "hunter2" not in said
    assert process.returncode == 0 and "Traceback" not in said


def test_a_run_without_a_web_config_loads_no_tls(ca):
    process = started(ca, "--run", "plain")
    maps = open(f"/proc/{process.pid}/maps", encoding="utf-8").read()
    process.communicate("\n", timeout=60)
    assert "libgradvane_tls" not in maps and "_native" in maps

