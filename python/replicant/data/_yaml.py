"""YAML as the programs of a run read it (docs/configuration.md): what YAML 1.1 and 1.2 read
differently is text, so that a key for a number or a bool refuses it."""

import pathlib
import re
from typing import Any

from replicant.data._episode import need
from replicant.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_WHOLE = "(?:0|[1-9][0-9]*)"  # no leading zero, which YAML 1.1 takes for octal
# kind, its plain scalars, the characters that they begin with
_KINDS = (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("float", rf"[-+]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf",
     list("-+.0123456789")),
)


def read(file: pathlib.Path, what: str) -> Any:
    """The value of a YAML file of the user's, which is `what`. A number without a fraction is an
    int, however it is written: 1000, 1e3. ConfigError for a file that cannot be read and for a key
    that a mapping has twice."""
    yaml = need("yaml", what)

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}

        def construct_mapping(self, node, deep=False):
            names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for i, name in enumerate(names):
                if name.value in [earlier.value for earlier in names[:i]]:
                    raise ConfigError(f"{file}:{name.start_mark.line + 1}: {name.value}: given "
                                      "twice")
            return super().construct_mapping(node, deep)

        def construct_yaml_float(self, node):
            value = super().construct_yaml_float(node)
            return int(value) if value.is_integer() and abs(value) < 2**53 else value

    Loader.add_constructor(f"{_TAG}float", Loader.construct_yaml_float)
    for kind, pattern, first in _KINDS:
        Loader.add_implicit_resolver(f"{_TAG}{kind}", re.compile(f"(?:{pattern})$"), first)
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: {error}") from None
