"""Programs that end in every way that there is: with the same status and the same last words."""

from program import ON_UNIX_SOCKET, ONE_OF_TWO, TERMINATED, WITHOUT_ATTACH, Place, Program, with_tls

A_CHILD_LIVES_ON = """
reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)  # until the parent is gone
    tiny.train(model, optimizer)
    open("of the child", "w").write(str(model[0].weight.sum().item()))
    os._exit(0)
tiny.train(model, optimizer)
"""

PROGRAMS = [
    Program("sys.exit with a number", "sys.exit(3)"),
    Program("sys.exit with a sentence", "sys.exit('no data')", is_cold=True),
    Program("sys.exit with an object", "sys.exit(ValueError('odd'))"),
    Program("os._exit", "print('going', flush=True)\nos._exit(4)",
            differs={"the run directory": "nothing runs at such an end"}),
    Program("an exception that nobody catches", "raise ValueError('the data are bad')", is_cold=True),
    Program("an exception with a cause, through several frames", """
        def deep(n):
            if n == 0:
                raise KeyError("missing")
            deep(n - 1)
        try:
            deep(3)
        except KeyError as error:
            raise RuntimeError("not loaded") from error
        """),
    Program("an exception in atexit", """
        import atexit
        atexit.register(lambda: 1 / 0)
        atexit.register(print, "last words")
        """),
    Program("an exit status from atexit", """
        import atexit
        atexit.register(os._exit, 9)
        """, differs={"the run directory": "nothing runs at such an end"}),
    Program("an excepthook of the program's own", """
        sys.excepthook = lambda kind, error, trace: print("hook:", kind.__name__, error)
        raise ValueError("seen by the hook")
        """),
    Program("an exception that cannot say what it is", """
        class Silent(Exception):
            def __str__(self):
                raise ValueError("no words")
        raise Silent
        """),
    Program("KeyboardInterrupt raised by hand", "raise KeyboardInterrupt"),
    Program("a recursion without end", """
        def deeper():
            deeper()
        deeper()
        """, differs={"standard error": "how deep it gets depends on the frames below"}),
    Program("os.execv of another program", """
        sys.stdout.flush()
        os.execv("/bin/sh", ["sh", "-c", "echo second; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; exit 8"])
        """, differs={"the run directory": "nothing runs at such an end"}),
    Program("an exception while the script is imported", "import torch\nimport brings_nothing", is_script=True, ways=WITHOUT_ATTACH),
    Program("a module with a mistake in its syntax", """
        from pathlib import Path
        Path("wrong.py").write_text("def f(:")
        import wrong
        """, is_script=True, ways=WITHOUT_ATTACH),
    Program("a script that is not there", "", is_script=True, ways=WITHOUT_ATTACH, arguments=("nowhere.py",)),
    Program("a script that never trains", """
        import os, sys
        print(sys.argv, sys.path[0], __name__, __file__, sorted(vars()), sys.meta_path)
        """, is_script=True, ways=WITHOUT_ATTACH),
    Program("a script run as a module, with arguments", """
        print(sys.argv, __name__, __spec__.name)
        tiny.train(model, optimizer)
        """, arguments=("-m", "train", "--lr", "0.1")),
    Program("an exception in a thread, and the main thread goes on", """
        thread = threading.Thread(target=lambda: 1 / 0, name="worker")
        thread.start()
        thread.join()
        tiny.train(model, optimizer)
        """, together="endings within"),
    Program("sys.exit in a thread", """
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        tiny.train(model, optimizer)
        """, together="endings within"),
    Program("an exception in a finalizer", """
        class Odd:
            def __del__(self):
                raise ValueError("in a finalizer")
        odd = Odd()
        del odd
        """, together="endings within"),
    Program("a hook of the optimizer raises, and the loop goes on", """
        def bad(*_):
            raise ValueError("a hook of the program's own")
        for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
            handle = register(bad)
            try:
                tiny.step(model, optimizer)
            except ValueError as error:
                print("caught", error)
            handle.remove()
        tiny.train(model, optimizer)
        """, together="endings within"),
    Program("a hook of the backward pass raises, and the loop goes on", """
        def bad(gradient):
            raise ValueError("in the backward pass")
        handle = model[0].weight.register_hook(bad)
        try:
            tiny.step(model, optimizer)
        except ValueError as error:
            print("caught", error)
        handle.remove()
        tiny.train(model, optimizer)
        """, together="endings within"),
    Program("a closure raises, and the loop goes on", """
        other, lbfgs = tiny.make(optimizer=torch.optim.LBFGS)
        def bad():
            raise ValueError("in the closure")
        try:
            lbfgs.step(bad)
        except ValueError as error:
            print("caught", error)
        tiny.train(model, optimizer)
        """, together="endings within"),
    Program("a hook of the optimizer raises, and nobody catches it", """
        def bad(*_):
            raise ValueError("a hook of the program's own")
        optimizer.register_step_pre_hook(bad)
        tiny.step(model, optimizer)
        """),
    Program("a thread works on after the main thread's end", """
        def work():
            time.sleep(1)
            tiny.train(model, optimizer)
            print([p.sum().item() for p in model.parameters()])
        threading.Thread(target=work).start()
        """),
    Program("a daemon thread trains while the program ends", """
        def work():
            while True:
                tiny.step(model, optimizer)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """, differs={"weights": "how far the thread got", "random numbers": "how far the thread got"},
            crash_by_chance=TERMINATED, crash_is_usual=True),
    Program("a daemon thread waits between its steps while the program ends", """
        trained = threading.Event()
        def work():
            tiny.train(model, optimizer)
            trained.set()
            while True:
                time.sleep(1)
                tiny.step(model, optimizer)
        threading.Thread(target=work, daemon=True).start()
        trained.wait()
        """, crash_by_chance=TERMINATED),
    Program("standard output is a pipe that nobody reads", "print('to nobody', flush=True)",
            place=Place(stdout="closed pipe")),
    Program("started without standard output and standard error", """
        print("to nobody")
        with open("report", "w") as file:
            file.write(str(model[0].weight.sum().item()))
        """, place=Place(stdout="closed")),
    Program("the program closes its standard streams", """
        sys.stdout.close()
        sys.stderr.close()
        tiny.train(model, optimizer)
        """),
    Program("the program closes every descriptor above 2, and opens files of its own", """
        os.closerange(3, 4096)  # the agent's begin at 512
        files = [open(f"own{i}", "w") for i in range(12)]
        for _ in range(30):
            tiny.train(model, optimizer, 20)
            time.sleep(0.1)
        for file in files:
            file.write("nothing but this")
            file.close()
        """, differs={"the run directory": "its files were closed under the agent",
                      "descriptors": "the agent's are gone"}),
    Program("a rank that serves the port of its machine closes every descriptor above 2", """
        os.closerange(3, 4096)  # the agent's begin at 512
        files = [open(f"own{i}", "w") for i in range(20)]
        for _ in range(30):
            tiny.train(model, optimizer, 20)
            time.sleep(0.1)
        for file in files:
            file.write("nothing but this")
            file.close()
        """, place=Place(environment=ONE_OF_TWO),
            differs={"the run directory": "its files were closed under the agent",
                     "descriptors": "the agent's are gone"}),
    Program("the endpoint has TLS and passwords, and a child that was forked outlives the program", A_CHILD_LIVES_ON, place=with_tls()),
    Program("the endpoint is a unix socket, and a child that was forked outlives the program", A_CHILD_LIVES_ON, place=ON_UNIX_SOCKET),
    Program("a rank that serves the port of its machine forks, and the child outlives it", A_CHILD_LIVES_ON, place=Place(environment=ONE_OF_TWO)),
    Program("the ranks of a machine that does not answer are asked for, and a child outlives the program", """
        import glob, json, socket, tempfile, urllib.request
        silent = socket.create_server(("127.0.0.1", 0))
        for path in glob.glob(os.path.join(tempfile.gettempdir(), "gradvane-*", "*", "endpoint.rank0.json")):
            with open(path) as file:
                own = json.load(file)
            if own["state"] == "finished":
                continue
            other = path.replace("rank0", "rank1")
            with open(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                json.dump({**own, "rank": 1, "url": f"http://127.0.0.1:{silent.getsockname()[1]}/rank/1"}, file)
            for _ in range(2):
                with urllib.request.urlopen(own["node_url"] + "/api/v1/ranks", timeout=20) as answer:
                    assert len(json.load(answer)["ranks"]) == 2
                time.sleep(0.2)
            os.remove(other)
        """ + A_CHILD_LIVES_ON.replace("\n", "\n        "), place=Place(environment=ONE_OF_TWO)),
]
