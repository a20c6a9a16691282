"""The OpenAPI description of the JSON API, made from the tables of pages and actions."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ignis_console.ask import Parameter
from ignis_console.config import PORT

_PLAIN: Mapping[Any, dict[str, Any]] = {
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
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
                    "description": "With the port in the address; behind TLS, __Host-ignis-PORT.",
                },
            },
        },
        "security": [{"basic": []}, {"session": []}],
    }


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type; those of dataclasses are added to *schemas*."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if kind is None or kind is type(None):
        return {"type": "null"}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, schemas) for each in inner]}
    if origin in (tuple, list):
        if origin is tuple and Ellipsis not in inner:
            parts = [schema_of(each, schemas) for each in inner]
            return {"type": "array", "prefixItems": parts}
        return {"type": "array", "items": schema_of(inner[0], schemas)}
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": schema_of(inner[1], schemas)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _of_dataclass(kind, schemas)
    return {}


def _of_dataclass(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}
        hints = get_type_hints(kind)
        shown = [each for each in dataclasses.fields(kind) if each.metadata.get("api", True)]
        schemas[kind.__name__] = {
            "type": "object",
            "description": (kind.__doc__ or "").strip().partition("\n")[0],
            "required": [each.name for each in shown],
            "properties": {each.name: schema_of(hints[each.name], schemas) for each in shown},
        }
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in in_path
        ]
        + [
            {
                "name": each.name,
                "in": "query",
                "description": each.about or each.label,
                "schema": schema_of(each.type, schemas),
            }
            for each in operation.parameters
        ],
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": schema_of(operation.answer, schemas)}},
            },
            "default": {
                "description": "The error: 400 bad parameter, 401 no login, 403 not allowed, "
                "404 no such thing, 409 another number of messages, 503 try again later.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if operation.body is not None:
        fields = {
            each.name: {
                **schema_of(each.type_in_json, schemas),
                "description": each.about or each.label,
            }
            for each in operation.body
        }
        body = {"schema": {"type": "object", "properties": fields}}
        found["requestBody"] = {"content": {"application/json": body}}
    return found
