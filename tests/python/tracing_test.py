"""Which module is named when something goes bad, by a step that is watched for it."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint

import gradvane


class Bad(nn.Module):
    """Divides 0 by 0 while it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False

    def forward(self, x):
        return x * 0 / 0 if self.is_armed else x * 1


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


class BadBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False

    def forward(self, x):
        return BadBackward.apply(x) if self.is_armed else x * 1


class Block(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner = inner or nn.Identity()
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.out(self.inner(self.norm(x)).relu())


class Model(nn.Module):
    def __init__(self, *inners: nn.Module | None) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(Block(inner) for inner in inners)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data(rows: int = 3):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))


def train(model, optimizer, inputs=None):
    optimizer.zero_grad()
    model(data() if inputs is None else inputs).square().mean().backward()
    optimizer.step()


@pytest.fixture
def tracing(watching):
    def start(model, trace="always", **options):
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        start.agent = watching(model, optimizer, trace_nonfinite=trace, **options)
        return optimizer

    yield start
    if start.agent is not None:
        assert start.agent._watcher.faults == start.agent._watcher.tracer.faults == 0


def where(agent):
    found = agent.traced()
    return None if found is None else (found.name, found.type, found.at, "backward" if found.is_backward else "forward")


def hooks_of_modules() -> int:
    return len(torch_module._global_forward_hooks) + len(torch_module._global_forward_pre_hooks)


