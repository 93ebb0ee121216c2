"""What a step that is watched leaves as it was: hooks, weights, copies, compiled graphs."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from traced_models import Bad, Model, data, hooks_in, hooks_of_modules, tracing, train, where  # noqa: F401

import gradvane


@pytest.mark.parametrize("raises", ["Error", "KeyboardInterrupt"])
def test_an_exception_in_a_forward_confuses_nothing_and_leaves_no_hook(tracing, raises):
    class Raising(nn.Module):
        def forward(self, x):
            if self.training:
                raise KeyboardInterrupt if raises == "KeyboardInterrupt" else ValueError
            return x

    model = Model(Raising(), Bad())
    optimizer = tracing(model, "off")
    gradvane.trace_nonfinite()
    with pytest.raises((ValueError, KeyboardInterrupt)):
        model(data())
    assert hooks_in(model) == 0
    model.blocks[0].inner.eval()
    model.blocks[1].inner.is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.inner", "Bad", "module", "forward")
    assert hooks_of_modules() == 0


def test_no_hook_is_there_while_it_is_off_and_none_after_a_watched_step(tracing):
    model = Model(Bad(), None)
    optimizer = tracing(model, "off")
    train(model, optimizer)
    assert hooks_of_modules() == 0
    tracing.agent.trace_nonfinite()
    assert hooks_of_modules() == 2
    assert hooks_in(model) == 0, "none on a module itself"
    train(model, optimizer)
    assert hooks_of_modules() == hooks_in(model) == 0
    assert all(not parameter._backward_hooks for parameter in model.parameters())
    assert tracing.agent.traced() is None
    train(model, optimizer)
    assert hooks_of_modules() == 0


def test_none_is_left_when_the_agent_goes(tracing):
    model = Model(None)
    filters = list(warnings.filters)
    optimizer = tracing(model, "always")
    train(model, optimizer)
    model(data())
    assert hooks_of_modules() == 2
    tracing.agent.detach()
    assert hooks_of_modules() == hooks_in(model) == 0
    assert list(warnings.filters) == filters
    assert all(not parameter._backward_hooks for parameter in model.parameters())


def test_a_copy_or_a_checkpoint_of_a_watched_model_holds_nothing_of_ours(tracing):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = tracing(model, "always")
    train(model, optimizer)
    assert b"gradvane" not in pickle.dumps(model)
    assert hooks_in(copy.deepcopy(model)) == 0


@pytest.mark.parametrize("how", ["plain", "dropout", "autocast", "checkpoint", "accumulation", "in place"])
def test_the_weights_are_the_same_bit_for_bit_with_every_step_watched(watching, how):
    weights = []
    for trace in ("off", "always"):
        torch.manual_seed(3)
        act = nn.ReLU(inplace=True) if how == "in place" else nn.GELU()
        model = Model(nn.Dropout(0.5) if how == "dropout" else act, act)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        agent = watching(model, optimizer, trace_nonfinite=trace)
        for _ in range(5):
            optimizer.zero_grad()
            for part in data(8).split(2 if how == "accumulation" else 8):
                with torch.autocast("cpu", enabled=how == "autocast"):
                    out = checkpoint(model, part, use_reentrant=False) if how == "checkpoint" else model(part)
                    loss = out.square().mean()
                loss.backward()
            optimizer.step()
        agent.detach()
        assert agent._watcher.tracer.faults == 0
        weights.append([parameter.clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights))


def test_a_thousand_modules_are_no_trouble(tracing):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(600)], Bad(), *[nn.Linear(4, 4) for _ in range(400)])
    optimizer = tracing(model)
    train(model, optimizer)
    assert tracing.agent.traced() is None
    model[600].is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("600", "Bad", "module", "forward")


def test_a_double_backward_is_left_alone(tracing):
    model = Model(None)
    optimizer = tracing(model)
    x = data().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    optimizer.step()
    assert tracing.agent.traced() is None


def test_function_transforms_tracing_and_scripts_are_left_alone(tracing):
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.ReLU()), nn.Linear(4, 1))
    optimizer = tracing(model)
    torch.func.vmap(model)(data())
    torch.func.functional_call(model, dict(model.named_parameters()), data())
    torch.jit.trace(nn.Linear(4, 4), data())
    torch.fx.symbolic_trace(nn.Linear(4, 4))
    train(model, optimizer)
    assert tracing.agent.traced() is None


@pytest.mark.parametrize("what", ["model", "part", "function"])
def test_a_compiled_model_is_not_broken_up_and_is_named_as_a_whole(watching, what):
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    dynamo.reset()
    counters.clear()
    model = Model(None, Bad(), None)
    run = model
    if what == "model":
        run = torch.compile(model, backend="aot_eager")
    elif what == "part":
        model.blocks[1] = torch.compile(model.blocks[1], backend="aot_eager")
    else:
        run = torch.compile(lambda x: model(x), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer, trace_nonfinite="always")
    for _ in range(4):
        train_with(run, optimizer)
    assert counters["stats"]["unique_graphs"] == 1, "compiled once"
    assert not counters["graph_break"]
    bad = model.blocks[1] if what != "part" else model.blocks[1]._orig_mod
    with torch.no_grad():
        bad.norm.weight[0] = float("nan")
    agent._watcher.tracer._is_armed = True
    train_with(run, optimizer)
    found = agent.traced()
    assert counters["stats"]["unique_graphs"] == 1
    expected = {"model": ("", "Model", "module"), "part": ("blocks.1", "Block", "module"), "function": ("", "", "loss")}
    assert (found.name, found.type, found.at) == expected[what]


def train_with(run, optimizer):
    optimizer.zero_grad()
    run(data()).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("how", ["later", "off again"])
def test_a_model_that_is_compiled_already_is_not_compiled_anew_when_a_step_is_watched(watching, how):
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    dynamo.reset()
    counters.clear()
    model = Model(None)
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer)
    for number in range(6):
        if number == 3 or (how == "off again" and number == 4):
            agent.trace_nonfinite()
        train_with(run, optimizer)
    assert counters["stats"]["unique_graphs"] == 1
    assert not hooks_of_modules()
