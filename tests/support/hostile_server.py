"""A server of revision 2026-07-28 that can do all that a server should not: see --help.

The flags say how it behaves from its start on, the tools what it does in a call. With --control it
connects to the test and tells there what it hears: the kernel closes that connection when the
process is gone, and the server ends when the test is. Standard library and Python 3.9 only.

The tools (`tools/call`); each answers its request but for those that say otherwise:

    echo {text}             the text; answers as a good server does
    digest {text}           the SHA-256 of the text, for texts that are too long to send back
    text {count, kind}      a text of `count` characters, kind "ascii" or "emoji"
    write {text}            writes this as latin-1 bytes, @ID@ is the id; no answer of its own
    repeat {start, count, end}  the same with `count` times "x" between
    flood {count}           `count` notifications of each of three kinds, then an answer
    endless {bytes}         so many bytes of an answer without a line end, half of them after the
                            test has said "go" at the control; then the line ends
    hold {}                 no answer until the test says "answer" at the control
    exit {code}             no answer: the process ends; the same with `half` of a line before
    half {code}
    signal {number}         no answer: the process kills itself
    stop_reading {}         reads no more until the test says "read" at the control
    close_stdin {}          and lives on
    close_stdout {}         no answer: closes it and lives on
    stderr {text}           writes it to stderr
    environment {}          its environment, as JSON
    arguments {}            its sys.argv, as JSON; what is no flag is left alone
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    JsonObject = dict[str, Any]

VERSION = "2026-07-28"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CHUNK = b"x" * 65536
SHOWN_BYTES = 20_000  # of a line that is told at the control; a longer one without its arguments


@contextlib.contextmanager
def term_held_back() -> Iterator[None]:
    """A SIGTERM has its effect after the block."""
    if os.name == "nt":
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class Control:
    """The connection to the test; without a port, nothing."""

    def __init__(self, port: int, role: str, *, tells_of_term: bool) -> None:
        self._socket = None
        self._port = port
        self._rest = b""
        if port:
            self._socket = socket.create_connection(("127.0.0.1", port))
        with term_held_back():  # whoever hears the role may rely on what becomes of a SIGTERM
            if tells_of_term:
                signal.signal(signal.SIGTERM, lambda *_: self.tell(done="SIGTERM"))
            group, session = (os.getpgrp(), os.getsid(0)) if os.name != "nt" else (0, 0)
            self.tell(role=role, pid=os.getpid(), parent=os.getppid(), group=group, session=session)

    def for_another(self, role: str, *, tells_of_term: bool) -> Control:
        """The connection of a process that was forked just now."""
        if self._socket is not None:
            self._socket.close()
        return Control(self._port, role, tells_of_term=tells_of_term)

    def tell(self, **event: object) -> None:
        if self._socket is not None:
            self._socket.sendall(json.dumps(event).encode() + b"\n")

    def wait_word(self) -> str:
        """The next line of the test. At its end this process ends, whatever else it ignores."""
        while b"\n" not in self._rest:
            if self._socket is None:
                signal.pause()
                continue
            received = self._socket.recv(4096)
            if not received:
                os._exit(0)
            self._rest += received
        word, self._rest = self._rest.split(b"\n", 1)
        return word.decode()

    def wait_for(self, word: str) -> None:
        while self.wait_word() != word:
            pass

    def live_on(self) -> None:
        """Until the test ends it, by a signal or by its own end."""
        while True:
            self.wait_word()


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Server:
    """One run: reads its stdin, answers and misbehaves."""

    def __init__(self, options: argparse.Namespace, control: Control) -> None:
        self.options = options
        self.control = control
        self.line_end = b"\r\n" if options.crlf else b"\n"
        self.replies: dict[str, bytes] = {}
        for method, path in (text.split("=", 1) for text in options.reply):
            with open(path, "rb") as file:
                self.replies[method] = file.read()
        self.tools: dict[str, Callable[[Any, JsonObject, JsonObject], None]] = {
            "echo": lambda key, asked, _: self.answer_text(key, asked["text"]),
            "digest": self.call_digest,
            "text": self.call_text,
            "write": self.call_write,
            "repeat": self.call_repeat,
            "flood": self.call_flood,
            "endless": self.call_endless,
            "hold": self.call_hold,
            "exit": lambda _, asked, __: os._exit(asked["code"]),
            "half": self.call_half,
            "signal": self.call_signal,
            "stop_reading": self.call_stop_reading,
            "close_stdin": self.call_close_stdin,
            "close_stdout": self.call_close_stdout,
            "stderr": self.call_stderr,
            "environment": lambda key, *_: self.answer_text(key, json.dumps(dict(os.environ))),
            "arguments": lambda key, *_: self.answer_text(key, json.dumps(sys.argv)),
        }

    # --- Lines ------------------------------------------------------------------------------

    def run(self) -> None:
        if self.options.never_read:
            self.control.live_on()
        parts: list[bytes] = []
        while True:
            chunk = os.read(0, 1 << 18)
            if not chunk:
                return
            if b"\n" not in chunk:
                parts.append(chunk)
                continue
            *lines, rest = b"".join([*parts, chunk]).split(b"\n")
            parts = [rest]
            for line in lines:
                if self.options.exit_at_first_line is not None:
                    os._exit(self.options.exit_at_first_line)
                self.handle_line(line)

    def write(self, data: bytes) -> None:
        write_all(1, data)

    def send(self, message: JsonObject) -> None:
        if self.options.stderr_bytes:
            write_all(2, b"e" * (self.options.stderr_bytes - 1) + b"\n")
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=self.options.ascii)
        self.write(text.encode("utf-8", "surrogatepass") + self.line_end)

    def handle_line(self, line: bytes) -> None:
        message = json.loads(line)
        shown = line.decode("utf-8")
        what: JsonObject = {"heard": message["method"]}
        if len(line) > SHOWN_BYTES:
            digest = hashlib.sha256(line).hexdigest()
            what = {"heard": "a long line", "bytes": len(line), "digest": digest}
            short = {**message, "params": {**message["params"], "arguments": {}}}
            shown = json.dumps(short, separators=(",", ":"))
        self.control.tell(**what, id=message.get("id"), line=shown)
        if "id" not in message or self.options.silent:
            return
        params = message["params"]
        if message["method"] == "tools/call":
            meta = params.get("_meta", {})
            self.tools[params["name"]](message["id"], params.get("arguments", {}), meta)
        else:
            self.answer_other(message["id"], message["method"])
            if self.options.exit_after == message["method"]:
                os._exit(0)

    def answer(self, key: object, result: JsonObject) -> None:
        self.send({"jsonrpc": "2.0", "id": key, "result": {"resultType": "complete", **result}})

    def answer_text(self, key: object, text: str) -> None:
        self.answer(key, {"content": [{"type": "text", "text": text}]})

    def answer_other(self, key: int, method: str) -> None:
        if method in self.replies:
            self.write(b'{"jsonrpc":"2.0","id":%d,%s}\n' % (key, self.replies[method]))
            return
        cached: JsonObject = {"ttlMs": 0, "cacheScope": "private"}
        if method == "server/discover":
            capabilities: JsonObject = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
            info = {"name": "hostile", "version": "1"}
            self.answer(
                key,
                {
                    "supportedVersions": [VERSION],
                    "capabilities": capabilities,
                    "_meta": {META_SERVER_INFO: info},
                    **cached,
                },
            )
            if self.options.grandchild_after_discover:
                start_grandchild(self.options.grandchild_after_discover, self.control)
        elif method == "tools/list":
            fill = "d" * max(0, self.options.list_bytes // 100 - 60)
            count = 100 if self.options.list_bytes else 1
            tools = [
                {"name": f"t{i}", "description": fill, "inputSchema": {"type": "object"}}
                for i in range(count)
            ]
            self.answer(key, {"tools": tools, **cached})
        else:
            error = {"code": -32601, "message": f"no method {method}"}
            self.send({"jsonrpc": "2.0", "id": key, "error": error})

    # --- Tools ------------------------------------------------------------------------------

    def call_digest(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        self.answer_text(key, hashlib.sha256(asked["text"].encode("utf-8")).hexdigest())

    def call_text(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        sign = "x" if asked["kind"] == "ascii" else "\N{GRINNING FACE}"
        self.answer_text(key, sign * asked["count"])

    def call_write(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        self.write(asked["text"].replace("@ID@", str(key)).encode("latin-1"))

    def call_repeat(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        text = asked["start"] + "x" * asked["count"] + asked["end"] + "\n"
        self.call_write(key, {"text": text}, {})

    def call_flood(self, key: object, asked: JsonObject, meta: JsonObject) -> None:
        kinds: tuple[tuple[str, JsonObject], ...] = (
            ("progress", {"progressToken": meta.get("progressToken", 0), "progress": 1}),
            ("message", {"level": "info", "data": "flood"}),
            ("tools/list_changed", {}),
        )
        notifications = [
            {"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params}
            for name, params in kinds
        ]
        block = b"".join(json.dumps(message).encode() + b"\n" for message in notifications)
        together, left = 500, asked["count"]
        while left > 0:
            self.write(block * min(together, left))
            left -= together
        self.answer_text(key, "flooded")

    def call_endless(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        self.write(f'{{"jsonrpc":"2.0","id":{key},"result":{{"x":"'.encode())
        for is_second in (False, True):
            if is_second:
                self.control.wait_for("go")
            left = asked["bytes"] // 2
            while left > 0:
                self.write(CHUNK[:left])
                left -= len(CHUNK)
        self.write(b'"}}\n')

    def call_hold(self, key: object, _: JsonObject, __: JsonObject) -> None:
        if self.options.hold_in_line:
            self.control.wait_for("answer")
            self.answer_text(key, "held")

    def call_half(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        self.write(f'{{"jsonrpc":"2.0","id":{key},"result":{{"content":[{{"ty'.encode())
        os._exit(asked["code"])

    def call_signal(self, _: object, asked: JsonObject, __: JsonObject) -> None:
        os.kill(os.getpid(), asked["number"])

    def call_stop_reading(self, key: object, _: JsonObject, __: JsonObject) -> None:
        self.answer_text(key, "reads no more")
        self.control.wait_for("read")

    def call_close_stdin(self, key: object, _: JsonObject, __: JsonObject) -> None:
        os.close(0)
        self.answer_text(key, "hears no more")
        self.control.live_on()

    def call_close_stdout(self, *_: object) -> None:
        os.close(1)
        self.control.tell(done="close_stdout")
        while os.read(0, 1 << 16):
            pass

    def call_stderr(self, key: object, asked: JsonObject, _: JsonObject) -> None:
        write_all(2, asked["text"].encode("latin-1"))
        self.answer_text(key, "written")


def start_grandchild(kind: str, control: Control) -> None:
    """A process that outlives the server as far as it may; `kind` is a list of words."""
    words = kind.split("+")
    if os.fork() != 0:
        return
    if "session" in words:
        os.setsid()
    os.close(0)
    if "stdout" not in words:
        os.close(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    control.for_another("grandchild", tells_of_term="deaf" in words).live_on()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--control", type=int, default=0, metavar="PORT", help="of the test, on 127.0.0.1")
    add("--ignore-eof", action="store_true", help="live on at the end of stdin")
    add("--ignore-term", action="store_true", help="live on at SIGTERM")
    add("--never-read", action="store_true", help="leave stdin alone from the start")
    add("--silent", action="store_true", help="read everything and answer nothing")
    add("--banner", default="", help="latin-1 bytes for stdout before all else")
    add("--bom", action="store_true", help="a byte order mark before all else")
    add("--crlf", action="store_true", help="lines end with CR LF")
    add("--ascii", action="store_true", help="escapes for all that is not ASCII")
    add("--reply", action="append", default=[], metavar="METHOD=FILE", help='bytes: "result":...')
    add("--exit-after", default="", metavar="METHOD", help="exit 0 right after its answer")
    add("--exit-at-start", type=int, metavar="CODE")
    add("--exit-at-first-line", type=int, metavar="CODE")
    add("--last-words", default="", help="text for stderr before an exit at the start")
    add("--stderr-bytes", type=int, default=0, help="so many for stderr before each answer")
    add("--list-bytes", type=int, default=0, help="the rough size of the tool list")
    add("--hold-in-line", action="store_true", help="hold waits in the call; the test ends it")
    add("--grandchild", default="", metavar="WORDS", help="+-list of: session, stdout, deaf")
    add("--grandchild-after-discover", default="", metavar="WORDS")
    return parser.parse_known_args()[0]


def main() -> None:
    options = parse_arguments()
    control = Control(options.control, "server", tells_of_term=options.ignore_term)
    if options.last_words:
        write_all(2, options.last_words.encode() + b"\n")
    if options.exit_at_start is not None:
        os._exit(options.exit_at_start)
    if options.grandchild:
        start_grandchild(options.grandchild, control)
    write_all(1, b"\xef\xbb\xbf" * options.bom + options.banner.encode("latin-1"))
    Server(options, control).run()
    control.tell(done="stdin")
    if options.ignore_eof:
        control.live_on()
    sys.exit(0)


if __name__ == "__main__":
    main()
