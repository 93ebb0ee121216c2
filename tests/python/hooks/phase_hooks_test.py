"""What phases do to the stall clock, and to the functions of torch's that show them."""

import inspect
import io
import pickle
import time

import pytest
import torch
from slow_loop import NAP, Slow, SlowFile, slept, step
from small_net import net
from torch.utils.data import DataLoader

import gradvane
from gradvane._watch import hooks, phases


@pytest.fixture
def model():
    return net()


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), 1e-3)


# The stall clock ------------------------------------------------------------------------------------

STALLED = 0.3
"""seconds; the agent looks about once a second"""


def state_after(agent, seconds):
    """Waits for a stall, at most that long."""
    until = time.monotonic() + seconds
    while agent.status().state != "stalled" and time.monotonic() < until:
        time.sleep(0.05)
    return agent.status().state


def test_an_evaluation_or_a_checkpoint_is_no_stall_and_silence_after_it_is(watching, model, optimizer):
    agent = watching(model, optimizer, stall_seconds=STALLED)
    for name in ("evaluation", "checkpoint"):
        step(model, optimizer)
        assert agent.flush()
        with gradvane.phase(name):
            assert state_after(agent, 2.5) == "running"
    assert state_after(agent, 30) == "stalled", "the control: nothing holds the clock up any more"


def test_a_model_in_evaluation_mode_is_no_stall(watching, model, optimizer):
    agent = watching(model, optimizer, stall_seconds=STALLED)
    step(model, optimizer)
    assert agent.flush()
    model.eval()
    assert state_after(agent, 2.5) == "running"
    model.train()
    assert state_after(agent, 30) == "stalled"


@pytest.mark.parametrize("longest", [0, STALLED])
def test_an_evaluation_that_lasts_too_long_is_a_stall_after_all(watching, model, optimizer, longest):
    agent = watching(model, optimizer, stall_seconds=STALLED, stall_pause_seconds=longest)
    step(model, optimizer)
    assert agent.flush()
    with gradvane.phase("evaluation"):
        assert state_after(agent, 30) == "stalled"


# torch's own functions ------------------------------------------------------------------------------


def functions():
    import torch.distributed.checkpoint as dcp

    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    return {"__next__": vars(iterator)["__next__"], "save": torch.save, "serialization": torch.serialization.save,
            "dcp.save": dcp.save, "saver": dcp.state_dict_saver.save, "dcp.async_save": dcp.async_save}


def test_torchs_functions_look_the_same_and_are_back_at_the_end(watching, model, optimizer):
    before = functions()
    agent = watching(model, optimizer)
    during = functions()
    for name, function in before.items():
        assert during[name] is not function
        assert inspect.signature(during[name]) == inspect.signature(function)
        assert (during[name].__name__, during[name].__doc__) == (function.__name__, function.__doc__)
    assert during["save"] is during["serialization"] and during["dcp.save"] is during["saver"]
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    agent.detach()
    assert functions() == before


def test_anothers_patch_stays_and_sees_each_call(watching, model, optimizer, monkeypatch):
    original, calls = torch.save, []

    def theirs(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch, "save", theirs)
    agent = watching(model, optimizer)
    assert torch.serialization.save is original, "it is not theirs: left alone"
    step(model, optimizer)
    torch.save(0, SlowFile())
    step(model, optimizer)
    assert slept(watching.steps()[-1], "checkpoint") and calls == [1]
    agent.detach()
    assert torch.save is theirs


@pytest.mark.parametrize("missing", ["__next__", "the iterator", "save", "dcp"])
def test_a_torch_without_one_of_the_functions_is_watched_without_that_phase(
        watching, model, optimizer, monkeypatch, missing):
    import torch.distributed.checkpoint as dcp

    if missing == "__next__":
        monkeypatch.delattr(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__")
    elif missing == "the iterator":
        monkeypatch.delattr(torch.utils.data.dataloader, "_BaseDataLoaderIter")
    elif missing == "save":
        monkeypatch.delattr(torch, "save")
        monkeypatch.delattr(torch.serialization, "save")
    else:
        monkeypatch.delattr(dcp, "save")
        monkeypatch.delattr(dcp.state_dict_saver, "async_save")
    watching(model, optimizer)
    step(model, optimizer)
    with gradvane.phase("checkpoint"):
        time.sleep(NAP)
    step(model, optimizer)
    assert slept(watching.steps()[-1], "checkpoint")


def test_a_program_that_is_still_importing_checkpoints_is_left_alone(monkeypatch):
    import sys
    import types

    name = "torch.distributed.checkpoint.state_dict_saver"
    module = types.ModuleType(name)
    module.__spec__ = types.SimpleNamespace(_initializing=True)
    monkeypatch.setitem(sys.modules, name, module)
    assert phases.checkpoint_modules() == []


def test_a_fault_in_a_hook_is_counted_and_leaves_loading_and_saving_alone(watching, model, optimizer, monkeypatch):
    agent = watching(model, optimizer)
    step(model, optimizer)
    watched = hooks.current().phases

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("broken")

    monkeypatch.setattr(watched, "_native", Broken())
    assert len(list(DataLoader(Slow(2, nap=0), batch_size=1))) == 2
    torch.save(0, io.BytesIO())
    with gradvane.phase("evaluation"):
        pass
    assert watched.faults == 5, "each batch, the loader's end, the save, and the script's own"
    monkeypatch.undo()
    agent.detach()
