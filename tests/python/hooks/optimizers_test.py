"""Optimizers and loops of every kind."""

import weakref

import pytest
import torch
from conftest import reference_norm
from small_net import net, one_step

import gradvane


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}, {"capturable": False}])
def test_every_implementation_of_an_optimizer_is_measured_alike(watching, options):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **options)
    watching(model, optimizer)
    truth = [one_step(model, optimizer) for _ in range(3)]
    steps = watching.steps()
    assert [s["loss"] for s in steps] == pytest.approx([loss for loss, _ in truth])
    assert [s["grad_norm"] for s in steps] == pytest.approx([norm for _, norm in truth], rel=1e-6)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_accumulation_adds_up_whichever_way_gradients_are_cleared(watching, set_to_none):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    watching(model, optimizer)
    expected = []
    for _ in range(3):
        total = 0.0
        for _ in range(4):
            loss = model(torch.randn(4, 6)).square().mean() / 4
            loss.backward()
            total += float(loss.detach())
        expected.append((total, reference_norm(model.parameters())))
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
    steps = watching.steps()
    assert [s["micro_steps"] for s in steps] == [4, 4, 4]
    assert [s["loss"] for s in steps] == pytest.approx([loss for loss, _ in expected])
    assert [s["grad_norm"] for s in steps] == pytest.approx([norm for _, norm in expected], rel=1e-6)


def test_parameter_groups_have_a_learning_rate_each_and_a_scheduler_is_followed(watching):
    model = net()
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}], lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    watching(model, optimizer)
    for _ in range(3):
        one_step(model, optimizer)
        scheduler.step()
    rates = [rate for s in watching.steps() for rate in s["lr"]]
    assert rates == pytest.approx([0.1, 0.01, 0.05, 0.005, 0.025, 0.0025])


def test_a_learning_rate_that_is_a_tensor_is_read(watching):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25), foreach=False)
    watching(model, optimizer)
    one_step(model, optimizer)
    assert watching.steps()[0]["lr"] == 0.25


def test_a_parameter_added_mid_run_is_measured_from_then_on(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    one_step(model, optimizer)
    head = torch.nn.Linear(1, 1)
    model.append(head)
    optimizer.add_param_group({"params": list(head.parameters())})
    _, norm = one_step(model, optimizer)
    steps = watching.steps()
    assert [s["param_states"]["finite"] for s in steps] == [4, 6]
    assert steps[1]["grad_norm"] == pytest.approx(norm, rel=1e-6)


def test_a_parameter_replaced_mid_run_keeps_its_name(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    one_step(model, optimizer)
    fresh = torch.nn.Parameter(torch.randn(1, 8))
    fresh_id = id(fresh)
    model[2].weight = fresh
    optimizer.param_groups[0]["params"][2] = fresh
    assert id(model[2].weight) == fresh_id
    optimizer.zero_grad()
    model(torch.randn(4, 6)).sum().backward()
    model[2].weight.grad[0, 3] = float("nan")
    optimizer.step()
    assert watching.steps()[1]["first_nonfinite"]["param"] == "2.weight"


def test_sparse_embedding_gradients_have_the_norm_of_what_is_applied(watching):
    model = torch.nn.Embedding(20, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), 0.01)
    watching(model, optimizer)
    model(torch.tensor([1, 3, 3, 7])).square().sum().backward()
    expected = float(model.weight.grad.coalesce().values().double().norm())
    optimizer.step()
    assert watching.steps()[0]["grad_norm"] == pytest.approx(expected, rel=1e-6)


def test_a_tied_parameter_counts_once(watching):
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(10, 4), "head": torch.nn.Linear(4, 10, bias=False)})
    model["head"].weight = model["embed"].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    model["head"](model["embed"](torch.arange(5))).square().mean().backward()
    norm = float(model["embed"].weight.grad.double().norm())
    optimizer.step()
    (step,) = watching.steps()
    assert step["params"] == 1 and step["grad_norm"] == pytest.approx(norm, rel=1e-6)


def test_frozen_unused_and_missing_parameters_are_told_apart(watching):
    model = net()
    model[0].bias.requires_grad_(False)
    spare = torch.nn.Linear(2, 2)
    model.add_module("spare", spare)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    watching(model, optimizer)
    optimizer.zero_grad()
    model[2](model[1](model[0](torch.randn(4, 6)))).sum().backward()
    optimizer.step()
    assert watching.steps()[0]["param_states"] == {"finite": 3, "frozen": 1, "missing": 2}


