"""`gradvane replay` and `gradvane diff`, over recordings of made-up runs."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import running

sys.path.insert(0, str(running.PACKAGE))

FAKE = Path(os.environ.get("GRADVANE_BIN_DIR", running.PACKAGE.parent / "bin")) / "fake_recording"


def recordings(folder, **options):
    """Their paths, the ring's last."""
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    folder.mkdir(exist_ok=True)
    done = subprocess.run([FAKE, folder, *words], capture_output=True, text=True, check=True, timeout=60)
    return [Path(line) for line in done.stdout.splitlines()]


def gradvane(folder, *arguments, status=0):
    done = running.python("-m", "gradvane", *arguments, cwd=folder, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """The file of an incident, and the ring."""
    return recordings(tmp_path_factory.mktemp("runs"), fault=50, end="failed")


def test_replay_tells_the_story(tmp_path, failed):
    told = gradvane(tmp_path, "replay", failed[0]).stdout
    assert failed[0].name == "fake-gpt.rank0.step50.nonfinite_grad.gvrec"
    headings = [line for line in told.splitlines() if line and not line.startswith(" ")][3:]
    assert headings == ["What was normal: steps 1 to 49, median and range", "What moved first", "What broke",
                        "What happened after", "How it ended"]
    assert "step 50: 1 NaN in the gradient of blocks.0.mlp.weight, the first at element 7" in told
    assert "The run failed after step 60: ValueError: loss is nan." in told


def test_replay_tells_the_same_to_programs(tmp_path, failed):
    told = json.loads(gradvane(tmp_path, "replay", "--json", failed[0]).stdout)
    assert told["fault_step"] == 50 and told["incident"]["param"] == "blocks.0.mlp.weight"
    assert told["ending"]["how"] == "failed" and told["steps"] == {
        "count": 60, "missing": 0, "first": 1, "last": 60, "last_time": 1700000007.5}


def test_replay_gives_the_steps_as_the_step_log_has_them(tmp_path, failed):
    steps = [json.loads(line) for line in gradvane(tmp_path, "replay", failed[1], "--steps").stdout.splitlines()]
    assert [step["run_step"] for step in steps] == list(range(1, 61))
    assert steps[49]["first_nonfinite"] == {"site": "grad", "kind": "nan", "param": "blocks.0.mlp.weight", "element": 7}


def test_a_killed_run_is_told_to_have_been_killed(tmp_path):
    [ring] = recordings(tmp_path / "run", end="killed")
    assert "ends abruptly after step 60: the process was killed or the machine died" in \
        gradvane(tmp_path, "replay", ring).stdout


def test_replay_serves_the_page_and_the_api_of_the_run(tmp_path, failed):
    process = subprocess.Popen([sys.executable, "-m", "gradvane", "replay", "--serve", "--port", "0", failed[0]],
                               stdout=subprocess.PIPE, text=True, env=running.environment(), cwd=tmp_path)
    try:
        url = process.stdout.readline().strip()

        def fetch(path):
            with urllib.request.urlopen(url + path, timeout=20) as answer:
                return answer.read().decode()

        page = fetch("/")
        assert f"This is a recording: <code>{failed[0].name}</code>" in page
        assert "<h1>Failed after step 60: ValueError: loss is nan" in page
        assert 'http-equiv="refresh"' not in page
        status = json.loads(fetch("/api/v1/status"))
        assert status["recording"] == failed[0].name and status["state"] == "failed" and status["steps"] == 60
        params = json.loads(fetch("/api/v1/params?sort=worst&limit=1"))
        assert params["params"][0]["name"] == "blocks.0.mlp.weight"
        assert len(json.loads(fetch("/api/v1/steps"))["steps"]) == 60
        assert 'gradvane_incidents_total{rank="0",run="fake-gpt",class="nonfinite_grad"} 1\n' in fetch("/metrics")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_recording_is_served_under_the_names_that_are_allowed(failed):
    import gradvane._recording as native

    server = native.serve(str(failed[0]), "127.0.0.1", 0, "gpu-box.example")
    told = {}
    for host in ("localhost", "gpu-box.example", "rebind.attacker.example"):
        request = urllib.request.Request(server.url + "/-/healthy", headers={"Host": host})
        try:
            told[host] = urllib.request.urlopen(request, timeout=20).status
        except urllib.error.HTTPError as error:
            told[host] = error.code
    server.stop()
    assert told == {"localhost": 200, "gpu-box.example": 200, "rebind.attacker.example": 421}
    with pytest.raises(RuntimeError, match="without ports"):
        native.serve(str(failed[0]), "127.0.0.1", 0, "gpu-box:80")


def test_the_status_of_a_recording_keeps_the_schema(failed):
    jsonschema = pytest.importorskip("jsonschema", reason="make deps brings it")
    from referencing import Registry, Resource

    import gradvane._recording as native

    folder = Path(os.environ.get("GRADVANE_SOURCE_DIR", running.TESTS.parents[1])) / "docs" / "api"
    schemas = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    server = native.serve(str(failed[0]), "127.0.0.1", 0)
    with urllib.request.urlopen(server.url + "/api/v1/status", timeout=20) as answer:
        jsonschema.Draft202012Validator(schemas["status.schema.json"], registry=registry).validate(json.load(answer))
    server.stop()


def test_diff_says_where_two_runs_part(tmp_path, failed):
    [other] = recordings(tmp_path / "other", scale=3, end="killed")
    told = gradvane(tmp_path, "diff", failed[1], other).stdout
    assert "first different bit: step 31, gradient norm" in told
    assert "embedding.weight: gradient norm A 1.112, B 3.336, 3 times A\n" in told
    found = json.loads(gradvane(tmp_path, "diff", "--json", failed[1], other).stdout)
    assert found["first_beyond_tolerance"]["run_step"] == 31 and found["settings"] == []
    assert found["params"][0]["name"] == "embedding.weight"


def test_diff_compares_two_moments(tmp_path, failed):
    found = json.loads(gradvane(tmp_path, "diff", "--json", f"{failed[1]}@5", f"{failed[1]}@25").stdout)
    assert found["moment"] == {"a": 5, "b": 25} and found["params"]


def test_a_moment_is_a_number_behind_the_last_at_sign_of_no_file(tmp_path, monkeypatch):
    from gradvane.cli.diff import moment

    monkeypatch.chdir(tmp_path)
    assert moment("a.gvrec") == ("a.gvrec", None)
    assert moment("a@b.gvrec@12") == ("a@b.gvrec", 12)
    assert moment("a.gvrec@last") == ("a.gvrec@last", None)
    assert moment("@12") == ("@12", None)
    Path("run@7").touch()
    assert moment("run@7") == ("run@7", None)


@pytest.mark.parametrize(("words", "said"), [
    (["replay", "none.gvrec"], "gradvane replay: none.gvrec: cannot read it: No such file or directory"),
    (["replay", "."], "gradvane replay: .: this is a directory: name a file in it"),
    (["replay", "--json", "text"], "gradvane replay: text: this is no recording of Gradvane"),
    (["diff", "text@4", "text"], "gradvane diff: text: this is no recording of Gradvane"),
    (["replay"], "the following arguments are required: FILE"),
    (["replay", "--port", "70000", "text"], "--port is a number from 0 to 65535"),
    (["diff", "text"], "the following arguments are required: B[@STEP]"),
])
def test_what_is_wrong_is_said_on_the_standard_error(tmp_path, words, said):
    (tmp_path / "text").write_text("no recording")
    done = gradvane(tmp_path, *words, status=2)
    assert said in done.stderr and done.stdout == "" and "Traceback" not in done.stderr


def test_a_name_of_any_bytes_is_a_file(tmp_path, failed):
    odd = os.fsencode(tmp_path) + b"/\xff.gvrec"
    Path(os.fsdecode(odd)).write_bytes(failed[0].read_bytes())
    for words in (["replay", odd], ["diff", odd, odd]):
        done = subprocess.run([sys.executable, "-m", "gradvane", *words], capture_output=True,
                              env=running.environment(), cwd=tmp_path, timeout=60)
        assert done.returncode == 0 and done.stderr == b""
    done = subprocess.run([sys.executable, "-m", "gradvane", "replay", odd + b".none"], capture_output=True,
                          env=running.environment(), cwd=tmp_path, timeout=60)
    assert done.returncode == 2 and b"No such file" in done.stderr and b"Traceback" not in done.stderr


def test_a_port_that_cannot_be_had_is_said(tmp_path, failed):
    done = gradvane(tmp_path, "replay", "--serve", "--address", "192.0.2.1", failed[0], status=2)
    assert "gradvane replay: " in done.stderr and "Traceback" not in done.stderr


def test_neither_command_needs_torch(tmp_path, failed):
    done = running.python("-c", f"""if True:
        import sys
        sys.modules["torch"] = None  # importing it would fail
        from gradvane.cli.replay import main as replay
        from gradvane.cli.diff import main as diff
        print(replay([{str(failed[0])!r}]), diff([{str(failed[0])!r}, {str(failed[1])!r}]))
        print([name for name in sys.modules if name.startswith("torch.") or name == "gradvane._native"])
        """, cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == ["0 0", "[]"]


def test_a_reader_who_goes_is_no_error(tmp_path, failed):
    done = subprocess.run(f"{sys.executable} -m gradvane replay --steps {failed[1]} | head -1; exit ${{PIPESTATUS[0]}}",
                          shell=True, executable="/bin/bash", capture_output=True, text=True,
                          env=running.environment(), cwd=tmp_path, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
