"""Which module is named when something goes bad, by a step that is watched for it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from traced_models import Bad, BadBack, BadBackward, Model, data, hooks_of_modules, tracing, train, where  # noqa: F401

import gradvane


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


def test_weights_that_were_bad_before_are_told_where_a_step_is_asked_for(tracing):
    model = Model(None, None)
    optimizer = tracing(model, "off")
    with torch.no_grad():
        model.blocks[1].out.bias[3] = float("nan")
    gradvane.trace_nonfinite()
    train(model, optimizer)
    assert where(tracing.agent) == ("blocks.1.out", "Linear", "weight", "forward")


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
