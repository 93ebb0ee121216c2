"""The Python package on a CUDA device: what scripts/*.py and scaler_test.py hold on a CPU, and that no hook waits.

Needs no pytest: `python cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1 it fails.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import without_pytest

DEVICE = "cuda"


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1)).to(DEVICE)


def norm_of(model, scale=1.0):
    squares = [(p.grad.double() / scale).pow(2).sum() for p in model.parameters()]
    return float(torch.stack(squares).sum().sqrt())


def close(got, expected, rel=1e-5):
    assert got is not None and abs(got - expected) <= rel * abs(expected), (got, expected)


class Watched:
    """attach() with a step log."""

    def __init__(self, *what, **options):
        import gradvane

        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "steps.jsonl"
        self.agent = gradvane.attach(*what, port=-1, step_log=self._log, run_dir=self._folder.name, **options)

    def steps(self):
        self.agent.detach()
        assert self.agent._watcher.faults == 0, self.agent._watcher.faults
        with self._folder:
            return [json.loads(line) for line in self._log.read_text().splitlines()]


def test_losses_norms_and_clips_are_torchs_and_no_hook_waits():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    import gradvane

    watched = Watched(model, optimizer, weight_every=2, sync="require")
    truth = []
    for i in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
        loss.backward()
        truth.append((float(loss), norm_of(model)))
        if i > 1:  # what is made once may wait
            torch.cuda.set_sync_debug_mode("error")
        gradvane.log(mean=loss.detach() * 2)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    steps = watched.steps()
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6]
    for step, (loss, norm) in zip(steps, truth):
        close(step["loss"], loss)
        close(step["grad_norm"], norm)
        close(step["clip_coefficient"], min(1.0, 0.05 / (norm + 1e-6)))
        close(step["user"]["mean"], 2 * loss)
        assert step["read_at"] == "clip"
    for step in steps[1:]:  # the first began before the agent did: not all of it was counted
        # A pass that is set up has one, which its budget knows.
        assert step["syncs"]["gradvane"]["calls"] <= step["own_sync_budget"], step


def test_tensors_logged_behind_a_step_are_that_steps_and_no_hook_waits():
    import gradvane

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    watched = Watched(model, optimizer)
    truth = []
    for i in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
        loss.backward()
        truth.append(float(loss))
        if i > 1:
            torch.cuda.set_sync_debug_mode("error")
        optimizer.step()
        gradvane.log(twice=loss.detach() * 2, half=loss.detach() / 2, number=i)
        torch.cuda.set_sync_debug_mode("default")
    for i, (step, loss) in enumerate(zip(watched.steps(), truth)):
        close(step["user"]["twice"], 2 * loss)
        close(step["user"]["half"], loss / 2)
        assert step["user"]["number"] == i


def test_tensors_logged_behind_a_step_before_a_capture_go_into_no_graph():
    import gradvane

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
    watched = Watched(model, optimizer)
    static = torch.randn(32, 64, device=DEVICE)

    def step():
        optimizer.zero_grad()
        model(static).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
            gradvane.log(warm=torch.ones((), device=DEVICE))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(4):
        graph.replay()
    steps = watched.steps()
    assert len(steps) == 7 and all("grad_norm" in step for step in steps), steps
    assert [step.get("user", {}).get("warm") for step in steps[:2]] == [1, 1], steps


def test_a_scaler_on_the_device_is_divided_by_and_its_overflow_is_no_alarm():
    for fused in (False, True):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=fused)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**12)
        watched = Watched(model, optimizer)
        truth = []
        for i in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(32, 64, device=DEVICE)).square().mean()
            scaler.scale(loss).backward()
            truth.append((float(loss), norm_of(model, scaler.get_scale()), scaler.get_scale()))
            if i == 2:
                model[0].weight.grad[1, 2] = float("inf")
            scaler.step(optimizer)
            scaler.update()
        steps = watched.steps()
        assert [s.get("skipped") for s in steps] == [None, None, "amp_overflow", None], fused
        for i, (step, (loss, norm, scale)) in enumerate(zip(steps, truth)):
            close(step["loss"], loss)
            assert step["loss_scale"] == scale
            if i != 2:
                close(step["grad_norm"], norm)


def test_the_norm_of_the_pass_stays_on_the_device():
    import gradvane

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watched = Watched(model, optimizer)
    model(torch.randn(32, 64, device=DEVICE)).square().mean().backward()
    expected = norm_of(model)
    norm = watched.agent.grad_norm()
    assert norm.is_cuda and norm.dtype == torch.float64
    close(float(norm), expected)
    clipped = gradvane.clip_grad_norm_(model.parameters(), 0.01)
    close(float(clipped), expected)
    close(norm_of(model), 0.01, 1e-3)
    optimizer.step()
    (step,) = watched.steps()
    close(step["grad_norm_at_step"], 0.01, 1e-3)


def test_a_clip_of_mixed_dtypes_is_one_launch_that_rounds_once():
    import gradvane

    torch.manual_seed(0)
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float64] * 5
    params = [torch.nn.Parameter(torch.randn(300, 7, device=DEVICE).to(kind)) for kind in kinds]
    optimizer = torch.optim.SGD(params, 0.1)
    watched = Watched(torch.nn.ParameterList(params), optimizer)
    for max_norm in (0.5, 1e6):
        optimizer.zero_grad()
        for param in params:
            param.grad = torch.randn_like(param)
        before = [param.grad.clone() for param in params]
        versions = [param.grad._version for param in params]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            norm = gradvane.clip_grad_norm_(params, max_norm)
            torch.cuda.synchronize()
        scaling = [event for event in profiler.events() if "scale_tensors" in event.name]
        assert len(scaling) == 1 and scaling[0].count == 1, scaling
        coefficient = min(1.0, max_norm / (float(norm) + 1e-6))
        for param, was, version in zip(params, before, versions):
            work = torch.float64 if was.dtype == torch.float64 else torch.float32
            factor = torch.tensor(coefficient, dtype=work, device=DEVICE)
            expected = (was.to(work) * factor).to(was.dtype)
            # The norm on the device is fp64: what the host has of it is rounded to the type that torch returns.
            assert torch.allclose(param.grad.double(), expected.double(), rtol=2 * torch.finfo(was.dtype).eps, atol=0)
            assert coefficient < 1 or torch.equal(param.grad, was)
            assert param.grad._version > version
        optimizer.step()
    watched.steps()


def test_weights_are_bit_identical_with_and_without():
    weights = []
    for is_watched in (False, True):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        watched = Watched(model, optimizer, weight_every=3) if is_watched else None
        for _ in range(50):
            optimizer.zero_grad()
            model(torch.randn(32, 64, device=DEVICE)).square().mean().backward()
            optimizer.step()
        if watched is not None:
            assert len(watched.steps()) == 50
        weights.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights))


def warm_up(step, steps=3):
    """On a stream of its own, as torch asks before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(steps):
            step()
    torch.cuda.current_stream().wait_stream(side)


