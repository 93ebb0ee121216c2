"""A step that is watched because something went bad, or all of them: what the incident says of it."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from traced_models import Bad, BadBack, Model, data, hooks_of_modules, train

import gradvane


class Incidents:
    """What the agent told, as it came."""

    def __init__(self, agent) -> None:
        self.told: list[gradvane.Incident] = []
        self._agent = agent
        agent.on_incident(self.told.append)

    def wait(self, is_there) -> None:
        self._agent.flush()
        until = time.monotonic() + 20
        while not any(is_there(incident) for incident in self.told):
            assert time.monotonic() < until, self.told
            time.sleep(0.01)


def nonfinite(incident) -> bool:
    return incident.kind.startswith("nonfinite")


def train_gently(model, optimizer):
    """The loss may be bad, and the weights stay as they are."""
    optimizer.zero_grad()
    model(data()).square().mean().backward()
    for parameter in model.parameters():
        parameter.grad.zero_()
    optimizer.step()


def test_the_step_after_the_one_in_which_an_incident_opened_is_watched_once(watching):
    model = Model(None, Bad())
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    agent = watching(model, optimizer, trace_nonfinite="next_step")
    incidents = Incidents(agent)
    train(model, optimizer)
    assert hooks_of_modules() == 0
    model.blocks[1].inner.is_armed = True
    train_gently(model, optimizer)
    incidents.wait(nonfinite)
    while not agent._watcher.tracer._is_armed:
        time.sleep(0.01)
    train_gently(model, optimizer)  # in progress when it became known
    assert hooks_of_modules() == 2
    train_gently(model, optimizer)
    assert hooks_of_modules() == 0
    incidents.wait(lambda incident: incident.module)
    last = incidents.told[-1]
    assert last.id == incidents.told[0].id
    assert last.module == "blocks.1.inner"
    assert "Watched in step 4" in last.evidence
    train(model, optimizer)
    assert hooks_of_modules() == 0, "once for each incident"


@pytest.mark.parametrize(("bad", "direction"), [(Bad, "output"), (BadBack, "gradient")])
def test_with_every_step_watched_the_first_bad_one_is_caught_in_flight(watching, bad, direction):
    model = Model(None, bad(), None)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer, trace_nonfinite="always")
    incidents = Incidents(agent)
    for step in range(1, 6):
        model.blocks[1].inner.is_armed = step == 4
        train(model, optimizer)
    incidents.wait(lambda incident: incident.module)
    first = next(incident for incident in incidents.told if incident.module)
    assert first.module == "blocks.1.inner"
    assert first.first_step == 4
    assert (f"Watched in step 4: the first module whose {direction} was not finite is blocks.1.inner "
            f"({bad.__name__}).") in first.evidence


def test_a_clean_run_that_is_watched_tells_nothing(watching):
    model = Model(None)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer, trace_nonfinite="always")
    for _ in range(30):
        train(model, optimizer)
    assert agent.traced() is None
    assert agent.last_step.nan == 0


def test_overflow_that_a_scaler_skips_makes_no_incident(watching):
    model = Model(None)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer, trace_nonfinite="always")
    incidents = Incidents(agent)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=1)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(model(data() * 1e6).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    agent.flush()
    assert not [incident for incident in incidents.told if nonfinite(incident)]


def test_a_loop_without_an_optimizer_is_watched_too(watching):
    model = Model(Bad())
    agent = watching(model, trace_nonfinite="always")
    for step in range(1, 5):
        model.blocks[0].inner.is_armed = step == 3
        model.zero_grad()
        model(data()).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad.nan_to_num()
    assert agent.traced() is not None
    assert agent.traced().name == "blocks.0.inner"
    assert agent.traced().run_step == 3


def test_a_closure_is_watched(watching):
    model = Model(Bad())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    agent = watching(model, optimizer, trace_nonfinite="always")

    def closure():
        optimizer.zero_grad()
        loss = model(data()).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert agent.traced() is None
    model.blocks[0].inner.is_armed = True
    optimizer.step(closure)
    assert (agent.traced().name, agent.traced().run_step, agent.traced().micro_step) == ("blocks.0.inner", 2, 1)


def test_another_thread_may_ask_and_the_next_whole_step_is_watched(watching):
    model = Model(Bad())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    agent = watching(model, optimizer)
    train(model, optimizer)
    asking = threading.Thread(target=gradvane.trace_nonfinite)
    asking.start()
    asking.join()
    assert hooks_of_modules() == 0
    train(model, optimizer)
    assert hooks_of_modules() == 2
    model.blocks[0].inner.is_armed = True
    train(model, optimizer)
    assert agent.traced().name == "blocks.0.inner"


def test_without_an_agent_asking_does_nothing():
    gradvane.trace_nonfinite()
    assert hooks_of_modules() == 0
