"""Questions of the server: forms and their answers, URLs, and the state of a request.

The oracle of an answer is the `jsonschema` package with Draft 2020-12, and the server's own schema.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import mcp_bridge_vscode as bridge
from tests.property.strategies import PROPERTY, SPACES, STRINGS
from tests.support.official_forms import OFFICIAL

# Forms -----------------------------------------------------------------------------

WORDS: Final = st.sampled_from(("", "a", "b", "ab", "1", "true", "\u00e4\U0001f600", "\ud800"))
NUMBERS: Final = st.sampled_from((-1, 0, 1, 2, 3, 10**30, -0.5, 0.0, 1.0, 1.5, 1e308))
ATOMS: Final = st.one_of(WORDS, NUMBERS, st.booleans())
COUNTS: Final = st.sampled_from((0, 1, 2, 3, 2.0))
TITLES: Final = st.sampled_from(("", "A", "B", "\u00e4"))
NAMES: Final = st.sampled_from(("p", "q", "", "__proto__"))


def optional(**members: Any) -> Any:
    return st.fixed_dictionaries({}, optional=members)


def joined(*parts: Any) -> Any:
    """One schema with the members of all; the later ones win."""
    return st.tuples(*parts).map(lambda found: {k: v for part in found for k, v in part.items()})


def typed(kind: str) -> Any:
    return st.sampled_from(({"type": kind}, {"type": [kind, "null"]}, {"type": [kind]}))


LISTED: Final = st.lists(WORDS, min_size=1, max_size=3, unique=True).map(lambda vs: {"enum": vs})
MIXED: Final = st.lists(ATOMS, min_size=1, max_size=3, unique_by=json.dumps).map(
    lambda values: {"enum": values}
)
NAMED: Final = st.lists(
    joined(WORDS.map(lambda value: {"const": value}), optional(title=TITLES)),
    min_size=1,
    max_size=3,
)
CHOICE: Final = st.one_of(
    LISTED,
    joined(typed("string"), LISTED, optional(enumNames=st.lists(TITLES, max_size=3))),
    WORDS.map(lambda value: {"const": value}),
    NAMED.map(lambda parts: {"oneOf": parts}),
    NAMED.map(lambda parts: {"anyOf": parts}),
    st.tuples(LISTED, LISTED).map(lambda parts: {"anyOf": [*parts]}),
)
TYPED_CHOICE: Final = joined(
    typed("string"), st.one_of(LISTED, CHOICE.filter(lambda c: "const" in c))
)
OTHER_CHOICE: Final = st.one_of(MIXED, ATOMS.map(lambda value: {"const": value}))
TEXT: Final = joined(typed("string"), optional(minLength=COUNTS, maxLength=COUNTS))
NUMBER: Final = joined(
    st.one_of(typed("number"), typed("integer")), optional(minimum=NUMBERS, maximum=NUMBERS)
)
STRICT_NUMBER: Final = joined(NUMBER, optional(exclusiveMinimum=NUMBERS, exclusiveMaximum=NUMBERS))
SEVERAL: Final = st.one_of(CHOICE, CHOICE, OTHER_CHOICE).flatmap(
    lambda items: joined(
        st.just({"items": items}), typed("array"), optional(minItems=COUNTS, maxItems=COUNTS)
    )
)
FAITHFUL: Final = st.one_of(TEXT, NUMBER, typed("boolean"), CHOICE, OTHER_CHOICE, SEVERAL)
LOOSE: Final = st.one_of(
    STRICT_NUMBER,
    joined(SEVERAL, st.just({"uniqueItems": True})),
    st.lists(st.one_of(TEXT, TYPED_CHOICE), min_size=2, max_size=2).map(
        lambda parts: {"anyOf": parts}
    ),
    st.lists(TEXT, min_size=2, max_size=2).map(lambda ps: {"type": "string", "allOf": ps}),
    st.lists(TEXT, min_size=2, max_size=2).map(lambda ps: {"type": "string", "oneOf": ps}),
)


def wrapped(fields: Any) -> Any:
    """The same schemas, also as pydantic and others write them."""
    null = {"type": "null"}
    ways = st.sampled_from(
        (
            lambda field: field,
            lambda field: field,
            lambda field: {"anyOf": [field, null]},
            lambda field: {"oneOf": [null, field]},
            lambda field: {"allOf": [field], "description": "d"},
            lambda field: {"$ref": field},  # a place in $defs, see `rooted`
            lambda field: {"anyOf": [{"$ref": field}, null], "default": None},
        )
    )
    defaults: Any = st.one_of(st.just({}), ATOMS.map(lambda value: {"default": value}))
    return st.tuples(ways, fields, defaults).map(lambda t: {**t[0](t[1]), **t[2]})


def rooted(properties: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """A requestedSchema; what a reference holds moves into `$defs`."""
    definitions: dict[str, Any] = {}

    def moved(field: Any) -> Any:
        if isinstance(field, list):
            return [moved(part) for part in field]
        if not isinstance(field, dict):
            return field
        if isinstance(field.get("$ref"), dict):
            name = f"d{len(definitions)}"
            definitions[name] = field["$ref"]
            return {**field, "$ref": f"#/$defs/{name}"}
        return {key: moved(value) for key, value in field.items()}

    moved_properties = {name: moved(field) for name, field in properties.items()}
    required = [name for name in rest.pop("required", []) if name in properties]
    return {
        "type": "object",
        "properties": moved_properties,
        "$defs": definitions,
        "required": required,
        **rest,
    }


def forms(fields: Any) -> Any:
    properties = st.dictionaries(NAMES, wrapped(fields), min_size=1, max_size=3)
    rest = optional(
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=st.sampled_from((True, False)),
    )
    return st.builds(rooted, properties, rest)


def atoms_in(value: Any) -> list[Any]:
    """Everything in a schema that could be (part of) an answer."""
    if isinstance(value, dict):
        return [atom for part in value.values() for atom in atoms_in(part)]
    if isinstance(value, list):
        return [atom for part in value for atom in atoms_in(part)]
    return [value]


def answers_to(schema: dict[str, Any]) -> Any:
    near = st.one_of(st.sampled_from(atoms_in(schema)), ATOMS, st.none())
    values = st.one_of(near, near, st.lists(near, max_size=3), st.just({"a": 1}))
    names = st.one_of(st.sampled_from(sorted(schema["properties"])), NAMES)
    return st.dictionaries(names, values, max_size=4)


def meant(form: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """The content with the texts of choices replaced by what they stand for, done again here."""

    def listed(field: Any) -> list[Any]:
        if isinstance(field, list):
            return [value for part in field for value in listed(part)]
        if not isinstance(field, dict):
            return []
        if "$ref" in field:
            return listed(form["$defs"][field["$ref"].rpartition("/")[2]])
        found = [field["const"]] if "const" in field else list(field.get("enum", []))
        keys = ("anyOf", "oneOf", "allOf", "items")
        return found + [value for key in keys if key in field for value in listed(field[key])]

    def replaced(value: Any, choices: dict[str, Any]) -> Any:
        if isinstance(value, list):
            return [replaced(one, choices) for one in value]
        return choices.get(value, value) if isinstance(value, str) else value

    result = {}
    for name, value in content.items():
        values = listed(form["properties"].get(name))
        texts = {v if isinstance(v, str) else json.dumps(v): v for v in values if v is not None}
        result[name] = replaced(value, texts)
    return result


def without_empty_fields(
    schema: dict[str, Any], form: bridge.Form, content: dict[str, Any]
) -> dict[str, Any]:
    """What VS Code fills in for an optional field that the user left empty is left out."""
    fields: Any = form.shown["properties"]

    def is_left_empty(name: str, value: Any) -> bool:
        if name not in schema["properties"] or name in schema.get("required", []):
            return False
        if isinstance(value, list):
            items = fields[name].get("items")
            return items is not None and not all(
                Draft202012Validator(items).is_valid(one) for one in value
            )
        field = {"allOf": [schema["properties"][name]], "$defs": schema.get("$defs", {})}
        return value in (None, "") and not Draft202012Validator(field).is_valid(value)

    return {name: value for name, value in content.items() if not is_left_empty(name, value)}


@st.composite
def forms_and_answers(draw: Any, fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = draw(forms(fields))
    return schema, draw(answers_to(schema))


def compiled(schema: dict[str, Any]) -> bridge.Form:
    """The form, whose shown schema is right by the official type."""
    form = bridge.Form(schema)
    OFFICIAL.validate(form.shown)
    return form


MANY: Final = settings(PROPERTY, max_examples=300)
SOME: Final = settings(PROPERTY, max_examples=100)


@MANY
@given(forms_and_answers(st.one_of(FAITHFUL, FAITHFUL, LOOSE)))
def test_an_answer_is_taken_exactly_when_it_fits_the_schema_of_the_server(
    case: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, content = case
    form = compiled(schema)
    expected = meant(schema, without_empty_fields(schema, form, content))
    read = form.read(content)
    if Draft202012Validator(schema).is_valid(expected):
        assert json.dumps(read) == json.dumps(expected)
    else:
        assert read is None


@SOME
@given(st.data())
def test_what_fits_the_shown_form_fits_the_schema_of_the_server(data: st.DataObject) -> None:
    schema = data.draw(forms(FAITHFUL))
    form = compiled(schema)
    fields: Any = form.shown["properties"]
    content: dict[str, Any] = {}
    for name, field in fields.items():
        choices = [field, field.get("items", {})]
        near = st.one_of(*[st.sampled_from(atoms_in(choice)) for choice in choices if choice])
        value = data.draw(st.one_of(near, ATOMS, st.lists(near, max_size=3)))
        if Draft202012Validator(field).is_valid(value):
            content[name] = value
    if all(name in content for name in schema["required"]) and not has_twins(schema):
        assert form.read(content) is not None


def has_twins(schema: dict[str, Any]) -> bool:
    """Has a oneOf two equal alternatives, of which no answer fits exactly one?"""
    text = json.dumps(schema)
    return any(
        len({json.dumps(part.get("const")) for part in found}) < len(found)
        for found in [o for o in atoms_of_key(json.loads(text), "oneOf") if len(o) > 1]
    )


def atoms_of_key(value: Any, key: str) -> list[Any]:
    if isinstance(value, list):
        return [found for part in value for found in atoms_of_key(part, key)]
    if not isinstance(value, dict):
        return []
    own = [value[key]] if isinstance(value.get(key), list) else []
    return own + [found for part in value.values() for found in atoms_of_key(part, key)]


KEYWORDS: Final = (
    *("type", "enum", "const", "enumNames", "title", "description", "default", "format"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems"),
    *("items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "required", "properties"),
)
LEAVES: Final = st.one_of(
    ATOMS,
    st.none(),
    st.sampled_from(("string", "array", "object", "null", "#/$defs/a", "#/properties/a", "date")),
    st.just(float("inf")),
)
JUNK: Final = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from((*KEYWORDS, "a")), inner, max_size=4),
    ),
    max_leaves=10,
)


@MANY
@given(st.dictionaries(st.sampled_from(("a", "b")), JUNK, min_size=1, max_size=2), JUNK)
def test_whatever_the_schema_is_it_is_refused_or_shown_in_the_official_shape(
    properties: dict[str, Any], definition: Any
) -> None:
    schema: Any = {"properties": properties, "$defs": {"a": definition}}
    before = repr(schema)
    try:
        form = bridge.Form(schema)
    except bridge.FormError:
        return
    OFFICIAL.validate(json.loads(bridge.encode_json(form.shown)))
    for value in [{}, [[]], *atoms_in(schema)[:20]]:
        read = form.read({"a": value})
        assert read is None or list(read) in (["a"], [])  # left out: see without_empty_fields
    assert repr(schema) == before


# The state of a request -------------------------------------------------------------


PARAMS: Final = st.sampled_from(
    (
        "{}",
        '{"name":"t","arguments":{"b":1.0,"a":[1E5,"\u00e9\\u00e9"]}}',
        ' { "z" : "\\/" , "task":{},"_meta":{"progressToken":1}, "a" : null } ',
        '{"requestState":"own","a":1}',
        '{"inputResponses":{},"a":"requestState","request\\u0053tate":"own"}',
    )
)


def retried(state: bytes | None, params: str) -> tuple[bytes, bytes]:
    """The params of the first round and of the retry after a result with that state."""
    client = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}' % params.encode()
    first = bridge.params_to_modern(bridge.parse_frame(client, 64).object("params"))
    member = b"" if state is None else b',"requestState":' + state
    line = b'{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required"%s}}' % member
    result = bridge.parse_frame(line, 200).object("result")
    assert result is not None
    answers: Any = {"who": {"action": "decline"}}
    retry = bridge.retry_members(first, result, answers)
    return b"".join(bridge.join_object(first)), b"".join(bridge.join_object(retry))


def members_of(text: bytes) -> list[tuple[str, bytes]]:
    params = bridge.parse_frame(text, 200)
    return [(key, bytes(params.raw(key))) for key in params.members]


@SOME
@given(STRINGS, SPACES, PARAMS, st.just(1))
@example(r'"\u0000\/\ud800\udfff\uD83D\ude00\b"', " ", "{}", 1)
@example('"\u00e9\U0001f600\x7f\u2028"', "\t", '{"requestState":"own","a":1}', 1 << 14)
@example(r'"\/\u0000"', "", '{"inputResponses":{},"requestState":1}', 1 << 14)
def test_any_state_arrives_byte_for_byte_and_nothing_else_of_the_request_changes(
    state: str, space: str, params: str, times: int
) -> None:
    state = '"' + state[1:-1] * times + '"'
    first, retry = retried((space + state + space).encode(), params)
    *kept, responses, echoed = members_of(retry)
    assert echoed == ("requestState", state.encode())
    assert responses == ("inputResponses", b'{"who":{"action":"decline"}}')
    assert kept == members_of(first)
    assert not {"requestState", "inputResponses"} & {key for key, _ in kept}


@PROPERTY
@given(PARAMS)
def test_without_a_state_none_is_sent(params: str) -> None:
    first, retry = retried(None, params)
    assert members_of(retry)[-1][0] == "inputResponses"
    assert members_of(retry)[:-1] == members_of(first)
    assert b'"requestState"' not in retry or b'"requestState"' in first


# URLs --------------------------------------------------------------------------------

SCHEMES: Final = st.sampled_from(
    ("https://", "http://", "HTTPS://", "https:/", "https:", "//", "http\u017f://", "ftp://", "")
)
FRAGMENTS: Final = st.sampled_from(
    (
        *("localhost", "127.0.0.1", "127.1", "0x7f", "[::1]", "[::ffff:127.0.0.1]", "::", "fe80"),
        *("good.example", "evil.example", "xn--80ak6aa92e", "xn--google-", "2130706433", "0177"),
        *("@", "\\", "/", "//", "?", "#", ":", ":80", ":0", ":99999", "%2e", "%25eth0", ".", "-"),
        *("\u3002", "\uff0e", "\u017f", "\u212a", "\u00e4", "\u0661", "\t", "\n", "\r", " ", "\0"),
        *("1", "0", "255", "256", "_", "~", "[", "]", "<", '"', "^", "`", "{", "|", "}", "\x7f"),
    )
)
URLS: Final = st.tuples(SCHEMES, st.lists(FRAGMENTS, max_size=6)).map(
    lambda parts: parts[0] + "".join(parts[1])
)
SHOULD_PASS: Final = st.tuples(
    st.sampled_from(("https://", "HTTPS://", "http://")),
    st.sampled_from(
        ("localhost", "127.0.0.1", "[::1]", "example.com", "10.0.0.1", "[2001:db8::1]")
    ),
    st.sampled_from(("", ":", ":0", ":65535", "/", "?", "#", "/a?b=[c]@d#e:f", ":1/\\", " ", "@h")),
).map("".join)


@MANY
@given(st.one_of(URLS, SHOULD_PASS))
def test_a_url_that_passes_has_one_host_for_every_reader(url: str) -> None:
    if not bridge.may_show_url(url):
        return
    assert re.fullmatch("[!-~]+", url)
    assert "\\" not in url
    split = urlsplit(url)
    authority = re.split("[/?#]", url.partition("://")[2])[0]
    assert split.netloc == authority
    assert "@" not in authority
    assert "%" not in authority
    host = split.hostname or ""
    assert authority.lower().startswith((host, f"[{host}]"))
    if authority.startswith("["):
        ipaddress.IPv6Address(host)
    elif re.search(r"(^|\.)(\d+|0x[0-9a-f]*)\.?$", host):  # a browser takes it for an address
        assert str(ipaddress.IPv4Address(host)) == host
    assert 0 <= (split.port or 0) <= 65535
    assert split.scheme == "https" or (
        split.scheme == "http" and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    )
