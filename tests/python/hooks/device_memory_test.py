"""What is read of torch's allocator, with its statistics as a device would have them: there is none here. The same on a
device is in cuda/cuda_test.py."""

import pytest
import torch

from gradvane import _torch_ops


def statistics(allocated, reserved, peak, retries, failures):
    return {"allocated_bytes": {"all": {"current": allocated, "peak": peak}, "small_pool": {"current": 1, "peak": 2}},
            "reserved_bytes": {"all": {"current": reserved, "peak": 10 * reserved}},
            "num_alloc_retries": retries, "num_ooms": failures}


@pytest.fixture
def devices(monkeypatch):
    def are(*found):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: found[device])
    return are


def test_devices_are_added_up(devices):
    devices(statistics(100, 200, 150, 3, 1), statistics(7, 20, 9, 0, 2))
    assert _torch_ops.device_memory() == (107, 220, 159, 3, 3)


def test_nothing_is_read_before_torch_uses_a_device():
    assert not torch.cuda.is_initialized()
    assert _torch_ops.device_memory() is None
    assert not torch.cuda.is_initialized()


def test_statistics_that_are_not_there_are_an_error_that_the_native_part_contains(devices):
    devices({})
    with pytest.raises(KeyError):
        _torch_ops.device_memory()


def test_the_programs_own_peak_is_not_reset(devices, monkeypatch):
    for name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("that is the program's"))
    devices(statistics(100, 200, 150, 3, 1))
    assert _torch_ops.device_memory() == _torch_ops.device_memory() == (100, 200, 150, 3, 1)
