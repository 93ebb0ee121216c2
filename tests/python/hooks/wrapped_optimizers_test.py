"""Optimizers inside others, passed to attach() as they are: the steps are those of the one inside, or attach() says what to
pass."""

import pytest
import torch
from small_net import net

import gradvane


class OfOurs:
    """Has parameters, and steps them without anything of torch's."""

    def __init__(self, model):
        self.param_groups = [{"params": list(model.parameters())}]

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p -= 0.01 * p.grad


class Wrapped:
    """An optimizer inside a class that has none of torch's. It may hold others too, whose parameters are not its own."""

    def __init__(self, inner, **others):
        self._wrapped = inner
        self.__dict__.update(others)

    @property
    def param_groups(self):
        return self._wrapped.param_groups

    def step(self):
        self._wrapped.step()

    def zero_grad(self):
        self._wrapped.zero_grad()


class WrappedByASubclass(torch.optim.Optimizer):
    """As wrappers do that are to pass for an optimizer: it runs nothing of torch's own constructor."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups, self.defaults, self.state = inner.param_groups, inner.defaults, inner.state

    def step(self, closure=None):
        self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


class OneForEach:
    """An optimizer for each parameter, in a dictionary: torchao's offloading ones are like it."""

    def __init__(self, model):
        self.each = {name: torch.optim.SGD([p], 0.1) for name, p in model.named_parameters()}

    @property
    def param_groups(self):
        return [group for optimizer in self.each.values() for group in optimizer.param_groups]

    def step(self):
        for optimizer in self.each.values():
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.each.values():
            optimizer.zero_grad()


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1)


@pytest.mark.parametrize("wrap", [
    lambda model: Wrapped(sgd(model)), lambda model: WrappedByASubclass(sgd(model)),
    lambda model: Wrapped(Wrapped(WrappedByASubclass(sgd(model)))), lambda model: [Wrapped(sgd(model))],
    lambda model: Wrapped(sgd(model), the_critics=sgd(net()))], ids=["plain", "subclass", "nested", "list", "holds another"])
def test_a_wrapper_without_the_usual_attribute_counts_the_steps_of_what_it_wraps(watching, wrap):
    model = net()
    optimizer = wrap(model)
    watching(model, optimizer)
    (optimizer,) = optimizer if isinstance(optimizer, list) else [optimizer]
    norms = []
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(3):
            model(torch.randn(4, 6)).square().mean().backward()
        norms.append(float(torch.stack([p.grad.double().norm() for p in model.parameters()]).norm()))
        optimizer.step()
    steps = watching.steps()
    assert [(s["optimizer"], s["step"], s["micro_steps"], s["read_at"]) for s in steps] == [
        (0, n, 3, "optimizer") for n in (1, 2, 3, 4, 5)]
    assert [s["grad_norm"] for s in steps] == pytest.approx(norms, rel=1e-6)


def test_a_wrapper_of_several_optimizers_has_the_steps_of_each(watching):
    model = net()
    optimizer = OneForEach(model)
    watching(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    steps = watching.steps()
    assert {(s["optimizer"], s["step"]) for s in steps} == {(i, n) for i in range(len(optimizer.each)) for n in (1, 2, 3)}
    assert len(steps) == 3 * len(optimizer.each)


@pytest.mark.parametrize("optimizer", [OfOurs, lambda model: Wrapped(OfOurs(model)), lambda model: [sgd(model), OfOurs(net())]])
def test_attach_says_what_to_pass_where_steps_could_not_be_seen(optimizer):
    model = net()
    with pytest.raises(TypeError, match="whose steps cannot be seen: .* pass the one that it wraps, or the model alone"):
        gradvane.attach(model, optimizer(model), port=-1)
    assert gradvane._agent.live() is None


def test_an_optimizer_of_ones_own_is_watched_by_its_model_and_every_backward_pass_is_a_step(watching):
    model = net()
    optimizer = OfOurs(model)
    watching(model)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    assert [(s["step"], s["read_at"]) for s in watching.steps()] == [(n, "backward") for n in (1, 2, 3, 4)]


class SAM(torch.optim.Optimizer):
    """As published for sharpness-aware minimization: a loop calls first_step() and second_step(), and never step(); or step()
    with a closure, which calls both."""

    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.clone()
                p.add_(p.grad * group["rho"] / (norm + 1e-12))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["old"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure):
        self.first_step(zero_grad=True)
        torch.enable_grad()(closure)()
        self.second_step()


@pytest.mark.parametrize("way", ["two calls", "a closure"])
def test_a_step_that_is_made_of_two_passes_is_one_with_the_gradients_that_it_takes(watching, way):
    model = net()
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    agent = watching(model, optimizer)
    norms, asked = [], []
    for _ in range(5):
        batch = torch.randn(4, 6)

        def closure(batch=batch):
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        closure()
        if way == "a closure":
            optimizer.step(closure)
        else:
            optimizer.first_step(zero_grad=True)
            closure()
            optimizer.second_step()
        norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
        asked.append(float(agent.grad_norm()))
        optimizer.zero_grad()
    steps = watching.steps()
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    assert [step["grad_norm"] for step in steps] == pytest.approx(norms, rel=1e-6) == asked


def test_a_sam_that_goes_bad_is_reported_by_the_optimizer_that_steps_alone(watching):
    model = net()
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
    watching(model, optimizer)
    for i in range(6):
        for second in (False, True):
            loss = model(torch.randn(4, 6)).square().mean()
            (loss * float("nan") if i == 4 else loss).backward()
            optimizer.second_step(zero_grad=True) if second else optimizer.first_step(zero_grad=True)
    steps = watching.steps()
    assert [step["step"] for step in steps if "skipped" not in step] == [1, 2, 3, 4, 5, 6]
    assert len({step["optimizer"] for step in steps}) == 1
    assert {step["step"] for step in steps if "skipped" in step} == {5, 6}, "its first pass was bad, and cleared"


class Look(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure=None):
        return self.inner.step(closure)


def test_one_inside_that_steps_within_the_outer_ones_step_is_no_second_one(watching):
    model = net()
    agent = watching(model, optimizer := Look(torch.optim.AdamW(model.parameters(), 1e-2)))
    for i in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        if i == 2:
            model[0].weight.grad[0, 0] = float("nan")
        assert agent.grad_norm() is not None, "there is one optimizer"
        optimizer.step()
    assert [step["step"] for step in watching.steps()] == [1, 2, 3, 4]


def test_one_that_is_only_an_attribute_and_trains_something_else_is_not_watched(watching):
    model, other = net(), net()
    optimizer, partner = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
    optimizer.partner = partner
    watching(model, optimizer)
    for _ in range(2):
        for one, stepped in ((other, partner), (model, optimizer)):
            one(torch.randn(4, 6)).square().mean().backward()
            stepped.step()
    assert [(step["step"], step["optimizer"]) for step in watching.steps()] == [(1, 0), (2, 0)]


def test_the_norm_of_several_optimizers_is_none_from_the_first_step_on(watching):
    one, other = net(), net()
    first, second = torch.optim.SGD(one.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
    agent = watching(torch.nn.ModuleList([one, other]), [first, second])
    for model, optimizer in ((one, first), (other, second)):
        model(torch.randn(4, 6)).square().mean().backward()
        assert agent.grad_norm() is None
        optimizer.step()
        assert agent.grad_norm() is None
