"""Check frames against the official types of both revisions: a process that `frames.py` starts.

It runs in the environment `mcp2`, because the package `mcp-types` needs a newer Python than the
product. It reads JSON lines and answers only the last kind, so that no one waits for it before:

    {"case": 1, "side": "from_client", "frame": "..."}    remembered: pairs answers with requests
    {"case": 1, "side": "to_client", "frame": "..."}      checked as revision 2025-11-25
    {"case": 1, "side": "to_server", "frame": "..."}      checked as revision 2026-07-28
    {"case": 1, "side": "from_server", "frame": "..."}    remembered
    {"case": 1, "exempt": [...]}                          -> {"case": 1, "problems": [...]}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, get_args

from mcp_types import jsonrpc, methods
from pydantic import BaseModel, TypeAdapter, ValidationError

from tests.support.exemptions import is_exempt

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
MODERN_RESULT_MEMBERS = ("resultType", "ttlMs", "cacheScope")
MODERN_META_KEYS = tuple(
    PREFIX + name
    for name in (
        "protocolVersion",
        "clientInfo",
        "clientCapabilities",
        "logLevel",
        "serverInfo",
        "subscriptionId",
    )
)


class Problem(NamedTuple):
    place: str  # what exemptions.py matches
    text: str
    frame: str


# --- Shapes -----------------------------------------------------------------------------------


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member name occurs twice")
    return members


def parse(frame: str) -> Any:
    """The JSON of a frame. Raises ValueError, also for what Python's parser lets through."""
    frame.encode()  # a lone surrogate is a byte that was no UTF-8
    return json.loads(frame, parse_constant=refuse_constant, object_pairs_hook=unique_members)


def kind_of(message: Mapping[str, Any]) -> str:
    if "method" in message:
        return "request" if "id" in message else "notification"
    return "error" if "error" in message else "result"


def key_of(value: Any) -> tuple[str, str]:
    """Ids and tokens are equal only when their types are: 1 is not "1"."""
    return type(value).__name__, json.dumps(value)


def object_at(message: Any, *path: str) -> dict[str, Any]:
    """The object at a path; an empty one when anything on the way is not there."""
    for name in path:
        message = message.get(name) if isinstance(message, dict) else None
    return message if isinstance(message, dict) else {}


def type_errors(model: Any, value: Any) -> Iterator[tuple[str, str, str]]:
    """Path, kind and text of everything in a value that its official type does not allow."""
    try:
        parsed = TypeAdapter(model).validate_python(value, strict=True, by_name=False)
    except ValidationError as exc:
        for error in exc.errors(include_url=False):
            yield ".".join(map(str, error["loc"])), error["type"], error["msg"]
    else:
        for path in null_members(parsed, ""):
            yield path, "null", "null stands where the schema has an optional member"


def null_members(value: Any, path: str) -> Iterator[str]:
    """The models take null for every optional member; the schema does not."""
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from null_members(member, f"{path}{index}.")
    elif isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, BaseModel):  # free JSON may have null anywhere
                yield from null_members(member, f"{path}{name}.")
    elif isinstance(value, BaseModel):
        for name in value.model_fields_set & set(type(value).model_fields):
            field = type(value).model_fields[name]
            below = f"{path}{field.alias or name}"
            if getattr(value, name) is not None:
                yield from null_members(getattr(value, name), f"{below}.")
            elif not field.is_required() and Any not in get_args(field.annotation):
                yield below


# --- One conversation -------------------------------------------------------------------------


