"""Options as Python has them: enumerations, lists, mappings, None; and the incidents that an agent keeps."""

import enum
import pathlib
import time

import pytest
import torch

import gradvane
from gradvane.options import as_texts


@pytest.mark.parametrize(("value", "text"), [
    ({"mode": enum.Enum("Mode", {"LAGGED": "lagged"}).LAGGED}, {"mode": "lagged"}),
    ({"recorder": True, "sync": None, "port": 0}, {"recorder": "on", "port": "0"}),
    ({"step_log": pathlib.Path("a/b")}, {"step_log": "a/b"}),
    ({"detect": ["all", "-stalled"]}, {"detect": "all,-stalled"}),
    ({"allowed_hosts": ("a", "b")}, {"allowed_hosts": "a,b"}),
    ({"allowed_hosts": {"a": 1}.keys()}, {"allowed_hosts": "a"}),
    ({"detect": [enum.Enum("Class", {"A": "stalled"}).A]}, {"detect": "stalled"}),
    ({"groups": {"head": "^(head|lm),x", "body": "."}}, {"groups": "head=^(head|lm),x;body=."}),
    ({"alertmanager_labels": {"job": "training", "team": "x"}}, {"alertmanager_labels": "job=training,team=x"}),
    ({"groups": "auto"}, {"groups": "auto"}),
])
def test_an_option_may_be_what_python_has_for_it(value, text):
    assert as_texts(value) == text


@pytest.mark.parametrize("value", [{"detect": {"all", "-stalled"}}, {"groups": {"a=b": "x"}}, {"detect": ["a,b"]}])
def test_what_has_no_order_or_would_be_read_otherwise_is_refused(value):
    with pytest.raises(ValueError, match="is not allowed, since"):
        as_texts(value)


def test_log_takes_the_step_that_other_loggers_take(watching):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    gradvane.log({"accuracy": 0.5}, step=7)
    optimizer.step()
    [step] = watching.steps()
    assert step["user"] == {"accuracy": 0.5}


def test_options_as_lists_and_mappings_reach_the_run(watching):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    options = {"groups": {"first": "^0", "rest": "."}, "detect": ["nonfinite_grad"], "run_id": None}
    agent = watching(model, optimizer, **options)
    (model(torch.ones(1, 2)).sum() * float("nan")).backward()
    optimizer.step()
    assert agent.flush()
    until = time.monotonic() + 30
    while not agent.incidents and time.monotonic() < until:
        time.sleep(0.01)
    [incident] = agent.incidents
    assert (incident.kind, incident.first_step) == ("nonfinite_grad", 1)
    with pytest.raises(ValueError, match="alertmanager_labels = 'a=x,y' is not allowed, since ',' separates its parts"):
        gradvane.attach(model, optimizer, alertmanager_labels={"a": "x,y"})