def hooks_in(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


def test_a_nan_born_in_a_forward_is_put_down_to_the_innermost_module_that_made_it(tracing):
    model = Model(None, Bad(), None)
    optimizer = tracing(model)
    train(model, optimizer)
    assert tracing.agent.traced() is None
    model.blocks[1].inner.is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.inner", "Bad", "module", "forward")
    assert tracing.agent.traced().run_step == 2
    assert tracing.agent.traced().micro_step == 1


def test_one_of_a_gradient_alone_is_put_down_to_the_module_whose_backward_made_it(tracing):
    model = Model(None, BadBack(), None)
    optimizer = tracing(model)
    train(model, optimizer)
    assert tracing.agent.traced() is None
    model.blocks[1].inner.is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.inner", "BadBack", "module", "backward")


class Root(nn.Module):
    """The gradient of a square root at 0 is infinite, and NaN times 0."""

    def forward(self, x):
        return (x * 0).sqrt() + x


def test_the_gradient_of_a_square_root_at_zero_is_named(tracing):
    model = Model(None, Root())
    optimizer = tracing(model)
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.inner", "Root", "module", "backward")


class InCode(nn.Module):
    def __init__(self, act) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(4, 4), nn.Linear(4, 1), act

    def forward(self, x):
        return self.two(self.act(self.one(x)))


@pytest.mark.parametrize(("act", "direction"), [
    (lambda x: (x * 0).log() * 0, "forward"),
    (lambda x: (x - x.abs() - 1).log(), "forward"),
    (lambda x: (x * 0).sqrt(), "backward"),
], ids=["log of 0 times 0", "log of a negative", "sqrt of 0"])
def test_what_the_code_between_two_modules_makes_is_put_down_to_the_module_around_them(tracing, act, direction):
    model = nn.Sequential(nn.Linear(4, 4), InCode(act))
    optimizer = tracing(model)
    train(model, optimizer)
    assert where(tracing.agent) == ("1", "InCode", "module", direction)


def test_the_first_layer_is_named_by_its_weights_gradient_where_its_input_has_none(tracing):
    class First(nn.Linear):
        def forward(self, x):
            return BadBackward.apply(super().forward(x))

    model = nn.Sequential(First(4, 4), nn.Linear(4, 1))
    optimizer = tracing(model)
    train(model, optimizer)
    assert where(tracing.agent) == ("0", "First", "module", "backward")


def test_bad_data_is_told(tracing):
    model = Model(None, None)
    optimizer = tracing(model)
    train(model, optimizer)
    inputs = data()
    inputs[1, 2] = float("nan")
    train(model, optimizer, inputs)
    assert where(tracing.agent) == ("", "Model", "input", "forward")
    assert "the input of the model" in tracing.agent.traced().sentence()


def test_bad_data_given_by_name_is_told(tracing):
    model = Model(None)
    optimizer = tracing(model)
    model(x=data() / 0).mean().backward()
    optimizer.step()
    assert where(tracing.agent) == ("", "Model", "input", "forward")


def test_a_mask_of_minus_infinity_is_not_bad(tracing):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    optimizer = tracing(layer)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    for is_bad in (False, True):
        if is_bad:
            layer.linear2.forward = lambda x: nn.functional.linear(x, layer.linear2.weight) / 0
        optimizer.zero_grad()
        layer(torch.randn(2, 5, 8), src_mask=mask).square().mean().backward()
        optimizer.step()
        assert (tracing.agent.traced() is not None) == is_bad
    assert where(tracing.agent) == ("linear2", "Linear", "module", "forward")


def test_a_loss_that_no_module_made_is_told(tracing):
    model = Model(None)
    optimizer = tracing(model)
    (model(data()).mean() * float("nan")).backward()
    optimizer.step()
    assert where(tracing.agent) == ("", "", "loss", "forward")


def test_a_gradient_that_the_loss_sends_is_told(tracing):
    model = Model(None)
    optimizer = tracing(model)
    (model(data()) * 0).sqrt().mean().backward()
    optimizer.step()
    assert where(tracing.agent) == ("", "", "loss", "backward")


def test_a_loss_module_outside_the_model_goes_by_its_type(tracing):
    model = Model(None)
    optimizer = tracing(model)
    loss = nn.CrossEntropyLoss()(model(data()), torch.full((3,), -100))  # the mean of nothing
    loss.backward()
    optimizer.step()
    assert where(tracing.agent) == ("CrossEntropyLoss", "CrossEntropyLoss", "module", "forward")


@dataclass
class Output:
    logits: torch.Tensor
    more: object = None


class Nested(nn.Module):
    def __init__(self, wrap) -> None:
        super().__init__()
        self.wrap, self.part = wrap, nn.Linear(4, 4)

    def forward(self, x):
        return self.wrap(self.part(x) / 0, torch.arange(3))


@pytest.mark.parametrize(("wrap", "unwrap"), [
    (lambda x, n: (n, x), lambda y: y[1]),
    (lambda x, n: {"n": n, "deep": [None, {"x": x}]}, lambda y: y["deep"][1]["x"]),
    (lambda x, n: Output(x, n), lambda y: y.logits),
    (lambda x, n: Output(n, (1, "text", Output(x))), lambda y: y.more[2].logits),
], ids=["tuple", "dict", "dataclass", "nested"])
def test_outputs_are_found_in_whatever_holds_them(tracing, wrap, unwrap):
    model = nn.ModuleList([Nested(wrap)])
    optimizer = tracing(model)
    unwrap(model[0](data())).mean().backward()
    optimizer.step()
    assert where(tracing.agent) == ("0", "Nested", "module", "forward")


@pytest.mark.parametrize("output", [None, 3, "text", torch.arange(3), torch.zeros(0), object()], ids=repr)
def test_a_module_that_returns_no_numbers_is_passed_over(tracing, output):
    class Odd(nn.Module):
        def forward(self, x):
            return output

    model = Model(Bad())
    model.odd = Odd()
    optimizer = tracing(model)
    model.blocks[0].inner.is_armed = True
    model.odd(data())
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.0.inner", "Bad", "module", "forward")


def test_sparse_gradients_are_looked_into(tracing):
    class Back(nn.Module):
        def forward(self, x):
            return BadBackward.apply(x)

    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), Back(), nn.Linear(4, 1))
    optimizer = tracing(model)
    train(model, optimizer, torch.tensor([1, 2, 3]))
    assert where(tracing.agent) == ("1", "Back", "module", "backward")


