"""The form that `elicitation/create` of revision 2025-11-25 allows, as data from its schema.

The official schema allows any further member; here none is allowed, so that what has no meaning
for the client, or one that VS Code does not know, is seen.
"""

from __future__ import annotations

from typing import Any, Final

from jsonschema import Draft202012Validator


def of_type(*names: str, **members: Any) -> dict[str, Any]:
    """A definition of the official schema: the members that it names, and no others."""
    words = {"title": {"type": "string"}, "description": {"type": "string"}}
    properties = {"type": {"enum": list(names)}, **words, **members}
    optional = {"title", "description", "default", "minLength", "maxLength", "minItems", "maxItems"}
    optional |= {"minimum", "maximum", "format"}
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "array", "items": TEXT}
COUNT: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
TITLED: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"const": TEXT, "title": TEXT},
        "required": ["const", "title"],
        "additionalProperties": False,
    },
}


def several(items: dict[str, Any]) -> dict[str, Any]:
    return of_type("array", items=items, default=TEXTS, minItems=COUNT, maxItems=COUNT)


def exactly(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


FORMATS: Final = {"enum": ["email", "uri", "date", "date-time"]}
PRIMITIVE: Final = [
    of_type("string", minLength=COUNT, maxLength=COUNT, format=FORMATS, default=TEXT),
    of_type("number", "integer", minimum=NUMBER, maximum=NUMBER, default=NUMBER),
    of_type("boolean", default={"type": "boolean"}),
    of_type("string", enum=TEXTS, default=TEXT),
    of_type("string", oneOf=TITLED, default=TEXT),
    of_type("string", enum=TEXTS, enumNames=TEXTS, default=TEXT),
    several(exactly(type={"const": "string"}, enum=TEXTS)),
    several(exactly(anyOf=TITLED)),
]
OFFICIAL: Final = Draft202012Validator(
    {
        "type": "object",
        "properties": {
            "type": {"const": "object"},
            "properties": {"type": "object", "additionalProperties": {"oneOf": PRIMITIVE}},
            "required": TEXTS,
        },
        "required": ["type", "properties"],
        "additionalProperties": False,
    }
)
