"""The .pyi files name what the compiled modules hold."""

import ast
import importlib
import pathlib
import re

import pytest

import replicant
from replicant import _libraries

FOLDER = pathlib.Path(replicant.__file__).parent
MODULES = ("_envs", "_policy", "_program", "_render", "_replay")


def names_of_stub(body, prefix=""):
    """{qualified name: parameters, or None for properties and classes}"""
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[prefix + node.name] = None
            found.update(names_of_stub(node.body, f"{node.name}."))
        elif isinstance(node, ast.FunctionDef):
            is_property = any(getattr(d, "id", getattr(d, "attr", "")) in ("property", "setter")
                              for d in node.decorator_list)
            arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args)
                         if a.arg != "self"]
            found[prefix + node.name] = None if is_property else arguments
    return found


def names_of_module(members, prefix=""):
    found = {}
    for name, value in members.items():
        is_own = not name.startswith("_") or (prefix and name == "__init__")
        signature = getattr(value, "__nb_signature__", None)
        if not is_own or not (signature or isinstance(value, (type, property))):
            continue
        if isinstance(value, type):
            found[name] = None
            found.update(names_of_module(vars(value), f"{name}."))
        else:
            found[prefix + name] = signature and re.findall(r"(\w+): ", signature[0][0])
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_the_names_of_its_module(name):
    _libraries.load_mujoco()
    _libraries.load_onednn()
    module = importlib.import_module(f"replicant.{name}")
    stub = names_of_stub(ast.parse((FOLDER / f"{name}.pyi").read_text(encoding="utf-8")).body)
    found = names_of_module(vars(module))
    assert stub == found
    assert (FOLDER / "py.typed").exists()
