"""The section `forms`: what the client can show of a requestedSchema, and which answers fit it.

What is shown is checked against the types of revision 2025-11-25.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest

import mcp_bridge_vscode as bridge
from tests.support.official_forms import OFFICIAL

# Of processor time, for the worst that a hostile server can make of a form; coverage is slow.
SECONDS: Final = 30.0  # of the processor: what is not linear takes minutes
COUNTRIES: Final = {"type": "string", "enum": ["de", "fr"], "title": "Country"}


def compiled(schema: Any) -> bridge.Form:
    """The form of a schema; what it shows is valid by the official type."""
    before = json.dumps(schema)
    form = bridge.Form(schema)
    assert json.dumps(schema) == before
    OFFICIAL.validate(json.loads(bridge.encode_json(form.shown)))
    return form


def form_of(schema: Any, **more: Any) -> bridge.Form:
    """The form with one property, `a`."""
    return compiled({"type": "object", "properties": {"a": schema}, **more})


def shown(schema: Any, **more: Any) -> Any:
    properties = form_of(schema, **more).shown["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


def read(schema: Any, value: Any, **more: Any) -> Any:
    """What the server gets for a value of `a`, which is required; None when it does not fit."""
    content = form_of(schema, required=["a"], **more).read({"a": value})
    return None if content is None else content["a"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, None),
        ({"type": "number", "minimum": 1}, None),
        ({"type": "string", "format": "email"}, ""),
        ({"type": "string", "minLength": 1}, ""),
        ({"type": "string", "enum": ["x"]}, None),
        ({"type": "array", "items": {"type": "string", "enum": ["tea"]}}, ["pirate"]),
    ],
    ids=json.dumps,
)
def test_an_optional_field_that_was_left_empty_is_left_out(schema: Any, value: Any) -> None:
    """VS Code was seen to fill such fields in."""
    assert form_of(schema).read({"a": value}) == {}
    assert form_of(schema, required=["a"]).read({"a": value}) is None


@pytest.mark.parametrize("value", [0, False, "x", {"b": 1}, ["x"]])
def test_an_optional_field_with_a_wrong_value_of_another_kind_does_not_fit(value: Any) -> None:
    schema = {"type": "integer", "minimum": 1}
    assert form_of(schema).read({"a": value}) is None


def test_too_few_choices_of_an_optional_field_are_no_empty_field() -> None:
    schema = {"type": "array", "minItems": 2, "items": {"type": "string", "enum": ["x", "y"]}}
    assert form_of(schema).read({"a": ["x"]}) is None
    assert form_of(schema).read({"a": ["z"]}) == {}


def test_an_optional_field_that_takes_what_is_empty_keeps_it() -> None:
    assert form_of({"type": "string"}).read({"a": ""}) == {"a": ""}
    assert form_of({"type": ["integer", "null"]}).read({"a": None}) == {"a": None}


def is_refused(schema: Any) -> bool:
    try:
        bridge.Form(schema)
    except bridge.FormError:
        return True
    return False


# The forms of the specification ----------------------------------------------

TITLED_CHOICES: Final = [{"const": "#F00", "title": "Red"}, {"const": "#0F0", "title": "Green"}]
OF_THE_SPECIFICATION: Final[tuple[dict[str, Any], ...]] = (
    {"type": "string"},
    {
        "type": "string",
        "title": "Display Name",
        "description": "Description text",
        "minLength": 3,
        "maxLength": 50,
        "format": "email",
        "default": "user@example.com",
    },
    {"type": "string", "format": "uri", "default": "https://example.com/"},
    {"type": "string", "format": "date", "default": "2026-07-28"},
    {"type": "string", "format": "date-time", "default": "2026-07-28T10:00:00Z"},
    {"type": "number", "title": "T", "minimum": 0, "maximum": 100, "default": 50},
    {"type": "integer", "description": "D", "minimum": -1, "maximum": 1.5, "default": 0},
    {"type": "boolean", "title": "T", "description": "D", "default": False},
    {"type": "string", "title": "T", "enum": ["Red", "Green"], "default": "Red"},
    {"type": "string", "title": "T", "oneOf": TITLED_CHOICES, "default": "#F00"},
    {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "default": "g"},
    {
        "type": "array",
        "title": "T",
        "minItems": 1,
        "maxItems": 2,
        "items": {"type": "string", "enum": ["Red", "Green"]},
        "default": ["Red", "Green"],
    },
    {"type": "array", "items": {"anyOf": TITLED_CHOICES}, "default": ["#F00"]},
)


@pytest.mark.parametrize("schema", OF_THE_SPECIFICATION, ids=lambda value: json.dumps(value)[:60])
def test_a_form_of_the_specification_is_shown_as_it_came(schema: dict[str, Any]) -> None:
    assert shown(schema) == schema
    if "default" in schema:
        assert read(schema, schema["default"]) == schema["default"]


def test_the_order_of_the_properties_and_what_is_required_stay() -> None:
    properties = {"b": {"type": "string"}, "a": {"type": "boolean"}}
    form = compiled({"type": "object", "properties": properties, "required": ["a"]})
    assert json.dumps(form.shown) == json.dumps(
        {"type": "object", "properties": properties, "required": ["a"]}
    )
    assert not form.is_empty()
    assert form.read({"a": True}) == {"a": True}
    assert form.read({"b": "x"}) is None
    assert form.read({}) is None


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "object"}, {"properties": {}}, {"type": "object", "required": [], "title": "T"}],
    ids=json.dumps,
)
def test_a_form_without_a_property_is_empty(schema: dict[str, Any]) -> None:
    form = compiled(schema)
    assert form.is_empty()
    assert form.shown == {"type": "object", "properties": {}}
    assert form.read({}) == {}


NO_FORMS: Final[tuple[Any, ...]] = (
    *(None, True, 3, "object", [], [{}]),
    {"type": "array"},
    {"type": ["object"]},
    {"type": None},
    {"properties": None},
    {"properties": []},
    {"required": None},
    {"required": {"a": True}},
    {"required": ["a"]},
    {"properties": {"a": {"type": "string"}}, "required": ["b"]},
    {"properties": {"a": {"type": "string"}}, "required": [3]},
    {"properties": {"a": {"type": "string"}}, "required": [["a"]]},
)


@pytest.mark.parametrize("schema", NO_FORMS, ids=json.dumps)
def test_what_is_no_form_or_can_never_be_filled_in_is_refused(schema: Any) -> None:
    assert is_refused(schema)


NO_FIELDS: Final[tuple[Any, ...]] = (
    *(None, True, False, 3, "string", [], {}),
    {"title": "T"},
    {"type": None},
    {"type": []},
    {"type": 3},
    {"type": "null"},
    {"type": "object"},
    {"type": "object", "properties": {"b": {"type": "string"}}},
    {"type": "text"},
    {"type": ["boolean", "integer"]},
    {"type": "array"},
    {"type": "array", "items": True},
    {"type": "array", "items": {}},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": {"type": "object"}},
    {"type": "array", "items": [{"enum": ["x"]}]},
    {"type": "array", "prefixItems": [{"enum": ["x"]}]},
    {"type": "string", "enum": []},
    {"type": "string", "enum": [None]},
    {"type": "string", "const": None},
    {"enum": [["x"], "y"]},
    {"enum": [{"x": 1}]},
    {"const": {"x": 1}},
    {"anyOf": []},
    {"anyOf": "string"},
    {"anyOf": ["string", "number"]},
    {"anyOf": [{"type": "boolean"}, {"type": "integer"}]},
    {"oneOf": [{"const": ["x"]}, {"const": "y"}]},
    {"allOf": [{"type": "null"}]},
    {"allOf": [{"type": "string"}, {"type": "string"}]},
    {"anyOf": [{"type": "null"}]},
)


@pytest.mark.parametrize("schema", NO_FIELDS, ids=lambda value: json.dumps(value)[:60])
def test_a_property_that_no_field_can_show_is_refused(schema: Any) -> None:
    assert is_refused({"type": "object", "properties": {"a": schema}})


# What real servers send --------------------------------------------------------

OF_REAL_SERVERS: Final[tuple[tuple[str, Any, Any], ...]] = (
    (
        "pydantic, Optional",
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "Age"},
        {"type": "integer", "title": "Age"},
    ),
    (
        "pydantic, an enum",
        {"$ref": "#/$defs/Country"},
        {"type": "string", "enum": ["de", "fr"], "title": "Country"},
    ),
    (
        "pydantic, an enum with words of its own",
        {"$ref": "#/$defs/Country", "description": "Where?", "title": "Home", "default": "fr"},
        {
            "type": "string",
            "enum": ["de", "fr"],
            "title": "Home",
            "description": "Where?",
            "default": "fr",
        },
    ),
    (
        "pydantic 1, an enum with a default",
        {"allOf": [{"$ref": "#/$defs/Country"}], "default": "de"},
        {"type": "string", "enum": ["de", "fr"], "title": "Country", "default": "de"},
    ),
    (
        "pydantic, an optional enum",
        {"anyOf": [{"$ref": "#/$defs/Country"}, {"type": "null"}], "default": None},
        {"type": "string", "enum": ["de", "fr"], "title": "Country"},
    ),
    (
        "pydantic, Literal",
        {"enum": ["a", "b"], "title": "Kind", "type": "string"},
        {"type": "string", "enum": ["a", "b"], "title": "Kind"},
    ),
    ("pydantic, Literal of one", {"const": "a", "title": "K"}, {"enum": ["a"], "title": "K"}),
    (
        "pydantic, an optional Literal of one",
        {"anyOf": [{"const": "a", "type": "string"}, {"type": "null"}]},
        {"enum": ["a"]},
    ),
    (
        "pydantic, Field(gt=0, lt=10) of an integer",
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    (
        "pydantic, Field(gt=0) of a float",
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "number", "minimum": 0, "maximum": 0.5},
    ),
    (
        "the tighter of two bounds",
        {"type": "integer", "minimum": 3, "exclusiveMinimum": 5.5, "maximum": 8, "default": 7},
        {"type": "integer", "minimum": 5.5, "maximum": 8, "default": 7},
    ),
    (
        "pydantic, an enum of integers",
        {"enum": [1, 2], "type": "integer", "default": 2},
        {"enum": ["1", "2"], "default": "2"},
    ),
    (
        "pydantic, Literal of mixed values",
        {"enum": ["auto", 1, True, 1.5, None], "default": "auto"},
        {"enum": ["auto", "1", "true", "1.5"], "default": "auto"},
    ),
    (
        "zod, an enum in a union with null",
        {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
        {"enum": ["a", "b"]},
    ),
    (
        "zod 3, nullable",
        {"type": ["string", "null"], "minLength": 2.0, "maxLength": 4},
        {"type": "string", "minLength": 2, "maxLength": 4},
    ),
    (
        "zod, a union of literals",
        {"anyOf": [{"type": "string", "const": "a"}, {"type": "string", "const": "b"}]},
        {"enum": ["a", "b"]},
    ),
    (
        "zod, literals with titles",
        {"anyOf": TITLED_CHOICES, "title": "Color"},
        {"oneOf": TITLED_CHOICES, "title": "Color"},
    ),
    (
        "zod, z.int()",
        {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
        {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
    ),
    (
        "zod, z.email()",
        {"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)"},
        {"type": "string", "format": "email"},
    ),
    (
        "zod, z.email().or(z.literal(''))",
        {"anyOf": [{"type": "string", "format": "email"}, {"type": "string", "const": ""}]},
        {"type": "string"},
    ),
    (
        "a choice of one with a title",
        {"oneOf": [{"const": "a", "title": "A"}], "title": "T"},
        {"oneOf": [{"const": "a", "title": "A"}], "title": "T"},
    ),
    (
        "pydantic 1, an enum of one",
        {"allOf": [{"const": "a", "title": "A"}], "description": "D"},
        {"enum": ["a"], "title": "A", "description": "D"},
    ),
    ("zod, z.uuid()", {"type": "string", "format": "uuid"}, {"type": "string"}),
    (
        "an open choice",
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string"}], "default": "b"},
        {"type": "string", "default": "b"},
    ),
    (
        "any number",
        {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        {"type": "number"},
    ),
    ("a text or a number", {"type": ["string", "number"]}, {"type": "string"}),
    (
        "FastMCP, a list of an enum",
        {"type": "array", "items": {"$ref": "#/$defs/Country"}, "minItems": 1, "maxItems": 2},
        {
            "type": "array",
            "items": {"type": "string", "enum": ["de", "fr"]},
            "minItems": 1,
            "maxItems": 2,
        },
    ),
    (
        "a list of an enum with names",
        {"type": "array", "items": {"enum": ["r", "g"], "enumNames": ["Red", None]}},
        {
            "type": "array",
            "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "g"}]},
        },
    ),
    (
        "a list of titled choices by oneOf",
        {"type": "array", "items": {"type": "string", "oneOf": TITLED_CHOICES}},
        {"type": "array", "items": {"anyOf": TITLED_CHOICES}},
    ),
    (
        "a list of integers",
        {"type": "array", "items": {"enum": [1, 2]}, "default": [2]},
        {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}, "default": ["2"]},
    ),
    (
        "enumNames of another length",
        {"type": "string", "enum": ["r", "g"], "enumNames": ["Red"]},
        {"enum": ["r", "g"]},
    ),
    (
        "enumNames with null among the values",
        {"type": ["string", "null"], "enum": ["r", None], "enumNames": ["Red", "None"]},
        {"enum": ["r"], "enumNames": ["Red"]},
    ),
    (
        "choices by reference, some with a title",
        {"oneOf": [{"$ref": "#/$defs/Country"}, {"const": "xx", "title": "Other"}]},
        {
            "oneOf": [
                {"const": "de", "title": "de"},
                {"const": "fr", "title": "fr"},
                {"const": "xx", "title": "Other"},
            ]
        },
    ),
    (
        "a reference to a sibling",
        {"$ref": "#/properties/~0b~1/anyOf-less"},
        {"type": "boolean"},
    ),
)


@pytest.mark.parametrize(
    ("schema", "answer"), [row[1:] for row in OF_REAL_SERVERS], ids=[r[0] for r in OF_REAL_SERVERS]
)
def test_what_real_servers_send_is_shown_with_the_same_meaning(schema: Any, answer: Any) -> None:
    root = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Root",
        "type": "object",
        "additionalProperties": False,
        "$defs": {"Country": COUNTRIES},
        "properties": {"a": schema, "~b/": {"anyOf-less": {"type": "boolean"}, "type": "string"}},
    }
    properties = compiled(root).shown["properties"]
    assert isinstance(properties, dict)
    assert properties["a"] == {"type": "string", **answer}


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "string"}, 3),
        ({"type": "string"}, None),
        ({"type": "string", "minLength": 3}, "ab"),
        ({"type": "string", "format": "date"}, "today"),
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True),
        ({"type": "number", "maximum": 2}, 3),
        ({"type": "boolean"}, "true"),
        ({"enum": ["a"]}, "b"),
        ({"enum": [1]}, None),
        ({"enum": [1]}, {"b": 1}),
        ({"oneOf": TITLED_CHOICES}, "Red"),
        ({"type": "array", "items": {"enum": ["a"]}}, ["b"]),
        ({"type": "array", "items": {"enum": ["a"]}}, "a"),
        ({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}, ["a"]),
    ],
    ids=lambda value: json.dumps(value)[:50],
)
def test_a_default_that_the_client_cannot_take_is_left_out(schema: Any, default: Any) -> None:
    assert "default" not in shown({**schema, "default": default})


@pytest.mark.parametrize(
    "members",
    [
        {"minLength": "3", "maxLength": True},
        {"minLength": None, "maxLength": 2.5},
        {"title": 3, "description": None},
        {"format": ["email"]},
        {"minimum": 1, "minItems": 1},
    ],
    ids=json.dumps,
)
def test_members_that_the_client_has_no_type_for_are_left_out(members: dict[str, Any]) -> None:
    assert shown({"type": "string", **members}) == {"type": "string"}


# Answers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "answer", "meant"),
    [
        ({"enum": [1, 2], "type": "integer"}, "2", 2),
        ({"enum": [1, 2], "type": "integer"}, 2, 2),
        ({"type": "boolean", "enum": [True]}, "true", True),
        ({"const": 1.5}, "1.5", 1.5),
        ({"enum": ["1", True]}, "1", "1"),
        ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2, "title": "Two"}]}, "1", 1),
        ({"type": "array", "items": {"enum": [1, 2]}}, ["2", "1"], [2, 1]),
        ({"anyOf": [{"enum": [7]}, {"type": "null"}]}, None, None),
    ],
)
def test_the_server_gets_what_the_choice_stands_for(schema: Any, answer: Any, meant: Any) -> None:
    content = form_of(schema).read({"a": answer})
    assert content is not None
    assert json.dumps(content) == json.dumps({"a": meant})


def test_a_choice_of_another_property_keeps_its_text() -> None:
    properties = {"a": {"enum": [1]}, "b": {"type": "string"}}
    form = compiled({"type": "object", "properties": properties})
    assert form.read({"a": "1", "b": "1"}) == {"a": 1, "b": "1"}


LIST_OF_COUNTRIES: Final = {"type": "array", "items": COUNTRIES, "minItems": 1, "maxItems": 2}
ENUM_OF_INTEGERS: Final = {"type": "integer", "enum": [1, 2]}
WRONG: Final[tuple[tuple[Any, Any], ...]] = (
    (LIST_OF_COUNTRIES, "de"),  # what VS Code answers when another field came before
    (LIST_OF_COUNTRIES, []),
    (LIST_OF_COUNTRIES, ["de", "fr", "de"]),
    (LIST_OF_COUNTRIES, ["xx"]),
    ({**LIST_OF_COUNTRIES, "uniqueItems": True}, ["de", "de"]),
    (COUNTRIES, ["de"]),
    (COUNTRIES, {"de": 1}),
    (COUNTRIES, "De"),
    (COUNTRIES, None),
    (ENUM_OF_INTEGERS, "3"),
    (ENUM_OF_INTEGERS, True),
    (ENUM_OF_INTEGERS, ["1"]),
    (ENUM_OF_INTEGERS, {"1": 1}),
    ({"const": "x"}, "y"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "a"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "abcd"),
    ({"type": "string"}, 1),
    ({"type": ["string", "null"]}, False),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 0),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 4),
    ({"type": "integer"}, 1.5),
    ({"type": "integer"}, True),
    ({"type": "integer"}, "1"),
    ({"type": "number", "exclusiveMinimum": 1}, 1),
    ({"type": "number", "exclusiveMaximum": 1}, 1.0),
    ({"type": "number"}, False),
    ({"type": "boolean"}, 1),
    ({"type": "boolean"}, "true"),
    ({"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}]}, "a"),
    ({"type": "string", "allOf": [{"minLength": 1}, {"maxLength": 2}]}, "abc"),
    ({"type": "string", "anyOf": [{"minLength": 3}, {"const": ""}]}, "ab"),
    ({"type": "string", "allOf": [{"$ref": "#/nowhere"}, {}]}, "a"),
    ({"type": "string", "allOf": [{"$ref": 3}, {}]}, "a"),
    ({"type": "string", "allOf": [{"$ref": "#/type"}, {}]}, "a"),
    ({"type": "string", "allOf": [{"$ref": "https://example.com/s"}, {}]}, "a"),
    ({"type": "string", "allOf": [{}, "junk"]}, "a"),
)


@pytest.mark.parametrize(("schema", "answer"), WRONG, ids=lambda value: json.dumps(value)[:50])
def test_an_answer_that_does_not_fit_is_none(schema: Any, answer: Any) -> None:
    assert form_of(schema, required=["a"]).read({"a": answer}) is None


RIGHT: Final[tuple[tuple[Any, Any], ...]] = (
    (LIST_OF_COUNTRIES, ["de", "de"]),
    ({**LIST_OF_COUNTRIES, "uniqueItems": True}, ["de", "fr"]),
    ({**LIST_OF_COUNTRIES, "uniqueItems": "yes"}, ["de", "de"]),
    ({"type": "string", "minLength": 2, "maxLength": 2}, "\U0001f600\u00e4"),
    ({"type": "string", "pattern": "^(a+)+$"}, "b"),
    ({"type": "integer", "exclusiveMinimum": 0, "minimum": True}, 1),
    ({"type": "integer"}, 3.0),
    ({"type": "number", "exclusiveMaximum": 10**30}, 10**29),
    ({"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}]}, "b"),
    ({"type": "string", "allOf": [{"minLength": 1}, {"maxLength": 2}]}, "ab"),
    ({"type": "string", "anyOf": [{"minLength": 3}, {"const": ""}]}, ""),
    ({"type": "string", "anyOf": [{"minLength": 3}, {"const": ""}]}, "abc"),
    ({"type": "string", "anyOf": "junk", "enum": "junk"}, "a"),
)


@pytest.mark.parametrize(("schema", "answer"), RIGHT, ids=lambda value: json.dumps(value)[:50])
def test_an_answer_that_fits_goes_to_the_server(schema: Any, answer: Any) -> None:
    assert read(schema, answer) == answer


def test_null_fits_where_the_server_takes_it() -> None:
    assert form_of({"type": ["string", "null"]}).read({"a": None}) == {"a": None}


@pytest.mark.parametrize(
    ("others", "is_kept"), [({}, True), ({"additionalProperties": False}, False)]
)
def test_a_member_that_was_not_asked_for_follows_the_schema(
    others: dict[str, Any], is_kept: bool
) -> None:
    content = form_of({"type": "string"}, **others).read({"a": "x", "b": 1})
    assert content == ({"a": "x", "b": 1} if is_kept else None)


def test_the_answer_is_checked_against_the_schema_of_the_server_not_the_shown_one() -> None:
    schema = {"type": "number", "exclusiveMinimum": 0}
    assert shown(schema)["minimum"] == 0
    assert read(schema, 0) is None
    assert read(schema, 0.5) == 0.5


FORMATTED: Final = {
    "email": (
        ("a@b", "a.b+c@example.com", "\u00e4@example.com", '"x@y"@example.com'),
        ("", "a", "@b", "a@", "a b@c", "a@b c", "a@b\n"),
    ),
    "uri": (
        ("https://example.com/", "urn:a", "mailto:a@b", "A+b-1.c:x"),
        ("", "https", "example.com/", ":x", "1a:x", "a:", "https://a b", "\u00e4:x", "a:b\n"),
    ),
    "date": (
        ("2026-07-28", "2024-02-29", "2000-02-29", "0001-01-31", "2026-12-01"),
        (
            "",
            "2026-7-28",
            "2026-13-01",
            "2026-00-10",
            "2026-04-31",
            "2025-02-29",
            "1900-02-29",
            "2026-01-00",
            "20260728",
            "2026-W01-1",
            "2026-07-28\n",
            "\u0662026-07-28",
            "today",
        ),
    ),
    "date-time": (
        (
            "2026-07-28T10:00:00Z",
            "2026-07-28t10:00:00.123456+02:00",
            "2026-07-28 10:00",
            "2026-07-28T10:00z",
        ),
        (
            "2026-07-28",
            "2026-02-30T10:00:00Z",
            "2026-07-28T",
            "2026-07-28T10",
            "10:00:00Z",
            "2026-07-28T10:00:00+2",
            "2026-07-28T1\u0660:00:00Z",
            "2026-07-28T10:00:00Z\n",
        ),
    ),
    "unheard-of": (("", "x"), ()),
}


@pytest.mark.parametrize("kind", FORMATTED)
def test_a_format_is_kept_roughly(kind: str) -> None:
    right, wrong = FORMATTED[kind]
    schema = {"type": "string", "format": kind}
    assert [text for text in right if read(schema, text) != text] == []
    assert [text for text in wrong if read(schema, text) is not None] == []


# Hostile schemas -----------------------------------------------------------------


def test_a_reference_that_leads_nowhere_or_out_of_the_schema_is_refused() -> None:
    for reference in ("", "#", "#a", "#/$defs", "#/$defs/b", "#/type", "#/required/0", 3, None):
        schema = {
            "type": "object",
            "properties": {"a": {"$ref": reference}},
            "required": ["a"],
            "$defs": {"b": "string"},
        }
        assert is_refused(schema), reference
    for reference in ("https://example.com/s.json", "file:///etc/passwd", "//host/share", "s.json"):
        assert is_refused({"type": "object", "properties": {"a": {"$ref": reference}}})


RINGS: Final[tuple[dict[str, Any], ...]] = (
    {"r": {"$ref": "#/$defs/r"}},
    {"r": {"$ref": "#/$defs/s"}, "s": {"$ref": "#/$defs/r"}},
    {"r": {"allOf": [{"$ref": "#/$defs/r"}]}},
    {"r": {"anyOf": [{"$ref": "#/$defs/r"}, {"type": "null"}]}},
    {"r": {"anyOf": [{"$ref": "#/$defs/r"}, {"const": "a"}]}},
    {"r": {"type": "array", "items": {"$ref": "#/$defs/r"}}},
)


@pytest.mark.parametrize("definitions", RINGS, ids=json.dumps)
def test_a_ring_of_references_is_refused(definitions: dict[str, Any]) -> None:
    properties = {"a": {"$ref": "#/$defs/r"}}
    assert is_refused({"type": "object", "properties": properties, "$defs": definitions})


def test_a_ring_that_only_the_check_of_an_answer_meets_lets_nothing_pass() -> None:
    ring = {"type": "string", "allOf": [{"$ref": "#/$defs/r"}, {"$ref": "#/$defs/r"}]}
    assert form_of(ring, **{"$defs": {"r": ring}}).read({"a": "x"}) is None


def nest(width: int, levels: int) -> dict[str, Any]:
    """Definitions of which each uses the next `width` times."""
    definitions: dict[str, Any] = {f"d{levels}": {"minLength": 0}}
    for level in range(levels):
        definitions[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * width}
    return definitions


def spent_since(started: float) -> float:
    return time.process_time() - started


def test_definitions_that_use_one_another_many_times_cost_little() -> None:
    started = time.process_time()
    schema = {"type": "string", "allOf": [{"$ref": "#/$defs/d0"}, {}]}
    assert form_of(schema, **{"$defs": nest(100, 6)}).read({"a": "x"}) is None
    assert spent_since(started) < SECONDS
    assert form_of(schema, **{"$defs": nest(2, 6)}).read({"a": "x"}) == {"a": "x"}


def test_references_cannot_make_a_form_much_larger_than_its_schema() -> None:
    choices = {"enum": [f"choice {n}" for n in range(1000)]}
    started = time.process_time()
    for field in ({"$ref": "#/$defs/c"}, {"anyOf": [{"$ref": "#/$defs/c"}] * 50}):
        few: dict[str, Any] = {"0": field}
        many: dict[str, Any] = {str(n): field for n in range(10_000)}
        schema: Any = {"type": "object", "properties": few, "$defs": {"c": choices}}
        assert len(json.dumps(bridge.Form(schema).shown)) < 4 << 20
        assert is_refused({**schema, "properties": many})
    assert spent_since(started) < SECONDS


def test_ten_thousand_properties_are_shown_and_read_in_time() -> None:
    started = time.process_time()
    properties: Any = {f"p{n}": {"$ref": "#/$defs/t"} for n in range(10_000)}
    schema: Any = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "$defs": {"t": {"type": "string"}},
    }
    form = bridge.Form(schema)
    content: Any = dict.fromkeys(properties, "x")
    assert form.read(content) == content
    assert form.read({**content, "p9999": 3}) is None
    assert spent_since(started) < SECONDS


def choices_of(count: int) -> list[dict[str, Any]]:
    """Each way to offer so many choices, with an answer as its default."""
    values = [str(n) for n in range(count)]
    named = [{"const": value, "title": "t"} for value in values]
    return [
        {"type": "string", "enum": values, "default": values[-1]},
        {"type": "string", "oneOf": named, "default": values[-1]},
        {"type": "array", "items": {"type": "string", "enum": values}, "default": values[-2:]},
        {"type": "array", "items": {"anyOf": named}, "default": values[-2:]},
    ]


@pytest.mark.parametrize("way", range(4))
def test_many_choices_are_shown_and_read_in_time(way: int) -> None:
    schema: Any = choices_of(50_000)[way]
    started = time.process_time()
    form = bridge.Form({"type": "object", "properties": {"a": schema}})
    assert form.shown["properties"] == {"a": schema}
    assert form.read({"a": schema["default"]}) == {"a": schema["default"]}
    assert spent_since(started) < SECONDS


@pytest.mark.parametrize("way", range(4))
def test_a_choice_of_a_million_is_refused_in_time(way: int) -> None:
    schema = {"type": "object", "properties": {"a": choices_of(1_000_000)[way]}}
    started = time.process_time()
    assert is_refused(schema)
    assert spent_since(started) < SECONDS


def test_a_bound_that_is_infinite_is_shown_as_a_number_and_keeps_its_meaning() -> None:
    schema = {"type": "number", **json.loads('{"minimum": 1e999, "exclusiveMaximum": 1e999}')}
    form = form_of(schema)
    assert b"Infinity" not in bridge.encode_json(form.shown)
    assert form.read({"a": 1e308}) is None
    assert form_of({"type": "integer", "exclusiveMinimum": float("-inf")}).read({"a": -3})
    assert shown({"type": "string", "maxLength": float("inf")}) == {"type": "string"}


@pytest.mark.parametrize("name", ["__proto__", "", "constructor", "\ud800", "a\nb", "$ref", "~1"])
def test_a_property_may_have_any_name(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    form = compiled(schema)
    assert form.shown == schema
    assert form.read({name: "x"}) == {name: "x"}
    assert form.read({}) is None


def test_a_name_that_occurs_nowhere_else_has_no_choices_of_its_own() -> None:
    assert form_of({"enum": [1]}).read({"a": "1", "__proto__": "1"}) == {"a": 1, "__proto__": "1"}


def test_deep_nesting_is_refused_or_costs_nothing() -> None:
    deep: Any = {"type": "string"}
    for _ in range(180):
        deep = {"anyOf": [deep]}
    assert is_refused({"type": "object", "properties": {"a": deep}})
    inside = {"type": "string", "x-own": deep, "allOf": [{}, {"not": deep}]}
    assert read(inside, "x") == "x"
    assert form_of({"type": "string", "allOf": [{}, deep]}).read({"a": "x"}) is None


def test_huge_texts_are_shown_and_read() -> None:
    text = "\u00e4\ud800" * (1 << 17)
    schema = {"type": "string", "title": text, "minLength": 1 << 18, "default": text}
    assert shown(schema) == schema
    assert read(schema, text) == text
    assert is_refused({"type": "object", "properties": {}, "title": text * 4})
    for kind in ("email", "uri", "date-time"):
        started = time.process_time()
        for long in ("@a" * (1 << 20) + " ", "a:" + "a" * (1 << 20) + " ", "1" * (1 << 20)):
            assert read({"type": "string", "format": kind}, long) is None
        assert spent_since(started) < SECONDS


def test_an_integer_of_very_many_digits_is_no_bound_and_no_answer() -> None:
    long = bridge.parse_json(b"1" * 5000)
    assert shown({"type": "integer", "minimum": long}) == {"type": "integer"}
    for kind in ("integer", "number", "string"):
        assert form_of({"type": kind}).read({"a": long}) is None
