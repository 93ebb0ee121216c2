"""What the tests start from a process that has torch already (tests/warm) is what the interpreter would have started."""

import os
import signal

import pytest
import running
from running import alike

PROGRAM = """
    import atexit, ctypes, os, pickle, signal, sys, threading, warnings
    print("torch" in sys.modules, "numpy" in sys.modules)
    import torch
    print(sys.argv, sys.orig_argv[1:], sys.path, os.getcwd(), sorted(os.environ))
    print(sorted(globals()), __name__, __file__, __spec__, __package__, __cached__, __loader__.__class__, __builtins__)
    import __main__
    class Thing: pass
    assert __main__.Thing is Thing and type(pickle.loads(pickle.dumps(Thing()))) is Thing
    warnings.warn("look here")
    atexit.register(lambda: print("bye", Thing.__name__))
    print(threading.active_count(), os.listdir("/proc/self/task") == [str(os.getpid())], sorted(os.listdir("/proc/self/fd")))
    print([getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path], torch.__loader__.__class__)
    print([signal.getsignal(number) for number in signal.Signals])
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print(model.weight)
    ctypes.CDLL(None).printf(b"what the C library has in its buffer\\n")
    def deep(n):
        {ending} if n == 0 else deep(n - 1)
    deep(2)
"""


@pytest.mark.parametrize(("ending", "status"), [
    ("None", 0), ("sys.exit('no data')", 1), ("1 / 0", 1), ("os.kill(os.getpid(), 2)", -2), ("os._exit(4)", 4)])
def test_a_program_cannot_tell_how_it_was_started(tmp_path, ending, status):
    script = running.write(tmp_path, PROGRAM.format(ending=ending))
    cold, warm = (running.python(script.name, "--lr", "1", cwd=tmp_path, check=False, is_cold=is_cold)
                  for is_cold in (True, False))
    assert cold.returncode == status and cold.args[0] == running.sys.executable != warm.args[0]
    alike(cold, warm)


def test_gradvane_run_waits_for_torch_in_both(tmp_path):
    script = running.write(tmp_path, PROGRAM.format(ending="1 / 0"))
    found = [running.watched(script, cwd=tmp_path, options=("--quiet",), check=False, is_cold=is_cold)
             for is_cold in (True, False)]
    assert [len(steps) for steps, _ in found] == [3, 3]
    alike(found[0][1], found[1][1])


def test_a_process_to_fork_from_that_has_gone_is_replaced(tmp_path):
    script = running.write(tmp_path, "import os; print(os.getppid())")
    own = {"LC_NAME": "C.UTF-8"}  # of no other test, which would lose its programs
    first, again = (int(running.python(script, cwd=tmp_path, **own).stdout) for _ in range(2))
    assert first == again != os.getpid()
    os.kill(first, signal.SIGKILL)
    assert int(running.python(script, cwd=tmp_path, **own).stdout) not in (first, os.getpid())


def test_a_program_that_is_not_over_in_time_is_killed(tmp_path):
    script = running.write(tmp_path, "import time\nopen('began', 'w')\ntime.sleep(600)\n")
    with pytest.raises(running.subprocess.TimeoutExpired):
        running.python(script, cwd=tmp_path, timeout=5)
    assert (tmp_path / "began").exists()