def test_a_captured_step_is_counted_at_every_replay():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
    x = torch.randn(32, 64, device=DEVICE)
    watched = Watched(model, optimizer, weight_every=0)

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    watched.agent.flush()
    assert len(watched.steps()) == 8


def test_the_capture_of_a_step_of_a_warm_optimizer_is_not_broken():
    """Its steps lie on the device, and the first step that the agent sees is captured."""
    for attaches_inside in (False, True):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
        x = torch.randn(32, 64, device=DEVICE)

        def step():
            optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            optimizer.step()

        warm_up(step)
        watched = None if attaches_inside else Watched(model, optimizer, weight_every=0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            watched = watched or Watched(model, optimizer, weight_every=0)
            step()
        before = [p.detach().clone() for p in model.parameters()]
        graph.replay()
        torch.cuda.synchronize()
        assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        step()
        last = watched.steps()[-1]
        close(last["grad_norm"], norm_of(model))
        if not attaches_inside:
            assert last["step"] > 3, "those before it was attached are known"


def test_memory_is_torchs_own_and_its_peak_is_left_alone():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    torch.cuda.reset_peak_memory_stats()
    torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)  # and it is gone
    before = torch.cuda.memory_stats()["num_ooms"]
    try:
        torch.empty(1 << 50, device=DEVICE)
    except torch.cuda.OutOfMemoryError:
        pass
    watched = Watched(model, optimizer)
    for _ in range(34):
        optimizer.zero_grad()
        model(torch.randn(32, 64, device=DEVICE)).square().mean().backward()
        torch.cuda.set_sync_debug_mode("error")
        optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    peak = torch.cuda.max_memory_allocated()
    steps = watched.steps()
    assert peak >= 1 << 28
    read = [step for step in steps if step.get("device_peak_bytes") is not None]
    assert [step["step"] for step in read] == [1, 33]
    assert all(step["device_peak_bytes"] == peak for step in read), (peak, read)
    assert all(step["device_allocated_bytes"] <= peak for step in read)
    total = torch.cuda.get_device_properties(torch.device(DEVICE)).total_memory
    assert all(step["device_limit_bytes"] == total for step in read), (total, read)
    assert [step["device_out_of_memory"] for step in read] == [before + 1] * 2


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_ten_thousand_steps():
    """Of torch, of the device as a whole (the agent takes its own from the driver), and of the process."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    watched = Watched(model, optimizer, weight_every=50)
    x = torch.randn(32, 64, device=DEVICE)

    def held():
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), -torch.cuda.mem_get_info()[0], resident_bytes()

    for i in range(10_000):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if i == 999:
            before = held()
    growth = [now - then for now, then in zip(held(), before)]
    assert len(watched.steps()) == 10_000
    assert growth[0] == 0 and growth[1] <= 4 << 20 and growth[2] <= 64 << 20, growth


def test_a_thousand_captures_succeed_while_the_worker_exports_steps():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    watched = Watched(model, optimizer)
    x = torch.randn(32, 64, device=DEVICE)
    side = torch.cuda.Stream()
    for i in range(1000):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()  # a capture allows no work that is under way on the legacy stream
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):  # raises if anything else of the process has broken it
            twice = x * 2
        if i % 100 == 0:
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(twice, x * 2)
    assert [step["step"] for step in watched.steps()] == list(range(1, 1001))


def detach_what_is_left():
    from gradvane import _agent

    if _agent.live() is not None:
        _agent.live().detach()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    sys.exit(without_pytest.run(globals(), detach_what_is_left))
