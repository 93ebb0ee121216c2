"""bench/gpu/torch_rivals.py on a CPU: each rival has a row, and those with a flag see what is not finite."""

import json
import sys
import types

import device_calls
import pytest
import torch
import torch_rivals

NUMELS = [1000, 1500, 500]


def case(**more):
    return {"shape": "tiny", "dtype": "bf16", "data": "uniform", "offset": 1, "numel": sum(NUMELS), "bytes": 6000,
            "numels": NUMELS} | more


@pytest.mark.parametrize("dtype", torch_rivals.DTYPES)
def test_a_rehearsal_has_times_and_then_counts_of_each_rival(dtype, tmp_path, monkeypatch, capsys):
    cases = tmp_path / "cases.jsonl"
    cases.write_text("".join(json.dumps(case(dtype=dtype, data=data)) + "\n" for data in ("uniform", "all_nan")))
    monkeypatch.setattr(sys, "argv", ["torch_rivals.py", "--device", "cpu", "--seconds", "0.01", "--cases", str(cases)])
    assert torch_rivals.main() == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [*torch_rivals.contenders([torch.ones(1)]), "gradvane", "gradvane_clip"]
    assert {"stacked_check", "stacked_norms", "cat_statistics", "eager"} < set(names)
    assert [row["contender"] for row in rows if "device_seconds" in row] == 2 * names
    counts = [row for row in rows if "not_counted" in row]
    assert [row["contender"] for row in counts] == names
    assert all(row[kind] is None for row in counts for kind in device_calls.KINDS)
    assert len(rows) == 3 * len(names), "no rival was skipped"


def test_ours_read_every_tensor_and_leave_nothing_behind():
    import gradvane

    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([[-12.0]])]
    with torch_rivals.ours(tensors) as own:
        agent = gradvane.attach()
        for work in own.values():
            work()
            assert agent.flush() and agent.last_step.grad_norm == 13
    assert agent.status().state == "finished"


def test_data_that_is_partly_nan_stays_so():
    for data in ("half_nan", "nan_rows"):
        tensors = torch_rivals.make_tensors(case(data=data, numels=[4 * torch_rivals.SPARSE_ROW]), torch.device("cpu"))
        with torch_rivals.ours(tensors) as own:
            for work in torch_rivals.all_of(case(data=data), tensors, own).values():
                work()
        assert 0.4 < float(tensors[0].isnan().float().mean()) < 0.6, data


def test_without_the_package_the_others_are_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradvane", None)
    with torch_rivals.ours([torch.ones(1)]) as own:
        assert own == {}


def test_the_rivals_with_one_sync_find_what_is_not_finite():
    good = [torch.tensor([3.0, 4.0]), torch.tensor([[-12.0]])]
    assert torch_rivals.stacked_check(good) and torch_rivals.stacked_norms(good)
    assert torch_rivals.cat_statistics(good) == [13, -12, 4, 0]
    for value in (float("nan"), float("inf")):
        bad = [*good, torch.tensor([1.0, value])]
        assert not torch_rivals.stacked_check(bad) and not torch_rivals.stacked_norms(bad)
    assert torch_rivals.cat_statistics([*good, torch.tensor([float("nan")] * 5)])[3] == 5


def test_calls_are_counted_by_what_they_are():
    nothing = [("cudaDeviceSynchronize", False)]
    events = [*nothing, ("cudaLaunchKernel", False), ("cudaLaunchKernelExC_v11060", False), ("cudaMemcpyAsync", False),
              ("cudaStreamSynchronize_v3020", False), ("cudaStreamIsCapturing", False), ("cudaEventRecord", False),
              ("void at::native::reduce_kernel<512, 1>(...)", True), ("void isfinite(...)", True),
              ("Memcpy DtoH (Device -> Pageable)", True), ("Memset (Device)", True), ("Stream Sync", True)]
    counts = device_calls.difference(device_calls.counts_of(events), device_calls.counts_of(nothing))
    assert counts == {"kernels": 2, "launch_calls": 2, "device_copies": 2, "host_syncs": 1}


CUDA = types.SimpleNamespace(type="cuda")


def test_what_the_profiler_itself_calls_is_taken_off(monkeypatch):
    wait, launch = ("cudaDeviceSynchronize", False), ("cudaLaunchKernel", False)
    monkeypatch.setattr(device_calls, "events_of", lambda work: [wait, *(work() or [])])
    counts = device_calls.Counting(CUDA).of(lambda: [launch, launch, ("cudaStreamSynchronize", False)])
    assert counts == {"kernels": 0, "launch_calls": 2, "device_copies": 0, "host_syncs": 1}


def test_a_profiler_that_fails_leaves_nothing_counted_and_the_reason(monkeypatch):
    def fails(work):
        raise AssertionError("No activities specified")
    monkeypatch.setattr(device_calls, "events_of", fails)
    counts = device_calls.Counting(CUDA).of(lambda: None)
    assert counts == dict.fromkeys(device_calls.KINDS) | {
        "not_counted": "torch's profiler: AssertionError('No activities specified')"}
