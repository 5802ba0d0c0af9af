"""The section `schemas`: what is done to tool schemas so that VS Code keeps the tool.

The oracle is the `jsonschema` package with the official meta-schemas, tightened where VS Code's own
copies are (VS Code 1.139.1: enum, empty URIs), and the walk of the Copilot extension for items.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import validators

import mcp_bridge_vscode as bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_06 = "http://json-schema.org/draft-06/schema#"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
MARKS = (DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019, DRAFT_2020)


def repaired(schema: Any) -> Any:
    return bridge.repair_input_schema(schema)[0]


def changes_of(schema: Any) -> list[tuple[str, str]]:
    """Where what was done, as the log lines say it."""
    changes = []
    for line in bridge.repair_input_schema(schema)[1]:
        found = re.fullmatch("(.*) at '(.*)' of the input schema", line, re.DOTALL)
        assert found is not None, line
        changes.append((found[2], found[1]))
    return changes


def is_left_alone(schema: Any) -> bool:
    answer, changes = bridge.repair_input_schema(schema)
    return answer is schema and not changes


def text_of(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False)  # tells 1, 1.0 and true apart


# The oracle ------------------------------------------------------------------


def is_number(_checker: Any, value: Any) -> bool:
    """Whether JSON.stringify of JavaScript writes it as a number."""
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_one and abs(value) <= sys.float_info.max


def is_integer(checker: Any, value: Any) -> bool:
    """Whether it writes it without a point."""
    return is_number(checker, value) and not repr(float(value)).rstrip("0").partition(".")[2]


def tightened(draft: Any, properties: dict[str, Any]) -> Any:
    """A validator of schemas as VS Code 1.139.1 has it, where that is not the official one."""
    meta = copy.deepcopy(dict(draft.META_SCHEMA))
    meta["properties"].update(properties)
    types = draft.TYPE_CHECKER.redefine("number", is_number).redefine("integer", is_integer)
    return VALIDATORS.extend(draft, type_checker=types)(meta)


def spellings(mark: str) -> list[str]:
    name = mark.split("://")[1].rstrip("#")
    return [f"{scheme}://{name}{end}" for scheme in ("http", "https") for end in ("", "#")]


VALIDATORS: Any = validators  # its `extend` has no types
URI = {"type": "string", "minLength": 1}
ORACLE = tightened(
    validators.Draft7Validator,
    {
        "enum": {"type": "array", "minItems": 1, "uniqueItems": True},
        "writeOnly": {"type": "boolean"},  # the Copilot extension's
        "$id": URI,
        "$ref": URI,
        "$schema": {"enum": [form for mark in MARKS for form in spellings(mark)]},
    },
)
ORACLES_OF_MARKS = {
    DRAFT_04: tightened(
        validators.Draft4Validator, {"id": {"type": "string", "pattern": "^[^:/?#]+:"}}
    ),
    DRAFT_06: validators.Draft6Validator(False),  # VS Code would have to download it
    DRAFT_2019: tightened(validators.Draft201909Validator, {}),
    DRAFT_2020: tightened(validators.Draft202012Validator, {}),
}
ITEMS_KEYWORDS = (
    *("properties", "patternProperties", "dependencies", "dependentSchemas", "$defs"),
    *("definitions", "additionalProperties", "not", "if", "then", "else", "contains"),
    *("anyOf", "allOf", "oneOf", "prefixItems", "items"),
)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """As the Copilot extension walks, over the reference's keywords."""
    if isinstance(schema, dict):
        yield schema
        for keyword in ITEMS_KEYWORDS:
            below = schema.get(keyword)
            if isinstance(below, dict) and keyword in bridge.MAP_SLOTS:
                below = list(below.values())
            for member in below if isinstance(below, list) else [below]:
                yield from nodes(member)


def is_javascript_false(value: Any) -> bool:
    return not value and not isinstance(value, (dict, list))


def lacks_items(schema: Any) -> bool:
    return any(
        node.get("type") == "array" and is_javascript_false(node.get("items"))
        for node in nodes(schema)
    )


