"""Ranks that agree: what one of them sees decides for all of them, at the same step and to the same state."""

import json

import pytest
import running

SOURCE = """
    import datetime, json, logging, sys
    import torch
    import torch.distributed as dist
    import gradvane

    way, what = sys.argv[1:]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(0.2), nn.Linear(9, 3))
    if way == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard
        mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model[0], mesh=mesh)
        net = fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    local = lambda t: t.to_local() if hasattr(t, "to_local") else t
    weights = lambda: torch.cat([local(p.detach()).flatten() for p in model.parameters()])

    lines = []
    logger = logging.getLogger("gradvane")
    logger.setLevel(logging.INFO)
    logger.addHandler(type("Keeps", (logging.Handler,), {"emit": lambda self, r: lines.append(r.getMessage())})())
    options = {"on_nonfinite": "rollback", "snapshot_every": 1} if what == "rollback" else {"on_nonfinite": "skip"}
    agent = None
    if what != "without":
        ranks = "off" if what == "off" else "agree"
        agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", ranks=ranks, **options)
        agent._watcher._agreement._patience = datetime.timedelta(seconds=10)

    torch.manual_seed(10 + rank)
    rounds = torch.Generator().manual_seed(5 + rank)
    left_out = []
    for i in range(8):
        x = torch.randn(4, 6, generator=rounds)
        if i == 5 and what == "without":
            continue
        if i == 5 and what == "missed" and rank == 1:
            agent.detach()
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if i == 5 and rank == dist.get_world_size() - 1 and what != "missed":
            loss = loss + torch.tensor(float("nan"))  # its gradient is fine: nobody else can see it
        loss.backward()
        before = weights()
        optimizer.step()
        if torch.equal(before, weights()):
            left_out.append(i)
    state = [local(p.detach()) for p in model.parameters()] + list(model.buffers())
    state += [local(v) for s in optimizer.state.values() for v in s.values()] + [torch.get_rng_state()]
    torch.save(state, f"{what}.rank{rank}.pt")
    rollbacks = 0 if agent is None else agent._watcher.keeper.rollbacks
    if agent is not None:
        agent.detach()  # the last lines are written
    with open(f"{what}.rank{rank}.json", "w") as file:
        json.dump({"left_out": left_out, "rollbacks": rollbacks, "lines": lines}, file)
    dist.barrier()
    dist.destroy_process_group()
"""


def run(tmp_path, ranks: int, way: str, what: str) -> list[dict]:
    script = running.write(tmp_path, SOURCE)
    running.ranks(ranks, script, way, what, cwd=tmp_path)
    return [json.loads((tmp_path / f"{what}.rank{rank}.json").read_text()) for rank in range(ranks)]


def test_a_loss_that_one_rank_alone_sees_is_bad_leaves_the_step_out_on_all_four_and_names_the_rank(tmp_path):
    for rank in run(tmp_path, 4, "ddp", "skip"):
        assert rank["left_out"] == [5]
        assert [line for line in rank["lines"] if "on all ranks" in line] == [
            "step 6: skip on all ranks; rank 3 is the first whose own loss is not finite"]


def test_without_agreement_it_leaves_out_nothing_on_any(tmp_path):
    """The control: each has its own loss, and gradients are fine."""
    assert [rank["left_out"] for rank in run(tmp_path, 2, "ddp", "off")] == [[], []]


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_all_ranks_go_back_to_the_same_state(tmp_path, way):
    import torch

    run(tmp_path, 2, way, "without")
    assert [rank["rollbacks"] for rank in run(tmp_path, 2, way, "rollback")] == [1, 1]
    for rank in range(2):
        here, there = (torch.load(tmp_path / f"{what}.rank{rank}.pt") for what in ("rollback", "without"))
        assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_a_rank_that_misses_a_call_ends_the_agreement_and_the_run_goes_on(tmp_path):
    ranks = run(tmp_path, 2, "ddp", "missed")
    assert [rank["left_out"] for rank in ranks] == [[], []]
    (line,) = (line for line in ranks[0]["lines"] if "do not agree" in line)
    assert "ranks do not agree on steps any more, and each decides alone: " in line
