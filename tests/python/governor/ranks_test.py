"""Two ranks over gloo: each goes back to its own part of one state, at a step that every rank sees is bad."""

import pytest
import running

SOURCE = """
    import sys
    import torch
    import torch.distributed as dist
    import gradvane
    way, run = sys.argv[1:]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(0.2), nn.Linear(9, 3))
    if way == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        from torch.distributed.fsdp import fully_shard
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        fully_shard(model[0], mesh=mesh)
        net = fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    agent = None
    if run == "undone":
        policy = {"on_nonfinite": "rollback", "ranks": "agree"} if way == "ddp" else {}
        agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", snapshot_every=1, **policy)
    torch.manual_seed(10 + rank)
    rounds = torch.Generator().manual_seed(5 + rank)
    for i in range(8):
        x = torch.randn(4, 6, generator=rounds)
        if i == 5 and run == "without":
            continue
        if i == 5 and rank == 1:
            x = x * float("nan")  # its gradients reach every rank
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        if i == 5 and agent is not None and way == "fsdp2":
            agent.rollback("a bad batch", when="after_step")
        optimizer.step()
        if i == 5 and agent is not None:
            assert agent.flush()  # or the next snapshot comes before the incident of the bad step is over
    keeper = None if agent is None else agent._watcher.keeper
    local = lambda t: t.to_local() if hasattr(t, "to_local") else t
    state = [local(p.detach()) for p in model.parameters()] + list(model.buffers())
    state += [local(v) for s in optimizer.state.values() for v in s.values()] + [torch.get_rng_state()]
    torch.save(state, f"{run}.rank{rank}.pt")
    if keeper is not None:
        assert keeper.rollbacks == 1 and keeper.faults == 0 and keeper.snapshots.refused == {}, keeper.snapshots.refused
        assert keeper.latest().step == 8
        agent.detach()
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_ranks_go_back_together(tmp_path, way):
    import torch

    script = running.write(tmp_path, SOURCE)
    for run in ("without", "undone", "bad"):
        running.ranks(2, script, way, run, cwd=tmp_path)
    states = {(run, rank): torch.load(tmp_path / f"{run}.rank{rank}.pt")
              for run in ("without", "undone", "bad") for rank in (0, 1)}
    for rank in (0, 1):
        assert all(torch.equal(a, b) for a, b in zip(states["undone", rank], states["without", rank], strict=True))
        assert not all(t.isfinite().all() for t in states["bad", rank]), "the control: it reaches both"
    if way == "fsdp2":
        assert any(a.shape != b.shape or not torch.equal(a, b)
                   for a, b in zip(states["undone", 0][:4], states["undone", 1][:4])), "each has its own part"


REFUSED_ONCE = """
    import torch
    import torch.distributed as dist
    import gradvane
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    agent = gradvane.attach(net.module, optimizer, port=-1, run_dir=f"run{rank}", on_nonfinite="rollback", ranks="agree",
                            snapshot_every=2)
    keeper = agent._watcher.keeper
    allowed = keeper.badness
    keeper.badness = lambda: "a spike of its own" if rank == 1 and keeper.step == 3 else allowed()
    done = []
    agent.on_rollback(lambda rollback: done.append(rollback.to_step))
    for i in range(1, 10):
        optimizer.zero_grad()
        (net(torch.ones(2, 4)).square().mean() * (float("nan") if i == 9 else 1)).backward()
        optimizer.step()
        agent.flush()
    with open(f"rank{rank}", "w") as file:
        print("refused", dict(keeper.snapshots.refused), "went back to", done, file=file)
    agent.detach()
    dist.destroy_process_group()
"""


def test_a_snapshot_that_one_rank_refused_leaves_the_next_ones_at_the_same_steps(tmp_path):
    running.ranks(2, running.write(tmp_path, REFUSED_ONCE), cwd=tmp_path)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == [
        "refused {} went back to [7]\n", "refused {'incident': 1} went back to [7]\n"]
