"""Another tool that wraps torch's loader or torch's functions, before us or after: both work, and each leaves alone."""

import contextlib
import copy
import functools
import gc
import io
import logging
import pickle
import re
import sys
import threading
import warnings
import weakref

import pytest
import running
import torch
from running import alike, both
from small_net import net, one_step
from torch.nn.utils import clip_grad

import gradvane

PATCHED = [(torch.autograd, "backward"), (torch.amp.GradScaler, "scale"), (torch.amp.GradScaler, "step"),
           (torch.autograd.profiler.profile, "__exit__"), (clip_grad, "clip_grad_norm_")]

HOOKS = """
    import functools, importlib.abc, importlib.util, sys, warnings
    told = []

    class Finder(importlib.abc.MetaPathFinder):
        '''As tools do that look at modules once they are imported.'''
        def __init__(self, name, way):
            self.name, self.way, self.is_busy = name, way, False
        def find_spec(self, fullname, path, target=None):
            if fullname != "torch" or self.is_busy:
                return None
            self.is_busy = True
            try:
                spec = importlib.util.find_spec(fullname)
            finally:
                self.is_busy = False
            loader = spec.loader
            original = loader.exec_module
            def exec_module(module):
                if self.way == "deleted":
                    del loader.exec_module
                if self.way == "restored":
                    loader.exec_module = original
                original(module)
                told.append((self.name, hasattr(module, "Tensor")))
            if self.way != "proxy":
                loader.exec_module = exec_module
                return spec
            class Proxy(importlib.abc.Loader):
                def create_module(self, spec):
                    return loader.create_module(spec)
                def exec_module(self, module):
                    module.__spec__.loader = module.__loader__ = loader
                    exec_module(module)
            spec.loader = Proxy()
            return spec

    sys.meta_path.insert(0, Finder("first", sys.argv[1]))
    sys.meta_path.insert(2, Finder("second", sys.argv[2]))
    if sys.argv[3:] == ["appended"]:
        sys.meta_path.append(sys.meta_path.pop(0))
    print([str(getattr(f, "name", f.__name__ if hasattr(f, "__name__") else type(f).__name__)) for f in sys.meta_path])
    try:
        import torch_that_is_not_there
    except ImportError as error:
        print(error)
    import torch
    assert torch.__spec__.loader is torch.__loader__
    own = vars(torch.__loader__).get("exec_module")
    print(told, type(torch.__loader__).__name__, own is None or getattr(own, "__name__", None), sorted(vars(torch.__loader__)))
    print([str(getattr(f, "name", f.__name__ if hasattr(f, "__name__") else type(f).__name__)) for f in sys.meta_path])
    print(vars(sys.meta_path[-1] if isinstance(sys.meta_path[-1], type) else type(sys.meta_path[-1])).get("find_spec").__class__.__name__)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("ways", [("kept", "deleted"), ("deleted", "kept"), ("proxy", "deleted"), ("restored", "proxy", "appended")])
def test_an_import_hook_that_wraps_torchs_loader_works_as_without_us(tmp_path, ways):
    script = running.write(tmp_path, HOOKS)
    plain = running.python(script, *ways, cwd=tmp_path)
    steps, ours = running.watched(script, *ways, cwd=tmp_path, options=("--quiet",))
    alike(plain, ours)
    assert "('first', True)" in plain.stdout or "('second', True)" in plain.stdout
    assert len(steps) == 1, "and we have seen torch come"


def test_finders_and_loaders_are_pythons_before_torch_comes_and_where_it_never_does(tmp_path):
    """Also that nothing is imported for the script which would then end in another order."""
    plain, ours = both(tmp_path, """
        import atexit, sys
        from importlib.machinery import PathFinder
        mine = lambda: print("mine", "multiprocessing.util" in sys.modules)
        there = lambda: [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path + sys.path_hooks]
        atexit.register(lambda: print("last", there(), sys.path[0], sys.orig_argv[1:]))
        print("multiprocessing" in sys.modules, "torch" in sys.modules, there())
        import importlib.util
        print(type(importlib.util.find_spec("torch").loader).__name__, importlib.util.find_spec("torch_not_there"))
        def worker():
            print("worked", flush=True)
        atexit.register(mine)
        if sys.argv[1:]:
            import multiprocessing
            multiprocessing.get_context("fork").Process(target=worker).start()
        """, "fork", is_cold=True)
    alike(plain, ours)


def test_a_failing_import_of_torch_shows_no_frame_of_ours(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import warnings\nwarnings.warn('old', stacklevel=2)\nraise RuntimeError('no such device')\n")
    alike(*both(tmp_path, """
        import traceback
        try:
            import torch
        except RuntimeError:
            traceback.print_exc()
        import torch
        """))


def test_it_ends_as_under_python_whatever_the_hooks_do(tmp_path):
    """In one script: what an excepthook sees, and what python says of one that fails."""
    alike(*both(tmp_path, """
        import sys
        class Odd(Exception):
            def __str__(self):
                raise TypeError("cannot say")
        def hook(kind, error, trace):
            print(kind.__name__, sys.last_value is error, sys.last_traceback is trace, trace.tb_frame.f_code.co_name,
                  trace.tb_next, flush=True)
            raise KeyError("in the hook")
        sys.excepthook = hook
        print(sys.orig_argv[1:], sys.flags, flush=True)
        raise Odd
        """, "--x", "1"))


def wrapping(owner, name, calls, undo):
    """Patches as tools do, with or without functools.wraps; taken back by what was there."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def theirs(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)

    setattr(owner, name, theirs)
    undo.append(lambda: setattr(owner, name, original))


