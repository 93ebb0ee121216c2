"""Watching changes no bit of what is trained, keeps no memory, and outlives whatever happens to it."""

import gc
import json

import pytest
import running
import torch

TRAINING = """
    import os, sys
    import torch
    import torch.nn as nn
    torch.manual_seed(11)
    way = sys.argv[1]
    if way == "ddp":
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = nn.Sequential(nn.Embedding(30, 12), nn.Linear(12, 24), nn.Dropout(0.3), nn.ReLU(), nn.Linear(24, 30))
    net = model
    if way == "compiled":
        net = torch.compile(model, backend="aot_eager")
    if way == "ddp":
        net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, fused=way == "scaler, fused")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=10, enabled="scaler" in way)
    rounds = torch.Generator().manual_seed(5)
    for i in range(100):
        words = torch.randint(0, 30, (8, 6), generator=rounds)
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            loss = nn.functional.cross_entropy(net(words).transpose(1, 2), words)
        scaler.scale(loss).backward()
        if way == "scaler" and i in (20, 21):
            model[1].weight.grad[0, 0] = float("inf")
        if i % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    torch.save([p.detach() for p in model.parameters()] + [torch.get_rng_state()], "weights.pt")
"""


@pytest.mark.parametrize("way", ["plain", "autocast", "scaler", "scaler, fused", "compiled", "ddp"])
def test_weights_and_random_numbers_are_bit_identical_after_a_hundred_backward_passes(tmp_path, way):
    script = running.write(tmp_path, TRAINING)
    whole = {"WHOLE_TORCH": "1"} if way == "compiled" else {}
    running.python(script, way, cwd=tmp_path, **whole)
    alone = torch.load(tmp_path / "weights.pt")
    steps, _ = running.watched(script, way, cwd=tmp_path, options=("--weight-every", "3"), **whole)
    assert len(steps) >= 49
    assert all(torch.equal(a, b) for a, b in zip(alone, torch.load(tmp_path / "weights.pt")))


def test_peak_memory_of_gradients_is_the_same_with_and_without(tmp_path):
    """Big gradients freed between the steps: whoever kept one would show it. What the agent itself takes is the same
    with a small model."""
    script = running.write(tmp_path, """
        import resource, sys, torch
        width = int(sys.argv[1])
        model = torch.nn.Linear(width, width)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            optimizer.zero_grad(set_to_none=True)
            model(torch.ones(1, width)).sum().backward()
            optimizer.step()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """)

    def peaks(width: int) -> tuple[int, int]:
        """In KiB, plain and watched."""
        plain = running.python(script, width, cwd=tmp_path).stdout
        return int(plain), int(running.watched(script, width, cwd=tmp_path, options=("--weight-every", "0"))[1].stdout)

    small, big = peaks(30), peaks(3000)
    gradient = 3000 * 3000 * 4 / 1024
    assert big[0] - small[0] > 1.8 * gradient, "weights and gradients: the measure sees them"
    assert big[1] - big[0] - (small[1] - small[0]) < 0.5 * gradient


def test_ten_thousand_parameters_are_watched(watching):
    params = [torch.nn.Parameter(torch.randn(3)) for _ in range(10_000)]
    optimizer = torch.optim.SGD(params, 0.1)
    watching(None, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        torch.stack([p for p in params]).square().sum().backward()
        optimizer.step()
    steps = watching.steps()
    assert [s["params"] for s in steps] == [10_000, 10_000]


def test_attach_detach_and_attach_again_leave_nothing_behind(watching):
    import threading

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    threads = threading.active_count()
    for _ in range(5):
        agent = watching(model, optimizer)
        assert watching(model, optimizer) is agent, "the same cell, run twice"
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        agent.detach()
        agent.detach()
    assert threading.active_count() == threads
    assert len(running.steps_in(watching._log)) == 5


def test_new_options_start_a_new_run_and_a_line_says_so(watching, caplog):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = watching(model, optimizer, run="one")
    second = watching(model, optimizer, run="two")
    assert first is not second
    assert "attach() with other options: the run one ends here, and another one begins" in caplog.messages
    assert first.status().state == "finished" and second.status().state == "starting"


def test_as_a_context_manager_it_ends_with_its_block(watching):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watching(model, optimizer, run="one") as agent:
        pass
    assert agent.status().state == "finished"
    with pytest.raises(RuntimeError, match="out of data"):
        with watching(model, optimizer, run="two") as agent:
            raise RuntimeError("out of data")
    assert agent.status().state == "failed"
    assert agent.status().reason == "RuntimeError: out of data"


@pytest.mark.parametrize(("options", "message"), [
    ({"prot": 1}, "there is no option 'prot'"),
    ({"mode": "fast"}, "mode = 'fast' is not allowed; allowed: lagged, immediate"),
    ({"port": 70000}, "port = '70000' is not allowed"),
])
def test_a_bad_option_is_refused_with_what_is_allowed(watching, options, message):
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=message):
        watching(model, torch.optim.SGD(model.parameters(), 0.1), **options)


def test_the_profiler_started_mid_run_disturbs_nothing(watching):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for i in range(3):
        if i == 1:
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            profiler.start()
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    profiler.stop()
    assert any("Optimizer.step" in event.key for event in profiler.key_averages())
    assert len(watching.steps()) == 3


def test_checkpointing_runs_backward_inside_backward_and_is_one_pass(watching):
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    x = torch.ones(2, 4, requires_grad=True)
    model[1](checkpoint(model[0], x, use_reentrant=True)).sum().backward()
    optimizer.step()
    (step,) = watching.steps()
    assert step["micro_steps"] == 1 and step["param_states"] == {"finite": 4}


def test_a_hook_that_fails_is_said_once_and_training_goes_on(watching, caplog):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    agent = watching(model, optimizer)
    scaling, agent._watcher._scaling = agent._watcher._scaling, None  # anything of ours that is broken
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert agent._watcher.faults > 1
    assert sum("a hook failed" in record.message for record in caplog.records) == 1
    agent._watcher._scaling = scaling
    agent.detach()


def test_objects_with_a_life_of_their_own_are_not_woken_by_looking_around(watching):
    class Proxy:
        @property
        def __class__(self):
            raise AssertionError("somebody looked")

    proxy = [Proxy()]
    gc.collect()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert len(watching.steps()) == 1 and proxy


def test_the_step_log_and_json_are_valid_to_the_last_line(tmp_path):
    steps = running.run_source(tmp_path, """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e30)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).square().sum().backward()
            optimizer.step()
        """)
    assert len(steps) == 20 and steps[-1]["loss"] in ("nan", "inf")
    json.dumps(steps)
