"""What torch offers for some of the numbers that the CUDA pass gives, on the same tensors.

  foreach_norm    torch._foreach_norm: one number a tensor
  clip_grad       torch.nn.utils.clip_grad_norm_: one norm of all; reads and writes every element
  amp_check       torch._amp_foreach_non_finite_check_and_unscale_: one flag; reads and writes every element
  stacked_check   torch.stack of isfinite().all() of each tensor, .all(), one .item(): one flag
  stacked_norms   torch.stack of torch._foreach_norm, isfinite().all(), one .item(): one flag
  cat_statistics  torch.cat of all tensors, in fp32, then norm, min, max and NaN count, one .tolist()
  eager           isnan().any(), isinf().any(), norm(), abs().max(), (== 0).sum() a tensor, .item() each

And what Gradvane's Python package does in the same process, where it can be imported. Its kernel alone is in cuda_pass_bench:

  gradvane        a step of an optimizer that does nothing, watched: both hooks, all statistics of every tensor
  gradvane_clip   the same with gradvane.clip_grad_norm_ before it, which takes the norm of that read

Reads cases from `cuda_pass_bench --list` (a file, or standard input) and prints one JSON object a line.
As there, device_seconds is between two events behind a kernel that keeps the device waiting while the host
enqueues; host_bound says that it could not, as where .item() makes the host wait. Before each run the L2
cache is filled with something else. extra_device_bytes is the peak beside the tensors. With --device cpu it
only shows that it runs: device_seconds is the host's, and there are no bytes.

After all times come rows without times, one for each rival, shape, dtype and size: kernels, launch_calls,
device_copies, and host_syncs, which are calls that wait for the device. torch's profiler counts them in one run. Where
it cannot, as on a CPU, they are null, and not_counted has the reason.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time

import torch
from device_calls import Counting

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
ALIGNMENT = 512  # bytes, as in cuda_pass_bench
IN_PLACE = ("clip_grad", "gradvane_clip")  # with a norm that is NaN they make all of it NaN
SPARSE_ROW = 768  # elements, as there


def make_data(count, dtype, kind, device):
    """Like those of cuda_pass_bench: magnitudes from 2^-10 to 1, half of them zero, subnormal or NaN, a tenth of the rows zero,
    each second row NaN, or nothing but NaN."""
    if kind == "all_nan":
        return torch.full((count,), float("nan"), dtype=dtype, device=device)
    generator = torch.Generator(device=device).manual_seed(7)
    values = torch.empty(count, dtype=dtype, device=device)
    for begin in range(0, count, 1 << 26):  # in pieces: temporaries would double the memory
        piece = values[begin:begin + (1 << 26)]
        piece.uniform_(2.0 ** -10, 1.0, generator=generator)
        if kind == "sparse_rows":
            rows = torch.rand(-(-piece.numel() // SPARSE_ROW), 1, device=device, generator=generator) < 0.1
            piece[rows.expand(-1, SPARSE_ROW).flatten()[:piece.numel()]] = 0
        elif kind == "half_nan":
            piece[::2] = float("nan")
        elif kind == "nan_rows":
            piece[:piece.numel() // (2 * SPARSE_ROW) * 2 * SPARSE_ROW].view(-1, 2, SPARSE_ROW)[:, 0] = float("nan")
        elif kind != "uniform":
            chosen = torch.rand(piece.shape, device=device, generator=generator) < 0.5
            piece[chosen] = {"half_zero": 0.0, "half_subnormal": torch.finfo(dtype).tiny / 4}[kind]
    return values


def make_tensors(case, device):
    """Views of one buffer: as far from a boundary as the case says."""
    dtype = DTYPES[case["dtype"]]
    step = ALIGNMENT // dtype.itemsize
    begins, end = [], 0
    for numel in case["numels"]:
        begins.append(end + case["offset"])
        end = -(-(begins[-1] + numel) // step) * step
    data = make_data(end, dtype, case["data"], device)
    return [data[begin:begin + numel] for begin, numel in zip(begins, case["numels"])]


def eager(tensors):
    found = []
    for tensor in tensors:
        found.append((torch.isnan(tensor).any().item(), torch.isinf(tensor).any().item(),
                      torch.linalg.vector_norm(tensor).item(), tensor.abs().max().item(),
                      (tensor == 0).sum().item()))
    return found


def stacked_check(tensors):
    return torch.stack([torch.isfinite(tensor).all() for tensor in tensors]).all().item()


def stacked_norms(tensors):
    """The cheaper way to one flag. A norm that overflows its type, as one of fp16 may, counts as not finite."""
    return torch.isfinite(torch.stack(torch._foreach_norm(tensors, 2))).all().item()


def cat_statistics(tensors):
    """Temporaries are as large as all gradients in their own type, and again in fp32."""
    flat = torch.cat([tensor.flatten() for tensor in tensors]).float()
    return torch.stack([torch.linalg.vector_norm(flat), flat.min(), flat.max(), flat.isnan().sum().float()]).tolist()


def parameters_of(tensors):
    params = []
    for tensor in tensors:
        # A parameter of the right shape without memory of its own: clipping looks at .grad alone.
        param = torch.empty(1, dtype=tensor.dtype, device=tensor.device).expand(tensor.shape).requires_grad_()
        param.grad = tensor
        params.append(param)
    return params


def contenders(tensors):
    device = tensors[0].device
    params = parameters_of(tensors)
    found = torch.zeros(1, dtype=torch.float32, device=device)
    scale = torch.ones(1, dtype=torch.float32, device=device)
    return {
        "foreach_norm": lambda: torch._foreach_norm(tensors, 2),
        # So large a norm is never reached: it multiplies by 1, as it does without need.
        "clip_grad": lambda: torch.nn.utils.clip_grad_norm_(params, 1e30, foreach=True),
        "amp_check": lambda: torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, scale),
        "stacked_check": lambda: stacked_check(tensors),
        "stacked_norms": lambda: stacked_norms(tensors),
        "cat_statistics": lambda: cat_statistics(tensors),
        "eager": lambda: eager(tensors),
    }


class Idle(torch.optim.Optimizer):
    """Its step changes nothing: what a watched one takes is the agent's."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        return None


