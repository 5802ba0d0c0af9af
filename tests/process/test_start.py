"""The real file as VS Code and its users start it: every form, place, descriptor and locale."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import (
    ISOLATED,
    PRODUCT,
    PROGRAM,
    WAIT_SECONDS,
    Bridge,
    cause_of,
    detail_of,
    text_of,
)

EMOJI = "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{LATIN SMALL LETTER SHARP S}e \N{PARTY POPPER}"
ODD_ARGUMENTS = (
    "two words",
    "",
    "back\\",
    'quo"te',
    "a&b|c>d",
    "%PATH%",
    "$HOME `x`",
    "--",
    "-x=y",
)


def run_program(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - the product
        [*PROGRAM, *arguments], capture_output=True, check=False, timeout=WAIT_SECONDS
    )


# --- Forms ------------------------------------------------------------------------------------


def works(bridge: Bridge) -> None:
    bridge.initialize()
    bridge.echo(EMOJI)
    assert bridge.end() == 0


def test_the_file_runs_isolated_without_site_and_environment() -> None:
    with Bridge(program=(sys.executable, "-I", "-S", "-E", str(PRODUCT))) as bridge:
        works(bridge)


def test_the_file_runs_from_a_path_with_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "two words \N{PARTY POPPER}"
    folder.mkdir()
    copy = shutil.copy(PRODUCT, folder / "the bridge.py")
    with Bridge(program=(sys.executable, *ISOLATED, str(copy))) as bridge:
        works(bridge)


def test_the_file_runs_as_a_module(tmp_path: Path) -> None:
    shutil.copy(PRODUCT, tmp_path)
    program = (sys.executable, "-m", "mcp_bridge_vscode")
    with Bridge(program=program, cwd=tmp_path) as bridge:
        works(bridge)


def test_the_file_runs_as_a_zipapp(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(PRODUCT, source)
    target = tmp_path / "bridge.pyz"
    build = [sys.executable, "-m", "zipapp", "-m", "mcp_bridge_vscode:main", "-o", str(target)]
    subprocess.run(  # noqa: S603 - the command of the README
        [*build, str(source)], check=True, timeout=WAIT_SECONDS
    )
    with Bridge(program=(sys.executable, *ISOLATED, str(target))) as bridge:
        works(bridge)


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("json", "select", "subprocess", "ctypes", "signal", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(99)\n", encoding="utf-8")
    with Bridge(program=(sys.executable, str(PRODUCT)), cwd=tmp_path) as bridge:
        works(bridge)


# --- Descriptors ------------------------------------------------------------------------------


def test_a_closed_stdin_is_the_end_of_the_input() -> None:
    with Bridge(closed=(0,)) as bridge:
        assert bridge.wait() == 0
        assert not bridge.lives()


@pytest.mark.parametrize("closed", [(1,), (1, 2)], ids=["stdout", "stdout and stderr"])
def test_a_closed_stdout_ends_the_bridge_and_reaches_nobody_else(closed: tuple[int, ...]) -> None:
    with Bridge(closed=closed) as bridge:
        bridge.send_initialize()
        assert bridge.wait() == 0
        _, first, *_ = bridge.server().events.whole()
        assert first["heard"] == "server/discover"


def test_a_closed_stderr_costs_the_log_lines_only() -> None:
    with Bridge("--stderr-bytes", "10", closed=(2,)) as bridge:
        bridge.initialize()
        bridge.echo()
        assert bridge.end() == 0
        assert bridge.stderr() == b""


def test_all_three_closed_end_at_once() -> None:
    with Bridge(closed=(0, 1, 2)) as bridge:
        assert bridge.wait() == 0


def test_a_client_that_closes_its_end_of_stdout_is_the_end_of_the_input() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.stop_reading_for_good()
        bridge.send("ping")
        assert bridge.frames.wait_end()
        bridge.send("ping")
        assert bridge.wait() == 0
        bridge.server().wait_gone()


# --- Exit codes -------------------------------------------------------------------------------


def test_the_end_of_stdin_before_any_message_is_exit_code_0_and_starts_nothing() -> None:
    with Bridge() as bridge:
        assert bridge.end() == 0
        assert bridge.stderr() == b""
        assert not bridge.lives()


def test_the_loss_of_the_server_is_exit_code_1() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        bridge.send_call("exit", {"code": 0})
        assert bridge.wait() == 1


@pytest.mark.parametrize(
    "arguments", [(), ("--",), ("--no-such-option", "--", "x"), ("stray", "--", "x")]
)
def test_wrong_arguments_are_exit_code_2_with_the_usage_on_stderr(
    arguments: tuple[str, ...],
) -> None:
    done = run_program(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"mcp-bridge-vscode: vscode: error: ")
    assert b"usage: " in done.stderr


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_are_exit_code_0_on_stdout(option: str) -> None:
    done = run_program(option)
    assert done.returncode == 0
    assert done.stdout.startswith(b"mcp-bridge-vscode")
    assert done.stderr == b""


# --- What the child gets ----------------------------------------------------------------------


def test_the_server_gets_the_environment_without_our_two_secrets() -> None:
    passed = {
        **os.environ,
        "MCP_BRIDGE_OTHER": "kept",
        "GITHUB_TOKEN": "its own secret",
        "ODD": "line\nend \N{PARTY POPPER}",
        "ELECTRON_RUN_AS_NODE": "1",
        "LC_ALL": "C.UTF-8",  # so that no Python sets one itself
    }
    ours = {"MCP_BRIDGE_CLIENT_SECRET": "s3cret", "MCP_BRIDGE_TOKEN_KEY": "k3y"}
    with Bridge(env={**passed, **ours}, options=["--log-level", "debug"]) as bridge:
        bridge.initialize()
        assert json.loads(text_of(bridge.call("environment"))) == passed
        bridge.end()
        assert b"s3cret" not in bridge.stderr()
        assert b"k3y" not in bridge.stderr()


def test_the_server_gets_every_argument_as_it_was_given() -> None:
    arguments = [*ODD_ARGUMENTS, EMOJI]
    with Bridge(*arguments) as bridge:
        bridge.initialize()
        assert json.loads(text_of(bridge.call("arguments")))[-len(arguments) :] == arguments


def test_what_the_server_writes_to_stderr_is_on_ours_byte_for_byte() -> None:
    text = "plain \x1b[31m red \xff\xfe no UTF-8 \r\n"
    with Bridge() as bridge:
        bridge.initialize()
        bridge.call("stderr", {"text": text})
        bridge.end()
        assert text.encode("latin-1") in bridge.stderr()


def test_the_server_leads_a_session_and_a_group_of_its_own() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        server = bridge.server()
        assert server.parent == bridge.pid
        assert server.pid == server.group == server.session != bridge.pid


def test_the_server_holds_no_descriptor_of_the_bridge_open() -> None:
    with Bridge() as bridge:
        bridge.initialize()
        names = os.listdir(f"/proc/{bridge.server().pid}/fd")
        assert sorted(map(int, names)) == [0, 1, 2, 3]  # the last is its connection to the test


# --- Commands that cannot be started ----------------------------------------------------------


def spawn_error(
    *command: str, path: str = "", cwd: Path | None = None, removes_folder: bool = False
) -> str:
    """The detail for a command that cannot be started; the bridge stays for another try."""
    env = {**os.environ, "PATH": path or os.environ["PATH"]}
    program: tuple[str, ...] = PROGRAM
    if removes_folder:
        program = ("/bin/sh", "-c", '/bin/rmdir "$PWD" && exec "$@"', "sh", *PROGRAM)
    with Bridge(command=command, env=env, cwd=cwd, program=program) as bridge:
        first = bridge.answer(bridge.send_initialize())
        second = bridge.answer(bridge.send_initialize())
        assert cause_of(first) == cause_of(second) == "spawn_failed"
        assert detail_of(first) == detail_of(second)
        assert bridge.end() == 0
        assert bridge.stderr().count(b"\n") <= 4, "one mistake, few lines"
    return detail_of(first)


def test_a_command_that_is_not_found_is_named_with_the_path_that_was_searched() -> None:
    detail = spawn_error("no-such-program", path="/opt/a:/opt/b")
    assert "no-such-program" in detail
    assert "/opt/a:/opt/b" in detail


def test_a_file_that_is_not_there_is_named() -> None:
    assert "/no/such/server" in spawn_error("/no/such/server")


def test_a_folder_is_no_command(tmp_path: Path) -> None:
    assert str(tmp_path) in spawn_error(str(tmp_path))


def script(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "server script"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def test_a_file_that_is_not_executable_is_named_with_the_fix(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\n", stat.S_IRUSR)
    detail = spawn_error(path)
    assert path in detail
    assert "chmod +x" in detail


def test_an_interpreter_that_does_not_exist_is_what_is_missing(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/no/such/interpreter\n")
    detail = spawn_error(path)
    assert path in detail
    assert "interpreter" in detail


def test_a_file_without_a_first_line_for_the_system_says_so(tmp_path: Path) -> None:
    path = script(tmp_path, "echo hello\n")
    detail = spawn_error(path)
    assert path in detail
    assert "#!" in detail


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    detail = spawn_error("./server", cwd=folder, removes_folder=True)
    assert "working directory" in detail
    assert str(folder) in detail


def test_a_server_with_an_absolute_path_runs_in_a_deleted_working_directory(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    program = ("/bin/sh", "-c", '/bin/rmdir "$PWD" && exec "$@"', "sh", *PROGRAM)
    with Bridge(program=program, cwd=folder) as bridge:
        works(bridge)


@pytest.mark.parametrize("path", [".", "", "relative/bin"])
def test_relative_places_of_the_path_are_not_searched(tmp_path: Path, path: str) -> None:
    for folder in (tmp_path, tmp_path / "relative" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "planted"
        program.write_text("#!/bin/sh\nexit 99\n", encoding="utf-8")
        program.chmod(0o755)
    assert "planted" in spawn_error("planted", path=f"/opt/none:{path}", cwd=tmp_path)


def test_a_relative_name_with_a_slash_is_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    with Bridge(python="./python", cwd=tmp_path) as bridge:
        works(bridge)


# --- Locales ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["cp1252", "cp932", "ascii"])
def test_text_is_utf_8_whatever_the_locale_says(tmp_path: Path, encoding: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    env.update(
        LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING=encoding
    )
    folder = tmp_path / EMOJI
    folder.mkdir()
    copy = shutil.copy(PRODUCT, folder)
    program = (sys.executable, str(copy))
    with Bridge(EMOJI, program=program, env=env, options=["--name", EMOJI]) as bridge:
        bridge.initialize()
        bridge.echo(EMOJI)
        last = json.loads(text_of(bridge.call("arguments")))[-1]
        assert last.encode("utf-8", "surrogateescape") == EMOJI.encode()
        assert bridge.end() == 0
        assert "Gr" not in bridge.stderr().decode("utf-8")
