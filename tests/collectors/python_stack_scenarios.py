"""What every Python runs for python_stack_test.py: one scenario, or a measurement.

    python3.X python_stack_scenarios.py <probe library> <scenario, or look, or measure>
"""

import sys

import python_stack_code  # noqa: F401 (its scenarios)
import python_stack_process  # noqa: F401
from python_stack_check import FREE, HELD, scenarios


def measure():
    def down(n, most):
        if n > 1:
            return down(n - 1, most)
        return [HELD.probe_measure(most, 200_000, identity) for identity in (0, 1)]

    for most in (4, 32):
        alone, with_identity = down(32, most)
        print(f"{sys.version.split()[0]} {most} frames: walk {alone:.0f} ns, with identity {with_identity:.0f} ns")


if __name__ == "__main__":
    state = FREE.probe_look()
    print("state", state, FREE.probe_version().decode())
    if sys.argv[2] != "look":
        assert state == 1, "this Python is not read"
        {**scenarios, "measure": measure}[sys.argv[2]]()
    print("done")
