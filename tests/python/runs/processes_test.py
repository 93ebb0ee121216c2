"""Processes that load data, that are forked, that are spawned and train."""

import json

import running

LOADING = """
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        data = TensorDataset(torch.randn(64, 4))
        loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=sys.argv[1])
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
"""


def test_data_loader_workers_start_no_agent(tmp_path):
    script = running.write(tmp_path, LOADING)
    for way in ("fork", "spawn", "forkserver"):
        steps, done = running.watched(script, way, cwd=tmp_path)
        assert len(steps) == 8, way
        assert done.stderr.count("watching") == 1 and done.stderr.count("rank 0") == 1, done.stderr


def test_spawned_children_that_train_have_an_agent_each(tmp_path):
    script = running.write(tmp_path, """
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def train(rank, path):
            dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            net = torch.nn.parallel.DistributedDataParallel(model)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.full((2, 4), float(rank + 1))).sum().backward()
                optimizer.step()
            dist.destroy_process_group()

        if __name__ == "__main__":
            import os
            mp.spawn(train, args=(os.path.abspath("meet"),), nprocs=2)
        """)
    running.watched(script, cwd=tmp_path)
    logs = {path.name: running.steps_in(path) for path in tmp_path.glob("steps*.jsonl")}
    assert {name: len(steps) for name, steps in logs.items()} == {"steps.rank0.jsonl": 3, "steps.rank1.jsonl": 3}
    norms = [[s["grad_norm"] for s in steps] for steps in logs.values()]
    assert norms[0] == norms[1], "after the reduction both ranks have the same gradients"


def test_a_fork_after_attach_leaves_the_child_inert_and_the_parent_whole(tmp_path):
    steps = running.run_source(tmp_path, """
        import os, sys
        import torch
        torch.set_num_threads(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def step():
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        step()
        child = os.fork()
        step()
        if child == 0:
            step()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        step()
        child = os.fork()
        if child == 0:
            sys.exit(0)  # through atexit
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        step()
        """)
    assert [s["step"] for s in steps] == [1, 2, 3, 4]


def test_a_killed_run_leaves_whole_lines(tmp_path):
    script = running.write(tmp_path, """
        import os, signal, time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(50):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        for _ in range(600):  # that it writes them while it runs is what is looked at, not how soon
            with open("steps.jsonl") as log:
                if len(log.readlines()) == 50:
                    break
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
        """)
    steps, done = running.watched(script, cwd=tmp_path, check=False)
    assert done.returncode == -9 and len(steps) == 50


def test_sigterm_is_survived_by_the_last_steps_and_kills_as_ever(tmp_path):
    script = running.write(tmp_path, """
        import os, signal, torch, time
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
        """)
    steps, done = running.watched(script, cwd=tmp_path, check=False)
    assert done.returncode == -15 and len(steps) == 5


def test_one_training_after_another_in_one_process(tmp_path):
    steps = running.run_source(tmp_path, """
        import gc, torch
        def train():
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        for _ in range(3):
            train()
            gc.collect()
        """)
    assert [(s["optimizer"], s["step"]) for s in steps] == [(o, n) for o in range(3) for n in (1, 2, 3)]
    assert all(s["param_states"] == {"finite": 2} for s in steps), json.dumps(steps[-1])
