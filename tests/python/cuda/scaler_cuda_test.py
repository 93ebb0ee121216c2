"""A gradient scaler on a CUDA device that takes what Gradvane's read has found: the same bits, and no read of its own.

Needs no pytest: `python scaler_cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1 it
fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
import without_pytest
from capturing import captured

DEVICE = torch.device("cuda", 0)
OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
}
STEPS = 12
BAD = {3: float("inf"), 4: float("nan"), 9: -float("inf")}


def train(make, bad=BAD, bad_loss=(), **options):
    """Weights, states, the scale after each step, and how many of torch's checks ran. `options`: of the agent, which is
    there if they are not empty."""
    import gradvane

    checks = 0
    original = torch.amp.GradScaler._unscale_grads_

    def unscale_grads(self, *args):
        nonlocal checks
        checks += 1
        return original(self, *args)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8)).to(DEVICE)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=2)
    scales = []
    torch.amp.GradScaler._unscale_grads_ = unscale_grads
    try:
        with tempfile.TemporaryDirectory() as folder:
            agent = gradvane.attach(model, optimizer, port=-1, run_dir=folder, **options) if options else None
            for i in range(1, STEPS + 1):
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.float16):
                    loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
                loss = scaler.scale(loss)
                (loss + float("inf") if i in bad_loss else loss).backward()
                if i in bad:
                    model[2].weight.grad[1, 2] = bad[i]
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            if agent is not None:
                agent.detach()
                assert agent._watcher.faults == agent._watcher.scaler_checks.faults == 0
    finally:
        torch.amp.GradScaler._unscale_grads_ = original
    state = [p.detach().cpu() for p in model.parameters()]
    state += [value.cpu() for of in optimizer.state.values() for value in of.values() if isinstance(value, torch.Tensor)]
    return state, scales, checks


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def test_the_training_is_the_same_to_the_bit_and_the_scaler_reads_nothing():
    for name, make in OPTIMIZERS.items():
        plain, plain_scales, plain_checks = train(make)
        assert plain_checks == STEPS, "the control"
        watched, scales, checks = train(make, found_inf_for_scaler=True)
        assert same(watched, plain) and scales == plain_scales, name
        assert checks == 0, name


def test_a_loss_that_is_not_finite_is_no_overflow():
    plain, plain_scales, _ = train(OPTIMIZERS["AdamW"], bad={}, bad_loss={2, 5})
    watched, scales, checks = train(OPTIMIZERS["AdamW"], bad={}, bad_loss={2, 5}, found_inf_for_scaler=True)
    assert same(watched, plain) and scales == plain_scales and checks == 0


def test_a_captured_step_has_torchs_own_check():
    """What a replay would find is not known when its step is captured."""
    import gradvane

    model = torch.nn.Linear(64, 64).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True, capturable=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    batch = torch.randn(32, 64, device=DEVICE)

    def step():
        scaler.scale(model(batch).square().mean()).backward()
        scaler.step(optimizer)
        optimizer.zero_grad(set_to_none=False)

    def warm_up():
        step()
        scaler.update()

    with tempfile.TemporaryDirectory() as folder:
        agent = gradvane.attach(model, optimizer, port=-1, run_dir=folder, found_inf_for_scaler=True)
        graph = captured(step, warm_up)
        graph.replay()
        before = [p.clone() for p in model.parameters()]
        batch.fill_(float("nan"))
        graph.replay()
        assert same(before, list(model.parameters())), "left out"
        agent.detach()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    sys.exit(without_pytest.run(globals()))
