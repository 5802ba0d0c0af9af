"""Stand between two programs and write down every line: recorder.py FILE IN OUT -- command...

Bytes pass through unchanged, both ways. Each complete line becomes one JSON line of FILE, before it
is passed on: {"side": IN, "frame": "..."} for what goes to the command's stdin, OUT for what comes
from its stdout. Around the bridge the sides are from_client and to_client, around a server
to_server and from_server. Bytes that are no UTF-8 are lone surrogates in "frame".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

CHUNK_BYTES = 65536


class Record:
    """The file. Both directions append to it, one line at a time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, side: str, line: bytes) -> None:
        frame = line.decode("utf-8", "surrogateescape")
        os.write(self._file, json.dumps({"side": side, "frame": frame}).encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def copy(source: int, target: int, record: Record, side: str) -> None:
    """Until the end of the source. An unfinished last line is a line too."""
    rest = b""
    while True:
        chunk = os.read(source, CHUNK_BYTES)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines if chunk else [*lines, *filter(None, [rest])]:
            record.add(side, line)
        if not chunk:
            return
        try:
            write_all(target, chunk)
        except OSError:  # the reader has gone; what comes is still on record
            target = os.open(os.devnull, os.O_WRONLY)


def main() -> None:
    path, side_in, side_out = sys.argv[1:4]
    command = sys.argv[sys.argv.index("--") + 1 :]
    record = Record(path)
    child = subprocess.Popen(  # noqa: S603 - the command of the test
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child_stdin, child_stdout = child.stdin, child.stdout

    def feed() -> None:
        copy(0, child_stdin.fileno(), record, side_in)
        child_stdin.close()

    threading.Thread(target=feed, daemon=True).start()
    copy(child_stdout.fileno(), 1, record, side_out)
    # Not sys.exit: the thread may sit in a read of a stdin that stays open.
    os._exit(child.wait() & 0xFF)


def read_record(path: Path) -> list[tuple[str, bytes]]:
    """What a recorder wrote: the side and the bytes of each line, in order."""
    frames = []
    for line in path.read_bytes().splitlines():
        entry = json.loads(line)
        frames.append((entry["side"], entry["frame"].encode("utf-8", "surrogateescape")))
    return frames


if __name__ == "__main__":
    main()
