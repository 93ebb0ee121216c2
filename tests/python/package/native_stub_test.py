"""The stubs of the native modules against the modules themselves: names, arguments and defaults."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "gradvane"
MODULES = ["_native", "_recording"]

Members = dict[str, object]
"""By name: "attribute", the arguments of a function as (name, default) in their order, or the members of a class."""


def described_stub(text: str) -> Members:
    return members_of_stub(ast.parse(text).body)


def members_of_stub(body: list[ast.stmt]) -> Members:
    members: Members = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            members[node.name] = members_of_stub(node.body)
        elif isinstance(node, ast.AnnAssign):
            members[ast.unparse(node.target)] = "attribute"
        elif isinstance(node, ast.FunctionDef):
            is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
            members[node.name] = "attribute" if is_property else arguments_of_stub(node.args)
    return members


def arguments_of_stub(arguments: ast.arguments) -> list[tuple[str, object]]:
    names = [one.arg for one in arguments.args]
    defaults: list[object] = [ast.literal_eval(one) for one in arguments.defaults]
    required: list[object] = [...] * (len(names) - len(defaults))
    return [pair for pair in zip(names, required + defaults) if pair[0] != "self"]


def described_module(module: ModuleType | SimpleNamespace) -> Members:
    """What it defines. Names of Python's own, such as __doc__, are left out."""
    return {name: described(value) for name, value in vars(module).items() if not name.startswith("__")}


def described(value: object) -> object:
    if isinstance(value, type):
        is_exception = issubclass(value, Exception)
        own = {} if is_exception else vars(value)
        return {name: described(member) for name, member in own.items() if is_public(name, member)}
    signature = signature_of(value)
    return "attribute" if signature is None else arguments_of(signature)


def is_public(name: str, member: object) -> bool:
    """A constructor counts where pybind11 made one; a class that only C++ makes inherits one that raises."""
    return signature_of(member) is not None if name == "__init__" else not name.startswith("_")


def signature_of(value: object) -> str | None:
    """The signature, which pybind11 writes as the first line of a function's docstring."""
    if not callable(value) and not hasattr(value, "__func__"):
        return None
    first = (getattr(value, "__doc__", None) or "").partition("\n")[0]
    return first if re.match(r"\w+\(.*\) -> ", first) else None


def arguments_of(signature: str) -> list[tuple[str, object]]:
    """[("path", ...), ("json", False)] of "story(path: str, json: bool = False) -> str". The types are C++'s."""
    parsed = ast.parse(f"def {readable(signature)}: ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return arguments_of_stub(parsed.args)


def readable(signature: str) -> str:
    """Without names of C++ types, which are not Python: those of types that are registered nowhere."""
    return re.sub(r"(?<=[:>]) [A-Za-z_]\w*(?:::[\w<>, ]+)+", " object", signature)


def differences(stub: Members, real: Members, where: str = "") -> list[str]:
    found = []
    for name in sorted({*stub, *real}):
        here = f"{where}{name}"
        in_stub, in_real = stub.get(name), real.get(name)
        if in_stub is None:
            found.append(f"{here}: not in the stub")
        elif in_real is None:
            found.append(f"{here}: not in the module")
        elif isinstance(in_stub, dict) and isinstance(in_real, dict):
            found += differences(in_stub, in_real, f"{here}.")
        elif in_stub != in_real:
            found.append(f"{here}: {in_stub} in the stub, {in_real} in the module")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_what_its_module_has(name):
    real = described_module(importlib.import_module(f"gradvane.{name}"))
    assert differences(described_stub((PACKAGE / f"{name}.pyi").read_text()), real) == []


def test_every_stub_is_compared():
    assert sorted(path.stem for path in PACKAGE.glob("*.pyi")) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_whatever_line_a_stub_lacks_is_reported(name):
    """The control: each definition is taken out of the stub in turn, and must be missed."""
    text = (PACKAGE / f"{name}.pyi").read_text()
    real = described_module(importlib.import_module(f"gradvane.{name}"))
    holders = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Module, ast.ClassDef))]
    count = 0
    for index in range(len(holders)):
        tree = ast.parse(text)
        holder = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef))][index]
        for at, node in enumerate(holder.body):
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AnnAssign)):
                continue
            kept = holder.body
            holder.body = [*kept[:at], *kept[at + 1:]]
            assert len(differences(members_of_stub(tree.body), real)) == 1, ast.unparse(node)
            holder.body = kept
            count += 1
    assert count >= 5


@pytest.mark.parametrize(
    "stub, why",
    [
        ("def story(path: str, json: bool = False) -> str: ...", None),
        ("def story(file: str, json: bool = False) -> str: ...", "'file'"),
        ("def story(path: str, json: bool = True) -> str: ...", "True"),
        ("def story(path: str, json: bool) -> str: ...", "Ellipsis"),
        ("def story(json: bool = False) -> str: ...", "'path'"),
        ("def story(path: str, json: bool = False, more: int = 1) -> str: ...", "'more'"),
        ("story: str", "attribute"),
        ("", "not in the stub"),
        ("def story(path: str, json: bool = False) -> str: ...\ndef told() -> str: ...", "not in the module"),
    ],
)
def test_a_difference_is_reported(stub, why):
    def story():
        """story(path: str, json: bool = False) -> str"""

    found = differences(described_stub(stub), described_module(SimpleNamespace(story=story)))
    assert (found == []) if why is None else (len(found) == 1 and why in found[0]), found
