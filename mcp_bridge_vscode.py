#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A legacy MCP server for VS Code (stdio) in front of a modern MCP server.

VS Code speaks revision 2025-11-25 and starts with `initialize`; the server behind this bridge
speaks revision 2026-07-28. Read the file downwards and you follow a request:

    VS Code --stdin--> front_end --> slots --> to_modern --> upstream --> child --> server
    VS Code <-stdout-- front_end <-- slots <-- to_legacy <-- upstream <-- child <-- server

WORDS     words          revisions, methods, _meta keys, log levels: data only
          limits         every number that bounds a wait, a size or a count
          errors         the causes, their codes and words; the one exception; text for people
          ports          what one room may know of another
PURE      messages       JSON in and out, the text of each member, ids, depth, shapes
          framing        bytes to lines; what is kept of a line that is too long
          schemas        tool schemas that VS Code would omit, rewritten to what it keeps
          forms          what the client can show of a form, and whether an answer fits it
          lifecycle      capabilities for the server, the initialize result for the client
          to_modern      the frames for the server: requests with their _meta, cancellations
          to_legacy      the frames for the client: results, errors, progress
          input_rounds   checks, questions, answers, the Continue form, the retry
          subscriptions  the filter, what the client hears, when a lost stream comes again
PLUMBING  plumbing       the clock, signals, ranked locks, threads, workers, descriptors, the log
ROOMS     front_end      stdin and stdout: the reader, the lifecycle states, what is answered here
          slots          one client request from its line to its answer
          opening        what initialize does: the server is opened and asked what it can do
          rounds         the questions of the server, put to the client
          listen         the one owner of subscriptions/listen
          upstream       our requests to the server by id, and what the server says
          child          the server as a child process, and how it is stopped
WIRING    bridge         builds the rooms, hands each its neighbours, stops them in order
          demo           a small modern server to try the bridge with
          check          acts as VS Code against a bridge and reports
          cli            arguments, exit codes, main

Threads   reader 1 (front_end; the main thread only waits for it); worker 1 per slot that takes
          long and 1 for what the reader answers (slots, plumbing); standby 1 (plumbing); listen
          owner 1 (listen); upstream reader 1 per child (child); log 1 (plumbing); signals 1,
          parent watch 1, stop 1 and, from the start of a stop, watchdog 1 (bridge)
Rule      a section uses what stands above it; a room uses no other room; wiring uses all
"""

from __future__ import annotations

import enum
import errno
import gc
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from codecs import utf_8_decode
from collections import Counter, deque
from operator import ge, gt, le, lt
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import IO, Any, Final, Protocol, Union

__version__ = "0.1.0"

# region words words ----------------------------------------------------------
# Data only. The names are those of the MCP specification.

PROGRAM: Final = "mcp-bridge-vscode"
LEGACY_VERSION: Final = "2025-11-25"
MODERN_VERSION: Final = "2026-07-28"

META_PREFIX: Final = "io.modelcontextprotocol/"
META_PROTOCOL_VERSION: Final = META_PREFIX + "protocolVersion"
META_CLIENT_INFO: Final = META_PREFIX + "clientInfo"
META_CLIENT_CAPABILITIES: Final = META_PREFIX + "clientCapabilities"
META_LOG_LEVEL: Final = META_PREFIX + "logLevel"
META_SUBSCRIPTION_ID: Final = META_PREFIX + "subscriptionId"
META_SERVER_INFO: Final = META_PREFIX + "serverInfo"
TASKS_EXTENSION: Final = META_PREFIX + "tasks"

UNSUPPORTED_VERSION: Final = -32022  # basic/versioning: the error names what is supported
URL_ELICITATION_REQUIRED: Final = -32042  # of 2025-11-25: VS Code opens the URLs in its data

LOG_LEVELS: Final = (  # of the protocol, lowest first
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
)  # fmt: skip


class State(enum.Enum):
    """The lifecycle of the connection with the client."""

    AWAITING_INITIALIZE = "awaiting_initialize"
    INITIALIZING = "initializing"
    READY = "ready"
    CLOSING = "closing"


class Carried(enum.Enum):
    """What becomes of a message of the client."""

    ANSWERED = "answered"  # by the reader itself
    FORWARDED = "forwarded"  # to the server, by a slot
    SUBSCRIBED = "subscribed"  # changes the listen stream
    NOTED = "noted"  # a notification that the reader acts on
    IGNORED = "ignored"  # a notification that means nothing here


class MethodRow:
    """What the bridge knows of one method of the client: data only."""

    __slots__ = ("carried", "later_limit", "limit", "may_ask", "method")

    def __init__(
        self,
        method: str,
        carried: Carried,
        *,
        limit: str = "",
        later_limit: str = "",
        may_ask: bool = False,
    ) -> None:
        self.method = method
        self.carried = carried
        self.limit = limit  # the field of Limits for the first round
        self.later_limit = later_limit or limit  # and for each later one
        self.may_ask = may_ask  # may the server answer with an InputRequiredResult?


METHODS: Final[Mapping[str, MethodRow]] = MappingProxyType(
    {
        row.method: row
        for row in (
            MethodRow("initialize", Carried.ANSWERED, limit="discover_seconds"),
            MethodRow("ping", Carried.ANSWERED),
            MethodRow("logging/setLevel", Carried.ANSWERED),
            MethodRow("server/discover", Carried.ANSWERED, limit="discover_seconds"),
            MethodRow("tools/list", Carried.FORWARDED, limit="list_seconds"),
            MethodRow("tools/call", Carried.FORWARDED, limit="call_seconds", may_ask=True),
            MethodRow("prompts/list", Carried.FORWARDED, limit="list_seconds"),
            MethodRow(
                "prompts/get",
                Carried.FORWARDED,
                limit="read_seconds",
                later_limit="call_seconds",
                may_ask=True,
            ),
            MethodRow("resources/list", Carried.FORWARDED, limit="list_seconds"),
            MethodRow("resources/templates/list", Carried.FORWARDED, limit="list_seconds"),
            MethodRow(
                "resources/read",
                Carried.FORWARDED,
                limit="read_seconds",
                later_limit="call_seconds",
                may_ask=True,
            ),
            MethodRow("completion/complete", Carried.FORWARDED, limit="list_seconds"),
            MethodRow("resources/subscribe", Carried.SUBSCRIBED),
            MethodRow("resources/unsubscribe", Carried.SUBSCRIBED),
            MethodRow("notifications/initialized", Carried.NOTED),
            MethodRow("notifications/cancelled", Carried.NOTED),
            MethodRow("notifications/roots/list_changed", Carried.IGNORED),
        )
    }
)


class ListKind:
    """A list whose changes the server may tell: data only."""

    __slots__ = ("capability", "change", "filter_field", "methods")

    def __init__(self, capability: str, methods: tuple[str, ...]) -> None:
        self.capability = capability
        self.change = f"notifications/{capability}/list_changed"
        self.filter_field = f"{capability}ListChanged"
        self.methods = methods  # with which the client asks for it


LIST_KINDS: Final = (
    ListKind("tools", ("tools/list",)),
    ListKind("prompts", ("prompts/list",)),
    ListKind("resources", ("resources/list", "resources/templates/list")),
)
LIST_CHANGES: Final = frozenset(kind.change for kind in LIST_KINDS)
LIST_CHANGE_OF: Final[Mapping[str, str]] = MappingProxyType(
    {method: kind.change for kind in LIST_KINDS for method in kind.methods}
)
RESOURCE_UPDATED: Final = "notifications/resources/updated"
LIST_METHODS: Final = frozenset(LIST_CHANGE_OF)
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
BRIDGE_ID_PREFIX: Final = "b-"  # of our requests to the client, which has integers
# endregion

# region words limits ---------------------------------------------------------
# Every number that bounds a wait, a size or a count, with the cause that follows.


class Limits:
    """The limits of one bridge. Read only; `replace` makes changed ones, for options and tests."""

    line_bytes = 64 << 20  # one line of the client or of the child: LINE_TOO_LONG
    edge_bytes = 256  # kept of both ends of a longer line, to find its id
    client_depth = 64  # levels of a client message: TOO_DEEP
    server_depth = 200  # levels of a server message: INVALID_RESPONSE
    requests = 256  # client requests in flight: TOO_MANY_REQUESTS
    discover_seconds = 60.0  # server/discover: DISCOVER_FAILED
    list_seconds = 120.0  # each list and completion/complete: TIMEOUT
    read_seconds = 120.0  # the first round of prompts/get and resources/read: TIMEOUT
    call_seconds = 3600.0  # each round of tools/call, later rounds of the others: TIMEOUT
    answer_seconds = 3600.0  # for the client's answers of one round: INPUT_TIMEOUT
    rounds = 10  # of one request: TOO_MANY_ROUNDS
    questions = 16  # of one round: TOO_MANY_INPUT_REQUESTS
    round_pause_seconds = 0.1  # before a round without questions; doubles with each
    most_pause_seconds = 5.0  # and no longer than this
    listen_seconds = 10.0  # for the acknowledgment of a listen stream: TIMEOUT
    listen_tries = 3  # lost streams in a row that are opened again at once
    listen_wait_seconds = 0.5  # before a new stream then; doubles
    most_listen_wait_seconds = 30.0  # and no longer than this
    listen_life_seconds = 10.0  # of a stream, after which waits and tries start anew
    first_line_seconds = 10.0  # until the first "still waiting" line
    next_line_seconds = 30.0  # between two of them
    progress_per_second = 50  # for one request; what is above is thinned
    grace_seconds = 2.0  # each step of a stop: slots, the child after its stdin, after TERM
    watchdog_seconds = 8.0  # the whole stop; VS Code sends TERM at 10 s
    log_lines = 2000  # lines that wait for a stderr which nobody reads; more are dropped
    log_flush_seconds = 0.25  # for them at the very end
    idle_workers = 4  # threads kept for the next requests; more end when idle for 10 s
    queued_frames = 1024  # for a server that does not read: TOO_MANY_REQUESTS
    posted_frames = 100_000  # of the reader, for a client that does not read: the end of its input
    shown_text = 200  # characters of a peer's text in a log line or a detail
    shown_bytes = 60  # bytes of a line that is no message, in a warning
    schema_lines = 100  # changes of one tool schema that get a log line each

    def __init__(self, **changes: float) -> None:
        for name, value in changes.items():
            kind = type(getattr(type(self), name))
            object.__setattr__(self, name, kind(value))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read only")

    def replace(self, **changes: float) -> Limits:
        """The same limits but for the named ones."""
        return Limits(**{**vars(self), **changes})


LIMITS: Final = Limits()
MOST_LINE_BYTES: Final = 1 << 30  # --max-line-bytes
MOST_SECONDS: Final = 86_400  # any option that is a time
# endregion

# region words errors ---------------------------------------------------------
# One row a cause, one exception across section borders, one function that makes wire words of it.


class Cause(enum.Enum):
    """Every way to fail; the value is what `data.cause` says."""

    PARSE_ERROR = "parse_error"
    INVALID_REQUEST_SHAPE = "invalid_request_shape"
    LINE_TOO_LONG = "line_too_long"
    TOO_DEEP = "too_deep"
    NOT_INITIALIZED = "not_initialized"
    ALREADY_INITIALIZED = "already_initialized"
    METHOD_NOT_FOUND = "method_not_found"
    INVALID_PARAMS = "invalid_params"
    TOO_MANY_REQUESTS = "too_many_requests"
    SPAWN_FAILED = "spawn_failed"
    CLOSED = "closed"
    DISCOVER_FAILED = "discover_failed"
    UPSTREAM_EXITED = "upstream_exited"
    TRANSPORT_FAILED = "transport_failed"
    INVALID_RESPONSE = "invalid_response"
    TIMEOUT = "timeout"
    INVALID_INPUT_REQUEST = "invalid_input_request"
    UNDECLARED_INPUT_REQUEST = "undeclared_input_request"
    TOO_MANY_INPUT_REQUESTS = "too_many_input_requests"
    TOO_MANY_ROUNDS = "too_many_rounds"
    INPUT_TIMEOUT = "input_timeout"
    INVALID_CLIENT_ANSWER = "invalid_client_answer"
    OUT_OF_MEMORY = "out_of_memory"
    INTERNAL = "internal"


_SEE_OUTPUT = " The Output channel of the server says more."
ERROR_TABLE: Final[Mapping[Cause, tuple[int, str]]] = MappingProxyType(
    {
        Cause.PARSE_ERROR: (-32700, "The line is not valid JSON in UTF-8."),
        Cause.INVALID_REQUEST_SHAPE: (-32600, "The message is not a JSON-RPC 2.0 request."),
        Cause.LINE_TOO_LONG: (
            -32600,
            "The message is longer than --max-line-bytes of the bridge allows.",
        ),
        Cause.TOO_DEEP: (-32600, "The message is nested more deeply than the bridge allows."),
        Cause.NOT_INITIALIZED: (-32600, "The connection is not initialized: send initialize."),
        Cause.ALREADY_INITIALIZED: (-32600, "The connection has had its initialize already."),
        Cause.METHOD_NOT_FOUND: (-32601, "The server has no such method."),
        Cause.INVALID_PARAMS: (-32602, "The params of the request are not valid."),
        Cause.TOO_MANY_REQUESTS: (-32603, "Too many requests are in flight; send it again later."),
        Cause.SPAWN_FAILED: (
            -32603,
            "The command of the server cannot be started. Check the command after -- in the"
            " configuration." + _SEE_OUTPUT,
        ),
        Cause.CLOSED: (-32603, "The server stopped before it was ready." + _SEE_OUTPUT),
        Cause.DISCOVER_FAILED: (
            -32603,
            "The server did not answer server/discover as a server of revision 2026-07-28 does."
            + _SEE_OUTPUT,
        ),
        Cause.UPSTREAM_EXITED: (-32603, "The server process has stopped." + _SEE_OUTPUT),
        Cause.TRANSPORT_FAILED: (-32603, "The server takes no more requests." + _SEE_OUTPUT),
        Cause.INVALID_RESPONSE: (
            -32603,
            "The server answered with something that is no valid response." + _SEE_OUTPUT,
        ),
        Cause.TIMEOUT: (-32603, "The server did not answer in time." + _SEE_OUTPUT),
        Cause.INVALID_INPUT_REQUEST: (
            -32603,
            "The server asked for input in a way that is not valid." + _SEE_OUTPUT,
        ),
        Cause.UNDECLARED_INPUT_REQUEST: (
            -32603,
            "The server asked for a kind of input that this client does not offer.",
        ),
        Cause.TOO_MANY_INPUT_REQUESTS: (
            -32603,
            "The server asked for more inputs at a time than the bridge allows.",
        ),
        Cause.TOO_MANY_ROUNDS: (-32603, "The server asked for input again and again."),
        Cause.INPUT_TIMEOUT: (-32603, "The questions of the server were not answered in time."),
        Cause.INVALID_CLIENT_ANSWER: (
            -32603,
            "The answer of the client does not fit the question of the server.",
        ),
        Cause.OUT_OF_MEMORY: (-32603, "The bridge has too little memory for the request."),
        Cause.INTERNAL: (-32603, "The bridge met an internal error." + _SEE_OUTPUT),
    }
)


class BridgeError(Exception):
    """A failure with its cause.

    `detail` names what to change and never holds a secret or the server's stderr. `code` and
    `message` replace the row's only for an error of the server that passes through a cause.
    """

    def __init__(
        self, cause: Cause, detail: str = "", *, code: int | None = None, message: str = ""
    ) -> None:
        super().__init__(cause.value, detail)
        self.cause = cause
        self.detail = detail
        self.code = ERROR_TABLE[cause][0] if code is None else code
        self.message = message or ERROR_TABLE[cause][1]


class RequestOverError(Exception):
    """Nobody waits for an answer any more: the request was cancelled, or has had one."""


def bridge_error(error: BaseException) -> BridgeError:
    """The same failure as one of ours: where a foreign exception gets its cause."""
    if isinstance(error, BridgeError):
        return error
    if isinstance(error, MemoryError):
        return BridgeError(Cause.OUT_OF_MEMORY)
    return BridgeError(Cause.INTERNAL)


_UNCLEAN: Final = {
    code: " "
    for start, end in (
        (0x00, 0x20), (0x7F, 0xA0), (0x061C, 0x061D), (0x200E, 0x2010), (0x2028, 0x202F),
        (0x2066, 0x206A), (0xFEFF, 0xFF00),
    )
    for code in range(start, end)
}  # fmt: skip


def clean_text(text: str, limit: int) -> str:
    """A peer's text as people may read it: one line of at most `limit` characters.

    Controls, line separators and marks that turn the writing direction become blanks, a lone
    surrogate a question mark.
    """
    shown = text[: limit + 1].translate(_UNCLEAN)
    if len(shown) > limit:
        shown = shown[: max(0, limit - 3)] + "..."
    return shown if shown.isascii() else shown.encode("utf-8", "replace").decode("utf-8")


def place_of(error: BaseException) -> str:
    """The kind of an unexpected exception and where it came from; none of its values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
    return type(error).__name__ + where


def error_object(error: BridgeError) -> JsonObject:
    """The error member of a response: the only place where a failure becomes wire words."""
    data: JsonObject = {"cause": error.cause.value}
    if error.detail:
        data["detail"] = error.detail
    return {"code": error.code, "message": error.message, "data": data}


# endregion

# region words ports ----------------------------------------------------------
# What one room may know of another. Types only: nothing of it exists at run time.

if TYPE_CHECKING:
    Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]
    JsonObject = dict[str, Json]
    Piece = Union[bytes, memoryview]
    ClientKey = Union[int, str, "LongInteger"]  # an id of the client; 1 and "1" differ

    class WriteFrom(Protocol):
        """Output.write_from."""

        def __call__(
            self, produce: Callable[[], list[Piece] | None], *, is_more: bool = False
        ) -> None:
            """What `produce` gives under the output lock is written."""

    class Transport(Protocol):
        """A server process or connection, from the side of upstream."""

        def start(self) -> None:
            """The server runs. Raises BridgeError SPAWN_FAILED."""

        def queue(self, pieces: list[Piece]) -> None:
            """One frame will go out. Raises TRANSPORT_FAILED, TOO_MANY_REQUESTS."""

        def flush(self) -> None:
            """What is queued is out as far as the server takes it; nobody waits."""

        def stop(self) -> None:
            """Nothing of the server is left; bounded by two graces."""

        def kill(self) -> None:
            """Nothing of the server is left, at once."""

    class Receiver(Protocol):
        """What a transport tells upstream, from its reading thread."""

        def handle_line(self, line: bytes) -> None:
            """One whole line of the server, without its end."""

        def handle_long_line(self, line: LongLine) -> None:
            """A line over the limit: once when it is known to be too long, once at its end."""

        def handle_pause(self) -> None:
            """The transport waits now: what was said so far goes out."""

        def handle_deaf(self) -> None:
            """The server lives and takes nothing any more."""

        def handle_end(self, status: str) -> None:
            """The server is gone; `status` is its exit code or signal in words."""

    class StateChanges(Protocol):
        """The lifecycle of the connection with the client, from the side of slots."""

        def move(self, before: State, after: State) -> bool:
            """The state was `before` and is now `after`; else nothing changed."""

    class Exchange(Protocol):
        """One request to the server while it waits, from the side of a slot."""

        request_id: int
        call: UpstreamCall
        started: float
        is_sent: bool
        reply: RawObject | None
        failure: BridgeError | None

    class UpstreamConnection(Protocol):
        """The server behind the bridge, from the side of slots."""

        def open(self, client_info: JsonObject, capabilities: JsonObject) -> None:
            """The server runs and can take requests. Raises BridgeError SPAWN_FAILED."""

        def prepare(
            self,
            call: UpstreamCall,
            on_settled: Callable[[], None],
            on_progress: ProgressSink | None,
            on_event: EventSink | None = None,
        ) -> Exchange:
            """An exchange; `on_settled` is called once it has a reply or has failed."""

        def forget(self, exchange: Exchange) -> None:
            """The server has ended it in its own way."""

        def send(self, exchange: Exchange) -> None:
            """The request goes out with the next flush(). Raises BridgeError: it never will."""

        def flush(self) -> None:
            """All that was sent is out, as far as the server takes it; nobody waits."""

        def abandon(self, exchange: Exchange, reason: str, outcome: str) -> None:
            """The server is told to stop; a late reply finds nobody."""

        def settle_as_ready(self) -> None:
            """From now on the loss of the server is the end of the bridge."""

        def close(self) -> None:
            """The server is stopped; nothing of it is left."""

    class WindowsCalls(Protocol):
        """The functions of Windows that a job object needs; handles are integers."""

        def CreateJobObjectW(self, security: None, name: None) -> int | None:  # noqa: N802
            """A new job."""

        def SetInformationJobObject(  # noqa: N802
            self, job: int | None, kind: int, limits: bytes, size: int
        ) -> int:
            """Zero when it failed."""

        def AssignProcessToJobObject(self, job: int | None, process: int) -> int:  # noqa: N802
            """Zero when it failed."""

        def TerminateJobObject(self, job: int | None, code: int) -> int:  # noqa: N802
            """Zero when it failed."""

        def NtResumeProcess(self, process: int) -> int:  # noqa: N802
            """Zero when it succeeded."""

    class Asking(Protocol):
        """Our requests to the client, from the side of slots."""

        def register(self, count: int, wake: Callable[[], None]) -> Sequence[PendingAnswer]:
            """Entries that answers will find; `wake` is called with each answer."""

        def withdraw(self, pending: Sequence[PendingAnswer]) -> list[str]:
            """Late answers find nobody; the ids that have none are returned."""

    class PendingAnswer(Protocol):
        """One question that waits: `answer` is the frame, or None for a line that is not valid."""

        request_id: str
        is_answered: bool
        answer: RawObject | None

    class SlotAtWork(Protocol):
        """A request that a worker does more for than forward, as opening and rounds know it."""

        request: ClientRequest
        meta: RawObject | None
        has_progress: bool

        def check_open(self) -> None:
            """Somebody waits for the answer. Raises RequestOverError."""

        def claim(self) -> None:
            """The answer that follows goes out, whatever comes. Raises RequestOverError."""

        def end_reason(self) -> str | None:
            """Why nobody waits any more."""

        def wait(self, until: float) -> None:
            """Somebody has called wake(), the request is over, or it is `until`."""

        def wake(self) -> None:
            """Who waits goes on."""

        def exchange(self, call: UpstreamCall, limit: float) -> RawObject:
            """The reply to a request. Raises BridgeError and RequestOverError."""

        def frame_of(self, reply: RawObject) -> list[Piece]:
            """The answer to the client that a reply makes. Raises BridgeError."""

    class Opens(Protocol):
        """Opening, from the side of slots."""

        def run(self, work: SlotAtWork) -> list[Piece]:
            """The answer to initialize. Raises BridgeError and RequestOverError."""

    class Asks(Protocol):
        """Rounds, from the side of slots."""

        def run(self, work: SlotAtWork, reply: RawObject) -> list[Piece]:
            """The answer of a request that asks for input, the same."""

    class SubscriptionChange(Protocol):
        """A resources/subscribe or /unsubscribe of the client, from the side of listen."""

        uri: str
        is_added: bool

        def is_over(self) -> bool:
            """Has it been cancelled?"""

        def take_answer(self) -> list[Piece] | None:
            """Under the output lock: the frame that says it is done."""

        def fail(self, error: BridgeError) -> None:
            """The client has the error."""

        def fail_with(self, reply: RawObject) -> None:
            """The client has the error of the server."""

    ProgressSink = Callable[["RawObject"], None]
    EventSink = Callable[[str, "RawObject | None"], None]
    Scan = Callable[[str, int], tuple[Any, int]]
# endregion

# region pure messages --------------------------------------------------------
# In: the bytes of one line. Out: its members, each with the place of its text in the line, so
# that what need not change is forwarded as a slice of what came. A line is scanned once, by the
# C scanner of json, on its latin-1 text: JSON's structure is ASCII, so places in that text are
# places in the bytes, and no character makes the text wider. A value with other characters is
# decoded from its own bytes when somebody asks for it.


class LongInteger(str):
    """The text of an integer of more digits than Python converts. It is never computed with."""

    __slots__ = ()


def _refuse_constant(name: str) -> Json:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _short_int(text: str) -> int | LongInteger:
    return int(text) if len(text) <= 4000 else LongInteger(text)


def _is_int_bounded() -> bool:
    """Does int() refuse very many digits? Older Pythons convert them in quadratic time."""
    try:
        int("1" * 5000)
    except ValueError:
        return True
    return False


def _scanner(parse_int: Callable[[str], Any] | None) -> Scan:
    """json's scanner: (text, index) to (value, index behind it)."""
    decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=parse_int)
    scan: Scan = decoder.scan_once
    return scan


_SCAN: Final = _scanner(None if _is_int_bounded() else _short_int)
_SCAN_LONG: Final = _scanner(_short_int)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_SPACE: Final = re.compile(r"[ \t\r\n]*").match
_BLANKS: Final = " \t\r\n"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_WINDOW: Final = 1 << 20
_BIG_PIECE: Final = 1 << 16
_LARGEST_NUMBER: Final = 1.7976931348623157e308
_NESTED: Final = frozenset({"params", "result"})


class RawObject:
    """A JSON object that knows where the text of each member stands in its line.

    `members` maps a key to (value, start of the key, start of the value, end of the value); of
    two equal keys the last counts. The value of a member in `_NESTED` is itself a RawObject when
    it is an object.
    """

    __slots__ = ("is_ascii", "line", "members")

    def __init__(
        self, line: bytes, is_ascii: bool, members: dict[str, tuple[Any, int, int, int]]
    ) -> None:
        self.line = line
        self.is_ascii = is_ascii
        self.members = members

    def __contains__(self, key: str) -> bool:
        return key in self.members

    def peek(self, key: str) -> Any:
        """The value as it was scanned: its structure is right, its ASCII is right, no more."""
        member = self.members.get(key)
        return None if member is None else member[0]

    def get(self, key: str) -> Json:
        """The value of a member, or None."""
        member = self.members.get(key)
        if member is None:
            return None
        value = member[0]
        if type(value) is RawObject or not (self.is_ascii or _is_plain(value)):
            return parse_json(self.line[member[2] : member[3]])
        return value  # type: ignore[no-any-return]  # what the scanner made

    def get_str(self, key: str) -> str | None:
        """The value of a member when it is a string."""
        value = self.peek(key)
        if not isinstance(value, str) or self.is_ascii or value.isascii():
            return value if type(value) is str else None
        value = self.get(key)
        return value if isinstance(value, str) else None

    def object(self, key: str) -> RawObject | None:
        """The value of a member, with its own members, when it is an object."""
        member = self.members.get(key)
        if member is None:
            return None
        if type(member[0]) is RawObject:
            return member[0]
        if type(member[0]) is not dict:
            return None
        return parse_object(self.line[member[2] : member[3]])

    def value(self) -> JsonObject:
        """The whole object."""
        return {key: self.get(key) for key in self.members}

    def raw(self, key: str) -> Piece:
        """The text of a value as it came."""
        _, _, start, end = self.members[key]
        return _cut(self.line, start, end)

    def kept(self, without: Container[str]) -> list[Piece]:
        """`"key":value` as it came, for each member but those named."""
        line = self.line
        if len(line) < _BIG_PIECE:
            return [line[m[1] : m[3]] for key, m in self.members.items() if key not in without]
        return [_cut(line, m[1], m[3]) for key, m in self.members.items() if key not in without]


def _is_plain(value: object) -> bool:
    """Has it no text in it?"""
    return value is None or isinstance(value, (int, float))


def _cut(line: bytes, start: int, end: int) -> Piece:
    """A part of a line; no copy is made of a big one."""
    return line[start:end] if end - start < _BIG_PIECE else memoryview(line)[start:end]


def _skip(text: str, index: int) -> int:
    match = _SPACE(text, index)
    return index if match is None else match.end()


def _scan_object(  # noqa: C901, PLR0912  # one pass over the text: the hottest code there is
    text: str, start: int, scan: Scan = _SCAN, line: bytes = b"", is_ascii: bool = True
) -> tuple[dict[str, tuple[Any, int, int, int]], int]:
    """The members of the object at `start`, and the index behind it.

    With `line`, objects in `_NESTED` become RawObjects. Raises ValueError, StopIteration or
    IndexError where the text is no object.
    """
    members: dict[str, tuple[Any, int, int, int]] = {}
    index = start + 1
    if text[index] != '"':
        index = _skip(text, index)
        if text[index] == "}":
            return members, index + 1
    while True:
        if text[index] != '"':
            index = _skip(text, index)
            if text[index] != '"':
                raise ValueError("no key")
        key_start = index
        key, index = scan(text, index)
        if not is_ascii and not key.isascii():
            key = parse_json(text[key_start:index].encode("latin-1"))
        if text[index] != ":":
            index = _skip(text, index)
            if text[index] != ":":
                raise ValueError("no colon")
        index += 1
        if text[index] in _BLANKS:
            index = _skip(text, index)
        value_start = index
        if line and text[index] == "{" and key in _NESTED:
            inner, index = _scan_object(text, index, scan, is_ascii=is_ascii)
            members[key] = (RawObject(line, is_ascii, inner), key_start, value_start, index)
        else:
            value, index = scan(text, index)
            members[key] = (value, key_start, value_start, index)
        mark = text[index]
        if mark in _BLANKS:
            index = _skip(text, index)
            mark = text[index]
        index += 1
        if mark == "}":
            return members, index
        if mark != ",":
            raise ValueError("no comma")


def scan_elements(raw: bytes) -> list[tuple[int, int]]:
    """Where each element of a JSON array stands in its text. The text is a valid array."""
    text = raw.decode("latin-1")
    places: list[tuple[int, int]] = []
    index = _skip(text, 1)
    while text[index] != "]":
        end = _SCAN_LONG(text, index)[1]
        places.append((index, end))
        index = _skip(text, end)
        if text[index] == ",":
            index = _skip(text, index + 1)
    return places


def parse_object(raw: bytes) -> RawObject:
    """The members of an object whose text is known to be valid."""
    text, is_ascii = raw.decode("latin-1"), raw.isascii()
    try:
        members = _scan_object(text, 0, is_ascii=is_ascii)[0]
    except ValueError:  # an integer of very many digits
        members = _scan_object(text, 0, _SCAN_LONG, is_ascii=is_ascii)[0]
    return RawObject(raw, is_ascii, members)


def parse_frame(line: bytes, depth: int) -> RawObject:
    """The members of the message in one line.

    Raises BridgeError: PARSE_ERROR (no JSON, not UTF-8), TOO_DEEP, INVALID_REQUEST_SHAPE (JSON,
    but no object).
    """
    is_ascii = line.isascii()
    if not is_ascii and not is_utf8(line):
        raise BridgeError(Cause.PARSE_ERROR)
    if line.count(b"[") + line.count(b"{") > depth and is_deeper(line, depth):
        raise BridgeError(Cause.TOO_DEEP, f"limit: {depth} levels")
    text = line.decode("latin-1")
    try:
        return _parse_text(line, is_ascii, text, _SCAN)
    except (json.JSONDecodeError, StopIteration, IndexError):
        raise BridgeError(Cause.PARSE_ERROR) from None
    except ValueError:  # ours, or an integer of very many digits
        try:
            return _parse_text(line, is_ascii, text, _SCAN_LONG)
        except (ValueError, StopIteration, IndexError):
            raise BridgeError(Cause.PARSE_ERROR) from None


def _parse_text(line: bytes, is_ascii: bool, text: str, scan: Scan) -> RawObject:
    start = 0 if text[0] == "{" else _skip(text, 0)
    if text[start] == "{":
        members, end = _scan_object(text, start, scan, line, is_ascii)
        frame: RawObject | None = RawObject(line, is_ascii, members)
    else:
        end, frame = scan(text, start)[1], None
    if end != len(text) and _skip(text, end) != len(text):
        raise ValueError("more than one value")
    if frame is None:
        raise BridgeError(Cause.INVALID_REQUEST_SHAPE)
    return frame


def parse_json(data: bytes) -> Json:
    """The value of a JSON text in UTF-8. Raises ValueError, also for NaN and bad UTF-8."""
    text = data.decode("utf-8")
    start = _skip(text, 0)
    try:
        try:
            value, end = _SCAN(text, start)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of very many digits
            value, end = _SCAN_LONG(text, start)
    except StopIteration:
        raise ValueError("not JSON") from None
    if _skip(text, end) != len(text):
        raise ValueError("more than one value")
    return value  # type: ignore[no-any-return]  # what the scanner made


def encode_json(value: Json) -> bytes:
    """The compact ASCII text of a value; lone surrogates stay escapes."""
    try:
        return _ENCODE(value).encode("ascii")
    except ValueError:  # 1e999 became infinite when it was read
        return _ENCODE(_finite(value)).encode("ascii")


def encode_frame(**members: Json) -> bytes:
    """The line of a message with these members."""
    return encode_json({"jsonrpc": "2.0", **members}) + b"\n"


def _finite(value: Json) -> Json:
    """The same value with its infinities cut to the largest number."""
    if isinstance(value, float):
        return max(-_LARGEST_NUMBER, min(_LARGEST_NUMBER, value))
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def is_utf8(line: bytes) -> bool:
    """Is it UTF-8? Looked at in pieces, so that no wide copy of a big line is made."""
    view = memoryview(line)
    index = 0
    try:
        while index < len(line):
            piece = view[index : index + _DEPTH_WINDOW]
            final = index + len(piece) == len(line)
            index += utf_8_decode(piece, "strict", final)[1]
    except UnicodeDecodeError:
        return False
    return True


