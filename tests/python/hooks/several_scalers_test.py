"""Which scaler scaled what: several of them, models without one, and losses that are changed on the way."""

import threading

import pytest
import torch


def parts(optimizer=lambda p: torch.optim.SGD(p, 1e-3)):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, optimizer(model.parameters())


def loss_of(model):
    return model(torch.randn(4, 6)).square().mean()


def norm_of(model, scale=1.0):
    return float(torch.cat([p.grad.flatten() / scale for p in model.parameters()]).norm())


def reported(watching, agent):
    agent.flush()
    return sorted((s["loss"], s["grad_norm"], s.get("loss_scale", 1)) for s in watching.steps())


def close_to(expected):
    return [pytest.approx(row, rel=1e-5) for row in sorted(expected)]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(("order", "second"), [
    *((order, second) for order in ("one by one", "all passes first", "passes in the other order") for second in (2.0**4, None)),
    ("one pass", None),  # with two scalers, the scale of its loss is none
])
def test_each_of_two_models_has_the_scale_of_its_own_scaler_or_none(watching, order, clip, second):
    torch.manual_seed(0)
    (one, first), (other, plain) = parts(), parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    its = None if second is None else torch.amp.GradScaler("cpu", init_scale=second)
    agent = watching(torch.nn.ModuleList([one, other]), [first, plain])
    expected = []

    def finish(model, optimizer, scaler, loss):
        norm = norm_of(model, 1.0 if scaler is None else scaler.get_scale())
        expected.append((float(loss), norm, 1 if scaler is None else scaler.get_scale()))
        if clip and scaler is not None:
            scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    for _ in range(4):
        first.zero_grad()
        plain.zero_grad()
        losses = loss_of(one), loss_of(other)
        roots = scaler.scale(losses[0]), losses[1] if its is None else its.scale(losses[1])
        if order == "one by one":
            roots[0].backward()
            finish(one, first, scaler, losses[0])
            roots[1].backward()
            finish(other, plain, its, losses[1])
            continue
        if order == "one pass":
            torch.autograd.backward(list(roots))
            losses = [losses[0].detach() + losses[1].detach()] * 2
        else:
            for root in roots if order == "all passes first" else reversed(roots):
                root.backward()
        finish(one, first, scaler, losses[0])
        finish(other, plain, its, losses[1])
    seen = reported(watching, agent)
    if order == "one by one":
        assert seen == close_to(expected)
    else:  # all passes before the steps: which loss is whose, none can say
        assert [row[1:] for row in sorted(seen, key=lambda row: row[1:])] == close_to(row[1:] for row in expected)


def test_with_skip_norm_no_step_of_a_model_without_a_scaler_is_left_out(watching):
    torch.manual_seed(0)
    (one, first), (other, plain) = parts(), parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-10)
    agent = watching(torch.nn.ModuleList([one, other]), [first, plain], on_nonfinite="skip", skip_norm=100)
    for _ in range(4):
        first.zero_grad()
        scaler.scale(loss_of(one)).backward()
        scaler.step(first)
        scaler.update()
        plain.zero_grad()
        loss_of(other).backward()
        before = [p.clone() for p in other.parameters()]
        plain.step()
        assert not all(torch.equal(p, b) for p, b in zip(other.parameters(), before))
    agent.flush()
    assert not any("skipped" in step for step in watching.steps())


