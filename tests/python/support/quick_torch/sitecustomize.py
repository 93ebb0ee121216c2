"""Torch at half of its start-up cost, for programs that compile nothing. The tests start hundreds.

The interpreter runs this first in each program. Torch itself loads two parts that only torch.compile needs:

- torch._meta_registrations, which describes operators to fake and meta tensors, when torch is imported. It is loaded
  with the first import that may need it.
- torch._dynamo, when the first optimizer is made, to mark functions that must not be compiled. Here they are not marked.

WHOLE_TORCH=1 in the environment leaves torch as it is.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

META = "torch._meta_registrations"
NEED_META = {"torch._dynamo", "torch._inductor", "torch.distributed.tensor", "torch.export._trace", "transformers",
             "lightning", "pytorch_lightning", "accelerate"}


class NotYet(types.ModuleType):
    """Stands where the module will be."""


def unmarked(function=None, recursive=True):
    return function if function is not None else unmarked


class Unmarking(importlib.abc.Loader):
    """Loads torch._compile, whose decorator would load torch._dynamo."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        module._disable_dynamo = unmarked


class Quick:
    """A finder that finds torch._compile, and sees what else is imported. Without torch it leaves no trace."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch":
            sys.modules.setdefault(META, NotYet(META))
        if name == "torch._compile":
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            spec.loader = Unmarking(spec.loader)
            return spec
        if name in NEED_META and isinstance(sys.modules.get(META), NotYet):
            del sys.modules[META]
            importlib.import_module(META)
        return None


if not os.environ.get("WHOLE_TORCH"):
    sys.meta_path.insert(0, Quick)