def is_deeper(line: bytes, depth: int) -> bool:
    """Are there more than `depth` levels? Linear, without recursion; exact for valid JSON.

    For other text it is exact up to where the scanner stops, which is what protects it.
    """
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    level, in_string = 0, 0
    for start in range(0, len(bare), _DEPTH_WINDOW):
        parts = bare[start : start + _DEPTH_WINDOW].split(b'"')
        marks = b"".join(parts[in_string::2]).translate(None, _NOT_BRACKETS)
        in_string ^= (len(parts) - 1) & 1
        for mark in marks:
            if mark in b"[{":
                level += 1
                if level > depth:
                    return True
            else:
                level -= 1
    return False


def id_key(value: object) -> ClientKey | None:
    """The id as a dictionary key when it may be one: a string or an integer, never 1.0 or true."""
    return value if type(value) in (int, str, LongInteger) else None  # type: ignore[return-value]  # by type()


_ID_AT_END: Final = re.compile(
    rb'"id"[ \t]*:[ \t]*(-?\d{1,200}|"(?:[^"\\]|\\.){0,200}")[ \t]*\}\s*$'
)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{}:,]|[^\s"\[\]{}:,]+')


def recover_id(head: bytes, tail: bytes = b"") -> bytes:
    """The text of the top-level id of a line that cannot be parsed, or b"".

    `head` is how the line begins and `tail` how it ends, when that is more than the head. Bytes
    are looked at, nothing is parsed: VS Code writes the id first, the TypeScript SDK last.
    """
    level = 0
    key = before = b""
    for token in _TOKEN.findall(head):
        if token in b"[{":
            level += 1
        elif token in b"]}":
            level -= 1
        elif before == b":" and key == b'"id"' and level == 1:
            return token if _is_id_text(token, head) else b""
        elif token == b":":
            key = before
        before = token
    found = _ID_AT_END.search(tail)
    return found.group(1) if found else b""


def _is_id_text(token: bytes, head: bytes) -> bool:
    if head.endswith(token) and not token.endswith(b'"'):
        return False  # cut in the middle of a number
    try:
        return id_key(parse_json(token)) is not None
    except ValueError:
        return False


# endregion

# region pure framing ---------------------------------------------------------
# In: chunks of bytes, split anywhere. Out: lines without their end. Lines end at LF alone.


class LongLine:
    """What is kept of a line over the limit: its head and, once it has ended, its tail."""

    __slots__ = ("ended", "head", "tail")

    def __init__(self, head: bytes, tail: bytes = b"", *, ended: bool = False) -> None:
        self.head = head
        self.tail = tail
        self.ended = ended


class LineFramer:
    """Cuts a stream into lines. Holds at most one line of at most `line_bytes`.

    Threads: one reader owns it.
    """

    def __init__(self, line_bytes: int, edge_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._edge_bytes = edge_bytes
        self._buffer = bytearray()  # of a line that has not ended; grows in place
        self._long: LongLine | None = None  # while a line is over the limit
        self._tail = b""  # of that line so far
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes | LongLine]:
        """The lines that this chunk ends, in order; blank ones are left out.

        A line over the limit comes twice: when it passes the limit, and when it ends.
        """
        if self._at_start:
            chunk = self._without_byte_order_mark(chunk)
        found: list[bytes | LongLine] = []
        start = 0
        while True:
            end = chunk.find(b"\n", start)
            if end < 0:
                if start < len(chunk):
                    self._keep(chunk[start:], found)
                return found
            self._end_line(chunk[start:end], found)
            start = end + 1

    def finish(self) -> bytes:
        """What came behind the last line end, when it is within the limit."""
        return bytes(self._buffer)

    def _without_byte_order_mark(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        chunk = bytes(self._buffer) + chunk
        self._buffer.clear()
        mark = b"\xef\xbb\xbf"
        if len(chunk) < len(mark) and mark.startswith(chunk):
            self._buffer += chunk
            return b""
        self._at_start = False
        return chunk[len(mark) :] if chunk.startswith(mark) else chunk

    def _keep(self, part: bytes, found: list[bytes | LongLine]) -> None:
        if self._long is not None:
            self._tail = (self._tail + part)[-self._edge_bytes :]
            return
        self._buffer += part
        if len(self._buffer) > self._line_bytes + 1:  # one more for a CR that is none of the line
            self._start_long(bytes(self._buffer[: self._edge_bytes]), found)

    def _start_long(self, head: bytes, found: list[bytes | LongLine]) -> LongLine:
        self._long, self._tail = LongLine(head), bytes(self._buffer[-self._edge_bytes :])
        self._buffer = bytearray()
        found.append(self._long)
        return self._long

    def _end_line(self, part: bytes, found: list[bytes | LongLine]) -> None:
        if self._buffer or self._long is not None:
            self._keep(part, found)
            part = bytes(self._buffer)
        long = self._long
        if long is None:
            line = part[:-1] if part.endswith(b"\r") else part
            if len(line) <= self._line_bytes:
                if self._buffer:
                    self._buffer = bytearray()
                if line.strip():
                    found.append(line)
                return
            self._buffer = bytearray(part)
            long = self._start_long(part[: self._edge_bytes], found)
        self._long = None
        found.append(LongLine(long.head, self._tail, ended=True))


# endregion

# region pure schemas ---------------------------------------------------------
# In: the inputSchema of a tool. Out: one that VS Code keeps, and what was changed, in log lines.
# Two checks decide. The workbench reads a schema by draft-07, or by the meta-schema that $schema
# names at the root. The Copilot extension reads it by draft-07 whatever the mark says, and wants
# items in array schemas; one that fails there stops every chat. What passes both is left alone.

ITEMS_DEPTH: Final = 64  # levels of schemas; there the items rule stops, the repair does not
POINTER_LENGTH: Final = 1000  # characters; the names in a pointer are the server's
SCHEMA_TOO_DEEP: Final = "is too deep to examine"

SCHEMA_DIALECTS: Final[Mapping[str, str]] = {  # what $schema names, with http and without "#"
    "http://json-schema.org/draft-04/schema": "draft-04",
    "http://json-schema.org/draft-06/schema": "draft-06",
    "http://json-schema.org/draft-07/schema": "draft-07",
    "http://json-schema.org/draft/2019-09/schema": "2019-09",
    "http://json-schema.org/draft/2020-12/schema": "2020-12",
}
TYPE_NAMES: Final[Mapping[str, str]] = {  # in lower case, the last six as programmers call them
    "array": "array",
    "boolean": "boolean",
    "integer": "integer",
    "null": "null",
    "number": "number",
    "object": "object",
    "string": "string",
    "bool": "boolean",
    "dict": "object",
    "float": "number",
    "int": "integer",
    "list": "array",
    "str": "string",
}
FLAG_NAMES: Final = {"true": True, "false": False}


def repair_input_schema(schema: Json) -> tuple[Json, list[str]]:
    """The same object when VS Code keeps it, else a new one that it keeps; and what was done."""
    if not isinstance(schema, dict):
        return {"type": "object"}, [_change_line("", "replaced an input schema that is no object")]
    return _SchemaWalk(schema).run()


def _change_line(pointer: str, what: str) -> str:
    """What was done to the schema at a JSON Pointer; the log puts the tool before it."""
    if what == SCHEMA_TOO_DEEP:
        return f"the input schema at '{pointer}' {what}"
    return f"{what} at '{pointer}' of the input schema"


# Each keyword has a rule that answers with the right value: an equal one when it is right, else
# what it must have meant, or None when it means nothing. No keyword with a rule may be null.

if TYPE_CHECKING:
    _Rule = Callable[[Json], Json]
    _Rules = Mapping[str, _Rule]


def _wrong_values(schema: JsonObject, rules: _Rules) -> JsonObject:
    """The answers of the rules for the values that are not right, by keyword."""
    wrong: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in rules:
            right = rules[keyword](value)
            if right is None or right != value:
                wrong[keyword] = right
    return wrong


def _right_if(kind: type[Json]) -> _Rule:
    return lambda value: value if isinstance(value, kind) else None


def _dialect(mark: Json) -> str | None:
    """The draft that a $schema mark names, in a spelling that VS Code knows."""
    text = mark if isinstance(mark, str) else ""
    return SCHEMA_DIALECTS.get(text.replace("https://", "http://", 1).removesuffix("#"))


def _right_uri(value: Json) -> Json:
    return value if isinstance(value, str) and value else None  # VS Code takes no empty URI


def _word(value: Json) -> str:
    return value.lower() if isinstance(value, str) else ""


def _right_flag(value: Json) -> Json:
    return value if isinstance(value, bool) else FLAG_NAMES.get(_word(value))


def _as_double(number: float) -> float:
    """The number as JavaScript has it."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _right_number(value: Json) -> float | None:
    number = _number_in(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    return number if abs(_as_double(number)) < float("inf") else None


def _number_in(text: str) -> float | None:
    """The number that a short decimal text says, or None."""
    digits = text.removeprefix("-").replace(".", "", 1)
    if len(text) > 15 or not digits.isascii() or not digits.isdigit():
        return None
    return float(text) if "." in text else int(text)


def _right_divisor(value: Json) -> Json:
    number = _right_number(value)
    return abs(number) if number else None


def _right_count(rounded: Callable[[float], int]) -> _Rule:
    """The rule for a non-negative integer; a fraction is rounded to what bounds the same."""

    def rule(value: Json) -> Json:
        number = _right_number(value)
        if number is None:
            return None
        if not _as_double(number).is_integer():
            number = rounded(number)
        elif number >= 1e21 and "." in repr(float(number)):
            return None  # 1.5e+21, to VS Code no integer
        return number if number >= 0 else None

    return rule


def _right_type(value: Json) -> Json:
    if not isinstance(value, list):
        return TYPE_NAMES.get(_word(value))
    members = ("null" if member is None else member for member in value)  # YAML: [string, null]
    known = dict.fromkeys(TYPE_NAMES.get(_word(member)) for member in members)
    return [name for name in known if name] or None


def _right_enum(value: Json) -> Json:
    """An enum: not empty, and nothing twice by JavaScript's equality (1 is 1.0, but not true)."""
    first: dict[object, Json] = {}
    for choice in value if isinstance(value, list) else ():
        first.setdefault(_equality_key(choice), choice)
    return list(first.values()) or None


def _equality_key(value: Json) -> object:
    """A key that equal values share."""
    if isinstance(value, dict):
        return frozenset((name, _equality_key(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(map(_equality_key, value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _as_double(value)
    return value if isinstance(value, str) else (type(value), value)


def _right_names(value: Json) -> list[Json] | None:
    if not isinstance(value, list):
        return None
    return list(dict.fromkeys(name for name in value if isinstance(name, str)))


def _right_schema(value: Json) -> Json:
    """A schema, or what `"string"` and `"false"` mean in its place."""
    if isinstance(value, dict):
        return value
    name = TYPE_NAMES.get(_word(value))
    return {"type": name} if name else _right_flag(value)


def _as_schema(value: Json) -> Json:
    schema = _right_schema(value)
    return {} if schema is None else schema


def _right_items(value: Json) -> Json:
    return value if isinstance(value, list) and value else _as_schema(value)


def _right_schemas(value: Json) -> Json:
    if isinstance(value, dict):
        return [value]
    members = value if isinstance(value, list) else []
    return [schema for schema in map(_right_schema, members) if schema is not None] or None


def _right_map_of(rule: _Rule) -> _Rule:
    def map_rule(value: Json) -> Json:
        if not isinstance(value, dict):
            return None
        answers = {name: rule(member) for name, member in value.items()}
        return {name: answer for name, answer in answers.items() if answer is not None}

    return map_rule


def _right_dependency(value: Json) -> Json:
    if isinstance(value, str):
        return [value]  # draft-03
    return _right_names(value) if isinstance(value, list) else _right_schema(value)


def _rules(*rows: tuple[str, _Rule]) -> dict[str, _Rule]:
    return {keyword: rule for keywords, rule in rows for keyword in keywords.split()}


_right_map: Final = _right_if(dict)
DRAFT_07_SLOTS: Final = _rules(  # the keywords of draft-07 that hold schemas
    ("properties patternProperties definitions", _right_map),
    ("dependencies", _right_map_of(_right_dependency)),
    ("allOf anyOf oneOf", _right_schemas),
    ("items", _right_items),
    ("additionalItems additionalProperties contains", _right_schema),
    ("propertyNames not if then else", _right_schema),
)
DRAFT_07_RULES: Final[_Rules] = DRAFT_07_SLOTS | _rules(
    ("$schema", lambda value: value if _dialect(value) else None),
    ("$id", _right_uri),
    ("$ref", lambda value: "#" if value == "" else _right_uri(value)),
    ("$comment title description pattern format", _right_if(str)),
    ("contentMediaType contentEncoding", _right_if(str)),
    ("readOnly writeOnly uniqueItems", _right_flag),
    ("type", _right_type),
    ("enum", _right_enum),
    ("examples", _right_if(list)),
    ("required", _right_names),
    ("multipleOf", _right_divisor),
    ("maximum minimum exclusiveMaximum exclusiveMinimum", _right_number),
    ("maxLength maxItems maxProperties", _right_count(float.__floor__)),
    ("minLength minItems minProperties", _right_count(float.__ceil__)),
)


# What VS Code asks beyond draft-07 where the mark names another draft. A schema that is not so
# loses the mark, and is then read by draft-07.


def _right_absolute_uri(value: Json) -> Json:
    scheme, colon, _ = value.partition(":") if isinstance(value, str) else ("", "", "")
    return value if scheme and colon and set(scheme).isdisjoint("/?#") else None


def _right_anchor(value: Json) -> Json:
    if not isinstance(value, str) or not value.isascii() or not value[:1].isalpha():
        return None
    return value if value.replace("-", "_").replace(".", "_").isidentifier() else None


LATER_SLOTS: Final = _rules(  # the keywords of later drafts that hold schemas
    ("$defs dependentSchemas", _right_map),
    ("prefixItems", _right_schemas),
    ("contentSchema unevaluatedItems unevaluatedProperties", _right_schema),
)
LATER_RULES: Final = LATER_SLOTS | _rules(
    ("$id", lambda value: value if isinstance(value, str) and "#" not in value[:-1] else None),
    ("$anchor", _right_anchor),
    ("$dynamicRef $recursiveRef", _right_uri),
    ("$recursiveAnchor deprecated", _right_flag),
    ("$vocabulary", _right_map_of(_right_flag)),
    ("minContains maxContains", _right_count(float.__ceil__)),
    ("dependentRequired", _right_map_of(_right_names)),
)
MARK_RULES: Final[Mapping[str, _Rules]] = {
    "draft-04": _rules(
        ("id", _right_absolute_uri),
        ("required", lambda value: value or None),
        ("dependencies", _right_map_of(lambda value: value if value != [] else None)),
        ("exclusiveMinimum exclusiveMaximum", _right_if(bool)),
    ),
    "draft-06": {"$schema": _right_map},  # never so: VS Code would have to download it
    "2019-09": LATER_RULES,
    "2020-12": {**LATER_RULES, "items": _right_schema},
}

SCHEMA_SLOTS: Final = frozenset(DRAFT_07_SLOTS | LATER_SLOTS)
ITEMS_SLOTS: Final = SCHEMA_SLOTS - {
    "additionalItems", "contentSchema", "propertyNames", "unevaluatedItems", "unevaluatedProperties"
}  # fmt: skip
MAP_SLOTS: Final = frozenset(
    ("properties", "patternProperties", "definitions", "dependencies", "$defs", "dependentSchemas")
)
REPAIR_WORDS: Final = {
    "$schema": "removed the unknown $schema mark",
    "items": "added an items schema",
}


def _repaired(value: Json, done: list[str]) -> Json:
    """The schema as draft-07 wants it, not what is under it; the same object if it is so."""
    schema = _as_schema(value)
    if schema is not value:
        done.append("replaced a value that is no schema")
    if not isinstance(schema, dict):
        return schema
    schema = _without_old_drafts(schema, done)
    wrong = _wrong_values(schema, DRAFT_07_RULES)
    if not wrong:
        return schema
    repaired = {**schema, **wrong}
    for keyword, right in wrong.items():
        verb = "corrected"
        if right is None:
            verb = "removed"
            del repaired[keyword]
        done.append(REPAIR_WORDS.get(keyword, f"{verb} an invalid {keyword}"))
    return repaired


def _without_old_drafts(schema: JsonObject, done: list[str]) -> JsonObject:
    """What older drafts say by two keywords together, in the words of draft-07."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if bound in schema and schema.get(exclusive) is True:
            schema = _moved(schema, bound, exclusive)
            done.append(f"made {exclusive} a number")
    if "additionalItems" in schema and schema.get("items") == []:
        schema = _moved(schema, "additionalItems", "items")
        done.append("moved additionalItems to items")
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    marked = [k for k, v in properties.items() if isinstance(v, dict) and v.get("required") is True]
    if marked:  # draft-03
        listed = _right_names(schema.get("required")) or []
        schema = {**schema, "required": _right_names([*listed, *marked])}
        done.append("listed the properties that are marked as required")
    return schema


def _moved(schema: JsonObject, source: str, target: str) -> JsonObject:
    """The schema with the value of one keyword in the place of another's."""
    moved = {**schema, target: schema[source]}
    del moved[source]
    return moved


def _with_items_schema(schema: JsonObject, done: list[str]) -> JsonObject:
    """The schema; if it is of an array and JavaScript takes its items for false, one with items."""
    items = schema.get("items")
    if schema.get("type") != "array" or items or isinstance(items, (dict, list)):
        return schema
    done.append(REPAIR_WORDS["items"])
    answer = {**schema, "items": {}}
    if items is False and "maxItems" not in schema:  # accepts the same arrays as before
        first = schema.get("prefixItems")
        answer["maxItems"] = len(first) if isinstance(first, list) else 0
    return answer


class _SchemaPlace:
    """A place in the tree of an input schema; what lies above a change is copied, once."""

    __slots__ = ("above", "is_ours", "is_repaired", "items_left", "key", "value")

    def __init__(self, above: _SchemaPlace | None, key: str | int, value: Json) -> None:
        self.above = above
        self.key = key
        self.value = value
        self.is_ours = False  # may the value be changed?
        self.is_repaired: bool = above.is_repaired if above else True
        # Levels that the items rule looks at from here; 0 is too deep, and below it does not look.
        self.items_left: int = above.items_left if above else ITEMS_DEPTH + 1

    def replace(self, value: Json) -> None:
        """Put another value here; no object of the server's is touched."""
        self.value, self.is_ours = value, True
        place, is_hung = self, False
        while place.above is not None and not is_hung:
            above = place.above
            is_hung = above.is_ours
            if not is_hung:
                above.value, above.is_ours = above.value.copy(), True  # type: ignore[union-attr]  # it holds places
            above.value[place.key] = place.value  # type: ignore[index]  # and this by its key
            place = above

    def pointer(self) -> str:
        """Where this is, by RFC 6901 and in the server's words; cut when it is long."""
        names: list[str] = []
        place = self
        while place.above is not None:
            names.append("/" + str(place.key).replace("~", "~0").replace("/", "~1"))
            place = place.above
        pointer = "".join(reversed(names))
        return pointer if len(pointer) <= POINTER_LENGTH else f"{pointer[:POINTER_LENGTH]}..."

    def schemas(self) -> list[_SchemaPlace]:
        """The places of the schemas that a keyword holds: in a map, in a list, or itself."""
        value, key = self.value, self.key
        members: Iterable[tuple[str | int, Json]]
        if isinstance(value, dict) and key in MAP_SLOTS:
            others = list if key == "dependencies" else ()  # the names of other properties
            members = ((k, v) for k, v in value.items() if not isinstance(v, others))
        elif isinstance(value, list) and key not in MAP_SLOTS:
            members = enumerate(value)
        elif isinstance(value, bool) and key in {"additionalItems", "additionalProperties"}:
            return []  # a flag, also in draft-04
        else:
            return [self]
        return [_SchemaPlace(self, k, v) for k, v in members]


class _SchemaWalk:
    """One walk over an input schema: every schema in it once, each before those under it."""

    def __init__(self, schema: JsonObject) -> None:
        self._root = _SchemaPlace(None, "", schema)
        self._done: list[tuple[_SchemaPlace, str]] = []
        self._is_too_deep = False
        self._dialect = _dialect(schema.get("$schema")) or "draft-07"
        self._mark_rules = MARK_RULES.get(self._dialect)  # None when there is no doubt (left)

    def run(self) -> tuple[Json, list[str]]:
        """The schema after all rules, the same object if nothing was done; and what was done."""
        rest = [self._root]
        while rest:
            place = rest.pop()
            self._visit(place)
            rest.extend(reversed(self._places_under(place)))
        schema = self._root.value
        most = LIMITS.schema_lines  # all changes are made; no hostile schema fills the log
        lines = [_change_line(place.pointer(), what) for place, what in self._done[:most]]
        if self._dialect in MARK_RULES and self._mark_rules is None and isinstance(schema, dict):
            schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
            what = f"removed the $schema mark {self._dialect}, with which VS Code omits the tool"
            lines.insert(0, _change_line("", what))
        if len(self._done) > most:
            lines.append(f"and {len(self._done) - most} more changes of the input schema")
        return schema, lines

    def _visit(self, place: _SchemaPlace) -> None:
        schema = place.value
        done: list[str] = []
        if place.is_repaired:
            schema = _repaired(schema, done)
        if isinstance(schema, dict) and place.items_left > 0:
            schema = _with_items_schema(schema, done)
        elif isinstance(schema, dict) and place.items_left == 0 and not self._is_too_deep:
            self._is_too_deep = True
            done.insert(0, SCHEMA_TOO_DEEP)
        if done:
            self._done += ((place, what) for what in done)
        if schema is not place.value:
            place.replace(schema)
        if self._mark_rules and not self._fits(place, self._mark_rules):
            self._mark_rules = None

    def _fits(self, place: _SchemaPlace, mark_rules: _Rules) -> bool:
        """Whether the mark may stay, as far as this place goes."""
        schema = place.value
        if not isinstance(schema, dict):
            return isinstance(schema, bool) and self._dialect != "draft-04"
        if not place.is_repaired and _wrong_values(schema, DRAFT_07_RULES):
            return False
        return not _wrong_values(schema, mark_rules)

    def _places_under(self, place: _SchemaPlace) -> list[_SchemaPlace]:
        """The schemas right under this one that a rule wants to see, in their order."""
        found: list[_SchemaPlace] = []
        if not isinstance(place.value, dict) or SCHEMA_SLOTS.isdisjoint(place.value):
            return found
        for keyword, value in place.value.items():
            if keyword in SCHEMA_SLOTS:
                holder = _SchemaPlace(place, keyword, value)
                holder.is_repaired &= keyword in DRAFT_07_SLOTS
                holder.items_left = place.items_left - 1 if keyword in ITEMS_SLOTS else -1
                if holder.is_repaired or holder.items_left >= 0 or self._mark_rules:
                    found += (below for below in holder.schemas() if below.value != {})
        return found


# endregion

# region pure forms -----------------------------------------------------------
# In: the requestedSchema of a form. Out: the form that the client can show, and whether an answer
# fits the server's own schema. See client/elicitation, "Requested Schema": a flat object of texts,
# numbers, booleans and choices; what real servers write instead is brought to that where it means
# the same. Nothing is fetched, and a reference is followed inside the schema alone. What a hostile
# schema can cost is bounded, so that all of it takes less than a second.

_MOST_BYTES: Final = 4 << 20  # of a schema with all that its references bring in
_MOST_HOPS: Final = 16  # references and alternatives inside one another
_MOST_STEPS: Final = 250_000  # of the check of one answer


if TYPE_CHECKING:
    _Choices = list[tuple[Json, str]]  # the values of a choice, each with its title or ""


class FormError(Exception):
    """The schema is none that a form can be made of."""


class Form:
    """The form of a requestedSchema; making it raises FormError. `shown` is for the client."""

    def __init__(self, requested: Json) -> None:
        if not isinstance(requested, dict) or requested.get("type", "object") != "object":
            raise FormError
        properties, required = requested.get("properties", {}), requested.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise FormError
        if not all(isinstance(name, str) and name in properties for name in required):
            raise FormError  # no answer could ever fit
        self._schema = requested
        self._properties = properties
        self._required = frozenset(required)
        self._meanings: dict[str, dict[str, Json]] = {}  # of the texts of a field's choices
        self._bytes_left = _MOST_BYTES
        self._spend(requested)
        self._fields = {name: self._show(name, schema) for name, schema in properties.items()}
        self.shown: JsonObject = {"type": "object", "properties": {**self._fields}}
        if required:
            self.shown["required"] = required

    def is_empty(self) -> bool:
        """Has it nothing to fill in?"""
        return not self._fields

    def read(self, content: JsonObject) -> JsonObject | None:
        """The content for the server, or None when it does not fit the server's schema."""
        check = _Check(self._schema)
        try:
            read = {
                name: _meant(value, self._meanings.get(name, {}))
                for name, value in content.items()
                if not self._is_left_empty(name, value, check)
            }
            return read if check.fits(read, self._schema) else None
        except FormError:
            return None

    def _is_left_empty(self, name: str, value: Json, check: _Check) -> bool:
        """Did the user leave an optional field empty? VS Code fills it then.

        It was seen to write null for a number, "" for a text, and for several choices the value
        of the field before, which is none of them.
        """
        if name not in self._fields or name in self._required:
            return False
        if isinstance(value, list):
            items = self._fields[name].get("items", True)
            return not all(check.fits(one, items) for one in value)
        return value in (None, "") and not check.fits(value, self._properties[name])

    def _spend(self, schema: JsonObject) -> None:
        self._bytes_left -= len(encode_json(schema))
        if self._bytes_left < 0:
            raise FormError

    def _show(self, name: str, schema: Json) -> JsonObject:
        """The schema of a property as the client knows it."""
        schema = self._resolve(schema)
        shown, choices = self._show_kind(schema)
        default = schema.get("default")
        if not all(isinstance(value, str) for value, _ in choices):
            self._meanings[name] = {_text_of(value): value for value, _ in choices}
            if isinstance(default, list):
                default = [_text_of(one) for one in default]
            elif default is not None:
                default = _text_of(default)
        shown.update({k: schema[k] for k in _SHOWN_WORDS if isinstance(schema.get(k), str)})
        if default is not None and _Check(shown).fits(default, shown):
            shown["default"] = default
        return shown

    def _show_kind(self, schema: JsonObject) -> tuple[JsonObject, _Choices]:
        choices = self._choices(schema)
        if choices:
            key = "enumNames" if "enumNames" in schema else "oneOf"
            return {"type": "string", **_show_choices(choices, key)}, choices
        kind = self._kind(schema)
        shown: JsonObject = {"type": kind}
        if kind == "string":
            shown.update(_counts(schema, "minLength", "maxLength"))
            if str(schema.get("format")) in _FORMATS:
                shown["format"] = schema["format"]
        elif kind in ("integer", "number"):
            shown.update(_number_bounds(schema, 1 if kind == "integer" else 0))
        elif kind == "array":
            choices = self._choices(self._resolve(schema.get("items")))
            if not choices:
                raise FormError
            shown["items"] = _show_choices(choices, "anyOf")
            shown.update(_counts(schema, "minItems", "maxItems"))
        elif kind != "boolean":
            raise FormError
        return shown, choices

    def _resolve(self, schema: Json) -> JsonObject:
        """The same schema without references, single alternatives and null."""
        for _ in range(_MOST_HOPS):
            if not isinstance(schema, dict):
                raise FormError
            if "$ref" in schema:
                target = _target(schema["$ref"], self._schema)
                self._spend(target)
                simpler = _replaced(schema, "$ref", target)
            else:
                simpler = _join_alternative(schema)
            if simpler is schema:
                return schema
            schema = simpler
        raise FormError

    def _kind(self, schema: JsonObject) -> str | None:
        """The type to ask for; of several, one whose values the others take as well."""
        kinds = _kinds(schema)
        if not kinds:
            kinds = {kind for part in _parts(schema) for kind in _kinds(self._resolve(part))}
        if "string" in kinds:
            return "string"
        if kinds == {"integer", "number"}:
            return "number"
        return kinds.pop() if len(kinds) == 1 else None

    def _choices(self, schema: JsonObject) -> _Choices:
        """What can be chosen; nothing when the schema is no choice."""
        found = _listed(schema)
        if not found:
            for part in _parts(schema):
                each = self._resolve(part)
                listed, title = _listed(each), each.get("title")
                if not listed:
                    return []
                if len(listed) == 1 and isinstance(title, str):
                    listed = [(value, title) for value, _ in listed]
                found += listed
        if any(isinstance(value, (dict, list)) for value, _ in found):
            raise FormError
        return found


def _meant(value: Json, meanings: dict[str, Json]) -> Json:
    """What the texts of an answer stand for."""
    if isinstance(value, list):
        return [_meant(one, meanings) for one in value]
    return meanings.get(value, value) if isinstance(value, str) else value


_SHOWN_WORDS: Final = ("title", "description")


def _join_alternative(schema: JsonObject) -> JsonObject:
    """The schema with its one alternative that is not null in place, if there is one."""
    for key in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(key)
        if not isinstance(parts, list):
            continue
        left = [part for part in parts if key == "allOf" or not _is_null(part)]
        only = left[0] if len(left) == 1 else None
        if isinstance(only, dict) and (key == "allOf" or "const" not in only):
            return _replaced(schema, key, only)  # a const there is a choice with its title
        if len(left) < len(parts):
            return {**schema, key: left}
    return schema


def _target(reference: Json, root: JsonObject) -> JsonObject:
    """What a reference inside the schema names. Raises FormError."""
    start, *steps = str(reference).split("/")
    if start != "#" or not steps:
        raise FormError
    found: Json = root
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise FormError
    return found


def _replaced(schema: JsonObject, key: str, inner: JsonObject) -> JsonObject:
    """What both say together, without the key that leads to the inner one."""
    return {**inner, **{k: v for k, v in schema.items() if k != key}}


def _is_null(schema: Json) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") == "null" or schema.get("const", "") is None
    )


def _parts(schema: JsonObject) -> list[Json]:
    """The alternatives of a schema."""
    parts = schema.get("oneOf", schema.get("anyOf"))
    return parts if isinstance(parts, list) else []


def _kinds(schema: JsonObject) -> set[str]:
    """The types that a schema names, without null."""
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return {one for one in kinds if isinstance(one, str) and one != "null"}


def _listed(schema: JsonObject) -> _Choices:
    """The values of a const or an enum, but null."""
    enum, names = schema.get("enum"), schema.get("enumNames")
    if "const" in schema:
        enum, names = [schema["const"]], None
    if not isinstance(enum, list):
        return []
    if not isinstance(names, list) or len(names) != len(enum):
        names = [""] * len(enum)
    found: _Choices = [
        (value, name if isinstance(name, str) else "")
        for value, name in zip(enum, names)
        if value is not None
    ]
    if not found:
        raise FormError
    return found


def _text_of(value: Json) -> str:
    """What the client calls a value that can be chosen."""
    return value if isinstance(value, str) else encode_json(value).decode("ascii")


def _show_choices(choices: _Choices, key: str) -> JsonObject:
    """The members that offer the choices: with their titles, under `key`, when there are any."""
    texts: list[Json] = [_text_of(value) for value, _ in choices]
    if not any(title for _, title in choices):
        return {"type": "string", "enum": texts}
    titles: list[Json] = [title or text for text, (_, title) in zip(texts, choices)]
    if key == "enumNames":
        return {"enum": texts, key: titles}
    return {key: [{"const": text, "title": title} for text, title in zip(texts, titles)]}


def _numbers(schema: JsonObject, *names: str) -> list[tuple[str, float]]:
    """The members of these names that are numbers."""
    members = ((name, schema.get(name)) for name in names)
    return [(k, v) for k, v in members if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _counts(schema: JsonObject, *names: str) -> JsonObject:
    """The bounds of a length: whole numbers, as the client's type has them."""
    return {name: int(n) for name, n in _numbers(schema, *names) if _is_type(n, "integer")}


def _number_bounds(schema: JsonObject, step: int) -> JsonObject:
    """The bounds of a number, which the client has inclusive; `step` is 1 for integers, else 0."""
    bounds = dict(_numbers(schema, *_BOUNDS))
    for name, strict, inwards, tighter in (
        ("minimum", "exclusiveMinimum", step, max),
        ("maximum", "exclusiveMaximum", -step, min),
    ):
        if strict in bounds:
            bound = bounds.pop(strict)
            bound += inwards if _is_type(bound, "integer") else 0
            bounds[name] = tighter(bounds.get(name, bound), bound)
    return {**bounds}


class _Check:
    """Is a value valid by the keywords that a form can have? Others say nothing."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._left = _MOST_STEPS

    def fits(self, value: Json, schema: Json, hops: int = 0) -> bool:
        """Raises FormError when it would cost too much to say, or a reference leads nowhere."""
        self._left -= 1
        if self._left < 0 or hops > _MOST_HOPS:
            raise FormError
        if not isinstance(schema, dict):
            return schema is True
        enum = schema.get("enum")
        return (
            ("type" not in schema or _is_type(value, schema["type"]))
            and ("const" not in schema or _equal(value, schema["const"]))
            and (not isinstance(enum, list) or any(_equal(value, one) for one in enum))
            and self._fits_kind(value, schema, hops + 1)
            and self._fits_parts(value, schema, hops + 1)
        )

    def _fits_parts(self, value: Json, schema: JsonObject, hops: int) -> bool:
        for key, are_enough in _ENOUGH.items():
            parts = schema.get(key)
            if isinstance(parts, list) and not are_enough(
                [self.fits(value, part, hops) for part in parts]
            ):
                return False
        return "$ref" not in schema or self.fits(value, _target(schema["$ref"], self._root), hops)

    def _fits_kind(self, value: Json, schema: JsonObject, hops: int) -> bool:
        if isinstance(value, str):
            is_within = _is_within(len(value), schema, "minLength", "maxLength")
            return is_within and _has_format(value, schema.get("format"))
        if isinstance(value, list):
            return (
                _is_within(len(value), schema, "minItems", "maxItems")
                and all(self.fits(one, schema.get("items", True), hops) for one in value)
                and (
                    schema.get("uniqueItems") is not True
                    or len(value) == len({*map(encode_json, value)})
                )
            )
        if isinstance(value, dict):
            return self._fits_object(value, schema, hops)
        return value is None or isinstance(value, bool) or _is_within(value, schema, *_BOUNDS)

    def _fits_object(self, value: JsonObject, schema: JsonObject, hops: int) -> bool:
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(required, list) and any(
            name not in value for name in required if isinstance(name, str)
        ):
            return False
        known = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties", True)
        return all(self.fits(v, known.get(k, others), hops) for k, v in value.items())


_ENOUGH: Final[Mapping[str, Callable[[list[bool]], bool]]] = {
    "allOf": all,
    "anyOf": any,
    "oneOf": lambda fitting: sum(fitting) == 1,
}
_TYPES: Final = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip


def _is_type(value: Json, kind: Json) -> bool:
    """Is it of that type, or of one of those? A bool is no number, and 1.0 is an integer."""
    if isinstance(kind, list):
        return any(_is_type(value, one) for one in kind)
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(kind, str) and type(value) in _TYPES.get(kind, ())


def _equal(one: Json, other: Json) -> bool:
    """Equal as JSON: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COMPARE: Final = {
    "minLength": ge, "maxLength": le, "minItems": ge, "maxItems": le,
    "minimum": ge, "maximum": le, "exclusiveMinimum": gt, "exclusiveMaximum": lt,
}  # fmt: skip


def _is_within(amount: float, schema: JsonObject, *names: str) -> bool:
    return all(_COMPARE[name](amount, bound) for name, bound in _numbers(schema, *names))


_DAY: Final = r"(\d{4})-(\d\d)-(\d\d)"
_FORMATS: Final = {
    "email": r"\S+@[^\s@]+\Z",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S+\Z",
    "date": _DAY + r"\Z",
    "date-time": _DAY + r"[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?\Z",
}


def _has_format(text: str, kind: Json) -> bool:
    """Is it, roughly, an e-mail address, a URI, a date, a point in time?"""
    found = re.match(_FORMATS.get(str(kind), ""), text, re.ASCII)
    return found is not None and (not found.lastindex or _is_day(*map(int, found.groups())))


def _is_day(year: int, month: int, day: int) -> bool:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 28 + is_leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


# endregion

# region pure lifecycle -------------------------------------------------------
# In: the params of initialize, the result of server/discover. Out: clientInfo and capabilities
# for the server, the initialize result for the client. Members of a wrong shape are dropped, so
# that both sides always get what their schema allows.

_INFO_TEXTS: Final = ("name", "title", "version", "description", "websiteUrl")


def parse_initialize(params: Json) -> tuple[JsonObject, JsonObject]:
    """The clientInfo and the capabilities for the server. Raises BridgeError INVALID_PARAMS."""
    given = params if isinstance(params, dict) else {}
    capabilities = given.get("capabilities")
    info = _implementation(given.get("clientInfo"))
    if not isinstance(given.get("protocolVersion"), str):
        missing = "a protocolVersion"
    elif not isinstance(capabilities, dict):
        missing = "capabilities"
    elif info is None:
        missing = "clientInfo: name and version"
    else:
        return info, capabilities_to_modern(capabilities)
    raise BridgeError(Cause.INVALID_PARAMS, f"initialize needs {missing}")


def _implementation(value: Json) -> JsonObject | None:
    """The valid members of an Implementation, or None without a name and a version."""
    if not isinstance(value, dict):
        return None
    info: JsonObject = {key: value[key] for key in _INFO_TEXTS if isinstance(value.get(key), str)}
    if "name" not in info or "version" not in info:
        return None
    icons = value.get("icons")
    kept = [icon for icon in icons if _is_icon(icon)] if isinstance(icons, list) else []
    if kept:
        info["icons"] = kept
    return info


def _is_icon(icon: Json) -> bool:
    if not isinstance(icon, dict) or not isinstance(icon.get("src"), str):
        return False
    sizes = icon.get("sizes", [])
    return (
        isinstance(icon.get("mimeType", ""), str)
        and isinstance(sizes, list)
        and all(isinstance(size, str) for size in sizes)
        and icon.get("theme", "light") in ("light", "dark")
    )


def capabilities_to_modern(declared: JsonObject) -> JsonObject:
    """What the server hears of the client's capabilities: only what the client declared."""
    parts = {
        "sampling": ("context", "tools"),
        "elicitation": ("form", "url"),
        "roots": (),  # listChanged is not part of 2026-07-28
    }
    known = _objects(declared, parts)
    modern: JsonObject = {key: dict(_objects(value, parts[key])) for key, value in known}
    return {**modern, **_extensions(declared)}


def _objects(holder: JsonObject, keys: Iterable[str]) -> Iterator[tuple[str, JsonObject]]:
    """The members with these keys that are objects."""
    for key in keys:
        value = holder.get(key)
        if isinstance(value, dict):
            yield key, value


def _extensions(declared: JsonObject) -> JsonObject:
    """The extensions of both kinds that are objects, but never Tasks."""
    return {
        kind: dict(_objects(value, (key for key in value if key != TASKS_EXTENSION)))
        for kind, value in _objects(declared, ("experimental", "extensions"))
    }


def check_discover_result(result: RawObject) -> None:
    """The server speaks our revision. Raises BridgeError DISCOVER_FAILED with what it named."""
    versions = result.get("supportedVersions")
    if not isinstance(versions, list):
        raise BridgeError(
            Cause.DISCOVER_FAILED, "the result of server/discover names no supportedVersions"
        )
    if MODERN_VERSION not in versions:
        raise BridgeError(Cause.DISCOVER_FAILED, unsupported_detail(versions))


def unsupported_detail(versions: Json) -> str:
    """Which revisions the server named, for people."""
    named = versions if isinstance(versions, list) else []
    texts = [clean_text(v, 40) for v in named if isinstance(v, str)][:10]
    return (
        f"the server does not support revision {MODERN_VERSION}; it names: "
        f"{', '.join(texts) or 'none'}"
    )


def initialize_result(result: RawObject, fallback_name: str) -> JsonObject:
    """The initialize result of the legacy revision from a server/discover result."""
    legacy: JsonObject = {
        "protocolVersion": LEGACY_VERSION,
        "capabilities": _capabilities_to_legacy(result.get("capabilities")),
        "serverInfo": _server_info(result) or {"name": fallback_name, "version": __version__},
    }
    instructions = result.get_str("instructions")
    if instructions is not None:
        legacy["instructions"] = instructions
    return legacy


def _capabilities_to_legacy(declared: Json) -> JsonObject:
    if not isinstance(declared, dict):
        return {}
    flags = {
        "tools": ("listChanged",),
        "prompts": ("listChanged",),
        "resources": ("subscribe", "listChanged"),
        "completions": (),
        "logging": (),
    }
    legacy: JsonObject = {
        key: {k: v for k, v in value.items() if k not in flags[key] or isinstance(v, bool)}
        for key, value in _objects(declared, flags)
    }
    return {**legacy, **_extensions(declared)}


def _server_info(result: RawObject) -> JsonObject | None:
    """The server's name: in `_meta` by the specification, in the result with some servers."""
    meta = result.get("_meta")
    for value in (
        meta.get(META_SERVER_INFO) if isinstance(meta, dict) else None,
        result.get("serverInfo"),
    ):
        info = _implementation(value)
        if info is not None and info["name"]:
            return info
    return None


# endregion

# region pure to_modern -------------------------------------------------------
# In: the params of a client request. Out: frames for the server. Every request carries its
# version and its capabilities (basic/index); we send nothing else but notifications/cancelled.

_NOT_FORWARDED: Final = frozenset({"task", "_meta", "inputResponses", "requestState"})


class ClientRequest:
    """A request of the client that a slot takes over. `raw_id` is the text of its id."""

    __slots__ = ("key", "method", "params", "raw_id", "row")

    def __init__(
        self, key: ClientKey, raw_id: bytes, row: MethodRow, params: RawObject | None
    ) -> None:
        self.key = key
        self.raw_id = raw_id
        self.row = row
        self.method = row.method
        self.params = params

    def shown_id(self) -> str:
        """The id as people may read it."""
        return clean_text(self.raw_id[:200].decode("utf-8", "replace"), 64)

    def shown(self) -> str:
        """The id and the method, for a log line."""
        return f"request {self.shown_id()} ({self.method})"


class UpstreamCall:
    """A request for the server: its method and the texts of its params.

    `round_number` counts from 1; `client_id` is the text of the client's id, for the trace.
    """

    __slots__ = ("client_id", "has_progress", "members", "meta", "method", "round_number")

    def __init__(
        self,
        method: str,
        members: list[Piece],
        *,
        meta: Sequence[Piece] = (),
        has_progress: bool = False,
        client_id: bytes = b"",
        round_number: int = 1,
    ) -> None:
        self.method = method
        self.members = members
        self.meta = meta  # members of the client's `_meta` that may pass
        self.has_progress = has_progress
        self.client_id = client_id
        self.round_number = round_number


def params_to_modern(params: RawObject | None) -> list[Piece]:
    """The members that go to the server as they came: all but `_meta` and `task`."""
    return [] if params is None else params.kept(_NOT_FORWARDED)


def client_meta(params: RawObject | None) -> RawObject | None:
    """The client's `_meta`."""
    return None if params is None else params.object("_meta")


def progress_token(meta: RawObject | None) -> bytes | None:
    """The text of the client's progress token; any value but null, an array or an object is one."""
    if meta is None:
        return None
    token = meta.peek("progressToken")
    is_none = token is None or isinstance(token, (dict, list))
    return None if is_none else bytes(meta.raw("progressToken"))


_PASSING_KEYS: Final = frozenset({"traceparent", "tracestate"})
_PASSING_PREFIX: Final = "vscode."
_MOST_KEY: Final = 1000  # characters of a key that passes


def meta_to_modern(meta: RawObject | None) -> list[Piece]:
    """The members of the client's `_meta` that go to the server as they came.

    A key passes when it is one of VS Code's, obeys the grammar of basic/index, "_meta", and has
    no prefix that is reserved for MCP; the others are dropped and fail nothing.
    """
    if meta is None:
        return []
    return meta.kept({key for key in meta.members if not _may_pass(key)})


def _may_pass(key: str) -> bool:
    if not key.startswith(_PASSING_PREFIX) or len(key) > _MOST_KEY or not key.isascii():
        return key in _PASSING_KEYS
    prefix, slash, name = key.rpartition("/")
    labels = prefix.split(".") if slash else []
    return (
        _is_key_part(name, "-._")
        and all(label[:1].isalpha() and _is_key_part(label, "-") for label in labels)
        and labels[1:2] not in (["modelcontextprotocol"], ["mcp"])
    )


def _is_key_part(text: str, inner: str) -> bool:
    """Is it letters and digits, with the marks of `inner` only between them? It may be empty."""
    letters = text
    for mark in inner:
        letters = letters.replace(mark, "")
    return text.strip(inner) == text and (letters.isalnum() or not text)


def build_envelope(client_info: JsonObject, capabilities: JsonObject) -> bytes:
    """The members of `_meta` that every request of a connection has in common."""
    return encode_json(
        {
            META_PROTOCOL_VERSION: MODERN_VERSION,
            META_CLIENT_INFO: client_info,
            META_CLIENT_CAPABILITIES: capabilities,
        }
    )[1:-1]


def build_request(
    request_id: int, call: UpstreamCall, envelope: bytes, level: str | None
) -> list[Piece]:
    """One frame for the server, in pieces; `level` is the client's log level, if it set one."""
    token = b',"progressToken":%d' % request_id if call.has_progress else b""
    if level is not None:
        token += b',"%s":"%s"' % (META_LOG_LEVEL.encode("ascii"), level.encode("ascii"))
    pieces: list[Piece] = [
        b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"_meta":{%s%s'
        % (request_id, call.method.encode("ascii"), envelope, token)
    ]
    for member in call.meta:
        pieces += (b",", member)
    pieces.append(b"}")
    for member in call.members:
        pieces += (b",", member)
    pieces.append(b"}}\n")
    return pieces


def build_cancelled(request_id: int | str, reason: str) -> bytes:
    """The notification that ends a request of ours, to the server or the client."""
    params: JsonObject = {"requestId": request_id, "reason": reason}
    return encode_frame(method="notifications/cancelled", params=params)


# endregion

# region pure to_legacy -------------------------------------------------------
# In: what the server answered. Out: frames for the client. What the rules do not name goes to
# the client as the text that came.

_MODERN_MEMBERS: Final[dict[str, Piece | None]] = dict.fromkeys(
    ("resultType", "ttlMs", "cacheScope")
)


def build_response(client_id: bytes, result: list[Piece]) -> list[Piece]:
    """The frame of a result; `result` is the text of its object."""
    return [b'{"jsonrpc":"2.0","id":%s,"result":' % client_id, *result, b"}\n"]


def build_error(client_id: bytes, error: bytes) -> bytes:
    """The frame of an error; `error` is the text of its object."""
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (client_id, error)


def rebuild(original: RawObject, changes: Mapping[str, Piece | None]) -> list[Piece]:
    """The text of an object with some values changed, added, or removed (None)."""
    members = original.kept(changes)
    for key, text in changes.items():
        if text is not None:
            members.append(b'"%s":%s' % (key.encode("ascii"), text))
    return join_object(members)


def join_object(members: Sequence[Piece]) -> list[Piece]:
    """The text of an object from the texts of its members; big ones are not copied."""
    pieces: list[Piece] = []
    for member in members:
        pieces += (b",", member)
    pieces[:1] = [b"{"]
    pieces.append(b"}")
    return pieces


def check_complete(result: RawObject) -> None:
    """A result without resultType is complete, any other is not. Raises INVALID_RESPONSE."""
    if "resultType" in result and result.peek("resultType") != "complete":
        raise BridgeError(Cause.INVALID_RESPONSE, "resultType has no value that is known here")


def result_to_legacy(method: str, result: RawObject, notes: list[str]) -> list[Piece]:
    """The text of a complete result by the result rules. `notes` gets a line a changed schema."""
    changes: dict[str, Piece | None] = _MODERN_MEMBERS.copy()
    if "_meta" in result:
        _change_meta(result, changes)
    if method == "tools/call":
        _change_content(result, changes)
    elif method in LIST_METHODS:
        if result.get_str("nextCursor") is None:
            changes["nextCursor"] = None
        if method == "tools/list":
            _change_tools(result, changes, notes)
    return rebuild(result, changes)


def _change_meta(result: RawObject, changes: dict[str, Piece | None]) -> None:
    """`_meta` loses the server's name, and goes when nothing else is in it."""
    meta = result.peek("_meta")
    if not isinstance(meta, dict):
        return
    if not meta or (len(meta) == 1 and META_SERVER_INFO in meta):
        changes["_meta"] = None
    elif META_SERVER_INFO in meta:
        rest = rebuild(parse_object(bytes(result.raw("_meta"))), {META_SERVER_INFO: None})
        changes["_meta"] = b"".join(rest)


def _change_content(result: RawObject, changes: dict[str, Piece | None]) -> None:
    """There is a content array; structured content without a text block gets one (R5)."""
    content = result.peek("content")
    blocks = content if isinstance(content, list) else []
    if result.peek("structuredContent") is None or any(
        isinstance(block, dict) and block.get("type") == "text" for block in blocks
    ):
        if blocks is not content:
            changes["content"] = b"[]"
        return
    before = bytes(result.raw("content"))[:-1] + b"," if blocks else b"["
    text = encode_json(str(result.raw("structuredContent"), "utf-8"))
    changes["content"] = before + b'{"type":"text","text":%s}]' % text


def _change_tools(result: RawObject, changes: dict[str, Piece | None], notes: list[str]) -> None:
    """Each tool has schemas that the client keeps; a tool that needs nothing stays as it came."""
    tools = result.get("tools")
    if not isinstance(tools, list):
        return
    repairs = [_tool_changes(tool, notes) if isinstance(tool, dict) else {} for tool in tools]
    if not any(repairs):
        return
    raw = bytes(result.raw("tools"))
    texts = [
        b"".join(rebuild(parse_object(raw[start:end]), repair)) if repair else raw[start:end]
        for (start, end), repair in zip(scan_elements(raw), repairs)
    ]
    changes["tools"] = b"[" + b",".join(texts) + b"]"


def _tool_changes(tool: JsonObject, notes: list[str]) -> dict[str, Piece | None]:
    changes: dict[str, Piece | None] = {}
    before = tool.get("inputSchema")
    schema, repairs = repair_input_schema(before)
    if schema is not before:
        changes["inputSchema"] = encode_json(schema)
    if repairs:
        name = tool.get("name")
        shown = clean_text(name if isinstance(name, str) else "", LIMITS.shown_text)
        notes += (f"tool '{shown}': {repair}" for repair in repairs)
    output = tool.get("outputSchema")
    if "outputSchema" in tool and not (isinstance(output, dict) and output.get("type") == "object"):
        changes["outputSchema"] = None
    return changes


def parse_error_reply(frame: RawObject) -> tuple[int, str] | None:
    """Code and message of an error response, or None when it has not the shape of one."""
    error = frame.get("error")
    if not isinstance(error, dict):
        return None
    code, message = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(message, str):
        return None
    return code, message


def error_to_legacy(frame: RawObject) -> bytes:
    """The text of the server's error: unchanged, but for -32042.

    Raises BridgeError INVALID_RESPONSE. See basic/index, "Error codes": -32042 is reserved, and
    VS Code opens each URL in its data.
    """
    found = parse_error_reply(frame)
    if found is None:
        raise BridgeError(Cause.INVALID_RESPONSE)
    if found[0] == URL_ELICITATION_REQUIRED:
        return encode_json({"code": -32603, "message": found[1]})
    return bytes(frame.raw("error"))


def discover_error(frame: RawObject) -> BridgeError:
    """The failure of initialize for an error that answers server/discover."""
    found = parse_error_reply(frame)
    if found is None:
        return BridgeError(Cause.INVALID_RESPONSE)
    code, message = found
    if code == UNSUPPORTED_VERSION:
        detail = unsupported_detail(_refusal_versions(frame))
        return BridgeError(Cause.DISCOVER_FAILED, detail, code=code)
    return BridgeError(
        Cause.DISCOVER_FAILED,
        f"error {code}: {clean_text(message, LIMITS.shown_text)}",
        code=-32603 if code == URL_ELICITATION_REQUIRED else code,
        message=OLDER_REVISION,
    )


SILENT_SERVER: Final = (
    "The server did not answer server/discover. It may need more time (--discover-timeout), or it"
    " speaks an older revision of MCP, which VS Code can use without the bridge."
)
EXIT_HINT: Final = (
    "A server that ends at its first message may speak an older revision of MCP, which VS Code can"
    " use without the bridge"
)
OLDER_REVISION: Final = (
    "The server does not know server/discover: it speaks an older revision of MCP, which VS Code"
    " can use without the bridge. Put its command into the configuration directly."
)


def is_odd_refusal(frame: RawObject) -> bool:
    """Is it -32022 although the very version that was sent is named as supported?"""
    versions = _refusal_versions(frame)
    return isinstance(versions, list) and MODERN_VERSION in versions


def _refusal_versions(frame: RawObject) -> Json:
    """What -32022 names as supported; None for any other reply."""
    error = frame.get("error")
    if not isinstance(error, dict) or error.get("code") != UNSUPPORTED_VERSION:
        return None
    data = error.get("data")
    return data.get("supported") if isinstance(data, dict) else None


def log_to_legacy(params: RawObject | None, lowest: str | None) -> list[Piece] | None:
    """The client's log message, without `_meta`; None when it is below the level, or not valid."""
    if params is None or lowest is None or "data" not in params:
        return None
    level = params.get_str("level")
    if level not in LOG_LEVELS[LOG_LEVELS.index(lowest) :]:
        return None
    names = ["logger", "data"] if type(params.peek("logger")) is str else ["data"]
    head = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%s'
    return _frame_with(head % params.raw("level"), params, names)


_PROGRESS_TYPES: Final = {  # just these: true is no number, and a LongInteger no text
    "progress": (int, float),
    "total": (int, float),
    "message": (str,),
}


def progress_to_legacy(params: RawObject, token: bytes) -> list[Piece] | None:
    """The client's progress notification, or None when the server's is not valid."""
    given = [key for key in _PROGRESS_TYPES if params.peek(key) is not None]
    if "progress" not in given:
        return None
    for key in given:
        if type(params.peek(key)) not in _PROGRESS_TYPES[key]:
            return None
    head = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s'
    return _frame_with(head % token, params, given)


def _frame_with(head: bytes, params: RawObject, names: list[str]) -> list[Piece]:
    """The frame that begins so and ends with these members of the params."""
    pieces: list[Piece] = [head]
    for name in names:
        pieces += (b',"%s":' % name.encode("ascii"), params.raw(name))
    pieces.append(b"}}\n")
    return pieces


# endregion
# region pure input_rounds ----------------------------------------------------
# In: an InputRequiredResult, and later the client's answers. Out: the questions to put to the
# client, and the inputResponses of the retry. See basic/patterns/mrtr and client/*.

_CONTINUE: Final[JsonObject] = {  # for a form without a property, and a URL that is open already
    "mode": "form",
    "message": "Complete the step in the web browser. Then select Continue.",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "continue": {
                "type": "string", "title": "Continue", "enum": ["Continue"], "default": "Continue"
            }
        },
        "required": ["continue"],
    },
}  # fmt: skip
_ACTIONS: Final = ("accept", "decline", "cancel")
_ROLES: Final = ("user", "assistant")
_SAMPLING_TYPES: Final = {  # of the members that may be absent
    "modelPreferences": "object", "systemPrompt": "string", "temperature": "number",
    "stopSequences": "array", "metadata": "object", "tools": "array", "toolChoice": "object",
}  # fmt: skip
_BLOCK_TYPES: Final = {
    "text": {"text": "string"},
    "image": {"data": "string", "mimeType": "string"},
    "audio": {"data": "string", "mimeType": "string"},
    "tool_use": {"id": "string", "name": "string", "input": "object"},
    "tool_result": {"toolUseId": "string", "content": "array"},
}

if TYPE_CHECKING:
    _Message = tuple[Json, list[JsonObject]]  # of sampling: its role and its blocks


class ClientRefusedError(Exception):
    """The client answered a question with an error, which is the error of its own request."""

    def __init__(self, error: bytes, message: str) -> None:
        super().__init__(message)
        self.error = error  # the text of its object
        self.message = message


class Question:
    """An elicitation: what the client is asked, and what its answer says.

    `params` is None when the client is not asked. `accept` says what the server gets beside the
    action of an accepted one; None: the content is not valid.
    """

    method = "elicitation/create"

    def __init__(
        self,
        key: str,
        params: JsonObject | None,
        accept: Callable[[JsonObject], JsonObject | None] = lambda _: {},
        url: str = "",
    ) -> None:
        self.key = key
        self.params = params
        self.url = url  # the step in the browser that it is about
        self._accept = accept

    def read_result(self, result: JsonObject) -> JsonObject:
        """The response for the server. Raises BridgeError INVALID_CLIENT_ANSWER."""
        action = result.get("action")
        if action not in _ACTIONS:
            raise self.invalid("the answer has no action")
        more = self._accept(result) if action == "accept" else {}
        if more is None:
            raise self.invalid("the content is not valid against the requestedSchema")
        return {"action": action, **more}

    def read_error(self, _error: Exception) -> JsonObject:
        """The response when the answer is an error or not valid, or the client is not asked."""
        return {"action": "decline" if self.params is None else "cancel"}

    def invalid(self, text: str) -> BridgeError:
        """The failure of the original request for an answer that is none."""
        return _failure(self.key, text, Cause.INVALID_CLIENT_ANSWER)


class SamplingQuestion(Question):
    """A request for the client's model; an error of the client is the request's own."""

    method = "sampling/createMessage"

    def read_result(self, result: JsonObject) -> JsonObject:
        """The result as it came."""
        if (
            result.get("role") not in _ROLES
            or not _is_type(result.get("model"), "string")
            or _read_blocks(result.get("content")) is None
            or not _is_type(result.get("stopReason", ""), "string")
        ):
            raise self.invalid("the result has not the shape of a sampling result")
        return result

    def read_error(self, error: Exception) -> JsonObject:
        """There is no way to say it to the server."""
        raise error


class RootsQuestion(SamplingQuestion):
    """The folders of the client; only those of the file system go to the server."""

    method = "roots/list"

    def read_result(self, result: JsonObject) -> JsonObject:
        """The roots with a `file://` URI."""
        roots = result.get("roots")
        files: list[Json] = []
        for root in roots if isinstance(roots, list) else [None]:
            uri = root.get("uri") if isinstance(root, dict) else None
            if (
                not isinstance(root, dict)
                or not isinstance(uri, str)
                or not _is_type(root.get("name", ""), "string")
            ):
                raise self.invalid("the result has not the shape of a list of roots")
            if uri.startswith("file://"):
                files.append(root)
        return {"roots": files}


class InputSession:
    """What one client request remembers over its rounds. Threads: its worker alone."""

    def __init__(
        self, capabilities: JsonObject, new_elicitation_id: Callable[[], str], most: int
    ) -> None:
        self._new_elicitation_id = new_elicitation_id
        self._most = most
        self._accepted: dict[str, str] = {}  # the id of each step in the browser to its URL
        self._declared = {*capabilities}  # "sampling", "sampling.tools", ...
        members = [(k, v) for k, v in capabilities.items() if isinstance(v, dict)]
        self._declared.update(f"{kind}.{part}" for kind, parts in members for part in parts)
        if capabilities.get("elicitation") == {}:
            self._declared.add("elicitation.form")

    def read_round(self, result: RawObject) -> list[Question]:
        """The questions of a round, all of them checked. Raises BridgeError."""
        asked = result.get("inputRequests") if "inputRequests" in result else {}
        if not isinstance(asked, dict):
            raise _invalid_round("the inputRequests member is not an object")
        if "requestState" in result and type(result.peek("requestState")) is not str:
            raise _invalid_round("the requestState member is not a string")
        if "inputRequests" not in result and "requestState" not in result:
            raise _invalid_round("the result asks for nothing")
        if len(asked) > self._most:
            raise BridgeError(
                Cause.TOO_MANY_INPUT_REQUESTS,
                f"{len(asked)} input requests in one round, limit: {self._most}",
            )
        return [self._read_request(key, request) for key, request in asked.items()]

    def take_completed(self, questions: Sequence[Question] = ()) -> list[str]:
        """The ids of the accepted steps in the browser that the server asks for no more."""
        urls = {question.url for question in questions}
        done = [step for step, url in self._accepted.items() if url not in urls]
        for step in done:
            del self._accepted[step]
        return done

    def _read_request(self, key: str, request: Json) -> Question:
        question = None
        if isinstance(request, dict):
            question = self._read_kind(key, request.get("method"), request.get("params", {}))
        if question is None:
            raise _failure(key, "the input request does not have the shape of the schema")
        return question

    def _read_kind(self, key: str, method: Json, params: Json) -> Question | None:
        """The question; None, as below, when the request does not have the shape of the schema."""
        if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
            return None
        params = {k: v for k, v in params.items() if k != "task"}
        if method == "elicitation/create":
            return self._read_elicitation(key, params)
        if method == "sampling/createMessage":
            return self._read_sampling(key, params)
        if method != "roots/list":
            return None
        self._require(key, "roots")
        return RootsQuestion(key, params)

    def _require(self, key: str, capability: str) -> None:
        if capability not in self._declared:
            text = f"the client did not declare {capability}"
            raise _failure(key, text, Cause.UNDECLARED_INPUT_REQUEST)

    def _read_elicitation(self, key: str, params: JsonObject) -> Question | None:
        mode, message = params.get("mode", "form"), params.get("message")
        schema = params.get("requestedSchema")
        if not _is_type(message, "string"):
            return None
        if mode == "url":
            return self._read_url(key, params)
        if mode != "form" or not isinstance(schema, dict):
            return None
        self._require(key, "elicitation.form")
        try:
            form = Form(schema)
        except FormError:
            raise _failure(key, "the requestedSchema does not compile") from None
        if form.is_empty():
            return Question(key, {**_CONTINUE, "message": message}, lambda _: {"content": {}})

        def accept(result: JsonObject) -> JsonObject | None:
            content = result.get("content", {})
            read = form.read(content) if isinstance(content, dict) else None
            return None if read is None else {"content": read}

        return Question(key, {**params, "mode": mode, "requestedSchema": form.shown}, accept)

    def _read_url(self, key: str, params: JsonObject) -> Question | None:
        url = params.get("url")
        if not isinstance(url, str):
            return None
        self._require(key, "elicitation.url")
        if not may_show_url(url):
            return Question(key, None)
        steps = [step for step, accepted in self._accepted.items() if accepted == url]
        if steps and "elicitation.form" in self._declared:
            return Question(key, _CONTINUE, url=url)
        step = steps[0] if steps else self._new_elicitation_id()

        def accept(_result: JsonObject) -> JsonObject:
            self._accepted[step] = url
            return {}

        return Question(key, {**params, "elicitationId": step}, accept, url)

    def _read_sampling(self, key: str, params: JsonObject) -> Question | None:
        messages = _read_messages(params.get("messages"))
        if (
            messages is None
            or not _is_type(params.get("maxTokens"), "number")
            or not all(_is_type(params[k], t) for k, t in _SAMPLING_TYPES.items() if k in params)
        ):
            return None
        self._require(key, "sampling")
        kinds = [block["type"] for _, blocks in messages for block in blocks]
        if "sampling.tools" not in self._declared and (
            "tools" in params
            or "toolChoice" in params
            or "tool_use" in kinds
            or "tool_result" in kinds
        ):
            text = "sampling with tools needs sampling.tools, and the client did not declare it"
            raise _failure(key, text, Cause.UNDECLARED_INPUT_REQUEST)
        if not _are_balanced(messages):
            raise _failure(key, "the sampling messages do not obey the tool result rules")
        return SamplingQuestion(key, params)


def _invalid_round(text: str) -> BridgeError:
    return BridgeError(Cause.INVALID_INPUT_REQUEST, text)


def _failure(key: str, text: str, cause: Cause = Cause.INVALID_INPUT_REQUEST) -> BridgeError:
    return BridgeError(cause, f"input request '{clean_text(key, 100)}': {text}")


def _read_blocks(content: Json) -> list[JsonObject] | None:
    """The content blocks of one or of a list of them; None when there is another value."""
    blocks: list[JsonObject] = []
    for block in content if isinstance(content, list) else [content]:
        if not isinstance(block, dict):
            return None
        types = _BLOCK_TYPES.get(str(block.get("type")))
        if types is None or not all(_is_type(block.get(k), t) for k, t in types.items()):
            return None
        blocks.append(block)
    return blocks


def _read_messages(messages: Json) -> list[_Message] | None:
    """The messages of sampling; None when there is another value."""
    found: list[_Message] = []
    for message in messages if isinstance(messages, list) else [None]:
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return None
        blocks = _read_blocks(message.get("content"))
        if blocks is None:
            return None
        found.append((message["role"], blocks))
    return found


def _are_balanced(messages: list[_Message]) -> bool:
    """Each tool use has its result in the next message, which holds nothing else."""
    open_ids: list[str] = []
    for role, blocks in messages:
        results = sorted(str(b["toolUseId"]) for b in blocks if b["type"] == "tool_result")
        uses = sorted(str(b["id"]) for b in blocks if b["type"] == "tool_use")
        if results != open_ids or (uses and role != "assistant"):
            return False
        if results and (role != "user" or len(results) != len(blocks)):
            return False
        open_ids = uses
    return not open_ids


_URL: Final = (  # visible ASCII without "<>\^`{|}, and no user information
    r"(https?)://(\[[0-9a-f:]{2,39}\]|[0-9a-z._~-]{1,253})(?::(\d{0,5}))?"
    r"(?:[/?#][!#-;=?-\[\]_a-z~]*)?\Z"
)
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}\Z"
_OTHER_HOST: Final = (  # a number at the end is an address; punycode of ASCII is ASCII
    r"(?:\A|\.)(?:(?:\d+|0x[0-9a-f]*)\.?\Z|xn--(?:[^.]*-)?(?:\.|\Z))"
)


def may_show_url(url: str) -> bool:
    """May the client get this URL: https, or http to this very machine?

    Refused first, split after: every browser and parser must find the host that is written.
    """
    found = re.match(_URL, url, re.ASCII | re.IGNORECASE)
    if found is None:
        return False
    scheme, host, port = (part.lower() for part in found.groups("0"))
    is_ipv4 = re.match(_IPV4, host) is not None
    is_loopback = host in ("localhost", "[::1]") or (is_ipv4 and host.startswith("127."))
    if int(port or 0) > 65535 or (scheme == "http" and not is_loopback):
        return False
    if host[0] == "[":
        return _is_ipv6(host[1:-1])
    return is_ipv4 or not re.search(_OTHER_HOST, host)


def _is_ipv6(text: str) -> bool:
    """Eight groups of hexadecimal digits, or fewer around one `::`."""
    head, gap, tail = text.partition("::")
    groups = [group for part in (head, tail) if part for group in part.split(":")]
    return (len(groups) < 8 if gap else len(groups) == 8) and all(
        1 <= len(group) <= 4 for group in groups
    )


def asks_for_input(reply: RawObject) -> bool:
    """Is it an InputRequiredResult?"""
    result = reply.object("result")
    return result is not None and result.peek("resultType") == "input_required"


def build_question(request_id: str, question: Question) -> bytes:
    """The frame that puts a question to the client."""
    return encode_frame(id=request_id, method=question.method, params=question.params)


def build_completed(elicitation_id: str) -> bytes:
    """The notification that lets the client forget a URL step (client/elicitation)."""
    params: JsonObject = {"elicitationId": elicitation_id}
    return encode_frame(method="notifications/elicitation/complete", params=params)


def read_answer(question: Question, answer: RawObject | None) -> JsonObject:
    """What the client's frame says to a question; None is a line that was not valid, or no answer.

    Raises BridgeError INVALID_CLIENT_ANSWER, and ClientRefusedError.
    """
    if answer is not None and "error" not in answer:
        result = answer.get("result")
        if not isinstance(result, dict):
            raise question.invalid("the answer has not the shape of the schema")
        return question.read_result(result)
    error: Exception = question.invalid("the answer is a line that is not valid")
    if answer is not None:
        found = parse_error_reply(answer)
        if found is not None:
            error = ClientRefusedError(bytes(answer.raw("error")), found[1])
    return question.read_error(error)


def retry_members(members: list[Piece], result: RawObject, responses: JsonObject) -> list[Piece]:
    """The params of the next round: the first ones, the answers, and the state as it came."""
    retry = list(members)
    if responses:
        retry.append(b'"inputResponses":' + encode_json(responses))
    return retry + result.kept(result.members.keys() - {"requestState"})


def state_refused(method: str, client_id: bytes, reply: RawObject) -> list[Piece] | None:
    """The frame for -32602 to a round with a state, which the server takes no more; else None.

    A tool's result tells the user what to do; other methods have the same text as an error.
    """
    found = parse_error_reply(reply)
    if found is None or found[0] != ERROR_TABLE[Cause.INVALID_PARAMS][0]:
        return None
    is_call = method == "tools/call"
    text = (
        "The server did not accept the state of the request that it had given out. Perhaps the"
        " answer came too late for it, or the server has started again since. It says:"
        f" {found[1]}. {'Run the tool again.' if is_call else 'Send the request again.'}"
    )
    if is_call:
        result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": True}
        return build_response(client_id, [encode_json(result)])
    error = rebuild(parse_object(bytes(reply.raw("error"))), {"message": encode_json(text)})
    return [build_error(client_id, b"".join(error))]


# endregion

# region pure subscriptions ---------------------------------------------------
# In: what the server's listen stream says. Out: what the client hears of it, and when a stream
# that ended comes again. See basic/patterns/subscriptions.


def declared_kinds(capabilities: Json) -> tuple[ListKind, ...]:
    """The lists whose changes the server declares."""
    declared = capabilities if isinstance(capabilities, dict) else {}
    found = []
    for kind in LIST_KINDS:
        value = declared.get(kind.capability)
        if isinstance(value, dict) and value.get("listChanged") is True:
            found.append(kind)
    return tuple(found)


def may_subscribe(capabilities: Json) -> bool:
    """Does the server declare updates of single resources?"""
    resources = capabilities.get("resources") if isinstance(capabilities, dict) else None
    return isinstance(resources, dict) and resources.get("subscribe") is True


def build_filter(kinds: Iterable[ListKind], uris: Iterable[str]) -> list[Piece]:
    """The params of subscriptions/listen."""
    wanted: JsonObject = {kind.filter_field: True for kind in kinds}
    named: list[Json] = [*uris]
    if named:
        wanted["resourceSubscriptions"] = named
    return [b'"notifications":' + encode_json(wanted)]


class Honoured:
    """What of a filter the server agreed to: the fields of lists, and the URIs."""

    __slots__ = ("fields", "uris")

    def __init__(self, fields: set[str], uris: set[str]) -> None:
        self.fields = fields
        self.uris = uris


def read_acknowledgment(params: RawObject | None) -> Honoured | None:
    """What the server honours; None when it does not say, which is taken for all of it."""
    honoured = None if params is None else params.get("notifications")
    if not isinstance(honoured, dict):
        return None
    uris = honoured.get("resourceSubscriptions")
    named = uris if isinstance(uris, list) else []
    fields = {field for field, value in honoured.items() if value is True}
    return Honoured(fields, {uri for uri in named if isinstance(uri, str)})


def subscription_id(params: RawObject | None) -> Json:
    """The id of the listen request that a notification belongs to, or None."""
    meta = None if params is None else params.peek("_meta")
    return meta.get(META_SUBSCRIPTION_ID) if isinstance(meta, dict) else None


def event_to_legacy(method: str, params: RawObject | None) -> list[Piece] | None:
    """An event for the client, without the subscription id; None: it is none for the client."""
    if method == RESOURCE_UPDATED:
        if params is None or not isinstance(params.peek("uri"), str):
            return None
    elif method not in LIST_CHANGES:
        return None
    head = b'{"jsonrpc":"2.0","method":"%s"' % method.encode("ascii")
    members = rebuild_params(params)
    if members == [b"{", b"}"]:
        return [head, b"}\n"]
    return [head, b',"params":', *members, b"}\n"]


def rebuild_params(params: RawObject | None) -> list[Piece]:
    """The text of the params without the subscription id, and without a `_meta` left empty."""
    if params is None:
        return [b"{", b"}"]
    changes: dict[str, Piece | None] = {}
    meta = params.peek("_meta")
    if isinstance(meta, dict) and META_SUBSCRIPTION_ID in meta:
        rest = parse_object(bytes(params.raw("_meta")))
        changes["_meta"] = (
            None if len(meta) == 1 else b"".join(rebuild(rest, {META_SUBSCRIPTION_ID: None}))
        )
    return rebuild(params, changes)


def build_updated(uri: str) -> bytes:
    """An update of a resource that the client may have missed."""
    return encode_frame(method=RESOURCE_UPDATED, params={"uri": uri})


class ListChanges:
    """Which list changes would tell the client nothing new.

    A change is outstanding from the moment it is written until the client asks for the first
    page of that list: what changes meanwhile is in the list that it will get.

    Threads: the reader notes what the client asks for before it passes that on, the upstream
    reader marks under the output lock. One step each: a change that is left out was made before
    the client's next request for the list reaches the server.
    """

    def __init__(self) -> None:
        self._outstanding: set[str] = set()

    def note_asked(self, method: str) -> None:
        """The client asks for the first page of a list."""
        change = LIST_CHANGE_OF.get(method)
        if change is not None:
            self._outstanding.discard(change)

    def mark(self, change: str) -> bool:
        """The change has to be written, and is outstanding then; False: it says nothing new."""
        if change in self._outstanding:
            return False
        self._outstanding.add(change)
        return True


class Comeback:
    """When a stream that ended is opened again. Threads: the listen owner alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._at_once = 0
        self._wait = limits.listen_wait_seconds

    def after(self, *, is_lost: bool, lived_seconds: float) -> float:
        """The seconds until the next one: none for a lost stream at first, then ever more."""
        if lived_seconds >= self._limits.listen_life_seconds:
            self._at_once, self._wait = 0, self._limits.listen_wait_seconds
        if is_lost and self._at_once < self._limits.listen_tries:
            self._at_once += 1
            return 0.0
        wait, self._wait = self._wait, min(2 * self._wait, self._limits.most_listen_wait_seconds)
        return wait


# endregion

# region plumbing plumbing ----------------------------------------------------
# What the rooms run on: time, signals, locks with an order, threads, and the log.


class Clock:
    """Monotonic time in seconds, and waiting for it. Tests hand in one that stands still."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def wait(self, event: Signal, until: float | None) -> bool:
        """The event came before `until` (True), or that moment did. None waits for ever."""
        if until is None:
            return event.wait(None)
        return event.wait(max(0.0, until - self.now()))


class Signal:
    """A flag that one thread waits for and any other may set; waiting takes it down again.

    Threads: any. One lock is all there is: to set it twice is the same as once.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # noqa: TID251  # it guards nothing: it is the flag
        self._lock.acquire()

    def set(self) -> None:
        """The waiting thread goes on."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # it is set already

    def wait(self, seconds: float | None) -> bool:
        """It was set within `seconds` (None: without a limit)."""
        if seconds is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class Once:
    """A thing that happens once, for whoever asks first."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()  # noqa: TID251  # it guards nothing: it is the mark

    def first(self) -> bool:
        """This call is the first one."""
        return self._lock.acquire(blocking=False)

    def is_over(self) -> bool:
        """Has anybody been first?"""
        return self._lock.locked()


class LockRank(enum.IntEnum):
    """The lock order. While you hold one, take only those below it; write only under OUTPUT."""

    LIFECYCLE = 1  # front_end: the state
    SERVER_INPUT = 2  # upstream: a request and its cancellation, in this order
    CHILD_INPUT = 3  # child: its stdin
    OUTPUT = 9  # front_end: stdout


class _Held(threading.local):
    """The ranks that a thread holds, in the order in which it took them."""

    def __init__(self) -> None:
        self.ranks: list[int] = []


_HELD: Final = _Held()


class RankedLock:
    """A lock that objects when the order of LockRank is broken."""

    __slots__ = ("_lock", "_rank")

    def __init__(self, rank: LockRank) -> None:
        self._rank = int(rank)
        self._lock = threading.Lock()  # noqa: TID251  # the only place but Signal and Once

    def acquire(self, seconds: float = -1) -> bool:
        """The lock is held (True), or `seconds` are over."""
        ranks = _HELD.ranks
        if ranks and ranks[-1] >= self._rank:
            raise RuntimeError(f"lock {self._rank} taken under {ranks[-1]}")
        if not self._lock.acquire(timeout=seconds):
            return False
        ranks.append(self._rank)
        return True

    def release(self) -> None:
        """The lock is free; the holder calls this."""
        _HELD.ranks.pop()
        self._lock.release()

    def __enter__(self) -> None:
        ranks = _HELD.ranks
        if ranks and ranks[-1] >= self._rank:
            raise RuntimeError(f"lock {self._rank} taken under {ranks[-1]}")
        self._lock.acquire()
        ranks.append(self._rank)

    def __exit__(self, *_: object) -> None:
        _HELD.ranks.pop()
        self._lock.release()


def start_thread(
    name: str, body: Callable[[], object], *, is_daemon: bool = True
) -> threading.Thread:  # noqa: TID251  # a type
    """A thread runs `body`; whoever starts it sees to it that it ends."""
    thread = threading.Thread(target=body, name=name, daemon=is_daemon)  # noqa: TID251  # only here
    thread.start()
    return thread


class Reservation:
    """A job that starts at `due`, or when it is told to, unless it is released before."""

    __slots__ = ("due", "job")

    def __init__(self, job: Callable[[], None], due: float) -> None:
        self.job = job
        self.due = due


class _Worker:
    __slots__ = ("job", "wake")

    def __init__(self, job: Callable[[], None]) -> None:
        self.job: Callable[[], None] | None = job
        self.wake = Signal()


class Workers:
    """Threads that run jobs: made on demand and reused.

    A hand-off to a thread costs more than most requests do. So a job that is seldom needed is
    reserved: it costs no thread and wakes none, as long as it is released before it is due. One
    thread stands by for all of them. It sleeps until the first is due, once more for `linger`
    seconds when there is none, and then without a limit.

    Threads: any. The tables need no lock: each use is one step. The thread that stands by
    publishes `_looks_at` and then looks at the table once more; who reserves does so first and
    looks at `_looks_at` after that.
    """

    def __init__(
        self,
        *,
        most_idle: int,
        linger: float,
        clock: Clock,
        on_error: Callable[[str, BaseException], None],
    ) -> None:
        self._most_idle = most_idle
        self._linger = linger
        self._clock = clock
        self._on_error = on_error
        self._idle: list[_Worker] = []
        self._reserved: dict[Reservation, None] = {}  # in the order of `due`
        self._looks_at = float("inf")
        self._standby = Signal()
        self._standby_once = Once()
        self._is_closed = False

    def run(self, job: Callable[[], None]) -> None:
        """A thread runs the job, soon."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(job)
            start_thread("worker", lambda: self._run_worker(worker))
            return
        worker.job = job
        worker.wake.set()

    def reserve(self, job: Callable[[], None], due: float) -> Reservation:
        """A thread runs the job at `due`, which is no earlier than those of the others."""
        reservation = Reservation(job, due)
        self._reserved[reservation] = None
        if due < self._looks_at:
            if self._standby_once.first():
                start_thread("standby", self._run_standby)
            self._standby.set()
        return reservation

    def start(self, reservation: Reservation) -> None:
        """The job runs soon, unless it has been released or has begun."""
        if self._reserved.pop(reservation, self) is None:
            self.run(reservation.job)

    def release(self, reservation: Reservation) -> None:
        """The job never runs, unless it has begun."""
        self._reserved.pop(reservation, None)

    def close(self) -> None:
        """Idle workers end, the others after their job."""
        self._is_closed = True
        self._reserved.clear()
        self._standby.set()
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                return
            worker.job = None
            worker.wake.set()

    def _run_worker(self, worker: _Worker) -> None:
        while worker.job is not None:
            try:
                worker.job()
            except BaseException as error:  # noqa: BLE001  # no job may end a worker unseen
                self._on_error("a worker", error)
            worker.job = None
            if len(self._idle) >= self._most_idle:
                return
            self._idle.append(worker)
            if self._is_closed:
                self.close()
            worker.wake.wait(None)

    def _run_standby(self) -> None:
        lingers_until: float | None = None
        while not self._is_closed:
            first = self._first_reserved()
            now = self._clock.now()
            if first is not None and first.due <= now:
                self.start(first)
                continue
            if first is not None:
                lingers_until, until = None, first.due
            else:
                lingers_until = until = now + self._linger if lingers_until is None else INFINITE
            self._looks_at = until
            if self._first_reserved() is first:
                self._clock.wait(self._standby, None if until == INFINITE else until)

    def _first_reserved(self) -> Reservation | None:
        while True:
            try:
                return next(iter(self._reserved), None)
            except RuntimeError:
                continue  # another thread changed it in this very moment


INFINITE: Final = float("inf")


def join_small(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes in as few pieces as may be without copying big ones."""
    if sum(map(len, pieces)) < _BIG_PIECE:
        return [b"".join(pieces)]
    joined: list[Piece] = []
    small: list[Piece] = []
    size = 0
    for piece in pieces:
        if len(piece) < _BIG_PIECE:
            small.append(piece)
            size += len(piece)
            if size < _BIG_PIECE:
                continue
        if small:
            joined.append(b"".join(small))
            small, size = [], 0
        if len(piece) >= _BIG_PIECE:
            joined.append(piece)
    if small:
        joined.append(b"".join(small))
    return joined


def write_all(descriptor: int, pieces: Sequence[Piece]) -> None:
    """All pieces are written, small ones in one call. Raises OSError."""
    for piece in join_small(pieces):
        done = _write_some(descriptor, piece)
        if done < len(piece):
            view = memoryview(piece)[done:]
            while view:
                view = view[_write_some(descriptor, view) :]


def _write_some(descriptor: int, data: Piece) -> int:
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:  # whoever started us made it so
            wait_for(descriptor, for_writing=True, seconds=None)


def read_some(descriptor: int) -> bytes:
    """The next bytes, at most 64 KiB (more costs a mapping each); b"" at the end."""
    while True:
        try:
            return os.read(descriptor, 1 << 16)
        except BlockingIOError:
            wait_for(descriptor, for_writing=False, seconds=None)


def wait_for(descriptor: int, *, for_writing: bool, seconds: float | None) -> bool:
    """The descriptor is ready within `seconds` (None: without a limit). POSIX."""
    import select  # not needed in a normal run

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if for_writing else select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1)))


class LogLevel(enum.IntEnum):
    """The levels of our own log lines."""

    ERROR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3


class Log:
    """Our lines on stderr, one write a line: `mcp-bridge-vscode: <scope>: <level>: <text>`.

    Scopes: `vscode` is the program, `bridge` the core, `mcp_client`, `mcp_stdio` and
    `mcp_router` the side of the server. Threads: any may write; a thread of its own does the
    writing, so that a stderr which nobody reads blocks nothing but that thread.
    """

    def __init__(self, descriptor: int, level: LogLevel, limits: Limits) -> None:
        self._descriptor = descriptor
        self._level = level
        self._limits = limits
        # append and popleft are one step each; a full queue drops the newest, with a count
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._wake = Signal()
        self._thread_once = Once()
        self._is_closed = False  # set once; the thread ends when nothing waits any more
        self._written = Signal()  # nothing waits at this moment
        self._ended = threading.Event()
        self._said: set[str] = set()

    def error(self, scope: str, text: str) -> None:
        """Something ended that the user wanted."""
        self._put(scope, LogLevel.ERROR, text)

    def warning(self, scope: str, text: str) -> None:
        """Something is wrong and the bridge goes on."""
        self._put(scope, LogLevel.WARNING, text)

    def info(self, scope: str, text: str) -> None:
        """Something a user may want to know."""
        self._put(scope, LogLevel.INFO, text)

    def debug(self, scope: str, text: str) -> None:
        """Something for the author of the server or of the bridge."""
        self._put(scope, LogLevel.DEBUG, text)

    def warn_once(self, scope: str, key: str, text: str) -> None:
        """The first one of its kind is a warning, the others are debug lines."""
        self._put(scope, self._level_once(LogLevel.WARNING, key), text)

    def info_once(self, scope: str, text: str) -> None:
        """The same line comes once, and then as a debug line."""
        self._put(scope, self._level_once(LogLevel.INFO, text), text)

    def _level_once(self, level: LogLevel, key: str) -> LogLevel:
        if key in self._said:
            return LogLevel.DEBUG
        if len(self._said) < self._limits.log_lines:
            self._said.add(key)
        return level

    def is_debug(self) -> bool:
        """Are debug lines written?"""
        return self._level >= LogLevel.DEBUG

    def flush(self, seconds: float) -> None:
        """What waits is written, as far as stderr takes it within `seconds`."""
        until = time.monotonic() + seconds
        while self._lines and self._written.wait(max(0.0, until - time.monotonic())):
            continue  # it may have been set for lines before these

    def close(self, seconds: float) -> None:
        """What waits is written, as far as stderr takes it within `seconds`: the last lines."""
        self._is_closed = True
        if self._thread_once.is_over():
            self._wake.set()
            self._ended.wait(seconds)

    def _put(self, scope: str, level: LogLevel, text: str) -> None:
        if level > self._level:
            return
        if len(self._lines) >= self._limits.log_lines:
            self._dropped += 1
            return
        line = clean_text(f"{PROGRAM}: {scope}: {level.name.lower()}: {text}", 4000)
        self._lines.append(line.encode("utf-8") + b"\n")
        if self._thread_once.first():
            start_thread("log", self._run_log)
        self._wake.set()

    def _run_log(self) -> None:
        while self._lines or not self._is_closed:
            self._wake.wait(None)
            while self._lines:
                line = self._lines[0]
                if self._dropped:
                    count, self._dropped = self._dropped, 0
                    line += f"{PROGRAM}: vscode: warning: {count} log lines were dropped\n".encode()
                try:
                    write_all(self._descriptor, (line,))
                except OSError:
                    self._lines.clear()  # there is no stderr: nobody can be told
                    break
                self._lines.popleft()
            self._written.set()
        self._ended.set()


# endregion

# region rooms front_end ------------------------------------------------------
# stdin and stdout. The reader takes each line of the client, answers what it can itself, and
# never waits: not for a slot, not for the server, not for stdout.


class Lifecycle:
    """The state, which changes in one step and never leaves CLOSING.

    Threads: the reader, the slot of initialize, the stop sequence.
    """

    def __init__(self) -> None:
        self._lock = RankedLock(LockRank.LIFECYCLE)  # guards the two fields below
        self._state = State.AWAITING_INITIALIZE
        self.closed_by: BridgeError | None = None  # what later requests hear; None: nothing

    @property
    def state(self) -> State:
        """The state at this moment."""
        return self._state

    def is_over(self) -> bool:
        """Is it CLOSING, and not by a loss that requests hear of?"""
        return self._state is State.CLOSING and self.closed_by is None

    def move(self, before: State, after: State) -> bool:
        """The state was `before` and is now `after`; else nothing changed."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = after
            return True

    def close(self, closed_by: BridgeError | None) -> State:
        """The state is CLOSING; returns the one before."""
        with self._lock:
            before = self._state
            if before is not State.CLOSING:
                self.closed_by = closed_by  # first: is_over() looks without the lock
                self._state = State.CLOSING
            return before


class Output:
    """The client's side of stdout: whole frames, one after the other.

    Threads: workers and the upstream reader write; the reader only posts, and what it posted is
    written by whoever holds the lock next, at the latest by a worker.
    """

    def __init__(
        self,
        descriptor: int,
        run_worker: Callable[[Callable[[], None]], None],
        on_broken: Callable[[], None],
        most_posted: int,
    ) -> None:
        self._descriptor = descriptor
        self._run_worker = run_worker
        self._on_broken = on_broken
        self._most_posted = most_posted
        self._lock = RankedLock(LockRank.OUTPUT)  # guards stdout and the two fields below
        self._is_closed = False
        self._pending: list[Piece] = []
        self._posted: deque[bytes] = deque()  # append and popleft are one step each
        self._is_draining = False  # set by the reader, cleared by its worker before its last look

    def write_from(
        self, produce: Callable[[], list[Piece] | None], *, is_more: bool = False
    ) -> None:
        """What `produce` gives is written; it is called, and may say None, under the lock.

        With `is_more` the caller will write again or flush(), and all goes out together.
        """
        with self._lock:
            pieces = produce()
            if pieces is not None:
                self._pending += pieces
            is_whole = is_more or self._flush_locked()
        if not is_whole:
            self._on_broken()

    def flush(self) -> None:
        """All that was written with `is_more` is out."""
        if not (self._pending or self._posted):
            return
        with self._lock:
            is_whole = self._flush_locked()
        if not is_whole:
            self._on_broken()

    def post(self, frame: bytes) -> None:
        """The frame goes out soon; the caller, the reader, does not wait for it.

        A client that writes on and on and never reads is as good as gone.
        """
        if len(self._posted) >= self._most_posted:
            self._on_broken()
            return
        self._posted.append(frame)
        if not self._is_draining:
            self._is_draining = True
            self._run_worker(self._drain)

    def close(self, seconds: float) -> None:
        """No frame goes out any more, once what waits has; each is waited for `seconds`."""
        drained = Signal()

        def drain() -> None:
            self.write_from(lambda: None)
            drained.set()

        self._run_worker(drain)  # it may meet a client that does not read
        drained.wait(seconds)
        if self._lock.acquire(seconds):
            self._is_closed = True
            self._lock.release()

    def _drain(self) -> None:
        while True:
            self.flush()  # one worker waits for a slow client, however much is posted meanwhile
            self._is_draining = False
            if not self._posted:
                return
            self._is_draining = True

    def _flush_locked(self) -> bool:
        """False when stdout has broken just now."""
        while self._posted:
            self._pending.append(self._posted.popleft())
        pieces, self._pending = self._pending, []
        if self._is_closed or not pieces:
            return True
        try:
            write_all(self._descriptor, pieces)
        except OSError:
            self._is_closed = True
            return False
        return True


class Pending:
    """A request of ours to the client, and its answer once there is one."""

    __slots__ = ("answer", "is_answered", "request_id", "wake")

    def __init__(self, request_id: str, wake: Callable[[], None]) -> None:
        self.request_id = request_id
        self.wake = wake
        self.is_answered = False
        self.answer: RawObject | None = None  # None when the line was not valid


class PendingTable:
    """Our requests to the client that wait for an answer, by id: b-1, b-2, ...

    Threads: workers register and withdraw, the reader settles. The table needs no lock: each use
    is one step, and who pops an entry owns its outcome.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Pending] = {}
        self._numbers = itertools.count(1)

    def register(self, count: int, wake: Callable[[], None]) -> list[Pending]:
        """New entries, in the table before anything goes out."""
        ids = [f"{BRIDGE_ID_PREFIX}{next(self._numbers)}" for _ in range(count)]
        entries = [Pending(request_id, wake) for request_id in ids]
        self._waiting.update((entry.request_id, entry) for entry in entries)
        return entries

    def withdraw(self, pending: Sequence[PendingAnswer]) -> list[str]:
        """Late answers find nobody; the ids that have none are returned."""
        ids = [entry.request_id for entry in pending]
        return [one for one in ids if self._waiting.pop(one, None) is not None]

    def settle(self, request_id: str, answer: RawObject | None) -> bool:
        """The entry has its answer; None for a line that is not valid. False: nobody waits."""
        entry = self._waiting.pop(request_id, None)
        if entry is None:
            return False
        entry.answer, entry.is_answered = answer, True
        entry.wake()
        return True


class FrontEnd:
    """The legacy server that the client sees.

    Threads: the reader alone, but for what its parts say. `level` is set by the reader and read
    by slots: one reference, no lock.
    """

    def __init__(
        self,
        *,
        descriptor: int,
        output: Output,
        lifecycle: Lifecycle,
        limits: Limits,
        log: Log,
        admit: Callable[[ClientRequest], BridgeError | None],
        cancel: Callable[[ClientKey], None],
        flush_requests: Callable[[], None],
        settle: Callable[[str, RawObject | None], bool],
        start_listening: Callable[[], None],
        takes_changes: Callable[[], bool],
        note_asked: Callable[[str], None],
    ) -> None:
        self._descriptor = descriptor
        self._output = output
        self._lifecycle = lifecycle
        self._limits = limits
        self._log = log
        self._admit = admit
        self._cancel = cancel
        self._flush_requests = flush_requests
        self._settle = settle
        self._start_listening = start_listening
        self._takes_changes = takes_changes
        self._note_asked = note_asked
        self.declares_logging = False  # set by the slot of initialize before the state is READY
        self.level: str | None = None  # of logging/setLevel
        self._answers: Mapping[str, Callable[[ClientKey, bytes, RawObject], None]] = {
            "ping": self._answer_ping,
            "logging/setLevel": self._answer_set_level,
            "server/discover": self._answer_discover,
            "initialize": self._answer_initialize,
        }

    def run_reader(self) -> None:
        """Every line of the client is handled; returns at the end of the input."""
        framer = LineFramer(self._limits.line_bytes, self._limits.edge_bytes)
        while True:
            try:
                chunk = read_some(self._descriptor)
            except OSError:
                return  # there is no stdin
            if not chunk:
                return
            for line in framer.feed(chunk):
                if isinstance(line, LongLine):
                    self._refuse_long_line(line)
                else:
                    self.handle_line(line)
            line = b""  # a big one is not kept while we wait
            self._flush_requests()

    def handle_line(self, line: bytes) -> None:
        """One line of the client has its effect."""
        try:
            self._handle_frame(parse_frame(line, self._limits.client_depth))
        except (BridgeError, MemoryError) as error:
            edge = self._limits.edge_bytes
            tail = line[-edge:] if len(line) > edge else b""
            self._refuse_line(bridge_error(error), line[:edge], tail)

    def _refuse_long_line(self, line: LongLine) -> None:
        if line.ended:
            detail = f"limit: {self._limits.line_bytes} bytes"
            self._refuse_line(BridgeError(Cause.LINE_TOO_LONG, detail), line.head, line.tail)

    def _refuse_line(self, error: BridgeError, head: bytes, tail: bytes) -> None:
        raw_id = recover_id(head, tail)
        if raw_id.startswith(b'"' + BRIDGE_ID_PREFIX.encode("ascii")):
            self._settle_response(json.loads(raw_id), None)
            return
        self._log.debug("bridge", f"refused a line of the client: {error.cause.value}")
        self._answer_error(raw_id or b"null", error)

    def _handle_frame(self, frame: RawObject) -> None:
        members = frame.members
        key = id_key(frame.get("id")) if "id" in members else None
        if "method" not in members and ("result" in members or "error" in members or _is_ours(key)):
            is_valid = ("result" in members) != ("error" in members)
            is_valid = is_valid and frame.get_str("jsonrpc") == "2.0"
            self._settle_response(key, frame if is_valid else None)
            return
        method = frame.get_str("method")
        if method is None or frame.get_str("jsonrpc") != "2.0" or ("id" in members and key is None):
            raw_id = b"null" if key is None else bytes(frame.raw("id"))
            self._answer_error(raw_id, BridgeError(Cause.INVALID_REQUEST_SHAPE))
        elif key is None:
            self._handle_notification(method, frame)
        else:
            self._handle_request(key, bytes(frame.raw("id")), method, frame)

    def _settle_response(self, key: ClientKey | None, answer: RawObject | None) -> None:
        if not isinstance(key, str) or not self._settle(key, answer):
            self._log.debug("bridge", "dropped a response of the client: no request has its id")

    def _handle_notification(self, method: str, frame: RawObject) -> None:
        row = METHODS.get(method)
        if row is None or row.carried not in (Carried.NOTED, Carried.IGNORED):
            shown = clean_text(method, self._limits.shown_text)
            self._log.debug("bridge", f"ignored the notification {shown} of the client")
        elif method == "notifications/initialized":
            if self._lifecycle.state is State.READY:
                self._start_listening()
        elif row.carried is Carried.NOTED:
            params = frame.object("params")
            key = None if params is None else id_key(params.get("requestId"))
            if key is not None:
                self._cancel(key)

    def _handle_request(self, key: ClientKey, raw_id: bytes, method: str, frame: RawObject) -> None:
        answer = self._answers.get(method)
        if answer is not None:
            answer(key, raw_id, frame)
            return
        if self._lifecycle.is_over():
            return  # the input has ended: nobody waits for a response
        row = METHODS.get(method)
        error = self._not_ready_error(frame)
        if error is None and not self._is_served(row):
            error = BridgeError(Cause.METHOD_NOT_FOUND)
        if error is not None:
            self._answer_error(raw_id, error)
        elif row is not None:
            params = frame.object("params")
            if method in LIST_METHODS and (params is None or params.peek("cursor") is None):
                self._note_asked(method)
            error = self._admit(ClientRequest(key, raw_id, row, params))
            if error is not None:
                self._answer_error(raw_id, error)

    def _is_served(self, row: MethodRow | None) -> bool:
        if row is not None and row.carried is Carried.SUBSCRIBED:
            return self._takes_changes()
        return row is not None and row.carried is Carried.FORWARDED

    def forward_log(self, params: RawObject | None) -> None:
        """On the upstream reader: a log message of the server, if the client wants it."""
        level = self.level if self.declares_logging else None
        pieces = log_to_legacy(params, level)
        if pieces is None:
            self._log.debug("bridge", "dropped a log message: below the level, or nobody asked")
        else:
            self._output.write_from(lambda: pieces, is_more=True)

    def _not_ready_error(self, frame: RawObject) -> BridgeError | None:
        state = self._lifecycle.state
        if state is State.READY:
            return None
        if state is State.CLOSING:
            return self._lifecycle.closed_by or BridgeError(Cause.NOT_INITIALIZED)
        params = frame.object("params")
        meta = None if params is None else params.object("_meta")
        if meta is not None and META_PROTOCOL_VERSION in meta:
            return BridgeError(Cause.METHOD_NOT_FOUND)  # a modern client tries its luck
        return BridgeError(Cause.NOT_INITIALIZED)

    def _answer_ping(self, _key: ClientKey, raw_id: bytes, _frame: RawObject) -> None:
        self._answer_result(raw_id)

    def _answer_set_level(self, _key: ClientKey, raw_id: bytes, frame: RawObject) -> None:
        params = frame.object("params")
        level = None if params is None else params.get_str("level")
        if level not in LOG_LEVELS:
            detail = f"level is one of {', '.join(LOG_LEVELS)}"
            self._answer_error(raw_id, BridgeError(Cause.INVALID_PARAMS, detail))
            return
        self.level = level
        self._answer_result(raw_id)

    def _answer_discover(self, _key: ClientKey, raw_id: bytes, _frame: RawObject) -> None:
        self._answer_error(raw_id, BridgeError(Cause.METHOD_NOT_FOUND))

    def _answer_initialize(self, key: ClientKey, raw_id: bytes, frame: RawObject) -> None:
        state = self._lifecycle.state
        if state is State.CLOSING:
            error = self._lifecycle.closed_by
            if error is not None:
                self._answer_error(raw_id, error)
        elif not self._lifecycle.move(State.AWAITING_INITIALIZE, State.INITIALIZING):
            self._answer_error(raw_id, BridgeError(Cause.ALREADY_INITIALIZED))
        else:
            request = ClientRequest(key, raw_id, METHODS["initialize"], frame.object("params"))
            error = self._admit(request)
            if error is not None:
                self._lifecycle.move(State.INITIALIZING, State.AWAITING_INITIALIZE)
                self._answer_error(raw_id, error)

    def _answer_result(self, raw_id: bytes) -> None:
        self._output.post(b"".join(build_response(raw_id, [b"{}"])))

    def _answer_error(self, raw_id: bytes, error: BridgeError) -> None:
        self._output.post(build_error(raw_id, encode_json(error_object(error))))


def _is_ours(key: ClientKey | None) -> bool:
    """Is it an id of our requests, which no request of the client has?"""
    return isinstance(key, str) and key.startswith(BRIDGE_ID_PREFIX)


# endregion

# region rooms slots ----------------------------------------------------------
# One client request from its line to its answer: once or, when it is cancelled first, never.


class ProgressGate:
    """At most `per_second` notifications a second for one request; the newest one waits.

    Threads: used under the output lock alone, but for `due`, a hint for the slot.
    """

    __slots__ = ("_count", "_held", "_per_second", "_since", "due")

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._since = float("-inf")
        self._count = 0
        self._held: list[Piece] | None = None
        self.due: float | None = None  # when what is held may go out

    def pass_or_hold(self, pieces: list[Piece], now: float) -> list[Piece] | None:
        """The notification itself when there is room, else None: it is held for later."""
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        if self._count >= self._per_second:
            self._held, self.due = pieces, self._since + 1.0
            return None
        self._count += 1
        self._held = self.due = None
        return pieces

    def take_held(self, now: float | None = None) -> list[Piece] | None:
        """What is held, when it is due (None: in any case, the answer follows)."""
        if self.due is None or (now is not None and now < self.due):
            return None
        pieces, self._held, self.due = self._held, None, None
        if now is not None:
            self._since, self._count = now, 1
        return pieces


class Slot:
    """A client request until its outcome; also what opening, rounds and listen know of it.

    Threads: the reader makes it; who is first at `outcome` answers or cancels it. `sent` and
    `reservation` are set by the reader before the request goes out. `signal` changes once, when
    a worker takes the slot over: one that still attends to it is woken before and looks no more.
    """

    __slots__ = (
        "_slots", "cancelled_for", "gate", "has_progress", "is_added", "is_asking", "is_claimed",
        "meta", "outcome", "request", "reservation", "sent", "signal", "started", "token", "uri",
    )  # fmt: skip

    def __init__(self, slots: Slots, request: ClientRequest, started: float) -> None:
        self._slots = slots
        self.request = request
        self.started = started
        self.outcome = Once()
        self.signal = Signal()  # to the worker that attends to it
        self.gate: ProgressGate | None = None  # with a token alone
        self.meta = client_meta(request.params)
        self.token = progress_token(self.meta)
        self.has_progress = self.token is not None
        self.uri = ""  # of a change of the subscriptions
        self.is_added = request.method == "resources/subscribe"
        self.cancelled_for: str | None = None  # the reason that the others hear
        self.is_asking = False  # set once, by the upstream reader: the rounds have a worker
        self.is_claimed = False  # set once, by its worker: it was first at `outcome`
        self.sent: Exchange | None = None
        self.reservation: Reservation | None = None

    def is_over(self) -> bool:
        """Has it been answered or cancelled?"""
        return self.outcome.is_over()

    def check_open(self) -> None:
        """Somebody waits for the answer. Raises RequestOverError."""
        if self.outcome.is_over():
            raise RequestOverError

    def claim(self) -> None:
        """The answer that follows goes out, whatever comes. Raises RequestOverError."""
        if not self.outcome.first():
            raise RequestOverError
        self.is_claimed = True

    def end_reason(self) -> str | None:
        """Why nobody waits any more."""
        return self.cancelled_for

    def wait(self, until: float) -> None:
        """Somebody has called wake(), the request is over, or it is `until`."""
        self._slots.wait(self.signal, until)

    def wake(self) -> None:
        """Who waits goes on."""
        self.signal.set()

    def exchange(self, call: UpstreamCall, limit: float) -> RawObject:
        """The reply to a request. Raises BridgeError and RequestOverError."""
        return self._slots.exchange(self, call, limit)

    def frame_of(self, reply: RawObject) -> list[Piece]:
        """The answer to the client that a reply makes. Raises BridgeError."""
        return self._slots.frame_of(self.request, reply)

    def take_answer(self) -> list[Piece] | None:
        """Under the output lock: the frame that says that a change is done."""
        return self._slots.take(self, build_response(self.request.raw_id, [b"{}"]))

    def fail(self, error: BridgeError) -> None:
        """The client has the error of the bridge."""
        self._slots.answer(self, lambda: self._slots.frame_of(self.request, None, error))

    def fail_with(self, reply: RawObject) -> None:
        """The client has the error of the server."""
        self._slots.answer(self, lambda: self.frame_of(reply))


class Slots:
    """The requests in flight.

    A forwarded request is sent by the reader, which a full pipe does not stop, and answered by
    the thread that reads the server: no hand-off. Its worker stands by and attends to it from
    its first moment on: the "still waiting" lines, its limit, progress that was held back.

    Threads: the reader calls admit() and cancel(), the upstream reader settles, workers attend
    and do the whole of initialize and the rounds of a request that asks for input, the stop
    sequence calls end_all(), fail_all() and wait_empty(). The tables need no lock: each use is
    one step, the reader alone adds a slot, and only who is first at its outcome removes it.
    """

    def __init__(
        self,
        *,
        connection: UpstreamConnection,
        write_from: WriteFrom,
        workers: Workers,
        limits: Limits,
        clock: Clock,
        log: Log,
        opening: Opens,
        rounds: Asks,
        request_change: Callable[[SubscriptionChange], None],
    ) -> None:
        self._opening = opening
        self._rounds = rounds
        self._request_change = request_change
        self._connection = connection
        self._write_from = write_from
        self._workers = workers
        self._limits = limits
        self._clock = clock
        self._log = log
        self._in_flight: dict[ClientKey, Slot] = {}
        self._busy: set[Slot] = set()  # a worker does what takes long for them
        self._emptied = Signal()
        self.has_tools = True  # does the server list any? Set before the state is READY

    def admit(self, request: ClientRequest) -> BridgeError | None:
        """The request is in flight, or is refused with the error that is returned."""
        if request.key in self._in_flight:
            return BridgeError(Cause.INVALID_REQUEST_SHAPE, "its id is in flight already")
        if len(self._in_flight) >= self._limits.requests:
            self._log.warning("bridge", f"rejected {request.shown()}: too many requests in flight")
            return BridgeError(Cause.TOO_MANY_REQUESTS)
        uri = None
        if request.row.carried is Carried.SUBSCRIBED:
            uri = None if request.params is None else request.params.get_str("uri")
            if uri is None:
                return BridgeError(Cause.INVALID_PARAMS, "uri is a text")
        slot = Slot(self, request, self._clock.now())
        self._in_flight[request.key] = slot
        if request.method == "initialize":
            self._run_busy(slot, lambda: self._opening.run(slot))
        elif uri is not None:
            slot.uri = uri
            self._request_change(slot)
        elif request.method == "tools/list" and not self.has_tools:
            frame = build_response(request.raw_id, [b'{"tools":[]}'])  # an error ends Copilot's use
            self._workers.run(lambda: self._answer_with(slot, frame))
        else:
            return self._forward(slot)
        return None

    def cancel(self, key: ClientKey) -> None:
        """The request gets no answer, and the server hears that it is cancelled."""
        slot = self._in_flight.get(key)
        if slot is not None:
            self._end(slot, "the client canceled the request")

    def end_all(self, reason: str) -> None:
        """Every request in flight is cancelled without an answer."""
        for slot in list(self._in_flight.values()):
            self._end(slot, reason)

    def fail_all(self, error: BridgeError, reason: str) -> None:
        """Every request in flight is answered with the error."""
        for slot in list(self._in_flight.values()):
            slot.cancelled_for = slot.cancelled_for or reason
            self._answer_with(slot, self._error_frame(slot.request, error))

    def wait_empty(self, until: float) -> bool:
        """No request is in flight and no worker is busy with one any more, before `until`."""
        while self._in_flight or self._busy:
            if not self._clock.wait(self._emptied, until):
                return not (self._in_flight or self._busy)
        return True

    def _run_busy(self, slot: Slot, build: Callable[[], list[Piece]]) -> None:
        """A worker builds the answer, and a stop waits for it."""

        def run() -> None:
            try:
                self.answer(slot, build)
            finally:
                self._busy.discard(slot)
                if not self._busy:
                    self._emptied.set()

        slot.signal = Signal()
        self._busy.add(slot)
        self._workers.run(run)

    def _end(self, slot: Slot, reason: str) -> None:
        slot.cancelled_for = slot.cancelled_for or reason  # known to who sees the outcome
        if not slot.outcome.first():
            return
        self._remove(slot)
        self._log.debug("bridge", f"no answer for {slot.request.shown()}: {reason}")
        exchange = slot.sent  # who settles it may let go of it at this very moment
        if exchange is not None:
            self._connection.abandon(exchange, reason, "cancelled")
        self._let_go(slot)

    def _remove(self, slot: Slot) -> None:
        del self._in_flight[slot.request.key]
        if not self._in_flight:
            self._emptied.set()

    def _let_go(self, slot: Slot) -> None:
        """The worker of the slot goes on and sees that there is an outcome, or never starts."""
        slot.signal.set()
        reservation, slot.reservation = slot.reservation, None
        slot.sent = None  # both hold functions that hold the slot
        if reservation is not None:
            self._workers.release(reservation)

    def answer(
        self, slot: Slot, build: Callable[[], list[Piece]], *, is_more: bool = False
    ) -> None:
        """The client has the frame that `build` makes, or an error; unless there is an outcome."""
        try:
            frame = build()
        except RequestOverError:
            return
        except Exception as raised:  # noqa: BLE001  # each request has an answer, whatever happens
            frame = self._error_frame(slot.request, raised)
        self._write_from(lambda: self.take(slot, frame), is_more=is_more)
        self._let_go(slot)

    def _answer_with(self, slot: Slot, frame: list[Piece]) -> None:
        self.answer(slot, lambda: frame)

    def take(self, slot: Slot, frame: list[Piece]) -> list[Piece] | None:
        """Under the output lock: the frame, with the progress that still waits before it."""
        if not (slot.is_claimed or slot.outcome.first()):
            return None
        self._remove(slot)
        if slot.gate is not None:
            return [*(slot.gate.take_held() or ()), *frame]
        return frame

    def _error_frame(self, request: ClientRequest, raised: Exception) -> list[Piece]:
        error = bridge_error(raised)
        if error.cause is Cause.INTERNAL:
            self._log.error("bridge", f"{request.shown()}: internal error, {place_of(raised)}")
        return [build_error(request.raw_id, encode_json(error_object(error)))]

    def _forward(self, slot: Slot) -> BridgeError | None:
        """On the reader: the request is on its way, and its worker is reserved."""
        request = slot.request
        call = UpstreamCall(
            request.method,
            params_to_modern(request.params),
            meta=meta_to_modern(slot.meta),
            has_progress=slot.has_progress,
            client_id=request.raw_id,
        )
        slot.reservation = self._workers.reserve(
            lambda: self._attend(slot), slot.started + self._limits.first_line_seconds
        )
        on_progress = None
        if slot.has_progress:
            slot.gate = ProgressGate(self._limits.progress_per_second)
            on_progress = self._progress_sink(slot)
        slot.sent = exchange = self._connection.prepare(
            call, lambda: self._handle_settled(slot), on_progress
        )
        try:
            self._connection.send(exchange)
            error = exchange.failure  # the server went before the slot had its exchange
        except BridgeError as raised:
            error = raised
        if error is not None and slot.outcome.first():
            self._remove(slot)
            self._let_go(slot)
            return error
        return None

    def _handle_settled(self, slot: Slot) -> None:
        """On the upstream reader: the reply, or the failure, is the answer; or a worker asks."""
        exchange = slot.sent
        if exchange is None:
            return
        reply = exchange.reply
        if reply is not None and slot.request.row.may_ask and asks_for_input(reply):
            slot.is_asking = True
            self._let_go(slot)
            gate = slot.gate
            if gate is not None:  # what is held goes out now: a person may take long to answer
                self._write_from(
                    lambda: None if slot.outcome.is_over() else gate.take_held(), is_more=True
                )
            self._run_busy(slot, lambda: self._rounds.run(slot, reply))
        else:
            self.answer(
                slot, lambda: self.frame_of(slot.request, reply, exchange.failure), is_more=True
            )

    def frame_of(
        self, request: ClientRequest, reply: RawObject | None, failure: BridgeError | None = None
    ) -> list[Piece]:
        """The answer that a reply makes, or a failure. Raises BridgeError."""
        if reply is None:
            raise failure or BridgeError(Cause.INVALID_RESPONSE)
        if "error" in reply:
            return [build_error(request.raw_id, error_to_legacy(reply))]
        result = reply.object("result")
        if result is None:
            raise BridgeError(Cause.INVALID_RESPONSE, "the result is not an object")
        check_complete(result)
        notes: list[str] = []
        pieces = result_to_legacy(request.method, result, notes)
        for note in notes:
            self._log.info_once("bridge", note)
        return build_response(request.raw_id, pieces)

    def _attend(self, slot: Slot) -> None:
        """On its worker: what a request needs that takes long. Ends with its outcome."""

        def is_over() -> bool:
            return slot.outcome.is_over() or slot.is_asking

        limit = getattr(self._limits, slot.request.row.limit)
        waiting = self._waiting(slot, slot.request.method, limit, is_over)
        while not is_over():
            try:
                waiting(slot.started)
            except BridgeError as raised:
                frame = self._error_frame(slot.request, raised)
                exchange = slot.sent
                if exchange is not None:
                    self._connection.abandon(exchange, "no response in time", "timeout")
                self._answer_with(slot, frame)

    def _waiting(
        self, slot: Slot, method: str, limit: float, is_over: Callable[[], bool]
    ) -> Callable[[float], None]:
        """A function that waits for the next moment of the slot and does what is due then.

        Given when the request went out, it raises BridgeError TIMEOUT at the limit.
        """
        lines = 0
        signal = slot.signal

        def wait(started: float) -> None:
            nonlocal lines
            until = started + limit
            line_at = started + self._limits.first_line_seconds
            line_at += lines * self._limits.next_line_seconds
            gate = slot.gate
            due = None if gate is None else gate.due
            if not is_over():
                self._clock.wait(signal, min(until, line_at, until if due is None else due))
            now = self._clock.now()
            if is_over():
                return
            if gate is not None and gate.due is not None and now >= gate.due:
                self._write_from(lambda: None if slot.outcome.is_over() else gate.take_held(now))
            if now >= until:
                raise self._timeout(slot.request, method, limit)
            if now >= line_at:
                lines += 1
                self._log.info(
                    "bridge",
                    f"still waiting for the upstream server: {method} (request"
                    f" {slot.request.shown_id()}, {now - started:.0f} s)",
                )

        return wait

    def _timeout(self, request: ClientRequest, method: str, limit: float) -> BridgeError:
        if request.method != "initialize":  # its failure has a line of its own
            self._log.warning("bridge", f"{request.shown()}: no response in {limit:g} s")
        return BridgeError(Cause.TIMEOUT, f"{method}: no response in {limit:g} s")

    def _progress_sink(self, slot: Slot) -> ProgressSink:
        return lambda params: self._pass_progress(slot, params)

    def _pass_progress(self, slot: Slot, params: RawObject) -> None:
        """On the upstream reader: the client hears of it before any later answer."""
        gate, pieces = slot.gate, progress_to_legacy(params, slot.token or b"null")
        if pieces is None or gate is None:
            self._log.warn_once("mcp_router", "progress", "dropped a progress that is not valid")
            return

        def produce() -> list[Piece] | None:
            if slot.outcome.is_over():
                return None
            return gate.pass_or_hold(pieces, self._clock.now())

        self._write_from(produce, is_more=True)
        if gate.due is not None:
            slot.signal.set()
            reservation = slot.reservation
            if reservation is not None:
                self._workers.start(reservation)  # so that what is held goes out when it is due

    def wait(self, signal: Signal, until: float) -> None:
        """The signal was given, or it is `until`."""
        self._clock.wait(signal, until)

    def exchange(self, slot: Slot, call: UpstreamCall, limit: float) -> RawObject:
        """The reply to one request, for which this worker waits.

        Raises BridgeError, and RequestOverError when the slot has its outcome.
        """
        waiting = self._waiting(slot, call.method, limit, slot.outcome.is_over)
        on_progress = self._progress_sink(slot) if call.has_progress else None
        exchange = self._connection.prepare(call, slot.signal.set, on_progress)
        slot.sent = exchange
        self._connection.send(exchange)
        self._connection.flush()
        while exchange.reply is None:
            if slot.outcome.is_over():
                reason = slot.cancelled_for or "the request has ended"
                self._connection.abandon(exchange, reason, "cancelled")
                raise RequestOverError
            if exchange.failure is not None:
                raise exchange.failure
            try:
                waiting(exchange.started)
            except BridgeError:
                if exchange.reply is None:
                    self._connection.abandon(exchange, "no response in time", "timeout")
                    raise
        return exchange.reply


# endregion

# region rooms opening --------------------------------------------------------
# What initialize does: the server is opened and asked for its capabilities; when any of it
# fails, nothing of the server is left and the client may send initialize again.


class Opening:
    """The way from initialize to READY. Threads: the worker of the initialize request."""

    def __init__(
        self,
        *,
        connection: UpstreamConnection,
        lifecycle: StateChanges,
        limits: Limits,
        log: Log,
        fallback_name: str,
        on_opened: Callable[[JsonObject, JsonObject], None],
    ) -> None:
        self._connection = connection
        self._lifecycle = lifecycle
        self._limits = limits
        self._log = log
        self._fallback_name = fallback_name
        self._on_opened = on_opened  # hears the capabilities of the client and of the server

    def run(self, work: SlotAtWork) -> list[Piece]:
        """The answer to initialize; the state is READY before it goes out.

        Raises BridgeError and RequestOverError; the state is AWAITING_INITIALIZE then.
        """
        try:
            return build_response(work.request.raw_id, [encode_json(self._open(work))])
        except BaseException:
            self._connection.close()
            for state in (State.INITIALIZING, State.READY):
                self._lifecycle.move(state, State.AWAITING_INITIALIZE)
            self._log.flush(self._limits.log_flush_seconds)  # VS Code may read no more afterwards
            raise

    def _open(self, work: SlotAtWork) -> JsonObject:
        params = work.request.params
        info, capabilities = parse_initialize(None if params is None else params.value())
        legacy = initialize_result(self._discover(work, info, capabilities), self._fallback_name)
        declared = legacy["capabilities"]
        self._on_opened(capabilities, declared if isinstance(declared, dict) else {})
        if not self._lifecycle.move(State.INITIALIZING, State.READY):
            raise RequestOverError  # the bridge stops
        work.claim()  # or it was cancelled since the server replied
        self._connection.settle_as_ready()
        self._log.info("bridge", "the upstream server is ready")
        return legacy

    def _discover(self, work: SlotAtWork, info: JsonObject, capabilities: JsonObject) -> RawObject:
        name, version = (clean_text(str(info[key]), 100) for key in ("name", "version"))
        self._log.info("bridge", f"initialize from {name} {version}")
        try:
            self._connection.open(info, capabilities)
        except BridgeError as error:
            self._log.warning("bridge", f"cannot start the upstream command: {error.detail}")
            raise
        try:
            return self._discover_result(work)
        except BridgeError as error:
            hint = EXIT_HINT if error.cause is Cause.CLOSED else error.message
            self._log.warning("bridge", f"server/discover failed: {error.detail}. {hint}")
            raise

    def _discover_result(self, work: SlotAtWork) -> RawObject:
        limit = self._limits.discover_seconds
        call = UpstreamCall("server/discover", [], client_id=work.request.raw_id)
        try:
            reply = work.exchange(call, limit)
            if is_odd_refusal(reply):  # our very version, named as supported: once more
                reply = work.exchange(call, limit)
        except BridgeError as error:
            if error.cause is not Cause.TIMEOUT:
                raise
            detail = f"no response in {limit:g} s"
            raise BridgeError(Cause.DISCOVER_FAILED, detail, message=SILENT_SERVER) from error
        if "error" in reply:
            raise discover_error(reply)
        result = reply.object("result")
        if result is None:
            raise BridgeError(Cause.INVALID_RESPONSE, "the result is not an object")
        check_complete(result)
        check_discover_result(result)
        return result


# endregion

# region rooms rounds ---------------------------------------------------------
# The rounds of a request that asks for input: its questions go to the client as requests of
# ours, its answers to the server with the retry. See basic/patterns/mrtr.


class Rounds:
    """The questions of the server. Threads: run() on the worker of each request that asks."""

    def __init__(
        self, *, asking: Asking, write_from: WriteFrom, limits: Limits, clock: Clock, log: Log
    ) -> None:
        self._asking = asking
        self._write_from = write_from
        self._limits = limits
        self._clock = clock
        self._log = log
        self._elicitations = itertools.count(1)
        self.capabilities: JsonObject = {}  # of the client; set before the state is READY

    def run(self, work: SlotAtWork, reply: RawObject) -> list[Piece]:
        """The answer to the client, once the server gives a result or an error.

        Before it the client hears which URL steps are complete. Raises BridgeError, and
        RequestOverError when nobody waits for the answer any more.
        """
        session = InputSession(
            self.capabilities,
            lambda: f"elicitation-{next(self._elicitations)}",
            self._limits.questions,
        )
        try:
            return self._rounds(work, session, reply)
        except ClientRefusedError as refused:
            message = clean_text(refused.message, self._limits.shown_text)
            self._log.info(
                "bridge",
                f"{work.request.shown()}: the client answered an input request with an error:"
                f" {message}",
            )
            return [build_error(work.request.raw_id, refused.error)]
        finally:
            self._tell(build_completed(one) for one in session.take_completed())

    def _rounds(self, work: SlotAtWork, session: InputSession, reply: RawObject) -> list[Piece]:
        """The frame that answers the client."""
        request = work.request
        limit = getattr(self._limits, request.row.later_limit)
        first = params_to_modern(request.params)
        pause = self._limits.round_pause_seconds
        rounds = self._limits.rounds
        for number in range(2, rounds + 1):
            result = reply.object("result")
            if result is None:
                raise BridgeError(Cause.INVALID_RESPONSE)
            asked_at = self._clock.now()
            responses = self._responses(work, session, result)
            if not responses:
                self._pause(work, pause)
                pause = min(2 * pause, self._limits.most_pause_seconds)
            waited = self._clock.now() - asked_at
            call = UpstreamCall(
                request.method,
                retry_members(first, result, responses),
                meta=meta_to_modern(work.meta),
                has_progress=work.has_progress,
                client_id=request.raw_id,
                round_number=number,
            )
            reply = work.exchange(call, limit)
            frame = None
            if "requestState" in result:
                frame = state_refused(request.method, request.raw_id, reply)
            if frame is not None:
                self._log.warning(
                    "bridge",
                    f"{request.shown()}: the upstream server refused the request state after"
                    f" an input wait of {waited:.0f} s",
                )
                return frame
            if not asks_for_input(reply):
                return work.frame_of(reply)
        self._log.warning(
            "bridge", f"{request.shown()}: the upstream server asked for input in {rounds} rounds"
        )
        raise BridgeError(Cause.TOO_MANY_ROUNDS, f"limit: {rounds} rounds")

    def _responses(self, work: SlotAtWork, session: InputSession, result: RawObject) -> JsonObject:
        """The inputResponses to one result."""
        try:
            questions = session.read_round(result)
            self._tell(build_completed(one) for one in session.take_completed(questions))
            for question in questions:
                if question.params is None:
                    self._log.warning(
                        "bridge",
                        f"input request '{clean_text(question.key, 100)}': the bridge refused the"
                        " URL of a URL elicitation, and the upstream server gets decline",
                    )
            answers = self._put(work, [q for q in questions if q.params is not None])
            return {q.key: read_answer(q, answers.get(q)) for q in questions}
        except BridgeError as error:
            if error.cause is not Cause.INPUT_TIMEOUT:
                self._log.warning(
                    "bridge",
                    f"{work.request.shown()}: the input requests of the upstream server failed:"
                    f" {error.detail}",
                )
            raise

    def _put(self, work: SlotAtWork, questions: list[Question]) -> dict[Question, RawObject | None]:
        """All questions go out together; returns the frame of each answer.

        Raises BridgeError INPUT_TIMEOUT and RequestOverError. In each case no entry stays in the
        table, and the client hears which of its questions are off.
        """
        if not questions:
            return {}
        pending = self._asking.register(len(questions), work.wake)
        started = self._clock.now()
        frames: list[Piece] = []
        put: list[str] = []

        def put_all() -> list[Piece]:
            work.check_open()
            put.extend(entry.request_id for entry in pending)
            return frames

        try:
            for entry, question in zip(pending, questions):
                frames.append(build_question(entry.request_id, question))
                self._log.debug(
                    "bridge",
                    f"{work.request.shown()}: sent {question.method} to the client as request"
                    f' "{entry.request_id}"',
                )
            self._write_from(put_all)
            self._await_answers(work, pending, started)
        finally:
            open_ids = self._asking.withdraw(pending)
            _note_accepted(questions, pending)
            reason = work.end_reason() or "no answer in time"
            self._tell(build_cancelled(one, reason) for one in open_ids if one in put)
        return {question: entry.answer for entry, question in zip(pending, questions)}

    def _await_answers(
        self, work: SlotAtWork, pending: Sequence[PendingAnswer], started: float
    ) -> None:
        limit = self._limits.answer_seconds
        line_at = started + self._limits.first_line_seconds
        while True:
            left = sum(not entry.is_answered for entry in pending)
            work.check_open()
            if not left:
                return
            now = self._clock.now()
            if now >= started + limit:
                self._log.warning(
                    "bridge",
                    f"{work.request.shown()}: no answers of the client in {limit:g} s (input"
                    f" requests without an answer: {left} of {len(pending)})",
                )
                raise BridgeError(Cause.INPUT_TIMEOUT, f"no answers in {limit:g} s")
            if now >= line_at:
                line_at += self._limits.next_line_seconds
                self._log.info(
                    "bridge",
                    "still waiting for the answers of the client to the input requests of"
                    f" {work.request.method} (request {work.request.shown_id()},"
                    f" {now - started:.0f} s)",
                )
            work.wait(min(started + limit, line_at))

    def _pause(self, work: SlotAtWork, seconds: float) -> None:
        """Some time has passed, or RequestOverError is raised at once."""
        until = self._clock.now() + seconds
        while self._clock.now() < until:
            work.check_open()
            work.wait(until)
        work.check_open()

    def _tell(self, frames: Iterable[Piece]) -> None:
        """The client gets the frames, if there are any."""
        told = [*frames]
        if told:
            self._write_from(lambda: told)


def _note_accepted(questions: list[Question], pending: Sequence[PendingAnswer]) -> None:
    """The user has opened these URLs, whatever becomes of the other questions."""
    for question, entry in zip(questions, pending):
        if question.url and entry.is_answered:
            try:
                read_answer(question, entry.answer)
            except BridgeError:
                continue  # who reads the answers fails with it


# endregion

# region rooms listen ---------------------------------------------------------
# The one owner of subscriptions/listen. Events go to the client on the thread that reads the
# server, so that a list change comes before the result that the server wrote after it.


class Stream:
    """One listen request. A newer one takes its place with its first acknowledgment.

    Threads: made by the owner; the two fields that change do so under the output lock.
    """

    __slots__ = ("acknowledged_at", "change", "exchange", "is_over", "opened_at", "uris")

    def __init__(
        self, uris: tuple[str, ...], change: SubscriptionChange | None, now: float
    ) -> None:
        self.uris = uris
        self.change = change  # the request of the client that it was opened for
        self.opened_at = now
        self.acknowledged_at: float | None = None  # when it became active
        self.is_over = False  # it has ended, or an acknowledgment came too late
        self.exchange: Exchange | None = None


class Listener:
    """The subscriptions of the client, and the stream that carries them.

    Threads: the owner, run_owner(), opens and ends streams, one change at a time; the reader
    calls start(), request_change() and look(); the upstream reader handles events,
    acknowledgments and ends, and writes under the output lock; the stop sequence calls stop().
    `_active` and `_has_gap` change under the output lock alone, in the order of what the server
    said: the owner, which hears of it later, has no say in what is a gap. It sleeps without a
    limit while a stream is active.
    """

    def __init__(
        self,
        *,
        connection: UpstreamConnection,
        write_from: WriteFrom,
        limits: Limits,
        clock: Clock,
        log: Log,
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self._connection = connection
        self._write_from = write_from
        self._limits = limits
        self._clock = clock
        self._log = log
        self._on_crash = on_crash
        self.list_changes = ListChanges()
        self._kinds: tuple[ListKind, ...] = ()  # set by configure(), before READY
        self._may_subscribe = False  # the same
        self._start_once = Once()
        self._stop_once = Once()
        self._finished = threading.Event()
        self._wake = Signal()
        self._said: deque[Callable[[], None]] = deque()  # for the owner; append is one step
        self._active: Stream | None = None
        self._has_gap = True
        # The owner's alone:
        self._current: Stream | None = None  # what it knows to be active
        self._is_wanted = True  # False: the server refused; only a change opens a stream
        self._uris: tuple[str, ...] = ()
        self._opening: Stream | None = None
        self._waiting: deque[SubscriptionChange] = deque()
        self._next_at: float | None = None  # when a new stream is due
        self._comeback = Comeback(limits)

    def configure(self, capabilities: Json) -> None:
        """What the server declares; before the state is READY."""
        self._kinds = declared_kinds(capabilities)
        self._may_subscribe = may_subscribe(capabilities)

    def start(self) -> None:
        """The stream opens, once, when the server declares anything to listen to."""
        if (self._kinds or self._may_subscribe) and self._start_once.first():
            self._next_at = self._clock.now()
            start_thread("listen owner", self.run_owner)

    def takes_changes(self) -> bool:
        """Can the client subscribe to resources?"""
        return self._may_subscribe and self._start_once.is_over()

    def request_change(self, change: SubscriptionChange) -> None:
        """The owner makes the change when it is its turn."""
        self._tell(lambda: self._waiting.append(change))

    def look(self) -> None:
        """The owner looks whether the client has cancelled the change that it makes."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Every stream is cancelled and the owner has ended, or `seconds` are over."""
        if self._stop_once.first() and self._start_once.is_over():
            self._wake.set()
            self._finished.wait(seconds)

    def run_owner(self) -> None:
        """The owner's thread."""
        try:
            while not self._stop_once.is_over():
                while self._said:
                    self._said.popleft()()
                self._go_on()
                self._clock.wait(self._wake, self._next_moment())
            for stream in (self._opening, self._current):
                self._abandon(stream, "the client closed the connection")
        except BaseException as error:  # noqa: BLE001  # no owner may end unseen
            self._on_crash("the listen owner", error)
        finally:
            self._finished.set()

    def _tell(self, command: Callable[[], None]) -> None:
        self._said.append(command)
        self._wake.set()

    def _next_moment(self) -> float | None:
        if self._said:
            return self._clock.now()
        if self._opening is not None:
            return self._opening.opened_at + self._limits.listen_seconds
        return self._next_at

    def _go_on(self) -> None:
        """What is due now."""
        now = self._clock.now()
        opening, limit = self._opening, self._limits.listen_seconds
        if opening is not None and opening.change is not None and opening.change.is_over():
            if self._give_up(opening, "the client canceled the request"):
                self._resume()
        elif opening is not None and now >= opening.opened_at + limit:
            detail = f"subscriptions/listen: no acknowledgment in {limit:g} s"
            if self._give_up(opening, "no acknowledgment in time"):
                self._handle_failure(opening, BridgeError(Cause.TIMEOUT, detail))
        while self._opening is None and self._waiting:
            self._begin_change(self._waiting.popleft())
        if self._opening is None and self._next_at is not None and now >= self._next_at:
            self._open(self._uris, None)

    def _give_up(self, stream: Stream, reason: str) -> bool:
        """The stream that opens never becomes active. False: it has, in this very moment."""

        def mark() -> None:
            stream.is_over = stream.is_over or stream.acknowledged_at is None

        self._write_from(mark, is_more=True)
        if stream.acknowledged_at is not None:
            return False  # the owner hears of it next
        self._opening = None
        self._abandon(stream, reason)
        return True

    def _begin_change(self, change: SubscriptionChange) -> None:
        if change.is_over():
            return
        has = change.uri in self._uris
        if has == change.is_added:
            self._write_from(change.take_answer)
        elif change.is_added:
            self._open((*self._uris, change.uri), change)
        else:
            left = tuple(uri for uri in self._uris if uri != change.uri)
            if left or self._kinds:
                self._open(left, change)
            else:
                self._end_last(change)

    def _end_last(self, change: SubscriptionChange) -> None:
        """Nothing is left to listen to: the answer, and then the end of the stream."""

        def produce() -> list[Piece] | None:
            self._active = None
            return change.take_answer()

        self._write_from(produce)
        ended, self._current = self._current, None
        self._uris, self._next_at, self._is_wanted = (), None, False
        self._abandon(ended, "no subscription is left")

    def _open(self, uris: tuple[str, ...], change: SubscriptionChange | None) -> None:
        self._next_at = None
        stream = Stream(uris, change, self._clock.now())
        self._opening = stream
        call = UpstreamCall("subscriptions/listen", build_filter(self._kinds, uris))
        exchange = self._connection.prepare(
            call,
            lambda: self._note_end(stream),
            None,
            lambda method, params: self._handle_event(stream, method, params),
        )
        stream.exchange = exchange
        try:
            self._connection.send(exchange)
            self._connection.flush()
        except BridgeError as error:
            self._opening = None
            self._handle_failure(stream, error)

    def _abandon(self, stream: Stream | None, reason: str) -> None:
        if stream is not None and stream.exchange is not None:
            self._connection.abandon(stream.exchange, reason, "cancelled")

    def _handle_event(self, stream: Stream, method: str, params: RawObject | None) -> None:
        """On the upstream reader: one notification of a stream."""
        if method == ACKNOWLEDGED:
            self._handle_acknowledgment(stream, params)
        elif method == "notifications/cancelled":
            if stream.exchange is not None:
                self._connection.forget(stream.exchange)
            self._note_end(stream)
        else:
            pieces = event_to_legacy(method, params)
            if pieces is None:
                self._log.debug("mcp_router", "dropped an event that is none for the client")
                return
            event = pieces

            def produce() -> list[Piece] | None:
                if self._active is not stream:
                    return None
                if method in LIST_CHANGES and not self.list_changes.mark(method):
                    return None
                return event

            self._write_from(produce, is_more=True)

    def _handle_acknowledgment(self, stream: Stream, params: RawObject | None) -> None:
        """On the upstream reader: the answer of a change, and what was missed in a gap."""
        honoured = read_acknowledgment(params)
        is_first = stream.acknowledged_at is None

        def produce() -> list[Piece] | None:
            if stream.is_over:
                return None
            pieces: list[Piece] = []
            if is_first:
                if stream.change is not None and stream.change.is_over():
                    stream.is_over = True  # the client wants it no more: all stays as it was
                    return None
                stream.acknowledged_at, self._active = self._clock.now(), stream
                if stream.change is not None:
                    pieces += stream.change.take_answer() or ()
            elif self._active is not stream:
                return None
            if self._has_gap or not is_first:
                self._has_gap = False
                pieces += self._missed(stream, honoured)
            return pieces

        self._write_from(produce, is_more=True)
        if is_first:
            self._tell(lambda: self._handle_first(stream, honoured))

    def _missed(self, stream: Stream, honoured: Honoured | None) -> list[Piece]:
        """Under the output lock: what the client may not have heard of."""
        pieces: list[Piece] = []
        for kind in self._kinds:
            is_told = honoured is None or kind.filter_field in honoured.fields
            if is_told and self.list_changes.mark(kind.change):
                pieces += event_to_legacy(kind.change, None) or ()
        pieces += (build_updated(uri) for uri in stream.uris)
        return pieces

    def _handle_first(self, stream: Stream, honoured: Honoured | None) -> None:
        """On the owner: a stream has become active, unless it was given up."""
        if stream is not self._opening or stream.acknowledged_at is None:
            return
        self._opening = None
        old, self._current = self._current, stream
        self._uris, self._is_wanted, self._next_at = stream.uris, True, None
        self._abandon(old, "a newer stream took its place")
        for uri in stream.uris:
            if honoured is not None and uri not in honoured.uris:
                shown = clean_text(uri, self._limits.shown_text)
                text = f"the upstream server sends no updates of the resource {shown}"
                self._log.warn_once("bridge", text, text)

    def _note_end(self, stream: Stream) -> None:
        """On the thread that hears of it: what happens from here on reaches no stream."""

        def leave() -> None:
            stream.is_over = True
            if self._active is stream:
                self._active, self._has_gap = None, True

        self._write_from(leave, is_more=True)
        self._tell(lambda: self._handle_end(stream))

    def _handle_end(self, stream: Stream) -> None:
        """On the owner: a stream has ended by a reply, a failure, or the server's cancellation."""
        exchange = stream.exchange
        if exchange is None or stream not in (self._opening, self._current):
            return
        if stream is self._opening:
            self._opening = None
        else:
            self._current = None
        if exchange.failure is not None:
            self._handle_failure(stream, exchange.failure)
        elif exchange.reply is not None and "error" in exchange.reply:
            self._handle_refusal(stream, exchange.reply)
        elif stream.change is not None and stream.acknowledged_at is None:
            detail = "the listen stream ended before its acknowledgment"
            self._fail_change(stream.change, BridgeError(Cause.INVALID_RESPONSE, detail))
        else:
            wait = self._come_back(stream, is_lost=False)
            self._log.info(
                "bridge",
                f"the upstream server ended the listen stream. A new stream follows in {wait:g} s.",
            )

    def _come_back(self, stream: Stream, *, is_lost: bool) -> float:
        """A new stream is due after the seconds that are returned."""
        now = self._clock.now()
        lived = 0.0 if stream.acknowledged_at is None else now - stream.acknowledged_at
        wait = self._comeback.after(is_lost=is_lost, lived_seconds=lived)
        self._next_at = now + wait
        return wait

    def _handle_failure(self, stream: Stream, error: BridgeError) -> None:
        if error.cause in (Cause.UPSTREAM_EXITED, Cause.CLOSED):
            return  # the bridge stops
        if stream.change is not None and stream.acknowledged_at is None:
            self._fail_change(stream.change, error)
            return
        is_lost = error.cause in (Cause.TIMEOUT, Cause.TRANSPORT_FAILED, Cause.TOO_MANY_REQUESTS)
        if not is_lost:
            self._is_wanted = False
            is_new = stream.acknowledged_at is None
            what = "cannot start the listen stream" if is_new else "the listen stream failed"
            self._log.warning(
                "bridge", f"{what}: {error.cause.value}. The client gets no list changes."
            )
            return
        wait = self._come_back(stream, is_lost=True)
        self._log.warning(
            "bridge",
            f"the listen stream ended: {error.cause.value}. A new stream follows in {wait:g} s.",
        )

    def _handle_refusal(self, stream: Stream, reply: RawObject) -> None:
        """The server answered with an error: only a change of the subscriptions opens again."""
        code, message = parse_error_reply(reply) or (0, "")
        if stream.change is not None and stream.acknowledged_at is None:
            self._log.warning(
                "bridge",
                "the listen stream for a change of the subscriptions failed: error"
                f" {code}: {clean_text(message, self._limits.shown_text)}",
            )
            stream.change.fail_with(reply)
            self._resume()
            return
        self._is_wanted = False
        self._log.warning(
            "bridge",
            f"the upstream server refused the listen stream with the error {code}:"
            f" {clean_text(message, self._limits.shown_text)}. The bridge sends no more list"
            " changes.",
        )

    def _fail_change(self, change: SubscriptionChange, error: BridgeError) -> None:
        """The client gets the error; the old stream and the old URIs stay."""
        self._log.warning(
            "bridge",
            "the listen stream for a change of the subscriptions failed: " + error.cause.value,
        )
        change.fail(error)
        self._resume()

    def _resume(self) -> None:
        """After a change that came to nothing: without a stream, the next try is due again."""
        if self._current is None and self._is_wanted and self._next_at is None:
            self._next_at = self._clock.now() + self._limits.listen_wait_seconds


# endregion

# region rooms upstream -------------------------------------------------------
# Our requests to the server by id, and what the server says. A reply counts only for a request
# that waits, with its id as we wrote it; a request of the server is never answered.


class UpstreamExchange:
    """A request to the server while it waits. `reply` or `failure` is set before `on_settled`."""

    __slots__ = (
        "call", "failure", "is_sent", "on_event", "on_progress", "on_settled", "reply",
        "request_id", "started",
    )  # fmt: skip

    def __init__(
        self,
        request_id: int,
        call: UpstreamCall,
        *,
        on_settled: Callable[[], None],
        on_progress: ProgressSink | None,
        on_event: EventSink | None,
        started: float,
    ) -> None:
        self.on_event = on_event  # of a listen stream
        self.request_id = request_id
        self.call = call
        self.on_settled = on_settled
        self.on_progress = on_progress
        self.started = started
        self.is_sent = False  # under the lock of Connection
        self.reply: RawObject | None = None
        self.failure: BridgeError | None = None


class Connection:
    """The server behind the bridge: opened by initialize, and again after one that failed.

    Threads: the reader calls prepare(), send() and abandon(), and so do workers, which also
    open() and close(); the stop sequence shuts it. None of prepare, send and abandon waits.
    """

    def __init__(
        self,
        *,
        open_transport: Callable[[Receiver], Transport],
        limits: Limits,
        clock: Clock,
        log: Log,
        on_lost: Callable[[str], None],
        on_pause: Callable[[], None],
        on_log: Callable[[RawObject | None], None],
        get_level: Callable[[], str | None],
    ) -> None:
        self._on_log = on_log
        self._get_level = get_level
        self._open_transport = open_transport
        self._limits = limits
        self._clock = clock
        self._log = log
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._transport: Transport | None = None  # set by open() before any request
        self._reader: ServerReader | None = None  # the same
        self._envelope = b""  # the same
        self._is_shut = False  # set once, by the stop sequence
        self._order = RankedLock(LockRank.SERVER_INPUT)  # guards what is queued, and `is_sent`

    def open(self, client_info: JsonObject, capabilities: JsonObject) -> None:
        """The server runs. Raises BridgeError SPAWN_FAILED."""
        self._envelope = build_envelope(client_info, capabilities)
        self._reader = ServerReader(
            self._limits,
            self._clock,
            self._log,
            on_lost=self._on_lost,
            on_pause=self._on_pause,
            on_log=self._on_log,
        )
        self._transport = self._open_transport(self._reader)
        if not self._is_shut:
            self._transport.start()
        if self._is_shut:
            self.close()

    def prepare(
        self,
        call: UpstreamCall,
        on_settled: Callable[[], None],
        on_progress: ProgressSink | None,
        on_event: EventSink | None = None,
    ) -> UpstreamExchange:
        """An exchange with an id of its own, which a reply will find."""
        if self._reader is None:
            raise BridgeError(Cause.TRANSPORT_FAILED)
        return self._reader.prepare(call, on_settled, on_progress, on_event)

    def send(self, exchange: Exchange) -> None:
        """The request goes out with the next flush(). Raises BridgeError: it never will."""
        reader, transport = self._reader, self._transport
        if reader is None or transport is None:
            raise BridgeError(Cause.TRANSPORT_FAILED)
        frame = build_request(exchange.request_id, exchange.call, self._envelope, self._get_level())
        try:
            reader.check_alive()
            with self._order:
                if reader.is_waited_for(exchange.request_id):  # else it is over already
                    transport.queue(frame)
                    exchange.is_sent = True
        except BridgeError as error:
            if reader.forget(exchange.request_id, error.cause.value):
                raise  # else it has been settled with the end of the server

    def forget(self, exchange: Exchange) -> None:
        """The server has ended it in its own way: it is not told."""
        if self._reader is not None:
            self._reader.forget(exchange.request_id, "ended by the server")

    def flush(self) -> None:
        """All that was sent is out, as far as the server takes it; nobody waits."""
        if self._transport is not None:
            self._transport.flush()

    def abandon(self, exchange: Exchange, reason: str, outcome: str) -> None:
        """The server hears that we wait no longer, unless it has answered, or was never asked."""
        reader, transport = self._reader, self._transport
        if reader is None or transport is None or not reader.forget(exchange.request_id, outcome):
            return
        try:
            reader.check_alive()
            with self._order:
                if exchange.is_sent:
                    transport.queue([build_cancelled(exchange.request_id, reason)])
            transport.flush()
        except BridgeError:
            self._log.debug("mcp_client", "the server takes no cancellation any more")

    def settle_as_ready(self) -> None:
        """From now on the loss of the server is the end of the bridge."""
        if self._reader is not None:
            self._reader.settle_as_ready()

    def close(self) -> None:
        """The server is stopped; nothing of it is left."""
        if self._reader is not None:
            self._reader.expect_end()
        if self._transport is not None:
            self._transport.stop()

    def shut(self) -> None:
        """The server is stopped, and none is opened any more."""
        self._is_shut = True
        self.close()

    def kill(self) -> None:
        """The server is stopped at once."""
        if self._transport is not None:
            self._transport.kill()


class ServerReader:
    """What the server says, for one run of it: ids are never used again on a connection.

    Threads: the transport's reader calls handle_*; the reader and workers the others. The table
    needs no lock: each use is one step, and who pops an exchange settles it.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Clock,
        log: Log,
        *,
        on_lost: Callable[[str], None],
        on_pause: Callable[[], None],
        on_log: Callable[[RawObject | None], None],
    ) -> None:
        self._on_log = on_log
        self._limits = limits
        self._clock = clock
        self._log = log
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._exchanges: dict[int, UpstreamExchange] = {}
        self._ids = itertools.count(1)
        self._ended_with: str | None = None  # set once, by the transport's reader
        self._is_ready = False  # set once, by the slot of initialize
        self._is_end_expected = False  # set once, by whoever stops the server
        self._loss = Once()

    def prepare(
        self,
        call: UpstreamCall,
        on_settled: Callable[[], None],
        on_progress: ProgressSink | None,
        on_event: EventSink | None,
    ) -> UpstreamExchange:
        """A new exchange in the table."""
        exchange = UpstreamExchange(
            next(self._ids),
            call,
            on_settled=on_settled,
            on_progress=on_progress,
            on_event=on_event,
            started=self._clock.now(),
        )
        self._exchanges[exchange.request_id] = exchange
        return exchange

    def check_alive(self) -> None:
        """The server is there. Raises BridgeError UPSTREAM_EXITED or CLOSED."""
        if self._ended_with is not None:
            raise self._end_error()

    def _end_error(self) -> BridgeError:
        if self._is_ready:
            return BridgeError(Cause.UPSTREAM_EXITED)
        return BridgeError(Cause.CLOSED, f"the server process ended with {self._ended_with}")

    def is_waited_for(self, request_id: int) -> bool:
        """Would a reply find anybody?"""
        return request_id in self._exchanges

    def forget(self, request_id: int, outcome: str) -> bool:
        """A late reply finds nobody. True when the request was still waiting."""
        exchange = self._exchanges.pop(request_id, None)
        if exchange is None:
            return False
        self._trace(exchange, outcome)
        return True

    def settle(self, request_id: int, reply: RawObject | None, failure: BridgeError | None) -> bool:
        """The one who waits for this id goes on, with a reply or a failure. False: nobody does."""
        exchange = self._exchanges.pop(request_id, None)
        if exchange is None:
            return False
        exchange.reply, exchange.failure = reply, failure
        if self._log.is_debug():
            outcome = "result" if failure is None else failure.cause.value
            self._trace(exchange, "error" if reply is not None and "error" in reply else outcome)
        exchange.on_settled()
        return True

    def _trace(self, exchange: UpstreamExchange, outcome: str) -> None:
        """One debug line for the exchange, without anything of its frames."""
        call = exchange.call
        client_id = clean_text(call.client_id[:200].decode("utf-8", "replace"), 64)
        whose = f"round {call.round_number} of client request {client_id}"
        if not client_id:
            whose = "of the bridge itself"  # a listen stream
        taken = (self._clock.now() - exchange.started) * 1000
        self._log.debug(
            "mcp_client",
            f"upstream request {exchange.request_id} ({call.method}, {whose}): {outcome} after"
            f" {taken:.0f} ms",
        )

    def settle_as_ready(self) -> None:
        """From now on the end of the server is a loss, also one that has come already."""
        self._is_ready = True
        if self._ended_with is not None:
            self._report_loss()

    def expect_end(self) -> None:
        """The end of the server is what we want: no loss."""
        self._is_end_expected = True

    def handle_line(self, line: bytes) -> None:
        """A reply wakes its slot, progress goes to the client, the rest is dropped."""
        try:
            frame = parse_frame(line, self._limits.server_depth)
        except (BridgeError, MemoryError) as error:
            self._drop_line(line, bridge_error(error))
            return
        members = frame.members
        if "method" in members:
            self._handle_method(frame)
        elif "id" in members and ("result" in members or "error" in members):
            self._handle_reply(frame)
        else:
            self._drop_line(line, BridgeError(Cause.INVALID_REQUEST_SHAPE))

    def handle_pause(self) -> None:
        """The client has all that the server said so far."""
        self._on_pause()

    def handle_long_line(self, line: LongLine) -> None:
        """The request that the line names fails as soon as its id is known."""
        if not line.ended:
            self._log.warning(
                "mcp_router",
                f"dropped a line of the server of more than {self._limits.line_bytes} bytes"
                " (--max-line-bytes)",
            )
        raw_id = recover_id(line.head, line.tail if line.ended else b"")
        self._fail_named(raw_id, "a line of more than --max-line-bytes")

    def handle_end(self, status: str) -> None:
        """Every request that waits fails; in READY it is the loss of the server."""
        self._ended_with = status
        if not self._is_end_expected:
            self._log.warning(
                "mcp_stdio",
                f"the server process ended with {status}; the bridge does not start it again",
            )
        if self._is_ready:
            self._report_loss()
        self._fail_all()

    def handle_deaf(self) -> None:
        """Every request that waits fails."""
        self._log.warning("mcp_stdio", "the server has closed its stdin and takes no more requests")
        for request_id in list(self._exchanges):
            error = BridgeError(Cause.TRANSPORT_FAILED, "it has closed its stdin")
            self.settle(request_id, None, error)
        self._on_pause()

    def _report_loss(self) -> None:
        if not self._is_end_expected and self._loss.first():
            self._on_lost(self._ended_with or "")

    def _fail_all(self) -> None:
        for request_id in list(self._exchanges):
            self.settle(request_id, None, self._end_error())
        self._on_pause()

    def _handle_reply(self, frame: RawObject) -> None:
        request_id = frame.get("id")
        reply: RawObject | None = frame
        failure = None
        members = frame.members
        if ("result" in members) == ("error" in members) or frame.get_str("jsonrpc") != "2.0":
            reply = None
            failure = BridgeError(Cause.INVALID_RESPONSE, "it is no JSON-RPC 2.0 response")
        if type(request_id) is not int or not self.settle(request_id, reply, failure):
            self._log.debug("mcp_router", "dropped a reply: no request waits for its id")

    def _handle_method(self, frame: RawObject) -> None:
        method = frame.get_str("method")
        shown = clean_text(method or "", 100)
        if "id" in frame:
            self._log.warn_once(
                "mcp_router",
                "request",
                f"dropped a request of the server ({shown}): revision {MODERN_VERSION} has none",
            )
        elif method == "notifications/progress":
            self._handle_progress(frame)
        elif method == "notifications/message":
            self._on_log(frame.object("params"))
        elif not self._handle_event(method or "", frame.object("params")):
            self._log.debug("mcp_router", f"dropped the notification {shown} of the server")

    def _handle_event(self, method: str, params: RawObject | None) -> bool:
        """A notification of a listen stream; on stdio its id alone tells which."""
        stream = subscription_id(params)
        if method == "notifications/cancelled" and params is not None:
            stream = params.get("requestId")
        exchange = self._exchanges.get(stream) if type(stream) is int else None
        if exchange is None or exchange.on_event is None:
            return False
        exchange.on_event(method, params)
        return True

    def _handle_progress(self, frame: RawObject) -> None:
        params = frame.object("params")
        token = None if params is None else params.get("progressToken")
        exchange = self._exchanges.get(token) if type(token) is int else None
        if params is None or exchange is None or exchange.on_progress is None:
            self._log.debug("mcp_router", "dropped a progress: no request waits for it")
        else:
            exchange.on_progress(params)

    def _drop_line(self, line: bytes, error: BridgeError) -> None:
        """A banner or a broken frame: said, never passed on."""
        edge = self._limits.edge_bytes
        start = line[: self._limits.shown_bytes].decode("utf-8", "replace")
        self._log.warning(
            "mcp_router",
            f"dropped a line of the server that is no message ({error.cause.value}): the server"
            f' may write nothing else to its stdout. It begins with "{clean_text(start, 80)}"',
        )
        raw_id = recover_id(line[:edge], line[-edge:] if len(line) > edge else b"")
        self._fail_named(raw_id, f"a line that is no message ({error.cause.value})")

    def _fail_named(self, raw_id: bytes, what: str) -> None:
        """The request in flight whose id stands in a broken line ends at once."""
        if not raw_id.isdigit() or len(raw_id) > 18:
            return
        self.settle(int(raw_id), None, BridgeError(Cause.INVALID_RESPONSE, what))


# endregion
# region rooms child ----------------------------------------------------------
# The transport over a child process: its start, its lines, its end. Never restarted: VS Code
# does that. POSIX: a session of its own; Windows: a job object. See basic/transports/stdio.

_SECRET_VARIABLES: Final = ("MCP_BRIDGE_CLIENT_SECRET", "MCP_BRIDGE_TOKEN_KEY")
_PR_SET_PDEATHSIG: Final = 1
_MOST_PIECES: Final = 512  # that go out in one call
_FLUSH_SECONDS: Final = 0.25  # how soon a flush that waits for the child sees the stop
_GROUP_LOOK_SECONDS: Final = 0.01  # between two looks at what a child has left behind
_CREATE_NO_WINDOW: Final = 0x08000000
_CREATE_SUSPENDED: Final = 0x00000004
_BATCH_SUFFIXES: Final = (".bat", ".cmd")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, without the two variables that are secrets of the bridge itself."""
    return {k: v for k, v in environment.items() if k.upper() not in _SECRET_VARIABLES}


def find_program(command: str, environment: Mapping[str, str]) -> str:
    """The file that a command names, by absolute entries of PATH alone.

    Raises BridgeError SPAWN_FAILED with the PATH that was searched.
    """
    path = environment.get("PATH", os.defpath)
    places = [command]
    if not os.path.dirname(command):
        places = [os.path.join(p, command) for p in path.split(os.pathsep) if os.path.isabs(p)]
    found = [c for place in places for c in _with_suffixes(place, environment) if os.path.isfile(c)]
    for candidate in found:
        if os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    if found:
        detail = f"the file is not executable: {clean_text(found[0], 300)} (chmod +x)"
    elif os.path.dirname(command):
        detail = _lost_folder() or f"there is no such file: {clean_text(command, 300)}"
    else:
        shown = clean_text(command, 200)
        detail = f"command not found: {shown}. PATH searched: {clean_text(path, 1000)}"
    raise BridgeError(Cause.SPAWN_FAILED, detail)


def _with_suffixes(place: str, environment: Mapping[str, str]) -> list[str]:
    """Where a program may be: on Windows with the suffixes of PATHEXT, and never without any."""
    if os.name != "nt":
        return [place]
    suffixes = environment.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";")
    named = [place] if os.path.splitext(place)[1] else []
    return named + [place + suffix for suffix in suffixes if suffix]


def batch_command_line(program: str, arguments: Sequence[str], shell: str) -> str:
    """The command line that runs a .cmd or .bat file with literal arguments, by cmd's own rules.

    Raises BridgeError SPAWN_FAILED that names the position of an argument that cannot be carried.
    """
    parts = []
    for position, argument in enumerate((program, *arguments)):
        if any(mark in argument for mark in '"%\r\n\0'):
            what = f"argument {position}" if position else "the path of the command"
            raise BridgeError(
                Cause.SPAWN_FAILED,
                f'a batch file cannot be given {what}: it has a quote, a "%" or a line end in it',
            )
        bare = argument.rstrip("\\")
        parts.append(f'"{argument}{argument[len(bare) :]}"')
    return f'"{shell}" /d /e:on /v:off /s /c "{" ".join(parts)}"'


def start_process(
    argv: Sequence[str],
    *,
    stderr_pipe: bool = False,
    tie: Callable[[], None] | None = None,
    windows_flags: int = 0,
) -> subprocess.Popen[bytes]:
    """A process of its own session with pipes for stdin and stdout.

    Raises BridgeError SPAWN_FAILED with what to change.
    """
    import subprocess

    environment = child_environment(os.environ)
    program = find_program(argv[0], environment)
    command: Sequence[str] | str = argv
    try:
        if os.name == "nt" and program.rstrip(". ").lower().endswith(_BATCH_SUFFIXES):
            shell = os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "cmd.exe")
            command, program = batch_command_line(program, argv[1:], shell), shell
        return subprocess.Popen(  # noqa: S603  # the user's command, never through a shell
            command,
            executable=program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr_pipe else None,
            bufsize=0,
            env=environment,
            start_new_session=os.name != "nt",
            preexec_fn=tie,  # noqa: PLW1509  # one C call, loaded before the fork
            creationflags=_CREATE_NO_WINDOW | windows_flags if os.name == "nt" else 0,
        )
    except OSError as error:
        raise BridgeError(Cause.SPAWN_FAILED, _spawn_detail(error, program)) from error
    except ValueError as error:  # a NUL in an argument
        raise BridgeError(Cause.SPAWN_FAILED, "an argument has a NUL character in it") from error


def _lost_folder() -> str:
    """What to say when the working directory was deleted, else nothing."""
    try:
        os.getcwd()
    except OSError:
        folder = clean_text(os.environ.get("PWD", ""), 300)
        return f"the working directory does not exist any more: {folder}"
    return ""


def _spawn_detail(error: OSError, program: str) -> str:
    shown = clean_text(program, 300)
    lost = _lost_folder()
    if lost:
        return lost
    if error.errno == errno.ENOENT:
        return f"the interpreter that the first line of {shown} names does not exist"
    if error.errno == errno.EACCES:
        return f"the system does not allow to run {shown}: check its permissions (chmod +x)"
    if error.errno == errno.ENOEXEC:
        return f"the system cannot run {shown}: it has no #! line, or is for another machine"
    return (
        f"the system refused to start {shown}: {errno.errorcode.get(error.errno or 0, 'unknown')}"
    )


def load_death_tie(parent: int) -> Callable[[], None] | None:
    """What a child calls before it runs its program, so that it does not outlive us. Linux.

    The kernel ties it to the thread that starts the child: that thread lives as long as we do.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # loaded before the fork: the child may do no more than call

    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    prctl.restype = ctypes.c_int

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)  # we were gone already

    return tie


def give_memory_back() -> None:
    """What compiling this file took goes back to the system, half of what we hold. glibc."""
    if sys.platform.startswith("linux"):
        import ctypes  # has been loaded for the tie

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(ctypes.c_size_t(0))


class Child:
    """One run of the server's command.

    Threads: workers and the stop sequence start and stop it, the watchdog kills it, any thread
    queues and flushes; one of its own, `run_child`, starts the process, reads it and lives as
    long as it does.
    """

    def __init__(
        self,
        command: Sequence[str],
        receiver: Receiver,
        *,
        limits: Limits,
        clock: Clock,
        log: Log,
        run_worker: Callable[[Callable[[], None]], None],
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self._command = command
        self._receiver = receiver
        self._limits = limits
        self._clock = clock
        self._log = log
        self._run_worker = run_worker
        self._on_crash = on_crash
        self._started = threading.Event()
        self._exited = threading.Event()
        self._stopped = threading.Event()
        self._stop_once = Once()
        self._process: subprocess.Popen[bytes] | None = None  # set before _started
        self._start_error: BridgeError | None = None  # the same
        self._job: WindowsJob | None = None  # the same
        self._is_reaped = False
        self._broken_once = Once()
        self._is_deaf = False  # set once, by a worker
        self._never_blocks = os.name != "nt"  # is the child's stdin a pipe that never blocks?
        self._outbox: deque[list[Piece]] = deque()  # append is one step; the rest under the lock
        self._input_lock = RankedLock(LockRank.CHILD_INPUT)  # guards the child's stdin and:
        self._is_flushing = False  # does a worker see to the outbox?
        self._is_closing = False  # set once, before the child's stdin is closed

    def start(self) -> None:
        """The process runs. Raises BridgeError SPAWN_FAILED."""
        start_thread("upstream reader", self.run_child)
        if not self._started.wait(self._limits.discover_seconds):
            raise BridgeError(Cause.SPAWN_FAILED, "the system did not start the command in time")
        if self._start_error is not None:
            raise self._start_error

    def run_child(self) -> None:
        """The process is started, read to its end, and its end is told."""
        try:
            self._start_process()
        except BaseException as error:  # noqa: BLE001  # start() must hear of it
            self._start_error = bridge_error(error)
            self._stopped.set()
            self._started.set()
            return
        self._started.set()
        try:
            give_memory_back()  # while the server starts
            self._read_lines()
            self._run_worker(self._run_mute)
            status = self._await_exit()
            self._exited.set()
            self._receiver.handle_end(status)
        except BaseException as error:  # noqa: BLE001  # no reader may end unseen
            self._exited.set()
            self._on_crash("the upstream reader", error)

    def queue(self, pieces: list[Piece]) -> None:
        """The frame goes out with the next flush().

        Raises BridgeError: TRANSPORT_FAILED when the child has closed its stdin and lives on,
        TOO_MANY_REQUESTS when it has long stopped to read.
        """
        if self._is_deaf:
            raise BridgeError(Cause.TRANSPORT_FAILED, "it has closed its stdin")
        if len(self._outbox) >= self._limits.queued_frames:
            raise BridgeError(Cause.TOO_MANY_REQUESTS)
        self._outbox.append(pieces)

    def flush(self) -> None:
        """What is queued is written as far as the child takes it; a worker sees to the rest."""
        if not self._outbox:
            return
        with self._input_lock:
            if self._is_flushing or (self._never_blocks and self._write_locked()):
                return
            self._is_flushing = True
        self._run_worker(self._run_flush)

    def _run_flush(self) -> None:
        """On a worker, while the child reads slowly: all that is queued is written."""
        while True:
            with self._input_lock:
                stdin = None if self._process is None else self._process.stdin
                if stdin is None or self._is_closing or self._write_locked():
                    self._is_flushing = False
                    return
                descriptor = stdin.fileno()  # a stop may close it as soon as the lock is free
            wait_for(descriptor, for_writing=True, seconds=_FLUSH_SECONDS)

    def stop(self) -> None:
        """The child and what is left of its group are gone, after two graces at most."""
        grace = self._limits.grace_seconds
        if not self._stop_once.first():
            self._stopped.wait(4 * grace)
            return
        self._started.wait(grace)
        self._close_input()
        if self._process is not None:
            if not self._wait_exit(grace):
                self._signal_group("SIGTERM")
                if not self._wait_exit(grace):
                    self._signal_group("SIGKILL")
                    self._wait_exit(grace)
            self._end_group(grace)
        self._stopped.set()

    def kill(self) -> None:
        """The child and its group are gone, at once."""
        if self._process is not None and not self._stopped.is_set():
            self._signal_group("SIGKILL")

    def _start_process(self) -> None:
        self._process = start_process(
            self._command, tie=load_death_tie(os.getpid()), windows_flags=_CREATE_SUSPENDED
        )
        if os.name == "nt":
            self._job = WindowsJob(self._process)
        elif self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        if self._is_closing:
            self._process.kill()  # the stop came first

    def _read_lines(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        descriptor = process.stdout.fileno()
        framer = LineFramer(self._limits.line_bytes, self._limits.edge_bytes)
        while True:
            try:
                chunk = os.read(descriptor, 1 << 16)
            except OSError:
                return
            if not chunk:
                break
            for line in framer.feed(chunk):
                if isinstance(line, LongLine):
                    self._receiver.handle_long_line(line)
                else:
                    self._receiver.handle_line(line)
            line = b""  # a big one is not kept while we wait
            self._receiver.handle_pause()
        rest = framer.finish()
        if rest.strip():
            self._receiver.handle_line(rest)

    def _await_exit(self) -> str:
        """The exit code or the signal of the process, which is not reaped yet where that can be."""
        process = self._process
        if process is None:
            return "no process"
        code = None
        if hasattr(os, "waitid"):
            try:
                found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:  # a stop that did not wait for us has reaped it
                found = None
            if found is not None:
                code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if code is None:
            code = process.wait()
            self._is_reaped = True
        if code >= 0:
            return f"code {code}"
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"

    def _write_locked(self) -> bool:
        """All that is queued is written, or the child takes no more for now."""
        process = self._process
        if process is None or process.stdin is None or self._is_closing:
            return True
        descriptor = process.stdin.fileno()
        try:
            while self._outbox and not self._is_closing:
                pieces = self._outbox.popleft()
                while self._outbox and len(pieces) < _MOST_PIECES:
                    pieces += self._outbox.popleft()
                rest = _write_frame(descriptor, join_small(pieces))
                if rest:
                    self._outbox.appendleft(rest)
                    return False
        except OSError:  # the child has gone, or has closed its stdin and lives on
            self._outbox.clear()
            if self._broken_once.first():
                self._run_worker(self._run_broken)
        return True

    def _run_broken(self) -> None:
        """On a worker: a child that has not gone after a grace is deaf, and all requests fail."""
        if not self._exited.wait(self._limits.grace_seconds):
            self._is_deaf = True
            self._receiver.handle_deaf()

    def _run_mute(self) -> None:
        """On a worker: a child that outlives its stdout by a grace is of no use, and is ended."""
        if self._exited.wait(self._limits.grace_seconds) or self._is_closing:
            return
        self._log.warning("mcp_stdio", "the server has closed its stdout and lives on: it is ended")
        self._signal_group("SIGTERM")
        if not self._exited.wait(self._limits.grace_seconds):
            self._signal_group("SIGKILL")

    def _close_input(self) -> None:
        """The child's stdin is closed; who writes to it stops at its next step."""
        self._is_closing = True
        process = self._process
        if process is None or process.stdin is None:
            return
        if self._input_lock.acquire(self._limits.grace_seconds / 4):
            try:
                process.stdin.close()
            except OSError:
                self._log.debug("mcp_stdio", "the stdin of the server was broken when it closed")
            finally:
                self._input_lock.release()

    def _signal_group(self, name: str) -> None:
        process = self._process
        if process is None:
            return
        if self._job is not None:
            self._job.terminate()
            return
        try:
            os.killpg(process.pid, signal.Signals[name])
        except (ProcessLookupError, PermissionError):
            self._log.debug("mcp_stdio", f"nothing of the server is left for {name}")

    def _wait_exit(self, seconds: float) -> bool:
        """The process has exited within `seconds`.

        Its reader may be held up by a client that does not read, or by a helper that has the
        child's stdout: so the system is asked as well.
        """
        until = self._clock.now() + seconds
        while not self._exited.wait(_GROUP_LOOK_SECONDS):
            if self._has_exited():
                return True
            if self._clock.now() >= until:
                return False
        return True

    def _has_exited(self) -> bool:
        process = self._process
        if self._exited.is_set() or process is None or not hasattr(os, "waitid"):
            return self._exited.is_set()
        try:
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, process.pid, flags) is not None
        except ChildProcessError:
            return True

    def _end_group(self, grace: float) -> None:
        """What the child left behind gets TERM and, one grace later, KILL.

        The group is signalled before its leader is reaped: until then its number is ours.
        """
        process = self._process
        if process is None:
            return
        if self._job is not None:
            self._job.terminate()
        elif not self._is_reaped:
            self._signal_group("SIGTERM")
        has_exited = self._has_exited()
        if has_exited:
            process.wait()
            self._is_reaped = True
        if self._job is None and has_exited:
            until = self._clock.now() + grace
            pause = threading.Event()
            while self._group_is_alive() and self._clock.now() < until:
                pause.wait(_GROUP_LOOK_SECONDS)  # they are no children of ours: nobody tells us
            if self._group_is_alive():
                self._signal_group("SIGKILL")

    def _group_is_alive(self) -> bool:
        if self._process is None:
            return False
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return not _are_all_dead(self._process.pid)


_JOB_LIMITS_CLASS: Final = 9  # JobObjectExtendedLimitInformation
_JOB_KILL_ON_CLOSE: Final = 0x2000
_JOB_LIMITS_BYTES: Final = 144  # of the 64-bit structure; LimitFlags is at 16
_JOB_FLAGS_AT: Final = 16


def _are_all_dead(group: int) -> bool:
    """Is nothing of a process group left but dead processes that nobody reaps? Linux.

    In a container without an init that reaps, they stay in the group for ever.
    """
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return False
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, _, member_of = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it ended in this very moment
        if int(member_of) == group and state not in b"ZX":
            return False
    return bool(pids)


def _write_frame(descriptor: int, frame: list[Piece]) -> list[Piece]:
    """Writes what the descriptor takes; returns the rest. Raises OSError."""
    for index, piece in enumerate(frame):
        view: Piece = piece
        while len(view) > 0:
            try:
                done = os.write(descriptor, view)
            except BlockingIOError:
                return [view, *frame[index + 1 :]]
            view = memoryview(view)[done:] if done < len(view) else b""
    return []


class WindowsJob:
    """A job object with a process in it; all of the job ends when we do. Windows.

    The process was created suspended and runs from here on, so nothing of it escapes the job.
    """

    def __init__(self, process: subprocess.Popen[bytes], calls: WindowsCalls | None = None) -> None:
        self._calls = calls or load_windows_calls()
        handle = int(getattr(process, "_handle"))  # noqa: B009  # there on Windows alone
        self._job = self._calls.CreateJobObjectW(None, None)
        limits = bytearray(_JOB_LIMITS_BYTES)
        limits[_JOB_FLAGS_AT : _JOB_FLAGS_AT + 4] = _JOB_KILL_ON_CLOSE.to_bytes(4, "little")
        is_in_job = (
            bool(self._job)
            and self._calls.SetInformationJobObject(
                self._job, _JOB_LIMITS_CLASS, bytes(limits), _JOB_LIMITS_BYTES
            )
            and self._calls.AssignProcessToJobObject(self._job, handle)
        )
        if not is_in_job or self._calls.NtResumeProcess(handle) != 0:
            process.kill()
            raise BridgeError(Cause.SPAWN_FAILED, "Windows refused a job object for the command")

    def terminate(self) -> None:
        """Every process of the job ends."""
        self._calls.TerminateJobObject(self._job, 1)


def load_windows_calls() -> WindowsCalls:
    """The calls of kernel32 and ntdll that a job needs, with the types that ctypes must know."""
    import ctypes

    library = getattr(ctypes, "WinDLL")  # noqa: B009  # there on Windows alone
    kernel, nt = library("kernel32", use_last_error=True), library("ntdll")
    handle, number, flag = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int
    types = {
        "CreateJobObjectW": (kernel, handle, [handle, ctypes.c_wchar_p]),
        "SetInformationJobObject": (kernel, flag, [handle, flag, ctypes.c_char_p, number]),
        "AssignProcessToJobObject": (kernel, flag, [handle, handle]),
        "TerminateJobObject": (kernel, flag, [handle, number]),
        "NtResumeProcess": (nt, ctypes.c_long, [handle]),
    }

    class Calls:
        """The typed functions by name."""

    for name, (owner, result, arguments) in types.items():
        function = getattr(owner, name)
        function.restype, function.argtypes = result, arguments
        setattr(Calls, name, staticmethod(function))
    return Calls  # type: ignore[return-value]  # built by name


# endregion

# region wiring bridge --------------------------------------------------------
# Builds the rooms, hands each its neighbours, and stops them in order.


class StopReason(enum.Enum):
    """Why the bridge stops; the value is what the server hears."""

    END_OF_INPUT = "the client closed the connection"  # or a signal, or our parent is gone
    SERVER_LOST = "the upstream server stopped"
    INTERNAL_ERROR = "the bridge has an internal error"


EXIT_CODES: Final = MappingProxyType(
    {
        StopReason.END_OF_INPUT: 0,
        StopReason.SERVER_LOST: 1,
        StopReason.INTERNAL_ERROR: 1,
    }
)


class Bridge:
    """One connection of a client, from its first byte to the end of the process.

    Threads: run() is the reader; the watches, the upstream reader and workers ask for the
    stop; a thread of its own does it, and a watchdog ends it when it hangs.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        fallback_name: str,
        log: Log,
        limits: Limits = LIMITS,
        clock: Clock | None = None,
        stdin: int = 0,
        stdout: int = 1,
        exit_process: Callable[[int], object] = os._exit,
        open_transport: Callable[[Receiver], Transport] | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._limits = limits
        self._clock = clock or Clock()
        self._exit_process = exit_process
        self._stop_once = Once()
        self._stop_wanted = Signal()
        self._hurry = Signal()
        self._reason = StopReason.END_OF_INPUT  # set before _stop_wanted
        self._finished = threading.Event()
        self._workers = Workers(
            most_idle=limits.idle_workers,
            linger=limits.first_line_seconds,
            clock=self._clock,
            on_error=self._handle_crash,
        )
        self._lifecycle = Lifecycle()
        self._output = Output(stdout, self._workers.run, self.end_input, limits.posted_frames)
        self._connection = Connection(
            open_transport=open_transport or self._open_child,
            limits=limits,
            clock=self._clock,
            log=log,
            on_lost=self._handle_loss,
            on_pause=self._output.flush,
            on_log=self._forward_log,
            get_level=lambda: self.front_end.level,
        )
        self._pending = PendingTable()
        self._listener = Listener(
            connection=self._connection,
            write_from=self._output.write_from,
            limits=limits,
            clock=self._clock,
            log=log,
            on_crash=self._handle_crash,
        )
        self._rounds = Rounds(
            asking=self._pending,
            write_from=self._output.write_from,
            limits=limits,
            clock=self._clock,
            log=log,
        )
        self._slots = Slots(
            connection=self._connection,
            write_from=self._output.write_from,
            workers=self._workers,
            limits=limits,
            clock=self._clock,
            log=log,
            opening=Opening(
                connection=self._connection,
                lifecycle=self._lifecycle,
                limits=limits,
                log=log,
                fallback_name=fallback_name,
                on_opened=self._handle_opened,
            ),
            rounds=self._rounds,
            request_change=self._listener.request_change,
        )
        self.front_end = FrontEnd(
            descriptor=stdin,
            output=self._output,
            lifecycle=self._lifecycle,
            limits=limits,
            log=log,
            admit=self._slots.admit,
            cancel=self._cancel,
            flush_requests=self._connection.flush,
            settle=self._pending.settle,
            start_listening=self._listener.start,
            takes_changes=self._listener.takes_changes,
            note_asked=self._listener.list_changes.note_asked,
        )

    def _open_child(self, receiver: Receiver) -> Transport:
        return Child(
            self._command,
            receiver,
            limits=self._limits,
            clock=self._clock,
            log=self._log,
            run_worker=self._workers.run,
            on_crash=self._handle_crash,
        )

    def run(self) -> int:
        """Serves the client to the end; returns the exit code where `exit_process` returns."""
        start_thread("stop", self._run_stop)
        try:
            self.front_end.run_reader()
        except BaseException as error:  # noqa: BLE001  # no reader may end unseen
            self._handle_crash("the reader", error)
        self.end_input()
        self._finished.wait()
        return EXIT_CODES[self._reason]

    def request_stop(self, reason: StopReason) -> bool:
        """The stop begins, unless it has: then False."""
        if not self._stop_once.first():
            return False
        self._begin_stop(reason)
        return True

    def _begin_stop(self, reason: StopReason) -> None:
        self._reason = reason
        self._stop_wanted.set()

    def end_input(self) -> None:
        """The client is gone: the stop begins."""
        self.request_stop(StopReason.END_OF_INPUT)

    def handle_signal(self) -> None:
        """The first signal is the end of the input, a second one ends at once."""
        if not self.request_stop(StopReason.END_OF_INPUT):
            self._hurry.set()

    def _cancel(self, key: ClientKey) -> None:
        self._slots.cancel(key)
        self._listener.look()  # a stream may be opening for this request

    def _forward_log(self, params: RawObject | None) -> None:
        self.front_end.forward_log(params)  # which is built after the connection

    def _handle_opened(self, client: JsonObject, server: JsonObject) -> None:
        """What both sides can do, before the state is READY."""
        self._rounds.capabilities = client
        self._slots.has_tools = "tools" in server
        self._listener.configure(server)
        self.front_end.declares_logging = "logging" in server

    def _handle_loss(self, status: str) -> None:
        self._lifecycle.close(BridgeError(Cause.UPSTREAM_EXITED))
        if self._stop_once.first():
            self._log.error("bridge", f"the upstream server exited with {status}")
            self._begin_stop(StopReason.SERVER_LOST)  # which soon closes the log

    def _handle_crash(self, where: str, error: BaseException) -> None:
        self._log.error("vscode", f"the bridge stops: internal error of {where}, {place_of(error)}")
        self.request_stop(StopReason.INTERNAL_ERROR)

    def _run_stop(self) -> None:
        self._stop_wanted.wait(None)
        try:
            self._stop()
        except BaseException as error:  # noqa: BLE001  # the process must end
            self._handle_crash("the stop", error)
        self._end()

    def _end(self) -> None:
        self._log.close(self._limits.log_flush_seconds)
        self._finished.set()
        self._hurry.set()  # the watchdog ends
        self._exit_process(EXIT_CODES[self._reason])

    def _stop(self) -> None:
        """The stop sequence, each step bounded; the watchdog bounds them together."""
        # 1. No new request; those in flight end without an answer, or have failed with the server.
        until = self._clock.now() + self._limits.grace_seconds
        self._lifecycle.close(None)
        start_thread("watchdog", self._run_watchdog)
        if self._reason is StopReason.SERVER_LOST:
            self._slots.fail_all(BridgeError(Cause.UPSTREAM_EXITED), self._reason.value)
        else:
            self._slots.end_all(self._reason.value)
        self._listener.stop(self._limits.grace_seconds)
        # 2. The slots end: they tell the server, or write the failure.
        self._slots.wait_empty(until)
        # 3. The client hears no more.
        self._output.close(self._limits.log_flush_seconds)
        # 4. The server ends: its stdin closes, then TERM, then KILL, for all of its group.
        self._connection.shut()
        self._workers.close()

    def _run_watchdog(self) -> None:
        until = self._clock.now() + self._limits.watchdog_seconds
        is_hurried = self._clock.wait(self._hurry, until)
        if self._finished.is_set():
            return
        if not is_hurried:
            self._log.warning(
                "vscode",
                f"the bridge did not stop in {self._limits.watchdog_seconds:g} s: it ends now",
            )
        self._connection.kill()
        self._end()


def watch_signals(on_signal: Callable[[], None]) -> None:
    """Calls `on_signal` for each signal that ends us, unless whoever started us ignores it.

    The system itself writes a byte for each, and a thread waits for it. A handler of Python would
    run in the main thread, when that looks: it may have just gone to wait, and look no more.
    """
    reads, writes = os.pipe()
    if os.name != "nt":
        os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)

    def run_watch() -> None:
        while True:
            for _ in read_some(reads):
                on_signal()

    start_thread("signals", run_watch)


def watch_parent(on_death: Callable[[], None]) -> None:
    """Calls `on_death` when the process that started us is gone, with our stdin still open.

    A thread blocks in the kernel until then: Linux (pidfd) and macOS (kqueue). Elsewhere, and
    for the first process of the system, nothing is watched.
    """
    parent = os.getppid()
    if parent <= 1:
        return
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(parent)
        except OSError:
            return

        def run_watch() -> None:
            wait_for(descriptor, for_writing=False, seconds=None)
            on_death()

    elif sys.platform == "darwin":
        import select

        queue = select.kqueue()
        event = select.kevent(parent, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)

        def run_watch() -> None:
            queue.control([event], 1)
            on_death()

    else:
        return
    start_thread("parent watch", run_watch)


# endregion


# region wiring demo ----------------------------------------------------------
# A small modern server over stdio: the upstream of `check`, and something to try the bridge on.
# In: the lines of a modern client. Out: its answers. See basic/index and basic/transports/stdio.
# What it says is data: text costs a start nothing, and is parsed when a request needs it. A new
# tool is an entry of "tools" and of DEMO_TOOLS, a new method one of DEMO_METHODS.

if TYPE_CHECKING:
    DemoFunction = Callable[["DemoCall"], "JsonObject | None"]  # None: no answer, or a later one

DEMO_NOT_DECLARED: Final = -32021  # basic/index: the client cannot do what a request needs
DEMO_COUNTER: Final = "demo:///counter"
DEMO_GREETING: Final = "demo:///greeting/"
# common: of all results; results: of methods that answer always the same; texts: by resource;
# values: for completion.
# refused_schema: VS Code omits the tool for each line of it, a chat stops at the last.
# asks: what a tool asks in each of its rounds, and what the client must have declared for that.
DEMO_DATA: Final = """{
"common": {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": {
    "name": "demo", "title": "Bridge demo", "version": "VERSION"}}},
"results": {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {
        "prompts": {}, "completions": {}, "logging": {}, "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true}},
        "instructions": "A server to try mcp-bridge-vscode with. Its tools change only itself."},
    "prompts/list": {"prompts": [{"name": "greet", "description": "Greets someone.",
        "arguments": [{"name": "name", "required": true}, {"name": "style"}]}]},
    "resources/list": {"resources": [
        {"uri": "demo:///readme", "name": "readme", "mimeType": "text/plain"},
        {"uri": "demo:///styles", "name": "styles", "mimeType": "application/json"},
        {"uri": "demo:///counter", "name": "counter", "title": "Counter at COUNT",
            "mimeType": "text/plain"}]},
    "resources/templates/list": {"resourceTemplates": [
        {"uriTemplate": "demo:///greeting/{name}", "name": "greeting"}]}},
"texts": {
    "demo:///readme": {"mimeType": "text/plain",
        "text": "This server is a part of mcp-bridge-vscode."},
    "demo:///styles": {"mimeType": "application/json",
        "text": "[\\"formal\\", \\"friendly\\", \\"pirate\\"]"},
    "demo:///counter": {"mimeType": "text/plain", "text": "COUNT"}},
"values": {
    "greet": {"name": ["Ada", "Alan", "Grace", "Katherine"],
        "style": ["formal", "friendly", "pirate"]},
    "demo:///greeting/{name}": {"name": ["Ada", "Alan", "Grace", "Katherine"]}},
"tools": [
    {"name": "add", "description": "Adds two numbers.",
        "inputSchema": {"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "number", "minimum": -1e15, "maximum": 1e15},
            "b": {"type": "number", "minimum": -1e15, "maximum": 1e15}}},
        "outputSchema": {"type": "object", "required": ["sum"],
            "properties": {"sum": {"type": "number"}}},
        "annotations": {"readOnlyHint": true}},
    {"name": "echo", "description": "Returns the text.",
        "inputSchema": {"type": "object", "required": ["text"],
            "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": true}},
    {"name": "slow", "description": "Takes its time, and tells how far it is.",
        "inputSchema": {"type": "object", "properties": {
            "seconds": {"type": "number", "minimum": 0, "maximum": 3600},
            "steps": {"type": "integer", "minimum": 1, "maximum": 1000}}},
        "annotations": {"readOnlyHint": true}},
    {"name": "refused_schema", "description": "Has a schema that VS Code would refuse.",
        "inputSchema": {"type": "object",
            "$schema": "https://example.com/no-such-dialect",
            "required": ["tags", "tags"],
            "properties": {
                "pair": {"type": "array", "items": null},
                "level": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                "color": {"enum": ["red", "green", "red"]},
                "report": {"type": "file"},
                "code": {"type": "string", "minLength": "3"},
                "name": {"type": "string", "required": true},
                "gone": null,
                "tags": {"type": "array"}}},
        "annotations": {"readOnlyHint": true}},
    {"name": "ask_name", "description": "Asks with a form.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "ask_confirm", "description": "Asks with a form that has no field.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "ask_url", "description": "Asks to open a page, twice the same.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "think", "description": "Asks the client's model.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "list_roots", "description": "Asks for the folders.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "ask_rounds", "description": "Asks several things, in three rounds.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "toggle_tool", "description": "Adds the tool extra, or takes it away.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "count", "description": "Changes the resource demo:///counter.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "log_levels", "description": "Logs a message of each level.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
    {"name": "extra", "description": "Is there after toggle_tool.",
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}],
"asks": {
    "ask_name": {"needs": {"elicitation": {"form": {}}}, "rounds": [{"person": {
        "method": "elicitation/create", "params": {"mode": "form", "message": "Who are you?",
        "requestedSchema": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 1},
            "age": {"type": "integer", "title": "Your age", "minimum": 0, "maximum": 150},
            "style": {"type": "string", "title": "How to greet you", "default": "friendly",
                "enum": ["formal", "friendly", "pirate"]},
            "drinks": {"type": "array", "title": "What you drink", "items": {"anyOf": [
                {"const": "t", "title": "Tea"}, {"const": "c", "title": "Coffee"}]}}}}}}}]},
    "ask_confirm": {"needs": {"elicitation": {"form": {}}}, "rounds": [{"sure": {
        "method": "elicitation/create", "params": {"mode": "form", "message": "Are you sure?",
        "requestedSchema": {"type": "object", "properties": {}}}}}]},
    "ask_url": {"needs": {"elicitation": {"url": {}}}, "rounds": [
        {"page": {"method": "elicitation/create", "params": {"mode": "url",
            "message": "Look at this page.", "url": "https://example.com/step"}}},
        {"page": {"method": "elicitation/create", "params": {"mode": "url",
            "message": "Not done yet: look at the page.", "url": "https://example.com/step"}}}]},
    "think": {"needs": {"sampling": {}}, "rounds": [{"color": {
        "method": "sampling/createMessage", "params": {"maxTokens": 50, "messages": [
        {"role": "user", "content": {"type": "text",
            "text": "Which color has the sky? Say one word."}}]}}}]},
    "list_roots": {"needs": {"roots": {}}, "rounds": [{"folders": {"method": "roots/list"}}]},
    "ask_rounds": {"needs": {"elicitation": {"form": {}}, "sampling": {}}, "rounds": [
        {"pizza": {"method": "elicitation/create", "params": {"message": "Which pizza?",
            "requestedSchema": {"type": "object", "required": ["kind"], "properties": {
            "kind": {"type": "string", "title": "Kind", "oneOf": [
                {"const": "m", "title": "Margherita"}, {"const": "n", "title": "Napoli"}]}}}}}},
        {"door": {"method": "elicitation/create", "params": {"mode": "form",
            "message": "Where to?", "requestedSchema": {"type": "object", "properties": {
            "floor": {"type": "number", "title": "Floor", "minimum": -1},
            "mail": {"type": "string", "title": "Mail", "format": "email"},
            "ring": {"type": "boolean", "title": "Ring the bell"}}}}},
        "wish": {"method": "sampling/createMessage", "params": {"maxTokens": 50, "messages": [
            {"role": "user", "content": {"type": "text", "text": "Wish a good meal."}}]}}},
        {"sure": {"method": "elicitation/create", "params": {"mode": "form",
            "message": "Order it?", "requestedSchema": {"type": "object", "properties": {}}}}}]}}
}"""


def read_lines(descriptor: int, most_bytes: int) -> Iterator[bytes]:
    """Each line that is not blank; one that is too long in pieces."""
    with open(descriptor, "rb", closefd=False) as stream:
        while line := stream.readline(most_bytes):
            if line.strip():
                yield line


def send_message(descriptor: int, members: JsonObject) -> None:
    """The message went out, unless the other side is gone: then its end is read next."""
    try:
        write_all(descriptor, (encode_frame(**members),))
    except OSError:
        return


def value_at(value: Json, *path: str) -> Json:
    """What stands at the end of the path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def object_at(value: Json, *path: str) -> JsonObject:
    """The object at the end of the path, or an empty one."""
    found = value_at(value, *path)
    return found if isinstance(found, dict) else {}