def a_scaled_step(model, optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 6)).square().mean()).backward()
    scaler.unscale_(optimizer)
    clip_grad.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)


def patch_all(calls, undo):
    for owner, name in [*PATCHED[:3], PATCHED[4], (torch.Tensor, "backward"), (torch.optim.SGD, "step")]:
        wrapping(owner, name, calls, undo)


@pytest.mark.parametrize("order", ["they attach they_go detach", "attach they they_go detach", "attach they detach they_go",
                                   "they attach detach they_go", "attach they detach attach they_go detach",
                                   "attach they detach attach detach they_go attach detach"])
def test_patches_of_torchs_functions_come_and_go_in_any_order(watching, order):
    def there():
        return [vars(owner)[name] for owner, name in PATCHED] + [
            cell.cell_contents for cell in clip_grad.clip_grad_norm_.__closure__] + [
            torch.Tensor.backward, torch.optim.SGD.step]

    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)  # torch wraps its step now
    before = there()
    calls, undo = [], []
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent, steps = None, []
    for word in order.split():
        if word == "they":
            patch_all(calls, undo)
        elif word == "they_go":
            for take_back in reversed(undo):
                take_back()
            undo.clear()
        elif word == "attach":
            agent = watching(model, optimizer)
        else:
            agent.detach()
            agent = None
        calls.clear()
        a_scaled_step(model, optimizer)
        assert sorted(set(calls)) == (["backward", "clip_grad_norm_", "scale", "step"] if undo else []), word
        assert calls.count("scale") <= 1 and calls.count("backward") <= 2, word
        steps.append(agent is not None)
    for take_back in reversed(undo):
        take_back()
    logged = running.steps_in(watching._log)
    assert len(logged) == sum(steps)
    if "they_go detach" not in order or order.startswith("attach they they_go"):  # else theirs takes ours along
        assert all(s["loss_scale"] == 8.0 and "clip_coefficient" in s for s in logged)
    again = watching(model, optimizer)  # takes out what others had left of ours
    again.detach()
    assert [a is b for a, b in zip(there(), before)] == [True] * len(before)


def test_an_optimizer_whose_step_is_patched_is_seen_once_a_step(watching, monkeypatch):
    raw = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, closure=None: raw(self, closure))
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    watching(model, optimizer)
    truth = [one_step(model, optimizer) for _ in range(3)]
    steps = watching.steps()
    assert [s["grad_norm"] for s in steps] == pytest.approx([norm for _, norm in truth], rel=1e-6)


def world():
    """What a process has of global state that a tool could have changed."""
    from torch.optim import optimizer as of_optimizers

    return {
        "hooks": [len(of_optimizers._global_optimizer_pre_hooks), len(of_optimizers._global_optimizer_post_hooks)],
        "modules": [len(hooks) for name, hooks in vars(torch.nn.modules.module).items() if name.startswith("_global_") and hasattr(hooks, "__len__")],
        "warnings": list(warnings.filters), "root": (logging.root.handlers[:], logging.root.level),
        "excepthooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "finders": (sys.meta_path[:], sys.path_hooks[:], sys.path[:]),
        "cuda": torch.cuda.is_initialized(), "threads": torch.get_num_threads(), "gc": (gc.isenabled(), gc.get_threshold()),
        "modes": (torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()),
    }


def saved(*things):
    out = []
    for thing in things:
        file = io.BytesIO()
        torch.save(thing, file)
        out.append(file.getvalue())
    return out


