"""Commands that find live runs on this machine: ls, open, sd, status and top by name; dead runs are never listed."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
import running

from gradvane.cli import addresses, live_runs, sd
from gradvane.cli.ls import age

TRAIN = """
    import sys, time, torch
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        (loss * float("nan") if step == 2 and "--poison" in sys.argv else loss).backward()
        optimizer.step()
    print("trained", flush=True)
    sys.stdin.readline()
"""


class Training:
    """`gradvane run train.py`, which waits after three steps."""

    def __init__(self, folder, *options, name="train", words=(), **environment):
        script = folder / f"{name}.py"
        if not script.exists():
            running.write(folder, TRAIN, script.name)
        self.process = running.start("-m", "gradvane", "run", *options, script, *words, cwd=folder, TMPDIR=str(folder), **environment)
        assert self.process.stdout.readline() == "trained\n", self.process.communicate()[1]

    def end(self):
        self.process.communicate("\n", timeout=60)


@contextlib.contextmanager
def trainings(*all_of_them):
    try:
        yield all_of_them
    finally:
        for one in all_of_them:
            one.process.kill()
            one.process.communicate()


def gradvane(folder, *words, check=True, **environment):
    return running.python("-m", "gradvane", *words, cwd=folder, check=check, TMPDIR=str(folder), **environment)


def listed(folder, name=None):
    """Of this test: other tests of this user may train at the same time."""
    found = json.loads(gradvane(folder, "ls", "--json").stdout)
    return [entry for entry in found if entry["directory"].startswith(str(folder)) and name in (None, entry["run"])]


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


# ---- which runs are live ---------------------------------------------------------------------------


def test_ls_lists_live_runs_alone(tmp_path):
    with trainings(Training(tmp_path, "--run", "one"), Training(tmp_path, "--run", "two")) as (one, two):
        wait_for(lambda: all(entry["step"] == 3 for entry in listed(tmp_path)))
        entries = listed(tmp_path)
        assert [(entry["run"], entry["rank"], entry["state"], entry["pid"], entry["answers"]) for entry in entries] == [
            ("one", 0, "running", one.process.pid, True), ("two", 0, "running", two.process.pid, True)]
        table = gradvane(tmp_path, "ls").stdout.splitlines()
        assert table[0].split() == ["RUN", "RANK", "STATE", "STEP", "AGE", "URL"]
        [row] = [line for line in table if line.startswith("one ")]
        assert re.fullmatch(r"one +0 of 1 +running +3 +\d+s +http://127\.0\.0\.1:\d+", row)
        assert {"one", "two"} <= set(gradvane(tmp_path, "ls", "--names").stdout.split())
        one.end()
        two.process.kill()  # its file says for ever that it is running
        two.process.communicate()
        assert listed(tmp_path) == []
        files = sorted(tmp_path.glob("gradvane-*/*/endpoint.rank0.json"))
        assert [json.loads(file.read_text())["state"] for file in files] == ["finished", "running"]


def test_a_process_that_does_not_answer_is_live_as_long_as_it_is_there(tmp_path):
    with trainings(Training(tmp_path, "--run", "stopped")) as (training,):
        os.kill(training.process.pid, signal.SIGSTOP)
        [entry] = listed(tmp_path)
        assert (entry["answers"], entry["step"]) == (False, None)
        assert "no answer" in gradvane(tmp_path, "ls").stdout


def endpoint_file(folder, **changed):
    values = {"url": "http://127.0.0.1:9", "pid": os.getpid(), "run": "x", "run_id": "y", "rank": 0, "local_rank": 0,
              "world_size": 1, "state": "running", "version": "0", "started": time.time(), **changed}
    run = folder / f"gradvane-{os.geteuid()}" / "x"
    run.mkdir(parents=True, exist_ok=True)
    path = run / "endpoint.rank0.json"
    path.write_text(json.dumps(values))
    return path


def found_in(monkeypatch, folder):
    monkeypatch.setenv("TMPDIR", str(folder))
    return [entry for entry in live_runs.live_runs() if entry.directory.startswith(str(folder))]


def test_a_process_that_got_the_number_of_a_dead_one_is_not_taken_for_it(tmp_path, monkeypatch):
    endpoint_file(tmp_path)
    assert [entry.run for entry in found_in(monkeypatch, tmp_path)] == ["x"]
    endpoint_file(tmp_path, started=time.time() - 7 * 24 * 3600)  # before this process began
    assert found_in(monkeypatch, tmp_path) == []
    endpoint_file(tmp_path, state="finished")
    assert found_in(monkeypatch, tmp_path) == []


def test_a_process_of_another_machine_is_not_looked_for_on_this_one(tmp_path, monkeypatch):
    endpoint_file(tmp_path, host=socket.gethostname())
    assert len(found_in(monkeypatch, tmp_path)) == 1
    endpoint_file(tmp_path, host="another")  # its directory is shared, and this process has the number by chance
    assert found_in(monkeypatch, tmp_path) == []


def test_the_run_directory_of_the_environment_is_looked_in(tmp_path, monkeypatch):
    run = endpoint_file(tmp_path).parent
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    monkeypatch.setenv("GRADVANE_RUN_DIR", str(run))
    assert "x" in [entry.run for entry in live_runs.live_runs()]
    monkeypatch.delenv("GRADVANE_RUN_DIR")
    assert "x" not in [entry.run for entry in live_runs.live_runs()]
    assert addresses.url_of("x", directories=[str(run)]) == "http://127.0.0.1:9"


@pytest.mark.parametrize("changed", [
    {"url": "file:///etc/passwd"}, {"pid": "many"}, {"rank": None}, {"url": ""}, {"rank": float("inf")},
    {"url": "http://127.0.0.1:99999"}, {"url": "http://127.0.0.1:x"}, {"url": "http://[::1"}])
def test_a_file_that_makes_no_sense_is_no_run(tmp_path, monkeypatch, changed):
    endpoint_file(tmp_path, **changed)
    assert found_in(monkeypatch, tmp_path) == []


def test_a_link_a_pipe_and_a_file_that_is_no_json_are_no_runs(tmp_path, monkeypatch):
    path = endpoint_file(tmp_path)
    real = path.rename(tmp_path / "real.json")
    path.symlink_to(real)
    os.mkfifo(path.with_name("endpoint.rank1.json"))
    path.with_name("endpoint.rank2.json").write_text("[" * 100_000)
    assert found_in(monkeypatch, tmp_path) == []


# ---- two runs of one script ------------------------------------------------------------------------


def test_two_runs_of_one_script_at_once_have_two_names(tmp_path):
    with trainings(Training(tmp_path), Training(tmp_path), Training(tmp_path, "--run", "train")) as (_, second, named):
        entries = {entry["pid"]: entry for entry in listed(tmp_path)}
        assert len({entry["run_id"] for entry in entries.values()}) == 3
        other = entries[second.process.pid]
        assert other["run"] == f"train-{other['run_id']}"
        assert entries[named.process.pid]["run"] == "train", "a name that was given is kept"
        second.process.stdin.write("\n")
        second.process.stdin.flush()
        said = second.process.stderr.read()
        assert "a run with the default name is live on this machine" in said and other["run"] in said


def test_ranks_of_one_run_share_its_name_and_its_id(tmp_path):
    # Other tests of this user train at the same time, so a name that commands look up is this test's own.
    srun = {"name": "ranked", "SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    ranks = [Training(tmp_path, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **srun) for rank in range(2)]
    with trainings(*ranks), trainings(Training(tmp_path, SLURM_PROCID="1", **{**srun, "SLURM_JOB_ID": "1235"})):
        assert [(entry["run"], entry["run_id"], entry["rank"], entry["world_size"]) for entry in listed(tmp_path)] == [
            ("ranked", "1234.0", 0, 2), ("ranked", "1234.0", 1, 2), ("ranked-1235.0", "1235.0", 1, 2)]
        one = gradvane(tmp_path, "status", "1234.0", "--rank", "1", "--json").stdout
        assert json.loads(one)["rank"] == 1
        assert json.loads(gradvane(tmp_path, "status", "ranked", "--json").stdout)["rank"] == 0
        refused = gradvane(tmp_path, "status", "ranked", "--rank", "7", check=False)
        assert refused.returncode == 2
        assert refused.stderr == "gradvane status: no rank 7 of this run is live on this machine; there is 0, 1\n"


def test_programs_of_one_slurm_step_are_runs_of_their_own(tmp_path):
    srun = {"SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    with trainings(*(Training(tmp_path, **srun) for _ in range(3))) as all_of_them:
        entries = {entry["pid"]: entry for entry in listed(tmp_path)}
        first, *others = (entries[one.process.pid] for one in all_of_them)
        assert (first["run"], first["run_id"]) == ("train", "1234.0")
        assert all(entry["run"] == f"train-{entry['run_id']}" for entry in others)
        assert len({entry["run_id"] for entry in entries.values()}) == 3
    named = {**srun, "GRADVANE_RUN_ID": "mine"}
    with trainings(*(Training(tmp_path, **named) for _ in range(2))):
        assert {(entry["run"], entry["run_id"]) for entry in listed(tmp_path)} == {("train", "mine")}


# ---- names instead of addresses --------------------------------------------------------------------


def test_a_name_stands_for_an_address(tmp_path):
    with trainings(Training(tmp_path, "--run", "gpt")):
        url = listed(tmp_path)[0]["url"]
        assert gradvane(tmp_path, "open", "gpt").stdout == f"{url}/\n"
        assert json.loads(gradvane(tmp_path, "status", "gpt", "--json").stdout)["run"] == "gpt"
        assert gradvane(tmp_path, "status", "gpt").stdout == gradvane(tmp_path, "status", url).stdout
        unknown = gradvane(tmp_path, "top", "gpt2", check=False)
        assert unknown.returncode == 2
        assert unknown.stderr.startswith("gradvane top: no live run on this machine is called 'gpt2'; live are: ")


def test_the_browser_is_opened_only_if_there_is_a_graphical_one(tmp_path):
    browser = running.write(tmp_path, f"""
        #!{sys.executable}
        import pathlib, sys
        pathlib.Path({str(tmp_path / "opened")!r}).write_text(sys.argv[1])
        """, "browser").rename(tmp_path / "my-browser")
    browser.write_text(browser.read_text().lstrip())
    browser.chmod(0o755)
    url = "http://127.0.0.1:9/"
    none = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    assert gradvane(tmp_path, "open", "127.0.0.1:9", **none).stdout == url + "\n"
    assert not (tmp_path / "opened").exists()
    gradvane(tmp_path, "open", "127.0.0.1:9", **{**none, "BROWSER": str(browser)})
    assert wait_for(lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text()) == url


@pytest.mark.parametrize(("word", "url"), [
    ("http://node7:9464/", "http://node7:9464"), ("node7:9464", "http://node7:9464"), ("localhost", "http://localhost"),
    ("[::1]:9464", "http://[::1]:9464"), ("https://x", "https://x")])
def test_an_address_is_not_looked_up(word, url, monkeypatch):
    monkeypatch.setattr(addresses, "live_runs", lambda _: pytest.fail("runs were looked for"))
    assert addresses.url_of(word) == url


def run_of(name, run_id="a", rank=0, url="http://127.0.0.1:1"):
    return live_runs.LiveRun(name, run_id, rank, 2, url, url, "", 1, "running", 0.0, "/")


def test_without_a_word_the_only_run_is_meant(monkeypatch):
    found = []
    monkeypatch.setattr(addresses, "live_runs", lambda _: found)
    assert addresses.url_of(None) == "http://127.0.0.1:9464"
    found[:] = [run_of("x", rank=1, url="http://127.0.0.1:2"), run_of("x")]
    assert addresses.url_of(None) == "http://127.0.0.1:1", "of the lowest rank"
    assert addresses.url_of(None, 1) == "http://127.0.0.1:2"
    found.append(run_of("y", "b"))
    with pytest.raises(addresses.UnknownRunError, match=r"2 runs are live, so give one of their names: x \(a\), y \(b\)"):
        addresses.url_of(None)
    found[:] = [run_of("x", "a"), run_of("x", "b", url="http://127.0.0.1:3")]
    with pytest.raises(addresses.UnknownRunError, match=r"x \(a\), x \(b\)"):
        addresses.url_of("x")
    assert addresses.url_of("b") == "http://127.0.0.1:3"


def test_an_age_has_two_parts_at_most():
    assert [age(s) for s in (-1, 59, 60, 3599, 3700, 90_000)] == ["0s", "59s", "1m", "59m", "1h 1m", "1d 1h"]


# ---- sd --------------------------------------------------------------------------------------------


def mine(targets, name):
    return [group for group in targets if group["labels"]["__meta_gradvane_run"] == name]


def test_sd_writes_a_file_of_targets_and_keeps_it_up_to_date(tmp_path):
    out = tmp_path / "targets.json"
    with trainings(Training(tmp_path, "--run", "sd-one")) as (training,):
        [entry] = listed(tmp_path)
        gradvane(tmp_path, "sd", "--out", "targets.json")
        assert mine(json.loads(out.read_text()), "sd-one") == [
            {"targets": [entry["url"].removeprefix("http://")],
             "labels": {"__meta_gradvane_run": "sd-one", "__meta_gradvane_run_id": entry["run_id"],
                        "__meta_gradvane_rank": "0", "__meta_gradvane_world_size": "1"}}]
        assert out.stat().st_mode & 0o444 == 0o444, "Prometheus is another user"
        watch = subprocess.Popen([sys.executable, "-m", "gradvane", "sd", "--out", out, "--watch", "0.2"], cwd=tmp_path,
                                 env=running.environment(TMPDIR=str(tmp_path)))
        try:
            training.end()
            wait_for(lambda: not mine(json.loads(out.read_text()), "sd-one"))  # and it is whole whenever it is read
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(timeout=30) == 0
        finally:
            watch.kill()
    assert not list(tmp_path.glob(".targets*"))


def test_a_disk_that_is_full_for_a_while_does_not_end_the_watch(tmp_path, monkeypatch, capsys):
    full = OSError(28, "No space left on device")
    texts, failures = iter(["1", "2", "2", "2", "2"]), iter([None, full, full, None])
    over = iter([False] * 4 + [True])
    written = []

    def replace(path, text):
        if failure := next(failures):
            raise failure
        written.append(text)

    monkeypatch.setattr(sd, "_replace", replace)
    monkeypatch.setattr(sd, "_until_told", lambda: contextlib.nullcontext(SimpleNamespace(wait=lambda _: next(over))))
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    sd._watch("targets.json", 1.0, lambda: next(texts))
    assert written == ["1", "2"], "and not again while nothing changes"
    assert capsys.readouterr().err == "gradvane sd: targets.json: No space left on device; it will be tried again\n"


def answer_to(url, host):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_sd_answers_http(tmp_path):
    with trainings(Training(tmp_path, "--run", "sd-http")):
        server = subprocess.Popen([sys.executable, "-m", "gradvane", "sd", "--http", "0", "--address", "node7"], cwd=tmp_path,
                                  env=running.environment(TMPDIR=str(tmp_path)), stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline())[0]
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.headers["Content-Type"] == "application/json"
                [group] = mine(json.load(answer), "sd-http")
            assert re.fullmatch(r"node7:\d+", group["targets"][0])
            for host, status in (("localhost:1", 200), ("[::1]:1", 200), (socket.gethostname(), 200), ("evil.example", 403)):
                assert answer_to(url, host) == status, host
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0
        finally:
            server.kill()


def test_an_address_of_six_parts_gets_brackets():
    entry = run_of("x", url="http://[::1]:9464")
    assert sd._target(entry, None)["targets"] == ["[::1]:9464"]
    assert sd._target(entry, "fe80::1")["targets"] == ["[fe80::1]:9464"]


@pytest.mark.parametrize(("words", "told"), [
    (("--http", "many"), "many is not a number from 0 to 65535"),
    (("--http", "1", "--out", "x"), "not allowed with"),
    (("--watch",), "--watch needs --out FILE"),
    (("--out", "x", "--watch", "soon"), "soon is not a number"),
    (("--out", "none/x"), "none/x: No such file or directory"),
])
def test_sd_says_what_is_wrong_with_its_words(tmp_path, words, told):
    done = gradvane(tmp_path, "sd", *words, check=False)
    assert done.returncode == 2 and told in done.stderr


# ---- status --check ----------------------------------------------------------------------------------


def test_status_check_fails_for_a_critical_incident_and_for_nobody(tmp_path):
    with trainings(Training(tmp_path, "--run", "good"), Training(tmp_path, "--run", "bad", words=("--poison",))):
        done = gradvane(tmp_path, "status", "--check", "good")
        assert done.stdout == "good, rank 0: running\n"
        bad = wait_for(lambda: (done := gradvane(tmp_path, "status", "--check", "bad", check=False)).returncode and done)
        assert bad.returncode == 1
        assert bad.stdout == "bad, rank 0: nonfinite_loss since step 3\n"
    gone = gradvane(tmp_path, "status", "--check", "http://127.0.0.1:9", check=False)
    assert gone.returncode == 1 and "no agent answers" in gone.stderr


def test_a_stalled_and_a_failed_run_are_problems_and_closed_incidents_are_not():
    from gradvane.cli.terminal import problems

    assert problems({"state": "running", "incidents": []}) == []
    assert problems({"state": "stalled"}) == ["stalled"]
    assert problems({"state": "failed", "reason": "ValueError: x"}) == ["failed (ValueError: x)"]
    incident = {"class": "nonfinite_grad", "first_step": 7}
    assert problems({"state": "running", "incidents": [incident]}) == ["nonfinite_grad since step 7"]
    assert problems({"state": "running", "incidents": [{**incident, "closed_at": 1.0}]}) == []
    assert problems({"state": "running", "incidents": [{"class": "loss_spike"}, {"class": "new"}]}) == []
