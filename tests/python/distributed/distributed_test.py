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
            print("norm", float(norm), flush=True)
        optimizer.step()
    dist.destroy_process_group()
"""


def two_ranks(folder, script, *, by_torchrun=False, ways=("-m", "gradvane", "run"), options=(), check=True):
    words = (*ways, "--step-log", folder / "steps.jsonl", *options, script)
    how = {"cwd": folder, "check": check, "GRADVANE_RUN_DIR": str(folder / "run")}
    if by_torchrun:
        return running.python("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *words, **how)
    return running.ranks(2, *words, **how)


def norms_in(text):
    """What the scripts print; gloo has things to say there too."""
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("norm ")]


@pytest.mark.parametrize("view", [False, True])
def test_ddp_gradients_are_read_after_the_reduction(tmp_path, view):
    done = two_ranks(tmp_path, running.write(tmp_path, DDP.format(view=view)))
    printed = norms_in(done.stdout)
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
    two_ranks(tmp_path, script, by_torchrun=True, ways=("--no-python", str(command), "run"))
    assert len(running.steps_in(tmp_path / "steps.rank1.jsonl")) == 4


FSDP = """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
    mesh = init_device_mesh("cpu", {mesh})
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for i in range(4):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(rank + 1))).square().mean()
        loss.backward()
        {poison}
        {clip}
        total = [p.grad.full_tensor().double().norm() for p in model.parameters()]
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).full_tensor()
        if rank == 0:
            print("norm", float(torch.stack(total).norm()), flush=True)
        optimizer.step()
        import time; time.sleep(0.1)
    from gradvane import _agent
    assert _agent.live().flush(60)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("mesh", ["(2,)", "(2, 1), mesh_dim_names=('replicate', 'shard')"])
def test_fsdp2_norm_is_that_of_all_shards_and_detail_is_marked_as_local(tmp_path, mesh):
    done = two_ranks(tmp_path, running.write(tmp_path, FSDP.format(mesh=mesh, poison="", clip="")))
    printed = norms_in(done.stdout)
    ranks = [running.steps_in(tmp_path / f"steps.rank{rank}.jsonl") for rank in (0, 1)]
    assert len(printed) == 4
    for steps in ranks:
        assert [s["grad_norm"] for s in steps] == pytest.approx(printed, rel=1e-6)
        assert all(s["param_states"].get("unsupported", 0) == 0 for s in steps)
    parts = [[s["shard_grad_norm"] for s in steps] for steps in ranks]
    if mesh == "(2,)":
        assert parts[0] != parts[1]
        assert [(a * a + b * b) ** 0.5 for a, b in zip(*parts)] == pytest.approx(printed, rel=1e-6)
    else:  # replicated: each holds all of it, and it counts once
        assert parts[0] == pytest.approx(printed, rel=1e-6)
    assert sum(s["numel"] for s in (ranks[0][0], ranks[1][0])) == (75 if mesh == "(2,)" else 150)


def test_with_shards_and_replicas_of_them_each_shard_counts_once(tmp_path):
    """HSDP: ranks 0 and 1 hold the halves, ranks 2 and 3 the same ones."""
    script = running.write(tmp_path, FSDP.format(mesh="(2, 2), mesh_dim_names=('replicate', 'shard')", poison="", clip=""))
    done = running.ranks(4, "-m", "gradvane", "run", "--step-log", tmp_path / "steps.jsonl", script, cwd=tmp_path,
                         GRADVANE_RUN_DIR=str(tmp_path / "run"))
    printed = norms_in(done.stdout)
    ranks = [running.steps_in(tmp_path / f"steps.rank{rank}.jsonl") for rank in range(4)]
    for steps in ranks:
        assert [step["grad_norm"] for step in steps] == pytest.approx(printed, rel=1e-6)
    parts = [[step["shard_grad_norm"] for step in steps] for steps in ranks]
    assert parts[0] == parts[2] and parts[1] == parts[3] and parts[0] != parts[1]
    assert [(a * a + b * b) ** 0.5 for a, b in zip(parts[0], parts[1])] == pytest.approx(printed, rel=1e-6)


TENSOR_PARALLEL = """
    import time
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(3, 2))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(3, 2))
    model.load_state_dict(plain.state_dict())
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    batches = torch.Generator().manual_seed(3)
    for i in range(4):
        halves = torch.randn(2, 5, 4, generator=batches)
        optimizer.zero_grad()
        model(halves[mesh.get_local_rank("dp")]).square().mean().backward()
        for p in model.parameters():  # the average over the replicas
            gradient = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
            dist.all_reduce(gradient, group=mesh.get_group("dp"))
            gradient /= 2
        optimizer.step()
        plain.zero_grad()  # one process that sees both halves
        plain(halves.flatten(0, 1)).square().mean().backward()
        if rank == 0:
            print("norm", float(torch.nn.utils.get_total_norm([p.grad for p in plain.parameters()])), flush=True)
        with torch.no_grad():
            for p in plain.parameters():
                p -= 1e-2 * p.grad
        time.sleep(0.1)
    from gradvane import _agent
    assert _agent.live().flush(60)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_under_tensor_parallelism_and_replicas_of_it_each_shard_counts_once(tmp_path):
    """The parameters lie on the mesh of one replica; their biases and the last layer are whole on every rank."""
    script = running.write(tmp_path, TENSOR_PARALLEL)
    done = running.ranks(4, "-m", "gradvane", "run", "--step-log", tmp_path / "steps.jsonl", script, cwd=tmp_path,
                         GRADVANE_RUN_DIR=str(tmp_path / "run"))
    printed = norms_in(done.stdout)
    assert len(printed) == 4
    for rank in range(4):
        steps = running.steps_in(tmp_path / f"steps.rank{rank}.jsonl")
        assert [step["grad_norm"] for step in steps] == pytest.approx(printed, rel=1e-6)


def test_fsdp2_clipping_has_the_coefficient_of_the_global_norm(tmp_path):
    clip = "before = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)"
    two_ranks(tmp_path, running.write(tmp_path, FSDP.format(mesh="(2,)", poison="", clip=clip)))
    for rank in (0, 1):
        for step in running.steps_in(tmp_path / f"steps.rank{rank}.jsonl"):
            assert step["read_at"] == "clip"
            assert step["grad_norm_at_step"] == pytest.approx(0.01, rel=1e-3)


def test_fsdp2_blames_the_element_by_its_place_in_the_whole_parameter(tmp_path):
    poison = "if rank == 1 and i == 2: model[0].weight.grad._local_tensor[1, 2] = float('nan')"
    two_ranks(tmp_path, running.write(tmp_path, FSDP.format(mesh="(2,)", poison=poison, clip="")))
    ranks = [running.steps_in(tmp_path / f"steps.rank{rank}.jsonl") for rank in (0, 1)]
    assert "first_nonfinite" not in ranks[0][2], "the other rank's shard was whole"
    # Nine rows over two ranks: five and four. Row 1 of the second shard is row 6.
    assert ranks[1][2]["first_nonfinite"] == {"site": "grad", "kind": "nan", "param": "0.weight", "element": 6 * 4 + 2}


def test_fsdp1_is_recognised_and_trains_on(tmp_path):
    script = running.write(tmp_path, """
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        net = FullyShardedDataParallel(torch.nn.Linear(4, 3), device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
        """)
    done = two_ranks(tmp_path, script)
    assert "FSDP1: norms and counts are of the flat parameters' parts" in done.stderr
    assert len(running.steps_in(tmp_path / "steps.rank0.jsonl")) == 3
