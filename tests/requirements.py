"""What the bridge shall do, by id, each with its page; and where it differs on purpose.

A test names what it shows with `@requirement("id")`, a transcript in its line `covers:`, and
`tests/structure/test_requirements.py` checks both directions. The pages: the translation rules, the
contract with VS Code and the architecture of the reference, our design and our decisions by number,
the MCP specification by its folder; "ours" is what no page asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


class Requirement(NamedTuple):
    page: str
    what: str


class Divergence(NamedTuple):
    """A known difference from the reference, and the page that decided it."""

    page: str
    what: str


_BY_PAGE: Final[Mapping[str, Mapping[str, str]]] = {
    "translation-rules: Lifecycle and initialize": {
        "lifecycle.ping": "ping is answered in each state",
        "lifecycle.set-level": "logging/setLevel is kept and answered in each state",
        "lifecycle.discover": "server/discover is refused in each state and never forwarded",
        "lifecycle.before-ready": "before ready a request gets -32601 with the"
        " modern _meta, else -32600",
        "lifecycle.second-initialize": "a second initialize gets -32600 and changes nothing",
        "lifecycle.unknown-method": "in ready an unknown method gets -32601",
        "lifecycle.initialized": "notifications/initialized has no answer and may come at any time",
        "lifecycle.roots-changed": "notifications/roots/list_changed is ignored",
        "lifecycle.other-notifications": "any other notification is ignored with a debug line",
        "lifecycle.closing": "in closing a request hears of the loss, or nothing",
        "lifecycle.order": "the state is ready before the initialize result goes out",
        "initialize.params": "params of initialize that are not valid get -32602",
        "initialize.spawn": "a command that cannot be started fails initialize",
        "initialize.discover-error": "an error of server/discover fails initialize with its code",
        "initialize.unsupported-version": "a server without our revision fails with what it names",
        "initialize.wrong-result": "a discover result of a wrong shape fails initialize",
        "initialize.silence": "a silent server fails initialize at the limit",
        "initialize.cancelled": "a cancelled initialize gets no answer and"
        " leaves nothing half done",
        "initialize.again": "after a failed or cancelled initialize a new"
        " one starts the server again",
    },
    "upstream-client: Easily missed": {
        "initialize.odd-refusal": "-32022 that names our revision is tried once more",
    },
    "decisions 18": {
        "initialize.exit": "a child that leaves before ready fails initialize, the bridge stays",
        "decisions.18": "a child that leaves in initializing",
    },
    "translation-rules: The capabilities for the upstream server": {
        "capabilities.upstream": "the server hears what the client declared, in"
        " the shape of the schema",
    },
    "translation-rules: The initialize result": {
        "initialize.capabilities": "the client hears what the server declared, without tasks",
        "initialize.server-info": "serverInfo comes from _meta, or from the result,"
        " when it is valid",
        "initialize.fallback-name": "else serverInfo is the fallback name and our version",
    },
    "vscode-contract: Requirements of VS Code": {
        "r1": "initialize gets capabilities and a serverInfo",
        "r2": "ping and setLevel are answered before notifications/initialized",
        "r3": "requests without modern _meta keys get ours",
        "r4": "no nextCursor that is not a string",
        "r5": "a call's result has a content array",
        "r6": "every input schema passes both checks of VS Code",
        "r7": "stdout has JSON-RPC lines only; the end of stdin ends the bridge",
    },
    "vscode-contract: The Copilot harness": {
        "c1": "server/discover is refused at once, then initialize is accepted",
        "c2": "the input kinds that Copilot declares reach the server",
        "c3": "the progress token 0 in each request is a token",
        "c4": "no late answer to server/discover can come",
    },
    "vscode-contract: Features that VS Code uses": {
        "o4": "progress comes with the client's token",
        "o5.set-level": "logging/setLevel is answered",
        "o8": "completion/complete is always forwarded",
        "o9": "prompts and resources are forwarded",
        "o10": "instructions, titles, icons and annotations stay",
        "o11": "extensions and structured content reach both sides",
    },
    "vscode-contract: Quirks of VS Code": {
        "quirks.cancelled": "no notifications/cancelled of the server reaches the client",
        "quirks.32042": "no URL of a -32042 reaches the client",
        "quirks.no-ping": "the bridge sends no ping",
    },
    "translation-rules: Forwarded requests": {
        "forward.methods": "eight methods are forwarded",
        "forward.params": "missing params become {}, task and _meta are removed",
        "forward.untouched": "every other member goes to the server as it came",
        "forward.envelope": "each upstream request has version, client and capabilities in _meta",
        "limits.list": "lists and completion have 120 s",
        "limits.read": "the first round of prompts/get and resources/read has 120 s",
        "limits.call": "a round of tools/call has an hour",
        "limits.discover": "server/discover has 60 s, or --discover-timeout",
        "limits.in-flight": "at most 256 requests are in flight",
        "limits.answers": "the answers of a round have an hour",
        "limits.questions": "a round has at most 16 questions",
        "limits.rounds": "a request has at most 10 rounds",
    },
    "ours": {
        "limits.queued": "a server that reads nothing cannot fill our memory",
        "ids.text": "an id comes back as its text was",
        "results.order": "what the server says goes out in its order",
        "loss.deaf": "a server that closed its stdin fails what waits",
        "log.deaf": "warning: the server has closed its stdin",
        "log.no-cancellation": "debug: a cancellation that the server did not take",
        "log.refused-line": "debug: a refused line of the client",
        "log.dropped-response": "debug: a response that answers nothing",
        "log.ignored-notification": "debug: a notification that is ignored",
        "plumbing.reserve": "what is seldom needed costs no thread",
    },
    "decisions 13": {
        "ids.types": 'an id is a string or an integer; 1 is not "1"',
        "ids.duplicate": "an id in flight is refused, the first goes on",
        "decisions.13": "ids",
    },
    "basic/index": {
        "ids.upstream": "upstream ids are integers, never used again",
    },
    "upstream-client: stdio": {
        "replies.late": "a reply to a request that is over is dropped",
        "replies.double": "the first reply counts",
        "replies.unknown": "a reply with an id of nobody is dropped",
        "replies.wrong-shape": "a reply of a wrong shape fails its request",
        "server-requests.dropped": "a request of the server is dropped and never answered",
        "upstream-lines.banner": "a line that is no message is said in a warning, never passed on",
        "upstream-lines.broken": "a broken line that names a request fails this request at once",
        "upstream-lines.too-long": "a line over the limit fails the request that it names",
        "log.server-request": "a request of the server: one warning, then debug lines",
        "log.late-reply": "debug: a reply that nobody waits for",
        "log.dropped-progress": "progress that is dropped",
    },
    "architecture: The reader never blocks": {
        "slots.once": "one answer or none",
        "reader.never-blocks": "the reader waits for nobody but stdin",
    },
    "translation-rules: Result rules": {
        "results.removal": "resultType, ttlMs, cacheScope and the server's name are removed",
        "results.untouched": "each other member goes to the client as it came",
        "results.next-cursor": "a nextCursor that is not a string is removed",
        "results.items": "array schemas get items, down to 64 levels",
        "results.output-schema": "an outputSchema whose root is no object is removed",
        "results.content": "a call without a content array gets one",
        "results.text-mirror": "structured content without a text block gets one",
        "results.structured-content": "structured content stays, whatever its type",
    },
    "design 6": {
        "results.draft-07": "what VS Code omits is rewritten to what it keeps",
        "design.no-tools": "tools/list is empty when there are no tools",
    },
    "upstream-client: Every request": {
        "results.input-required-elsewhere": "input_required belongs to call, get and read alone",
    },
    "translation-rules: Input requests": {
        "questions.form": "a form is put and its answer sent",
        "questions.answers": "each answer of the client has its value for the server",
        "questions.apart": "the questions of two requests never mix",
        "questions.broken-answers": "a line that is no answer cancels, or fails sampling and roots",
        "questions.cancelled": "a cancelled request takes its questions back, with the reason",
        "questions.checks": "each failed check has its cause, and no question goes out",
        "questions.client-errors": "an error to sampling or roots is the error of the request",
        "questions.complete": "a URL step that is asked for no more ends before the response",
        "questions.continue": "a form without a property and an accepted URL are the Continue form",
        "questions.elicitation-id": "each URL step has an id of its own",
        "questions.empty-rounds": "a round without questions follows after a pause and counts",
        "questions.end-of-input": "the end of the input takes the questions back",
        "questions.entries": "entries are in the table before the questions go out",
        "questions.late-answers": "an answer that nobody waits for changes nothing",
        "questions.lost": "the loss of the server takes the questions back",
        "questions.methods": "prompts/get and resources/read may ask as tools/call may",
        "questions.misshapen-answers": "a result of a wrong shape fails the request",
        "questions.order": "all questions of a round go out together, in their order",
        "questions.progress": "progress of each round has the token of the client",
        "questions.roots": "the server gets the roots with a file URI alone",
        "questions.round": "the retry has a new id, the answers and the newest state",
        "questions.round-checks": "a round of a wrong shape or with too many questions fails",
        "questions.round-limit": "each round has its own time limit, later ones an hour",
        "questions.state": "the state goes back as it came, an old one never",
        "questions.state-rule": "-32602 to a round with a state says what to do",
        "questions.ten-rounds": "a request has at most ten rounds",
        "questions.timeout": "answers that do not come in time fail the request",
        "questions.url-rule": "the client sees https and loopback alone, else decline",
    },
    "translation-rules: Progress": {
        "progress.tokens": "every value but null, an array and an object is a token",
        "progress.by-request": "progress belongs to a request, never to a token",
        "progress.rate": "at most 50 a second for one request, the newest at the end",
        "progress.after-answer": "none after the answer",
        "progress.after-cancel": "none after a cancellation",
        "progress.invalid": "progress that is not valid is dropped",
    },
    "translation-rules: Cancellation": {
        "cancel.client": "a cancelled request gets no response, and the server hears it",
        "cancel.server": "a cancellation of the server is dropped",
        "cancel.end-of-input": "the end of the input cancels every request",
    },
    "translation-rules: Lines that are not valid": {
        "bad-lines.not-json": "not JSON: -32700",
        "bad-lines.not-utf-8": "not UTF-8: -32700",
        "bad-lines.wrong-shape": "JSON that is no request: -32600",
        "bad-lines.too-long": "too long: -32600 with the id of its first or last 256 bytes",
        "bad-lines.too-deep": "too deep: -32600 with the limit",
        "bad-lines.responses": "a response that answers nothing is dropped",
        "bad-lines.goes-on": "after a bad line the next is read as ever",
    },
    "translation-rules: Error table": {
        "errors.parse_error": "-32700",
        "errors.invalid_request_shape": "-32600",
        "errors.line_too_long": "-32600 with the limit",
        "errors.too_deep": "-32600 with the limit",
        "errors.not_initialized": "-32600",
        "errors.already_initialized": "-32600",
        "errors.method_not_found": "-32601",
        "errors.invalid_params": "-32602",
        "errors.too_many_requests": "-32603",
        "errors.spawn_failed": "-32603 with what to change",
        "errors.closed": "-32603 with the exit code or signal",
        "errors.discover_failed": "the server's code, else -32603, with what it said",
        "errors.upstream_exited": "-32603",
        "errors.transport_failed": "-32603",
        "errors.invalid_response": "-32603",
        "errors.timeout": "-32603 with method and limit",
        "errors.invalid_input_request": "-32603 with the key",
        "errors.undeclared_input_request": "-32603 with the key",
        "errors.too_many_input_requests": "-32603 with the limit",
        "errors.too_many_rounds": "-32603 with the limit",
        "errors.input_timeout": "-32603 with the limit",
        "errors.invalid_client_answer": "-32603 with the key",
        "errors.out_of_memory": "-32603",
        "errors.internal": "-32603, with the place and no value in the log",
        "errors.canceled": "no response",
        "errors.upstream": "an error of the server passes unchanged",
        "errors.32042": "-32042 becomes -32603 without data",
    },
    "vscode-contract: When the upstream server stops": {
        "loss.in-flight": "what is in flight gets upstream_exited, and the bridge exits with 1",
    },
    "vscode-contract: The stop sequence of VS Code": {
        "stop.end-of-input": "the end of stdin ends requests, the server, then the bridge, with 0",
        "stop.initializing": "also while the server is asked",
        "stop.watchdog": "after 8 s the watchdog kills the server and ends the bridge",
        "stop.any-state": "from every state, with nothing left",
    },
    "design 5": {
        "stop.signal": "a signal is the end of the input",
    },
    "decisions 11": {
        "stop.second-signal": "a second one kills and ends at once",
        "decisions.11": "signals",
    },
    "decisions 9": {
        "stop.blocked-stdout": "a client that reads nothing delays no stop",
        "decisions.9": "nobody waits for stdout but who writes there",
    },
    "architecture: Error table": {
        "stop.exit-codes": "0, or 1 after a loss or a fault",
    },
    "vscode-contract: Messages in the Output channel": {
        "log.cannot-start": "warning: the command cannot be started",
        "log.discover-failed": "warning: server/discover failed, and why",
        "log.still-waiting": "info: at 10 s and each 30 s",
        "log.no-response": "warning: no response in its limit",
        "log.rejected": "warning: too many requests in flight",
        "log.schema-change": "info: one line for each change of a schema",
        "log.schema-too-deep": "info: a schema that is too deep",
        "log.input-failed": "warning: the input requests failed, and why",
        "log.url-refused": "warning: a URL was refused, without it",
        "log.client-refused": "info: the client answered with an error",
        "log.no-answers": "warning: no answers in time",
        "log.too-many-rounds": "warning: the server asked in ten rounds",
        "log.state-refused": "warning: the server refused the state",
        "log.waiting-for-answers": "info: at 10 s and each 30 s",
        "log.server-exited": "warning: the server process ended",
        "log.upstream-exited": "error: the loss, with code or signal",
        "log.dropped-line": "warning: a line of the server that is no message",
    },
    "architecture: Diagnostics": {
        "log.form": "program, scope, level, text",
        "log.clean": "one line, without control characters",
        "log.levels": "--log-level decides what is written",
        "log.trace": "debug: one line for each upstream exchange, without its frames",
    },
    "decisions 10": {
        "log.full-stderr": "a full stderr drops lines, with a count",
        "decisions.10": "stderr never blocks a request",
    },
    "decisions 4": {
        "decisions.4": "what an unexpected exception does",
    },
    "decisions 12": {
        "decisions.12": "a slot waits until its own next moment",
    },
    "decisions 14": {
        "decisions.14": "depth is measured where it can be too large",
    },
    "decisions 15": {
        "decisions.15": "thinned progress",
    },
    "decisions 16": {
        "decisions.16": "nothing but tools/list is gated",
    },
    "style 5": {
        "plumbing.lock-order": "locks object when their order is broken",
    },
    "translation-rules: Listen stream": {
        "listen.start": "it opens after notifications/initialized, when it is of use",
        "listen.filter": "the filter has the declared lists and the subscribed URIs",
        "listen.streams": "only the active stream writes events; the newest one that opened is it",
        "listen.events": "four methods reach the client, without the subscription id",
        "listen.gap": "after a gap each declared list and each subscribed URI has one event",
        "listen.ends": "what the end of a stream was decides whether a new one opens",
        "listen.waits": "the waits double up to 30 s; 10 s of life reset them",
        "listen.limit": "a stream that is not acknowledged in 10 s is lost",
        "listen.order": "an event that the server wrote before a result comes before it",
        "listen.stop": "the stop cancels the streams",
        "subscribe.steps": "the acknowledgment of a new stream answers, then the old one ends",
        "subscribe.one-at-a-time": "one change at a time",
        "subscribe.nothing-new": "a change that changes nothing is answered at once",
        "subscribe.failed": "a failed change leaves the old stream and its URIs",
        "subscribe.last": "after the last unsubscribe nothing is listened to",
        "subscribe.none": "without subscriptions declared the methods are unknown",
        "subscribe.params": "a uri that is no text gets -32602",
        "subscribe.cancelled": "a cancelled change has no answer and leaves all as it was",
    },
    "decisions 26 to 28": {
        "decisions.26": "a list change is left out while one is outstanding",
        "decisions.27": "what the acknowledgment leaves out",
        "decisions.28": "a lost stream comes back at once three times",
        "listen.bursts": "a burst of list changes is told once until the client asks",
        "listen.honoured": "a URI that is not honoured is answered, with one warning",
        "listen.idle": "an open stream on which nothing happens costs nothing",
    },
    "translation-rules: Logging": {
        "logging.set-level": "the level is kept in each state and changes from the next round on",
        "logging.next-round": "a change of the level counts from the next round of a request",
        "logging.upstream": "each upstream request has the level, none without setLevel",
        "logging.messages": "a log message goes to the client without its _meta",
        "logging.dropped": "a message below the level is dropped",
        "logging.declared": "logging is declared when the server declares it",
        "decisions.29": "no log message without a level, or of a server without logging",
    },
    "translation-rules: Meta passthrough": {
        "meta.passthrough": "traceparent, tracestate and vscode. keys go to the server",
        "meta.grammar": "a key that breaks the grammar is dropped",
        "meta.reserved": "a reserved key is dropped",
    },
    "vscode-contract: Features that VS Code uses, M3": {
        "o5": "log messages at the level or above",
        "o6": "list changes",
        "o7": "resource updates",
    },
    "vscode-contract: Messages in the Output channel, listen stream": {
        "log.cannot-listen": "warning: the stream cannot be started",
        "log.listen-lost": "warning: the stream was lost, a new one follows",
        "log.listen-ended": "info: the server ended the stream",
        "log.listen-refused": "warning: the server refused the stream",
        "log.listen-failed": "warning: the stream failed for good",
        "log.change-failed": "warning: the stream of a change failed",
        "log.not-honoured": "warning: the server does not honour a URI",
    },
}
REQUIREMENTS: Final[Mapping[str, Requirement]] = MappingProxyType(
    {
        name: Requirement(page, what)
        for page, rows in _BY_PAGE.items()
        for name, what in rows.items()
    }
)

DIVERGENCES: Final = (
    Divergence("design 6", "VS Code's draft-07 check is answered by rewriting schemas"),
    Divergence("design 6", "tools/list of a server without tools is an empty list"),
    Divergence("design 6", "signals are handled as the end of the input"),
    Divergence("decisions 15", "progress above the rate is thinned and not dropped"),
    Divergence("decisions 18", "a loss while initializing does not end the bridge"),
)


def requirement(*_ids: str) -> Callable[[Test], Test]:
    """Marks a test with what it shows. It is read from the source, and changes nothing."""
    return lambda test: test
