"""The warning of os.fork() in CPython 3.12 and later, by each of those Pythons (scripts/setup/fetch_pythons.py brings
them): with threads called gradvane it comes when it comes without them."""

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[3]))
PYTHONS = Path(os.environ.get("GRADVANE_PYTHONS", ROOT / ".deps" / "pythons"))
MODULE = ROOT / "python" / "gradvane" / "_process" / "fork_warning.py"
WARNING = "is multi-threaded, use of fork() may lead to deadlocks"

START = """
    import importlib.util, multiprocessing, os, subprocess, sys, threading, time, warnings
    def leave_out(is_watched=True):
        spec = importlib.util.spec_from_file_location("_fork_warning", sys.argv[1])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.leave_out(lambda: is_watched)
    def thread(name):
        threading.Thread(target=time.sleep, args=(60,), name=name, daemon=True).start()
    def fork(then=lambda: None):
        child = os.fork()
        if child == 0:
            then()
            sys.stderr.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


def errors(python: str, program: str, *flags: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    done = subprocess.run([PYTHONS / python, *flags, "-c", textwrap.dedent(START) + textwrap.dedent(program), MODULE],
                          env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(params=["python3.12", "python3.13", "python3.14"])
def python(request):
    return request.param


def test_without_it_the_warning_comes(python):
    assert errors(python, "thread('gradvane-python')\nfork()").count(WARNING) == 1


def test_a_program_with_one_thread_gets_no_warning_because_of_threads_of_gradvane(python):
    assert errors(python, """
        leave_out()
        thread('gradvane-python')
        thread('gradvane-norms')
        for _ in range(3):
            fork()
        process = multiprocessing.get_context('fork').Process(target=int)
        process.start()
        process.join()
        subprocess.run(['true'], preexec_fn=int)
    """) == ""


def test_nor_where_warnings_are_errors(python):
    assert errors(python, "leave_out()\nthread('gradvane-python')\nfork()", "-W", "error") == ""
    assert errors(python, """
        leave_out()
        thread('gradvane-python')
        fork()
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            fork()
        warnings.resetwarnings()
        fork()
        warnings.simplefilter('always')
        fork()
    """) == ""


def test_a_program_with_threads_of_its_own_gets_the_warning_as_ever(python):
    assert errors(python, """
        warnings.simplefilter('always')
        leave_out()
        thread('gradvane-python')
        fork()
        thread('loader')
        fork()
    """).count(WARNING) == 1


def test_the_warning_comes_where_nothing_is_watched(python):
    assert errors(python, "leave_out(False)\nthread('gradvane-python')\nfork()").count(WARNING) == 1


def test_a_child_with_threads_of_its_own_gets_the_warning(python):
    def grandchild(name: str) -> str:
        return f"leave_out()\nthread('gradvane-python')\nfork(lambda: (thread('{name}'), fork()))"

    assert errors(python, grandchild("loader")).count(WARNING) == 1
    assert errors(python, grandchild("gradvane-python")) == ""


def test_the_programs_filters_are_as_they_were_after_each_fork_and_in_each_child(python):
    assert errors(python, """
        leave_out()
        thread('gradvane-python')
        for number in range(10):
            warnings.filterwarnings('ignore', str(number))
            before = list(warnings.filters)
            def same():
                if warnings.filters != before:
                    print('another', file=sys.stderr)
            fork(same)
            same()
    """) == ""


def test_other_warnings_come(python):
    assert "old" in errors(python, """
        leave_out()
        thread('gradvane-python')
        fork()
        warnings.warn('old', DeprecationWarning)
    """)
