"""Torch without the half of its import that is torch.compile.

Torch loads torch._dynamo when the first optimizer is made, to say that it must not be compiled. That takes
longer than most of these programs run, 350 times. Here it is loaded only where a program asks it for more.
"""

import importlib
import sys
import types

import sitecustomize
import torch

NAME = "torch._dynamo"


class NotYet(types.ModuleType):
    """Says "not compiled" as torch._dynamo does, and gives way to it where anything else is asked."""

    def disable(self, function=None, recursive=True, **_):
        return function

    def graph_break(self, msg=""):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):  # read from each module by whoever looks through them all
            raise AttributeError(name)
        sys.modules.pop(NAME, None)
        torch.__dict__.pop("_dynamo", None)
        sitecustomize.load_meta_registrations()
        return getattr(importlib.import_module(NAME), name)


if NAME not in sys.modules:
    sys.modules[NAME] = torch._dynamo = NotYet(NAME)
