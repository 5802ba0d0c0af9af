"""A small server of revision 2026-07-28 whose list of tools changes with every call.

Each `tools/call` makes a new version of the list, and says so on every listen stream right before
its result, which names that version. `tools/list` has one tool, whose name is the version now. The
tool `quiet` changes nothing. Standard library and Python 3.9 only.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

META_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class Server:
    def __init__(self) -> None:
        self.version = 0
        self.streams: list[int] = []

    def notify(self, stream: int, method: str, **params: Any) -> Any:
        params["_meta"] = {META_SUBSCRIPTION_ID: stream}
        return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}

    def replies(self, message: Any) -> list[Any]:
        """What the server says to one message, in this order."""
        method, params, key = message["method"], message.get("params", {}), message.get("id")
        result: Any = {"resultType": "complete"}
        said: list[Any] = []
        if method == "notifications/cancelled":
            self.streams = [one for one in self.streams if one != params["requestId"]]
            return said
        if method == "subscriptions/listen":
            self.streams.append(key)
            wanted = params["notifications"]
            return [self.notify(key, "subscriptions/acknowledged", notifications=wanted)]
        if method == "server/discover":
            result["supportedVersions"] = ["2026-07-28"]
            result["capabilities"] = {"tools": {"listChanged": True}}
        elif method == "tools/list":
            result["tools"] = [{"name": str(self.version), "inputSchema": {"type": "object"}}]
        elif method == "tools/call":
            if params["name"] != "quiet":
                self.version += 1
                said = [self.notify(stream, "tools/list_changed") for stream in self.streams]
            result["content"] = [{"type": "text", "text": str(self.version)}]
        if method in ("server/discover", "tools/list"):
            result.update(ttlMs=0, cacheScope="private")
        return [*said, {"jsonrpc": "2.0", "id": key, "result": result}]


def main() -> None:
    server = Server()
    rest = b""
    while True:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            sys.exit(0)
        *lines, rest = (rest + chunk).split(b"\n")
        replies = [reply for line in lines for reply in server.replies(json.loads(line))]
        view = memoryview(b"".join(json.dumps(reply).encode() + b"\n" for reply in replies))
        while view:
            view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
