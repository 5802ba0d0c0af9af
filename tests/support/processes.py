"""The real file as a process, with a client at its pipes and a server that tells what it hears.

    with Bridge("--ignore-eof") as bridge:         # flags of hostile_server.py
        bridge.initialize()
        answer = bridge.call("echo", {"text": "hello"})
        bridge.close_stdin()
        assert bridge.wait() == 0

No test sleeps: output is waited for, and that a process is gone is proved by its connection, which
the kernel closes. When the block ends, whatever it did: the bridge and all its processes are gone,
stdout was JSON-RPC lines only, and no request was answered twice. Where the official types are
installed, the frames are checked against them as well.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Union

from tests.run import PEER_REQUIREMENTS, ROOT, folder_of, is_ready
from tests.support.frames import FrameChecker

WAIT_SECONDS: Final = 30.0  # bounds every wait; a good run never comes near it
STOP_SECONDS: Final = 8.0  # the watchdog of the bridge
SLACK_SECONDS: Final = 2.0  # VS Code sends TERM at 10 s

PRODUCT: Final = ROOT / "mcp_bridge_vscode.py"
HOSTILE: Final = Path(__file__).resolve().parent / "hostile_server.py"
ISOLATED: Final = ("-I", "-S", "-E")
PROGRAM: Final = (sys.executable, *ISOLATED, str(PRODUCT))
FENCE: Final = "fence"
CLIENT: Final = {"name": "test", "version": "1"}
LARGEST_CHECKED: Final = 100_000  # bytes of a frame that goes to the checker of the official types

Json = Any
Id = Union[int, str]


def write_all(descriptor: int, data: bytes) -> None:
    """All is written to a pipe that never blocks, or the reader has taken nothing for too long."""
    view = memoryview(data)
    while view:
        _, ready, _ = select.select([], [descriptor], [], WAIT_SECONDS)
        assert ready, "the bridge takes nothing from its stdin"
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(descriptor, view) :]


class Log:
    """A list that one thread fills and others wait for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the three fields below
        self._items: list[Any] = []
        self._named: dict[str, Any] = {}
        self._is_ended = False

    def add(self, item: object, name: str = "") -> None:
        with self._changed:
            self._items.append(item)
            self._named.setdefault(name, item)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def items(self) -> list[Any]:
        """So far; more may be on its way."""
        with self._changed:
            return list(self._items)

    def whole(self) -> list[Any]:
        """All of them, once nothing comes any more."""
        assert self.wait_end(), f"more may come after: {self.items()[-5:]}"
        return self.items()

    def find(self, is_wanted: Callable[[Any], bool]) -> Any:
        """The first item that is wanted; None when the log has ended or the wait is over."""
        return self._wait_for(lambda seen: next(filter(is_wanted, self._items[seen:]), None))

    def named(self, name: str) -> Any:
        """The first item of this name, or None in the same way."""
        return self._wait_for(lambda _: self._named.get(name))

    def _wait_for(self, look: Callable[[int], Any]) -> Any:
        """What `look` finds; it is told how many items it has seen."""
        with self._changed:
            found, seen = look(0), len(self._items)
            while found is None and not self._is_ended:
                if not self._changed.wait(WAIT_SECONDS):
                    return None
                found, seen = look(seen), len(self._items)
            return found

    def wait_end(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_ended, WAIT_SECONDS)

    def has_ended(self) -> bool:
        with self._changed:
            return self._is_ended


class Life:
    """A process that is connected to us: what it tells, and when the kernel says it is gone."""

    def __init__(self, connection: socket.socket, on_first: Callable[[Life], None]) -> None:
        self._connection = connection
        self._on_first = on_first
        self.events = Log()
        self.role = ""
        self.pid = self.parent = self.group = self.session = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # A reset is an end as well: it comes when the process is killed with words of ours unread.
        with contextlib.suppress(OSError), self._connection.makefile("rb") as stream:
            for line in stream:
                event = json.loads(line)
                if not self.role:
                    self.role, self.pid = event["role"], event["pid"]
                    self.parent, self.group = event["parent"], event["group"]
                    self.session = event["session"]
                    self._on_first(self)
                self.events.add(event)
        self.events.end()

    def say(self, word: str) -> None:
        self._connection.sendall(word.encode() + b"\n")

    def hear(self, **wanted: object) -> Json:
        """The first event with these members."""
        found = self.events.find(lambda event: wanted.items() <= event.items())
        assert found is not None, f"{self.role} never told {wanted}: {self.events.items()[-5:]}"
        return found

    def wait_gone(self) -> None:
        assert self.events.wait_end(), f"the process {self.pid} ({self.role}) lives on"

    def is_gone(self) -> bool:
        return self.events.has_ended()

    def kill(self) -> None:
        """It is killed while its connection proves that the number is its own."""
        if self.pid > 0 and not self.is_gone():  # 0 until it has said who it is, and 0 is our group
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.events.wait_end()
        self._connection.close()


