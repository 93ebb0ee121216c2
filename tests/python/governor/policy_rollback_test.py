"""The policy `rollback`: an unmodified script survives a bad batch, and ends where the one without this batch ends."""

import json
import logging
import re
import time
import urllib.request

import pytest
import running
import torch

import gradvane

SCRIPT = """
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def main(bad, leaves_out):
        torch.manual_seed(0)
        x = torch.randn(60, 6)
        train = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=5, shuffle=True)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
                                    torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
        optimizer = torch.optim.{optimizer}
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=100)
        number = 0
        for epoch in range(3):
            for inputs, targets in train:
                number += 1
                if number in bad:
                    if leaves_out:
                        continue
                    inputs = inputs / 0.0
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
        torch.save([list(model.state_dict().values()), optimizer.state_dict()["state"], optimizer.param_groups[0]["lr"],
                    torch.get_rng_state()], "end.pt")

    main([int(n) for n in sys.argv[1].split(",")], sys.argv[2] == "without")
"""


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


@pytest.mark.parametrize(("optimizer", "bad"), [
    ("AdamW(model.parameters(), 1e-2)", "13,24"),  # the first batch of an epoch, and the last of one
    ("SGD(model.parameters(), 1e-2, momentum=0.9)", "5,12"),
])
def test_an_unmodified_script_ends_where_it_ends_without_the_bad_batches(tmp_path, optimizer, bad):
    script = running.write(tmp_path, SCRIPT.replace("{optimizer}", optimizer))
    ends = {}
    for way in ("without", "taken"):
        running.python(script, bad, way, cwd=tmp_path)
        ends[way] = torch.load(tmp_path / "end.pt")
    steps, done = running.watched(script, bad, "rolled back", cwd=tmp_path,
                                  options=("--on-nonfinite", "rollback", "--snapshot-every", "1"))
    undone = torch.load(tmp_path / "end.pt")
    assert same(undone, ends["without"])
    assert not same(ends["taken"], ends["without"]), "the control: the batch spoils the run"
    left_out = [i + 1 for i, step in enumerate(steps) if step.get("skipped") == "governor"]
    assert left_out == [int(number) for number in bad.split(",")]


DIVERGENCE = {"loss_window": 10, "detect": "loss_divergence"}


def training(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), 0.05)


def step(model, optimizer, factor=1.0):
    optimizer.zero_grad()
    x = torch.randn(16, 4)
    (torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) * factor).backward()
    optimizer.step()


def test_it_is_reported_once_and_the_run_goes_on(watching, caplog):
    caplog.set_level(logging.INFO, "gradvane")
    model, optimizer = training()
    agent = watching(model, optimizer, on_nonfinite="rollback", snapshot_every=3)
    seen = []
    agent.on_rollback(seen.append)
    for i in range(1, 10):
        step(model, optimizer, float("nan") if i == 6 else 1.0)
    (done,) = seen
    assert (done.step, done.to_step) == (6, 4)
    assert done.reason == "step 6: the loss is not finite"
    assert all(p.isfinite().all() for p in model.parameters())
    assert agent._watcher.keeper.faults == 0 and len(watching.steps()) == 9
    (line,) = [line for line in caplog.messages if "step 4" in line]
    assert line.startswith("Step 6: the training went back to the state after step 4") and line.endswith("Lost: 2 steps.")


def ask(agent, path):
    with urllib.request.urlopen(agent.url + path, timeout=10) as answer:
        return answer.read().decode()


def until(agent, path, is_there):
    """What is there is exported about once a second."""
    deadline = time.monotonic() + 30
    while not is_there(text := ask(agent, path)):
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    return text


