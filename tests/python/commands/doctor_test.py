"""`gradvane doctor`: each line is ok, a warning or a problem, and says what to change."""

import os
import socket
import sys
from types import SimpleNamespace

import pytest
import running

from gradvane._errors import GradvaneError
from gradvane.cli import doctor
from gradvane.cli.live_runs import LiveRun


def findings(check):
    return [(finding.grade, finding.text) for finding in check()]


def graded(check):
    [finding] = check()
    return finding.grade


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "live_runs", lambda: [])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("GRADVANE_PORT", "GRADVANE_ADDRESS", "GRADVANE_RUN_DIR", "GRADVANE_TOKEN", "GRADVANE_INSECURE"):
        monkeypatch.delenv(name, raising=False)


def test_a_good_installation_has_no_problem(tmp_path):
    done = running.python("-m", "gradvane", "doctor", cwd=tmp_path, TMPDIR=str(tmp_path))
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}
    for what in ("Python 3.", "is supported", "the native part loads", "CUDA", f"run directory {tmp_path}"):
        assert any(what in line and line.startswith("ok") for line in lines), what


def test_a_problem_is_an_exit_status_and_says_what_to_do(tmp_path):
    done = running.python("-m", "gradvane", "doctor", cwd=tmp_path, check=False, GRADVANE_PORT="http")
    assert done.returncode == 1
    assert "problem  GRADVANE_PORT=http is not allowed; set a number from -1 to 65535, or unset it\n" in done.stdout


def test_an_old_torch_no_torch_and_a_native_part_that_does_not_load_are_problems(monkeypatch):
    import gradvane._loading as loading

    def cannot():
        raise GradvaneError("it cannot be loaded")

    monkeypatch.setattr(loading, "native", cannot)
    assert findings(doctor._torch)[1] == ("problem", "the native part: it cannot be loaded")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.8.1+cpu", __spec__=object()))
    assert findings(doctor._torch) == [("problem", "torch 2.8.1+cpu is too old")]
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert findings(doctor._torch) == [("problem", "there is no torch in this environment")]


def test_a_device_that_the_package_cannot_read_is_a_problem(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(doctor.injection, "cuda_major", lambda: "")
    assert graded(doctor._cuda) == "problem"
    monkeypatch.setattr(doctor.injection, "cuda_major", lambda: "13")
    monkeypatch.setattr(doctor, "_driver_version", lambda: 13000)
    assert graded(doctor._cuda) == "ok"
    monkeypatch.setattr(doctor, "_driver_version", lambda: 12080)
    (finding,) = doctor._cuda()
    assert finding.grade == "problem" and "the driver is for CUDA 12.8, and this package has the runtime of CUDA 13" in finding.text
    monkeypatch.setattr(doctor.injection, "loader_finds_one", lambda _: False)
    monkeypatch.setattr(doctor.injection, "library_for", lambda *_: None)
    assert graded(doctor._cupti) == "warning"
    monkeypatch.setattr(doctor.injection, "library_for", lambda *_: "/libcupti.so.13")
    assert graded(doctor._cupti) == "ok"


def test_a_port_that_is_taken_is_a_warning_with_the_run_that_has_it(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("GRADVANE_PORT", str(port))
        assert findings(doctor._endpoint)[0] == ("warning", f"port {port} is taken: the next run takes the next free one")
        monkeypatch.setattr(doctor, "live_runs", lambda: [run_of(url=f"http://127.0.0.1:{port}")])
        assert f"port {port} is taken by the run gpt" in findings(doctor._endpoint)[0][1]
    assert findings(doctor._endpoint)[0] == ("ok", f"port {port} is free")


@pytest.mark.parametrize(("address", "grade"), [
    ("127.0.0.1", "ok"), ("localhost", "ok"), ("0.0.0.0", "problem"), ("192.0.2.1", "problem"), ("here", "problem")])
def test_an_address_is_tried(monkeypatch, address, grade):
    monkeypatch.setenv("GRADVANE_PORT", "0")
    monkeypatch.setenv("GRADVANE_ADDRESS", address)
    assert findings(doctor._endpoint)[-1][0] == grade


@pytest.mark.parametrize(("variable", "value", "grade"), [
    ("GRADVANE_TOKEN", "auto", "ok"), ("GRADVANE_INSECURE", "on", "warning"), ("GRADVANE_INSECURE", "off", "problem")])
def test_an_address_on_the_network_needs_a_token_or_a_word(monkeypatch, variable, value, grade):
    for name, text in (("GRADVANE_PORT", "0"), ("GRADVANE_ADDRESS", "0.0.0.0"), (variable, value)):
        monkeypatch.setenv(name, text)
    assert findings(doctor._endpoint)[-1][0] == grade


def test_the_run_directory_is_looked_at_and_not_made(monkeypatch, tmp_path):
    path = tmp_path / f"gradvane-{os.geteuid()}"
    assert graded(doctor._run_directory) == "ok" and not path.exists()
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    assert graded(doctor._run_directory) == "warning"
    path.chmod(0o700)
    assert graded(doctor._run_directory) == "ok"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRADVANE_RUN_DIR", str(tmp_path / "file" / "below"))
    assert graded(doctor._run_directory) == "problem"


def run_of(status=None, url="http://127.0.0.1:9464"):
    return LiveRun("gpt", "1234.0", 0, 1, url, url, "", 1, "running", 0.0, "/", status)


def test_a_run_that_was_never_scraped_and_one_that_does_not_answer_are_warnings(monkeypatch):
    entries = [run_of(), run_of({"agent": {"scrapes": 0}}), run_of({"agent": {"scrapes": 1200}})]
    monkeypatch.setattr(doctor, "live_runs", lambda: entries)
    name = "run gpt, rank 0 at http://127.0.0.1:9464"
    assert findings(doctor._scrapes) == [
        ("warning", f"{name} is live and does not answer"), ("warning", f"{name} was never scraped"),
        ("ok", f"{name} was scraped 1,200 times")]


def test_a_check_that_fails_itself_is_told(monkeypatch, capsys):
    def _sky():
        raise OSError("it fell")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (_sky,))
    assert doctor.main([]) == 0
    assert capsys.readouterr().out == "warning  sky could not be checked: OSError: it fell\n"
