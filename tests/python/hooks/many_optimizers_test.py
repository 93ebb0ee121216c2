"""Several optimizers in one run: each record is of its own, however many there are."""

import gc

import gradvane
import pytest
import running
import torch
from conftest import reference_norm
from gradvane import _naming
from gradvane._watch import watcher
from small_net import net


def adversarial_pair():
    generator = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4))
    critic = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3), torch.nn.Linear(3, 1))
    return generator, critic


@pytest.mark.parametrize("way", ["both", "one after the other", "found"])
def test_a_record_counts_the_parameters_of_its_own_optimizer(watching, way):
    generator, critic = adversarial_pair()
    critic[0].bias.requires_grad_(False)
    of_generator = torch.optim.Adam(generator.parameters(), 1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
    if way == "both":
        watching(torch.nn.ModuleList([generator, critic]), [of_generator, of_critic])
    elif way == "found":
        watching()
    else:
        watching(generator, of_generator)
        gradvane.attach(critic, of_critic)
    norms = {0: [], 1: []}
    order = [(of_critic, critic), (of_generator, generator)]
    for _ in range(3):
        for optimizer, model in order:
            optimizer.zero_grad()
            critic(generator(torch.randn(8, 2))).mean().backward()
            norms[optimizer is of_critic].append(reference_norm(model.parameters()))
            optimizer.step()
    steps = watching.steps()
    for optimizer, expected, states in ((0, norms[0], {"finite": 4}), (1, norms[1], {"finite": 5, "frozen": 1})):
        own = [s for s in steps if s["optimizer"] == optimizer]
        assert [s["params"] for s in own] == [states["finite"]] * 3
        assert [s["param_states"] for s in own] == [states] * 3
        assert [s["grad_norm"] for s in own] == pytest.approx(expected, rel=1e-6)


def test_an_optimizer_over_a_part_of_the_model_is_told_without_the_rest(watching):
    """The rest trains too: no step uses its gradients, and none clears them."""
    model = net()
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
    watching(model, optimizer)
    expected, clipped = [], []
    for i in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        expected.append(reference_norm(model[2].parameters()))
        if i >= 2:
            torch.nn.utils.clip_grad_norm_(model.parameters() if i < 4 else model[2].parameters(), 1e-3)
        clipped.append(reference_norm(model[2].parameters()))
        optimizer.step()
    assert model[0].weight.grad is not None
    steps = watching.steps()
    assert [s["params"] for s in steps] == [2] * 6 and [s["numel"] for s in steps] == [9] * 6
    assert all(s["param_states"] == {"finite": 2, "frozen": 1} for s in steps)
    assert [s["grad_norm"] for s in steps] == pytest.approx(expected, rel=1e-6)
    assert [s["grad_norm_at_step"] for s in steps] == pytest.approx(clipped, rel=1e-6)


def test_each_of_two_hundred_optimizers_is_read_in_each_step(watching):
    def finite_norm(model):
        squares = [p.grad.double()[p.grad.isfinite()].pow(2).sum() for p in model.parameters()]
        return float(torch.stack(squares).sum().sqrt())

    models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)) for _ in range(200)]
    optimizers = [torch.optim.SGD(model.parameters(), (i + 1) * 1e-4) for i, model in enumerate(models)]
    watching()
    expected = {}
    for step in range(1, 4):
        for i, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            model(torch.randn(2, 3)).square().sum().backward()
            if step == 3 and i % 7 == 0:
                model[1].weight.grad[0, 2] = float("inf")
            expected[i, step] = finite_norm(model)
            optimizer.step()
    steps = watching.steps()
    assert len(steps) == 600
    for s in steps:
        where = round(s["lr"] * 1e4) - 1, s["step"]  # they were found in no order
        is_bad = where[1] == 3 and where[0] % 7 == 0
        assert s["grad_norm"] == pytest.approx(expected[where], rel=1e-6), where
        assert s["params"] == 4, where
        assert s["param_states"] == ({"finite": 3, "nonfinite": 1} if is_bad else {"finite": 4}), where
        assert ("first_nonfinite" in s) == is_bad, where
        if is_bad:
            assert s["first_nonfinite"]["param"].endswith("1.weight") and s["first_nonfinite"]["element"] == 2
            assert s["first_nonfinite"]["kind"] == "pos_inf"