@contextlib.contextmanager
def ours(tensors):
    """By name, while the block runs."""
    try:
        import gradvane
    except ImportError:
        yield {}
        return
    params = parameters_of(tensors)
    optimizer = Idle(params)
    with tempfile.TemporaryDirectory() as folder:
        agent = gradvane.attach(optimizer=optimizer, run="torch_rivals", run_dir=folder, port=-1, detect="none", weight_every=0)

        def clipped():
            gradvane.clip_grad_norm_(params, 1e30)
            optimizer.step()

        try:
            yield {"gradvane": optimizer.step, "gradvane_clip": clipped}
        finally:
            agent.detach()


class Clock:
    LONGEST_HOLD = 0.1  # seconds
    CYCLES = 2e9  # a second, about

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        # Read, not written: lines that must be written back would cost the one that comes next.
        self.other_data = torch.zeros(512 << 20, dtype=torch.uint8, device=device) if self.cuda else None

    def time(self, work, usual):
        """Seconds of the device, seconds of the host until the call returned, whether the host was slower.

        `usual` is about what the host takes.
        """
        if not self.cuda:
            start = time.perf_counter()
            work()
            seconds = time.perf_counter() - start
            return seconds, seconds, True
        self.other_data.view(torch.int64).max()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        held = min(self.LONGEST_HOLD, 20e-6 + 2 * usual)
        torch.cuda._sleep(int(held * self.CYCLES))
        begin.record()
        start = time.perf_counter()
        work()
        host = time.perf_counter() - start
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3, host, host > 0.8 * held

    def peak_bytes(self, work):
        if not self.cuda:
            work()
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


