"""The phases of a step: marked by the script, and seen where torch waits for data, saves and evaluates. No exact times:
a sleep lasts at least as long as it is asked to."""

import functools
import threading
import time

import pytest
import torch
from slow_loop import NAP, Slow, SlowFile, phases_of, slept, step
from small_net import net
from torch.utils.data import DataLoader, IterableDataset

import gradvane


@pytest.fixture
def model():
    return net()


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), 1e-3)


def test_waiting_for_a_loader_is_the_data_phase_and_what_follows_is_the_forward_pass(watching, model, optimizer):
    watching(model, optimizer)
    for x in DataLoader(Slow(), batch_size=1):
        step(model, optimizer, x, between=lambda: time.sleep(2 * NAP))
    _, *steps = watching.steps()
    assert len(steps) == 3
    for record in steps:
        assert slept(record, "data") and slept(record, "forward", 2)
        assert phases_of(record)["forward"] > phases_of(record)["data"]
        assert {"backward", "optimizer", "other"} <= phases_of(record).keys()
        whole = sum(phases_of(record).values()) + record["agent_seconds"]
        assert whole == pytest.approx(record["step_seconds"], rel=1e-6)


def test_each_batch_of_an_accumulated_step_has_its_data_and_its_forward_pass(watching, model, optimizer):
    watching(model, optimizer)
    for index, x in enumerate(DataLoader(Slow(6), batch_size=1)):
        loss = model(x).square().mean()
        time.sleep(NAP)
        loss.backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
    _, *steps = watching.steps()
    assert len(steps) == 2 and all(slept(record, "data", 2) and slept(record, "forward", 2) for record in steps)


@pytest.mark.parametrize("workers", [0, 1])
def test_data_that_workers_load_is_waited_for_here_alone(watching, model, optimizer, workers):
    watching(model, optimizer)
    loader = DataLoader(Slow(3), batch_size=1, num_workers=workers, multiprocessing_context="fork" if workers else None)
    for x in loader:
        step(model, optimizer, x)
    _, *steps = watching.steps()
    assert len(steps) == 2 and all(0 < phases_of(record)["data"] < record["step_seconds"] for record in steps)


def test_a_run_without_a_loader_has_neither_data_nor_forward_phase(watching, model, optimizer):
    watching(model, optimizer)
    for _ in range(3):
        time.sleep(NAP)
        step(model, optimizer)
    for record in watching.steps()[1:]:
        assert phases_of(record).keys() == {"backward", "optimizer", "other"}
        assert slept(record, "other")


@pytest.mark.parametrize("way", ["no_grad", "inference_mode", "eval", "marked"])
def test_a_loader_that_evaluates_is_no_wait_for_data(watching, model, optimizer, way):
    contexts = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "eval": torch.enable_grad,
                "marked": lambda: gradvane.phase("evaluation")}
    watching(model, optimizer)
    step(model, optimizer)
    if way == "eval":
        model.eval()
    with contexts[way]():
        for x in DataLoader(Slow(2), batch_size=1):
            model(x)
    model.train()
    step(model, optimizer)
    (_, record) = watching.steps()
    assert "data" not in phases_of(record) and "forward" not in phases_of(record)
    assert slept(record, "evaluation" if way in ("eval", "marked") else "other", 2)


