"""`gradvane syncs` names the lines that make the CPU wait, and changes nothing else."""

import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import planted
import pytest
import running
from planted import BEGIN, CUDA, PLANTED, STEPS, TRAINING, documents, rows, syncs


def planted_sites(script):
    return [(f"{script.name}:{planted.line_of(script, mark)}", kind, per_step) for mark, kind, per_step in PLANTED]


def sites(found):
    return [(row.site, row.kind, row.per_step) for row in found]


def said(done):
    return [line for line in done.stderr.splitlines() if line.startswith("gradvane syncs: ")]


@pytest.mark.parametrize("way", ["injected", "agent"])
def test_the_planted_lines_are_named_in_the_order_of_time_lost(tmp_path, way):
    script = running.write(tmp_path, TRAINING)
    done = syncs("--", sys.executable, script, cwd=tmp_path, way=way)
    found = rows(done.stderr)
    assert sites(found) == planted_sites(script)
    assert [row.calls for row in found] == [STEPS, STEPS, planted.SELDOM]
    assert 0 < found[0].share < 100 and all(0 <= row.share < 100 for row in found)
    assert re.search(rf"^train, pid \d+: {STEPS} steps, {2 * STEPS + planted.SELDOM} host syncs, 2\.5 per step, the CPU blocked for [\d.]+ m?s in all$",
                     done.stderr, re.MULTILINE)
    assert "Gradvane's own: 0 host syncs; budget 0 per step, no step had more" in done.stderr
    assert done.stdout.startswith("trained ")


@pytest.mark.parametrize("way", ["injected", "agent"])
def test_as_json_the_standard_output_is_json_alone(tmp_path, way):
    script = running.write(tmp_path, TRAINING)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path, way=way)
    (document,) = documents(done)
    assert (document["steps"], document["reason"]) == (STEPS, "counting")
    assert document["source"] == ("shared" if way == "injected" else "cupti")
    assert [(site["location"], site["kind"], site["calls_per_step"]) for site in document["sites"]] == \
        planted_sites(script)
    assert {site["file"] for site in document["sites"]} == {str(script)}
    assert "trained " in done.stderr and "time blocked" not in done.stderr


def test_a_module_is_watched_too_and_places_that_are_not_shown_are_added_up(tmp_path):
    script = running.write(tmp_path, TRAINING)
    done = syncs("--top", 1, "--", sys.executable, "-u", "-W", "ignore", "-m", "train", cwd=tmp_path)
    assert [row.site for row in rows(done.stderr)] == [f"train.py:{planted.line_of(script, 'always')}"]
    assert re.search(rf"^  2 more places +{STEPS + planted.SELDOM} +1\.5 +[\d.]+ ms +[\d.]+ %", done.stderr, re.MULTILINE)


