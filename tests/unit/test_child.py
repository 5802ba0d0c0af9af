"""child: what stands for Windows and macOS here, as tables and with fakes of the system's calls.

How a real child lives and ends on this system is in tests/process.
"""

from __future__ import annotations

import ctypes
import errno
import ntpath
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

import mcp_bridge_vscode as bridge
from tests.support.processes import HOSTILE, ISOLATED, WAIT_SECONDS, Control

SHELL: Final = r"C:\Windows\System32\cmd.exe"
START: Final = f'"{SHELL}" /d /e:on /v:off /s /c '


def failure(error: pytest.ExceptionInfo[bridge.BridgeError]) -> str:
    assert error.value.cause is bridge.Cause.SPAWN_FAILED
    return error.value.detail


# --- The environment ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MCP_BRIDGE_CLIENT_SECRET", "MCP_BRIDGE_TOKEN_KEY"])
@pytest.mark.parametrize("spell", [str.upper, str.lower, str.title])  # Windows ignores case
def test_the_child_never_gets_our_secrets(name: str, spell: Any) -> None:
    found = bridge.child_environment({spell(name): "s3cret", "PATH": "/bin", "EMPTY": ""})
    assert found == {"PATH": "/bin", "EMPTY": ""}


def test_the_child_gets_everything_else() -> None:
    given = {"MCP_BRIDGE": "1", "MCP_BRIDGE_TOKEN_KEY_": "2", "X_MCP_BRIDGE_TOKEN_KEY": "3"}
    assert bridge.child_environment(given) == given


# --- A Windows that is made of fakes ------------------------------------------------------------


class FakeWindows:
    """The parts of `os` that the child's start uses, over a made-up file system."""

    name = "nt"
    pathsep = ";"
    defpath = r".;C:\bin"
    X_OK = os.X_OK

    def __init__(self, files: Sequence[str], environment: Mapping[str, str]) -> None:
        self.files = {file.lower() for file in files}
        self.environ = dict(environment)
        self.path = SimpleNamespace(
            **{n: getattr(ntpath, n) for n in ("dirname", "join", "isabs", "splitext")},
            isfile=self.isfile,
            abspath=self.abspath,
        )

    def isfile(self, path: str) -> bool:
        return self.abspath(path).lower().rstrip(". ") in self.files  # as Windows reads names

    def abspath(self, path: str) -> str:
        return ntpath.normpath(ntpath.join(r"C:\work", path))

    def access(self, path: str, mode: int) -> bool:
        return self.isfile(path) and mode == os.X_OK

    def getcwd(self) -> str:
        return r"C:\work"


FILES: Final = (
    r"C:\work\node.exe",
    r"C:\work\node.cmd",
    r"C:\work\sub\tool.cmd",
    r"C:\nodejs\node.exe",
    r"C:\nodejs\npx",
    r"C:\nodejs\npx.cmd",
    r"C:\later\node.exe",
    r"C:\later\tool.bat",
    r"C:\later\tool.cmd",
    r"C:\a&calc&\tool.cmd",
    r"C:\two words\uvx.exe",
)
PATH: Final = r".;;sub;C:\nodejs;C:\later;C:\two words"


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWindows]:
    fake = FakeWindows(FILES, {"PATH": PATH, "SYSTEMROOT": r"C:\Windows", "TOKEN": "kept"})
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "os", fake)
        yield fake


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("node", r"C:\nodejs\node.exe"),  # not the two of the working directory
        ("node.exe", r"C:\nodejs\node.exe"),
        ("npx", r"C:\nodejs\npx.cmd"),  # not the shell script beside it
        ("npx.cmd", r"C:\nodejs\npx.cmd"),
        ("tool", r"C:\later\tool.bat"),  # .BAT comes before .CMD in PATHEXT
        ("uvx", r"C:\two words\uvx.exe"),
        (r"sub\tool", r"C:\work\sub\tool.cmd"),  # spelled out: relative to the working directory
        (r".\node.cmd", r"C:\work\node.cmd"),
        (r"C:\later\tool.cmd", r"C:\later\tool.cmd"),
        ("C:/later/node", r"C:\later\node.exe"),
    ],
)
def test_windows_starts_the_program_of_the_path(
    windows: FakeWindows, command: str, found: str
) -> None:
    assert bridge.find_program(command, windows.environ).lower() == found.lower()


