"""Two ranks over gloo on this machine."""

import pytest
import running

DDP = """
    import os
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view={view})
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(4):
        optimizer.zero_grad()
        loss = net(torch.full((2, 4), float(rank + 1))).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        if rank == 0:
            print(float(norm), flush=True)
        optimizer.step()
    dist.destroy_process_group()
"""


def torchrun(folder, script, *, ways=("-m", "gradvane", "run"), options=(), check=True):
    log = folder / "steps.jsonl"
    return running.python("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
                          *ways, "--step-log", log, *options, script, cwd=folder, check=check,
                          GRADVANE_RUN_DIR=str(folder / "run"))


@pytest.mark.parametrize("view", [False, True])
def test_ddp_gradients_are_read_after_the_reduction(tmp_path, view):
    done = torchrun(tmp_path, running.write(tmp_path, DDP.format(view=view)))
    printed = [float(line) for line in done.stdout.split()]
    ranks = [running.steps_in(tmp_path / f"steps.rank{rank}.jsonl") for rank in (0, 1)]
    assert len(printed) == 4
    for steps in ranks:
        assert [s["grad_norm"] for s in steps] == pytest.approx(printed, rel=1e-6)
        assert [s["read_at"] for s in steps] == ["clip"] * 4
        assert all(s["param_states"] == {"finite": 4} for s in steps)
    assert ranks[0][0]["loss"] != ranks[1][0]["loss"], "a loss is each rank's own"


def test_without_python_torchrun_starts_the_command_itself(tmp_path):
    script = running.write(tmp_path, DDP.format(view=False))
    command = tmp_path / "gradvane"
    command.write_text(f"#!/bin/sh\nexec {running.sys.executable} -m gradvane \"$@\"\n")
    command.chmod(0o755)
    torchrun(tmp_path, script, ways=("--no-python", str(command), "run"))
    assert len(running.steps_in(tmp_path / "steps.rank1.jsonl")) == 4