def test_a_rollback_is_one_incident_that_comes_behind_its_cause(watching):
    model, optimizer = training()
    agent = watching(model, optimizer, on_nonfinite="rollback", snapshot_every=3, port=0, run="gan")
    for i in range(1, 10):
        step(model, optimizer, float("nan") if i == 6 else 1.0)
    agent.rollback("a loss spike", lr_factor=0.5)
    step(model, optimizer)
    assert agent.flush()
    status = json.loads(until(agent, "/api/v1/status", lambda text: '"requested"' in text))
    metrics = until(agent, "/metrics", lambda text: 'reason="requested"} 1' in text)
    cause, first, second = agent.incidents
    assert (cause.kind, first.kind, second.kind) == ("nonfinite_loss", "rollback", "rollback")
    assert (first.first_step, first.steps, first.closed_at is not None) == (6, 1, True)
    assert re.fullmatch(r"Step 6: the training went back to the state after step 4 \(snapshot 2, \S+ s old\)\. The reason:"
                        r" step 6: the loss is not finite\. Lost: 2 steps\.", first.evidence)
    assert second.first_step == 9
    assert re.search(r"The script asked for it: a loss spike\. .*Learning rates were multiplied by 0\.5\.", second.evidence)
    assert status["governor"]["rollbacks"] == {"nonfinite": 1, "requested": 1}
    committed = status["governor"]["snapshots"]["committed"]
    assert committed == agent._watcher.keeper.snapshots.committed >= 3
    assert [status["governor"][f"{which}_step"] for which in ("snapshot", "older_snapshot")] == [
        step for step, _ in agent._watcher.keeper.good()]
    assert status["governor"]["older_snapshot_age_seconds"] > status["governor"]["snapshot_age_seconds"] >= 0
    labels = 'rank="0",run="gan",'
    assert f'gradvane_snapshots_total{{{labels}result="committed"}} {committed}\n' in metrics
    assert f'gradvane_rollbacks_total{{{labels}reason="nonfinite"}} 1\n' in metrics
    assert re.search(r'^gradvane_snapshot_age_seconds\{rank="0",run="gan"\} \d', metrics, re.MULTILINE)


def test_without_snapshots_there_is_nothing_of_them_to_see(watching):
    model, optimizer = training()
    agent = watching(model, optimizer, port=0)
    step(model, optimizer)
    assert agent.flush()
    time.sleep(1.5)
    assert "governor" not in json.loads(ask(agent, "/api/v1/status"))
    assert "snapshot" not in ask(agent, "/metrics") and "rollback" in ask(agent, "/metrics"), "the class of incidents"


def test_two_bad_optimizers_in_one_iteration_are_one_rollback(watching):
    """With a limit of one: counted twice, the run would stop."""
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
    agent = watching(torch.nn.ModuleList(models), optimizers, on_nonfinite="rollback", snapshot_every=1, rollback_limit=1)

    def iteration(factor):
        for model, optimizer in zip(models, optimizers):
            step(model, optimizer, factor)

    iteration(1.0)
    iteration(1.0)
    iteration(float("nan"))
    assert agent._watcher.keeper.rollbacks == 1
    iteration(1.0)
    with pytest.raises(gradvane.TrainingStopped, match="after 1 rollbacks within"):
        iteration(float("nan"))