class Conversation:
    """What was said in one test, so far as it decides what may be said next."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.asked_by_client: dict[tuple[str, str], list[str]] = {}  # methods in flight, by id
        self.tokens: dict[tuple[str, str], tuple[str, str]] = {}  # progress token to request id
        self.asked_by_bridge: set[tuple[str, str]] = set()
        self.asked_of_server: set[tuple[str, str]] = set()

    def take(self, side: str, frame: str) -> None:
        try:
            message = parse(frame)
        except (ValueError, RecursionError) as exc:
            if side.startswith("to_"):
                self.problem(side, "line", "(json)", str(exc), frame)
            return
        if side == "from_client":
            self.remember_client(message)
        elif side == "to_client":
            self.check(side, message, frame, LEGACY)
        elif side == "to_server":
            self.check(side, message, frame, MODERN)
        elif side != "from_server":
            raise ValueError(f"there is no side {side!r}")

    def problem(self, side: str, kind: str, where: str, text: str, frame: str) -> None:
        self.problems.append(Problem(f"{side} {kind}: {where}", text, frame))

    def remember_client(self, message: Any) -> None:
        for one in message if isinstance(message, list) else [message]:
            if not isinstance(one, dict) or "id" not in one or "method" not in one:
                continue
            key = key_of(one["id"])
            self.asked_by_client.setdefault(key, []).append(str(one["method"]))
            token = object_at(one, "params", "_meta").get("progressToken")
            if token is not None:
                self.tokens[key_of(token)] = key

    def check(self, side: str, message: Any, frame: str, revision: str) -> None:
        if not isinstance(message, dict):
            self.problem(side, "line", "(object)", "the frame is no JSON object", frame)
            return
        kind = kind_of(message)
        check = self.check_to_client if side == "to_client" else self.check_to_server
        about, found = check(kind, message, revision)
        for where, what, text in found:
            self.problem(side, f"{kind} {about}".strip(), f"{where} ({what})", text, frame)

    # --- Towards the client ---------------------------------------------------------------

    def check_to_client(
        self, kind: str, message: dict[str, Any], revision: str
    ) -> tuple[str, list[tuple[str, str, str]]]:
        found = list(self.left_over_of_modern(message))
        if kind in {"request", "notification"}:
            about = str(message["method"])
            requests = kind == "request"
            surface: Any = methods.SERVER_REQUESTS if requests else methods.SERVER_NOTIFICATIONS
            found += self.by_surface(surface, about, revision, message)
            found += self.own_request(message) if requests else self.own_notification(message)
        elif kind == "error":
            about = ""
            found += type_errors(jsonrpc.JSONRPCError, message)
            if message.get("id") is None and "id" in message:
                found.append(("id", "null", "the error answers no request by its id"))
            self.answered(message, last=True)
        else:
            method = self.answered(message, last=False)
            about = method or ""
            found += type_errors(jsonrpc.JSONRPCResponse, message)
            if method is None:
                found.append(("id", "unknown", "no request with this id waits for an answer"))
            else:
                result = message.get("result")
                found += self.by_surface(methods.SERVER_RESULTS, method, revision, result)
        return about, found

    def answered(self, message: dict[str, Any], *, last: bool) -> str | None:
        """The method of the request that this answers; the request is in flight no more.

        When an id is in flight twice, the second request is refused and the first goes on.
        """
        key = key_of(message.get("id"))
        waiting = self.asked_by_client.get(key)
        if not waiting:
            return None
        method = waiting.pop(-1 if last else 0)
        if not waiting:
            del self.asked_by_client[key]
        return method

    def left_over_of_modern(self, message: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        """The legacy types ignore members that they do not know; these may not be left over."""
        text = "a member of revision 2026-07-28 reached the client"
        for name in MODERN_RESULT_MEMBERS:
            if name in object_at(message, "result"):
                yield name, "modern", text
        for holder in ("result", "params"):
            for name in MODERN_META_KEYS:
                if name in object_at(message, holder, "_meta"):
                    yield f"_meta.{name}", "modern", text

    def own_request(self, message: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        key = key_of(message["id"])
        if key in self.asked_by_bridge:
            yield "id", "reused", "the bridge asked with this id before"
        self.asked_by_bridge.add(key)
        schema = object_at(message, "params", "requestedSchema")
        surface = methods.SERVER_REQUESTS["elicitation/create", LEGACY]
        # The generated types check a form's properties nowhere, but they have the type for it.
        primitive = vars(sys.modules[surface.__module__])["PrimitiveSchemaDefinition"]
        for name, one in object_at(schema, "properties").items():
            for path, what, text in type_errors(primitive, one):
                yield f"params.requestedSchema.properties.{name}.{path}", what, text

    def own_notification(self, message: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        params = object_at(message, "params")
        if message["method"] == "notifications/progress":
            request = self.tokens.get(key_of(params.get("progressToken")))
            if request is None or request not in self.asked_by_client:
                yield "params.progressToken", "unknown", "no request in flight has this token"
        if message["method"] == "notifications/cancelled" and (
            key_of(params.get("requestId")) not in self.asked_by_bridge
        ):
            yield "params.requestId", "unknown", "the bridge asked nothing with this id"

    # --- Towards the server ---------------------------------------------------------------

    def check_to_server(
        self, kind: str, message: dict[str, Any], revision: str
    ) -> tuple[str, list[tuple[str, str, str]]]:
        if kind == "notification":
            about = str(message["method"])
            found = self.by_surface(methods.CLIENT_NOTIFICATIONS, about, revision, message)
            cancelled = key_of(object_at(message, "params").get("requestId"))
            if cancelled not in self.asked_of_server:
                found.append(("params.requestId", "unknown", "no request had this id"))
            return about, found
        if kind != "request":
            return "", [("", "response", "revision 2026-07-28 has no responses of a client")]
        about = str(message["method"])
        found = self.by_surface(methods.CLIENT_REQUESTS, about, revision, message)
        found += self.upstream_request(message)
        return about, found

    def upstream_request(self, message: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
        request_id = message["id"]
        if type(request_id) is not int or request_id < 1:
            yield "id", "own", "upstream ids are integers from 1"
        if key_of(request_id) in self.asked_of_server:
            yield "id", "reused", "upstream ids are never used again"
        self.asked_of_server.add(key_of(request_id))
        meta = object_at(message, "params", "_meta")
        if meta.get(f"{PREFIX}protocolVersion") != MODERN:
            yield "params._meta.protocolVersion", "own", f"every request says {MODERN}"
        if f"{PREFIX}clientInfo" not in meta:
            yield "params._meta.clientInfo", "own", "every request names the client"
        if meta.get("progressToken", request_id) != request_id:
            yield "params._meta.progressToken", "own", "the token is the id of the request"

    def by_surface(
        self, surface: Any, method: str, revision: str, value: Any
    ) -> list[tuple[str, str, str]]:
        model = surface.get((method, revision))
        if model is None:
            return [("method", "unknown", f"{revision} has no such message in this direction")]
        return list(type_errors(model, value))


def main() -> None:
    conversations: dict[int, Conversation] = {}
    for line in sys.stdin.buffer:
        entry = json.loads(line)
        case = entry["case"]
        if "side" in entry:
            conversation = conversations.setdefault(case, Conversation())
            conversation.take(entry["side"], entry["frame"])
            continue
        problems = conversations.pop(case, Conversation()).problems
        exempt = tuple(entry["exempt"])
        told = [
            f"{problem.place}: {problem.text}\n    {problem.frame[:2000]}"
            for problem in problems
            if not is_exempt(problem.place, exempt)
        ]
        sys.stdout.write(json.dumps({"case": case, "problems": told}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
