"""A Python that has imported torch already, and becomes a fresh process of its own for each request.

`import torch` takes two seconds of a processor, and the tests start some thousand programs. This process imports it
once for all of them, without making a tensor or a thread, and forks. Each child then looks like one that python has
just started: its arguments, environment, folder, streams and __main__ are its own; torch is not in sys.modules, and
the first `import torch` puts it there, through the import system; what torch's import registered at exit is registered
then. A script is run by the function that python itself uses, so that tracebacks, SystemExit and Ctrl-C are as ever.

What a program does at its end, python's own end among it, is done; the destructors of the C++ libraries that were loaded
before the fork are left out, unless `whole_end` is asked for: they take four fifths of the time of a small program.

What differs besides: sys.flags are the server's, the collector passes over torch's objects, and modules of the standard library
that torch needs are loaded from the start. `pythons.py` starts this, and says which programs are fit for it.

    python -B server.py NUMBER [MODULE...]    (of a socket that listens; what to import besides torch)
"""

import atexit
import ctypes
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import logging  # noqa: F401  (first: what it registers at exit stays first)
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import types

C = ctypes.CDLL(None)
C.fopen.restype = C.fmemopen.restype = ctypes.c_void_p
LISTENER = int(sys.argv[1])
IDLE = 30
"""seconds without a connection after which it ends"""
DESCRIPTORS = 3
"""standard input, output, error"""
STANDARD = {*sys.stdlib_module_names, "__mp_main__"}


class Kept(importlib.machinery.SourceFileLoader):
    """Loads a module that is loaded already."""

    def __init__(self, module):
        super().__init__(module.__name__, module.__file__)
        self.kept = module, module.__spec__, module.__loader__

    def create_module(self, spec):
        return self.kept[0]

    def exec_module(self, module):
        _, module.__spec__, module.__loader__ = self.kept


class Shelf:
    """Has torch, and what came with it that is no part of the standard library. It takes the place of the finder of the
    folder that they lie in, so that whoever watches imports sees what they see."""

    def __init__(self):
        before, variables = set(sys.modules), dict(os.environ)
        self.at_exit = []
        register, atexit.register = atexit.register, self.note_at_exit
        for name in ("torch", *sys.argv[2:]):
            importlib.import_module(name)
        atexit.register = register
        self.variables = {key: value for key, value in os.environ.items() if variables.get(key) != value}
        self.modules = {name: module for name, module in sys.modules.items()
                        if name not in before and name.partition(".")[0] not in STANDARD}

    def note_at_exit(self, function, *arguments, **named):
        self.at_exit.append((function, arguments, named))
        return function

    def hide(self):
        self.folder = os.path.dirname(os.path.dirname(self.modules["torch"].__file__))
        self.finder, sys.path_importer_cache[self.folder] = sys.path_importer_cache[self.folder], self
        for name in self.modules:
            del sys.modules[name]

    def find_spec(self, name, target=None):
        """Asked for one of them, it gives all, as torch's import would."""
        if name not in self.modules:
            return self.finder.find_spec(name, target)
        sys.path_importer_cache[self.folder] = self.finder
        for function, arguments, named in self.at_exit:
            atexit.register(function, *arguments, **named)
        os.environ.update(self.variables)
        sys.modules.update({other: module for other, module in self.modules.items() if other != name})
        module = self.modules[name]
        return importlib.util.spec_from_file_location(
            name, module.__file__, loader=Kept(module), submodule_search_locations=getattr(module, "__path__", None))

    def invalidate_caches(self):
        self.finder.invalidate_caches()


def serve(listener):
    """Returns in each child, with its request. The server itself ends when no one has been there for a while."""
    parent = selectors.DefaultSelector()
    wake, alarm = socket.socketpair()
    wake.setblocking(False)
    alarm.setblocking(False)
    signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    parent.register(listener, selectors.EVENT_READ)
    parent.register(wake, selectors.EVENT_READ)
    connections, children = set(), {}
    while True:
        ready = parent.select(None if connections or children else IDLE)
        if not ready:
            os._exit(0)
        for key, _ in ready:
            if key.fileobj is wake:
                wake.recv(4096)
                tell_ended(children)
                continue
            if key.fileobj is listener:
                connection, _ = listener.accept()
                if user_of(connection) == os.geteuid():
                    connections.add(connection)
                    parent.register(connection, selectors.EVENT_READ)
                continue
            try:
                text, descriptors, _, _ = socket.recv_fds(key.fileobj, 1 << 20, DESCRIPTORS + 1)
            except ConnectionResetError:
                text = b""
            if not text:
                parent.unregister(key.fileobj)
                connections.remove(key.fileobj)
                key.fileobj.close()
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                parent.close()  # it is in a cycle, and would close its number when the collector comes to it
                return json.loads(text), descriptors
            answers = socket.socket(fileno=descriptors.pop())
            for descriptor in descriptors:
                os.close(descriptor)
            children[pid] = answers
            tell(answers, pid)


def user_of(connection):
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def tell(answers, number):
    try:
        answers.sendall(f"{number}\n".encode())
    except OSError:  # no one waits for it any more
        pass


def tell_ended(children):
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as answers:
            tell(answers, os.waitstatus_to_exitcode(status))


def become(request, descriptors):
    """What the kernel and python do for a new program."""
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors[:DESCRIPTORS]):
        os.dup2(descriptor, number)
    os.closerange(DESCRIPTORS, 1024)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not request["whole_end"]:  # the C library calls the latest first: what is loaded later is destroyed
        for function in (C._exit, C.fcloseall):
            C.on_exit(ctypes.cast(function, ctypes.c_void_p), None)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words = request["words"]
    sys.orig_argv = [sys.executable, *words]
    sys.argv = words[1:] if words[0] == "-m" else words
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    main.__annotations__ = {}
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main


def run_script(name):
    sys.path[0] = os.path.dirname(os.path.realpath(name))
    name = os.path.join(os.getcwd(), name)
    return run(C.fopen(os.fsencode(name), b"rb"), name)


def run_module(name):
    """As `python -m`, whose own frames are runpy's."""
    sys.path[0] = os.getcwd()
    text = f"__import__('runpy')._run_module_as_main({name!r})\n".encode()
    name = "<frozen runpy>" if sys.version_info >= (3, 11) else importlib.util.find_spec("runpy").origin
    return run(C.fmemopen(text, len(text), b"r"), name)


def run(file, name):
    """By the function that python itself runs a file with."""
    run_file = ctypes.pythonapi.PyRun_SimpleFileExFlags
    run_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    return run_file(file, os.fsencode(name), 1, None)


shelf = Shelf()
if len(os.listdir("/proc/self/task")) != 1:
    sys.exit("importing torch has started a thread: it cannot be forked here")
gc.collect()
gc.freeze()  # nothing of torch's is looked at, and so copied, in each child
become(*serve(socket.socket(fileno=LISTENER)))
shelf.hide()
if (run_module if sys.orig_argv[1] == "-m" else run_script)(sys.argv[0]):
    if not issubclass(getattr(sys, "last_type", object), KeyboardInterrupt):  # by which python itself ends
        sys.exit(1)
