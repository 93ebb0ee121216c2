"""Stacks of all kinds of functions, with all kinds of names and lines."""

import asyncio
import ctypes
import functools
import sys

from python_stack_check import CALLBACK, FREE, HAS_QUALNAME, HELD, check, read, replaced, scenario


@scenario
def nested_functions_lambdas_and_comprehensions():
    def outer():
        def inner():
            return check()
        return inner()

    rows = outer()
    assert [row[1].rsplit(".", 1)[-1] for row in rows[:2]] == ["inner", "outer"], rows
    (lambda: check())()
    [check() for _ in range(2)]
    {check()[0] for _ in range(2)}
    {n: check() for n in range(2)}
    list(check() for _ in range(2))
    [[check() for _ in range(2)] for _ in
     range(2)]
    functools.partial(check)()


@scenario
def generators_and_coroutines():
    def numbers():
        for n in range(3):
            check()
            yield n
        yield from numbers_within()

    def numbers_within():
        check()
        got = yield 1
        check()
        assert got is None

    assert list(numbers()) == [0, 1, 2, 1]
    closing = numbers()
    next(closing)
    closing.close()

    class Wait:
        def __await__(self):
            check()
            yield
            check()

    async def waiting():
        async with Context():
            await Wait()
            return [n async for n in counting()]

    class Context:
        async def __aenter__(self):
            check()

        async def __aexit__(self, *_):
            check()

    async def counting():
        for n in range(2):
            check()
            yield n

    coroutine = waiting()
    coroutine.send(None)
    try:
        coroutine.send(None)
    except StopIteration as done:
        assert done.value == [0, 1]

    async def together():
        async def one():
            await asyncio.sleep(0)
            check()
        await asyncio.gather(one(), one())

    asyncio.run(together())


@scenario
def decorators_class_bodies_and_properties():
    def around(function):
        @functools.wraps(function)
        def call(*arguments):
            check()
            return function(*arguments)
        return call

    class Thing:
        here = check()

        @around
        def method(self):
            return check()

        @property
        def value(self):
            return check()

        def __getattr__(self, name):
            check()
            raise AttributeError(name)

        def __lt__(self, other):
            check()
            return False

        def __enter__(self):
            return check()

        def __exit__(self, *_):
            check()

    assert Thing.here[0][1].rsplit(".", 1)[-1] == "Thing"
    thing = Thing()
    thing.method()
    thing.value
    assert not hasattr(thing, "missing")
    sorted([thing, Thing()])
    with thing:
        pass
    try:
        raise ValueError
    except ValueError:
        check()
    finally:
        check()


@scenario
def called_back_by_c():
    sorted([3, 1, 2], key=lambda n: (check(), n)[1])
    list(map(lambda n: check(), range(2)))
    functools.reduce(lambda a, b: check(), range(3))
    # Frames that stand for the C function lie between these from 3.12 on.
    again = CALLBACK(lambda: check())
    for library in (FREE, HELD):
        library.probe_call(CALLBACK(lambda: (check(), FREE.probe_call(again))))


@scenario
def code_that_is_never_freed():
    # From 3.12 objects can be immortal, and a frame of 3.14 refers to those in another way.
    def immortal():
        return check()

    if sys.version_info >= (3, 12):
        ctypes.c_uint32.from_address(id(immortal.__code__)).value = 0xC0000000
    assert immortal()[0][1].rsplit(".", 1)[-1] == "immortal"


@scenario
def names_of_all_widths():
    class Odd(str):
        pass

    source = "\n\nprobe()\n"
    for file in ("", " ", "/tmp/\u00e9\u00e8.py", "/tmp/\u540d\u524d.py", "/tmp/\U0001f525/\u00e9.py",
                 "<string>", "/tmp/\udc80.py", Odd("subclass.py"), Odd("\U0001f525")):
        code = compile(source, file, "exec")
        rows = []
        exec(code, {"probe": lambda: rows.append(check())})
        assert rows[0][1][0] == 3 and rows[0][1][2] == replaced(file), rows[0][:2]

    scope = {"check": check}
    exec("def caf\u00e9(): return check()\ndef \u540d\u524d(): return check()", scope)
    assert scope["caf\u00e9"]()[0][1] == "caf\u00e9" and scope["\u540d\u524d"]()[0][1] == "\u540d\u524d"

    def plain():
        return check()

    for name in ("\U0001f525", "a\0b", "", "x" * 1000, Odd("odd"), "\u00ff" * 300):
        names = {"co_name": name, "co_qualname": name} if HAS_QUALNAME else {"co_name": name}
        plain.__code__ = plain.__code__.replace(**names)
        assert plain()[0][1] == replaced(name)


@scenario
def names_that_are_too_long():
    name = "abc\u00e9\u540d\U0001f525" * 20
    file = "/tmp/" + "\U0001f525\u540d\u00e9xyz" * 20

    def plain():
        return read(FREE, 2, room)

    names = {"co_name": name, "co_qualname": name} if HAS_QUALNAME else {"co_name": name}
    plain.__code__ = plain.__code__.replace(co_filename=file, **names)
    for room in range(1, 60):
        _, got_name, got_file = plain()[0]
        # Whole characters, as many as fit beside the zero, and from the end that is wanted.
        for got, there in ((got_name, name[:len(got_name)]), (got_file, file[len(file) - len(got_file):])):
            assert got == there, (room, got, there)
            assert len(got.encode()) <= room - 1
        assert len((name[:len(got_name) + 1]).encode()) > room - 1, room
        assert len((file[len(file) - len(got_file) - 1:]).encode()) > room - 1, room


@scenario
def deeper_than_the_reader_looks():
    def down(n):
        return down(n - 1) if n else check(most=10)

    assert len(down(300)) == 9
    sys.setrecursionlimit(5000)

    def deep(n):
        return deep(n - 1) if n else check(most=3000)

    assert len(deep(1500)) > 1500

    def through_c(n):
        return sorted([n], key=lambda n: through_c(n - 1) and n) if n else check(most=1000)

    through_c(100)


@scenario
def lines_of_long_functions():
    body = ["def long(call, x):"]
    for n in range(600):
        body.append(f"    x = {'(' if n % 7 == 0 else ''}x + {n} * x - {n}"
                    + ("\n\n\n\n        + 1)" if n % 7 == 0 else ""))
        if n % 5 == 0:
            body.append("    call(1,\n      2 if x else\n      3)" if n % 2 else "    for _ in range(1): call(1, x)")
    body.extend(["\n" * 3000, "    call(x,", "\n" * 70000, "     1)", "    try: call(", "      1); call(2)",
                 "    finally: call(3)"])
    scope = {}
    exec(compile("\n" * 300 + "\n".join(body), "long.py", "exec"), scope)
    before = check.count
    scope["long"](lambda *_: check(), 1)
    assert check.count > before + 100
