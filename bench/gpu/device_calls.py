"""What a piece of work asks of a device, as torch's profiler sees it: kernels, copies, and calls that wait for it."""

from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

KINDS = ("kernels", "launch_calls", "device_copies", "host_syncs")
LAUNCHES = ("cudaLaunch", "cuLaunch")
COPIES = ("Memcpy", "Memset")
# Calls that return when the device is done. cudaMemcpyAsync is none: torch's .item() calls cudaStreamSynchronize
# after it.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemset",
         "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")


def kind_of(name, on_device):
    """What an event counts for; None: for nothing."""
    if on_device:
        if " Sync" in name or name == "Stream Wait Event":  # no work, but a wait for it, which its call stands for
            return None
        return "device_copies" if name.startswith(COPIES) else "kernels"
    if name.startswith(LAUNCHES):
        return "launch_calls"
    # CUPTI's own names have a version, as in cudaStreamSynchronize_v3020.
    return "host_syncs" if name.split("_v")[0] in WAITS else None


def counts_of(events):
    """Of (name, whether it ran on the device) of each."""
    counts = Counter(kind_of(name, on_device) for name, on_device in events)
    return {kind: counts[kind] for kind in KINDS}


def events_of(work):
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    # Not profiler.events(): that makes objects of them, which takes long where there are 100,000.
    events = profiler.profiler.kineto_results.events()
    return [(event.name(), event.device_type() == torch.autograd.DeviceType.CUDA) for event in events]


def difference(work, nothing):
    return {kind: work[kind] - nothing[kind] for kind in KINDS}


class Counting:
    """Calls of one run. Those that the profiler makes, and the wait at the end, are in a run of nothing: taken off.

    After the first count CUPTI may stay in the process and make calls slower: measure times before.
    """

    def __init__(self, device):
        self.reason = None if device.type == "cuda" else "no CUDA device"
        self.nothing = dict.fromkeys(KINDS, 0)
        self.of(lambda: None)  # the first run sets the profiler up
        self.nothing = self.of(lambda: None)

    def of(self, work):
        """Counts of one run; of None each, and the reason, if the profiler does not work here."""
        if self.reason is None:
            try:
                return difference(counts_of(events_of(work)), self.nothing)
            except torch.OutOfMemoryError:
                raise
            except (AssertionError, AttributeError, RuntimeError) as error:
                self.reason = f"torch's profiler: {error!r}"[:200]
        return dict.fromkeys(KINDS) | {"not_counted": self.reason}
