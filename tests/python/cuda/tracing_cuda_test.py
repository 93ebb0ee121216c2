"""A watched step on a CUDA device: what is named there, that no hook waits, and that a capture is left alone.

Needs no pytest: `python tracing_cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1
it fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import without_pytest
from torch import nn

DEVICE = "cuda"


class Bad(nn.Module):
    def __init__(self, is_backward=False):
        super().__init__()
        self.is_armed = False
        self.is_backward = is_backward

    def forward(self, x):
        if not self.is_armed:
            return x * 1
        return (x * 0).sqrt() + x if self.is_backward else x * 0 / 0


def net(bad):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), bad, nn.Linear(64, 1)).to(DEVICE)


def watched(model, trace, rate=1e-3):
    import gradvane

    optimizer = torch.optim.AdamW(model.parameters(), rate)
    return optimizer, gradvane.attach(model, optimizer, port=-1, trace_nonfinite=trace)


def train(model, optimizer, inputs, dtype=None):
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=dtype, enabled=dtype is not None):
        loss = model(inputs).square().mean()
    loss.backward()
    return loss


def test_the_module_is_named_and_no_hook_waits():
    for is_backward in (False, True):
        for dtype in (None, torch.bfloat16, torch.float16):
            bad = Bad(is_backward)
            model = net(bad)
            optimizer, agent = watched(model, "always")
            inputs = torch.randn(32, 64, device=DEVICE)
            for step in range(1, 5):
                bad.is_armed = step == 4
                if step > 1:  # what is made once may wait
                    torch.cuda.set_sync_debug_mode("error")
                train(model, optimizer, inputs, dtype)
                torch.cuda.set_sync_debug_mode("default")
                optimizer.step()
                assert (agent.traced() is not None) == (step == 4), (step, agent.traced())
            found = agent.traced()
            agent.detach()
            assert (found.name, found.at, found.is_backward, found.run_step) == ("2", "module", is_backward, 4), found
            assert agent._watcher.tracer.faults == 0


def test_what_runs_on_a_stream_of_its_own_is_read_behind_it():
    class Aside(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.stream = inner, torch.cuda.Stream()

        def forward(self, x):
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                torch.cuda._sleep(50_000_000)
                x = self.inner(x)
            torch.cuda.current_stream().wait_stream(self.stream)
            return x

    bad = Bad()
    model = net(Aside(bad))
    optimizer, agent = watched(model, "always")
    for step in (1, 2):
        bad.is_armed = step == 2
        train(model, optimizer, torch.randn(32, 64, device=DEVICE))
        optimizer.step()
    found = agent.traced()
    agent.detach()
    assert found.name == "2.inner", found


def test_a_capture_is_left_alone():
    model = net(Bad())
    optimizer, agent = watched(model, "always")
    inputs = torch.randn(32, 64, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(model, optimizer, inputs)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(inputs).square().mean()
        loss.backward()
    graph.replay()
    optimizer.step()
    assert agent.traced() is None
    agent.detach()
    assert agent._watcher.tracer.faults == 0


def test_the_weights_are_the_same_bit_for_bit():
    weights = []
    for trace in ("off", "always"):
        model = net(nn.Dropout(0.3))
        optimizer, agent = watched(model, trace)
        for _ in range(10):
            train(model, optimizer, torch.randn(32, 64, device=DEVICE), torch.bfloat16)
            optimizer.step()
        agent.detach()
        weights.append([parameter.clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights))


def end_what_a_failure_left():
    from gradvane import _agent

    torch.cuda.set_sync_debug_mode("default")
    if _agent.live() is not None:
        _agent.live().detach()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"))
    sys.exit(without_pytest.run(globals(), end_what_a_failure_left))
