"""A run that listens on a unix socket: who can ask it, what the commands say, and several runs and ranks at one path."""

import json
import os
import signal
import subprocess
import time

import pytest
import running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("unix")


def started(folder, *options, **environment):
    process = running.waiting(folder, "--address", f"unix:{folder}/run.sock", *options, **environment)
    assert process.stdout.readline() == "trained\n", process.communicate()[1]
    return process


def ended(process):
    return process.communicate("\n", timeout=60)[1]


@pytest.fixture
def run(folder):
    process = started(folder, "--run", "quiet")
    yield process
    process.kill()
    process.communicate()


def gradvane(folder, *words, check=True, **environment):
    return running.python("-m", "gradvane", *words, cwd=folder, check=check, TMPDIR=str(folder), **environment)


def curl(folder, path, *words):
    return subprocess.run(["curl", "-sS", "--max-time", "20", "--unix-socket", folder / "run.sock", *words, f"http://localhost{path}"],
                          capture_output=True, text=True)


def entry_of(folder, name, rank=0):
    (file,) = folder.glob(f"gradvane-*/{name}/endpoint.rank{rank}.json")
    return json.loads(file.read_text())


def test_everything_is_read_through_the_socket_and_no_port_is_open(folder, run):
    assert "gradvane_steps_total" in curl(folder, "/metrics").stdout
    assert json.loads(curl(folder, "/api/v1/status").stdout)["run"] == "quiet"
    assert "<title>" in curl(folder, "/").stdout
    assert (folder / "run.sock").stat().st_mode & 0o777 == 0o600
    inodes = {os.readlink(f"/proc/{run.pid}/fd/{name}") for name in os.listdir(f"/proc/{run.pid}/fd")}
    tcp = [line.split()[9] for line in (open("/proc/net/tcp").readlines() + open("/proc/net/tcp6").readlines())[1:]
           if line.split()[3] == "0A"]
    assert not {f"socket:[{inode}]" for inode in tcp} & inodes


def test_the_commands_find_it_by_name_and_by_address(folder, run):
    url = f"unix:{folder}/run.sock"
    assert entry_of(folder, "quiet")["url"] == url
    assert [(entry["url"], entry["answers"]) for entry in json.loads(gradvane(folder, "ls", "--json").stdout)
            if entry["run"] == "quiet"] == [(url, True)]
    for word in ("quiet", url):
        assert "quiet" in gradvane(folder, "status", word).stdout
    refused = gradvane(folder, "open", "quiet", check=False)
    assert refused.returncode == 2 and refused.stderr.startswith(f"gradvane open: {url} is a unix socket, which no browser opens")
    assert "quiet" not in gradvane(folder, "sd").stdout
    assert "which this user alone can open" in gradvane(folder, "doctor", check=False, GRADVANE_ADDRESS=url).stdout


def test_its_name_is_said_at_the_start_and_is_gone_at_the_end(folder):
    process = started(folder, "--run", "brief")
    assert f"run brief, rank 0: unix:{folder}/run.sock" in ended(process)
    assert not (folder / "run.sock").exists()
    gone = gradvane(folder, "status", f"unix:{folder}/run.sock", check=False)
    assert gone.returncode == 2 and f"no agent answers at unix:{folder}/run.sock: No such file or directory" in gone.stderr


def test_a_second_run_gets_a_name_beside_the_first_and_says_so(folder, run):
    said = ended(started(folder, "--run", "second"))
    assert f"unix:{folder}/run.sock is taken, using unix:{folder}/run.sock.1\n" in said
    assert json.loads(curl(folder, "/api/v1/status").stdout)["run"] == "quiet"


def test_what_a_killed_run_left_is_taken_over(folder):
    killed = started(folder, "--run", "killed")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    gone = gradvane(folder, "status", f"unix:{folder}/run.sock", check=False)
    assert "Connection refused" in gone.stderr
    process = started(folder, "--run", "later")
    assert json.loads(curl(folder, "/api/v1/status").stdout)["run"] == "later"
    ended(process)


def test_a_file_of_the_user_is_kept_and_the_script_runs(folder):
    (folder / "run.sock").write_text("mine")
    said = ended(started(folder, "--run", "barred"))
    assert f"{folder}/run.sock is there already and is no socket" in said
    assert (folder / "run.sock").read_text() == "mine"
    (folder / "run.sock").unlink()


def test_a_token_is_asked_for_where_one_is_set(folder):
    process = started(folder, "--run", "guarded", "--token", "auto")
    assert curl(folder, "/metrics", "-o", "/dev/null", "-w", "%{http_code}").stdout == "401"
    assert "guarded" in gradvane(folder, "status", f"unix:{folder}/run.sock").stdout
    ended(process)


def test_ranks_of_one_run_share_the_socket(folder):
    both = [started(folder, "--run", "ranks", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                    TORCHELASTIC_RUN_ID="shared") for rank in range(2)]
    metrics = curl(folder, "/metrics").stdout
    assert all(f'rank="{rank}"' in metrics for rank in range(2))
    assert entry_of(folder, "ranks", 1)["url"] == f"unix:{folder}/run.sock:/rank/1"
    for words in (("ranks", "--rank", "1"), (f"unix:{folder}/run.sock:/rank/1",)):
        assert json.loads(gradvane(folder, "status", *words, "--json").stdout)["rank"] == 1
    both[0].send_signal(signal.SIGKILL)
    both[0].communicate()
    until = time.monotonic() + 20
    while 'rank="1"' not in curl(folder, "/metrics").stdout:
        assert time.monotonic() < until, "the other rank has not taken over"
    ended(both[1])
    assert not (folder / "run.sock").exists()


def test_a_web_config_is_refused_with_what_to_do_and_the_script_runs(folder):
    (folder / "web.yml").write_text("rate_limit: {interval: 1s}\n")
    said = ended(started(folder, "--run", "both", "--web-config", "web.yml"))
    assert "web_config is for ports" in said and "leave web_config out, or set another address" in said
