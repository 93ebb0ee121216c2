"""Signals, children and the end of the process: with an agent they are what they are without one."""

import concurrent.futures
import signal
import time

import pytest
import running

TRAINING = """
import ctypes, multiprocessing, os, signal, sys, threading, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()

def address_of(name):
    return ctypes.cast(getattr(libc, name), ctypes.c_void_p)

def agents_threads():
    names = {int(task): open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
    return {name: task for task, name in names.items() if name.startswith("gradvane")}

def stick_the_worker():
    '''From now on the agent's worker sleeps in a handler for ever, as it would in a file that hangs.'''
    libc.signal(signal.SIGTRAP, address_of("pause"))
    libc.tgkill(os.getpid(), agents_threads()["gradvane"], signal.SIGTRAP)
    time.sleep(0.2)

def caught_signals():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("SigCgt")]
    return int(line.split()[1], 16) & 0x7FFFFFFF  # without the C library's own

def say(word):
    sys.stderr.write(word + "\\n")
"""

LINGERS = ("--expect-scraper", "on", "--linger-seconds", "300", "--linger-incident-seconds", "300")
AT_ONCE = 150.0
"""seconds, on a machine that is busy; what is waited for here where something is wrong takes longer"""


class Ended:
    """A watched script that is sent signals, half a second apart, from when its standard error has said `word`."""

    def __init__(self, folder, source, *signals, word="", options=(), attached=False):
        folder.mkdir(exist_ok=True)
        script = running.write(folder, TRAINING + source)
        watched = [] if attached else ["-m", "gradvane", "run", "--run-dir", folder / "run", *options]
        self.child = running.start(*watched, script, cwd=folder, GRADVANE_RUN_DIR=str(folder / "run"))
        self.stderr = ""
        while signals and word not in self.stderr:
            line = self.child.stderr.readline()
            assert line, self.stderr
            self.stderr += line
        began = time.monotonic()
        for number in signals:
            time.sleep(0.5)
            self.child.send_signal(number)
        try:
            self.stdout, rest = self.child.communicate(timeout=400)
        finally:
            self.child.kill()
        self.stderr += rest
        self.status = self.child.returncode
        self.seconds = time.monotonic() - began


def test_forked_children_die_by_signals_as_they_do_without_an_agent(tmp_path):
    ended = Ended(tmp_path, """
def sleep(immune=False):
    if immune:
        libc.signal(signal.SIGTERM, address_of("abs"))
        say("immune")
    time.sleep(600)

if __name__ == "__main__":
    from gradvane._loading import native
    step()
    spare = native().Agent("spare", ["port=-1"], [])
    child = os.fork()
    if child == 0:
        del spare  # its threads and what they hold are in the parent
        os._exit(7)
    print("destroyed", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    context = multiprocessing.get_context("fork")
    child = context.Process(target=sleep)
    child.start(); child.terminate(); child.join(60)
    print("process", child.exitcode)
    pool = context.Pool(2)
    pool.map_async(sleep, [False] * 4)
    time.sleep(0.5)
    pool.terminate()
    print("pool")
    for number in (signal.SIGTERM, signal.SIGUSR1):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), number)
            time.sleep(60)
            os._exit(0)
        print(number.name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    child = context.Process(target=sleep, args=(True,))  # what a child looks like that has a handler which does nothing
    child.start(); time.sleep(1); child.terminate(); child.join(1)
    print("with a handler", child.exitcode)
    child.kill()
    context.Process(target=sleep, daemon=True).start()
""", options=("--recorder-signal", "usr1"))
    assert ended.status == 0 and ended.seconds < AT_ONCE, ended.stderr
    assert ended.stdout.split("\n") == ["destroyed 7", "process -15", "pool", "SIGTERM -15", "SIGUSR1 -10", "with a handler None", ""]


TWO_RUNS = """
import gradvane
before = caught_signals()
first = gradvane.attach(model, optimizer, run="one", recorder_signal="usr1")
step()
during = caught_signals()
first.detach()
assert during != before and caught_signals() == before, (before, during, caught_signals())
"""


def test_after_the_last_run_the_signals_are_as_they_were(tmp_path):
    for name in ("SIGTERM", "SIGUSR1"):
        ended = Ended(tmp_path, TWO_RUNS + f"os.kill(os.getpid(), signal.{name})\ntime.sleep(60)\n", attached=True)
        assert ended.status == -getattr(signal, name), ended.stderr


def test_sigterm_in_a_second_run_kills_while_the_first_agent_is_still_referenced(tmp_path):
    ended = Ended(tmp_path, TWO_RUNS + """
second = gradvane.attach(model, optimizer, run="two", step_log="steps.jsonl")
for _ in range(3):
    step()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
""", attached=True)
    assert ended.status == -signal.SIGTERM, ended.stderr
    assert len(running.steps_in(tmp_path / "steps.jsonl")) == 3