def test_optimizers_come_and_go_by_the_hundred(watching):
    """As in a population: half of it is replaced in each round."""
    def member():
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], 0.01)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).square().sum().backward()
        expected.append(reference_norm(model.parameters()))
        optimizer.step()

    first = member()
    watching(*first)
    population, expected = [member() for _ in range(60)], []
    for _ in range(5):
        for model, optimizer in population:
            gradvane.attach(model, optimizer)
        for model, optimizer in population:
            step(model, optimizer)
        del model, optimizer
        population = population[30:] + [member() for _ in range(30)]
    steps = watching.steps()
    assert [s["grad_norm"] for s in steps] == pytest.approx(expected, rel=1e-6)
    assert all(s["param_states"] == {"finite": 2} for s in steps)


def test_a_script_with_a_model_and_an_optimizer_for_each_task_is_not_searched_through_each_time(watching, monkeypatch, caplog):
    """As in meta-learning. A look at all objects takes tens of milliseconds, and a line for each task is noise."""
    looks = []

    def look(*generation):
        looks.append(generation)
        return objects(*generation)

    objects = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", look)
    monkeypatch.setattr(_naming, "_FREE_SECONDS", 0.0)
    monkeypatch.setattr(_naming, "_SHARE", 0.0)
    caplog.set_level("INFO", logger="gradvane")
    watching()
    for task in range(30):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(2, 3)).sum().backward()
        if task == 20:
            model[1].bias.grad.fill_(float("nan"))
        optimizer.step()
    steps = watching.steps()
    assert [s["params"] for s in steps] == [4] * 30
    bad = [s["first_nonfinite"]["param"] for s in steps if "first_nonfinite" in s]
    assert len(bad) == 1 and bad[0].endswith("1.bias")
    whole = looks.count(())
    assert 1 <= whole <= 3, f"{whole} looks at all objects"
    assert len([r for r in caplog.records if r.message.startswith("watching ")]) <= 4


def test_a_look_at_the_objects_of_the_process_keeps_no_tensor(tmp_path):
    """torch up to 2.10 warns of a tensor whose owner goes while its Python object is held elsewhere, and that object is
    of no use any more. Later versions say nothing."""
    done = running.python(running.write(tmp_path, """
        import torch, gradvane
        from gradvane import _naming
        _naming._FREE_SECONDS = _naming._SHARE = 0.0  # looks among young objects only
        agent = gradvane.attach(port=-1)
        x = torch.randn(8, 4)
        for _ in range(200):
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            del model, optimizer
        assert agent._watcher.faults == 0
        agent.detach()
        """), cwd=tmp_path)
    assert "Deallocating Tensor" not in done.stderr


def test_small_models_that_step_behind_passes_of_their_own_are_not_one_optimizer(watching):
    """A probe for each layer, say. They look like the optimizers that step within one backward pass."""
    probes = [torch.nn.Linear(3, 1) for _ in range(5)]
    optimizers = [torch.optim.SGD(probe.parameters(), 1e-3) for probe in probes]
    watching()
    norms = []
    for _ in range(3):
        for probe, optimizer in zip(probes, optimizers):
            optimizer.zero_grad()
            probe(torch.randn(4, 3)).square().mean().backward()
            norms.append(reference_norm(probe.parameters()))
            optimizer.step()
    assert [step["grad_norm"] for step in watching.steps()] == pytest.approx(norms)


def test_of_optimizers_that_are_made_for_each_task_the_first_hundreds_are_watched(watching, monkeypatch, caplog):
    monkeypatch.setattr(watcher, "_MOST_GONE", 20)
    model = net()
    caplog.set_level("INFO", "gradvane")
    gc.collect()  # those of tests before this one
    watching()
    for _ in range(30):
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        model(torch.ones(4, 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        del optimizer
        gc.collect()
    assert len(watching.steps()) == 20
    assert sum("are not watched" in record.message for record in caplog.records) == 1
