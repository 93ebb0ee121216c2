"""Host syncs beside PyTorch's profiler and Triton's Proton, which want CUPTI's one subscription while they run."""

import sys

import planted
import pytest
import running
from planted import ASK, BEGIN, STEPS, documents, syncs

GATE = """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    print("gate", getenv(b"KINETO_USE_DAEMON"))
"""


@pytest.mark.parametrize("way", ["injected", "agent"])
def test_pytorchs_profiler_works_inside(tmp_path, way):
    script = running.write(tmp_path, BEGIN + f"""
    train(2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train({STEPS - 2})
    print("aten::linear" in {{event.key for event in profiler.key_averages()}})
    """ + GATE)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path, way=way)
    assert "True\ngate None\n" in done.stderr
    (document,) = documents(done)
    assert document["gaps"] == 1 and document["source"] in ("cupti", "shared")  # it came back


PROFILED = """
    def profiler(enabled=True):
        return torch.autograd.profiler.profile(enabled=enabled)
"""


def test_a_profiler_alone_starts_no_agent(tmp_path):
    script = running.write(tmp_path, BEGIN + PROFILED + """
    from gradvane import _agent
    from gradvane._watch import profilers
    with torch.no_grad(), profiler(), profiler(enabled=False):
        model(torch.ones(2, 4))
    print(_agent.live(), len(profilers.running()))
    """)
    steps, done = running.watched(script, cwd=tmp_path, **planted.ways("agent"))
    assert (steps, done.stdout) == ([], "None 0\n") and "watching" not in done.stderr


def test_an_agent_that_comes_while_a_profiler_runs_yields_to_it(tmp_path):
    script = running.write(tmp_path, BEGIN + PROFILED + ASK + """
    import json
    def reason(wanted):
        return json.loads(ask("/api/v1/syncs", lambda text: f'"reason":"{wanted}"' in text.replace(" ", "")))["reason"]
    with profiler():
        train(2)
        inside = reason("yielded")
        with profiler(enabled=False):
            train(2)
        inside_still = reason("yielded")
    train(2)
    print(inside, inside_still, reason("counting"))
    """)
    _, done = running.watched(script, cwd=tmp_path, **planted.ways("agent"))
    assert done.stdout == "yielded yielded counting\n", done.stderr


@pytest.mark.parametrize("rule", ["yield", "share", "gate"])
def test_the_other_rules_about_the_profiler_hold_where_the_ledger_is_injected(tmp_path, rule):
    script = running.write(tmp_path, BEGIN + """
    train(12)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        train(2)
    train(12)
    """ + GATE)
    done = syncs("--json", "--budget", 3, "--fail", "--", sys.executable, script, cwd=tmp_path, check=False,
                 GRADVANE_SYNC_PROFILER=rule)
    (document,) = documents(done)
    # The fake CUPTI is too old to share: then it is given up.
    told = rule == "gate"
    assert document["reason"] == ("gated" if told else "counting")
    assert ("gate b'1'" if told else "gate None") in done.stderr
    # What the profiler had for itself nobody can hold to a budget.
    assert (document["gaps"], done.returncode) == ((0, 0) if told else (1, 3))


KINETO = """
    import torch.autograd.profiler as torchs
    original = torchs._prepare_profiler

    def takes_the_slot(*args, **kwargs):  # as Kineto does until torch 2.13, and keeps it
        cuda.fake_take_by(b"Kineto")
        return original(*args, **kwargs)

    torchs._prepare_profiler = takes_the_slot
"""


def test_a_kineto_that_keeps_the_subscription_is_told_of_in_a_line(tmp_path):
    script = running.write(tmp_path, BEGIN + KINETO + """
    train(12)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        train(2)
    train(4)
    import time; time.sleep(2)
    """)
    done = syncs("--json", "--budget", 3, "--fail", "--", sys.executable, script, cwd=tmp_path, check=False)
    (document,) = documents(done)
    assert (document["source"], document["reason"], document["gaps"]) == ("none", "taken", 1)
    assert document["detail"] == "by Kineto, since PyTorch's profiler was given it" and done.returncode == 3
    _, done = running.watched(script, cwd=tmp_path, **planted.ways("injected"))
    assert done.stderr.count("Host syncs are not counted any more: another tool has the one CUPTI subscription of this "
                             "process (by Kineto, since PyTorch's profiler was given it).") == 1


