"""Programs that have children: what becomes of a child must not depend on whether its parent is watched."""

from program import Program

SLEEP = """
def sleep():
    time.sleep(300)

def ended(child, how):
    getattr(child, how)()
    child.join(30)
    print(child.exitcode)
    child.kill()

def killed_by(number):
    child = os.fork()
    if child == 0:
        time.sleep(300)
        os._exit(0)
    os.kill(child, number)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
GENTLE = """
class Gentle:
    def __init__(self, n):
        self.n = n
    def __call__(self):
        return self.n * self.n
def square(n):
    return n * n
"""


def fork(name: str, body: str, top: str = "") -> Program:
    return Program(name, body, top=top, together="forked children")


FORKED = [
    fork("a forked child is terminated", """
        child = mp.get_context("fork").Process(target=sleep)
        child.start()
        ended(child, "terminate")
        """, SLEEP),
    fork("a forked child is killed", """
        child = mp.get_context("fork").Process(target=sleep)
        child.start()
        ended(child, "kill")
        """),
    fork("a forked child ends by itself, with a status", """
        child = mp.get_context("fork").Process(target=sys.exit, args=(3,))
        child.start()
        ended(child, "join")
        """),
    fork("a forked child raises", """
        child = mp.get_context("fork").Process(target=int, args=("no number",))
        child.start()
        ended(child, "join")
        """),
    fork("a forked child trains a model", """
        def train():
            tiny.train(model, optimizer)
            print([p.sum().item() for p in model.parameters()], flush=True)
        child = mp.get_context("fork").Process(target=train)
        child.start()
        ended(child, "join")
        tiny.train(model, optimizer)
        """),
    fork("os.fork, and the child leaves by os._exit", """
        child = os.fork()
        if child == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """),
    fork("os.fork, and the child execs another program", """
        child = os.fork()
        if child == 0:
            os.execv("/bin/sh", ["sh", "-c", "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd; exit 6"])
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """),
    fork("forked children get SIGHUP, SIGINT, SIGUSR1, SIGTERM", """
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGQUIT):
            killed_by(number)
        """),
    fork("a child of a forked child is terminated", """
        def parent():
            child = mp.get_context("fork").Process(target=sleep)
            child.start()
            ended(child, "terminate")
        child = mp.get_context("fork").Process(target=parent)
        child.start()
        ended(child, "join")
        """),
    fork("a fork in a hook of the backward pass", """
        def hook(gradient):
            child = os.fork()
            if child == 0:
                os._exit(5)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        handle = model[2].weight.register_hook(hook)
        tiny.train(model, optimizer, 2)
        handle.remove()
        """),
    fork("a fork in the optimizer's step, and the child is terminated", """
        def fork(*_):
            killed_by(signal.SIGTERM)
        handle = optimizer.register_step_pre_hook(fork)
        tiny.train(model, optimizer, 2)
        handle.remove()
        """),
    fork("a pool maps, closes and joins", """
        with mp.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, range(-4, 4)))
            pool.close()
            pool.join()
        """),
    fork("a pool with a busy worker is terminated", """
        pool = mp.get_context("fork").Pool(2)
        pool.apply_async(sleep)
        time.sleep(0.2)
        pool.terminate()
        pool.join()
        print("joined")
        """),
    fork("a process pool of concurrent.futures", """
        from concurrent.futures import ProcessPoolExecutor
        with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as pool:
            print(list(pool.map(abs, range(-4, 4))))
        """),
    fork("subprocesses are terminated and killed", """
        import subprocess
        for how in ("terminate", "kill"):
            child = subprocess.Popen(["sleep", "300"])
            getattr(child, how)()
            print(child.wait(30))
        print(subprocess.run(["sh", "-c", "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd"], capture_output=True, text=True).stdout)
        """),
    fork("data loaders with forked workers", """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(32.0).reshape(8, 4))
        for loader in (DataLoader(data, 2, num_workers=2), DataLoader(data, 2, num_workers=2, persistent_workers=True)):
            for _ in range(2):
                print([batch[0].sum().item() for batch in loader])
        """),
    fork("a worker of a data loader is terminated", """
        from torch.utils.data import DataLoader
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                time.sleep(300)
        batches = iter(DataLoader(Slow(), num_workers=1, multiprocessing_context="fork"))
        batches._workers[0].terminate()
        try:
            next(batches)
        except RuntimeError as error:
            print(str(error).partition("(")[0], error.args[0].partition("signal")[2])
        del batches
        """),
]


def spawn(name: str, body: str, top: str = "") -> Program:
    return Program(name, body, top=top, together="spawned children")


SPAWNED = [
    spawn("a spawned child is terminated", """
        child = mp.get_context("spawn").Process(target=sleep)
        child.start()
        ended(child, "terminate")
        """, SLEEP + GENTLE),
    spawn("a spawned child answers", """
        with mp.get_context("spawn").Pool(1) as pool:
            print(pool.map(square, range(4)))
        """),
    spawn("a child of the fork server is terminated", """
        child = mp.get_context("forkserver").Process(target=sleep)
        child.start()
        time.sleep(0.5)
        ended(child, "terminate")
        """),
    spawn("a child of the fork server answers", """
        with mp.get_context("forkserver").Pool(1) as pool:
            print(pool.map(square, range(4)))
        """),
    spawn("data loaders with spawned workers and those of a fork server", """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(32.0).reshape(8, 4))
        for start in ("spawn", "forkserver"):
            print([batch[0].sum().item() for batch in DataLoader(data, 4, num_workers=1, multiprocessing_context=start)])
        """),
]

AT_THE_END = [
    Program("a daemon child sleeps when the script ends", """
        mp.get_context("fork").Process(target=sleep, daemon=True).start()
        """, top=SLEEP),
    Program("a pool is left open when the script ends", """
        pool = mp.get_context("fork").Pool(2)
        pool.apply_async(sleep)
        """, top=SLEEP, differs={"standard error": "the pool may complain while Python frees it, or not"}),
    Program("data loader workers are left alive when the script ends", """
        import tempfile
        from torch.utils.data import DataLoader, TensorDataset
        tempfile.gettempdir()  # else the workers try it out with a file, and die before it is gone
        loader = DataLoader(TensorDataset(torch.randn(8, 4)), num_workers=2, persistent_workers=True)
        batches = iter(loader)
        print(next(batches)[0].shape)
        """, differs={"descriptors": "shared memory of the batches that the workers have prepared by then"}),
    Program("a forked child outlives the script and ends a second later", """
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        """),
]

PROGRAMS = [*FORKED, *SPAWNED, *AT_THE_END]
