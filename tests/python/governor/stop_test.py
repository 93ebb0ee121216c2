"""on_nonfinite=stop, and skips in a row that lead to it: the run ends with a good state and says why."""

import pickle

import pytest
import running
import torch
from poisoned import OPTIMIZERS, backward, batches, equal, made, weights

import gradvane

TRAINING = """
    import sys
    import torch
    {top}
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(1, 9):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4)).sum()
        loss.backward()
        if i >= 5:
            model.weight.grad[0, 1] = float("nan")
        {step}
        torch.save(model.state_dict(), "checkpoint.pt")
    print("went on to the end")
"""


def test_stop_raises_and_the_step_is_not_taken(watching):
    model, optimizer = made(OPTIMIZERS["Adam"])
    agent = watching(model, optimizer, on_nonfinite="stop")
    for batch in batches(3):
        backward(model, optimizer, batch)
        optimizer.step()
    before = weights(model), pickle.dumps(optimizer.state_dict())
    backward(model, optimizer, batches(1)[0], "grad")
    with pytest.raises(gradvane.TrainingStopped, match="step 4: a gradient is not finite") as caught:
        optimizer.step()
    assert equal(before[0], weights(model)) and before[1] == pickle.dumps(optimizer.state_dict())
    stopped = caught.value
    assert isinstance(stopped, gradvane.GradvaneError)
    assert stopped.last_good_step == 3
    assert stopped.incident.kind == "nonfinite_grad" and stopped.incident.first_step == 4
    assert stopped.incident.last_good_step == 3
    assert gradvane.is_state_good()
    again = pickle.loads(pickle.dumps(stopped))
    assert again.reason == stopped.reason and again.incident == stopped.incident
    agent.detach()


def test_a_loop_that_catches_the_stop_goes_on_and_ends_well(watching):
    model, optimizer = made()
    agent = watching(model, optimizer, on_nonfinite="stop")
    stops = []
    for i, batch in enumerate(batches(8), 1):
        backward(model, optimizer, batch, "grad" if i in (3, 4, 7) else None)
        try:
            optimizer.step()
        except gradvane.TrainingStopped:
            stops.append(i)
    assert stops == [3, 4, 7], "once for each step that was left out"
    assert all(p.isfinite().all() for p in model.parameters())
    assert [s["step"] for s in watching.steps()] == list(range(1, 9))
    assert agent.status().state == "finished"


def test_so_many_skips_in_a_row_stop_the_run(watching):
    model, optimizer = made()
    watching(model, optimizer, on_nonfinite="skip", skip_limit=3)
    backward(model, optimizer, batches(1)[0])
    optimizer.step()
    good = weights(model)
    for _ in range(2):
        backward(model, optimizer, batches(1)[0], "all")
        optimizer.step()
    backward(model, optimizer, batches(1)[0], "all")
    with pytest.raises(gradvane.TrainingStopped, match="step 4, the last of 3 skipped in a row"):
        optimizer.step()
    assert equal(good, weights(model))


def test_a_divergence_stops_the_run_at_a_step_after_its_incident(watching):
    model, optimizer = made(lambda params: torch.optim.SGD(params, 1e-4))
    agent = watching(model, optimizer, on_divergence="stop")
    with pytest.raises(gradvane.TrainingStopped, match="an incident (loss_div|grad_expl)") as caught:
        for i, batch in enumerate(batches(60)):
            optimizer.zero_grad()
            (model(batch).square().mean() * (1 if i < 40 else 1e4)).backward()
            agent.flush()
            optimizer.step()
    assert caught.value.incident.kind in ("loss_divergence", "grad_exploding")
    assert caught.value.last_good_step == 40
    assert not gradvane.is_state_good()


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_never_gets_over_an_overflow_is_stopped(watching, fused):
    model, optimizer = made(OPTIMIZERS["AdamW, fused" if fused else "SGD with momentum"])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    watching(model, optimizer, on_nonfinite="stop")
    with pytest.raises(gradvane.TrainingStopped, match="step 17: gradients are not finite, and the gradient scaler"):
        for _ in range(40):
            optimizer.zero_grad()
            scaler.scale(model(batches(1)[0]).square().mean()).backward()
            model[0].weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()


def test_under_gradvane_run_a_stop_has_its_own_status_and_one_line(tmp_path):
    script = running.write(tmp_path, TRAINING.format(top="", step="optimizer.step()"))
    steps, done = running.watched(script, cwd=tmp_path, options=("--on-nonfinite", "stop"), check=False)
    assert done.returncode == 83
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if "stopped" in line]
    assert lines == ["gradvane: stopped: step 5: a gradient is not finite; exit status 83"]
    assert "Traceback" not in done.stderr
    assert len(steps) == 5 and steps[-1]["skipped"] == "governor"
    state = torch.load(tmp_path / "checkpoint.pt")
    assert state["weight"].isfinite().all(), "no checkpoint was written over the good one"


def test_the_control_without_the_policy_the_checkpoint_is_bad(tmp_path):
    script = running.write(tmp_path, TRAINING.format(top="", step="optimizer.step()"))
    _, done = running.watched(script, cwd=tmp_path)
    assert "went on to the end" in done.stdout
    assert not torch.load(tmp_path / "checkpoint.pt")["weight"].isfinite().all()


def test_a_script_that_attaches_itself_ends_as_by_any_exception(tmp_path):
    top = 'import gradvane; agent = gradvane.attach(on_nonfinite="stop", port=-1, run_dir="run")'
    script = running.write(tmp_path, TRAINING.format(top=top, step="optimizer.step()"))
    done = running.python(script, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("TrainingStopped: step 5: a gradient is not finite")


def test_the_run_ends_with_the_reason_stopped(tmp_path):
    top = 'import gradvane; agent = gradvane.attach(on_nonfinite="stop", port=0, run_dir="run", expect_scraper=True)'
    source = TRAINING.format(top=top, step="""try:
            optimizer.step()
        except gradvane.TrainingStopped as error:
            agent.__exit__(type(error), error, None)
            print(agent.status().state, agent.status().reason)
            sys.exit(0)""")
    done = running.python(running.write(tmp_path, source), cwd=tmp_path, check=False)
    assert done.stdout.strip() == "failed stopped: step 5: a gradient is not finite"


def test_a_good_checkpoint_before_an_incident_is_named_in_it(watching, tmp_path):
    model, optimizer = made()
    agent = watching(model, optimizer, on_nonfinite="skip")
    for i, batch in enumerate(batches(7), 1):
        backward(model, optimizer, batch, "grad" if i == 6 else None)
        optimizer.step()
        if i in (2, 4):
            torch.save(model.state_dict(), tmp_path / "checkpoint.pt")
    incident = agent._incident_of_stop()
    assert (incident.last_good_step, incident.last_good_checkpoint) == (5, 4)