def quantile(values, share):
    return sorted(values)[round(share * (len(values) - 1))]


def all_of(case, tensors, own):
    rivals = contenders(tensors) | own
    spoils = case["data"] in ("half_nan", "nan_rows")
    return {name: work for name, work in rivals.items() if not (spoils and name in IN_PLACE)}


def label_of(case):
    return {"bench": "torch_rivals", **{k: v for k, v in case.items() if k != "numels"}}


def count(case, device, counting):
    """What one run of each rival asks of the device."""
    tensors = make_tensors(case, device)
    with ours(tensors) as own:
        for name, work in all_of(case, tensors, own).items():
            try:
                work()  # what is made once
                counts = counting.of(work)
                if counts["kernels"] == 0:  # no rival does without: CUPTI is not there, or another tool has it
                    counts = dict.fromkeys(counts) | {"not_counted": "torch's profiler saw no kernel"}
                yield {**label_of(case), "contender": name, **counts}
            except RuntimeError as error:
                yield {**label_of(case), "contender": name, "skipped": str(error)[:200]}


def measure(case, device, clock, seconds):
    """Every rival in turn, round by round, so that a slow moment falls on all of them."""
    tensors = make_tensors(case, device)
    with ours(tensors) as own:
        yield from measure_all(case, all_of(case, tensors, own), clock, seconds)


def measure_all(case, rivals, clock, seconds):
    label = label_of(case)
    extra = {}
    for name, work in list(rivals.items()):  # a warm-up, too
        try:
            extra[name] = clock.peak_bytes(work)
        except RuntimeError as error:  # no memory, or a size that it was not made for
            del rivals[name]
            yield {**label, "contender": name, "skipped": str(error)[:200]}
    times = {name: [] for name in rivals}
    host = {name: 1e-3 for name in rivals}
    start = time.perf_counter()
    for number in range(42):
        if number >= 4 and time.perf_counter() - start > seconds:
            break
        for name, work in rivals.items():
            times[name].append(clock.time(work, host[name]))
            host[name] = times[name][-1][1]
    for name, runs in times.items():
        runs = runs[1:]  # the first one did not know how long the host takes
        device_times = [run[0] for run in runs]
        yield {**label, "contender": name, "device_seconds": statistics.median(device_times),
               "device_p10": quantile(device_times, 0.1), "device_p90": quantile(device_times, 0.9),
               "host_seconds": statistics.median(run[1] for run in runs),
               "host_bound": sum(run[2] for run in runs) * 2 > len(runs), "rounds": len(runs),
               "gigabytes_per_second": case["bytes"] * 1e-9 / statistics.median(device_times),
               "extra_device_bytes": extra[name]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=argparse.FileType(), default=sys.stdin)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=0.6, help="for the timed rounds of one case")
    parser.add_argument("--count-seconds", type=float, default=60, help="for counting calls; 0: they are not counted")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch_rivals: torch sees no CUDA device", file=sys.stderr)
        return 77
    device = torch.device(options.device)
    clock = Clock(device)
    cases = [json.loads(line) for line in options.cases]

    def emit(case, rows_of):
        try:
            for row in rows_of(case):
                print(json.dumps(row), flush=True)
        except torch.OutOfMemoryError as error:
            print(json.dumps({**label_of(case), "skipped": str(error)[:200]}), flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()

    for case in cases:
        emit(case, lambda case: measure(case, device, clock, options.seconds))
    if options.count_seconds <= 0:
        return 0
    counting, start = Counting(device), time.perf_counter()
    clock.other_data = None  # its memory is free for the rivals
    for case in {(case["shape"], case["dtype"], case["numel"]): case for case in reversed(cases)}.values():
        if time.perf_counter() - start > options.count_seconds:
            print(json.dumps({**label_of(case), "skipped": "no time left to count calls: --count-seconds"}), flush=True)
            continue
        emit(case, lambda case: count(case, device, counting))
    return 0


if __name__ == "__main__":
    sys.exit(main())