def test_a_second_pass_from_the_same_scaled_loss_has_the_loss_it_was_scaled_from(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    loss = loss_of(model)
    scaled = scaler.scale(loss)
    scaled.backward(retain_graph=True)
    scaled.backward()
    norm = norm_of(model, 2.0**10)
    scaler.step(optimizer)
    ((seen, grad_norm, _),) = reported(watching, agent)
    assert seen == pytest.approx(float(loss)) or seen == pytest.approx(2 * float(loss))
    assert grad_norm == pytest.approx(norm, rel=1e-5)


def test_a_program_that_stops_scaling_is_followed(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    expected = []
    for i in range(6):
        optimizer.zero_grad()
        loss = loss_of(model)
        (scaler.scale(loss) if i < 3 else loss).backward()
        scale = 2.0**10 if i < 3 else 1
        expected.append((float(loss), norm_of(model, scale), scale))
        if i < 3:
            scaler.step(optimizer)
            scaler.update()
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
    assert reported(watching, agent) == close_to(expected)


def test_a_list_of_losses_is_unscaled_as_one(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    losses = [loss_of(model), loss_of(model)]
    torch.autograd.backward(scaler.scale(losses))
    norm = norm_of(model, 2.0**10)
    scaler.step(optimizer)
    assert reported(watching, agent) == close_to([(float(sum(losses)), norm, 2.0**10)])


def test_an_optimizer_within_another_has_the_scaler_of_the_outer_one(watching):
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    model, inner = parts()
    outer = Outer(inner)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, inner)
    scaler.scale(loss := loss_of(model)).backward()
    norm = norm_of(model, 2.0**10)
    scaler.step(outer)
    assert reported(watching, agent) == close_to([(float(loss), norm, 2.0**10)])


def test_a_loss_that_is_a_view_of_something_large_is_not_kept(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    every = model(torch.randn(4000, 6)).square()[:, 0]
    loss = every[0]
    scaled = scaler.scale(loss)
    assert [one.loss for one in agent._watcher._scaling._here.scaled] == [None]
    scaled.backward()
    norm = norm_of(model, 2.0**10)
    scaler.step(optimizer)
    assert reported(watching, agent) == close_to([(float(loss), norm, 2.0**10)])


def test_a_scaled_loss_that_was_changed_in_place_is_what_it_is_now(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    loss = loss_of(model)
    scaled = scaler.scale(loss)
    scaled.div_(4)
    scaled.backward()
    norm = norm_of(model, 2.0**10)
    scaler.step(optimizer)
    assert reported(watching, agent) == close_to([(float(loss) / 4, norm, 2.0**10)])


def test_a_loop_that_divides_by_the_scale_itself_is_left_at_that(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    norms = []
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        for p in model.parameters():
            p.grad.div_(scaler.get_scale())
        norms.append(norm_of(model))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
    agent.flush()
    seen = [s["grad_norm"] for s in watching.steps()]
    assert seen[1:] == pytest.approx(norms[1:], rel=1e-5), "before the first step() it is not known"


def test_a_pass_from_many_numbers_has_their_scaler_too(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    each = model(torch.randn(4, 6)).square()
    scaler.scale(each).backward(torch.ones_like(each))
    norm = norm_of(model, 2.0**10)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    scaler.step(optimizer)
    agent.flush()
    (step,) = watching.steps()
    assert step["grad_norm"] == pytest.approx(norm, rel=1e-5) and step["loss_scale"] == 2.0**10


class Named(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.name = "layer1"  # which torch's nodes have a method of
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_a_function_of_the_programs_own_that_has_a_name_is_no_matter(watching):
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    agent = watching(model, optimizer)
    waiting = scaler.scale(loss_of(model))  # and its pass never comes
    loss = Named.apply(loss_of(model))
    scaler.scale(loss).backward()
    norm = norm_of(model, 2.0**10)
    scaler.step(optimizer)
    assert reported(watching, agent) == close_to([(float(loss), norm, 2.0**10)]) and waiting.grad_fn is not None


def test_threads_have_losses_of_their_own(watching):
    """The numbers of autograd's nodes begin at 0 in each."""
    model, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    agent = watching(model, optimizer)
    held, seen = [], []
    other = threading.Thread(target=lambda: held.append(scaler.scale(loss_of(parts()[0]))))
    other.start()
    other.join()

    def trains():
        loss = loss_of(model) * 1.0
        loss.backward()
        seen.append(float(loss))
        optimizer.step()

    thread = threading.Thread(target=trains)
    thread.start()
    thread.join()
    agent.flush()
    assert [s.get("loss") for s in watching.steps()] == pytest.approx(seen)
