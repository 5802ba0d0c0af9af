"""Check frames against the official types, from any Python: the client of `validate_frames.py`.

    checker = FrameChecker()
    checker.check("from_client", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
    checker.check("to_client", line_from_stdout)
    assert not checker.problems()

Tell it each frame in the order of the conversation: what the client sent before what it got.
"""

from __future__ import annotations

import atexit
import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from tests.run import ROOT, peer_python

SIDES: Final = ("from_client", "to_client", "to_server", "from_server")
STOP_SECONDS: Final = 5.0


class _Validator:
    """The one process that checks for all tests of a run.

    Threads: any. It answers reports only, so a frame is told without waiting.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module, in the mcp2 environment
            [str(peer_python("mcp2")), "-m", "tests.support.validate_frames"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()  # guards the two pipes
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, entry: dict[str, object]) -> None:
        with self._lock:
            self._write_locked(entry)

    def ask(self, entry: dict[str, object]) -> list[str]:
        stdout = self._process.stdout
        assert stdout is not None
        with self._lock:
            self._write_locked(entry)
            answer = stdout.readline()
        assert answer, "the process that checks frames has ended: see its stderr above"
        return list(json.loads(answer)["problems"])

    def _write_locked(self, entry: dict[str, object]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(entry).encode() + b"\n")
        stdin.flush()

    def stop(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


_validator: _Validator | None = None
_validator_lock = threading.Lock()  # guards the line above
_cases = itertools.count(1)


def _shared_validator() -> _Validator:
    global _validator  # noqa: PLW0603 - one process for a whole run of tests
    with _validator_lock:
        if _validator is None:
            _validator = _Validator()
        return _validator


class FrameChecker:
    """The frames of one conversation. Raises MissingPartError without the environment `mcp2`.

    `hostile` names the places, as in exemptions.py, that a hostile server of this test makes
    invalid itself.
    """

    def __init__(self, hostile: Sequence[str] = ()) -> None:
        self._validator = _shared_validator()
        self._case = next(_cases)
        self.hostile = list(hostile)

    def check(self, side: str, frame: bytes) -> None:
        """Tell one frame, with or without its line end."""
        assert side in SIDES, side
        text = frame.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
        self._validator.tell({"case": self._case, "side": side, "frame": text})

    def problems(self) -> list[str]:
        """What was wrong with the frames so far, one text each; the conversation ends with it."""
        return self._validator.ask({"case": self._case, "exempt": self.hostile})
