"""Programs on machines where files cannot be had: what the agent cannot write must not be the program's trouble."""

import signal

from program import ON_UNIX_SOCKET, ONE_OF_TWO, WITHOUT_ATTACH, Act, Place, Program, with_tls

TRAIN_A_WHILE = """
for _ in range(15):
    tiny.train(model, optimizer, 20)
    time.sleep(0.1)
"""
IN_RUN_FOLDER = "mkdir -p -m 700 $TMPDIR/gradvane-$(id -u)/train; cd $TMPDIR/gradvane-$(id -u)/train; "
BACK = "; cd $OLDPWD"


def fifo(name: str) -> str:
    """A FIFO that nobody reads or writes, in the place of a file of the agent's."""
    return f"{IN_RUN_FOLDER}mkfifo {name}{BACK}"


REFUSED_BY_ATTACH = WITHOUT_ATTACH
"""attach() refuses a step log that cannot be opened, as it does any option or policy that cannot be had"""

PROGRAMS = [
    Program("a FIFO lies where the endpoint file goes", TRAIN_A_WHILE,
            place=Place(prepare=fifo("endpoint.rank0.json")), acts=()),
    Program("a FIFO lies where the lock file goes", TRAIN_A_WHILE,
            place=Place(prepare=fifo("rank0.lock")), acts=()),
    Program("a FIFO lies where the endpoint file goes, and SIGTERM comes", "way.mark('ready')\ntime.sleep(60)",
            place=Place(prepare=fifo("endpoint.rank0.json")), acts=(Act(signal.SIGTERM, pause=1),), seconds=20),
    Program("a FIFO lies where the ring of recordings goes", TRAIN_A_WHILE,
            place=Place(prepare=fifo("ring.rank0.gvrec train.rank0.ring.gvrec lock.rank0"))),
    Program("the step log is a FIFO that nobody reads", TRAIN_A_WHILE, ways=REFUSED_BY_ATTACH,
            place=Place(prepare="mkfifo log", environment={"GRADVANE_STEP_LOG": "log"}), seconds=20),
    Program("the step log is a full disk", TRAIN_A_WHILE,
            place=Place(environment={"GRADVANE_STEP_LOG": "/dev/full"}),
            differs={"descriptors": "the log is open while the agent lives"}),
    Program("the step log lies in a folder that is not there", TRAIN_A_WHILE, ways=REFUSED_BY_ATTACH,
            place=Place(environment={"GRADVANE_STEP_LOG": "nowhere/steps.jsonl"})),
    Program("one of two ranks has a policy that needs the other", "tiny.train(model, optimizer, 20)", ways=REFUSED_BY_ATTACH,
            place=Place(environment=ONE_OF_TWO | {"GRADVANE_ON_DIVERGENCE": "stop"})),
    Program("the temporary folder is a disk with 64 KiB", TRAIN_A_WHILE,
            place=Place(prepare="mount -t tmpfs -o size=64k tmpfs $TMPDIR")),
    Program("the temporary folder cannot be written", TRAIN_A_WHILE,
            place=Place(prepare="mount -t tmpfs -o ro tmpfs $TMPDIR")),
    Program("there is no temporary folder", TRAIN_A_WHILE,
            place=Place(environment={"TMPDIR": "/nowhere/at/all"})),
    Program("there is no home", TRAIN_A_WHILE, place=Place(environment={"HOME": "/nowhere"})),
    Program("home cannot be written", TRAIN_A_WHILE,
            place=Place(prepare="mount -t tmpfs -o ro tmpfs $HOME")),
    Program("the run directory is a link to another folder", TRAIN_A_WHILE,
            place=Place(prepare="mkdir -m 700 $HOME/mine $TMPDIR/gradvane-$(id -u); "
                                "ln -s $HOME/mine $TMPDIR/gradvane-$(id -u)/train")),
    Program("the run directory vanishes while it trains", """
        import glob, shutil, tempfile
        for folder in glob.glob(os.path.join(tempfile.gettempdir(), "gradvane-*")):
            shutil.rmtree(folder, ignore_errors=True)  # the agent may be making it again
        """ + TRAIN_A_WHILE.replace("\n", "\n        ")),
    Program("the working folder is removed while it trains", """
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        """ + TRAIN_A_WHILE.replace("\n", "\n        ") + """
        os.chdir(os.path.dirname(os.path.abspath(witness.__file__)))
        """),
    Program("files may have 16 KiB", """
        with open("own", "wb") as file:
            file.write(bytes(16_000))
            try:
                file.write(bytes(16_000))
                file.flush()
            except OSError as error:
                print(error)
        """ + TRAIN_A_WHILE.replace("\n", "\n        "), place=Place(limits={"FSIZE": 16_384})),
    Program("the process may have 48 descriptors", """
        files = [open("/dev/null") for _ in range(20)]
        """ + TRAIN_A_WHILE.replace("\n", "\n        "), place=Place(limits={"NOFILE": 48})),
    Program("a rank shares its port, and the process may have 48 descriptors", """
        files = [open("/dev/null") for _ in range(20)]
        """ + TRAIN_A_WHILE.replace("\n", "\n        "),
            place=Place(limits={"NOFILE": 48}, environment=ONE_OF_TWO)),
    Program("a rank shares its port, and the run directory vanishes while it trains", """
        import glob, shutil, tempfile
        for folder in glob.glob(os.path.join(tempfile.gettempdir(), "gradvane-*")):
            shutil.rmtree(folder, ignore_errors=True)
        """ + TRAIN_A_WHILE.replace("\n", "\n        "), place=Place(environment=ONE_OF_TWO)),
    Program("a rank shares its port, and there is no temporary folder", TRAIN_A_WHILE,
            place=Place(environment={"TMPDIR": "/nowhere/at/all", **ONE_OF_TWO})),
    Program("the configuration file changes while it trains, is broken, and is a FIFO", """
        for text in ("loss_sigma: 9\\nweight_every: 1\\nmode: immediate", "loss_sigma: [", None):
            os.remove("config.yaml")
            if text is None:
                os.mkfifo("config.yaml")
            else:
                with open("config.yaml", "w") as file:
                    file.write(text)
            for _ in range(12):
                tiny.train(model, optimizer, 5)
                time.sleep(0.2)
        os.remove("config.yaml")
        """, place=Place(prepare="echo weight_every: 10 > config.yaml", environment={"GRADVANE_CONFIG": "config.yaml"})),
    Program("the endpoint has TLS and passwords, and its files change, are broken, and are FIFOs", """
        for text in ("basic_auth_users: {}", "basic_auth_users: {", None):
            for name in ("web.yml", "server.key"):
                os.remove(name)
                if text is None:
                    os.mkfifo(name)
                else:
                    with open(name, "w") as file:
                        file.write(text)
            for _ in range(12):
                tiny.train(model, optimizer, 5)
                time.sleep(0.2)
        """, place=with_tls()),
    Program("the endpoint is a unix socket, which the program renames, replaces by a file of its own, and removes", """
        for act in ("rename", "write", "remove"):
            tiny.train(model, optimizer, 5)
            if act == "rename" and os.path.exists("run.sock"):
                os.rename("run.sock", "other.sock")
                os.remove("other.sock")
            elif act == "write":
                with open("run.sock", "w") as file:
                    file.write("mine")
            elif act == "remove":
                os.remove("run.sock")
        with open("run.sock", "w") as file:
            file.write("mine, and it stays")
        """, place=ON_UNIX_SOCKET),
    Program("the user may have no further process or thread", """
        model, optimizer = tiny.make()
        try:
            way.attach(model, optimizer)
        except Exception as error:  # set-up throws, and the program trains without
            assert type(error).__name__ == "GradvaneError", error
        tiny.train(model, optimizer)
        way.detach()
        """, whole=True,
            place=Place(user=61_234, limits={"NPROC": 1})),
    Program("umask 0: what the agent leaves, a token too, is for its owner all the same", TRAIN_A_WHILE, before="os.umask(0)",
            place=Place(environment={"GRADVANE_TOKEN": "auto"})),
]
