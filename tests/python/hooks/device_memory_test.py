"""What is read of torch's allocator, with its statistics as a device would have them: there is none here. The same on a
device is in cuda/cuda_test.py."""

from types import SimpleNamespace

import pytest
import torch

from gradvane import _torch_ops


def statistics(allocated, reserved, peak, retries, failures):
    return {"allocated_bytes": {"all": {"current": allocated, "peak": peak}, "small_pool": {"current": 1, "peak": 2}},
            "reserved_bytes": {"all": {"current": reserved, "peak": reserved}},
            "num_alloc_retries": retries, "num_ooms": failures}


@pytest.fixture
def devices(monkeypatch):
    def are(*found, memory=1000, fraction=1.0):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: found[device])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=memory))
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: fraction)
    return are


def test_devices_are_added_up(devices):
    devices(statistics(100, 200, 150, 3, 1), statistics(7, 20, 9, 0, 2))
    assert _torch_ops.device_memory() == (107, 220, 159, 3, 3, 2000)


def test_the_limit_is_of_the_devices_that_the_allocator_has_used_and_of_the_fraction_that_it_may_take(devices):
    devices(statistics(100, 200, 150, 3, 1), statistics(0, 0, 0, 0, 0), memory=1000, fraction=0.25)
    assert _torch_ops.device_memory() == (100, 200, 150, 3, 1, 250)


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
    assert _torch_ops.device_memory() == _torch_ops.device_memory() == (100, 200, 150, 3, 1, 1000)