WHO_AM_I = CUDA + """
    import __main__, torch
    cuda.fake_item(100)
    print(sys.argv, __name__, __file__, sys.path[0], os.getcwd(), sys.stdin.read())
    sys.stderr.write("said\\n")
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ValueError('seven')", "os._exit(4)", "os.abort()"])
def test_a_script_sees_itself_and_ends_as_under_python(tmp_path, ending):
    script = running.write(tmp_path, WHO_AM_I + f"    {ending}\n")
    env = running.environment(**planted.ways("injected"))
    words = [script, "--budget", "7", "--", "--json", "-m", "x"]
    plain, ours = (subprocess.run([sys.executable, *before, *words], cwd=tmp_path, env=env, input="fed", text=True,
                                  capture_output=True, timeout=120)
                   for before in ([], ["-m", "gradvane", "syncs", "--", sys.executable]))
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert "fed" in plain.stdout and ours.stderr.startswith(plain.stderr)


@pytest.mark.parametrize(("budget", "status", "sentence"), [
    # A copy that blocked may have waited for the GPU, or not: it spends no budget.
    (2, 0, r"within the budget of 2 per step: at most 2, in step 11"),
    (1, 3, r"over the budget of 1 per step: 4 steps had more, at most 2 in step 11"),
])
def test_a_job_can_be_held_to_a_budget(tmp_path, budget, status, sentence):
    script = running.write(tmp_path, TRAINING)
    for more in ([], ["--fail"]):
        done = syncs("--budget", budget, *more, "--", sys.executable, script, cwd=tmp_path, check=False)
        assert done.returncode == (status if more else 0)
        assert re.search(f"^{sentence}$", done.stderr, re.MULTILINE)
        assert len(said(done)) == (1 if more and status else 0)


@pytest.mark.parametrize(("source", "why", "extra"), [
    ("print('hello')", "nothing was counted", {}),
    (BEGIN + "\n    train(4)", "all steps were among the first", {}),
    (CUDA + "\n    cuda.fake_item(100)", "no steps were seen", {}),
    (BEGIN + "\n    train(12)", "GRADVANE_SYNC=off", {"GRADVANE_SYNC": "off"}),
    (CUDA + "    cuda.fake_take_by(b'nsys')" + BEGIN + "\n    train(12)", "another tool has", {}),
])
def test_what_cannot_be_seen_does_not_pass(tmp_path, source, why, extra):
    if "take_by" in source:  # before the driver brings us
        source = source.replace('    if "FAKE_DRIVER" in os.environ:\n        ctypes.CDLL("libcuda.so.1").cuInit(0)\n', "", 1)
    script = running.write(tmp_path, source)
    done = syncs("--budget", 9, "--fail", "--", sys.executable, script, cwd=tmp_path, check=False, **extra)
    assert done.returncode == 3
    assert "could not be judged" in said(done)[-1] and why in said(done)[-1]
    failing = running.write(tmp_path, source + "\n    sys.exit(5)" if source.startswith("\n") else "exit(5)", "other.py")
    done = syncs("--budget", 9, "--fail", "--", sys.executable, failing, cwd=tmp_path, check=False, **extra)
    assert done.returncode == 5  # the program's own failure comes first


@pytest.mark.parametrize("how", ["spawn", "subprocess"])
def test_a_child_that_trains_is_counted_for_itself(tmp_path, how):
    train = running.write(tmp_path, BEGIN + f"""
    if __name__ == "__main__" and "spawn" not in sys.argv:
        train({STEPS})
    """)
    child = "import subprocess, sys; subprocess.run([sys.executable, 'train.py'], check=True)"
    if how == "spawn":
        child = "\n".join(["import multiprocessing as mp, train", "if __name__ == '__main__':",
                           f"    child = mp.get_context('spawn').Process(target=train.train, args=({STEPS},))",
                           "    child.start(); child.join(); assert child.exitcode == 0"])
    running.write(tmp_path, child, "parent.py")
    done = syncs("--", sys.executable, "parent.py", "spawn" if how == "spawn" else "", cwd=tmp_path)
    found = rows(done.stderr)
    assert [row.site for row in found] == [site for site, *_ in planted_sites(train)]
    assert [row.per_step for row in found] == ([1.0, 1.0, 0.5] if how == "spawn" else [None] * 3)
    assert ("calls per step are not known" in done.stderr) == (how == "subprocess")


PROGRAM = """
#include <dlfcn.h>
void (*synchronize)(long);
__attribute__((noinline)) void wait_for_results(void) { synchronize(3000); __asm__(""); }
int main(int argc, char **argv) {
  ((int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit"))(0);
  synchronize = (void (*)(long))dlsym(dlopen(argv[1], RTLD_NOW), "fake_synchronize");
  for (int i = 0; i < 5; ++i) wait_for_results();
  return 6;
}
"""


def test_a_program_in_c_is_counted_and_its_function_named(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    (tmp_path / "program.c").write_text(PROGRAM)
    subprocess.run([compiler, "-O1", "-rdynamic", "program.c", "-o", "program", "-ldl"], cwd=tmp_path, check=True)
    done = syncs("./program", planted.FAKE, cwd=tmp_path, check=False)
    assert done.returncode == 6
    (row,) = rows(done.stderr)
    assert row.site.startswith("program!wait_for_results") or row.site == "program!wait_for_results"
    assert (row.kind, row.calls, row.per_step) == ("device", 5, None)
    assert re.search(r"^program, pid \d+: 5 host syncs, ", done.stderr, re.MULTILINE)


ENDING = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
void *cuda;
void look(void) {
  printf("at exit %d %d\\n", ((int (*)(void))dlsym(cuda, "fake_is_subscribed"))(), ((int (*)(void))dlsym(cuda, "fake_dead_handles"))());
}
int main(int argc, char **argv) {
  atexit(look);  /* what is registered first is called last */
  cuda = dlopen(argv[1], RTLD_NOW);
  ((int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit"))(0);
  ((void (*)(long))dlsym(cuda, "fake_synchronize"))(3000);
  printf("before %d\\n", ((int (*)(void))dlsym(cuda, "fake_is_subscribed"))());
  return 0;
}
"""


def test_nobody_is_subscribed_any_more_when_a_process_ends(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    (tmp_path / "program.c").write_text(ENDING)
    subprocess.run([compiler, "program.c", "-o", "program", "-ldl"], cwd=tmp_path, check=True)
    done = syncs("./program", planted.FAKE, cwd=tmp_path)
    assert done.stdout == "before 1\nat exit 0 0\n"
    (row,) = rows(done.stderr)
    assert (row.kind, row.calls) == ("device", 1)


def test_what_a_killed_program_said_last_is_still_told(tmp_path):
    # The report is written once a second, and a copy counts when no wait has followed it for a second.
    script = running.write(tmp_path, BEGIN + f"\n    train({STEPS})\n    import time; time.sleep(6)\n    os.kill(os.getpid(), 9)")
    done = syncs("--", sys.executable, script, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert "the program died by SIGKILL" in said(done)[0]
    assert sorted(sites(rows(done.stderr))) == sorted(planted_sites(script))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_program_and_the_table_is_still_told(tmp_path, number):
    script = running.write(tmp_path, BEGIN + f"\n    train({STEPS})\n    print('up', flush=True)\n    import time; time.sleep(60)")
    child = subprocess.Popen([sys.executable, "-m", "gradvane", "syncs", "--", sys.executable, script], cwd=tmp_path,
                             env=running.environment(**planted.ways("injected")), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert child.stdout.readline() == "up\n"
    child.send_signal(number)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == -number
    assert sorted(sites(rows(stderr))) == sorted(planted_sites(script))


def test_every_signal_that_would_end_a_process_reaches_the_program(tmp_path):
    numbers = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGHUP, signal.SIGABRT, signal.SIGRTMIN + 1]
    script = running.write(tmp_path, f"""
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {[int(number) for number in numbers]})
        print("up", flush=True)
        while True:
            print(signal.sigwait({[int(number) for number in numbers]}) + 0, flush=True)
        """)
    child = subprocess.Popen([sys.executable, "-m", "gradvane", "syncs", "--", sys.executable, script], cwd=tmp_path,
                             env=running.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout.readline() == "up\n"
    for number in numbers:
        child.send_signal(number)
        assert int(child.stdout.readline()) == number
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGTERM


def test_an_alarm_that_was_set_before_the_start_ends_the_program(tmp_path):
    child = subprocess.Popen([sys.executable, "-m", "gradvane", "syncs", "--", "sleep", "60"], cwd=tmp_path,
                             env=running.environment(), stderr=subprocess.DEVNULL,
                             preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 3))
    assert child.wait(timeout=50) == -signal.SIGALRM


def test_a_grandchild_that_stays_does_not_change_the_exit_status(tmp_path):
    stays = 'while [ "$i" -lt 100000 ] && : > "$GRADVANE_SYNC_REPORT$i"; do i=$((i + 1)); done'
    done = syncs("sh", "-c", f"i=0; ({stays}) 2> /dev/null & sleep 0.2; exit 5", cwd=tmp_path, check=False, TMPDIR=str(tmp_path))
    assert done.returncode == 5 and "Traceback" not in done.stderr


def test_what_is_typed_at_a_terminal_reaches_the_program_once(tmp_path):
    script = running.write(tmp_path, """
        import signal, sys, time
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        print("up", flush=True)
        while not seen:
            time.sleep(0.05)
        time.sleep(0.5)
        sys.exit(10 + len(seen))
        """)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "gradvane", "syncs", "--", sys.executable, str(script)],
                  running.environment())
    heard = b""
    try:
        while b"up" not in heard:
            heard += os.read(terminal, 1024)
        os.write(terminal, b"\x03")
        while True:
            heard += os.read(terminal, 1024)
    except OSError:  # its end
        pass
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 11, heard


def test_another_tool_that_has_cupti_is_named(tmp_path):
    script = running.write(tmp_path, """
        import ctypes, os
        ctypes.CDLL(os.environ["FAKE_CUDA"]).fake_take_by(b"CUPTI for nsys")
        """ + TRAINING.replace("\n    ", "\n        "))
    done = syncs("--", sys.executable, script, cwd=tmp_path)
    assert re.search(r"^train, pid \d+: host syncs were not counted: another tool has the one CUPTI subscription of "
                     r"this process \(by CUPTI for nsys\)$", done.stderr, re.MULTILINE)
    assert rows(done.stderr) == [] and done.stdout.startswith("trained ")


def test_a_tool_that_ends_cupti_leaves_a_gap_that_is_told(tmp_path):
    script = running.write(tmp_path, BEGIN + """
    import time
    train(12)
    cuda.fake_finalize()
    time.sleep(2.2)
    train(4)
    print("trained")
    """)
    done = syncs("--budget", 3, "--fail", "--", sys.executable, script, cwd=tmp_path, check=False)
    assert done.stdout == "trained\n" and done.returncode == 3
    assert "at the end host syncs were not counted any more: CUPTI does not call Gradvane back any more (perhaps ended by another tool)" in done.stderr
    assert re.search(r"^not counted: \S+ \w+ beside the \S+ \w+ that were counted, counting stopped once$",
                     done.stderr, re.MULTILINE)
    assert "the budget could not be judged throughout: CUPTI does not call Gradvane back" in said(done)[-1]
    assert sorted(row.calls for row in rows(done.stderr)) == [6, 12, 12], "in the order of their time, which is the machine's"


def test_a_program_without_cuda_is_told_apart_from_one_that_never_waits(tmp_path):
    nothing = f"no process left a report: none used CUDA, or the driver could not load {planted.LIBRARY}"
    done = syncs("--", "sh", "-c", "echo hello", cwd=tmp_path)
    assert (done.stdout, said(done)) == ("hello\n", [f"gradvane syncs: {nothing}"])
    done = syncs("--", sys.executable, running.write(tmp_path, TRAINING), cwd=tmp_path, way="")
    assert said(done) == ["gradvane syncs: the one process that left a report did not use CUDA"]
    done = syncs("--", sys.executable, running.write(tmp_path, CUDA + "    cuda.fake_poll()\n"), cwd=tmp_path)
    assert re.search(r"^\w+, pid \d+: 0 host syncs, the CPU blocked for 0 us in all$", done.stderr, re.MULTILINE)
    (document,) = documents(syncs("--json", "true", cwd=tmp_path))
    assert (document["source"], document["reason"], document["detail"]) == ("none", "no_report", nothing)
    (document,) = documents(syncs("--json", "--", sys.executable, running.write(tmp_path, TRAINING), cwd=tmp_path, way=""))
    assert (document["source"], document["reason"]) == ("none", "no_cuda")


def test_an_injection_of_somebody_elses_stays_and_the_agent_counts(tmp_path):
    script = running.write(tmp_path, TRAINING)
    extra = {**planted.ways("agent"), "GRADVANE_INJECT_LIBRARY": "", "CUDA_INJECTION64_PATH": "/opt/theirs.so"}
    done = syncs("--", sys.executable, script, cwd=tmp_path, way="agent", **extra)
    assert said(done) == ["gradvane syncs: CUDA_INJECTION64_PATH is /opt/theirs.so already, so the program is not injected"]
    assert len(rows(done.stderr)) == 3


def test_without_the_library_to_inject_the_agent_counts_alone(tmp_path):
    script = running.write(tmp_path, TRAINING)
    done = syncs("--", sys.executable, script, cwd=tmp_path, way="agent")
    assert said(done) == ["gradvane syncs: /nowhere/libgradvane_inject.so is not there, so the program is not injected"]
    assert len(rows(done.stderr)) == 3
    done = syncs("true", cwd=tmp_path, way="agent")
    assert "no process left a report: without injection only those with an agent of Gradvane do" in said(done)[-1]


def test_metrics_are_served_while_any_program_runs(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    source = f"import ctypes, sys; ctypes.CDLL('libcuda.so.1').cuInit(0); c = ctypes.CDLL({str(planted.FAKE)!r}); " \
             "c.fake_item(1000); c.fake_synchronize(1000); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-m", "gradvane", "syncs", "--port", str(port), "--", sys.executable, "-c",
                              source], cwd=tmp_path, env=running.environment(**planted.ways("injected")),
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kinds, deadline = set(), time.monotonic() + 30
    while kinds != {"d2h_read", "device"} and time.monotonic() < deadline:
        time.sleep(0.2)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue
        kinds = {kind for kind, value in re.findall(
            r'gradvane_host_syncs_total\{[^}]*kind="(\w+)"[^}]*origin="training"[^}]*\} (\d+)', text) if int(value)}
    child.communicate(timeout=60)
    assert kinds == {"d2h_read", "device"} and child.returncode == 0


@pytest.mark.parametrize(("words", "what"), [
    ([], "which program?"), (["--"], "which program?"), (["--fail", "--", "true"], "--fail needs a --budget"),
    (["--budget", "-1", "--", "true"], "-1 is not 0 or more"), (["--top", "-3", "true"], "-3 is not 0 or more"),
    (["--budget", "few", "true"], "few is no whole number"), (["--top", "2147483648", "true"], "is too much"), (["--port", "70000", "true"], "-1 to 65535"),
    (["--bugdet", "1", "true"], "--bugdet"),
])
def test_a_command_line_that_makes_no_sense_is_refused(tmp_path, words, what):
    done = syncs(*words, cwd=tmp_path, check=False)
    assert done.returncode == 2 and what in done.stderr and "usage: gradvane syncs" in done.stderr


def test_a_program_that_cannot_be_started_ends_as_in_a_shell(tmp_path):
    done = syncs("--", "no-such-program", cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (127, "gradvane syncs: no-such-program: No such file or directory\n")
    running.write(tmp_path, "x", "data")
    done = syncs("--", "./data", cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (126, "gradvane syncs: ./data: Permission denied\n")


@pytest.mark.parametrize("way", ["injected", "agent"])
def test_what_a_compiler_has_written_is_passed_over_for_the_line_that_calls_it(tmp_path, way):
    cache = tmp_path / "cache" / "ab"
    cache.mkdir(parents=True)
    (cache / "generated.py").write_text("def call(cuda):\n    cuda.fake_item(20000)\n")
    script = running.write(tmp_path, TRAINING.replace("    def train(steps):", f"""
    sys.path.insert(0, {str(cache)!r})
    import generated
    def train(steps):""").replace("            cuda.fake_item(20000)  # always", "            generated.call(cuda)  # always"))
    assert "generated.call" in script.read_text()
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path, way=way,
                 TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    (document,) = documents(done)
    assert f"train.py:{planted.line_of(script, 'always')}" in [site["location"] for site in document["sites"]]
    assert all("generated" not in site["location"] for site in document["sites"])
