"""Torch at half of its start-up cost, for programs that compile nothing. The tests start hundreds.

sitecustomize.py, which the interpreter runs first in each program, installs this. Torch itself loads two parts that
only torch.compile needs:

- torch._meta_registrations, which describes operators to fake and meta tensors, when torch is imported. It is loaded
  with the first import that may need it.
- torch._dynamo, with the first step of an optimizer, to say that it must not be compiled. It is loaded where a program
  asks it for more.

WHOLE_TORCH=1 in the environment leaves torch as it is.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

META, DYNAMO = "torch._meta_registrations", "torch._dynamo"
NEED_META = {"torch._inductor", "torch.distributed.tensor", "torch.export._trace", "transformers",
             "lightning", "pytorch_lightning", "accelerate"}


class NotYet(types.ModuleType):
    """Stands where the module will be."""


class NoCompiler(NotYet):
    """Says "not compiled" as torch._dynamo does, and gives way to it where anything else is asked."""

    def disable(self, function=None, recursive=True, **_):
        return function if function is not None else self.disable

    def graph_break(self, msg=""):
        pass

    is_loaded = False

    def __getattr__(self, name):
        # Names in underscores are read from each module by whoever looks through them all.
        if name.startswith("__") and not (name == "__path__" and self.is_loaded):
            raise AttributeError(name)
        if sys.modules.get(DYNAMO) is self:
            del sys.modules[DYNAMO]
            sys.modules["torch"].__dict__.pop("_dynamo", None)
        load_meta()
        return getattr(importlib.import_module(DYNAMO), name)


class NoCompilerYet(importlib.abc.Loader):
    def create_module(self, spec):
        return NoCompiler(spec.name)

    def exec_module(self, module):
        module.is_loaded = True


class Quick:
    """A finder that sees what is imported. Without torch it leaves no trace."""

    has_stood_in = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torch":
            sys.modules.setdefault(META, NotYet(META))
        if name == DYNAMO and not cls.has_stood_in:
            cls.has_stood_in = True
            return importlib.machinery.ModuleSpec(name, NoCompilerYet())
        if name in NEED_META:
            load_meta()
        return None


def load_meta():
    if isinstance(sys.modules.get(META), NotYet):
        del sys.modules[META]
        importlib.import_module(META)


def install():
    if not os.environ.get("WHOLE_TORCH"):
        sys.meta_path.insert(0, Quick)
