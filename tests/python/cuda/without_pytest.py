"""Runs the test functions of a module, for machines with a GPU and no pytest."""

import os
from collections.abc import Callable

SKIPPED = 77


def run(names: dict, after_failure: Callable[[], object] = lambda: None) -> int:
    """The exit status: SKIPPED without a device, 1 where that must not be or a test failed."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device here")
        return 1 if os.environ.get("GRADVANE_GPU_TESTS_MUST_RUN") == "1" else SKIPPED
    failed = 0
    for name, test in list(names.items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("ok     ", name, flush=True)
        except Exception as error:
            failed += 1
            print("FAILED ", name, repr(error), flush=True)
            after_failure()
    return 1 if failed else 0