def test_a_module_that_works_in_place_is_named_and_those_before_it_are_not(tracing):
    class InPlace(nn.Module):
        def forward(self, x):
            return x.div_(0) if self.training else x

    model = nn.Sequential(nn.Linear(4, 4), InPlace(), nn.ReLU(inplace=True), nn.Linear(4, 1))
    optimizer = tracing(model)
    train(model, optimizer)
    assert where(tracing.agent) == ("1", "InPlace", "module", "forward")


def test_a_frozen_module_is_named_too(tracing):
    model = Model(Bad(), None)
    for parameter in [*model.first.parameters(), *model.blocks[0].parameters()]:
        parameter.requires_grad_(False)
    optimizer = tracing(model)
    model.blocks[0].inner.is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.0.inner", "Bad", "module", "forward")


def test_an_evaluation_between_the_steps_says_nothing(tracing):
    model = Model(Bad())
    optimizer = tracing(model)
    train(model, optimizer)
    model.blocks[0].inner.is_armed = True
    with torch.no_grad():
        model(data())
    with torch.inference_mode():
        model(data())
    model.blocks[0].inner.is_armed = False
    train(model, optimizer)
    assert tracing.agent.traced() is None


def test_a_shared_module_has_its_first_name(tracing):
    shared = Bad()
    model = Model(shared, shared)
    optimizer = tracing(model)
    shared.is_armed = True
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.0.inner", "Bad", "module", "forward")


@pytest.mark.parametrize("way", ["reentrant", "not reentrant"])
@pytest.mark.parametrize("bad", [Bad, BadBack])
def test_what_a_checkpoint_runs_again_is_named_once_and_rightly(tracing, way, bad):
    class Saving(Model):
        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=way == "reentrant")
            return self.head(x)

    model = Saving(None, bad(), None)
    optimizer = tracing(model)
    train(model, optimizer)
    assert tracing.agent.traced() is None
    model.blocks[1].inner.is_armed = True
    train(model, optimizer)
    direction = "forward" if bad is Bad else "backward"
    assert where(tracing.agent) == ("blocks.1.inner", bad.__name__, "module", direction)


@pytest.mark.parametrize("bad", [Bad, BadBack])
def test_the_micro_step_is_that_of_the_accumulation(tracing, bad):
    model = Model(bad())
    optimizer = tracing(model)
    for step in (1, 2):
        optimizer.zero_grad()
        for micro_step in (1, 2, 3, 4):
            model.blocks[0].inner.is_armed = (step, micro_step) == (2, 3)
            (model(data()).square().mean() / 4).backward()
        optimizer.step()
    found = tracing.agent.traced()
    assert (found.name, found.run_step, found.micro_step) == ("blocks.0.inner", 2, 3)


def test_a_loop_that_skips_the_backward_of_a_bad_loss_is_told_too(tracing):
    model = Model(Bad())
    optimizer = tracing(model)
    model.blocks[0].inner.is_armed = True
    assert not model(data()).mean().isfinite()
    model.blocks[0].inner.is_armed = False
    train(model, optimizer)
    assert tracing.agent.traced() is None, "its step was finite"
    model.blocks[0].inner.is_armed = True
    assert not model(data()).mean().isfinite()
    optimizer.step()
    assert where(tracing.agent) == ("blocks.0.inner", "Bad", "module", "forward")


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


def test_weights_that_were_bad_before_are_told_where_a_step_is_asked_for(tracing):
    model = Model(None, None)
    optimizer = tracing(model, "off")
    with torch.no_grad():
        model.blocks[1].out.bias[3] = float("nan")
    gradvane.trace_nonfinite()
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.out", "Linear", "weight", "forward")


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


def test_of_two_optimizers_a_watched_cycle_shows_the_step_that_went_bad(watching):
    models = [Model(Bad()), Model(Bad())]
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3) for model in models]
    agent = watching(None, optimizers, trace_nonfinite="off")
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer)
    agent.trace_nonfinite()
    train(models[0], optimizers[0])
    models[1].blocks[0].inner.is_armed = True
    train(models[1], optimizers[1])
    assert agent.traced() is not None
    assert agent.traced().name.endswith("blocks.0.inner")
    assert hooks_of_modules() == 0
