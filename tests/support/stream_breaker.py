"""Stand between a bridge and a real server, and end its listen stream when a call says so.

stream_breaker.py -- command...     Standard library only.

Lines pass through unchanged, both ways. A call of the tool `break` is answered here, after what its
argument `how` says: "result" and "cancel" end the open stream as a server may, "kill" kills the
server and starts another one, whose predecessor's requests fail, "tell" does nothing. The answer is
the JSON of how many events of which method the bridge was told so far.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

META_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def encoded(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


class Breaker:
    """Threads: the main one reads the bridge, one for each run of the server reads that."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._lock = threading.Lock()  # guards stdout and the four fields below
        self._told: dict[str, int] = {}
        self._waiting: dict[int, str] = {}  # the methods of the requests that have no reply
        self._streams: set[int] = set()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - the server of the test
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        threading.Thread(target=lambda: self._run_server(process), daemon=True).start()
        return process

    def _run_server(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        rest = b""
        while True:
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                with self._lock:
                    if process is self._process:
                        self._pass_locked(line)

    def _pass_locked(self, line: bytes) -> None:
        """One line of the server, unless it belongs to a stream that has ended."""
        message = json.loads(line)
        key = message.get("id")
        if "method" not in message:
            if self._waiting.pop(key, None) is None:
                return
            self._streams.discard(key)
        else:
            meta = (message.get("params") or {}).get("_meta") or {}
            stream = meta.get(META_SUBSCRIPTION_ID)
            if stream is not None:
                if stream not in self._streams:
                    return
                method = message["method"]
                self._told[method] = self._told.get(method, 0) + 1
        write_all(1, line + b"\n")

    def run(self) -> None:
        rest = b""
        while True:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._handle_client_line(line)
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        os._exit(process.wait() & 0xFF)

    def _handle_client_line(self, line: bytes) -> None:
        message = json.loads(line)
        method, key, params = message["method"], message.get("id"), message.get("params", {})
        with self._lock:
            if method == "tools/call" and params["name"] == "break":
                self._break_locked(params["arguments"]["how"])
                text = json.dumps(self._told)
                content = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
                write_all(1, encoded(id=key, result=content))
                return
            if key is not None:
                self._waiting[key] = method
            if method == "subscriptions/listen":
                self._streams.add(key)
            elif method == "notifications/cancelled":
                self._streams.discard(params["requestId"])
                self._waiting.pop(params["requestId"], None)
        self._write_to_server(line + b"\n")

    def _write_to_server(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it was killed
            write_all(self._process.stdin.fileno(), data)

    def _break_locked(self, how: str) -> None:
        if how == "kill":
            self._process.kill()
            self._process.wait()
            self._process = self._start()
            for key in [one for one in self._waiting if one not in self._streams]:
                del self._waiting[key]
                write_all(1, encoded(id=key, error={"code": -32000, "message": "killed"}))
        if how == "tell":
            return
        for stream in self._streams:
            self._waiting.pop(stream, None)
            if how == "result":
                result = {"resultType": "complete", "_meta": {META_SUBSCRIPTION_ID: stream}}
                write_all(1, encoded(id=stream, result=result))
            else:
                params = {"requestId": stream}
                write_all(1, encoded(method="notifications/cancelled", params=params))
            if how != "kill":
                ended = encoded(method="notifications/cancelled", params={"requestId": stream})
                self._write_to_server(ended)
        self._streams.clear()


if __name__ == "__main__":
    Breaker(sys.argv[sys.argv.index("--") + 1 :]).run()