@pytest.mark.parametrize("command", ["tool.com", "work", r"sub\nothing", "node.cmd"])
def test_windows_names_what_it_did_not_find(windows: FakeWindows, command: str) -> None:
    with pytest.raises(bridge.BridgeError) as error:
        bridge.find_program(command, windows.environ)
    assert command in failure(error)
    assert "\\" in command or PATH in failure(error)


def test_windows_looks_for_the_suffixes_of_its_own_variable(windows: FakeWindows) -> None:
    windows.environ["PATHEXT"] = ".CMD;;.EXE"
    assert bridge.find_program("tool", windows.environ).lower() == r"c:\later\tool.cmd"


# --- Batch files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], r'"C:\n\t.cmd"'),
        (["a&calc"], r'"C:\n\t.cmd" "a&calc"'),
        (["^1.2"], r'"C:\n\t.cmd" "^1.2"'),
        (["a|b>c<d(e)f!g"], r'"C:\n\t.cmd" "a|b>c<d(e)f!g"'),
        (["two words", ""], r'"C:\n\t.cmd" "two words" ""'),
        (["dir\\"], r'"C:\n\t.cmd" "dir\\"'),  # a quote behind one backslash would be escaped
        (["dir\\\\", "next"], r'"C:\n\t.cmd" "dir\\\\" "next"'),
        (["a\\b"], r'"C:\n\t.cmd" "a\b"'),
        (["--x=y;z,w", "\N{PARTY POPPER}"], '"C:\\n\\t.cmd" "--x=y;z,w" "\N{PARTY POPPER}"'),
    ],
)
def test_a_batch_file_gets_literal_arguments(arguments: list[str], line: str) -> None:
    found = bridge.batch_command_line(r"C:\n\t.cmd", arguments, SHELL)
    assert found == f'{START}"{line}"'  # with /s the outer quotes go, and nothing else does


@pytest.mark.parametrize("bad", ['x"y', "%PATH%", "50%", "a\rb", "a\nb", "a\0b"])
@pytest.mark.parametrize("position", [1, 3])
def test_an_argument_that_a_batch_file_cannot_be_given_is_named_by_its_position(
    bad: str, position: int
) -> None:
    arguments = ["ok"] * (position - 1) + [bad, "ok"]
    with pytest.raises(bridge.BridgeError) as error:
        bridge.batch_command_line(r"C:\n\t.cmd", arguments, SHELL)
    assert f"argument {position}" in failure(error)
    assert bad not in failure(error), "a value may be a secret"


def test_a_batch_file_in_a_folder_that_cmd_would_expand_is_refused() -> None:
    with pytest.raises(bridge.BridgeError) as error:
        bridge.batch_command_line(r"C:\100%\t.cmd", [], SHELL)
    assert "path of the command" in failure(error)


