"""The section `lifecycle`: what each side hears of the other at the start."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import (
    MODERN_VERSION,
    BridgeError,
    Cause,
    RawObject,
    capabilities_to_modern,
    check_discover_result,
    initialize_result,
    parse_initialize,
    parse_object,
)

INFO = {"name": "VS Code", "version": "1.139.1"}
TASKS = "io.modelcontextprotocol/tasks"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
NOT_OBJECTS: list[Any] = [None, True, 0, "x", [], [{}]]


def params(**changes: Any) -> dict[str, Any]:
    members = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO, **changes}
    return {name: value for name, value in members.items() if value is not ...}


def raw(value: object) -> RawObject:
    return parse_object(json.dumps(value, ensure_ascii=False).encode())


def result_for(discovered: dict[str, Any]) -> dict[str, Any]:
    return initialize_result(raw(discovered), "fallback")


# The params of initialize -------------------------------------------------------------


def test_the_server_hears_the_name_of_the_client() -> None:
    assert parse_initialize(params()) == (INFO, {})


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        (None, "protocolVersion"),
        ([], "protocolVersion"),
        (params(protocolVersion=...), "protocolVersion"),
        (params(protocolVersion=20251125), "protocolVersion"),
        (params(capabilities=...), "capabilities"),
        (params(capabilities=[]), "capabilities"),
        (params(clientInfo=...), "clientInfo"),
        (params(clientInfo="VS Code"), "clientInfo"),
        (params(clientInfo={"name": "VS Code"}), "clientInfo"),
        (params(clientInfo={"version": "1"}), "clientInfo"),
        (params(clientInfo={"name": 1, "version": "1"}), "clientInfo"),
    ],
)
def test_params_that_are_not_valid_are_refused_with_what_is_missing(
    value: Any, missing: str
) -> None:
    with pytest.raises(BridgeError) as caught:
        parse_initialize(value)
    assert caught.value.cause is Cause.INVALID_PARAMS
    assert caught.value.detail.startswith("initialize needs")
    assert missing in caught.value.detail


def test_any_version_of_the_client_is_taken() -> None:
    """The answer names ours; the client decides whether it goes on."""
    assert parse_initialize(params(protocolVersion="2024-11-05"))[0] == INFO


def test_members_of_the_client_info_that_have_a_wrong_type_are_dropped() -> None:
    info = {
        **INFO, "title": "T", "description": 3, "websiteUrl": None, "other": "x", "icons": "x",
    }  # fmt: skip
    assert parse_initialize(params(clientInfo=info))[0] == {**INFO, "title": "T"}


def test_only_valid_icons_are_kept() -> None:
    good = [
        {"src": "https://example.com/a.png"},
        {"src": "data:image/png;base64,AA", "mimeType": "image/png", "sizes": ["48x48", "any"]},
        {"src": "x", "theme": "dark", "other": 1},
        {"src": "x", "theme": "light", "sizes": []},
    ]
    bad = [
        None, "x", {}, {"src": 1}, {"src": "x", "mimeType": 1}, {"src": "x", "sizes": "48x48"},
        {"src": "x", "sizes": [48]}, {"src": "x", "theme": "blue"}, {"src": "x", "theme": None},
    ]  # fmt: skip
    info = parse_initialize(params(clientInfo={**INFO, "icons": [*bad, *good]}))[0]
    assert info["icons"] == good
    assert "icons" not in parse_initialize(params(clientInfo={**INFO, "icons": bad}))[0]


# The capabilities for the server ------------------------------------------------------


def test_sampling_and_elicitation_go_on_as_the_client_declared_them() -> None:
    declared: Any = {
        "sampling": {"tools": {"a": 1}, "context": {}, "other": {}},
        "elicitation": {"form": {}, "url": {"b": 2}, "other": {}},
    }
    assert capabilities_to_modern(declared) == {
        "sampling": {"context": {}, "tools": {"a": 1}},
        "elicitation": {"form": {}, "url": {"b": 2}},
    }


@pytest.mark.parametrize("key", ["sampling", "elicitation"])
def test_nothing_is_added_to_what_the_client_declared(key: str) -> None:
    assert capabilities_to_modern({key: {}}) == {key: {}}
    assert capabilities_to_modern({key: {"tools": True, "form": 1, "url": None}}) == {key: {}}


def test_roots_lose_list_changed() -> None:
    assert capabilities_to_modern({"roots": {"listChanged": True, "x": 1}}) == {"roots": {}}


@pytest.mark.parametrize("key", ["experimental", "extensions"])
def test_members_that_are_objects_are_kept_but_never_tasks(key: str) -> None:
    members: Any = {"a": {"b": [1]}, "c": True, "d": None, TASKS: {}}
    assert capabilities_to_modern({key: members}) == {key: {"a": {"b": [1]}}}
    assert capabilities_to_modern({key: {}}) == {key: {}}


@pytest.mark.parametrize("key", ["sampling", "elicitation", "roots", "experimental", "extensions"])
@pytest.mark.parametrize("value", NOT_OBJECTS)
def test_a_capability_that_is_no_object_is_dropped(key: str, value: Any) -> None:
    assert capabilities_to_modern({key: value}) == {}


def test_tasks_and_what_is_unknown_are_dropped() -> None:
    assert capabilities_to_modern({"tasks": {"list": {}}, "unknown": {}}) == {}


# server/discover ----------------------------------------------------------------------


def test_a_server_of_our_revision_is_taken() -> None:
    check_discover_result(raw({"supportedVersions": ["2027-01-01", MODERN_VERSION]}))


@pytest.mark.parametrize(
    ("discovered", "detail"),
    [
        ({}, "the result of server/discover names no supportedVersions"),
        ({"supportedVersions": MODERN_VERSION}, "names no supportedVersions"),
        ({"supportedVersions": []}, "it names: none"),
        ({"supportedVersions": ["2025-11-25", 3, "2025-06-18"]}, "names: 2025-11-25, 2025-06-18"),
        ({"supportedVersions": ["é\n\u202e" + "x" * 100]}, "names: é  " + "x" * 34 + "..."),
    ],
)
def test_any_other_server_fails_with_what_it_named(discovered: Any, detail: str) -> None:
    with pytest.raises(BridgeError) as caught:
        check_discover_result(raw(discovered))
    assert caught.value.cause is Cause.DISCOVER_FAILED
    assert caught.value.detail.endswith(detail)


def test_at_most_ten_revisions_are_repeated() -> None:
    detail = bridge.unsupported_detail([f"v{number}" for number in range(100_000)])
    assert detail.endswith("names: v0, v1, v2, v3, v4, v5, v6, v7, v8, v9")


@pytest.mark.parametrize("versions", [None, "x", {}, [1, None]])
def test_revisions_of_a_wrong_shape_are_none(versions: Any) -> None:
    assert bridge.unsupported_detail(versions).endswith("it names: none")


# The initialize result ----------------------------------------------------------------


def test_a_server_that_says_nothing_of_itself_gets_the_fallback_name() -> None:
    assert result_for({}) == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "serverInfo": {"name": "fallback", "version": bridge.__version__},
    }


def test_the_server_info_comes_from_meta() -> None:
    info = {
        "name": "n", "version": "1", "title": "t", "description": "d", "websiteUrl": "w",
        "icons": [{"src": "s"}],
    }  # fmt: skip
    other = {"name": "other", "version": "2"}
    assert result_for({"_meta": {SERVER_INFO: info}, "serverInfo": other})["serverInfo"] == info


def test_the_server_info_of_the_result_is_taken_when_meta_has_none() -> None:
    info = {"name": "n", "version": "1"}
    assert result_for({"serverInfo": info, "_meta": None})["serverInfo"] == info
    assert (
        result_for({"serverInfo": info, "_meta": {SERVER_INFO: {"name": ""}}})["serverInfo"] == info
    )


@pytest.mark.parametrize(
    "info",
    [*NOT_OBJECTS, {}, {"name": "n"}, {"name": "", "version": "1"}, {"name": 1, "version": "1"}],
)
def test_a_server_info_that_is_not_valid_is_as_none(info: Any) -> None:
    for discovered in ({"_meta": {SERVER_INFO: info}}, {"serverInfo": info}):
        assert result_for(discovered)["serverInfo"]["name"] == "fallback"


def test_members_of_the_server_info_that_are_not_valid_are_dropped() -> None:
    info = {"name": "n", "version": "1", "title": None, "icons": [{"src": 1}], "x": "y"}
    assert result_for({"serverInfo": info})["serverInfo"] == {"name": "n", "version": "1"}


def test_the_capabilities_stay_as_the_server_declared_them() -> None:
    declared = {
        "tools": {"listChanged": True, "x": 1},
        "prompts": {"listChanged": False},
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {"y": None},
        "logging": {},
        "experimental": {"a": {}},
        "extensions": {"b": {"c": 1}},
    }
    assert result_for({"capabilities": declared})["capabilities"] == declared


def test_a_flag_that_is_no_boolean_is_dropped() -> None:
    declared = {
        "tools": {"listChanged": "yes", "subscribe": 1},
        "resources": {"subscribe": None, "listChanged": 1, "x": 2},
    }
    assert result_for({"capabilities": declared})["capabilities"] == {
        "tools": {"subscribe": 1},
        "resources": {"x": 2},
    }


@pytest.mark.parametrize(
    "key",
    ["tools", "prompts", "resources", "completions", "logging", "experimental", "extensions"],
)
@pytest.mark.parametrize("value", NOT_OBJECTS)
def test_a_capability_of_the_server_that_is_no_object_is_dropped(key: str, value: Any) -> None:
    assert result_for({"capabilities": {key: value}})["capabilities"] == {}


@pytest.mark.parametrize("value", NOT_OBJECTS)
def test_capabilities_that_are_no_object_are_none(value: Any) -> None:
    assert result_for({"capabilities": value})["capabilities"] == {}


def test_the_result_never_has_tasks() -> None:
    declared = {"tasks": {}, "unknown": {}, "extensions": {TASKS: {}, "b": True}}
    assert result_for({"capabilities": declared})["capabilities"] == {"extensions": {}}


@pytest.mark.parametrize("text", ["", "Be kind.", "é\n\u2028😀", "x" * 5_000_000])
def test_instructions_are_a_copy(text: str) -> None:
    assert result_for({"instructions": text})["instructions"] == text


@pytest.mark.parametrize("value", [None, 1, ["x"], {"é": 1}])
def test_instructions_that_are_no_string_are_left_out(value: Any) -> None:
    assert "instructions" not in result_for({"instructions": value})
