"""Policies of a training on a CUDA device: a bad step is left out, healthy ones have the same bits, and each step waits
for the device once, or not at all where the optimizer leaves out bad steps by itself.

Needs no pytest: `python skip_cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1 it
fails.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import without_pytest
from capturing import captured

DEVICE = torch.device("cuda", 0)
OPTIMIZERS = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "SGD momentum, fused": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
}
STEPS = 8
BAD = {3, 6}


def train(make, bad=frozenset(), left_out=frozenset(), bad_loss=frozenset(), rolled_back=None, **options):
    """Weights and optimizer state after STEPS steps, and the step log. The gradients of steps in `bad` hold a NaN, and
    the loss of those in `bad_loss` is one; the optimizer does not take those in `left_out`. Each rollback is added to
    `rolled_back`."""
    import gradvane

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8)).to(DEVICE)
    optimizer = make(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "steps.jsonl"
        agent = None
        if options:
            agent = gradvane.attach(model, optimizer, port=-1, step_log=log, run_dir=folder, **options)
        if rolled_back is not None:
            agent.on_rollback(rolled_back.append)
        try:
            for i in range(STEPS):
                optimizer.zero_grad()
                loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
                (loss + float("nan") if i in bad_loss else loss).backward()
                if i in bad:
                    model[2].weight.grad[1, 2] = float("nan")
                if i not in left_out:
                    optimizer.step()
        finally:
            if agent is not None:
                agent.detach()
                assert agent._watcher.faults == 0
        steps = [json.loads(line) for line in log.read_text().splitlines()] if agent is not None else []
    state = [p.detach().cpu() for p in model.parameters()]
    state += [value.cpu() for of in optimizer.state.values() for value in of.values() if isinstance(value, torch.Tensor)]
    return state, steps


def own_waits(steps):
    """Host syncs of Gradvane's behind the first two steps, where passes are set up. The first is not counted as a whole."""
    assert all("syncs" in step for step in steps[2:]), "host syncs are not counted here"
    return sum(step["syncs"]["gradvane"]["calls"] for step in steps[2:])


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def test_a_bad_step_is_skipped_as_if_it_had_never_been():
    for name, make in OPTIMIZERS.items():
        skipped, steps = train(make, BAD, on_nonfinite="skip")
        assert same(skipped, train(make, left_out=BAD)[0]), name
        assert [i for i, step in enumerate(steps) if step.get("skipped") == "governor"] == sorted(BAD), name
        assert not same(train(make, BAD, on_nonfinite="watch")[0], skipped), "the control"


def test_a_bad_loss_with_finite_gradients_is_skipped():
    skipped, steps = train(OPTIMIZERS["AdamW fused"], bad_loss=BAD, on_nonfinite="skip")
    assert same(skipped, train(OPTIMIZERS["AdamW fused"], left_out=BAD)[0])
    assert [i for i, step in enumerate(steps) if step.get("skipped") == "governor"] == sorted(BAD)


def test_an_optimizer_leaves_out_bad_steps_by_itself_and_no_step_waits():
    options = {"on_nonfinite": "skip", "skip_on_device": True}
    for make in (OPTIMIZERS["AdamW fused"], OPTIMIZERS["SGD momentum, fused"]):
        for bad in ({"bad": BAD}, {"bad_loss": BAD}, {"bad": {1, 2}}):
            skipped, steps = train(make, **bad, **options)
            (left_out,) = bad.values()
            assert same(skipped, train(make, left_out=left_out)[0]), bad
            assert [i for i, step in enumerate(steps) if step.get("skipped") == "governor"] == sorted(left_out), bad
        healthy, steps = train(make, **options)
        assert same(healthy, train(make)[0])
        assert own_waits(steps) == 0
        assert own_waits(train(make, on_nonfinite="skip")[1]) == STEPS - 2, "the control"


def test_a_captured_step_is_judged_at_each_replay():
    import gradvane

    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True, capturable=True)
    batch = torch.randn(32, 64, device=DEVICE)

    def step():
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    with tempfile.TemporaryDirectory() as folder:
        agent = gradvane.attach(model, optimizer, port=-1, run_dir=folder, on_nonfinite="skip", skip_on_device=True)
        graph = captured(step, step)
        graph.replay()
        before = [p.clone() for p in model.parameters()]
        batch.fill_(float("nan"))
        graph.replay()
        assert same(before, list(model.parameters()))
        batch.normal_()
        graph.replay()
        assert not same(before, list(model.parameters())), "the control"
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        agent.detach()


def test_a_healthy_training_has_the_same_bits():
    for name, make in OPTIMIZERS.items():
        assert same(train(make, on_nonfinite="skip")[0], train(make)[0]), name


def test_a_norm_above_the_bound_is_skipped():
    _, steps = train(OPTIMIZERS["AdamW fused"], on_nonfinite="skip", skip_norm=1e-12, skip_limit=100)
    assert [step.get("skipped") for step in steps] == ["governor"] * STEPS
    _, steps = train(OPTIMIZERS["AdamW fused"], on_nonfinite="skip", skip_norm=1e12)
    assert [step.get("skipped") for step in steps] == [None] * STEPS


def test_a_stop_comes_before_the_bad_step():
    import gradvane

    try:
        train(OPTIMIZERS["AdamW fused"], BAD, on_nonfinite="stop")
    except gradvane.TrainingStopped as stopped:
        assert stopped.last_good_step == min(BAD)
    else:
        raise AssertionError("nothing stopped it")


def test_a_rollback_goes_back_to_the_step_before():
    rolled_back = []
    state, steps = train(OPTIMIZERS["AdamW fused"], BAD, rolled_back=rolled_back, on_nonfinite="rollback", snapshot_every=1)
    assert len(rolled_back) == len(BAD)
    assert all(bool(tensor.isfinite().all()) for tensor in state)
    assert len(steps) == STEPS


if __name__ == "__main__":
    sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    sys.exit(without_pytest.run(globals()))