class Started:
    """What was handed to Popen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.command: Any = None
        self.options: dict[str, Any] = {}
        monkeypatch.setattr(subprocess, "Popen", self._start)

    def _start(self, command: Any, **options: Any) -> Any:
        assert self.command is None, "started once"
        self.command, self.options = command, options
        return SimpleNamespace(pid=1)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("tool.cmd", r"C:\later\tool.cmd"),
        (r"C:\later\tool.BAT.", r"C:\later\tool.BAT."),
        (r"C:\later\tool.cmd ", r"C:\later\tool.cmd "),
        (r"C:\a&calc&\tool.cmd", r"C:\a&calc&\tool.cmd"),
    ],
)
def test_windows_runs_a_batch_file_by_cmd_with_our_command_line(
    windows: FakeWindows, monkeypatch: pytest.MonkeyPatch, command: str, program: str
) -> None:
    started = Started(monkeypatch)
    bridge.start_process([command, "a&calc", "^1.2"])
    assert started.command.lower() == f'{START}""{program}" "a&calc" "^1.2""'.lower()
    assert started.options["executable"] == SHELL
    assert not started.options.get("shell")
    assert windows.environ == started.options["env"]


@pytest.mark.parametrize("bad", ["%PATH%", 'x"y'])
def test_windows_starts_nothing_for_an_argument_that_cannot_be_carried(
    windows: FakeWindows, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    started = Started(monkeypatch)
    with pytest.raises(bridge.BridgeError) as error:
        bridge.start_process([r"C:\later\tool.cmd ", "ok", bad])
    assert "argument 2" in failure(error)
    assert started.command is None
    assert windows.files


@pytest.mark.parametrize("argument", ["a&calc", "%PATH%", 'x"y', "two words", ""])
def test_windows_hands_a_real_program_its_arguments_as_they_are(
    windows: FakeWindows, monkeypatch: pytest.MonkeyPatch, argument: str
) -> None:
    windows.environ["MCP_BRIDGE_TOKEN_KEY"] = "k3y"  # noqa: S105 - made up
    started = Started(monkeypatch)
    bridge.start_process(["node", argument], windows_flags=0x4)
    assert started.command == ["node", argument]
    assert started.options["executable"].lower() == r"c:\nodejs\node.exe"
    assert started.options["creationflags"] == 0x08000000 | 0x4  # no window, and suspended
    assert started.options["start_new_session"] is False
    assert "MCP_BRIDGE_TOKEN_KEY" not in started.options["env"]
    assert started.options["stderr"] is None, "inherited"


# --- The job object -----------------------------------------------------------------------------

HANDLE: Final = 0x1_0000_00F4  # more than 32 bits: a handle that is cut is another one
JOB: Final = 0x2_0000_0123


class FakeCalls:
    """Records the calls, in order; the named one fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.made: list[tuple[Any, ...]] = []

    def _note(self, *call: Any) -> bool:
        self.made.append(call)
        return str(call[0]) != self.failing

    def CreateJobObjectW(self, security: None, name: None) -> int | None:  # noqa: N802
        return JOB if self._note("create", security, name) else None

    def SetInformationJobObject(  # noqa: N802
        self, job: int | None, kind: int, limits: bytes, size: int
    ) -> int:
        return int(self._note("limit", job, kind, limits, size))

    def AssignProcessToJobObject(self, job: int | None, process: int) -> int:  # noqa: N802
        return int(self._note("assign", job, process))

    def NtResumeProcess(self, process: int) -> int:  # noqa: N802
        return 0 if self._note("resume", process) else -1

    def TerminateJobObject(self, job: int | None, code: int) -> int:  # noqa: N802
        return int(self._note("terminate", job, code))