def is_kept(schema: Any) -> bool:
    """Whether VS Code shows the tool and its Copilot extension still answers."""
    mark = schema.get("$schema")
    oracles = [ORACLE, *(o for m, o in ORACLES_OF_MARKS.items() if mark in spellings(m))]
    return all(oracle.is_valid(schema) for oracle in oracles) and not lacks_items(schema)


# Any schema at all -----------------------------------------------------------

NUMBERS = (0, 1, -1, 2.0, 2.5, -0.5, 1e300, float("inf"), 10**400, 3 * 10**21 + 1)
TEXTS = ("", "3", "-3.5", "--1", "1e3", "\u0663", "true", "False", "string", "String", "file")
URIS = ("#", "#/a#", "a:b", DRAFT_04, DRAFT_2020, "https://example.com/x")
LISTS: tuple[Any, ...] = (
    *([], [None], [[]], [""], ["a", "a"], ["a", 1], [1, 1.0, True], ["string", None, "file"]),
    *([{}, True], [{"a": [1]}, {"a": [1.0]}], [{"type": "file"}]),
)
MAPS: tuple[Any, ...] = (
    *({}, {"a": None}, {"a": []}, {"a": "b"}, {"a": ["b", "b"]}, {"a": {}}),
    {"a": {"required": True}},
)
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    (None, True, False, *NUMBERS, *TEXTS, *URIS, *LISTS, *MAPS)
)
RIGHT: dict[str, tuple[Any, ...]] = {
    "$id": ("https://example.com/s", "s.json", "#s"),
    "$ref": ("#", "#/$defs/a", "https://example.com/s"),
    "$anchor": ("a", "a-1.b", "9"),
    "id": ("https://example.com/s", "s"),
    "$comment": ("c",),
    "title": ("t",),
    "description": ("d",),
    "pattern": ("^a", "("),
    "format": ("date", "unheard-of"),
    "contentMediaType": ("text/html",),
    "contentEncoding": ("base64",),
    "readOnly": (True,),
    "writeOnly": (False,),
    "uniqueItems": (True,),
    "deprecated": (True, 1),
    "type": ("array", "object", "string", ["array", "null"], "array", "array"),
    "enum": ([1, True, "1", None], [[1], [True]], ["a"]),
    "const": (None, {"type": "file"}),
    "default": ({"type": "array"}, [None]),
    "examples": ([], [{"type": "file"}]),
    "required": (["a"], [], ["a", "b"], True),
    "multipleOf": (1, 0.5, -2),
    "minimum": (3, -1.5),
    "maximum": (3, 7),
    "exclusiveMinimum": (3, True, False),
    "exclusiveMaximum": (7.5, True, False),
    "minLength": (3, 0),
    "maxLength": (3,),
    "minItems": (1, 2.0),
    "maxItems": (1, 2.0),
    "minProperties": (1,),
    "maxProperties": (1,),
    "minContains": (1, -1),
    "maxContains": (1,),
    "dependentRequired": ({"a": ["b"]}, {"a": ["b", "b"]}),
    "$vocabulary": ({"https://example.com/v": True},),
    "$dynamicRef": ("#a",),
    "x-own": ({"type": "array"}, None),
    "nullable": (True,),
}


def schema_values(schemas: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    members = st.dictionaries(st.sampled_from(("a", "b", "~/", "type", "")), schemas, max_size=2)
    lists = st.lists(schemas, max_size=2)
    either = st.one_of(members, st.fixed_dictionaries({"a": st.sampled_from((["b"], []))}))
    return {
        **dict.fromkeys(("properties", "patternProperties", "definitions", "$defs"), members),
        **dict.fromkeys(("dependentSchemas",), members),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists),
        **dict.fromkeys(("additionalItems", "additionalProperties", "contains", "not"), schemas),
        **dict.fromkeys(("propertyNames", "if", "then", "else", "contentSchema"), schemas),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), schemas),
        "items": st.one_of(schemas, lists),
        "dependencies": either,
    }


