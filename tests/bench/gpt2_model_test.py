"""The model is GPT-2's size, and the work of a step grows to the length that is asked for."""

import pytest
import torch
from gpt2_model import GPT, GPT2, SMALL, Training, calibrate


def test_it_has_the_parameters_of_gpt2():
    with torch.device("meta"):
        model = GPT(GPT2)
    params = list(model.parameters())
    assert (len(params), sum(p.numel() for p in params)) == (148, 124_439_808)
    assert model.head.weight is model.wte.weight


@pytest.mark.parametrize("precision, dtype", [("parameters", torch.bfloat16), ("autocast", torch.float32)])
def test_a_step_changes_the_weights_unless_the_check_fails(precision, dtype):
    torch.set_num_threads(1)
    training = Training(SMALL, torch.device("cpu"), precision, 8)
    training.set_work(2, 2)
    before = [p.detach().clone() for p in training.params]
    training.step(lambda params: False)
    assert all(torch.equal(a, b) for a, b in zip(before, training.params))
    assert all(p.grad.dtype == dtype and torch.isfinite(p.grad).all() for p in training.params)
    training.step()
    assert not torch.equal(before[0], training.params[0])
    assert training.facts()["tokens_per_step"] == 2 * 2 * 8


def clock(of_a_sequence, least, fits=10**9):
    """Seconds of a step on a device where `fits` sequences fit."""
    def seconds_of(batch, micro_batches):
        if batch > fits:
            raise torch.OutOfMemoryError("no memory")
        return micro_batches * max(least, 0.002 + of_a_sequence * batch)
    return seconds_of


@pytest.mark.parametrize("target", [0.01, 0.05, 0.15])
@pytest.mark.parametrize("fits", [10**9, 20, 3, 1])
@pytest.mark.parametrize("least", [0.0, 0.008])
def test_the_work_grows_until_a_step_takes_about_as_long(target, fits, least):
    most = 48
    batch, micro_batches, seconds = calibrate(clock(0.0021, least, fits), target, most)
    assert batch <= min(fits, most)
    assert seconds == clock(0.0021, least, fits)(batch, micro_batches)
    # A sequence in each micro-batch is the smallest piece of work, unless the device takes `least` for any.
    piece = max(0.0021 * micro_batches, 0.0041, least)
    assert abs(seconds - target) <= 0.5 * piece + 0.03 * target, (batch, micro_batches, seconds)


def test_a_first_batch_that_is_too_large_is_left_again():
    batch, micro_batches, seconds = calibrate(clock(0.002, 0.0, fits=4), 0.1, most=48, first=16)
    assert batch <= 4 and seconds == pytest.approx(0.1, rel=0.05)


def test_a_step_that_is_longer_than_the_target_stays_one_sequence():
    assert calibrate(clock(0.0, 0.03), 0.01, most=48) == (1, 1, 0.03)
