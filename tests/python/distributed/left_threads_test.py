"""Threads of ours that are in a call of torch's when the program ends."""

import signal
import sys

import pytest
import running


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="such threads hang there, and abort nothing")
def test_a_thread_in_a_call_of_the_store_does_not_abort_the_end_of_the_program(tmp_path, kept):
    """The control: without our wait it does, if the call returns while the interpreter ends."""
    script = running.write(tmp_path, f"""
        import atexit, contextlib, datetime, sys, threading, time, types
        may_ask, asks = threading.Event(), threading.Event()

        def let_ask():
            may_ask.set()
            asks.wait()
            time.sleep(0.3)  # for the call itself

        if not {kept}:
            atexit.register(let_ask)  # the last one before the interpreter ends, however slow the machine is
        import torch, torch.distributed as dist
        import gradvane
        from gradvane._process import threads

        class EndsSlowly:
            def __init__(self):
                self.sleep = time.sleep
            def __del__(self):
                self.sleep(5)

        # Not in this module: the thread's frame keeps that.
        sys.modules["kept"] = types.ModuleType("kept")
        sys.modules["kept"].thing = EndsSlowly()
        model = torch.nn.Linear(2, 1)
        gradvane.attach(model, torch.optim.SGD(model.parameters(), 0.1), port=-1).detach()
        store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)

        def ask():
            may_ask.wait()
            asks.set()
            with contextlib.suppress(Exception):
                store.wait(["never"], datetime.timedelta(seconds=2))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        if {kept}:
            may_ask.set()
            threads.keep(thread)
        time.sleep(0.2)
        """)
    done = running.python(script, cwd=tmp_path, check=False, is_cold=True)
    assert done.returncode == (0 if kept else -signal.SIGABRT), done.stderr
