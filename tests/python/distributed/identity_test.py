"""Ranks, world size and run_id: from torch.distributed where it is initialised, from the launcher else."""

import json

import pytest
import running
import torch.distributed as dist

from gradvane._ranks import identity

RANK = """
    import json, sys, torch, torch.distributed as dist
    import gradvane
    rank, store = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    for run in range(2):
        model = torch.nn.Linear(2, 2)
        agent = gradvane.attach(model, torch.optim.SGD(model.parameters(), 0.1), run=f"run{run}")
        dist.barrier()
        agent.detach()
"""


def endpoints(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("gradvane-*/*/endpoint.rank*.json"))]


@pytest.mark.parametrize("store", ["file", "tcp"])
def test_ranks_agree_on_a_run_id_and_each_run_has_another(tmp_path, store):
    script = running.write(tmp_path, RANK)
    url = f"file://{tmp_path}/store"
    if store == "tcp":
        server = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        url = f"tcp://127.0.0.1:{server.port}"
        environment = {"TORCHELASTIC_USE_AGENT_STORE": "True"}  # both are clients
    else:
        environment = {}
    ranks = [running.start(script, rank, url, cwd=tmp_path, TMPDIR=str(tmp_path), **environment) for rank in range(2)]
    for rank in ranks:
        _, said = rank.communicate(timeout=120)
        assert rank.returncode == 0, said
    found = endpoints(tmp_path)
    assert [(entry["run"], entry["rank"], entry["world_size"]) for entry in found] == [
        ("run0", 0, 2), ("run0", 1, 2), ("run1", 0, 2), ("run1", 1, 2)]
    ids = [entry["run_id"] for entry in found]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_the_ranks_of_torchrun_on_one_node_are_one_run_without_an_id(tmp_path):
    script = running.write(tmp_path, """
        import torch
        import gradvane
        model = torch.nn.Linear(2, 2)
        gradvane.attach(model, torch.optim.SGD(model.parameters(), 0.1)).detach()
        """)
    running.python("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", script, cwd=tmp_path,
                   TMPDIR=str(tmp_path))
    found = endpoints(tmp_path)
    assert [(entry["run"], entry["rank"], entry["local_rank"], entry["world_size"]) for entry in found] == [
        ("train", 0, 0, 2), ("train", 1, 1, 2)]
    assert found[0]["run_id"] == found[1]["run_id"] != ""


def group_of(monkeypatch, store, size=2):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: size)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    return identity.of_group


def test_without_a_process_group_nothing_is_known():
    assert identity.of_group(True) == {}


def test_a_known_id_and_a_world_of_one_need_no_store(monkeypatch):
    assert group_of(monkeypatch, None)(False) == {"rank": "1", "world_size": "2"}
    assert group_of(monkeypatch, None, size=1)(True) == {"rank": "1", "world_size": "1"}


def test_a_store_that_cannot_or_does_not_answer_costs_the_id_and_no_error(monkeypatch):
    assert group_of(monkeypatch, object())(True) == {"rank": "1", "world_size": "2"}
    server = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, 1, is_master=False)
    assert "run_id" in group_of(monkeypatch, client)(True)
    del server
    assert group_of(monkeypatch, client)(True) == {"rank": "1", "world_size": "2"}