def test_parameters_that_no_module_owns_are_measured(watching):
    w = torch.randn(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.1)
    watching(None, optimizer)
    (w * 2).sum().backward()
    optimizer.step()
    (step,) = watching.steps()
    assert step["grad_norm"] == pytest.approx(12**0.5, rel=1e-6)


def test_a_loop_without_an_optimizer_has_a_step_for_each_backward_pass(watching):
    model = net()
    watching(model)
    norms = []
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        norms.append(reference_norm(model.parameters()))
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
    steps = watching.steps()
    assert [s["step"] for s in steps] == [1, 2, 3, 4]
    assert [s["grad_norm"] for s in steps] == pytest.approx(norms, rel=1e-6)


def test_attach_without_anything_finds_model_and_optimizer(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching()
    _, norm = one_step(model, optimizer)
    (step,) = watching.steps()
    assert step["grad_norm"] == pytest.approx(norm, rel=1e-6) and step["param_states"]["finite"] == 4


@pytest.mark.parametrize("in_backward", [True, False])
def test_an_optimizer_for_each_parameter_is_one_optimizer(tmp_path, in_backward):
    import running

    steps = running.run_source(tmp_path, f"""
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        each = {{p: torch.optim.Adam([p], 1e-2, foreach=False) for p in model.parameters()}}
        seen = []
        def step(p):
            seen.append(float(p.grad.double().pow(2).sum()))
            each[p].step()
            each[p].zero_grad()
        if {in_backward}:
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(step)
        for i in range(4):
            seen.clear()
            loss = model(torch.randn(4, 6)).square().mean()
            loss.backward()
            if i == 2:
                with torch.no_grad():
                    model[2].weight[0, 1] = float("nan")
            if not {in_backward}:
                for p in model.parameters():
                    step(p)
            print(sum(seen) ** 0.5, float(loss), flush=True)
        """)
    assert [s["step"] for s in steps] == [1, 2, 3, 4]
    assert all(s["params"] == 4 and s["optimizer"] == 0 for s in steps)
    done = running.python(tmp_path / "train.py", cwd=tmp_path).stdout
    truth = [[float(word) for word in line.split()] for line in done.splitlines()]
    for step, (norm, loss) in list(zip(steps, truth))[:3]:
        assert step["grad_norm"] == pytest.approx(norm, rel=1e-6) and step["loss"] == pytest.approx(loss, rel=1e-6)
    assert steps[3]["loss"] == "nan" and steps[3]["first_nonfinite"]["site"] == "loss"


def test_an_optimizer_inside_another_makes_one_step(watching):
    class Outer(torch.optim.Optimizer):
        def __init__(self, params):
            params = list(params)
            super().__init__(params, {})
            self.inner = torch.optim.SGD(params, 0.1)

        def step(self, closure=None):
            self.inner.step()

    model = net()
    optimizer = Outer(model.parameters())
    watching()
    one_step(model, optimizer)
    one_step(model, optimizer)
    assert len(watching.steps()) == 2


def test_an_exception_in_a_step_does_not_make_the_next_one_part_of_it(watching):
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure=None):
            if self.fails:
                raise KeyboardInterrupt
            return super().step(closure)

    model = net()
    optimizer = Failing(model.parameters(), 0.1)
    other_model = net()
    other = torch.optim.SGD(other_model.parameters(), 0.1)
    watching(model, optimizer)
    gradvane.attach(other_model, other)
    with pytest.raises(KeyboardInterrupt):
        one_step(model, optimizer)
    _, norm = one_step(other_model, other)
    Failing.fails = False
    _, second = one_step(model, optimizer)
    steps = watching.steps()
    assert [(s["optimizer"], s["step"]) for s in steps if "skipped" not in s] == [(1, 1), (0, 1)]
    assert steps[-1]["grad_norm"] == pytest.approx(second, rel=1e-6)