def test_attaching_leaves_the_process_and_what_is_saved_alone(watching):
    def life(agent_of):
        torch.manual_seed(3)
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        agent = agent_of(model, optimizer)
        inside = world()
        for _ in range(3):
            one_step(model, optimizer)
        attributes = sorted(vars(model)), sorted(vars(optimizer))
        twin = copy.deepcopy(optimizer)
        assert pickle.loads(pickle.dumps(model))[0].weight.equal(model[0].weight)
        scripted = torch.jit.script(model[0]), torch.jit.trace(model, torch.ones(2, 6))
        files = saved(model, optimizer, model.state_dict(), optimizer.state_dict(), copy.deepcopy(model))
        shape = (attributes, re.sub(r"\.___torch_mangle_\d+", "", str(scripted[1].graph)), sorted(twin.__getstate__()), twin.state_dict()["param_groups"],
                 [len(hooks) for module in model.modules() for name, hooks in vars(module).items() if name.endswith("hooks")],
                 torch.get_rng_state().tolist())
        if agent is not None:
            agent.detach()
        kept = [weakref.ref(model), weakref.ref(optimizer), weakref.ref(model[0].weight.grad), weakref.ref(model[2])]
        del model, optimizer, twin, scripted
        gc.collect()
        assert [reference() for reference in kept] == [None] * 4
        return files, shape, inside

    before = world()
    plain = life(lambda *_: None)
    ours = life(watching)
    assert ours[0] == plain[0], "torch.save() writes the same bytes"
    assert ours[1] == plain[1]
    changed = {key for key in before if ours[2][key] != before[key]}
    assert changed <= {"hooks"}, changed
    assert world() == before


def test_nothing_that_was_watched_is_kept_by_a_cycle_of_ours(watching):
    gc.collect()
    gc.disable()
    try:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        agent = watching(model, optimizer)
        one_step(model, optimizer)
        agent.detach()
        gone = weakref.ref(model[0].weight)
        del model, optimizer
        assert gone() is None, "without the collector's help"
    finally:
        gc.enable()


def train_in_threads(seeds, barrier=None):
    results = {}

    def train(seed):
        generator = torch.Generator().manual_seed(seed)
        model = net()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
        optimizer = torch.optim.SGD(model.parameters(), lr=seed * 1e-3)
        norms = []
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(4, 6, generator=generator)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            norms.append(float(torch.stack([p.grad.double().pow(2).sum() for p in model.parameters()]).sum().sqrt()))
            optimizer.step()
            threading.Event().wait(0.001)
        results[seed] = ([p.detach().clone() for p in model.parameters()], norms)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_that_train_at_once_train_as_without_us(watching):
    seeds = [1, 2, 3, 4]
    plain = train_in_threads(seeds)
    watching()
    ours = train_in_threads(seeds)
    for seed in seeds:
        assert all(torch.equal(a, b) for a, b in zip(plain[seed][0], ours[seed][0]))
    steps = [s for s in watching.steps() if "skipped" not in s]
    assert len(steps) == 30 * len(seeds) and watching.agent._watcher.faults == 0
    assert all(s["param_states"] == {"finite": 4} for s in steps)


def test_exceptions_of_the_users_own_hooks_reach_the_user(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook,
                     model[0].weight.register_post_accumulate_grad_hook, model[0].weight.register_hook,
                     model.register_full_backward_hook, model.register_forward_hook):
        def fail(*_):
            raise LookupError("theirs")

        handle = register(fail)
        with pytest.raises(LookupError, match="theirs"):
            one_step(model, optimizer)
        handle.remove()
    _, norm = one_step(model, optimizer)
    assert watching.steps()[-1]["grad_norm"] == pytest.approx(norm, rel=1e-6)


def test_where_no_thread_can_be_started_attach_says_so_and_leaves_nothing(watching, monkeypatch):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before, threads = world(), threading.active_count()
    with monkeypatch.context() as patch:
        def refuse(*_):
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(gradvane.GradvaneError, match="no thread could be started: .*ulimit -u"):
            watching(model, optimizer)
    for bad in ({"mode": "fast"}, {"prot": 1}):
        with contextlib.suppress(ValueError):
            watching(model, optimizer, **bad)
    with pytest.raises(ValueError, match="owns none"):
        watching(net(), optimizer)
    assert world() == before and threading.active_count() == threads
    watching(model, optimizer)
    one_step(model, optimizer)
    assert len(watching.steps()) == 1