def schemas_with(junk: bool) -> st.SearchStrategy[Any]:
    def extend(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        values = {k: st.sampled_from(right) for k, right in RIGHT.items()}
        values.update(schema_values(schemas))
        if junk:
            values = {k: st.one_of(good, good, JUNK) for k, good in values.items()}
        keywords = st.lists(st.sampled_from(sorted(values)), max_size=5, unique=True)
        return keywords.flatmap(lambda ks: st.fixed_dictionaries({k: values[k] for k in ks}))

    leaves = st.sampled_from((True, False, {}, {"type": "array"}, {"type": "array", "items": 0}))
    return st.recursive(leaves, extend, max_leaves=8)


def objects(schemas: st.SearchStrategy[Any], marks: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    def marked(schema: Any, mark: Any) -> Any:
        base = schema if isinstance(schema, dict) else {"items": schema}
        return base if mark is None else {"$schema": mark, **base}

    return st.builds(marked, schemas, st.sampled_from(marks))


BROKEN = objects(schemas_with(junk=True), (None, None, *MARKS, "https://example.com/x", 3, ""))
PLAUSIBLE = objects(schemas_with(junk=False), (None, None, None, *MARKS))
SETTINGS = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(st.one_of(BROKEN, PLAUSIBLE))
def test_whatever_comes_the_repaired_schema_is_kept_and_needs_no_second_repair(schema: Any) -> None:
    before = text_of(schema)
    answer, changes = bridge.repair_input_schema(schema)
    assert text_of(schema) == before
    assert is_kept(answer)
    assert (answer is schema) == (not changes)
    assert is_left_alone(answer)


@SETTINGS
@given(st.one_of(PLAUSIBLE, PLAUSIBLE, BROKEN))
def test_what_is_kept_today_is_the_same_object_afterwards(schema: Any) -> None:
    if "Infinity" in text_of(schema):
        return  # 1e999: no number for VS Code, and one for this oracle
    if is_kept(schema) and repaired(schema) is not schema:
        # Only the mark of another draft may go, which costs nothing, where a check is too strict.
        assert schema["$schema"] in {DRAFT_04, DRAFT_2019, DRAFT_2020}
        assert {"$schema": schema["$schema"], **repaired(schema)} == schema


# What VS Code was seen to omit, and what becomes of it ------------------------

OMITTED: tuple[tuple[Any, Any], ...] = (
    ({"$schema": "https://example.com/my-dialect"}, {}),
    ({"$schema": 3}, {}),
    ({"$schema": None}, {}),
    ({"$schema": ""}, {}),
    ({"$schema": "HTTP://json-schema.org/draft-07/schema"}, {}),
    ({"$schema": "https://json-schema.org/draft-07/schema##"}, {}),
    ({"$schema": "ftp://json-schema.org/draft-07/schema"}, {}),
    ({"$schema": "json-schema.org/draft-07/schema"}, {}),
    ({"items": None}, {"items": {}}),
    ({"items": []}, {"items": {}}),
    ({"items": 3}, {"items": {}}),
    ({"items": "string"}, {"items": {"type": "string"}}),
    ({"items": [None, {"type": "file"}]}, {"items": [{}, {}]}),
    ({"items": [], "additionalItems": {"type": "str"}}, {"items": {"type": "string"}}),
    ({"items": [], "additionalItems": None}, {"items": {}}),
    ({"exclusiveMinimum": True, "minimum": 3}, {"exclusiveMinimum": 3}),
    ({"maximum": "3", "exclusiveMaximum": True}, {"exclusiveMaximum": 3}),
    ({"exclusiveMinimum": True, "minimum": None}, {}),
    ({"exclusiveMinimum": True}, {}),
    ({"exclusiveMaximum": False, "maximum": 3}, {"maximum": 3}),
    ({"type": "file"}, {}),
    ({"type": "String"}, {"type": "string"}),
    ({"type": "int"}, {"type": "integer"}),
    ({"type": None}, {}),
    ({"type": {}}, {}),
    ({"type": []}, {}),
    ({"type": ["file"]}, {}),
    ({"type": ["string", "file"]}, {"type": ["string"]}),
    ({"type": ["string", None, {}, "str"]}, {"type": ["string", "null"]}),
    ({"type": ["string", "string"]}, {"type": ["string"]}),
    ({"required": True}, {}),
    ({"required": False}, {}),
    ({"required": "a"}, {}),
    ({"required": ["a", "b", "a"]}, {"required": ["a", "b"]}),
    ({"required": ["a", 3, None]}, {"required": ["a"]}),
    ({"enum": []}, {}),
    ({"enum": "a"}, {}),
    ({"enum": ["b", "a", "b"]}, {"enum": ["b", "a"]}),
    ({"enum": [1, True, 1.0, "1"]}, {"enum": [1, True, "1"]}),
    ({"enum": [0, False, None, "", -0.0]}, {"enum": [0, False, None, ""]}),
    ({"enum": [{"a": [1, {}]}, {"a": [1.0, {}]}]}, {"enum": [{"a": [1, {}]}]}),
    ({"minLength": "3"}, {"minLength": 3}),
    ({"minLength": "3.0"}, {"minLength": 3.0}),
    ({"minLength": "-3"}, {}),
    ({"minLength": "three"}, {}),
    ({"minLength": "--3"}, {}),
    ({"minLength": "\u0663"}, {}),
    ({"minLength": "1" * 16}, {}),
    ({"minLength": True}, {}),
    ({"minLength": None}, {}),
    ({"minLength": -1}, {}),
    ({"minLength": 1.5e21}, {}),
    ({"minLength": float("inf")}, {}),
    ({"maxItems": 2.5}, {"maxItems": 2}),
    ({"minItems": 2.5}, {"minItems": 3}),
    ({"maxProperties": -0.5}, {}),
    ({"minProperties": -0.5}, {"minProperties": 0}),
    ({"minimum": "-3.5"}, {"minimum": -3.5}),
    ({"maximum": 10**400}, {}),
    ({"multipleOf": 0}, {}),
    ({"multipleOf": "x"}, {}),
    ({"multipleOf": -2}, {"multipleOf": 2}),
    ({"description": 3}, {}),
    ({"title": None, "pattern": [], "format": 1}, {}),
    ({"$comment": 1, "contentMediaType": {}, "contentEncoding": False}, {}),
    ({"examples": {}}, {}),
    ({"readOnly": 1, "writeOnly": "x"}, {}),
    ({"uniqueItems": "True"}, {"uniqueItems": True}),
    ({"$id": ""}, {}),
    ({"$id": 3, "$ref": 3}, {}),
    ({"$ref": ""}, {"$ref": "#"}),
    ({"properties": {"a": None}}, {"properties": {"a": {}}}),
    ({"properties": {"a": "string", "b": []}}, {"properties": {"a": {"type": "string"}, "b": {}}}),
    ({"properties": [], "patternProperties": None, "definitions": 3}, {}),
    ({"additionalProperties": None, "propertyNames": 3, "contains": []}, {}),
    ({"additionalProperties": "false"}, {"additionalProperties": False}),
    ({"not": None, "if": 3, "then": [], "else": ""}, {}),
    ({"allOf": [], "anyOf": None, "oneOf": [None]}, {}),
    ({"allOf": {"type": "string"}}, {"allOf": [{"type": "string"}]}),
    ({"anyOf": [{"type": "file"}, None, "null"]}, {"anyOf": [{}, {"type": "null"}]}),
    ({"dependencies": []}, {}),
    ({"dependencies": {"a": ["b", "b"], "c": "d"}}, {"dependencies": {"a": ["b"], "c": ["d"]}}),
    ({"dependencies": {"a": 3, "b": {"type": "file"}}}, {"dependencies": {"b": {}}}),
)


@pytest.mark.parametrize(("schema", "answer"), OMITTED, ids=lambda value: text_of(value)[:50])
def test_what_vscode_omits_becomes_what_it_must_have_meant(schema: Any, answer: Any) -> None:
    assert not is_kept(schema)
    assert text_of(repaired(schema)) == text_of(answer)
    assert text_of(repaired({"not": {"anyOf": [schema]}})["not"]["anyOf"]) == text_of([answer])


KEPT: tuple[Any, ...] = (
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": False},
    *({"type": "object", "$schema": mark} for mark in MARKS if mark != DRAFT_06),
    {"$schema": DRAFT_07.replace("http:", "https:").rstrip("#")},
    {"$schema": DRAFT_2020 + "#"},
    {"$schema": DRAFT_2020, "$vocabulary": {"https://example.com/v": True}, "$id": "a#"},
    {"$schema": DRAFT_2020, "$anchor": "a-1", "$dynamicRef": "#a", "unevaluatedProperties": False},
    {"$schema": DRAFT_2019, "items": [{}], "$recursiveRef": "#", "minContains": 0},
    {"$schema": DRAFT_04, "id": "https://example.com/s", "required": ["a"], "minimum": 3},
    {"items": True},
    {"items": False},
    {"type": ["array", "null"]},
    {"prefixItems": [{}]},
    {"oneOf": [{}]},
    {"exclusiveMinimum": 3, "maximum": 7.5, "multipleOf": 0.01},
    {"required": []},
    {"enum": list(range(3000))},
    {"enum": [1, True, "1", [1], [True], {"a": 1}, {"a": True}, None, False, 0, "", [], {}]},
    {"const": None, "default": {"type": "file"}, "examples": [{"type": "file"}]},
    {"format": "unheard-of", "pattern": "("},
    {"minLength": 2.0, "maxLength": 1e21},
    {"properties": {"a": True, "b": False}},
    {"$ref": "#/nowhere", "description": "siblings"},
    {"$ref": "https://example.com/s"},
    {"$anchor": 3, "$dynamicRef": 3, "dependentRequired": 3, "minContains": -1},
    {"unevaluatedItems": 3, "contentSchema": [], "deprecated": 3, "$defs": [], "prefixItems": {}},
    {"contains": {}, "minContains": 2, "maxContains": 3},
    {"if": {}, "then": True, "dependencies": {"a": [], "b": ["c"], "d": {}, "e": True}},
    {"$defs": {"a": {"type": "file", "required": True}}, "dependentSchemas": {"a": {"enum": []}}},
    {"x-own": {"type": "array", "items": None}, "nullable": "yes", "id": 3},
    {"properties": {"$schema": {}, "required": {"type": "boolean"}, "items": {"const": 1}}},
)


@pytest.mark.parametrize("schema", KEPT, ids=lambda value: text_of(value)[:50])
def test_what_vscode_keeps_is_left_alone(schema: Any) -> None:
    assert is_kept(schema)
    assert is_left_alone(schema)


@pytest.mark.parametrize("schema", [None, True, False, 0, "", [], "object", [{}]])
def test_what_is_no_object_becomes_a_schema_of_any_object(schema: Any) -> None:
    assert repaired(schema) == {"type": "object"}
    assert changes_of(schema) == [("", "replaced an input schema that is no object")]


def test_the_required_of_draft_03_goes_into_the_list_of_the_parent() -> None:
    listed = {"required": ["d"]}
    properties = {"a": {"required": True}, "b": {"required": False}, "c": listed, "e": 1}
    answer = {"a": {}, "b": {}, "c": listed, "e": {}}
    for required in (None, False, ["a"]):
        schema = {"properties": properties, "required": required}
        assert repaired(schema) == {"properties": answer, "required": ["a"]}
    assert repaired({"properties": properties}) == {"properties": answer, "required": ["a"]}
    mixed = {"required": ["z", 3], "properties": {"a": {"required": True}}}
    assert repaired(mixed)["required"] == ["z", "a"]


def test_the_required_of_draft_03_is_lifted_through_every_level() -> None:
    schema = {"properties": {"a": {"required": True, "properties": {"b": {"required": True}}}}}
    inner = {"required": ["b"], "properties": {"b": {}}}
    assert repaired(schema) == {"required": ["a"], "properties": {"a": inner}}


# The mark --------------------------------------------------------------------

UNFIT: tuple[tuple[str, Any], ...] = (
    (DRAFT_04, {"exclusiveMinimum": 3}),
    (DRAFT_04, {"required": []}),
    (DRAFT_04, {"dependencies": {"a": []}}),
    (DRAFT_04, {"properties": {"a": True}}),
    (DRAFT_04, {"id": "s"}),
    (DRAFT_04, {"id": 3}),
    (DRAFT_04, {"id": "a/b:c"}),
    (DRAFT_06, {}),
    (DRAFT_2019, {"$id": "#a"}),
    (DRAFT_2019, {"$recursiveAnchor": 1}),
    (DRAFT_2019, {"dependentSchemas": {"a": 3}}),
    (DRAFT_2020, {"items": [{}]}),
    (DRAFT_2020, {"$anchor": "9"}),
    (DRAFT_2020, {"$anchor": "a b"}),
    (DRAFT_2020, {"$dynamicRef": 3}),
    (DRAFT_2020, {"$vocabulary": {"https://example.com/v": 1}}),
    (DRAFT_2020, {"prefixItems": []}),
    (DRAFT_2020, {"minContains": -1}),
    (DRAFT_2020, {"dependentRequired": {"a": ["b", "b"]}}),
    (DRAFT_2020, {"$defs": []}),
    (DRAFT_2020, {"$defs": {"a": None}}),
    (DRAFT_2020, {"$defs": {"a": {"type": "file"}}}),
    (DRAFT_2020, {"unevaluatedProperties": {"contentSchema": {"minLength": "3"}}}),
)


@pytest.mark.parametrize(("mark", "schema"), UNFIT, ids=text_of)
def test_a_mark_that_the_schema_does_not_fit_goes_and_nothing_else(mark: str, schema: Any) -> None:
    marked = {"$schema": mark, **schema}
    assert not is_kept(marked)
    assert repaired(marked) == schema
    draft = mark.rstrip("#").split("/")[-2]
    assert changes_of(marked) == [
        ("", f"removed the $schema mark {draft}, with which VS Code omits the tool")
    ]
    inner = {"$schema": mark, "properties": {"p": schema or {"const": 1}}}
    assert is_kept(repaired(inner))


def test_a_repair_that_draft_04_does_not_take_costs_its_mark() -> None:
    schema = {"$schema": DRAFT_04, "properties": {"a": {"minimum": 3, "exclusiveMinimum": True}}}
    assert repaired(schema) == {"properties": {"a": {"exclusiveMinimum": 3}}}
    assert [what for _, what in changes_of(schema)] == [
        "removed the $schema mark draft-04, with which VS Code omits the tool",
        "made exclusiveMinimum a number",
    ]


def test_a_repair_that_its_draft_takes_leaves_the_mark() -> None:
    for mark in (DRAFT_04, DRAFT_07, DRAFT_2019, DRAFT_2020):
        assert repaired({"$schema": mark, "type": "file"}) == {"$schema": mark}


def test_under_a_known_mark_of_its_own_a_subschema_is_left_alone_and_else_loses_it() -> None:
    assert is_left_alone({"properties": {"a": {"$schema": DRAFT_06}}})
    foreign = {"properties": {"a": {"$schema": "https://example.com/x"}}}
    assert repaired(foreign) == {"properties": {"a": {}}}
    assert changes_of(foreign) == [("/properties/a", "removed the unknown $schema mark")]


# The items rule --------------------------------------------------------------

ADDED = "added an items schema"


@pytest.mark.parametrize("items", [None, 0, 0.0, -0.0, ""])
def test_an_array_schema_without_usable_items_gets_some(items: Any) -> None:
    for schema in ({"type": "array"}, {"type": "array", "items": items}):
        for where in ("$defs", "properties"):
            answer = {where: {"a": {"type": "array", "items": {}}}}
            assert repaired({where: {"a": schema}}) == answer
            assert changes_of({where: {"a": schema}}) == [(f"/{where}/a", ADDED)]


def test_items_false_becomes_a_bound_that_accepts_the_same_arrays() -> None:
    no_items = {"type": "array", "items": False}
    assert repaired(no_items) == {"type": "array", "items": {}, "maxItems": 0}
    assert repaired({**no_items, "prefixItems": [{}, {}]})["maxItems"] == 2
    assert repaired({**no_items, "prefixItems": 3})["maxItems"] == 0
    assert repaired({**no_items, "maxItems": 1}) == {"type": "array", "items": {}, "maxItems": 1}
    empty = {"type": "array", "items": [], "additionalItems": False}
    assert repaired(empty) == {"type": "array", "items": {}, "maxItems": 0}


@pytest.mark.parametrize("keyword", ITEMS_KEYWORDS)
def test_the_items_rule_looks_under_every_keyword_of_the_reference(keyword: str) -> None:
    below: Any = {"a": {"type": "array"}} if keyword in bridge.MAP_SLOTS else {"type": "array"}
    pointer = f"/{keyword}/a" if keyword in bridge.MAP_SLOTS else f"/{keyword}"
    if keyword in {"anyOf", "allOf", "oneOf", "prefixItems"}:
        below, pointer = [below], f"/{keyword}/0"
    assert changes_of({keyword: below}) == [(pointer, ADDED)]
    assert not lacks_items(repaired({keyword: below}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {}},
        {"type": "array", "items": True},
        {"type": "array", "items": [{}]},
        {"type": ["array"]},
        {"additionalItems": {"type": "array"}, "propertyNames": {"type": "array"}},
        {"unevaluatedItems": {"type": "array"}, "contentSchema": {"type": "array"}},
        {"enum": [{"type": "array"}], "const": {"type": "array"}, "default": {"type": "array"}},
        {"dependencies": {"a": ["b"]}, "$defs": 3, "prefixItems": {"a": {"type": "array"}}},
        {"$defs": {"a": 3, "b": {"items": [], "properties": [{"type": "array"}]}}},
        {"$defs": {"a": {"type": "array", "items": "x"}, "b": {"type": "array", "items": []}}},
    ],
)
def test_the_items_rule_leaves_alone_what_it_is_not_about(schema: Any) -> None:
    assert is_left_alone(schema)


def nested(levels: int, innermost: Any, keyword: str = "items") -> Any:
    for _ in range(levels):
        innermost = {keyword: innermost}
    return innermost


def test_the_items_rule_stops_at_64_levels_with_one_note_and_the_repair_does_not() -> None:
    assert changes_of(nested(64, {"type": "array"})) == [("/items" * 64, ADDED)]
    deep = nested(65, {"type": "array"})
    answer, changes = bridge.repair_input_schema({"anyOf": [deep, deep]})
    assert answer == {"anyOf": [deep, deep]}
    pointer = "/anyOf/0" + "/items" * 64
    assert changes == [f"the input schema at '{pointer}' is too deep to examine"]
    broken = nested(70, {"type": ["array", "file"]})
    assert repaired(broken) == nested(70, {"type": ["array"]})


# What is told ----------------------------------------------------------------


def test_changes_come_in_document_order_with_json_pointers() -> None:
    schema: Any = {
        "properties": {"a/b~c": {"type": "file", "minLength": "3"}, "": {"type": "array"}},
        "required": ["x", "x"],
        "allOf": [{}, {"enum": []}],
    }
    assert changes_of(schema) == [
        ("", "corrected an invalid required"),
        ("/properties/a~1b~0c", "removed an invalid type"),
        ("/properties/a~1b~0c", "corrected an invalid minLength"),
        ("/properties/", ADDED),
        ("/allOf/1", "removed an invalid enum"),
    ]


def test_a_change_has_its_log_line() -> None:
    _, changes = bridge.repair_input_schema({"properties": {"a": {"type": "array"}}})
    assert changes == ["added an items schema at '/properties/a' of the input schema"]


def test_all_changes_are_made_but_only_a_hundred_are_told() -> None:
    schema: Any = {"properties": {f"p{number}": {"type": "file"} for number in range(250)}}
    answer, changes = bridge.repair_input_schema(schema)
    assert answer == {"properties": {f"p{number}": {} for number in range(250)}}
    assert len(changes) == 101
    assert changes[99] == "removed an invalid type at '/properties/p99' of the input schema"
    assert changes[100] == "and 150 more changes of the input schema"


def test_a_long_pointer_is_cut() -> None:
    [(pointer, _)] = changes_of({"properties": {"p" * 5000: {"type": "file"}}})
    assert pointer == "/properties/" + "p" * 988 + "..."


# What is touched -------------------------------------------------------------


def test_an_enum_has_nothing_twice_in_the_numbers_of_javascript() -> None:
    assert repaired({"enum": [2**53, 2**53 + 1]}) == {"enum": [2**53]}
    assert repaired({"enum": [10**400, 10**401]}) == {"enum": [10**400]}


def test_only_the_way_to_a_change_is_copied() -> None:
    schema: Any = {
        "properties": {"a": {"allOf": [{"type": "file"}, {"type": "string"}]}, "b": {"title": "b"}},
        "definitions": {"c": {}},
        "default": {"type": "array"},
    }
    before = text_of(schema)
    answer: Any = repaired(schema)
    assert text_of(schema) == before
    assert answer["properties"]["a"] == {"allOf": [{}, {"type": "string"}]}
    assert answer["properties"]["a"]["allOf"][1] is schema["properties"]["a"]["allOf"][1]
    assert answer["properties"]["b"] is schema["properties"]["b"]
    assert answer["definitions"] is schema["definitions"]
    assert answer["default"] is schema["default"]


def test_a_subtree_in_two_places_is_repaired_in_both_and_stays_what_it_was() -> None:
    shared = {"type": "array", "title": 3}
    schema = {"properties": {"a": shared, "b": shared}}
    item = {"type": "array", "items": {}}
    assert repaired(schema) == {"properties": {"a": item, "b": item}}
    assert shared == {"type": "array", "title": 3}


# Hostile schemas -------------------------------------------------------------


MOST_SECONDS = 30.0  # of the processor: what is not linear takes minutes


def seconds_for(schema: Any) -> float:
    start = time.process_time()
    bridge.repair_input_schema(schema)
    return time.process_time() - start


def test_a_hundred_thousand_properties_take_less_than_a_second() -> None:
    right = {f"p{n}": {"type": "string", "description": "d"} for n in range(100_000)}
    wrong = {f"p{n}": {"type": "array", "description": "d"} for n in range(100_000)}
    for properties in (right, wrong):
        schema = {"type": "object", "properties": properties}
        assert any(seconds_for(schema) < MOST_SECONDS for _ in range(3))


def test_definitions_that_use_each_other_twice_are_not_expanded() -> None:
    definitions: Any = {"d0": {"type": "array"}}
    for number in range(1, 31):
        twice = {"$ref": f"#/definitions/d{number - 1}"}
        definitions[f"d{number}"] = {"properties": {"a": twice, "b": twice}}
    schema = {"$ref": "#/definitions/d30", "definitions": definitions}
    answer = repaired(schema)
    assert len(text_of(answer)) == len(text_of(schema)) + len(', "items": {}')
    assert seconds_for(schema) < 0.1


def test_references_and_names_of_files_pass_as_they_came() -> None:
    for reference in ("http://127.0.0.1:1/s", "file:///etc/passwd", "\\\\host\\share\\s", "a b"):
        assert is_left_alone({"$ref": reference, "properties": {"a": {"$ref": reference}}})


@pytest.mark.parametrize("keyword", ["items", "additionalItems", "not"])
def test_a_schema_of_any_depth_is_walked_without_recursion(keyword: str) -> None:
    levels = 60_000
    assert levels > sys.getrecursionlimit()
    answer = repaired(nested(levels, {"type": "file"}, keyword))
    for _ in range(levels):
        answer = answer[keyword]
    assert answer == {}


@pytest.mark.parametrize("key", [None, "a"])
def test_values_as_deep_as_a_message_may_be_are_compared_in_an_enum(key: str | None) -> None:
    deep: Any = 1
    same: Any = 1.0
    for _ in range(bridge.LIMITS.server_depth):
        deep, same = ([deep], [same]) if key is None else ({key: deep}, {key: same})
    assert repaired({"enum": [deep, same, "a"]}) == {"enum": [deep, "a"]}
