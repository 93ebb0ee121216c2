"""Stacks in threads and children, under a tracer, during a collection, and when Python is at its end."""

import gc
import os
import sys
import threading
import time

from python_stack_check import FREE, HELD, LIBRARY, check, scenario


@scenario
def threads_of_python():
    failed = []

    def run():
        try:
            rows = check()
            assert rows[-1][1].rsplit(".", 1)[-1] == "_bootstrap", rows
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and check.count == 4, failed


@scenario
def a_forked_child():
    def forked():
        child = os.fork()
        if child == 0:
            try:
                check()
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1]

    statuses = [forked()]
    thread = threading.Thread(target=lambda: statuses.append(forked()))
    thread.start()
    thread.join()
    assert statuses == [0, 0]


@scenario
def threads_that_know_no_python():
    for library in (FREE, HELD):
        for _ in range(20):
            assert library.probe_walk_in_new_thread() == 0
    check()


@scenario
def a_state_of_another_thread():
    assert HELD.probe_walk_as_another_thread() == 0
    check()


@scenario
def run_by_the_garbage_collector():
    class Loop:
        def __init__(self):
            self.me = self

        def __del__(self):
            check()

    for _ in range(3):
        Loop()
    gc.collect()
    assert check.count == 3

    # In 3.11 the making of a function's cells may start the collector, when its frame has not begun.
    def cells(a, b, c):
        def inner():
            return a, b, c
        return inner

    for n in range(200):
        gc.disable()
        Loop()
        gc.set_threshold(1, 1, 1)
        gc.enable()
        cells(n, n, n)
        gc.set_threshold(700, 10, 10)
    gc.collect()
    assert check.count == 203


@scenario
def code_that_takes_the_address_of_another():
    # Each is gone after its call, strings and all, so that another takes its place.
    results = [eval(compile("f()", f"<made {number:04}>", "eval"), {"f": FREE.probe_seen_before})
               for number in range(3000)]
    counts = [results.count(n) for n in range(4)]
    assert counts[2] == 0 and sum(counts) == len(results), counts
    # The case that pointers alone would take for the same function comes up.
    assert counts[3] > 0, counts
    print("new, other, same, other in content alone:", counts)

    def still_there():
        return FREE.probe_seen_before()

    assert still_there() in (0, 1, 3)
    assert still_there() == 2


@scenario
def many_threads_at_once():
    stop = threading.Event()
    others = []

    def walks(depth):
        if depth:
            walks(depth - 1)
        else:
            others.append(FREE.probe_repeat(20000))

    def works():
        while not stop.is_set():
            scope = {}
            exec(compile("def f(n):\n  return [f(n - 1) for _ in range(2)] if n else 1\nf(5)", "<work>", "exec"), scope)
            try:
                raise ValueError([scope])
            except ValueError:
                pass

    threads = [threading.Thread(target=walks, args=(depth,)) for depth in range(6)]
    workers = [threading.Thread(target=works) for _ in range(3)]
    for thread in workers + threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    for thread in workers:
        thread.join()
    assert others == [0] * 6, others


def some_work(n):
    total = 0
    for i in range(n):
        total += i
        check()
    return [check() for _ in range(2)] and sorted([1], key=lambda k: check() and k) and total


@scenario
def a_trace_function():
    def trace(frame, event, argument):
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name in ("some_work", "<lambda>", "<listcomp>"):
            events.append(event)
            sys.settrace(None)
            try:
                check()
            finally:
                sys.settrace(trace)
            return trace

    def quiet(frame, event, argument):
        return quiet

    events = []
    for function in (trace, quiet):
        sys.settrace(function)
        some_work(3)
        sys.settrace(None)
    assert {"call", "line", "return"} <= set(events), events
    some_work(3)


@scenario
def a_profile_function():
    def profile(frame, event, argument):
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name == "some_work":
            events.append(event)
            check()

    events = []
    sys.setprofile(profile)
    some_work(3)
    sys.setprofile(None)
    assert {"call", "return"} <= set(events), events
    some_work(3)


@scenario
def sys_monitoring():
    if sys.version_info < (3, 12):
        return
    monitoring, events = sys.monitoring, []

    def seen(code, *_):
        if code.co_name == "some_work":
            events.append(code)
            check()

    kinds = monitoring.events
    monitoring.use_tool_id(3, "probe")
    for kind in (kinds.LINE, kinds.PY_START, kinds.PY_RETURN, kinds.INSTRUCTION):
        monitoring.register_callback(3, kind, seen)
    monitoring.set_events(3, kinds.LINE | kinds.PY_START | kinds.PY_RETURN | kinds.INSTRUCTION)
    some_work(3)
    monitoring.set_events(3, 0)
    monitoring.free_tool_id(3)
    assert len(events) > 20
    some_work(3)


@scenario
def subinterpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    # Nothing but ctypes: not every module lets itself be loaded there.
    inside = f"""if True:
        import ctypes, sys
        probe = ctypes.CDLL({LIBRARY!r})
        out = ctypes.create_string_buffer(1 << 16)
        def within():
            return probe.probe_walk(16, ctypes.c_size_t(64), out, ctypes.c_size_t(len(out)))
        count = within()
        # Until 3.11 a thread's first interpreter is the one it is asked about: the frames below ours.
        if sys.version_info >= (3, 12):
            assert count == 2 and "\\x1fwithin\\x1f<" in out.value.decode(), (count, out.value)
        """
    if sys.version_info >= (3, 13):
        made = interpreters.create("legacy")
    else:
        made = interpreters.create(isolated=False)
    for _ in range(3):
        failed = interpreters.run_string(made, inside)
        assert failed is None, failed
        check()
    interpreters.destroy(made)
    check()


@scenario
def while_the_interpreter_ends():
    class Last:
        def __init__(self):
            self.say = FREE.probe_say_frames

        def __del__(self):
            self.say()

    # Modules are cleared once the states of other threads are gone.
    sys.modules[__name__].last = Last()
    check()


@scenario
def after_the_interpreter():
    FREE.probe_walk_at_exit()
    check()


@scenario
def a_thread_that_the_interpreter_leaves_behind():
    FREE.probe_walk_at_exit()
    for _ in range(3):
        threading.Thread(target=FREE.probe_walk_for_ever, daemon=True).start()
    time.sleep(0.05)


@scenario
def versions_that_are_not_known():
    for text in (b"", b"3", b"3.", b"3.11", b"4.11.0", b"2.7.18", b"3.9.18 (main)", b"3.15.0 (main)", b"3.110.1",
                 b"3.14.0a7 (main)", b"3.14.0b1 (main)", b"3.14.0rc", b"3.11.7x", b"31.1.1", b"x3.11.7",
                 b"3.13.0 experimental free-threading build (main)", b"3.14.0 free-threading build (main)",
                 b"3.11.13 (0, Jul 1 2025) [PyPy 7.3.20 with GCC 10.2.1]", b"3.11.7 (GraalVM CE Native 24.0.0)"):
        assert FREE.probe_table_of(text) == 0, text
        assert FREE.probe_confirms(text) == 0, text
    for text, minor in ((b"3.10.13 (main)", 10), (b"3.11.2+ (main)", 11), (b"3.14.0rc2 (main)", 14), (b"3.12.0", 12)):
        assert FREE.probe_table_of(text) == minor, text
    # The tables of the other versions are told from the right one by what this Python says of itself.
    for minor in range(10, 15):
        assert FREE.probe_confirms(b"3.%d.0" % minor) == (minor == sys.version_info[1]), minor
    assert FREE.probe_version().decode() == sys.version.split()[0]
