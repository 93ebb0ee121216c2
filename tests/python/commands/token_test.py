"""An endpoint that asks for a token: who gets in, who does not, and that the commands find it by themselves."""

import http.cookiejar
import json
import urllib.error
import urllib.request

import pytest
import running
from prometheus_server import Prometheus


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("token")


@pytest.fixture(scope="module")
def run(folder):
    """Listens on all addresses, as in a cluster. Its endpoint file, with an address that is there on each machine."""
    process = running.waiting(folder, "--run", "guarded", "--address", "0.0.0.0", "--token", "auto")
    assert process.stdout.readline() == "trained\n", process.communicate()[1]
    (file,) = folder.glob("gradvane-*/guarded/endpoint.rank0.json")
    entry = json.loads(file.read_text())
    yield {**entry, "folder": file.parent, "local": f"http://127.0.0.1:{entry['url'].rpartition(':')[2]}"}
    process.communicate("\n", timeout=60)


def status_of(url, **fields):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def gradvane(folder, *words, check=True, **environment):
    return running.python("-m", "gradvane", *words, cwd=folder, check=check, TMPDIR=str(folder), **environment)


def test_nothing_but_the_probes_is_read_without_the_token_and_everything_with_it(run):
    for path in ("/", "/metrics", "/api/v1/status", "/api/v1/events", "/page.js", "/nothing"):
        assert status_of(run["local"] + path) == 401, path
    assert status_of(run["local"] + "/-/healthy") == 200
    for path in ("/", "/metrics", "/api/v1/status", "/page.js"):
        assert status_of(run["local"] + path, Authorization=f"Bearer {run['token']}") == 200, path
    nearly = run["token"][:-1] + ("1" if run["token"].endswith("0") else "0")
    assert status_of(run["local"] + "/metrics", Authorization=f"Bearer {nearly}") == 401


def test_the_token_lies_in_files_of_the_user_alone_and_nowhere_in_the_answers(run):
    assert (run["folder"] / "token").read_text() == run["token"] + "\n"
    for name in ("token", "endpoint.rank0.json"):
        assert (run["folder"] / name).stat().st_mode & 0o777 == 0o600
    for path in ("/", "/metrics", "/api/v1/status", "/api/v1/ranks"):
        request = urllib.request.Request(run["local"] + path, headers={"Authorization": f"Bearer {run['token']}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert run["token"] not in answer.read().decode()


def test_a_browser_that_is_sent_with_the_token_keeps_it_as_a_cookie(run):
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with browser.open(f"{run['local']}/?token={run['token']}", timeout=10) as page:
        assert page.url == run["local"] + "/" and "<title>" in page.read().decode()
    with browser.open(run["local"] + "/api/v1/status", timeout=10) as answer:
        assert json.load(answer)["run"] == "guarded"


def test_the_commands_find_it_and_open_prints_it(folder, run):
    assert [entry["answers"] for entry in json.loads(gradvane(folder, "ls", "--json").stdout)
            if entry["directory"].startswith(str(folder))] == [True]
    assert "guarded" in gradvane(folder, "status", "guarded").stdout
    assert gradvane(folder, "status", run["url"]).returncode == 0
    assert gradvane(folder, "open", "guarded").stdout == f"{run['url']}/?token={run['token']}\n"
    elsewhere = gradvane(folder, "status", run["local"], check=False)
    assert elsewhere.returncode != 0 and "asks for a token" in elsewhere.stderr
    assert gradvane(folder, "status", run["local"], GRADVANE_TOKEN=run["token"]).returncode == 0


def test_prometheus_scrapes_with_the_file_of_the_run_directory(tmp_path, run):
    job = f"authorization: {{credentials_file: {run['folder']}/token}}"
    with Prometheus(tmp_path, run["local"].removeprefix("http://"), job) as prometheus:
        prometheus.wait_for_samples(0, 1)


@pytest.mark.parametrize(("options", "address"), [((), "0.0.0.0"), (("--insecure", "off"), "::")])
def test_an_address_on_the_network_is_refused_without_a_token_and_the_script_runs(folder, options, address):
    process = running.waiting(folder, "--run", "open", "--address", address, *options)
    assert process.stdout.readline() == "trained\n"
    said = process.communicate("\n", timeout=60)[1]
    assert f"address = '{address}' would let everyone on the network read this run; set token to auto" in said
    assert process.returncode == 0


def test_a_token_of_ones_own_is_not_among_the_settings(folder):
    process = running.waiting(folder, "--run", "own", GRADVANE_TOKEN="a-secret-of-my-own")
    try:
        assert process.stdout.readline() == "trained\n"
        (file,) = folder.glob("gradvane-*/own/endpoint.rank0.json")
        request = urllib.request.Request(json.loads(file.read_text())["url"] + "/api/v1/status",
                                         headers={"Authorization": "Bearer a-secret-of-my-own"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
        assert "a-secret-of-my-own" not in text
        assert {"key": "token", "value": "(set)", "source": "environment"} in json.loads(text)["process"]["settings"]
    finally:
        process.communicate("\n", timeout=60)