class Control:
    """Where the processes of one test connect to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lives = Log()
        self._connections: list[Life] = []
        self._fences = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self._connections.append(Life(connection, self.lives.add))

    def life(self, role: str, nth: int = 0) -> Life:
        """The nth process that has connected as this."""
        count = 0

        def is_wanted(life: Life) -> bool:
            nonlocal count
            count += life.role == role
            return life.role == role and count == nth + 1

        found = self.lives.find(is_wanted)
        assert found is not None, f"no {role} {nth} has started"
        assert isinstance(found, Life)
        return found

    def connections(self) -> list[Life]:
        """Every process that has connected, also one that has not said yet who it is."""
        return list(self._connections)

    def wait_accepted(self) -> None:
        """Whoever connected before this call is among the connections: they come in order."""
        with socket.create_connection(("127.0.0.1", self.port)) as fence:
            me = dict.fromkeys(("pid", "parent", "group", "session"), 0)
            fence.sendall(json.dumps({"role": FENCE, **me}).encode() + b"\n")
            accepted = self.life(FENCE, self._fences)
        accepted.wait_gone()
        self._fences += 1

    def close(self) -> list[Life]:
        """Nobody can connect any more; returns whoever is still there."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_SECONDS)
        return [life for life in self._connections if not life.is_gone()]


def parse_int(text: str) -> int | str:
    """Newer Pythons refuse integers of very many digits; here they stay text."""
    return int(text) if len(text) < 4000 else text


