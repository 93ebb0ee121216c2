"""Ranks that agree: what one of them sees decides for all of them, at the same step and to the same state."""

import json

import pytest
import running

SOURCE = """
    import datetime, json, sys, time
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
        if way == "hsdp":
            mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model[0], mesh=mesh)
        net = fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    local = lambda t: t.to_local() if hasattr(t, "to_local") else t
    weights = lambda: torch.cat([local(p.detach()).flatten() for p in model.parameters()])

""" + running.KEEPS_LOG + """
    options = {"on_nonfinite": "rollback", "snapshot_every": 1} if what == "rollback" else {"on_nonfinite": "skip"}
    if what == "flip":
        options = {"compare_replicas_every": 2}
    if what.startswith("bound"):
        options |= {"skip_norm": float(what.split()[1]), "skip_limit": 100}
    if what.startswith("gradient, looked at"):
        options["check_before_reduction"] = True
    agent = None
    if what not in ("without", "plain"):
        ranks = "off" if what == "off" else "agree"
        agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", ranks=ranks, **options)
        agent._watcher.agreement._patience = datetime.timedelta(seconds=10)

    torch.manual_seed(10 + rank)
    rounds = torch.Generator().manual_seed(5 + rank)
    left_out, norms = [], []
    for i in range(8):
        x = torch.randn(4, 6, generator=rounds)
        if i == 5 and what == "without":
            continue
        if i == 5 and what == "missed" and rank == 1:
            agent.detach()
        if i == 5 and what == "skipped a call" and rank == 1:
            judge, agent._watcher.agreement.judge = agent._watcher.agreement.judge, lambda optimizer: 0
        if i == 6 and what == "skipped a call" and rank == 1:
            agent._watcher.agreement.judge = judge
        is_bad = i == 5 and rank == dist.get_world_size() - 1
        if i == 3 and what == "flip" and rank == 1:
            model[0].weight.detach().view(torch.int32)[2, 2] ^= 1  # the last bit of one number
        if is_bad and what.startswith("gradient") and "never" not in what:
            model[3].weight.register_hook(lambda gradient: gradient.flatten().index_fill(0, torch.tensor([8]), float("nan")).view_as(gradient))
        optimizer.zero_grad()
        loss = net(x).square().mean()
        if is_bad and what in ("skip", "rollback", "off"):
            loss = loss + torch.tensor(float("nan"))  # its gradient is fine: nobody else can see it
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in net.parameters()])
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        before = weights()
        if i == 5 and what == "late" and rank == 1:
            time.sleep(12)
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
        json.dump({"left_out": left_out, "rollbacks": rollbacks, "lines": lines, "norms": norms}, file)
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


@pytest.mark.parametrize(("ranks", "way"), [(4, "ddp"), (2, "fsdp2")])
def test_all_ranks_go_back_to_the_same_state(tmp_path, ranks, way):
    import torch

    run(tmp_path, ranks, way, "without")
    assert [rank["rollbacks"] for rank in run(tmp_path, ranks, way, "rollback")] == [1] * ranks
    for rank in range(ranks):
        here, there = (torch.load(tmp_path / f"{what}.rank{rank}.pt") for what in ("rollback", "without"))
        assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_a_rank_that_misses_a_call_ends_the_agreement_and_the_run_goes_on(tmp_path):
    ranks = run(tmp_path, 2, "ddp", "missed")
    assert [rank["left_out"] for rank in ranks] == [[], []]
    (line,) = (line for line in ranks[0]["lines"] if "do not agree" in line)
    assert "ranks do not agree on steps any more, and each decides alone: " in line


def test_a_rank_that_comes_too_late_learns_at_its_next_step_that_the_others_have_left(tmp_path):
    """It finds their records of the step that it was late for, and would wait as long as they did."""
    on_time, late = run(tmp_path, 2, "ddp", "late")
    assert any("ranks do not agree" in line and "no word from a rank for 10 s" in line for line in on_time["lines"])
    assert any("ranks do not agree" in line and "rank 0 has left" in line for line in late["lines"])


def test_a_rank_that_skips_one_call_and_goes_on_is_waited_for_once(tmp_path):
    """It waits for rank 0 in the next reduction of the gradients, and rank 0 for it in the agreement."""
    ranks = run(tmp_path, 2, "ddp", "skipped a call")
    for rank in ranks:
        assert len([line for line in rank["lines"] if "do not agree" in line]) == 1
        assert rank["left_out"] == []
    assert any("ranks do not agree" in line and "no word from a rank for 10 s" in line for line in ranks[0]["lines"])


@pytest.mark.parametrize(("ranks", "way"), [(4, "hsdp"), (2, "fsdp2"), (2, "ddp")])
def test_a_bound_of_the_norm_is_one_of_the_norm_over_all_ranks(tmp_path, ranks, way):
    """Shards are added up, and the same shard on two ranks counts once: the bound lies just beside torch's own norm."""
    first = run(tmp_path, ranks, way, "plain")[0]["norms"][0]
    for bound, is_left_out in ((first * 1.001, False), (first * 0.999, True)):
        for rank in run(tmp_path, ranks, way, f"bound {bound}"):
            assert (0 in rank["left_out"]) == is_left_out, (bound, rank["norms"])


