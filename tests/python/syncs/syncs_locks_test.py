"""The driver's lock and the ledger's: the thread that sets the driver up holds the first, and the injected library, which the
driver calls then, takes the second; who subscribes for an agent takes them the other way round. Neither may wait for the
other, whoever comes first."""

import planted
import running

BOTH = """
    import ctypes, os, subprocess, sys, threading, time
    import torch
    import gradvane
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
    driver = ctypes.CDLL("libcuda.so.1")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def attach():
        gradvane.attach(model, optimizer, port=-1)

    def waits_in_open(thread):
        with open(f"/proc/self/task/{thread.native_id}/syscall") as file:
            return file.read().startswith("257 ")  # openat of x86-64

    def train():
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            cuda.fake_synchronize(2000)
            optimizer.step()

    setting_up = threading.Thread(target=driver.cuInit, args=(0,))
    attaching = threading.Thread(target=attach)
"""
END = """
    setting_up.join()
    attaching.join()
    train()
    print("subscribed", cuda.fake_is_subscribed(), cuda.fake_waiting_for_driver())
"""


def ended(tmp_path, body, **extra):
    """Waits for each other for ever, or ends."""
    reports = tmp_path / "reports"
    reports.mkdir()
    script = running.write(tmp_path, BOTH + body + END)
    done = running.python(script, cwd=tmp_path, timeout=90, **planted.ways("injected"), GRADVANE_QUIET="1",
                          CUDA_INJECTION64_PATH=str(planted.LIBRARY), GRADVANE_SYNC_REPORT=f"{reports}/", **extra)
    assert done.stdout == "subscribed 1 0\n", done.stderr


def test_an_agent_may_come_while_the_driver_is_being_set_up(tmp_path):
    # The injected library leaves a file when it joins the ledger. As a pipe without a reader, it holds the library there.
    ended(tmp_path, """
    sign = os.environ["GRADVANE_SYNC_REPORT"] + f"injected.{os.getpid()}"
    os.mkfifo(sign)
    setting_up.start()
    while not waits_in_open(setting_up):
        time.sleep(0.001)
    # Another process, since the agent may wait with the GIL. By then it has got as far as it can.
    reader = subprocess.Popen(["sh", "-c", f"sleep 3; cat {sign}"])
    attaching.start()
    reader.wait()
    """)


def test_the_driver_may_come_while_an_agent_subscribes(tmp_path):
    # It holds its lock until the agent's thread, which has the ledger's by then, asks for it.
    ended(tmp_path, """
    setting_up.start()
    attaching.start()
    """, FAKE_DRIVER_MEETS_SUBSCRIBER="1")
