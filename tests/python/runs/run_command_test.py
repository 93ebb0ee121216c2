"""`gradvane run` changes nothing that a script, its author or a shell could notice."""

import json
import os
import signal
import socket
import time

import pytest
import running
from running import alike, both

TRAINING = """
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


WHO_AM_I = """
    import atexit, pickle, sys, os, warnings, threading
    import torch
    print(sys.argv, __name__, __file__, __spec__ and __spec__.name, __package__, sys.path[0], os.getcwd())
    print(sorted(k for k in globals()))
    import __main__
    class Thing: pass
    assert __main__.Thing is Thing and type(pickle.loads(pickle.dumps(Thing()))) is Thing
    warnings.warn("look here")
    atexit.register(lambda: print("bye", Thing.__name__))
    print(threading.active_count(), [f.__name__ if hasattr(f, "__name__") else type(f).__name__ for f in sys.meta_path])
"""


@pytest.mark.parametrize("module", [False, True])
def test_a_script_sees_itself_as_under_python(tmp_path, module):
    alike(*both(tmp_path, WHO_AM_I, "--lr", "0.1", "-m", "x", "--port", "7", module=module))


@pytest.mark.parametrize("ending", ["sys.exit()", "sys.exit(0)", "sys.exit(3)", "sys.exit('no more')", "os._exit(4)",
                                    "raise ValueError('seven')", "[1][2]", "f()", "raise KeyboardInterrupt",
                                    "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "exec('1 +')"])
def test_it_ends_as_under_python(tmp_path, ending):
    plain, ours = both(tmp_path, f"""
        import os, sys, torch
        def f():
            try:
                g()
            except ZeroDivisionError as error:
                raise RuntimeError("outer") from error
        def g():
            return 1 / 0
        print("here", flush=True)
        {ending}
        """)
    alike(plain, ours)


def test_a_syntax_error_and_a_missing_script_are_told_as_python_tells_them(tmp_path):
    plain, ours = both(tmp_path, "def f(:\n  pass\n")
    alike(plain, ours)
    plain = running.python("nowhere.py", cwd=tmp_path, check=False)
    ours = running.python("-m", "gradvane", "run", "nowhere.py", cwd=tmp_path, check=False)
    alike(plain, ours)


def test_an_error_in_backward_has_the_scripts_own_traceback(tmp_path):
    plain, ours = both(tmp_path, """
        import torch
        x = torch.ones(3, requires_grad=True)
        y = (x * x).sum()
        y.backward()
        y.backward()
        """)
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr == plain.stderr


def test_the_scripts_own_excepthook_is_called(tmp_path):
    plain, ours = both(tmp_path, """
        import sys
        sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, trace.tb_frame.f_code.co_name)
        raise ValueError
        """)
    alike(plain, ours)


def test_torch_is_not_imported_before_the_script_asks_for_it(tmp_path):
    plain, ours = both(tmp_path, """
        import sys
        print("torch" in sys.modules, "numpy" in sys.modules)
        import torch
        print(torch.__spec__.loader.__class__.__name__, "exec_module" in vars(torch.__spec__.loader))
        """)
    alike(plain, ours)
    assert plain.stdout.startswith("False")


def test_a_script_without_torch_is_left_alone(tmp_path):
    alike(*both(tmp_path, "print('nothing to see')"))


def test_interrupting_it_kills_it_as_python_is_killed(tmp_path):
    script = running.write(tmp_path, TRAINING + "    print('trained', flush=True)\n    import time; time.sleep(60)\n")
    child = running.start("-m", "gradvane", "run", "--quiet", script, cwd=tmp_path)
    assert child.stdout.readline() == "trained\n"
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert stderr.rstrip().endswith("KeyboardInterrupt") and "gradvane" not in stderr


def test_options_stand_before_the_script_and_its_own_are_its_own(tmp_path):
    steps, done = running.watched(running.write(tmp_path, "import sys\nprint(sys.argv[1:])" + TRAINING.replace("\n    ", "\n")),
                                  "--step-log", "theirs", cwd=tmp_path, options=("--run=named", "--weight-every", "1"))
    assert done.stdout == "['--step-log', 'theirs']\n"
    assert len(steps) == 3 and all("weight_norm" in step for step in steps)
    assert "run named" in done.stderr


@pytest.mark.parametrize(("words", "what"), [
    (["--prot", "1", "x.py"], "did you mean --port?"),
    (["--port"], "--port needs a value"),
    ([], "which script?"),
    (["-m"], "-m needs a name"),
    (["-x", "y.py"], "there is no option -x"),
])
def test_a_command_line_that_makes_no_sense_is_answered_with_what_would(tmp_path, words, what):
    done = running.python("-m", "gradvane", "run", *words, cwd=tmp_path, check=False)
    assert done.returncode == 2 and what in done.stderr and "usage:" in done.stderr


def test_if_the_agent_cannot_start_the_script_runs_all_the_same(tmp_path):
    script = running.write(tmp_path, TRAINING + "    print('trained')\n")
    done = running.python("-m", "gradvane", "run", "--mode", "fast", script, cwd=tmp_path)
    assert done.stdout == "trained\n"
    assert done.stderr.count("\n") == 1 and "mode = 'fast'" in done.stderr and "not watched" in done.stderr
    strict = running.python("-m", "gradvane", "run", "--require", "--mode", "fast", script, cwd=tmp_path, check=False)
    assert strict.returncode == 3 and strict.stdout == "" and "mode = 'fast'" in strict.stderr


@pytest.mark.parametrize("first", [
    "optimizer.step()",
    "optimizer.step(lambda: model.weight.sum())",
    "scaler.step(optimizer)",
    "scaler.scale(model.weight.sum()).backward()",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])",
    "model.weight.sum().backward()",
])
def test_if_it_cannot_start_whatever_would_have_started_it_goes_its_way(tmp_path, first):
    source = f"""
        import torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        {first}
        optimizer.step()
        print("trained")
    """
    script = running.write(tmp_path, source)
    done = running.python("-m", "gradvane", "run", "--mode", "fast", script, cwd=tmp_path)
    assert done.stdout == "trained\n" and done.stderr.count("\n") == 1 and "not watched" in done.stderr


def test_require_is_content_where_the_agent_starts(tmp_path):
    script = running.write(tmp_path, TRAINING)
    steps, _ = running.watched(script, cwd=tmp_path, options=("--require",))
    assert len(steps) == 3


def test_switched_off_it_is_as_if_it_were_not_there(tmp_path):
    script = running.write(tmp_path, TRAINING + "    import sys; print('gradvane._native' in sys.modules)\n")
    steps, done = running.watched(script, cwd=tmp_path, GRADVANE="off")
    assert steps == [] and done.stderr == "" and done.stdout == "False\n"


@pytest.mark.parametrize(("source", "seen"), [
    ("print('hello')", "torch was never imported"),
    ("import torch\ntorch.ones(3).sum()", "no backward pass, no optimizer step")])
def test_what_was_not_found_is_said_too(tmp_path, source, seen):
    _, done = running.watched(running.write(tmp_path, source), cwd=tmp_path)
    assert done.stderr == f"gradvane: nothing trained in this process: {seen}\n"


def test_what_was_found_is_said_in_one_line(tmp_path):
    _, done = running.watched(running.write(tmp_path, TRAINING), cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if "watching" in line]
    assert lines == ["gradvane: watching 2 parameters of Linear; SGD; loss: the root of backward()"]
    assert all(line.startswith("gradvane: ") for line in done.stderr.splitlines())


def test_the_scripts_logging_is_its_own(tmp_path):
    plain, ours = both(tmp_path, "import logging\nlogging.basicConfig(level=logging.DEBUG)\n" + TRAINING.replace("\n    ", "\n")
                       + "\nlogging.info('mine')\nprint(logging.getLogger().handlers)\n")
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize(("ending", "state"), [
    ("", "finished"), ("raise SystemExit(0)", "finished"), ("raise SystemExit(3)", "failed"), ("raise SystemExit('')", "failed"),
    ("raise SystemExit('disk full')", "failed"), ("raise KeyError('x')", "failed")])
def test_the_end_of_the_program_is_the_state_of_the_run(tmp_path, ending, state):
    script = running.write(tmp_path, TRAINING + f"    {ending}\n")
    running.python("-m", "gradvane", "run", "--quiet", "--run-dir", tmp_path / "run", script, cwd=tmp_path, check=False)
    endpoint = json.loads(next((tmp_path / "run").glob("endpoint*.json")).read_text())
    assert endpoint["state"] == state


def test_looking_for_torch_is_not_importing_it(tmp_path):
    steps, _ = running.watched(running.write(tmp_path, "import importlib.util\nassert importlib.util.find_spec('torch')"
                                             + TRAINING.replace("\n    ", "\n")), cwd=tmp_path, is_cold=True)
    assert len(steps) == 3


def test_a_second_run_on_the_same_port_takes_the_next_one(tmp_path):
    script = running.write(tmp_path, TRAINING + "    import time; print('up', flush=True); time.sleep(600)\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    first = running.start("-m", "gradvane", "run", "--port", port, script, cwd=tmp_path)
    try:
        assert first.stdout.readline() == "up\n"
        _, done = running.watched(running.write(tmp_path, TRAINING, "other.py"), cwd=tmp_path, options=("--port", port))
        assert f"port {port} is taken, using {int(port) + 1}" in done.stderr
    finally:
        first.kill()
        first.communicate()


def test_attach_inside_a_script_that_is_run_goes_together(tmp_path):
    source = TRAINING.replace("import torch\n", "import gradvane, torch\n").replace(
        "    for _", "    gradvane.attach(model, optimizer)\n    for _")
    steps, _ = running.watched(running.write(tmp_path, source), cwd=tmp_path)
    assert [step["step"] for step in steps] == [1, 2, 3]


def test_the_end_of_the_interpreter_is_quick_and_clean(tmp_path):
    source = TRAINING + "    import time; print(time.monotonic())\n"
    steps, done = running.watched(running.write(tmp_path, source), cwd=tmp_path, PYTHONFAULTHANDLER="1")
    assert len(steps) == 3 and time.monotonic() - float(done.stdout) < 30
    assert "Fatal" not in done.stderr and "Error" not in done.stderr
    assert os.path.exists(tmp_path / "run")