@pytest.mark.parametrize(("what", "origin"), [
    ("gradient, looked at", "rank 2 is the first whose own gradient is not finite, of 3.weight at element 8"),
    ("gradient", "which rank it came from is not known"),
])
def test_a_gradient_that_is_bad_on_one_rank_alone_names_it_if_it_is_looked_at_before_it_is_averaged(tmp_path, what, origin):
    for rank in run(tmp_path, 3, "ddp", what):
        assert 5 in rank["left_out"]
        assert next(line for line in rank["lines"] if "on all ranks" in line) == f"step 6: skip on all ranks; {origin}"
        incident = next(line for line in rank["lines"] if "became nan" in line)
        assert ("It comes from rank 2." in incident) == (what != "gradient")
        assert ("in a backward pass, or with another rank's loss" in incident) == (what == "gradient")


def test_the_look_changes_no_bit_of_the_training(tmp_path):
    import torch

    run(tmp_path, 3, "ddp", "plain")
    run(tmp_path, 3, "ddp", "gradient, looked at, never bad")
    for rank in range(3):
        here, there = (torch.load(tmp_path / f"{what}.rank{rank}.pt") for what in ("plain", "gradient, looked at, never bad"))
        assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_one_flipped_bit_of_one_rank_names_the_rank_and_the_parameter_on_all(tmp_path):
    for rank in run(tmp_path, 2, "ddp", "flip"):
        (line,) = (line for line in rank["lines"] if "other weights" in line)
        assert "rank 1 has other weights than rank 0; 0.weight is the first that differs." in line


STOPS = """
    import datetime, json, sys
    import torch, torch.distributed as dist
    import gradvane
    what = sys.argv[1]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
""" + running.KEEPS_LOG + """
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", on_nonfinite="stop",
                            ranks="off" if what == "off" else "agree")
    agent.raise_at_stop(False)
    if what == "one asks":
        agent._watcher.agreement._patience = datetime.timedelta(seconds=10)
        agent._watcher.agreement.stops = True  # never so on one rank alone
    agent.is_state_good = lambda: rank == 0 or what == "good"
    answers = []
    for i in range(4):
        optimizer.zero_grad()
        net(torch.full((2, 4), float("nan") if i == 2 and what != "one asks" else 1.0)).square().mean().backward()
        optimizer.step()
        answers.append(agent._leaves_out_checkpoints(2))
        if what == "one asks" and i == 1 and rank == 1:
            answers[i] = agent._watcher.agreement.any_rank(True)
    agent.detach()
    with open(f"{what}.rank{rank}.json", "w") as file:
        json.dump({"answers": answers, "lines": lines}, file)
    dist.destroy_process_group()
"""


def stops(tmp_path, what: str) -> list[dict]:
    running.ranks(2, running.write(tmp_path, STOPS), what, cwd=tmp_path)
    return [json.loads((tmp_path / f"{what}.rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("what", "answers"), [
    ("bad on rank 1", [False, False, True, True]), ("good", [False] * 4), ("off", [False] * 4),
])
def test_all_ranks_leave_out_the_checkpoint_of_a_state_that_is_bad_on_one_of_them(tmp_path, what, answers):
    """Without agreement none does: rank 0 would save, and wait for rank 1."""
    assert [rank["answers"] for rank in stops(tmp_path, what)] == [answers, answers]


def test_a_rank_that_asks_alone_learns_nothing_and_both_go_on(tmp_path):
    """It waits for rank 0, which waits for it in the next reduction of the gradients."""
    goes_on, asks = stops(tmp_path, "one asks")
    assert asks["answers"] == [False, None, False, False] and goes_on["answers"] == [False] * 4
    for rank, why in ((asks, "no word from a rank for 10 s"), (goes_on, "rank 1 sent no record of the step: it stops")):
        (line,) = (line for line in rank["lines"] if "ranks do not agree" in line)
        assert why in line