def test_an_injected_library_gives_way_to_a_profiler_that_begins_before_training(tmp_path):
    script = running.write(tmp_path, BEGIN + PROFILED + """
    cuda.fake_item(10)  # from here on the driver is there
    def subscribed():
        import time
        time.sleep(0.3)
        return cuda.fake_is_subscribed()
    seen = [subscribed()]
    with profiler():
        seen.append(subscribed())
    seen.append(subscribed())
    with profiler():
        seen.append(subscribed())
        train(2)
        seen.append(subscribed())
    train(2)
    print(*seen, subscribed())
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    assert "1 0 1 0 0 1\n" in done.stderr
    assert documents(done)[0]["steps"] == 2, "those that nothing else had CUPTI for"


FAILS = """
    import torch.autograd.profiler as torchs
    import gc

    def once(name):
        original = getattr(torchs, name)
        def raises(*args, **kwargs):
            setattr(torchs, name, original)
            raise RuntimeError("no profiler today")
        setattr(torchs, name, raises)
"""


@pytest.mark.parametrize("how", ["_prepare_profiler", "_enable_profiler", "dropped"])
def test_a_profiler_that_does_not_start_or_is_dropped_leaves_us_counting(tmp_path, how):
    if how == "dropped":
        fails = """
    dropped = torchs.profile()
    dropped._prepare_trace()
    del dropped
    gc.collect()
    """
    else:
        fails = f"""
    once({how!r})
    try:
        with torchs.profile():
            print("not reached")
    except RuntimeError as error:
        print(error)
    """
    script = running.write(tmp_path, BEGIN + FAILS + "\n    train(4)" + fails + """
    train(12)
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    (document,) = documents(done)
    assert document["reason"] == "counting" and "not reached" not in done.stderr
    assert ("no profiler today" in done.stderr) == (how != "dropped")
    assert document["steps"] >= 12


PROTON = """
import ctypes, os, types
cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
proton, sessions = types.ModuleType("proton"), []

def start(name, context, data, backend, mode):
    assert cuda.fake_is_subscribed() == 0, "Failed to execute cuptiSubscribe with error 39"
    if mode == "refused":
        raise RuntimeError("Failed to execute cuptiSubscribe with error 39")
    if mode == "broken":
        raise RuntimeError("no such mode")
    sessions.append(len(sessions))
    return sessions[-1]

proton.start, proton.finalize, proton.finalize_all = start, lambda session, form: None, lambda form: None
"""


@pytest.mark.parametrize("imported", ["before", "after"])
def test_tritons_proton_gets_the_subscription_while_it_runs(tmp_path, imported):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "libproton.py").write_text(PROTON)
    proton = "    from triton._C.libproton import proton\n"
    script = running.write(tmp_path, BEGIN + """
    import triton._C
    triton._C.__path__ = [os.path.abspath("fake")]
""" + (proton if imported == "before" else "") + f"""
    import gradvane
    agent = gradvane.attach(model, optimizer, sync="require")
{proton if imported == "after" else ""}
    train(2)
    print(cuda.fake_is_subscribed(), end=" ")
    first = proton.start("a", "shadow", "tree", "cupti", "")
    second = proton.start("b", "shadow", "tree", "cupti", "")
    proton.finalize(first, "hatchet")
    print(cuda.fake_is_subscribed(), end=" ")
    proton.finalize(second, "hatchet")
    print(cuda.fake_is_subscribed(), end=" ")
    proton.start("c", "shadow", "tree", "cupti", "")
    proton.finalize_all("hatchet")
    try:
        proton.start("d", "shadow", "tree", "cupti", "broken")
    except RuntimeError as error:
        print(error, cuda.fake_is_subscribed())
    agent.detach()
    print(proton.start.__module__, proton.start.__qualname__)
    """)
    done = running.python(script, cwd=tmp_path, **planted.ways("injected"))
    assert done.stdout == "1 0 1 no such mode 1\ntriton._C.libproton start\n"


def test_proton_that_starts_before_training_in_an_injected_program_works(tmp_path):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "libproton.py").write_text(PROTON)
    script = running.write(tmp_path, BEGIN + """
    import triton._C
    triton._C.__path__ = [os.path.abspath("fake")]
    from triton._C.libproton import proton
    cuda.fake_item(10)
    session = proton.start("a", "shadow", "tree", "cupti", "")
    train(2)
    proton.finalize(session, "hatchet")
    train(2)
    print("profiled")
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    assert "profiled\n" in done.stderr
    assert documents(done)[0]["steps"] == 2, "those that nothing else had CUPTI for"


LOAD = """
    import ctypes, shutil, _ctypes
    shutil.copy(_ctypes.__file__, "libproton.so")
    ctypes.CDLL("./libproton.so")  # an object of that name is what counts
"""
LOADED = LOAD + f"""
    import gradvane
    gradvane.attach(model, optimizer)
    {ASK}
    train(4)
    import json
    seen = json.loads(ask("/api/v1/syncs", lambda text: "switched_off" not in text))  # until the first report
    print(cuda.fake_is_subscribed(), seen["reason"])
"""


@pytest.mark.parametrize(("sync", "seen"), [("auto", "0 proton"), ("require", "1 counting")])
def test_nothing_is_counted_where_proton_was_loaded_before_unless_it_is_required(tmp_path, sync, seen):
    script = running.write(tmp_path, BEGIN + LOADED)
    done = running.python(script, cwd=tmp_path, **{**planted.ways("injected"), "GRADVANE_SYNC": sync})
    assert done.stdout == f"{seen}\n", done.stderr


@pytest.mark.parametrize(("sync", "seen"), [("", "proton"), ("require", "counting")])
def test_an_injected_library_leaves_cupti_to_proton_that_was_loaded_before(tmp_path, sync, seen):
    script = running.write(tmp_path, LOAD + BEGIN + f"""
    train({STEPS})
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path, GRADVANE_SYNC=sync)
    assert documents(done)[0]["reason"] == seen


def test_proton_that_fails_where_syncs_were_counted_before_gets_a_line(tmp_path):
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "libproton.py").write_text(PROTON)
    script = running.write(tmp_path, BEGIN + """
    import triton._C
    triton._C.__path__ = [os.path.abspath("fake")]
    import gradvane
    gradvane.attach(model, optimizer)
    train(2)
    from triton._C.libproton import proton
    for _ in range(2):
        try:
            proton.start("a", "shadow", "tree", "cupti", "refused")
        except RuntimeError as error:
            print(error)
    """)
    done = running.python(script, cwd=tmp_path, **planted.ways("injected"))
    assert done.stdout == 2 * "Failed to execute cuptiSubscribe with error 39\n"
    assert done.stderr.count("import triton.profiler at the top of the program, or set GRADVANE_SYNC=off") == 1
