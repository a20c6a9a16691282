"""The OpenAPI description of the JSON API, made from the tables of pages and actions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ignis_console.ask import Parameter
from ignis_console.config import PORT
from queue_core.values.json_text import shown_fields

_PLAIN: Mapping[Any, dict[str, Any]] = {
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
}


class Operation(NamedTuple):
    """One operation of the API."""

    method: str
    path: str
    name: str
    about: str
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    #: The fields of the JSON body; None: it has none.
    body: tuple[Parameter, ...] | None = None


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the description of some operations."""
    schemas: dict[str, Any] = {
        "Error": {
            "type": "object",
            "required": ["error", "message"],
            "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
        }
    }
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ignis console",
            "version": version,
            "description": "The figures and actions of the console. Null: it is not known.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": f"ignis-{PORT}",
                    "description": "With path and port of the address; by TLS, __Host-ignis-PORT.",
                },
            },
        },
        "security": [{"basic": []}, {"session": []}],
    }


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type; those of dataclasses are added to *schemas*."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, schemas) for each in inner]}
    if origin is tuple and Ellipsis not in inner:
        return {"type": "array", "prefixItems": [schema_of(each, schemas) for each in inner]}
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(inner[0], schemas)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], schemas)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if not isinstance(kind, type) or not is_dataclass(kind):
        return {}
    if kind.__name__ not in schemas:
        hints, names = get_type_hints(kind), [each.name for each in shown_fields(kind)]
        schemas[kind.__name__] = {
            "type": "object",
            "description": (kind.__doc__ or "").strip().partition("\n")[0],
            "required": names,
            "properties": {name: schema_of(hints[name], schemas) for name in names},
        }
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    def described(each: Parameter, kind: Any) -> dict[str, Any]:
        return {"description": each.about or each.label, "schema": schema_of(kind, schemas)}

    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    text = {"schema": {"type": "string"}}
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, **text} for name in in_path]
    for each in operation.parameters:
        parameters.append({"name": each.name, "in": "query", **described(each, each.type)})
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", **content(schema_of(operation.answer, schemas))},
            "default": {
                "description": "The error: 400 bad parameter, 401 no login, 403 not allowed, "
                "404 not found, 409 the number of messages has changed, 503 try again later.",
                **content({"$ref": "#/components/schemas/Error"}),
            },
        },
    }
    if operation.body is not None:
        fields = {}
        for each in operation.body:
            field = described(each, each.type_in_json)
            fields[each.name] = field.pop("schema") | field
        found["requestBody"] = content({"type": "object", "properties": fields})
    return found
