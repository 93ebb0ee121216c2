"""on_nonfinite=skip on a CPU: a bad step leaves all as in a run that never saw the batch."""

import pytest
import torch
from poisoned import NAN, OPTIMIZERS, backward, batches, equal, made

import gradvane
from gradvane._watch import governing


def trained(make, bad, *, without=(), steps=8):
    """`bad`: step -> kind; `without`: steps whose batch is left out. The state at the end."""
    model, optimizer = made(make)
    for i, batch in enumerate(batches(steps), 1):
        if i not in without:
            backward(model, optimizer, batch, bad.get(i))
            optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("kind", ["grad", "all", "loss"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_and_states_are_those_of_a_run_without_the_batch(watching, name, kind):
    wanted = trained(OPTIMIZERS[name], {}, without=(3, 6))
    model, optimizer = made(OPTIMIZERS[name])
    watching(model, optimizer, on_nonfinite="skip")
    for i, batch in enumerate(batches(8), 1):
        backward(model, optimizer, batch, kind if i in (3, 6) else None)
        optimizer.step()
    assert equal(model.state_dict(), wanted[0].state_dict())
    assert equal(optimizer.state_dict(), wanted[1].state_dict())
    assert [s.get("skipped") for s in watching.steps()] == [
        "governor" if i in (3, 6) else None for i in range(1, 9)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_control_a_bad_step_that_is_taken_ruins_the_weights(watching, name):
    model, optimizer = made(OPTIMIZERS[name])
    watching(model, optimizer)
    for i, batch in enumerate(batches(4), 1):
        backward(model, optimizer, batch, "all" if i == 2 else None)
        optimizer.step()
    assert not all(p.isfinite().all() for p in model.parameters())


def test_gradients_stay_as_they_are_through_a_skipped_step(watching):
    model, optimizer = made()
    watching(model, optimizer, on_nonfinite="skip")
    backward(model, optimizer, batches(1)[0], "grad")
    before = [(p.grad, p.grad.clone()) for p in model.parameters()]
    optimizer.step()
    for param, (gradient, value) in zip(model.parameters(), before):
        assert param.grad is gradient and equal(gradient, value)


def test_a_skipped_step_counts_in_the_metric_and_is_in_the_incidents_evidence(watching):
    model, optimizer = made()
    agent = watching(model, optimizer, on_nonfinite="skip", port=0)
    import urllib.request

    for i, batch in enumerate(batches(6), 1):
        backward(model, optimizer, batch, "grad" if i in (3, 5) else None)
        optimizer.step()
    agent.flush()
    metrics = urllib.request.urlopen(agent.url + "/metrics", timeout=30).read().decode()
    assert [line.split()[-1] for line in metrics.splitlines()
            if line.startswith("gradvane_skipped_steps_total") and 'reason="governor"' in line] == ["2"]
    incident = agent._incident_of_stop()
    assert agent.incidents == (incident,), "one incident"
    assert incident.kind == "nonfinite_grad" and incident.first_step == 3 and incident.last_good_step == 2
    assert "Gradvane skipped the step: it changed no weights." in incident.evidence
    assert agent.last_good_step == 6 and agent.is_state_good() and gradvane.is_state_good()


def test_in_watch_mode_the_state_is_no_longer_good(watching):
    model, optimizer = made()
    agent = watching(model, optimizer)
    for i, batch in enumerate(batches(6), 1):
        assert gradvane.is_state_good() == (i <= 3)
        backward(model, optimizer, batch, "grad" if i == 3 else None)
        optimizer.step()
    assert agent.last_good_step == 2


def test_a_schedule_goes_on_as_for_a_step_that_a_scaler_skips(watching):
    def run(attached, bad):
        model, optimizer = made()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        if attached:
            watching(model, optimizer, on_nonfinite="skip")
        for i, batch in enumerate(batches(6), 1):
            backward(model, optimizer, batch, "grad" if i in bad and attached else None)
            if attached or i not in bad:
                optimizer.step()
            schedule.step()
        return model, optimizer, schedule

    wanted, got = run(False, (3,)), run(True, (3,))
    for part, other in zip(wanted, got):
        assert equal(part.state_dict(), other.state_dict())


def scaled(attach, bad, fused=False, kind="inf"):
    model, optimizer = made(OPTIMIZERS["AdamW, fused" if fused else "SGD with momentum"])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)
    agent = attach(model, optimizer)
    for i, batch in enumerate(batches(8), 1):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        if i in bad and kind == "loss":
            loss = loss + torch.where(torch.tensor(True), torch.tensor(NAN), loss.detach())
        scaler.scale(loss).backward()
        if i in bad and kind == "inf":
            model[0].weight.grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    return agent, (model, optimizer, scaler)


@pytest.mark.parametrize("fused", [False, True])
def test_what_a_scaler_skips_is_counted_once_and_as_the_scalers(watching, fused):
    _, plain = scaled(lambda *_: None, (2, 5), fused)
    agent, ours = scaled(lambda *what: watching(*what, on_nonfinite="skip"), (2, 5), fused)
    for part, other in zip(plain, ours):
        assert equal(part.state_dict(), other.state_dict())
    assert agent._native.governor().skipped_steps == 0
    assert [s.get("skipped") for s in watching.steps()] == [
        "amp_overflow" if i in (2, 5) else None for i in range(1, 9)]


def test_a_bad_loss_that_a_scaler_lets_through_is_skipped_once(watching):
    agent, (model, optimizer, scaler) = scaled(
        lambda *what: watching(*what, on_nonfinite="skip"), (2,), kind="loss")
    assert all(p.isfinite().all() for p in model.parameters())
    assert scaler.get_scale() > 2.0**8, "it grew: the scaler saw no overflow"
    steps = watching.steps()
    assert [s.get("skipped") for s in steps] == [None, "governor"] + [None] * 6
    assert [s["step"] for s in steps] == list(range(1, 9))


def test_an_accumulated_step_with_one_bad_micro_batch_is_skipped_as_a_whole(watching):
    def run(attached):
        model, optimizer = made()
        if attached:
            watching(model, optimizer, on_nonfinite="skip")
        for i in range(4):
            if i == 1 and not attached:
                continue
            optimizer.zero_grad()
            for part in batches(3, seed=i):
                (model(part).square().mean() / 3).backward()
            if i == 1:
                model[2].bias.grad.fill_(NAN)
            optimizer.step()
        return model, optimizer

    for part, other in zip(run(False), run(True)):
        assert equal(part.state_dict(), other.state_dict())


def test_one_of_several_optimizers_is_skipped_and_the_other_is_not(watching):
    model, optimizer = made()
    critic, second = made(OPTIMIZERS["Adam"], seed=1)
    watching(None, [optimizer, second], on_nonfinite="skip")
    for i, batch in enumerate(batches(4), 1):
        backward(model, optimizer, batch, "grad" if i == 2 else None)
        optimizer.step()
        backward(critic, second, batch)
        second.step()
    assert all(int(s["step"]) == 4 for s in second.state.values())
    wanted = made()
    for i, batch in enumerate(batches(4), 1):
        if i != 2:
            backward(*wanted, batch)
            wanted[1].step()
    assert equal(wanted[0].state_dict(), model.state_dict())
    skipped = [(s["optimizer"], s["step"]) for s in watching.steps() if s.get("skipped")]
    assert skipped == [(0, 2)]


def test_a_norm_above_the_bound_is_skipped_and_is_an_incident_of_its_own(watching):
    model, optimizer = made()
    agent = watching(model, optimizer, on_nonfinite="skip", skip_norm=1e3)
    before = None
    for i, batch in enumerate(batches(5), 1):
        backward(model, optimizer, batch)
        if i == 3:
            before = [p.detach().clone() for p in model.parameters()]
            for param in model.parameters():
                param.grad.mul_(1e6)
        optimizer.step()
        if i == 3:
            assert equal(before, [p.detach() for p in model.parameters()])
    incident = agent._incident_of_stop()
    assert incident.kind == "grad_norm_bound" and incident.first_step == 3
    assert "above skip_norm, which is 1000" in incident.evidence
    assert agent.is_state_good()
    assert [s.get("skipped") for s in watching.steps()] == [None, None, "governor", None, None]


@pytest.mark.parametrize("make", [OPTIMIZERS["SGD with momentum"], OPTIMIZERS["Adam"],
                                  lambda params: torch.optim.LBFGS(params, 0.1, max_iter=3)])
def test_a_step_with_a_closure_is_skipped_where_the_optimizer_begins_with_it(watching, make):
    def run(attached):
        model, optimizer = made(make)
        if attached:
            watching(model, optimizer, on_nonfinite="skip")
        losses = []
        for i, batch in enumerate(batches(5), 1):
            if i == 2 and not attached:
                continue
            bad = "grad" if i == 2 else None
            losses.append(float(optimizer.step(lambda: backward(model, optimizer, batch, bad))))
        return (model, optimizer), losses

    plain, wanted = run(False)
    ours, losses = run(True)
    for part, other in zip(plain, ours):
        assert equal(part.state_dict(), other.state_dict())
    assert losses[:1] + losses[2:] == wanted, "and step() returns the loss"
    assert [s.get("skipped") for s in watching.steps()] == [None, "governor", None, None, None]


class CountsCalls(torch.optim.SGD):
    """Another one's optimizer, which evaluates its closure in its own way."""

    calls = 0

    def step(self, closure=None):
        CountsCalls.calls += 1
        return super().step(closure)


def test_a_step_with_a_closure_of_anothers_optimizer_is_taken(watching):
    model, optimizer = made(lambda params: CountsCalls(params, 0.1))
    agent = watching(model, optimizer, on_nonfinite="skip")
    optimizer.step(lambda: backward(model, optimizer, batches(1)[0], "grad"))
    assert not all(p.isfinite().all() for p in model.parameters())
    agent.flush()
    assert agent._native.governor().skipped_steps == 0


def test_anothers_optimizer_is_not_called_at_all_for_a_step_that_is_skipped(watching):
    model, optimizer = made(lambda params: CountsCalls(params, 0.1))
    watching(model, optimizer, on_nonfinite="skip")
    CountsCalls.calls = 0
    for i, batch in enumerate(batches(4), 1):
        backward(model, optimizer, batch, "grad" if i == 2 else None)
        assert optimizer.step() is None
    assert CountsCalls.calls == 3


def test_a_step_that_raises_leaves_gradients_and_later_steps_alone(watching):
    model, optimizer = made()
    watching(model, optimizer, on_nonfinite="skip")

    def refuse(*_):
        raise RuntimeError("no step now")

    backward(model, optimizer, batches(1)[0], "grad")
    before = [(p.grad, p.grad.clone()) for p in model.parameters()]
    handle = optimizer.register_step_pre_hook(refuse)
    with pytest.raises(RuntimeError, match="no step now"):
        optimizer.step()
    handle.remove()
    for param, (gradient, value) in zip(model.parameters(), before):
        assert param.grad is gradient and equal(gradient, value)
    good = [p.detach().clone() for p in model.parameters()]
    backward(model, optimizer, batches(1)[0])
    optimizer.step()
    assert not equal(good, [p.detach() for p in model.parameters()]), "the next good step is taken"


def test_detach_leaves_no_trace_in_torchs_wrapper(watching):
    model, optimizer = made()
    cell = governing.step_cell(optimizer)
    original = cell.cell_contents
    agent = watching(model, optimizer, on_nonfinite="skip")
    assert cell.cell_contents is original, "nothing is put there before it is needed"
    backward(model, optimizer, batches(1)[0], "grad")
    optimizer.step()
    assert cell.cell_contents is not original
    agent.detach()
    assert cell.cell_contents is original


def test_other_tools_that_wrap_step_see_a_skipped_one_go_by(watching):
    model, optimizer = made()
    watching(model, optimizer, on_nonfinite="skip")
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    backward(model, optimizer, batches(1)[0], "grad")
    optimizer.step()
    assert seen == ["after"]


@pytest.mark.parametrize("options", [{}, {"on_nonfinite": "skip"}, {"on_divergence": "stop"}], ids=str)
def test_a_hook_of_the_programs_own_comes_before_the_closure_whatever_the_policy(watching, options):
    order = []
    model, optimizer = made()
    optimizer.register_step_pre_hook(lambda *_: order.append("hook"))

    def closure():
        order.append("closure")
        return backward(model, optimizer, batches(1)[0])

    watching(model, optimizer, **options)
    optimizer.step(closure)
    assert order == ["hook", "closure"]