def test_a_rollback_that_fails_at_the_end_of_an_iteration_stops_the_run_at_the_next_step(watching):
    """The bad step is not the iteration's last, and when that comes the snapshots turn out to be damaged."""
    models = [training()[0] for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
    agent = watching(torch.nn.ModuleList(models), optimizers, on_nonfinite="rollback", snapshot_every=1)
    for _ in range(2):
        for model, optimizer in zip(models, optimizers):
            step(model, optimizer)
    step(models[0], optimizers[0], float("nan"))
    for generation in agent._watcher.keeper.snapshots.good():
        generation.checksum ^= 1
    step(models[1], optimizers[1])
    assert agent.should_stop and agent._watcher.keeper.failed_rollbacks == 1
    before = [p.detach().clone() for p in models[0].parameters()]
    with pytest.raises(gradvane.TrainingStopped, match="not finite; there was no snapshot to go back to"):
        step(models[0], optimizers[0])
    assert all(torch.equal(a, b) for a, b in zip(before, models[0].parameters()))


def test_more_rollbacks_than_the_limit_stop_the_run(watching):
    model, optimizer = training()
    agent = watching(model, optimizer, on_nonfinite="rollback", snapshot_every=1, rollback_limit=2, rollback_window=50)
    step(model, optimizer)
    with pytest.raises(gradvane.TrainingStopped, match="after 2 rollbacks within 50 steps"):
        for _ in range(5):
            step(model, optimizer, float("nan"))
    assert agent._watcher.keeper.rollbacks == 2


@pytest.mark.parametrize(("how", "state", "factor"), [("restore", 4, 0.5), ("reset", 0, 0.5), ("keep", 4, 1.0)])
def test_a_policys_rollback_backs_off_and_resets_the_optimizer_as_the_options_say(watching, how, state, factor):
    model, _ = training()
    optimizer = torch.optim.SGD(model.parameters(), 0.08, momentum=0.9)
    watching(model, optimizer, on_nonfinite="rollback", snapshot_every=2, rollback_optimizer=how, rollback_lr_factor=0.5)
    for _ in range(2):
        step(model, optimizer)
    for times in (1, 2):
        step(model, optimizer, float("nan"))
        assert optimizer.param_groups[0]["lr"] == 0.08 * factor**times, "once more at each return to the same snapshot"
        assert sum(len(values) for values in optimizer.state.values()) == state


def test_without_a_snapshot_a_bad_first_step_stops_the_run(watching):
    model, optimizer = training()
    watching(model, optimizer, on_nonfinite="rollback", snapshot_every=1)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(gradvane.TrainingStopped, match="there was no snapshot to go back to"):
        step(model, optimizer, float("nan"))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_a_trainer_that_asks_is_asked_to_stop_where_there_is_no_snapshot(watching):
    model, optimizer = training()
    agent = watching(model, optimizer, on_nonfinite="rollback", snapshot_every=1)
    agent.raise_at_stop(False)
    step(model, optimizer, float("nan"))
    assert agent.should_stop
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_divergence_goes_back_to_before_its_first_step(watching):
    """It is found some steps after it began; snapshots of those steps are given up."""
    model, optimizer = training()
    agent = watching(model, optimizer, on_divergence="rollback", snapshot_every=6, **DIVERGENCE)
    seen = []
    agent.on_rollback(seen.append)
    for _ in range(14):
        step(model, optimizer)
    assert agent.flush()
    good = agent._watcher.keeper.step
    for _ in range(12):
        with torch.no_grad():
            model[2].bias.add_(100.0)  # something writes nonsense
        step(model, optimizer)
        agent.flush()
        if seen:
            break
    (done,) = seen
    assert re.search(r"an incident loss_divergence is open: step \d+: the loss rose to .*, the limit [\d.e+]+ \(loss_\w+\)$", done.reason)
    assert done.to_step <= good and done.step > good + 1
    assert float(model[2].bias.detach().abs()) < 10


LEARNED = [2.0, 1.9, 2.1] * 7
PANICS = {  # of the rollback governor in esper-lite, in its order: losses, and the step that goes back
    "1: a loss that is not finite, whatever the history": ([2.0, float("nan"), 2.0], 2),
    "2: a learned loss is that of a random guess again": ([1.0] * 20 + [2.3, 1.0], 22),
    "3: a short history judges nothing": ([2.0] * 5 + [1e6] * 4, None),
    "4: three outliers in a row": ([*LEARNED, 90.0, 90.0, 90.0, 2.0], 25),
    "4: two are none": ([*LEARNED, 90.0, 90.0, 2.0, 2.0], None),
    "5: what is within one of the bounds is accepted": ([*LEARNED, *[5.5] * 8], None),
}


@pytest.mark.parametrize("case", PANICS)
def test_the_preset_goes_back_where_the_one_that_it_is_named_for_does(watching, case):
    losses, expected = PANICS[case]
    model, optimizer = training()
    agent = watching(model, optimizer, detect="panic_v1", on_nonfinite="rollback", on_divergence="rollback", snapshot_every=1,
                     random_guess_loss=2.302585)
    seen = []
    agent.on_rollback(seen.append)
    for loss in losses:
        agent.log(loss=loss)
        step(model, optimizer)
        agent.flush()
    assert [done.step for done in seen] == ([] if expected is None else [expected])


def diverge(agent, model, optimizer, steps):
    """From the 15th step on, something writes nonsense into the weights. Each step is judged before the next."""
    for i in range(steps):
        if i >= 14:
            with torch.no_grad():
                model[2].bias.add_(100.0)
        step(model, optimizer)
        agent.flush()


def test_snapshots_in_every_step_are_refused_from_the_first_loss_that_stands_out(watching):
    """Otherwise both would be of the divergence before it is one, three losses in a row."""
    model, optimizer = training()
    agent = watching(model, optimizer, on_divergence="rollback", snapshot_every=1, **DIVERGENCE)
    seen = []
    agent.on_rollback(seen.append)
    diverge(agent, model, optimizer, steps=18)
    assert [(done.step, done.to_step) for done in seen] == [(18, 14)]
    assert agent._watcher.keeper.snapshots.refused["incident"] == 2


def test_a_divergence_that_all_snapshots_came_after_stops_the_run_and_says_so(watching, caplog):
    """As in a loop whose steps come faster than they can be judged."""
    caplog.set_level(logging.INFO, "gradvane")
    model, optimizer = training()
    agent = watching(model, optimizer, on_divergence="rollback", snapshot_every=1, **DIVERGENCE)
    agent._watcher.keeper.badness = lambda: None
    with pytest.raises(gradvane.TrainingStopped, match="there was no snapshot to go back to"):
        diverge(agent, model, optimizer, steps=30)
    assert any("came after the first bad step, 15: take snapshots less often" in text for text in caplog.messages)


def test_steps_that_are_skipped_in_a_row_lead_to_a_rollback(watching):
    model, optimizer = training()
    agent = watching(model, optimizer, on_nonfinite="skip", skip_limit=3, snapshot_every=1)
    for _ in range(3):
        step(model, optimizer)
    for _ in range(3):
        step(model, optimizer, float("nan"))
    assert agent._watcher.keeper.rollbacks == 1 and agent._watcher.keeper.latest().step == 3


def test_a_rollback_that_a_script_asked_for_and_that_breaks_off_raises_from_the_step(watching, monkeypatch):
    model, optimizer = training()
    agent = watching(model, optimizer)
    step(model, optimizer)
    assert agent.snapshot()
    monkeypatch.setattr("gradvane._governor.restoring.back_off", lambda *_: 1 / 0)
    agent.rollback(when="after_step")
    with pytest.raises(gradvane.GradvaneError, match="could not be written back whole: ZeroDivisionError"):
        step(model, optimizer)


def test_a_policys_rollback_without_memory_stops_the_run(watching, monkeypatch):
    def no_memory(*_):
        raise torch.OutOfMemoryError("no memory")

    models = [training()[0] for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
    agent = watching(torch.nn.ModuleList(models), optimizers, on_nonfinite="rollback", snapshot_every=1)
    for _ in range(2):
        for model, optimizer in zip(models, optimizers):
            step(model, optimizer)
    monkeypatch.setattr("gradvane._governor.restoring.plan", no_memory)
    step(models[0], optimizers[0], float("nan"))  # the rollback waits for the end of the iteration
    step(models[1], optimizers[1])
    assert agent.should_stop and agent._watcher.keeper.failed_rollbacks == 1
    monkeypatch.undo()
    with pytest.raises(gradvane.TrainingStopped):
        step(models[0], optimizers[0])