@pytest.mark.parametrize(("ending", "number", "status"), [
    ("", signal.SIGINT, 0), ("sys.exit(3)", signal.SIGTERM, 3), ("raise KeyboardInterrupt", signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_the_wait_for_a_scrape_and_the_exit_status_is_the_programs(tmp_path, ending, number, status):
    ended = Ended(tmp_path, f"step()\n{ending}\n", number, word="waiting", options=LINGERS)
    assert "gradvane: waiting up to 300 s for one more scrape; Ctrl-C ends the wait\n" in ended.stderr
    assert ended.status == status and ended.seconds < AT_ONCE, ended.stderr
    assert "ignored" not in ended.stderr and "_agent.py" not in ended.stderr, ended.stderr


def test_a_run_that_got_sigterm_waits_for_a_scrape_and_a_second_one_kills_at_once(tmp_path):
    source = "step()\nsay('training')\nwhile True:\n    step()\n    time.sleep(0.01)\n"
    ended = Ended(tmp_path, source, signal.SIGTERM, signal.SIGTERM, word="training", options=LINGERS)
    assert ended.status == -signal.SIGTERM and ended.seconds < AT_ONCE, ended.stderr
    assert "; a second SIGTERM ends the wait\n" in ended.stderr


def test_a_process_that_hangs_behind_our_end_dies_by_the_sigterm_that_ended_the_wait(tmp_path):
    ended = Ended(tmp_path, """
import atexit
atexit.register(time.sleep, 300)
import gradvane
import logging
logging.basicConfig(level="INFO")
gradvane.attach(model, optimizer, expect_scraper=True, linger_seconds=300)
step()
""", signal.SIGTERM, word="waiting", attached=True)
    assert ended.status == -signal.SIGTERM and ended.seconds < AT_ONCE, ended.stderr


def test_detach_in_the_middle_of_a_program_waits_for_no_scrape(tmp_path):
    ended = Ended(tmp_path, """
import gradvane
with gradvane.attach(model, optimizer, expect_scraper=True, linger_seconds=300):
    step()
try:
    with gradvane.attach(model, optimizer, expect_scraper=True, linger_incident_seconds=300, run="fails"):
        raise ValueError
except ValueError:
    pass
assert not agents_threads(), agents_threads()
""", attached=True)
    assert ended.status == 0 and ended.seconds < AT_ONCE, ended.stderr


STUCK = """
import gradvane
agent = gradvane.attach(model, optimizer)
step()
stick_the_worker()
say("stuck")
"""


def test_the_end_comes_even_if_the_worker_never_does(tmp_path):
    rows = {
        "exit": ("", [], 0),
        "interrupted detach": ("agent.detach(); time.sleep(300)", [signal.SIGINT], -signal.SIGINT),
        "sigterm": ("time.sleep(300)", [signal.SIGTERM], -signal.SIGTERM),
        "sigterm after detach": ("agent.detach(); del agent; print('detached', flush=True); "
                                 "os.kill(os.getpid(), signal.SIGTERM); time.sleep(300)", [], -signal.SIGTERM),
    }
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ended = dict(zip(rows, pool.map(
            lambda row: Ended(tmp_path / row[0].replace(" ", "_"), STUCK + row[1][0], *row[1][1], word="stuck",
                              attached=True), rows.items())))
    for name, (_, _, status) in rows.items():
        assert (ended[name].status, ended[name].seconds < AT_ONCE) == (status, True), (name, ended[name].stderr)
    assert ended["sigterm after detach"].stdout == "detached\n"
    assert "KeyboardInterrupt" in ended["interrupted detach"].stderr


@pytest.mark.parametrize("ending", [
    "os.execv('/bin/sh', ['sh', '-c', 'kill -TERM $$'])", "atexit.register(divmod, 1, 0); sys.exit(4)"])
def test_what_a_trained_program_ends_by_is_left_alone(tmp_path, ending):
    source = TRAINING + f"import atexit\nstep()\n{ending}\n"
    script = running.write(tmp_path, source)
    plain = running.python(script, cwd=tmp_path, check=False)
    _, ours = running.watched(script, cwd=tmp_path, options=("--quiet",), check=False)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_thread_that_comes_back_while_python_shuts_down_does_not_abort_the_process(tmp_path):
    # As one of ours that was left behind in a callback, over and over, so that it is hit for sure.
    ended = Ended(tmp_path, """
import gradvane
agent = gradvane.attach(model, optimizer)
step()
def come_and_go():
    while True:
        agent._native.take_contributions(0.0)
for _ in range(4):
    threading.Thread(target=come_and_go, daemon=True).start()
time.sleep(0.1)
""", attached=True)
    assert ended.status == 0, ended.stderr


def test_faults_of_our_own_threads_are_not_hidden_from_who_handles_crashes(tmp_path):
    ended = Ended(tmp_path, """
import gradvane
agent = gradvane.attach(model, optimizer, port=0)
step()
for name, task in agents_threads().items():
    (line,) = [line for line in open(f"/proc/self/task/{task}/status") if line.startswith("SigBlk")]
    blocked = {number for number in signal.valid_signals() if int(line.split()[1], 16) >> (number - 1) & 1}
    faults = {getattr(signal, f"SIG{fault}") for fault in "SEGV BUS FPE ILL ABRT TRAP SYS".split()}
    print(name, not blocked & faults, signal.SIGTERM in blocked)
""", attached=True)
    # Up to Python 3.13 its threads have no names that the system knows.
    lines = sorted(line for line in ended.stdout.splitlines() if not line.startswith("gradvane-python"))
    assert lines == ["gradvane True True", "gradvane-http True True"], ended.stderr


def test_an_agent_that_gets_no_thread_in_python_says_so_and_leaves_nothing(tmp_path):
    ended = Ended(tmp_path, """
import gradvane
before = caught_signals()
start = threading.Thread.start
def refuse(self):
    if self.name == "gradvane-python":
        raise RuntimeError("can't start new thread")
    start(self)
threading.Thread.start = refuse
try:
    gradvane.attach(model, optimizer)
except gradvane.GradvaneError as error:
    print(error)
assert caught_signals() == before and not agents_threads(), agents_threads()
step()
""", attached=True)
    assert ended.status == 0 and "can't start new thread" in ended.stdout and "ulimit" in ended.stdout, ended.stderr