class FakeProcess:
    _handle = HANDLE

    def __init__(self) -> None:
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION of winnt.h, on 64 bits."""

    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


def job_of(calls: FakeCalls, process: FakeProcess) -> bridge.WindowsJob:
    return bridge.WindowsJob(process, calls)  # type: ignore[arg-type]  # a fake of Popen


def test_a_process_runs_only_once_it_is_in_a_job_that_ends_with_us() -> None:
    calls, process = FakeCalls(), FakeProcess()
    job_of(calls, process)
    assert [call[0] for call in calls.made] == ["create", "limit", "assign", "resume"]
    _, limit, assign, resume = calls.made
    assert limit[1:3] == (JOB, 9)  # JobObjectExtendedLimitInformation
    assert assign == ("assign", JOB, HANDLE)
    assert resume == ("resume", HANDLE)
    assert not process.is_killed


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the layout is that of 64 bits")
def test_the_limits_of_the_job_are_kill_on_close_and_nothing_else() -> None:
    calls = FakeCalls()
    job_of(calls, FakeProcess())
    [(_, _, _, limits, size)] = [call for call in calls.made if call[0] == "limit"]
    assert size == len(limits) == ctypes.sizeof(ExtendedLimits)
    wanted = ExtendedLimits()
    wanted.BasicLimitInformation.LimitFlags = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    assert limits == bytes(wanted)


@pytest.mark.parametrize("failing", ["create", "limit", "assign", "resume"])
def test_a_process_that_is_in_no_job_never_runs(failing: str) -> None:
    calls, process = FakeCalls(failing), FakeProcess()
    with pytest.raises(bridge.BridgeError) as error:
        job_of(calls, process)
    assert "job" in failure(error)
    assert process.is_killed
    assert calls.made[-1][0] == failing, "nothing was tried after the failure"


def test_a_job_is_terminated_as_a_whole() -> None:
    calls = FakeCalls()
    job_of(calls, FakeProcess()).terminate()
    assert calls.made[-1] == ("terminate", JOB, 1)


class FakeLibrary:
    def __init__(self, name: str, **_: object) -> None:
        self.name = name
        self.functions: dict[str, SimpleNamespace] = {}

    def __getattr__(self, name: str) -> Any:
        return self.functions.setdefault(name, SimpleNamespace())


def test_every_call_of_windows_has_its_types_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries: list[FakeLibrary] = []

    def load(name: str, **options: object) -> FakeLibrary:
        libraries.append(FakeLibrary(name, **options))
        return libraries[-1]

    monkeypatch.setattr(ctypes, "WinDLL", load, raising=False)
    calls = bridge.load_windows_calls()
    wide = ctypes.sizeof(ctypes.c_void_p)
    for library in libraries:
        for name, function in library.functions.items():
            assert getattr(calls, name) is function
            assert function.restype is not None
            handles = 2 if name == "AssignProcessToJobObject" else 1
            sizes = [ctypes.sizeof(kind) for kind in function.argtypes]
            assert sizes[:handles] == [wide] * handles, "an undeclared handle is cut to an int"
    declared = {name for library in libraries for name in library.functions}
    assert declared == {name for name in vars(FakeCalls) if name[0].isupper()}
    kernel, nt = libraries
    assert kernel.functions["CreateJobObjectW"].restype is ctypes.c_void_p
    assert list(nt.functions) == ["NtResumeProcess"]


# --- POSIX --------------------------------------------------------------------------------------


def put(folder: Path, name: str, mode: int) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_a_file_that_may_not_run_does_not_hide_a_later_one_that_may(tmp_path: Path) -> None:
    put(tmp_path / "a", "tool", 0o644)
    wanted = put(tmp_path / "b", "tool", 0o755)
    put(tmp_path / "c", "tool", 0o755)
    path = os.pathsep.join(str(tmp_path / name) for name in "abc")
    assert bridge.find_program("tool", {"PATH": path}) == wanted


def test_without_a_path_the_default_of_the_system_is_searched() -> None:
    assert bridge.find_program("sh", {}).endswith("/sh")


def test_the_detail_of_an_unknown_refusal_is_the_name_of_its_number() -> None:
    detail = bridge._spawn_detail(OSError(errno.E2BIG, "text of the system"), "/x/tool")
    assert "E2BIG" in detail
    assert "/x/tool" in detail
    assert "text of the system" not in detail


def test_a_nul_in_an_argument_is_said() -> None:
    with pytest.raises(bridge.BridgeError) as error:
        bridge.start_process(["sh", "a\0b"])
    assert "NUL" in failure(error)


def test_only_linux_ties_a_child_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert bridge.load_death_tie(1) is None


# --- A child without os.waitid, as on macOS -----------------------------------------------------


class Heard:
    """A receiver that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.status = ""
        self.ended = threading.Event()

    def handle_line(self, line: bytes) -> None:
        self.lines.append(line)

    def handle_long_line(self, line: bridge.LongLine) -> None:
        raise AssertionError(line)

    def handle_pause(self) -> None:
        pass

    def handle_deaf(self) -> None:
        raise AssertionError("deaf")

    def handle_end(self, status: str) -> None:
        self.status = status
        self.ended.set()


