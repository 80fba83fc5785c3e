"""The catalog as JSON schema, by which editors complete and check a pipeline's file.

``python -m rivermouth.pipelines.json_schema`` writes it anew, after a signature has changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rivermouth.pipelines.catalog import Catalog, Function, catalog
from rivermouth.pipelines.checking import SECTIONS, SETTINGS
from rivermouth.pipelines.kinds import schema

#: where the package has it
FILE = Path(__file__).with_name("pipeline.schema.json")

_ABOUT = {
    "name": "What the pipeline is called; None: as its file.",
    "trigger": "How often a micro-batch begins. None: when the last one is done.",
    "checkpoints": "The folder of the queries' checkpoints. None: checkpoints, beside the file.",
    "spark": "Settings of the session.",
    "sources": "Where records come from, by name.",
    "tables": "Dimension tables, by name.",
    "summaries": "What is computed of windows, by name.",
    "steps": "What is done with sources and other steps, by name.",
    "sinks": "Where rows go, by name.",
}

_MOST_IN_ORDER = 5  # parameters that anybody would give as a list


def json_schema() -> dict[str, Any]:
    """The schema of a pipeline's file."""
    known = catalog()
    sections = {
        section: {
            "type": "object",
            "additionalProperties": {"$ref": f"#/$defs/{group}"},
            "description": _ABOUT[section],
        }
        for section, group in SECTIONS.items()
    }
    settings = {
        name: {**schema(kind), "description": _ABOUT[name]} for name, kind in SETTINGS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of rivermouth",
        "type": "object",
        "properties": {**settings, **sections},
        "required": ["sinks"],
        "additionalProperties": False,
        "$defs": {group: _group(known, group) for group in sorted(known)},
    }


def _group(known: Catalog, group: str) -> dict[str, Any]:
    functions = list(known[group].values())
    forms = [_call(function) for function in functions]
    bare = [f.name for f in functions if not any(p.is_required for p in f.parameters)]
    if bare:
        forms.append({"enum": bare})
    if len(functions) == 1:
        forms += _arguments(functions[0])
    return {"anyOf": forms}


def _call(function: Function) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            function.name: {"description": function.about, "anyOf": _arguments(function)}
        },
        "required": [function.name],
        "additionalProperties": False,
    }


def _arguments(function: Function) -> list[dict[str, Any]]:
    """The forms that the arguments can have: by name, in order, or only the first."""
    named: dict[str, Any] = {
        "type": "object",
        "properties": {
            each.name: {**schema(each.kind), "description": each.about}
            if each.about
            else schema(each.kind)
            for each in function.parameters
        },
        "required": [each.name for each in function.parameters if each.is_required],
        "additionalProperties": False if function.others is None else schema(function.others),
    }
    forms = [named]
    parameters = function.parameters
    if parameters and not any(each.is_required for each in parameters[1:]):
        forms.append(schema(parameters[0].kind))
    if 1 < len(parameters) <= _MOST_IN_ORDER:
        required = sum(each.is_required for each in parameters)
        in_order = [schema(each.kind) for each in parameters]
        forms.append({"type": "array", "prefixItems": in_order, "minItems": required,
                      "maxItems": len(in_order)})  # fmt: skip
    if not any(each.is_required for each in parameters):
        forms.append({"type": "null"})
    return forms


if __name__ == "__main__":
    FILE.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
