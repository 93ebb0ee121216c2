"""What a policy cannot act on is refused when it is set up, or reported in a line."""

import threading

import pytest
import running
import torch
from poisoned import made

import gradvane
from gradvane._watch import governing


@pytest.mark.parametrize("policy", ["skip", "stop", "rollback"])
def test_parameters_on_a_device_that_is_not_read_are_refused(watching, policy):
    model, _ = made()
    model.to("meta")
    with pytest.raises(ValueError, match="only where parameters are on a CPU or a CUDA device, and these are on meta"):
        watching(model, torch.optim.SGD(model.parameters(), 0.1), on_nonfinite=policy)


def test_a_divergence_alone_needs_no_judgement_before_the_update(watching):
    model, _ = made()
    model.to("meta")
    watching(model, torch.optim.SGD(model.parameters(), 0.1), on_divergence="stop")


def test_an_option_that_is_not_allowed_is_named(watching):
    model, optimizer = made()
    with pytest.raises(ValueError, match="'ignore' is not allowed; allowed: watch, skip, stop, rollback"):
        watching(model, optimizer, on_nonfinite="ignore")


def test_a_torch_without_the_wrapper_that_we_know_is_refused(monkeypatch, watching):
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", staticmethod(lambda step: step))
    model, optimizer = made()
    threads = set(threading.enumerate())
    with pytest.raises(gradvane.GradvaneError, match="policies cannot act beside torch"):
        watching(model, optimizer, on_nonfinite="skip")
    assert set(threading.enumerate()) == threads


def test_without_a_policy_nothing_is_judged(watching):
    model, optimizer = made()
    agent = watching(model, optimizer)
    assert not agent._watcher.governing.acts
    assert not agent._watcher.governing.evaluates_first(optimizer)


def test_every_optimizer_of_torch_has_the_wrapper(watching):
    for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"):
        optimizer = getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(2))])
        assert governing.step_cell(optimizer) is not None, name
        assert governing._is_torchs(type(optimizer).step), name


def test_under_gradvane_run_a_loop_that_no_policy_can_act_on_trains_on(tmp_path):
    script = running.write(tmp_path, """
        import torch
        model = torch.nn.Linear(2, 1)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
        print("done")
        """)
    _, done = running.watched(script, cwd=tmp_path, options=("--on-nonfinite", "skip"))
    assert done.stdout == "done\n"
    assert done.stderr.count("no policy acts here: there is no optimizer's step that could be left out") == 1


@pytest.mark.parametrize(("option", "said"), [
    (("--on-divergence", "stop"), "no policy acts in this run: on_divergence on several ranks needs ranks that act together"),
    (("--skip-on-device", "on"), "this run is not watched: skip_on_device is for bad steps that are skipped"),
])
def test_under_gradvane_run_a_policy_that_cannot_act_leaves_the_run_watched(option, said, tmp_path):
    script = running.write(tmp_path, running.TRAINS)
    _, done = running.watched(script, cwd=tmp_path, options=option, WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")
    assert done.stdout == "trained\n" and said in done.stderr
    steps = [line for log in tmp_path.glob("steps*.jsonl") for line in running.steps_in(log)]
    assert len(steps) == (3 if said.startswith("no policy") else 0), "the control: an option that is wrong in itself"