def test_two_losses_of_two_optimizers_are_kept_apart_whatever_the_order(watching):
    first, second = net(), net()
    one = torch.optim.SGD(first.parameters(), 0.1)
    two = torch.optim.SGD(second.parameters(), 0.1)
    watching([first, second][0], one)
    gradvane.attach(second, two)
    expected = []
    for _ in range(2):
        one.zero_grad()
        two.zero_grad()
        x = torch.randn(4, 6)
        a, b = first(x).square().mean(), second(x).square().mean()
        a.backward()
        b.backward()
        expected += [float(a.detach()), float(b.detach())]
        one.step()
        two.step()
    assert [s["loss"] for s in watching.steps()] == pytest.approx(expected)


def test_a_gradient_is_not_kept_alive_past_its_step(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    one_step(model, optimizer)
    gradient = weakref.ref(model[0].weight.grad)
    optimizer.zero_grad(set_to_none=True)
    assert gradient() is None


def test_runtimes_that_keep_parameters_their_own_way_are_recognised(watching, caplog):
    import logging

    class DeepSpeedEngine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = net()

    caplog.set_level(logging.INFO, logger="gradvane")
    engine = DeepSpeedEngine()
    optimizer = torch.optim.SGD(engine.parameters(), 0.1)
    watching()
    one_step(engine.module, optimizer)
    assert len(watching.steps()) == 1
    assert [record.message for record in caplog.records if record.message.startswith("DeepSpeed: ")]


def test_an_optimizer_of_another_model_is_refused(watching):
    model, other = net(), net()
    with pytest.raises(ValueError, match="owns none of the model's parameters"):
        watching(model, torch.optim.SGD(other.parameters(), 0.1))


def test_an_empty_model_and_a_model_all_nan_do_no_harm(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(torch.nn.Identity())
    gradvane.attach(model, optimizer)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(float("nan"))
    one_step(model, optimizer)
    (step,) = watching.steps()
    assert step["param_states"] == {"nonfinite": 4} and step["first_nonfinite"]["site"] == "loss"


def test_record_status_and_incident_are_typed(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, mode="immediate")
    told = []
    agent.on_incident(told.append)
    agent.on_incident(lambda incident: 1 / 0)  # somebody else's trouble
    assert agent.last_step is None
    loss, norm = one_step(model, optimizer)
    record = agent.last_step
    assert isinstance(record, gradvane.StepRecord)
    assert (record.step, record.read_at, record.skipped) == (1, "optimizer", None)
    assert record.loss == pytest.approx(loss) and record.grad_norm == pytest.approx(norm, rel=1e-6)
    one_step(model, optimizer, torch.full((4, 6), float("inf")))
    assert agent.last_step.blame == gradvane.Blame("loss", "nan", None, 0)
    watching.steps()
    assert {incident.kind for incident in told} == {"nonfinite_loss"}
    assert [seen.blame.site for seen in told[0].order] == ["loss", "grad"]
    assert isinstance(told[0], gradvane.Incident) and "Step 2" in told[0].evidence


class Plain:
    """Steps, and has nothing that torch's optimizers have."""

    def step(self):
        pass


@pytest.mark.parametrize(("model", "optimizer", "said"), [
    (net, Plain, "the optimizer is of type Plain, which has no param_groups"),
    (net, lambda: "adam", "the optimizer is of type str, which has no param_groups"),
    (net, lambda: [Plain()], "the optimizer is of type Plain, which has no param_groups"),
    (lambda: torch.optim.SGD(net().parameters()), net, "the model is of type SGD, which is no torch.nn.Module"),
])
def test_attach_says_what_it_wants_where_it_is_given_something_else(model, optimizer, said):
    with pytest.raises(TypeError, match=said):
        gradvane.attach(model(), optimizer(), port=-1)
    assert gradvane._agent.live() is None


def test_an_agent_shows_where_the_run_is_seen_in_a_console_and_in_a_notebook(watching):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer, port=0, mode="immediate")
    assert "<p>Gradvane: <a href=" in agent._repr_html_() and "loss" not in agent._repr_html_()
    loss, _ = one_step(model, optimizer)
    assert agent.flush()
    assert repr(agent) == f"<gradvane.Agent state='running', steps=1, url='{agent.url}'>"
    assert agent._repr_html_() == (f'<p>Gradvane: <a href="{agent.url}">{agent.url}</a>; running, 1 step, '
                                   f"loss {loss:.4g}</p>")
    gradvane.finish()
    gradvane.finish()
    assert repr(agent).startswith("<gradvane.Agent state='finished', steps=1")