class Frame:
    """One line of the bridge's stdout."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.problem = ""
        self.message: Json = None
        try:
            self.message = json.loads(line.decode("utf-8"), parse_int=parse_int)
        except ValueError as error:
            self.problem = f"stdout has a line that is no JSON: {line[:200]!r} ({error})"
        else:
            if not isinstance(self.message, dict) or self.message.get("jsonrpc") != "2.0":
                self.problem = f"stdout has a line that is no JSON-RPC: {line[:200]!r}"

    def key(self) -> str:
        """Of a response: its id as JSON text. Else an empty string."""
        message = self.message
        if self.problem or "method" in message or "id" not in message:
            return ""
        return json.dumps(message["id"])


class Bridge:
    """One run of the product, from its start to the proof that nothing of it is left.

    `flags` are for the hostile server, `wrapper` starts it, `command` is instead of it. `keeps` are
    the roles of processes that may live on. `hostile` are places in frames that the server of the
    test makes invalid, as in exemptions.py. Threads: the test's own, and one for each stream.
    """

    def __init__(
        self,
        *flags: str,
        options: Sequence[str] = (),
        command: Sequence[str] | None = None,
        python: str = sys.executable,
        wrapper: Sequence[str] = (),
        program: Sequence[str] = PROGRAM,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        reads: bool = True,
        closed: Iterable[int] = (),
        keeps: Iterable[str] = (),
        hostile: Sequence[str] = (),
        checks_frames: bool = True,
    ) -> None:
        self.control = Control()
        self._keeps = set(keeps)
        self._hostile = hostile
        self._checks_frames = checks_frames
        self._closes = self._may_cut = False
        self._reads = threading.Event()
        if reads:
            self._reads.set()
        self._last_id = 0
        self._fences = 0
        self._sent: list[bytes] = []
        self.frames = Log()
        self._log = Log()
        if command is None:
            command = [*wrapper, *self.server_command(*flags, python=python)]
        closers = " ".join(f"{descriptor}>&-" for descriptor in sorted(closed))
        argv = [*program, *options, "--", *command]
        if closers:
            argv = ["/bin/sh", "-c", f'exec "$@" {closers}', "sh", *argv]
        self.process = subprocess.Popen(  # noqa: S603 - the product, with a server of ours
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=env,
        )
        self.pid = self.process.pid
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)
        for body in (self._run_stdout, self._run_stderr):
            threading.Thread(target=body, daemon=True).start()

    def server_command(self, *flags: str, python: str = sys.executable) -> list[str]:
        port = str(self.control.port)
        return [python, *ISOLATED, str(HOSTILE), "--control", port, *flags]

    # --- What comes out ---------------------------------------------------------------------

    def _run_stdout(self) -> None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        parts: list[bytes] = []
        while True:
            self._reads.wait()
            chunk = os.read(descriptor, 1 << 18)
            if self._closes and b"\n" in chunk:
                self.process.stdout.close()
                self.frames.end()
                return
            if b"\n" in chunk:
                *lines, rest = b"".join([*parts, chunk]).split(b"\n")
                parts = []
                for line in lines:
                    frame = Frame(line)
                    self.frames.add(frame, frame.key())
                chunk_rest = rest
            else:
                chunk_rest = chunk
            if chunk_rest:
                parts.append(chunk_rest)
            if not chunk:
                if parts and not self._may_cut:
                    self.frames.add(Frame(b"".join(parts)))
                self.frames.end()
                return

    def _run_stderr(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self._log.add(line)
        self._log.end()

    def read_on(self) -> None:
        """The client reads again; for a bridge that was started with reads=False."""
        self._reads.set()

    def pause(self) -> None:
        """The client reads no more, after what is on its way to it."""
        self._reads.clear()

    def wait_readable(self) -> None:
        """The bridge has begun to write what the paused client does not read."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WAIT_SECONDS)
        assert ready, "nothing came"

    def forgive_cut_line(self) -> None:
        """The last line may be cut: the client had stopped to read when the bridge ended."""
        self._may_cut = True

    def stop_reading_for_good(self) -> None:
        """The client's end of stdout is closed, once its next line has come."""
        self._closes = True

    def stderr(self) -> bytes:
        """All of it, once nobody can write to it any more."""
        return b"".join(self._log.whole())

    def hear_log(self, text: str) -> str:
        """The first line of stderr with this text."""
        wanted = text.encode()
        found = self._log.find(lambda line: wanted in line)
        assert found is not None, f"stderr never said {text!r}: {b''.join(self._log.items())!r}"
        assert isinstance(found, bytes)
        return found.decode("utf-8", "replace")

    # --- What goes in -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.process.stdin is not None
        write_all(self.process.stdin.fileno(), data)

    def send(self, method: str, params: Json = None, key: Id | None = None) -> Id:
        """A request goes out; returns its id."""
        if key is None:
            self._last_id += 1
            key = self._last_id
        self._write_message({"jsonrpc": "2.0", "id": key, "method": method, "params": params or {}})
        return key

    def notify(self, method: str, params: Json = None) -> None:
        self._write_message({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def _write_message(self, message: Json) -> None:
        line = json.dumps(message).encode()
        self.write(line + b"\n")
        if len(line) > LARGEST_CHECKED:  # stands for it, when the types are checked
            line = json.dumps(
                {**message, "params": {**message["params"], "arguments": {}}}
            ).encode()
        self._sent.append(line)

    def send_call(self, tool: str, arguments: Json = None, key: Id | None = None) -> Id:
        token = self._last_id + 1 if key is None else key
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": token}}
        return self.send("tools/call", params, key)

    def cancel(self, key: Id) -> None:
        self.notify("notifications/cancelled", {"requestId": key})

    def answer(self, key: Id) -> Json:
        """The response to this id. Fails at once when stdout ends without it."""
        return self.answer_frame(key).message

    def answer_frame(self, key: Id) -> Frame:
        found = self.frames.named(json.dumps(key))
        assert found is not None, (
            f"no answer to {key!r}; exit code {self.process.poll()},"
            f" stderr {b''.join(self._log.items())[-2000:]!r}"
        )
        assert isinstance(found, Frame)
        return found

    def ask(self, method: str, params: Json = None) -> Json:
        return self.answer(self.send(method, params))

    def call(self, tool: str, arguments: Json = None) -> Json:
        return self.answer(self.send_call(tool, arguments))

    def echo(self, text: str = "hello") -> None:
        """A call goes through: the bridge works."""
        assert text_of(self.call("echo", {"text": text})) == text

    def send_initialize(self) -> Id:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
        return self.send("initialize", params)

    def initialize(self) -> Json:
        """The connection is ready; returns the result."""
        answer = self.answer(self.send_initialize())
        assert "result" in answer, f"initialize failed: {answer}"
        self.notify("notifications/initialized")
        return answer["result"]

    def server(self) -> Life:
        return self.control.life("server")

    def grandchild(self) -> Life:
        return self.control.life("grandchild")

    def server_heard(self, method: str) -> list[Json]:
        """The events of this method until now: the server tells of an echo after them.

        What it answers comes another way than what it tells, and proves nothing of it.
        """
        self._fences += 1
        fence = f"fence {self._fences}"
        self.echo(fence)
        events = self.server().events
        assert events.find(lambda event: fence in event.get("line", "")), "it told of no echo"
        return [event for event in events.items() if event.get("heard") == method]

    def lives(self) -> list[Life]:
        """Every process that was started and connected; nothing of them is left by now."""
        assert self._log.wait_end(), "somebody still holds stderr"
        self.wait_gone()
        return [life for life in self.control.lives.items() if life.role != FENCE]

    # --- The end ----------------------------------------------------------------------------

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code; the client reads until then unless it was told not to."""
        return self.process.wait(WAIT_SECONDS)

    def end(self) -> int:
        """Stdin ends; returns the exit code."""
        self.close_stdin()
        return self.wait()

    def wait_gone(self) -> None:
        """The bridge, its server and all that it started are gone."""
        self.wait()
        self.control.wait_accepted()
        for life in self.control.connections():
            if life.role not in self._keeps:
                life.wait_gone()

    def status_text(self, name: str) -> str:
        """A line of /proc/<pid>/status."""
        return process_status(self.pid, name)

    def status(self, name: str) -> int:
        """A number of it; sizes in bytes."""
        number, *unit = self.status_text(name).split()
        return int(number) * (1024 if unit == ["kB"] else 1)

    def __enter__(self) -> Bridge:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._reads.set()
            if error is None:
                self.end()
                self.wait_gone()
        finally:
            left = self._remove_all()
        if error is None:
            strays = [f"{life.role} {life.pid}" for life in left if life.role not in self._keeps]
            assert not strays, f"processes were left: {strays}"
            self._check_frames()

    def _remove_all(self) -> list[Life]:
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(OSError):
            self.close_stdin()
        self.process.wait(WAIT_SECONDS)
        left = self.control.close()
        for life in left:
            life.kill()
            life.close()
        for life in self.control.connections():
            life.close()
        self.frames.wait_end()
        self._log.wait_end()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return left

    def _check_frames(self) -> None:
        """Stdout was JSON-RPC lines only, and no request was answered twice."""
        frames = self.frames.whole()
        problems = [frame.problem for frame in frames if frame.problem]
        assert not problems, problems
        keys = [frame.key() for frame in frames if frame.key() not in ("", "null")]
        twice = [key for key, count in collections.Counter(keys).items() if count > 1]
        assert not twice, f"answered more than once: {twice}"
        if self._checks_frames and is_ready(folder_of("mcp2", PEER_REQUIREMENTS["mcp2"])):
            self._check_types(frames)

    def _check_types(self, frames: Sequence[Frame]) -> None:
        checker = FrameChecker(self._hostile)
        for line in self._sent:
            checker.check("from_client", line)
        for frame in frames:
            if len(frame.line) < LARGEST_CHECKED:
                checker.check("to_client", frame.line)
        for life in self.control.lives.items():
            for event in life.events.whole():
                if "line" in event:
                    checker.check("to_server", event["line"].encode("utf-8", "surrogatepass"))
        problems = checker.problems()
        assert not problems, "\n".join(problems)


def process_status(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    raise AssertionError(f"/proc/{pid}/status has no {name}")


def text_of(answer: Json) -> str:
    """The text of a tool's answer."""
    assert "result" in answer, answer
    text = answer["result"]["content"][0]["text"]
    assert isinstance(text, str)
    return text


def cause_of(answer: Json) -> str:
    """The cause of an error answer."""
    assert "error" in answer, answer
    cause = answer["error"]["data"]["cause"]
    assert isinstance(cause, str)
    return cause


def detail_of(answer: Json) -> str:
    detail = answer["error"]["data"]["detail"]
    assert isinstance(detail, str)
    return detail