def text_at(value: Json, *path: str) -> str:
    """The string at the end of the path, or an empty one."""
    found = value_at(value, *path)
    return found if isinstance(found, str) else ""


def list_at(value: Json, *path: str) -> list[Json]:
    """The list at the end of the path, or an empty one."""
    found = value_at(value, *path)
    return found if isinstance(found, list) else []


def number_at(value: JsonObject, key: str, default: float = 0) -> float:
    """The number of a member, or the default."""
    found = value.get(key)
    return found if isinstance(found, (int, float)) else default


class DemoError(Exception):
    """An error answer."""

    def __init__(self, message: str, code: int = -32602, **data: Json) -> None:
        super().__init__(message)
        self.answer: JsonObject = {"code": code, "message": message, "data": data}


class DemoCall:
    """One request on its way to its answer."""

    def __init__(self, server: DemoServer, request_id: ClientKey, message: JsonObject) -> None:
        self.server = server
        self.request_id = request_id
        self.method = text_at(message, "method")
        self.params = object_at(message, "params")
        self.name = text_at(self.params, "name")
        self.arguments = object_at(self.params, "arguments")
        self.meta = object_at(self.params, "_meta")
        self.cancelled = threading.Event()
        self.topics: list[Json] = []  # of a listen stream: what it is to hear of