def test_a_loader_in_a_thread_that_does_not_train_is_no_wait_for_data(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    thread = threading.Thread(target=lambda: list(DataLoader(Slow(), batch_size=1)))
    thread.start()
    thread.join()
    step(model, optimizer)
    assert "data" not in phases_of(watching.steps()[-1])


def test_what_a_dataset_raises_comes_through_and_its_time_counts(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    loader = iter(DataLoader(Slow(fails_at=1), batch_size=1))
    next(loader)
    with pytest.raises(OSError, match="the disk is gone"):
        next(loader)
    step(model, optimizer)
    assert slept(watching.steps()[-1], "data")


def test_the_end_of_a_loader_is_the_end_of_a_loop(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)

    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    assert [int(x) for x in DataLoader(Numbers())] == [0, 1, 2]


def test_saving_is_the_checkpoint_phase(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    file = SlowFile()
    torch.save(model.state_dict(), file)
    step(model, optimizer)
    step(model, optimizer)
    _, with_save, after = watching.steps()
    assert slept(with_save, "checkpoint") and "checkpoint" not in phases_of(after)
    file.seek(0)
    assert torch.load(file).keys() == model.state_dict().keys()


@pytest.mark.parametrize("is_async", [False, True])
def test_distributed_checkpoints_are_seen_however_late_they_come(watching, model, optimizer, is_async, tmp_path):
    watching(model, optimizer)
    step(model, optimizer)
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    step(model, optimizer)  # looks for it
    if is_async:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        if is_async:
            dcp.async_save({"model": model.state_dict()}, checkpoint_id=tmp_path / "out").result()
        else:
            dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "out")
    finally:
        if is_async:
            dist.destroy_process_group()
    step(model, optimizer)
    record = watching.steps()[-1]
    assert 0 < phases_of(record)["checkpoint"] < record["step_seconds"]
    loaded = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    dcp.load(loaded, checkpoint_id=tmp_path / "out")


def test_a_save_in_a_thread_that_does_not_train_is_no_phase(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    thread = threading.Thread(target=lambda: torch.save(model.state_dict(), SlowFile()))
    thread.start()
    thread.join()
    step(model, optimizer)
    assert "checkpoint" not in phases_of(watching.steps()[-1])


# Marked by the script -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", "forward", "backward", "optimizer", "evaluation", "checkpoint"])
def test_a_phase_that_the_script_marks_has_its_time(watching, model, optimizer, name):
    watching(model, optimizer)
    step(model, optimizer)
    with gradvane.phase(name):
        time.sleep(NAP)
    step(model, optimizer)
    assert slept(watching.steps()[-1], name)


def test_an_inner_phase_has_the_time(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    with gradvane.phase("forward"):
        time.sleep(NAP)
        with gradvane.phase("data"):
            time.sleep(3 * NAP)
            torch.save(0, SlowFile())
    step(model, optimizer)
    record = watching.steps()[-1]
    assert slept(record, "forward") and slept(record, "data", 3) and slept(record, "checkpoint")
    assert phases_of(record)["forward"] < phases_of(record)["data"]
    assert sum(phases_of(record).values()) <= record["step_seconds"]


def test_a_forward_pass_that_the_script_marks_is_not_guessed_too(watching, model, optimizer):
    watching(model, optimizer)
    for x in DataLoader(Slow(), batch_size=1):
        time.sleep(3 * NAP)
        with gradvane.phase("forward"):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for record in watching.steps()[2:]:
        assert phases_of(record)["forward"] < NAP and slept(record, "other", 3)


def test_a_phase_around_the_step_counts_no_time_twice(watching, model, optimizer):
    watching(model, optimizer)
    for _ in range(3):
        with gradvane.phase("optimizer"):
            step(model, optimizer, between=lambda: time.sleep(NAP))
    for record in watching.steps()[1:]:
        assert sum(phases_of(record).values()) <= record["step_seconds"] * 1.5


def test_what_a_block_raises_comes_through_and_the_phase_is_over(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    with pytest.raises(KeyError), gradvane.phase("checkpoint"):
        time.sleep(NAP)
        raise KeyError
    time.sleep(3 * NAP)
    step(model, optimizer)
    record = watching.steps()[-1]
    assert slept(record, "checkpoint") and slept(record, "other", 3)


def test_each_thread_has_its_own_phases(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)
    inside, over = threading.Event(), threading.Event()

    def load():
        with gradvane.phase("data"):
            time.sleep(NAP)
            inside.set()
            over.wait()

    thread = threading.Thread(target=load)
    thread.start()
    inside.wait()
    with gradvane.phase("checkpoint"):
        time.sleep(2 * NAP)
    over.set()
    thread.join()
    step(model, optimizer)
    record = watching.steps()[-1]
    assert slept(record, "checkpoint", 2), "another thread's phase is around it in time only"
    assert slept(record, "data", 3)


@pytest.mark.parametrize("is_live", [False, True])
def test_a_wrong_name_is_refused_with_the_right_ones(watching, model, optimizer, is_live):
    if is_live:
        watching(model, optimizer)
    with pytest.raises(ValueError, match="no phase called 'eval'; there are: data, forward, .*checkpoint"):
        gradvane.phase("eval")


def test_without_an_agent_a_phase_does_nothing(model, optimizer):
    with gradvane.phase("evaluation"), gradvane.phase("data"):
        step(model, optimizer)


def test_a_phase_may_outlive_its_run_and_the_next_run_has_none_of_it(watching, model, optimizer):
    agent = watching(model, optimizer)
    step(model, optimizer)
    with gradvane.phase("evaluation"):
        agent.detach()
        watching(model, optimizer, run="second")
        step(model, optimizer)
        time.sleep(NAP)
    step(model, optimizer)
    record = watching.steps()[-1]
    assert "evaluation" not in phases_of(record) and slept(record, "other")


def test_compiled_code_may_hold_a_phase(watching, model, optimizer):
    watching(model, optimizer)
    step(model, optimizer)

    @functools.partial(torch.compile, backend="eager")
    def forward(x):
        with gradvane.phase("forward"):
            return model(x)

    forward(torch.ones(2, 6)).square().mean().backward()
    optimizer.step()
    assert len(watching.steps()) == 2
