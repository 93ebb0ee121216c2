"""How long a rank waits for the others, apart from its own work. A sleep lasts at least as long as it is asked to."""

import json
import statistics

import pytest
import running

NAP = 0.25
"""seconds that rank 1 works longer in each step"""

SOURCE = """
    import json, sys, time
    import torch
    import torch.distributed as dist
    import gradvane

    what = sys.argv[1]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
    if what == "fsdp":
        from torch.distributed.fsdp import fully_shard
        net = fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    elif what == "alone":
        net = model
    else:
        net = torch.nn.parallel.DistributedDataParallel(model, static_graph=what == "static")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    options = {"ranks": "agree", "on_nonfinite": "skip"} if what == "agree" else {}
    agent = gradvane.attach(model, optimizer, port=-1, run_dir=f"run{rank}", step_log="steps.jsonl", **options)
    watcher = agent._watcher
    reductions = watcher._reductions

    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("broken")

    for i in range(STEPS):
        optimizer.zero_grad()
        loss = net(torch.full((2, 6), float(rank + i))).square().mean()
        if rank == 1:
            time.sleep(NAP)
        if what == "broken" and i == 1:
            reductions._native = Broken()
        if what == "raises" and i == 2:
            bad = loss * 1
            bad.register_hook(lambda gradient: 1 / 0)
            try:
                bad.backward(retain_graph=True)
            except ZeroDivisionError:
                pass
        if what == "accumulates":
            with net.no_sync():
                net(torch.full((2, 6), float(rank + i))).square().mean().backward()
            loss = net(torch.full((2, 6), float(rank - i))).square().mean()
        if what == "several":
            apart = torch.zeros(1, requires_grad=True) * 2  # the first root, of which the model knows nothing
            torch.autograd.backward([apart, loss * 1], retain_graph=True)
        else:
            loss.backward()
        assert not loss._backward_hooks, "nothing of ours is left at the loss"
        optimizer.step()
    weights = torch.cat([(p.full_tensor() if what == "fsdp" else p).detach().flatten() for p in model.parameters()])
    agent.detach()
    with open(f"end{rank}.json", "w") as file:
        json.dump({"weights": weights.tolist(), "faults": [watcher.faults, reductions.faults]}, file)
    dist.barrier()
    dist.destroy_process_group()
"""
STEPS = 7


def run(tmp_path, what: str) -> tuple[list[list[dict]], list[dict]]:
    """The steps of both ranks, from the second on, and what each said at its end."""
    script = running.write(tmp_path, SOURCE.replace("STEPS", str(STEPS)).replace("NAP", str(NAP)))
    running.ranks(2, script, what, cwd=tmp_path)
    steps = [running.steps_in(tmp_path / f"steps.rank{rank}.jsonl")[1:] for rank in range(2)]
    return steps, [json.loads((tmp_path / f"end{rank}.json").read_text()) for rank in range(2)]


def own(step: dict) -> float:
    return step["step_seconds"] - step["rank_wait_seconds"]


@pytest.mark.parametrize("what", ["plain", "static", "accumulates", "several", "raises", "agree"])
def test_time_that_a_rank_waits_for_the_reduction_is_told_apart_from_its_own_work(tmp_path, what):
    (fast, slow), ends = run(tmp_path, what)
    # Models are looked for in the first step. A raised pass leaves nothing behind for the next one.
    assert len(fast) == len(slow) == STEPS - 1 and all("rank_wait_seconds" in step for step in fast + slow)
    assert all(own(step) >= 0.99 * NAP for step in slow), "what it sleeps is its own"
    assert statistics.median(map(own, fast)) < 0.5 * NAP, "and not the other's"
    # In the second step the model's forward pass waits for the other rank too, when it orders its buckets again.
    waits = [step["rank_wait_seconds"] for step in fast[1:]]
    assert statistics.median(waits) > 0.5 * NAP > statistics.median(step["rank_wait_seconds"] for step in slow)
    assert all(end["faults"] == [0, 0] for end in ends)
    assert ends[0]["weights"] == ends[1]["weights"]


@pytest.mark.parametrize("what", ["fsdp", "alone"])
def test_where_waiting_cannot_be_seen_nothing_is_said_of_it(tmp_path, what):
    for steps in run(tmp_path, what)[0]:
        assert all("rank_wait_seconds" not in step for step in steps)


def test_a_fault_of_ours_is_counted_and_leaves_the_reduction_alone(tmp_path):
    (fast, slow), ends = run(tmp_path, "broken")
    assert all(own_faults > 0 and watchers == 0 for watchers, own_faults in (end["faults"] for end in ends))
    assert ends[0]["weights"] == ends[1]["weights"]
    assert len(fast) == len(slow) == STEPS - 1
