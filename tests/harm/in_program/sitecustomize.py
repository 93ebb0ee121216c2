"""Torch without the quarter of its import that describes operators to torch.compile.

The interpreter runs this first in each program, because `import torch` itself loads torch._meta_registrations.
Only fake and meta tensors need it: torch.compile, and tensors that are sharded. The suite has 350 programs.
"""

import importlib
import sys
import types

NAME = "torch._meta_registrations"


def load_meta_registrations():
    """For a program that needs them after all."""
    if isinstance(sys.modules.get(NAME), NotYet):
        del sys.modules[NAME]
        importlib.import_module(NAME)


class NotYet(types.ModuleType):
    """Stands where the module will be."""


sys.modules.setdefault(NAME, NotYet(NAME))