def tool_text(text: str, *, is_error: bool = False) -> JsonObject:
    """The result of a tool that has only words to say."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def call_add(call: DemoCall) -> JsonObject:
    """The sum, as text and as structured content."""
    a, b = number_at(call.arguments, "a"), number_at(call.arguments, "b")
    return {**tool_text(f"{a} + {b} = {a + b}"), "structuredContent": {"sum": a + b}}


def call_echo(call: DemoCall) -> JsonObject:
    """The same text."""
    return tool_text(text_at(call.arguments, "text"))


def call_slow(call: DemoCall) -> JsonObject | None:
    """An answer after some time; on the way the client hears how far it is."""
    steps = int(number_at(call.arguments, "steps", 4))
    pause = number_at(call.arguments, "seconds", 2) / steps
    for step in range(1, steps + 1):
        if call.cancelled.wait(pause):
            return None
        if "progressToken" in call.meta:
            token = call.meta["progressToken"]
            params: JsonObject = {"progress": step, "total": steps, "progressToken": token}
            call.server.send(method="notifications/progress", params=params)
    return tool_text(f"done after {steps} steps")


def call_names(call: DemoCall) -> JsonObject:
    """The names of the arguments that arrived."""
    return tool_text("arguments: " + (", ".join(sorted(call.arguments)) or "none"))


def check_declared(call: DemoCall, needs: JsonObject) -> None:
    """Raises DemoError when a question needs what the client did not declare."""
    declared, missing = object_at(call.meta, META_CLIENT_CAPABILITIES), {}
    for kind, modes in needs.items():
        given = declared.get(kind)
        # elicitation without a mode means forms
        if not isinstance(given, dict) or not {*object_at(modes)} <= {*(given or ["form"])}:
            missing[kind] = modes
    if missing:
        words = f"the tool asks for what the client did not declare: {', '.join(missing)}"
        raise DemoError(words, DEMO_NOT_DECLARED, requiredCapabilities=missing)


def words_of_response(ask: JsonObject, response: JsonObject) -> str:
    """What was answered; nothing when it is no answer to the question."""
    action, schema = text_at(response, "action"), object_at(ask, "params", "requestedSchema")
    if ask["method"] != "elicitation/create":
        return encode_json(response).decode() if response else ""
    if action != "accept" or not schema:
        return action if action in _ACTIONS else ""
    read = Form(schema).read(object_at(response, "content"))
    if read is None:
        return ""
    return encode_json(read).decode() if read else action


def call_asking(call: DemoCall) -> JsonObject:
    """The questions of the tool's next round; after the last, or a refusal, what was answered.

    A round with an answer that is missing or none is asked again, see basic/patterns/mrtr.
    """
    asks, states = call.server.data("asks", call.name), call.server.states
    check_declared(call, object_at(asks, "needs"))
    rounds, number, said = list_at(asks, "rounds"), 0, ""
    if "requestState" in call.params:
        known = states.get((call.name, text_at(call.params, "requestState")))
        if known is None:
            raise DemoError("the requestState was not given out by this tool")
        number, said = known
    responses = object_at(call.params, "inputResponses")
    words = {
        key: words_of_response(object_at(ask), object_at(responses, key))
        for key, ask in object_at(rounds[number]).items()
    }
    if all(words.values()):
        said = "; ".join(filter(None, [said, *(f"{key}: {word}" for key, word in words.items())]))
        number += 1
        if number == len(rounds) or not {"decline", "cancel"}.isdisjoint(words.values()):
            return tool_text(said)
    result: JsonObject = {"resultType": "input_required", "inputRequests": rounds[number]}
    if len(rounds) > 1:
        state = f"{call.name}, round {number + 1} of {len(rounds)}, answers: {said or 'none'}"
        states[call.name, state] = (number, said)
        result["requestState"] = state
    return result


def call_toggle_tool(call: DemoCall) -> JsonObject:
    """The tool `extra` comes or goes, which is told before the answer."""
    call.server.has_extra = not call.server.has_extra
    call.server.announce("toolsListChanged", "notifications/tools/list_changed")
    return tool_text(f"extra is {'there' if call.server.has_extra else 'gone'}")


def call_count(call: DemoCall) -> JsonObject:
    """The counter goes up: the resource and its title in the list change."""
    call.server.count += 1
    call.server.announce(DEMO_COUNTER, "notifications/resources/updated", uri=DEMO_COUNTER)
    call.server.announce("resourcesListChanged", "notifications/resources/list_changed")
    return tool_text(f"the counter is at {call.server.count}")


def call_log_levels(call: DemoCall) -> JsonObject:
    """One log message of each level, from the one on that the client asked for."""
    least = text_at(call.meta, META_LOG_LEVEL)
    for level in itertools.dropwhile(lambda level: level != least, LOG_LEVELS):
        params: JsonObject = {"level": level, "data": f"a message of level {level}"}
        call.server.send(method="notifications/message", params=params)
    return tool_text("logged")


DEMO_TOOLS: Final[dict[str, DemoFunction]] = {  # those that ask have no function of their own
    "add": call_add,
    "echo": call_echo,
    "slow": call_slow,
    "toggle_tool": call_toggle_tool,
    "count": call_count,
    "log_levels": call_log_levels,
    "refused_schema": call_names,
    "extra": call_names,
}


def demo_result(call: DemoCall) -> JsonObject:
    """What is always the same: what the server is, and the only page of a list."""
    if "cursor" in call.params:
        raise DemoError("the lists of this server have one page and no cursor")
    return call.server.data("results", call.method)


def demo_list_tools(call: DemoCall) -> JsonObject:
    """The only page of the tools that are there now."""
    tools = list_at(call.server.data(), "tools")
    there = [tool for tool in tools if call.server.has_extra or text_at(tool, "name") != "extra"]
    return {**demo_result(call), "tools": there}


def demo_call_tool(call: DemoCall) -> JsonObject | None:
    """What the tool answers; arguments that its own schema does not allow are its error."""
    schemas = {
        text_at(tool, "name"): object_at(tool, "inputSchema")
        for tool in list_at(demo_list_tools(call), "tools")
    }
    schema = schemas.get(call.name)
    if schema is None:
        raise DemoError("unknown tool")
    if "$schema" not in schema and Form(schema).read(call.arguments) is None:
        return tool_text("the arguments do not fit the inputSchema of the tool", is_error=True)
    return DEMO_TOOLS.get(call.name, call_asking)(call)


def demo_get_prompt(call: DemoCall) -> JsonObject:
    """The words of the prompt."""
    name = text_at(call.arguments, "name")
    if call.name != "greet" or not name:
        raise DemoError("unknown prompt, or its argument 'name' is missing")
    text = f"Greet {name}. Style: {text_at(call.arguments, 'style') or 'formal'}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def demo_read_resource(call: DemoCall) -> JsonObject:
    """The text of a resource of the list or of the template."""
    uri = text_at(call.params, "uri")
    found = call.server.data("texts", uri)
    if uri.startswith(DEMO_GREETING) and uri != DEMO_GREETING:
        found = {"mimeType": "text/plain", "text": f"Good day, {uri[len(DEMO_GREETING) :]}."}
    if not found:
        raise DemoError("Resource not found", uri=uri)
    return {"contents": [{"uri": uri, **found}]}


def demo_complete(call: DemoCall) -> JsonObject:
    """The values of an argument that begin as typed."""
    target = text_at(call.params, "ref", "name") or text_at(call.params, "ref", "uri")
    values = list_at(call.server.data("values", target), text_at(call.params, "argument", "name"))
    if not values:
        raise DemoError("this server knows no such argument")
    typed = text_at(call.params, "argument", "value").lower()
    return {"completion": {"values": [v for v in values if str(v).lower().startswith(typed)]}}


def demo_listen(call: DemoCall) -> None:
    """The stream is acknowledged and open; the answer comes with its end."""
    asked = object_at(call.params, "notifications")
    kinds = ("toolsListChanged", "resourcesListChanged")
    uris = list_at(asked, "resourceSubscriptions")
    known: list[Json] = [uri for uri in call.server.data("texts") if uri in uris]
    honored: JsonObject = {kind: True for kind in kinds if asked.get(kind) is True}
    if known:
        honored["resourceSubscriptions"] = known
    call.topics = [*honored, *known]
    call.server.tell(call, ACKNOWLEDGED, notifications=honored)
    call.server.running[call.request_id] = call


DEMO_METHODS: Final[dict[str, DemoFunction]] = {
    "server/discover": demo_result,
    "tools/list": demo_list_tools,
    "tools/call": demo_call_tool,
    "prompts/list": demo_result,
    "prompts/get": demo_get_prompt,
    "resources/list": demo_result,
    "resources/templates/list": demo_result,
    "resources/read": demo_read_resource,
    "completion/complete": demo_complete,
    "subscriptions/listen": demo_listen,
}
DEMO_UNCACHED: Final = ("tools/call", "prompts/get", "completion/complete")


def demo_answer(call: DemoCall) -> JsonObject | None:
    """The result of a request that has all that basic/index asks for. Raises DemoError."""
    version = call.meta.get(META_PROTOCOL_VERSION)
    # The answer to `initialize`, too: an old client can show its user nothing but these words.
    only = f"this server speaks MCP {MODERN_VERSION} only"
    if version != MODERN_VERSION:
        code = UNSUPPORTED_VERSION if isinstance(version, str) else -32602
        raise DemoError(only, code, supported=[MODERN_VERSION], requested=version)
    if not isinstance(call.meta.get(META_CLIENT_CAPABILITIES), dict):
        raise DemoError(f"_meta has no {META_CLIENT_CAPABILITIES}")
    if call.method not in DEMO_METHODS:
        raise DemoError(f"unknown method: {only}", -32601)
    result = DEMO_METHODS[call.method](call)
    if result is None:
        return None
    common = call.server.data("common")
    if call.method not in DEMO_UNCACHED:
        common.update(ttlMs=0, cacheScope="private")
    return {**common, **result}


class DemoServer:
    """The server on two descriptors.

    Threads: run() reads, answers and changes; each call of `slow` answers from its own thread.
    """

    def __init__(self, in_fd: int, out_fd: int) -> None:
        self._in_fd = in_fd
        self._out_fd = out_fd
        self._output = RankedLock(LockRank.OUTPUT)  # guards a line on its way to out_fd
        # What can be cancelled: streams, and calls of `slow`. No lock: each use is one step.
        self.running: dict[ClientKey | None, DemoCall] = {}
        self.states: dict[tuple[str, str], tuple[int, str]] = {}  # by tool and requestState:
        # the round that was asked, and the answers to those before it
        self.has_extra = False
        self.count = 0

    def run(self) -> None:
        """Returns at the end of the input; what still runs is cancelled, the streams are ended."""
        for line in read_lines(self._in_fd, MOST_LINE_BYTES):
            self._handle_line(line)
        for call in list(self.running.values()):
            call.cancelled.set()
            if call.method == "subscriptions/listen":
                meta: JsonObject = {META_SUBSCRIPTION_ID: call.request_id}
                self.send(id=call.request_id, result={"resultType": "complete", "_meta": meta})

    def data(self, *path: str) -> JsonObject:
        """A part of DEMO_DATA, as the counter stands."""
        text = DEMO_DATA.replace("COUNT", str(self.count)).replace("VERSION", __version__)
        return object_at(parse_json(text.encode()), *path)

    def announce(self, topic: str, method: str, **params: Json) -> None:
        """Each stream that asked for the topic hears of it."""
        for call in list(self.running.values()):
            if topic in call.topics:
                self.tell(call, method, **params)

    def tell(self, stream: DemoCall, method: str, **params: Json) -> None:
        """The stream hears the notification."""
        params["_meta"] = {META_SUBSCRIPTION_ID: stream.request_id}
        self.send(method=method, params=params)

    def send(self, **members: Json) -> None:
        """The message went out."""
        with self._output:
            send_message(self._out_fd, members)

    def _handle_line(self, line: bytes) -> None:
        try:
            message = object_at(parse_json(line))
        except (ValueError, RecursionError):
            self.send(error={"code": -32700, "message": "the line is not valid JSON"})
            return
        request_id, method = id_key(message.get("id")), message.get("method")
        if method == "notifications/cancelled":
            call = self.running.pop(id_key(value_at(message, "params", "requestId")), None)
            if call is not None:
                call.cancelled.set()
        elif request_id is not None and isinstance(method, str):
            self._start(DemoCall(self, request_id, message))
        elif {"result", "error", "method"}.isdisjoint(message) or ("id" in message and method):
            # no response and no other notification
            self.send(error={"code": -32600, "message": "the line is no request"})

    def _start(self, call: DemoCall) -> None:
        if call.name == "slow":
            self.running[call.request_id] = call
            start_thread(f"demo {call.request_id}", lambda: self._answer(call))
        else:
            self._answer(call)

    def _answer(self, call: DemoCall) -> None:
        try:
            result = demo_answer(call)
        except DemoError as error:
            answer: JsonObject = {"error": error.answer}
        else:
            if result is None or call.cancelled.is_set():
                return
            answer = {"result": result}
        self.running.pop(call.request_id, None)
        self.send(id=call.request_id, **answer)


def run_demo(arguments: list[str]) -> int:
    """The exit code, after the end of stdin."""
    if arguments:
        return tell_problem("demo takes no arguments", 2)
    DemoServer(0, 1).run()
    return 0


def tell_problem(text: str, code: int) -> int:
    """The exit code, after the problem is on stderr."""
    write_all(2, (f"{PROGRAM}: vscode: error: {text}\n".encode("utf-8", "replace"),))
    return code


# endregion
# region wiring check ---------------------------------------------------------
# Acts as VS Code against a bridge of its own, and says what VS Code would see and what to correct.
# In: arguments. Out: a report for people or machines. The order of the requests is VS Code's.
# Facts come first (CheckRun makes the report, plain JSON), words later (render_report).

CHECK_MARGIN_SECONDS: Final = 5  # so that the bridge's own limit for the server ends first
CHECK_STOP_SECONDS: Final = 12  # the bridge promises 8
CHECK_JOIN_SECONDS: Final = 1  # a child that lives on may hold stderr open
CHECK_LOG_BYTES: Final = 16 << 10
CHECK_MOST_PAGES: Final = 200
CHECK_MOST_LINES: Final = 200  # items of a list
CHECK_TAIL_LINES: Final = 20
CHECK_TEXT_CHARS: Final = 300
CHECK_LINE_CHARS: Final = 2000  # of a detail or a log line, which may hold a PATH
# steps: VS Code's, in its order; demo: more of them, for the demo. One that "needs" what the server
# has not is left out. One that is "sent" gets its answer in a later row: VS Code does not wait.
# "list" and "key": all pages of the list are read, the key names an item.
# "start": how the text of the answer begins, or the length of the list; "heard": what must come
# before it.
# answers: to questions that are no elicitation; "refused" is how VS Code refuses sampling.
# examples: for a field without choices, by format or type.
CHECK_DATA: Final = """{
"initialize": {"protocolVersion": "2025-11-25", "capabilities": {
    "roots": {"listChanged": true}, "sampling": {}, "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}, "cancel": {}, "requests":
        {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
    "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}},
    "clientInfo": {"name": "Visual Studio Code", "version": "1.139.1"}},
"steps": [
    {"method": "logging/setLevel", "params": {"level": "info"}, "needs": "logging", "sent": true},
    {"method": "notifications/initialized"},
    {"method": "prompts/list", "needs": "prompts", "sent": true},
    {"method": "tools/list", "needs": "tools", "sent": true},
    {"method": "logging/setLevel", "needs": "logging"},
    {"method": "prompts/list", "needs": "prompts", "list": "prompts", "key": "name"},
    {"method": "tools/list", "needs": "tools", "list": "tools", "key": "name"},
    {"method": "resources/templates/list", "needs": "resources",
        "list": "resourceTemplates", "key": "uriTemplate"},
    {"method": "resources/list", "needs": "resources", "list": "resources", "key": "uri"}],
"demo": [
    {"step": "call add", "method": "tools/call", "start": "2 + 3 = 5",
        "params": {"name": "add", "arguments": {"a": 2, "b": 3}}},
    {"step": "call echo", "method": "tools/call", "start": "hello",
        "params": {"name": "echo", "arguments": {"text": "hello"}}},
    {"step": "call slow", "method": "tools/call", "start": "done after 3 steps",
        "params": {"name": "slow", "arguments": {"seconds": 0.3, "steps": 3}},
        "heard": "notifications/progress"},
    {"step": "call ask_name", "method": "tools/call", "start": "person: ",
        "params": {"name": "ask_name", "arguments": {}}, "heard": "elicitation/create"},
    {"step": "call ask_confirm", "method": "tools/call", "start": "sure: ",
        "params": {"name": "ask_confirm", "arguments": {}}, "heard": "elicitation/create"},
    {"step": "call ask_url", "method": "tools/call", "start": "page: ",
        "params": {"name": "ask_url", "arguments": {}}, "heard": "elicitation/create"},
    {"step": "call think", "method": "tools/call", "start": "color: ",
        "params": {"name": "think", "arguments": {}}, "heard": "sampling/createMessage"},
    {"step": "call list_roots", "method": "tools/call", "start": "folders: ",
        "params": {"name": "list_roots", "arguments": {}}, "heard": "roots/list"},
    {"step": "call ask_rounds", "method": "tools/call", "start": "pizza: ",
        "params": {"name": "ask_rounds", "arguments": {}}, "heard": "elicitation/create"},
    {"method": "resources/subscribe", "params": {"uri": "demo:///counter"}},
    {"method": "tools/list", "list": "tools", "key": "name"},
    {"method": "logging/setLevel", "params": {"level": "debug"}},
    {"step": "call count", "method": "tools/call", "start": "the counter is at 1",
        "params": {"name": "count", "arguments": {}},
        "heard": "notifications/resources/updated"},
    {"step": "call toggle_tool", "method": "tools/call", "start": "extra is there",
        "params": {"name": "toggle_tool", "arguments": {}},
        "heard": "notifications/tools/list_changed"},
    {"step": "call log_levels", "method": "tools/call", "start": "logged",
        "params": {"name": "log_levels", "arguments": {}}, "heard": "notifications/message"},
    {"method": "tools/list", "list": "tools", "key": "name", "has": "extra"}],
"answers": {
    "ping": {"result": {}},
    "roots/list": {"result": {"roots": [{"uri": "file:///example", "name": "example"}]}},
    "sampling/createMessage": {"result": {"model": "check", "role": "assistant",
        "content": {"type": "text", "text": "An answer of check."}}},
    "refused": {"error": {"code": -32000, "message": "the user refused"}},
    "unknown": {"error": {"code": -32601, "message": "VS Code does not know this method"}}},
"examples": {"boolean": true, "date": "2026-07-28", "date-time": "2026-07-28T12:00:00Z",
    "email": "ada@example.com", "uri": "https://example.com/"}
}"""
CHECK_REFUSED: Final = -32000
CHECK_BY_HAND: Final = (
    "Start the command by hand in this folder: it must wait for input, and print nothing to stdout"
    " until then."
)
CHECK_FIXES: Final = {  # by cause and code, or by cause
    "closed": "See what the server says under serverTail: often a file, a module or a variable is"
    " missing. If it says nothing, it may speak an older revision: try its command in mcp.json"
    " without the bridge.",
    "discover_failed": "Put the server's own command into mcp.json, without the bridge.",
    "discover_failed -32022": f"If it names {LEGACY_VERSION} or an older revision, put the server's"
    " own command into mcp.json, without the bridge; else use a release of it that speaks"
    f" {MODERN_VERSION}.",
    "discover_failed -32603": "If the server is only slow to start, raise --timeout here, and in"
    f" mcp.json --discover-timeout. {CHECK_BY_HAND}",
    "endless_list": "The server must leave nextCursor out of its last page.",
    "no_answer": "Raise --timeout, or see with --log-level debug what the bridge waits for.",
    "spawn_failed": "Correct the command, see the detail. If your shell finds it, write its full"
    " path: VS Code may have another PATH than your shell.",
    "upstream_exited": "The server ended while it was in use: see what it says on stderr.",
}
CHECK_OTHER_FIX: Final = "See the warnings, and run again with --log-level debug."
CHECK_LOG_LINE: Final = PROGRAM + ": (?P<scope>[^:]*): (?P<level>[^:]*): (?P<text>.*)"
CHECK_CHANGE: Final = (
    "tool '(?P<tool>.*?)': (?P<change>.*?)(?: at '(?P<pointer>[^']*)' of the input schema)?"
)


def check_data(*path: str) -> JsonObject:
    """A part of CHECK_DATA."""
    return object_at(parse_json(CHECK_DATA.encode()), *path)


def clean_report(value: Json, limit: int = CHECK_TEXT_CHARS) -> Json:
    """The value with texts that are fit for people and not too long, and no endless list."""
    if isinstance(value, str):
        return clean_text(value, limit)
    if isinstance(value, list):
        return [clean_report(item, limit) for item in value[:CHECK_MOST_LINES]]
    if isinstance(value, dict):
        long = {"detail": CHECK_LINE_CHARS, "text": CHECK_LINE_CHARS}
        return {clean_text(k, limit): clean_report(v, long.get(k, limit)) for k, v in value.items()}
    return value


class UsageError(Exception):
    """The arguments are not valid; the text names the option and never a value."""


TAKES_VALUE: Final = frozenset(  # each option that does
    {"--name", "--log-level", "--discover-timeout", "--max-line-bytes", "--timeout", "--answer"}
)


class CheckOptions:
    """What the arguments ask for. What `check` does not know is left to the bridge to judge.

    Raises UsageError.
    """

    def __init__(self, arguments: list[str]) -> None:
        end = arguments.index("--") if "--" in arguments else len(arguments)
        rest, self.command = arguments[:end], arguments[end + 1 :]
        if end + 1 == len(arguments):
            raise UsageError("there is no command behind --")
        self.is_json = False
        self.for_bridge: list[str] = []
        values = {"--answer": "accept", "--timeout": "30"}
        while rest:
            words = [rest.pop(0)]
            if words[0] in TAKES_VALUE:
                words += rest[:1]
                del rest[:1]
            name, _, value = "=".join(words).partition("=")
            if name in {*values, "--discover-timeout"}:
                values[name] = value
            elif words == ["--json"]:
                self.is_json = True
            else:
                self.for_bridge += words
        self.action = values.pop("--answer")
        if self.action not in _ACTIONS:
            raise UsageError(f"--answer takes {', '.join(_ACTIONS)}")
        values.setdefault("--discover-timeout", values["--timeout"])
        for name, value in values.items():
            if not re.fullmatch("[0-9]{1,9}", value) or not 1 <= int(value) <= MOST_SECONDS:
                raise UsageError(f"{name} takes whole seconds from 1 to {MOST_SECONDS}")
        self.limit, self.discover_limit = map(int, values.values())


def self_argv() -> list[str]:
    """How to start this file once more; inside a zipapp the archive is the last that is a file."""
    place = os.path.abspath(__file__)
    while not os.path.isfile(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return [sys.executable, *(["-I"] if sys.flags.isolated else []), place]


class CheckError(Exception):
    """A step that went wrong. After one with a code, an error answer, the others go on."""

    def __init__(self, cause: str, message: str, detail: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.facts: JsonObject = {"code": code, "cause": cause}
        self.facts.update(message=message, detail=detail)


class CheckLog:
    """What came on stderr: the lines of the bridge, and how many the server wrote itself.

    Threads: one calls add(); the fields are read after its end.
    """

    def __init__(self) -> None:
        self.warnings: list[Json] = []
        self.changes: list[Json] = []
        self.has_infos = False
        self.server_lines = 0
        self.server_tail: deque[Json] = deque(maxlen=CHECK_TAIL_LINES)

    def add(self, line: bytes) -> None:
        """The line is kept or counted where it belongs."""
        text = line.decode("utf-8", "replace").rstrip()
        own = re.fullmatch(CHECK_LOG_LINE, text)
        if own is None:
            self.server_lines += 1
            self.server_tail.append(text)
            return
        self.has_infos |= own["level"] == "info"
        kept, found = self.changes, re.fullmatch(CHECK_CHANGE, own["text"])
        if own["level"] in {"error", "warning"}:
            kept, found = self.warnings, own
        if found is not None and len(kept) < CHECK_MOST_LINES:
            fact: JsonObject = {**found.groupdict("")}
            if fact not in kept:  # the bridge tells the changes for each list
                kept.append(fact)


def choices_of(field: JsonObject) -> dict[str, Json]:
    """The values that a field of a form offers, by the words that VS Code shows."""
    field = object_at(field, "items") or field
    values = list_at(field, "enum")
    names = list_at(field, "enumNames") or values
    titled = list_at(field, "oneOf") or list_at(field, "anyOf")
    by_title = {text_at(part, "title"): value_at(part, "const") for part in titled}
    return by_title or dict(zip(map(str, names), values))


def example_of(field: JsonObject) -> Json:
    """What a user could fill in: the default, the first choice, or an example that fits."""
    kind, choices = text_at(field, "type"), [*choices_of(field).values()]
    if "default" in field:
        return field["default"]
    if kind == "array":
        return choices[: int(number_at(field, "minItems")) or 1]
    if choices:
        return choices[0]
    if kind in {"integer", "number"}:
        value = max(1, number_at(field, "minimum", 1))
        return min(value, number_at(field, "maximum", value))
    return check_data("examples").get(text_at(field, "format") or kind, "example")


def answer_of(method: str, params: JsonObject, action: str) -> JsonObject:
    """What VS Code answers when its user takes the action; it asks nobody for the roots."""
    if method == "elicitation/create":
        answer: JsonObject = {"action": action}
        fields = object_at(params, "requestedSchema", "properties")
        if action == "accept" and text_at(params, "mode") != "url":
            answer["content"] = {name: example_of(object_at(fields, name)) for name in fields}
        return {"result": answer}
    if method == "sampling/createMessage" and action != "accept":
        method = "refused"
    answers = check_data("answers")
    return object_at(answers, method) or object_at(answers, "unknown")


def question_facts(method: str, params: JsonObject) -> JsonObject:
    """A question as VS Code shows it."""
    schema = object_at(params, "requestedSchema")
    fields: list[Json] = [
        {
            "title": object_at(field).get("title", name),
            "type": value_at(field, "type"),
            "required": name in list_at(schema, "required"),
            "choices": [*choices_of(object_at(field))],
        }
        for name, field in object_at(schema, "properties").items()
    ]
    said = text_at(params, "message")
    for message in list_at(params, "messages"):  # of sampling: the last one
        said = text_at(message, "content", "text")
    kind = text_at(params, "mode") or method.partition("/")[0].replace("elicitation", "form")
    return {"kind": kind, "message": said, "url": text_at(params, "url"), "fields": fields}


class CheckClient:
    """A legacy client that says what VS Code says, and whose user always takes one action.

    Threads: one uses it; two that it starts read the bridge's stdout and stderr.
    """

    def __init__(self, argv: list[str], action: str) -> None:
        self._action = action
        self._process = start_process(argv, stderr_pipe=True)
        self._inbox: deque[bytes] = deque()  # lines, at last an empty one
        self._arrived = threading.Semaphore(0)  # counts them
        self._answers: dict[Json, JsonObject] = {}
        self._last_id = 0
        self.heard: Counter[str] = Counter()  # requests and notifications, by method
        self.step = ""  # what is taken now
        self.deadline = 0.0  # of the step
        self.questions: list[Json] = []
        self.log = CheckLog()
        self._threads = [
            start_thread("check stdout", self._run_out),
            start_thread(
                "check stderr",
                lambda: read_pipe(self._process.stderr, CHECK_LOG_BYTES, self.log.add),
            ),
        ]

    def send(self, method: str, params: JsonObject) -> int:
        """The request went out; its id."""
        if method == "tools/call":
            params["_meta"] = {"progressToken": os.urandom(16).hex()}
        self._last_id += 1
        self.write(id=self._last_id, method=method, params=params)
        return self._last_id

    def result_of(self, request_id: int) -> JsonObject:
        """The result of the request. Raises CheckError."""
        while request_id not in self._answers:
            self._hear()
        answer = self._answers.pop(request_id)
        if "error" not in answer:
            return object_at(answer, "result")
        error = object_at(answer, "error")
        raise CheckError(
            text_at(error, "data", "cause") or "error_answer",
            text_at(error, "message"),
            text_at(error, "data", "detail"),
            int(number_at(error, "code")) or -32603,
        )

    def stop(self) -> int | None:
        """The exit code of the bridge after the end of its input; None: it had to be killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._threads[0].join(CHECK_STOP_SECONDS)
        code = self._process.poll()
        if code is None:
            self._process.kill()
        for thread in self._threads:
            thread.join(CHECK_JOIN_SECONDS)
        return code

    def write(self, **members: Json) -> None:
        """The message went out."""
        if self._process.stdin is not None:
            send_message(self._process.stdin.fileno(), members)

    def _run_out(self) -> None:
        read_pipe(self._process.stdout, MOST_LINE_BYTES, self._put)
        self._process.wait()
        self._put(b"")

    def _put(self, line: bytes) -> None:
        self._inbox.append(line)
        self._arrived.release()

    def _hear(self) -> None:
        """The next that the bridge says was handled. Raises CheckError."""
        if not self._arrived.acquire(timeout=max(0, self.deadline - time.monotonic())):
            raise CheckError("no_answer", "the bridge did not answer in time")
        line = self._inbox.popleft()
        if not line:
            code = self._process.wait()
            raise CheckError("bridge_exited", f"the bridge ended with exit code {code}")
        try:
            self._handle(object_at(parse_json(line)))
        except ValueError:
            start = line[:CHECK_TEXT_CHARS].decode("utf-8", "replace").rstrip()
            raise CheckError("bad_line", "the bridge wrote what is not JSON", start) from None

    def _handle(self, message: JsonObject) -> None:
        method, params = text_at(message, "method"), object_at(message, "params")
        if not method:
            self._answers[message.get("id")] = message
            return
        self.heard[method] += 1
        if "id" in message:
            answer = answer_of(method, params, self._action)
            self.write(id=message["id"], **answer)
            if method != "ping":
                [reply] = answer.values()
                facts = question_facts(method, params)
                facts = {"step": self.step, **facts, "answer": encode_json(reply).decode()}
                self.questions.append(facts)


def read_pipe(pipe: IO[bytes] | None, most_bytes: int, take: Callable[[bytes], None]) -> None:
    """Every line of the pipe was handed on, and the pipe is closed."""
    if pipe is not None:
        with pipe:
            for line in read_lines(pipe.fileno(), most_bytes):
                take(line)


class CheckRun:
    """One check: takes VS Code's steps in VS Code's order, and collects what it sees."""

    def __init__(self, options: CheckOptions) -> None:
        self._options = options
        self._limit = max(options.limit, options.discover_limit) + CHECK_MARGIN_SECONDS
        self._sent: dict[str, tuple[int, float]] = {}  # id and begin of a step
        self._steps: list[Json] = []
        self._failures: list[JsonObject] = []
        self._results: JsonObject = {}  # by step
        self._lists: dict[str, list[Json]] = {
            "tools": [],
            "prompts": [],
            "resources": [],
            "resourceTemplates": [],
        }
        # The limit is the bridge's too, since it knows best what a server does wrong.
        bridge = [*self_argv(), f"--discover-timeout={options.discover_limit}", *options.for_bridge]
        argv = [*bridge, "--", *(options.command or [*self_argv(), "demo"])]
        self._client = CheckClient(argv, options.action)

    def collect(self) -> JsonObject:
        """The report, after the bridge is gone. What was seen before a failure is worth one."""
        try:
            self._take_steps()
        except (CheckError, KeyboardInterrupt) as end:
            if isinstance(end, KeyboardInterrupt):  # an error is noted already
                self._fail("the key", CheckError("interrupted", "somebody ended the check"))
        begun = time.monotonic()
        code = self._client.stop()
        self._note("stop", begun, f"exit code {code}")
        if code != 0 and not self._failures:
            self._fail("stop", CheckError("stop_failed", f"the bridge ended with exit code {code}"))
        return object_at(clean_report(self._report(code)))

    def _take_steps(self) -> None:
        data = check_data()
        self._take_step({"method": "initialize", "params": data["initialize"]})
        if self._failures:
            return
        rows = list_at(data, "steps")
        if not self._options.command:
            rows += list_at(data, "demo")
        rows.append({"method": "ping"})
        there = {"", *object_at(self._results, "initialize", "capabilities")}
        for row in rows:
            if text_at(row, "needs") in there:
                self._take_step(object_at(row))

    def _take_step(self, row: JsonObject) -> None:
        """What the row sends went out, unless it had before, and its answer was taken."""
        method = text_at(row, "method")
        step = text_at(row, "step") or method
        if method.startswith("notifications/"):
            self._client.write(method=method)
            return
        if step not in self._sent:
            request_id = self._client.send(method, object_at(row, "params"))
            self._sent[step] = request_id, time.monotonic()
        if "sent" not in row:
            self._take_result(step, row)

    def _take_result(self, step: str, row: JsonObject) -> None:
        """The result is kept and looked at; the time of the step is noted, or its failure."""
        request_id, begun = self._sent.pop(step)
        self._client.step, self._client.deadline = step, begun + self._limit
        heard_before = self._client.heard[text_at(row, "heard")]
        try:
            result = self._results[step] = self._client.result_of(request_id)
            note = self._compared(row, self._read(row, result), heard_before)
        except CheckError as failure:
            note = f"error {failure.code}"
            if failure.code != CHECK_REFUSED or self._options.action == "accept":
                note = "failed"
                self._fail(step, failure)
            if not failure.code:
                raise
        self._note(step, begun, note)

    def _note(self, step: str, begun: float, note: str) -> None:
        ms = round((time.monotonic() - begun) * 1000, 1)
        self._steps.append({"step": step, "ms": ms, "note": note})

    def _fail(self, step: str, failure: CheckError) -> None:
        cause = text_at(failure.facts, "cause")
        fix = CHECK_FIXES.get(f"{cause} {failure.code}") or CHECK_FIXES.get(cause, CHECK_OTHER_FIX)
        self._failures.append({"step": step, **failure.facts, "fix": fix})

    def _read(self, row: JsonObject, result: JsonObject) -> str:
        """What a tool says, or how long a list is: all its pages are read, as VS Code does."""
        if "list" not in row:
            return " ".join(text_at(part, "text") for part in list_at(result, "content"))
        member, key = text_at(row, "list"), text_at(row, "key")
        items = self._lists[member] = []
        for _ in range(CHECK_MOST_PAGES):
            found = result.get(member)
            if not isinstance(found, list):
                raise CheckError("bad_answer", f"the answer has no list '{member}'", code=-1)
            items.extend(
                {key: value_at(item, key), "title": object_at(item).get("title", "")}
                for item in found
            )
            if "nextCursor" not in result:
                if "has" in row and row["has"] not in [value_at(item, key) for item in items]:
                    what = f"the tool '{row['has']}' is not listed"
                    raise CheckError("wrong_result", what, code=-1)
                return str(len(items))
            cursor: JsonObject = {"cursor": result["nextCursor"]}
            result = self._client.result_of(self._client.send(text_at(row, "method"), cursor))
        raise CheckError("endless_list", f"more than {CHECK_MOST_PAGES} pages", code=-1)

    def _compared(self, row: JsonObject, said: str, heard_before: int) -> str:
        """What was said, and how often was heard what had to come before it. Raises CheckError."""
        name = text_at(row, "params", "name") or text_at(row, "method")
        heard = text_at(row, "heard")
        count = self._client.heard[heard] - heard_before
        if not said.startswith(text_at(row, "start")):
            raise CheckError("wrong_result", f"{name} answered otherwise", said, -1)
        if heard and not count:
            raise CheckError("not_heard", f"{name} answered before {heard} came", code=-1)
        return f"{said} ({count} x {heard})" if heard else said

    def _report(self, code: int | None) -> JsonObject:
        server = object_at(self._results, "initialize")
        log, command = self._client.log, self._options.command
        upstream = "the built-in demo server"
        if command:
            upstream = f"{command[0]} (and {len(command) - 1} arguments, which may be secret)"
        details = [failure["detail"] or None for failure in self._failures]
        heard, info = self._client.heard, object_at(server, "serverInfo")
        return {
            "ok": not self._failures,
            "bridge": f"{__version__}, {check_place()}",
            "upstream": upstream,
            "server": {key: info.get(key, "") for key in ("title", "name", "version")},
            "protocolVersion": server.get("protocolVersion", ""),
            "instructions": server.get("instructions", ""),
            "exitCode": code,
            "serverLines": log.server_lines,
            "notifications": {k: n for k, n in heard.items() if k.startswith("notifications/")},
            "capabilities": [*object_at(server, "capabilities")],
            **self._lists,
            "changes": log.changes if log.has_infos else None,
            "questions": self._client.questions,
            "steps": self._steps,
            "warnings": [  # but for what a failure says as well: a PATH is long
                fact
                for fact in log.warnings
                if text_at(fact, "text").partition(": ")[2] not in details
            ],
            "serverTail": [*log.server_tail],
            "failures": [*self._failures],
        }


def render_items(items: list[Json], margin: str) -> Iterator[str]:
    """A line for each item, with the members that say something; their lists stand below it."""
    for item in items:
        members = item if isinstance(item, dict) else {"": item}
        said = [
            key if value is True else f"{value} {key}" if isinstance(value, float) else str(value)
            for key, value in members.items()
            if value and not isinstance(value, list)
        ]
        yield margin + "  ".join(f"{word:<20}" for word in said).rstrip()
        for key in members:
            yield from render_items(list_at(members, key), margin + "  ")


def render_report(report: JsonObject) -> str:
    """The report in words: a line for each member, below it one for each item of a list."""
    lines, failures = [f"{PROGRAM}: what VS Code would see", ""], list_at(report, "failures")
    for name, value in report.items():
        if name == "changes" and value is None:
            lines += ["", f"{name}: hidden (--log-level)"]
        elif isinstance(value, list) and value and name != "failures":
            lines += ["", f"{name}: {len(value)}", *render_items(value, "  ")]
        elif isinstance(value, dict):
            lines.append(f"{name:<18}" + ", ".join(f"{k} {v}" for k, v in value.items() if v))
        elif value and not isinstance(value, list):
            lines.append(f"{name:<18}{value}")
    for failure in failures:
        lines += ["", "FAILED", *(f"  {k:<9}{v}" for k, v in object_at(failure).items() if v)]
    failed = ", ".join(text_at(failure, "step") for failure in failures)
    last = f"NOT OK: failed at {failed}." if failed else "OK: VS Code can use this server."
    return "\n".join([*lines, "", last, ""])


def check_place() -> str:
    """Where this runs, and on which side: an entry of VS Code belongs to one of them."""
    sides = {"WSL_DISTRO_NAME": ", in WSL", "SSH_CONNECTION": ", on a host reached by SSH"}
    side = "".join(words for name, words in sides.items() if os.environ.get(name))
    return f"Python {sys.version.split()[0]} on {sys.platform}{side}"


def run_check(arguments: list[str]) -> int:
    """The exit code, after the report is written."""
    try:
        options = CheckOptions(arguments)
        report = CheckRun(options).collect()
    except UsageError as error:
        return tell_problem(f"check: {error} (see --help)", 2)
    except BridgeError as error:  # not even the bridge starts
        return tell_problem(f"check: {error.message} {error.detail}", 1)
    warnings = list_at(report, "warnings")
    if report["exitCode"] == 2 and warnings:  # the bridge refuses what was passed on
        return tell_problem(text_at(warnings[0], "text"), 2)
    text = encode_json(report).decode() + "\n" if options.is_json else render_report(report)
    try:
        write_all(1, (text.encode("utf-8", "backslashreplace"),))
    except OSError:
        return 1  # nobody reads it
    return 0 if report["ok"] else 1


# endregion


# region wiring cli -----------------------------------------------------------
# Arguments, exit codes, main.


class Options:
    """The options of the form that serves VS Code."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.name = ""
        self.log_level = LogLevel.INFO
        self.limits = LIMITS


_LEVEL_NAMES: Final = MappingProxyType(
    {
        "err": LogLevel.ERROR,
        "warn": LogLevel.WARNING,
        "info": LogLevel.INFO,
        "debug": LogLevel.DEBUG,
    }
)
USAGE: Final = f"""\
mcp-bridge-vscode lets VS Code use MCP servers of revision {MODERN_VERSION}.

usage: mcp_bridge_vscode.py [options] -- <command> [args...]
       mcp_bridge_vscode.py check [options] [-- <command> [args...]]
       mcp_bridge_vscode.py demo

The first form is what an entry of mcp.json runs: a server for VS Code on stdin and stdout, with
<command> behind it. `check` does what VS Code does and prints what it would see; without a command
it uses `demo`, a small server of revision {MODERN_VERSION}.

options:
  --name <name>            the server's name for VS Code when the server sends none
                           (default: the file name of <command> without its extension)
  --log-level <level>      err, warn, info or debug: what goes to stderr (default: info)
  --discover-timeout <s>   seconds for the server's first answer, 1 to {MOST_SECONDS} (default: 60)
  --max-line-bytes <n>     the bytes of the longest message, 1 to {MOST_LINE_BYTES}
                           (default: {LIMITS.line_bytes})
  --help                   show this text
  --version                show the version

Options of `check` alone:
  --json                   print one JSON document instead of the report
  --timeout <s>            seconds for each step, 1 to {MOST_SECONDS} (default: 30)
  --answer <action>        accept, decline or cancel: how to answer questions (default: accept)

exit codes: 0 stdin ended; 1 the server stopped, or an internal error; 2 wrong arguments
"""


def parse_number(name: str, text: str, most: int) -> int:
    """A whole number from 1 to `most`. Raises UsageError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or not 1 <= int(text) <= most:
        raise UsageError(f"the value of {name} is not a whole number from 1 to {most}")
    return int(text)


def parse_options(arguments: Sequence[str]) -> Options:
    """The options before `--` and the command behind it. Raises UsageError."""
    options = Options()
    rest = list(arguments)
    while rest and rest[0] != "--":
        name, value = take_option(rest)
        if name == "--name":
            if not value:
                raise UsageError("--name needs a name that is not empty")
            options.name = value
        elif name == "--log-level":
            if value not in _LEVEL_NAMES:
                raise UsageError(f"the value of {name} is none of {', '.join(_LEVEL_NAMES)}")
            options.log_level = _LEVEL_NAMES[value]
        elif name == "--discover-timeout":
            seconds = float(parse_number(name, value, MOST_SECONDS))
            options.limits = options.limits.replace(discover_seconds=seconds)
        elif name == "--max-line-bytes":
            most = parse_number(name, value, MOST_LINE_BYTES)
            options.limits = options.limits.replace(line_bytes=most)
        elif name in ("--json", "--timeout", "--answer"):
            raise UsageError(f"the option {name} belongs to check")
        else:
            shown = re.split("[^A-Za-z0-9-]", name)[0][:40]  # a value may stand behind a blank
            raise UsageError(f"the option {shown} is not known")
    options.command = rest[1:]
    if not options.command or not options.command[0]:
        raise UsageError("there is no command of a server: give -- <command> [args...]")
    return options


def take_option(rest: list[str]) -> tuple[str, str]:
    """The name and the value of the option at the front of `rest`, which loses them."""
    name, equals, value = rest.pop(0).partition("=")
    if not name.startswith("--"):
        if "://" in name:
            raise UsageError("a URL cannot be used yet: give -- <command> [args...]")
        raise UsageError("an argument before -- is no option: the command comes behind --")
    if equals or name not in TAKES_VALUE:
        return name, value
    if not rest or rest[0] == "--":
        raise UsageError(f"the option {name} needs a value")
    return name, rest.pop(0)


def main() -> None:
    """The program: ends the process with its exit code, or leaves it to the bridge."""
    code = run_main(sys.argv[1:])
    if code is not None:
        sys.exit(code)


def run_main(arguments: list[str]) -> int | None:
    """What the arguments ask for; returns the exit code, or None once a bridge runs."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for option, text in (("--help", USAGE), ("--version", f"{PROGRAM} {__version__}\n")):
        if option in own:
            write_all(1, (text.encode(),))
            return 0
    if arguments[:1] == ["demo"]:
        return run_demo(arguments[1:])
    if arguments[:1] == ["check"]:
        return run_check(arguments[1:])
    try:
        options = parse_options(arguments)
    except UsageError as error:
        usage = USAGE.partition("usage: ")[2].partition("\n\n")[0]
        return tell_problem(f"{error}\nusage: {usage}", 2)
    serve(options)
    return None


def take_standard_descriptors() -> None:
    """0, 1 and 2 are taken: else a pipe of ours, or a socket of the server, would get the number.

    A stdin that was closed is at its end, a stdout fails at the first write.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)


def serve(options: Options) -> None:
    """A bridge serves VS Code until it closes our stdin, and then ends the process.

    Its reader is a thread, and the main thread waits at the end of the script for it: Python
    keeps the syntax tree of a script, half of all memory, until its last line has run.
    """
    stem = os.path.splitext(os.path.basename(options.command[0]))[0]
    take_standard_descriptors()
    stderr = Log(2, options.log_level, options.limits)
    bridge = Bridge(
        command=options.command,
        fallback_name=options.name or stem or PROGRAM,
        log=stderr,
        limits=options.limits,
    )
    sys.setswitchinterval(0.0005)  # a thread that parses a big frame lets the others in sooner
    gc.set_threshold(50_000, 20, 20)  # of its many objects none is garbage: a third of the time
    threading.excepthook = lambda found: stderr.error(
        "vscode", f"internal error of a thread, {place_of(found.exc_value or SystemExit())}"
    )
    watch_signals(bridge.handle_signal)
    watch_parent(bridge.end_input)
    if 0x030C0000 <= sys.hexversion < 0x030C0200:  # they start no thread after the script
        bridge.run()
    else:
        start_thread("reader", bridge.run, is_daemon=False)


# endregion

if __name__ == "__main__":
    main()
