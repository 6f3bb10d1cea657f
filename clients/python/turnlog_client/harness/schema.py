"""Checks messages against `protocol.schema.json`, the one description of the protocol.

Only the part of JSON Schema that the file uses is understood; a keyword beyond it fails when the schema is loaded, so
that no constraint is ever silently unchecked. A dependency would do more, but a harness needs nothing but Python.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

_NOTES = {"$schema", "$id", "title", "description", "contentEncoding"}
_CHECKED = {
    "$ref",
    "type",
    "required",
    "properties",
    "items",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "minItems",
}
# Alternatives are told apart by `type` and `event_type` in code, which can then say what is wrong with the one meant.
_DISPATCHED = {"anyOf", "oneOf"}

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ARTICLE = {"object": "an object", "array": "an array", "integer": "an integer"}


class SchemaError(ValueError):
    """A message that is not of the form that the schema gives. The text names the place, such as `payload.parts[0]`."""


@cache
def definitions() -> Mapping[str, dict[str, Any]]:
    """The schema's `$defs` by name: messages by their `type`, event payloads by their `event_type`."""
    text = resources.files("turnlog_client.harness").joinpath("protocol.schema.json").read_text(encoding="utf-8")
    defs: dict[str, dict[str, Any]] = json.loads(text)["$defs"]
    for name, node in defs.items():
        _refuse_unknown_keywords(name, node)
    return defs


def check(name: str, value: object) -> None:
    """Checks `value` against one definition. Raises `SchemaError` for the first thing that is wrong."""
    _check(value, definitions()[name], "")


def _refuse_unknown_keywords(where: str, node: Mapping[str, Any]) -> None:
    unknown = node.keys() - _NOTES - _CHECKED - _DISPATCHED
    if unknown:
        raise ValueError(f"protocol.schema.json: {where}: no check is written for {sorted(unknown)}")
    for key, child in node.get("properties", {}).items():
        _refuse_unknown_keywords(f"{where}.{key}", child)
    if "items" in node:
        _refuse_unknown_keywords(f"{where}[]", node["items"])


def _check(value: Any, node: Mapping[str, Any], where: str) -> None:
    if "$ref" in node:
        _check(value, definitions()[node["$ref"].removeprefix("#/$defs/")], where)
    if "type" in node:
        _check_type(value, node["type"], where)
    if "const" in node and value != node["const"]:
        raise SchemaError(f"{_at(where)} must be {json.dumps(node['const'])}, not {_shown(value)}")
    if "enum" in node and value not in node["enum"]:
        allowed = ", ".join(json.dumps(each) for each in node["enum"])
        raise SchemaError(f"{_at(where)} must be one of {allowed}, not {_shown(value)}")
    if isinstance(value, str):
        _check_string(value, node, where)
    elif isinstance(value, int | float):
        if value < node.get("minimum", value):
            raise SchemaError(f"{_at(where)} must be at least {node['minimum']}")
        if value > node.get("maximum", value):
            raise SchemaError(f"{_at(where)} must be at most {node['maximum']}")
    elif isinstance(value, list):
        if len(value) < node.get("minItems", 0):
            raise SchemaError(f"{_at(where)} must have at least {node['minItems']} items")
        if "items" in node:
            for index, item in enumerate(value):
                _check(item, node["items"], f"{where}[{index}]")
    elif isinstance(value, dict):
        for key in node.get("required", ()):
            if key not in value:
                raise SchemaError(f"{_at(where)} must have the key {json.dumps(key)}")
        for key, child in node.get("properties", {}).items():
            if key in value:
                _check(value[key], child, f"{where}.{key}" if where else key)


def _check_type(value: object, name: str, where: str) -> None:
    # In Python a bool is an int; in JSON it is not a number.
    if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and name != "boolean"):
        raise SchemaError(f"{_at(where)} must be {_ARTICLE.get(name, f'a {name}')}, not {_shown(value)}")


def _check_string(value: str, node: Mapping[str, Any], where: str) -> None:
    if len(value) < node.get("minLength", 0):
        raise SchemaError(f"{_at(where)} must not be empty")
    if len(value) > node.get("maxLength", len(value)):
        raise SchemaError(f"{_at(where)} must have at most {node['maxLength']} characters, not {len(value)}")
    # `$` in Python also matches before a last line break, in JSON Schema it does not.
    if "pattern" in node and not re.search(node["pattern"].replace("$", r"\Z"), value):
        raise SchemaError(f"{_at(where)} must match {node['pattern']}, not {_shown(value)}")


def _at(where: str) -> str:
    return where or "the message"


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
