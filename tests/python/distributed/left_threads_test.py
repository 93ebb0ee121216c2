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
        import contextlib, datetime, threading, time
        import torch, torch.distributed as dist
        import gradvane
        from gradvane import _threads

        store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
        second = dist.TCPStore("127.0.0.1", store.port, 1, is_master=False, wait_for_workers=False)

        class AnswersLate:
            """Its end lies in the end of the interpreter, however slow the machine is."""

            def __init__(self):
                self.sleep, self.store = time.sleep, second

            def __del__(self):
                self.store.set("key", "value")
                self.sleep(3)

        late = AnswersLate()
        model = torch.nn.Linear(2, 1)
        gradvane.attach(model, torch.optim.SGD(model.parameters(), 0.1), port=-1).detach()

        def ask():
            with contextlib.suppress(Exception):
                store.wait(["key"], datetime.timedelta(seconds={1 if kept else 60}))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        if {kept}:
            _threads.keep(thread)
        time.sleep(0.2)
        """)
    done = running.python(script, cwd=tmp_path, check=False, is_cold=True)
    assert done.returncode == (0 if kept else -signal.SIGABRT), done.stderr
