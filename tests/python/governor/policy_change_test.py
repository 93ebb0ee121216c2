"""Policies that change while the run lasts: from the next step on, and at the same step on all ranks."""

import json
import logging
import time

import pytest
import running
import torch
from small_net import net

import gradvane

PATIENCE = 60
"""seconds"""


class Training:
    def __init__(self, watching, config, text):
        self.model = net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.config = config
        config.write_text(text)
        self.agent = watching(self.model, self.optimizer, config=config)

    def step(self, factor: float = 1.0) -> bool:
        """Whether it was taken."""
        self.optimizer.zero_grad()
        (self.model(torch.ones(2, 6)).square().mean() * factor).backward()
        before = [param.detach().clone() for param in self.model.parameters()]
        self.optimizer.step()
        return not all(torch.equal(a, b) for a, b in zip(before, self.model.parameters(), strict=True))

    def change(self, text: str, said: str, caplog) -> None:
        running.replace(self.config, text)
        end = time.monotonic() + PATIENCE
        while said not in caplog.text:
            assert time.monotonic() < end, caplog.text
            assert self.step()
            time.sleep(0.02)
        assert self.step(), "the change holds from this step on"


@pytest.fixture
def training(watching, tmp_path, caplog):
    caplog.set_level(logging.INFO, "gradvane")
    return lambda text: Training(watching, tmp_path / "gradvane.yaml", text)


def test_a_run_that_skips_can_be_told_to_stop_and_to_go_back(training, caplog):
    run = training("on_nonfinite: skip\nsnapshot_every: 2\n")
    assert run.step() and not run.step(float("nan"))
    run.change("on_nonfinite: rollback\nsnapshot_every: 2\n", "on_nonfinite is rollback from now on; it was skip", caplog)
    for _ in range(4):
        run.step()
    run.step(float("nan"))
    assert run.agent._watcher.keeper.rollbacks == 1
    run.change("on_nonfinite: stop\nsnapshot_every: 2\n", "on_nonfinite is stop from now on; it was rollback", caplog)
    with pytest.raises(gradvane.TrainingStopped, match="a gradient is not finite|the loss is not finite"):
        run.step(float("nan"))


def test_a_bound_for_the_norm_can_be_moved(training, caplog):
    run = training("on_nonfinite: skip\nskip_norm: 1.0e+9\n")
    assert run.step(1000.0)
    run.change("on_nonfinite: skip\nskip_norm: 50\n", "skip_norm is 50 from now on", caplog)
    assert not run.step(1000.0)
    run.change("on_nonfinite: skip\nskip_norm: 1.0e+9\n", "it was 50", caplog)
    assert run.step(1000.0)


def test_a_run_that_watches_stays_so_and_says_why(training, caplog):
    run = training("weight_every: 0\n")
    run.change("on_nonfinite: skip\n", "on_nonfinite cannot change while the run lasts, as this run began with watch", caplog)
    run.step(float("nan"))
    assert not any(param.isfinite().all() for param in run.model.parameters())


RANKS = """
    import json, os, sys, time
    import torch
    import torch.distributed as dist
    import gradvane

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
""" + running.KEEPS_LOG + """
    config = f"config{rank}.yaml"  # each has a file of its own, and rank 1's never changes
    open(config, "w").write("on_nonfinite: skip")
    agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", ranks="agree", config=config)

    taken = []
    until = None
    for i in range(100_000):
        optimizer.zero_grad()
        bad = i % 2 == 1 and rank == 0
        loss = net(torch.ones(4, 6)).square().mean() + (float("nan") if bad else 0.0)
        loss.backward()
        before = model.weight.detach().clone()
        optimizer.step()
        if i % 2 == 1:
            taken.append(not torch.equal(before, model.weight))
        if i == 20 and rank == 0:
            open("new", "w").write("on_nonfinite: watch")
            os.replace("new", config)
        over = torch.tensor([1.0 if taken and taken[-1] else 0.0])
        dist.all_reduce(over)
        if over.item() and until is None:
            until = i + 200
        if until == i:
            break
        time.sleep(0.005)
    end = time.monotonic() + 20
    while rank == 1 and not any("as on rank 0" in line for line in lines) and time.monotonic() < end:
        time.sleep(0.05)
    agent.detach()
    json.dump({"taken": taken, "lines": lines}, open(f"rank{rank}.json", "w"))
    dist.barrier()
    dist.destroy_process_group()
"""


def test_ranks_that_agree_change_at_the_same_step_when_rank_0s_file_does(tmp_path):
    """The loss of rank 0 alone is bad in every second step. Weights are the same on both ranks only if both skip it."""
    running.ranks(2, running.write(tmp_path, RANKS), cwd=tmp_path)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["taken"] == second["taken"]
    assert not first["taken"][0] and first["taken"][-1], "skipped at first, taken at last"
    assert "config: on_nonfinite is watch from now on; it was skip" in first["lines"]
    assert "config: on_nonfinite is watch from now on, as on rank 0; it was skip" in second["lines"]