class GraceClock(bridge.Clock):
    """A grace is over at the next look at the clock, or never: as `is_over` says."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._now = 0.0

    def now(self) -> float:
        if self._is_over():
            self._now += WAIT_SECONDS
        return self._now


class Run:
    """A child of this process. No grace measures the machine: who ends has the time to do so."""

    def __init__(self, *flags: str) -> None:
        self._ends_with_its_input = "--ignore-eof" not in flags
        is_stubborn = "--ignore-term" in flags or "deaf" in flags
        self._last_signal = "SIGKILL" if is_stubborn else "SIGTERM"
        self._signals: list[str] = []
        self.control = Control()
        self.heard = Heard()
        self.crashes: list[BaseException] = []
        command = [sys.executable, *ISOLATED, str(HOSTILE), "--control", str(self.control.port)]
        limits = bridge.LIMITS.replace(grace_seconds=WAIT_SECONDS)
        self.child = bridge.Child(
            [*command, *flags],
            self.heard,
            limits=limits,
            clock=GraceClock(self._is_grace_over),
            log=bridge.Log(os.open(os.devnull, os.O_WRONLY), bridge.LogLevel.DEBUG, limits),
            run_worker=lambda job: threading.Thread(target=job, daemon=True).start(),
            on_crash=lambda _, error: self.crashes.append(error),
        )
        signal_group = self.child._signal_group

        def note(name: str) -> None:
            signal_group(name)
            self._signals.append(name)

        self.child._signal_group = note  # type: ignore[method-assign]  # seen once it is sent
        self.child.start()
        self.server = self.control.life("server")

    def _is_grace_over(self) -> bool:
        """No: it is about to end with its input, or by the last signal."""
        if self._ends_with_its_input and not self.heard.ended.is_set():
            return False
        return self._last_signal not in self._signals

    def end(self) -> str:
        """It is stopped, gone and reaped; returns the status that was told."""
        self.child.stop()
        self.server.wait_gone()
        assert self.heard.ended.wait(WAIT_SECONDS)
        for life in self.control.lives.items():
            life.wait_gone()
            life.close()
        assert not self.control.close()
        assert not self.crashes
        process = self.child._process
        assert process is not None
        assert process.stdout is not None
        process.stdout.close()
        assert not os.path.exists(f"/proc/{self.server.pid}"), "it was not reaped"
        return self.heard.status


@pytest.fixture(params=["waitid", "no waitid"])
def _waitid(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no waitid":
        monkeypatch.delattr(os, "waitid", raising=False)


@pytest.mark.usefixtures("_waitid")
@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ((), "code 0"),
        (("--ignore-eof",), "signal SIGTERM"),
        (("--ignore-eof", "--ignore-term"), "signal SIGKILL"),
        (("--ignore-eof", "--ignore-term", "--grandchild", "deaf"), "signal SIGKILL"),
        (("--grandchild", "deaf"), "code 0"),
    ],
    ids=str,
)
def test_a_stop_leaves_nothing_and_tells_how_the_child_ended(
    flags: tuple[str, ...], status: str
) -> None:
    run = Run(*flags)
    if "--grandchild" in flags:
        run.control.life("grandchild")
    assert run.end() == status


@pytest.mark.usefixtures("_waitid")
def test_the_end_of_a_child_by_itself_is_told_and_a_later_stop_reaps_it() -> None:
    run = Run("--exit-at-first-line", "5")
    run.child.queue([b"{}\n"])
    run.child.flush()
    assert run.heard.ended.wait(WAIT_SECONDS)
    assert run.end() == "code 5"


@pytest.mark.usefixtures("_waitid")
def test_two_stops_and_a_kill_at_once_are_one_end() -> None:
    run = Run("--ignore-eof", "--ignore-term")
    stops = [threading.Thread(target=run.child.stop, daemon=True) for _ in range(2)]
    for stop in stops:
        stop.start()
    run.child.kill()
    for stop in stops:
        stop.join(WAIT_SECONDS)
        assert not stop.is_alive()
    assert run.end() == "signal SIGKILL"


def test_a_worker_that_waits_for_a_slow_child_asks_for_its_stdin_under_the_lock_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop, or an initialize that has failed, may close that stdin once the lock is free."""
    run = Run()
    child = run.child
    full, spare = os.pipe()
    os.set_blocking(spare, False)
    filled = b"x" * (1 << 20)
    os.write(spare, filled)

    class Stdin:
        def fileno(self) -> int:
            if not child._input_lock._lock.locked():
                raise ValueError("I/O operation on closed file")  # as a closed one does
            return spare

    waits: list[int] = []

    def wait_for(descriptor: int, **_: Any) -> bool:
        waits.append(descriptor)
        child._is_closing = True
        return False

    monkeypatch.setattr(bridge, "wait_for", wait_for)
    monkeypatch.setattr(child, "_process", SimpleNamespace(stdin=Stdin()))
    child._outbox.append([filled])
    child._run_flush()
    assert waits == [spare]
    os.close(full)
    os.close(spare)
    monkeypatch.undo()
    child._outbox.clear()
    run.end()
