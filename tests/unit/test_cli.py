"""The section `cli`: arguments, exit codes, and that no value of an option is ever repeated."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

import mcp_bridge_vscode as bridge
from mcp_bridge_vscode import LIMITS, LogLevel, UsageError, parse_options, run_main, take_option

WAIT = 60.0  # bounds every wait of this file
VALUE = "Sekret-4711"
COMMAND = ["--", "server", "--name", "not ours"]


def refusal(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_options(arguments)
    return str(caught.value)


# Options --------------------------------------------------------------------------


def test_without_options_the_defaults_hold() -> None:
    options = parse_options(["--", "server"])
    assert (options.command, options.name, options.log_level) == (["server"], "", LogLevel.INFO)
    assert options.limits.discover_seconds == LIMITS.discover_seconds
    assert options.limits.line_bytes == LIMITS.line_bytes


@pytest.mark.parametrize("glue", [lambda n, v: [n, v], lambda n, v: [f"{n}={v}"]])
def test_a_value_stands_behind_a_blank_or_an_equals_sign(
    glue: Callable[[str, str], list[str]],
) -> None:
    given = [("--name", "My server"), ("--log-level", "debug"), ("--discover-timeout", "5")]
    arguments = [part for name, value in given for part in glue(name, value)]
    options = parse_options([*arguments, *glue("--max-line-bytes", "100"), *COMMAND])
    assert options.name == "My server"
    assert options.log_level is LogLevel.DEBUG
    assert (options.limits.discover_seconds, options.limits.line_bytes) == (5.0, 100)


def test_the_last_of_two_equal_options_wins() -> None:
    options = parse_options(["--name", "a", "--log-level=err", "--name=b", *COMMAND])
    assert (options.name, options.log_level) == ("b", LogLevel.ERROR)


def test_a_value_may_have_an_equals_sign_and_may_look_like_an_option() -> None:
    assert parse_options(["--name=a=b", *COMMAND]).name == "a=b"
    assert parse_options(["--name", "--name", *COMMAND]).name == "--name"


def test_nothing_behind_the_two_dashes_is_examined() -> None:
    rest = ["server", "--help", "--version", "--nonsense", "--", "--log-level", "x", "", "é\n"]
    assert parse_options(["--name", "n", "--", *rest]).command == rest


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("err", LogLevel.ERROR),
        ("warn", LogLevel.WARNING),
        ("info", LogLevel.INFO),
        ("debug", LogLevel.DEBUG),
    ],
)
def test_each_level_has_its_name(name: str, level: LogLevel) -> None:
    assert parse_options([f"--log-level={name}", *COMMAND]).log_level is level


@pytest.mark.parametrize("name", ["--discover-timeout", "--max-line-bytes"])
@pytest.mark.parametrize(
    "value",
    ["0", "-1", "+1", "1.5", "1e3", "", " 1", "1 ", "1_0", "0x1", "٣", "²", "9" * 13, "9" * 6000],
    ids=lambda value: value[:8],
)
def test_a_number_that_is_out_of_range_or_none_is_refused(name: str, value: str) -> None:
    text = refusal(f"{name}={value}", *COMMAND)
    assert text.startswith(f"the value of {name} is not a whole number from 1 to ")


@pytest.mark.parametrize(
    ("name", "most"),
    [("--discover-timeout", bridge.MOST_SECONDS), ("--max-line-bytes", bridge.MOST_LINE_BYTES)],
)
def test_a_number_may_be_one_or_the_most_and_no_more(name: str, most: int) -> None:
    assert bridge.parse_number(name, "1", most) == 1
    assert bridge.parse_number(name, "007", most) == 7
    assert bridge.parse_number(name, str(most), most) == most
    assert str(most) in refusal(f"{name}={most + 1}", *COMMAND)


@pytest.mark.parametrize("arguments", [[], ["--"], ["--", ""], ["--name", "n"], ["--name=n", "--"]])
def test_a_command_is_needed(arguments: list[str]) -> None:
    assert refusal(*arguments).startswith("there is no command of a server")


@pytest.mark.parametrize("name", sorted(bridge.TAKES_VALUE))
def test_an_option_that_ends_the_arguments_has_no_value(name: str) -> None:
    assert refusal(name) == f"the option {name} needs a value"
    assert refusal(name, *COMMAND) == f"the option {name} needs a value"


def test_a_name_that_is_empty_is_refused() -> None:
    assert refusal("--name=", *COMMAND) == refusal("--name", "", *COMMAND)


@pytest.mark.parametrize("option", ["--json", "--timeout=5", "--json=1"])
def test_an_option_of_check_is_said_to_be_one(option: str) -> None:
    assert refusal(option, *COMMAND) == f"the option {option.partition('=')[0]} belongs to check"


@pytest.mark.parametrize("word", ["server", "-x", "", "- -", "=", "-=--name"])
def test_a_command_before_the_two_dashes_is_refused(word: str) -> None:
    assert "the command comes behind --" in refusal(word, *COMMAND)


def test_an_option_leaves_the_others_where_they_are() -> None:
    rest = ["--name", "a", "--json", "b"]
    assert take_option(rest) == ("--name", "a")
    assert rest == ["--json", "b"]
    assert take_option(rest) == ("--json", "")
    assert rest == ["b"]


# Hostile options (threat model, case 11) ------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--headr=Authorization:Bearer {VALUE}"],
        [f"--headr Authorization:Bearer {VALUE}"],
        ["--headr", f"Authorization:Bearer {VALUE}"],
        [f"--headr:{VALUE}"],
        [f"--headr\n{VALUE}"],
        [f"--log-level={VALUE}"],
        ["--log-level", VALUE],
        ["--log-level=\x1b]0;x\x07"],
        [f"--discover-timeout={VALUE}"],
        ["--max-line-bytes", VALUE],
        [f"--name=n\n{VALUE}", "--nonsense"],
        [VALUE],
        ["-H", VALUE],
        ["--name", VALUE],
        [f"--name={VALUE}"],
        [f"--json={VALUE}"],
        [f"--timeout={VALUE}"],
        ["--\x1b[31m\u202e"],
        ["--\udcff=x"],
        ["--" + "x" * 100_000],
    ],
    ids=lambda arguments: repr(arguments[0])[:30],
)
def test_a_wrong_option_is_named_and_its_value_is_not(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main(arguments) == 2
    said, error = capfd.readouterr()
    assert said == ""
    first, _, rest = error.partition("\n")
    assert first.startswith("mcp-bridge-vscode: vscode: error: ")
    assert len(first) < 200
    assert VALUE not in error
    assert first.isprintable()
    assert first.isascii()
    assert rest.startswith("usage: mcp_bridge_vscode.py [options] -- <command>")
    assert rest in bridge.USAGE


def test_a_url_is_told_that_it_cannot_be_used_and_is_not_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main([f"https://example.com/mcp?key={VALUE}"]) == 2
    error = capfd.readouterr().err
    assert "a URL cannot be used yet" in error
    assert VALUE not in error


def test_the_option_that_is_wrong_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main([f"--headr=Authorization:Bearer {VALUE}", *COMMAND]) == 2
    assert "the option --headr is not known" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[f"--timeout={VALUE}"], ["--timeout", VALUE], ["--discover-timeout", VALUE], ["--"]],
    ids=lambda arguments: arguments[0],
)
def test_check_repeats_no_value_either(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["check", *arguments]) == 2
    said, error = capfd.readouterr()
    assert said == ""
    assert error.startswith("mcp-bridge-vscode: vscode: error: check: ")
    assert VALUE not in error


# main -------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [[], ["--nonsense"], ["check"], ["demo"], ["--name"]])
def test_help_is_on_stdout_whatever_else_is_asked(
    before: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main([*before, "--help"]) == 0
    assert capfd.readouterr() == (bridge.USAGE, "")


@pytest.mark.parametrize("before", [[], ["--nonsense"], ["check"]])
def test_the_version_is_on_stdout(before: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main([*before, "--version", *COMMAND]) == 0
    assert capfd.readouterr() == (f"mcp-bridge-vscode {bridge.__version__}\n", "")


def test_the_help_of_a_server_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[list[str]] = []

    monkeypatch.setattr(bridge, "serve", lambda options: served.append(options.command))
    assert run_main(["--", "server", "--help", "--version"]) is None
    assert served == [["server", "--help", "--version"]]


@pytest.mark.parametrize(("word", "function"), [("demo", "run_demo"), ("check", "run_check")])
def test_a_word_at_the_start_names_another_form(
    monkeypatch: pytest.MonkeyPatch, word: str, function: str
) -> None:
    monkeypatch.setattr(bridge, function, lambda arguments: len(arguments) + 40)
    assert run_main([word, "--json", "x"]) == 42


def test_main_ends_with_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mcp_bridge_vscode.py"])
    with pytest.raises(SystemExit) as ended:
        bridge.main()
    assert ended.value.code == 2
    assert "there is no command of a server" in capfd.readouterr().err


def test_the_usage_names_each_option_that_is_known_and_no_other() -> None:
    named = set(re.findall(r"^  (--[a-z-]+)", bridge.USAGE, re.MULTILINE))
    assert named == bridge.TAKES_VALUE | {"--json", "--help", "--version"}


def test_the_usage_fits_a_terminal_and_tells_the_exit_codes() -> None:
    assert all(len(line) <= 100 for line in bridge.USAGE.splitlines())
    assert "exit codes: 0 " in bridge.USAGE
    assert set(bridge.EXIT_CODES.values()) == {0, 1}
    assert str(LIMITS.line_bytes) in bridge.USAGE
    assert f"(default: {LIMITS.discover_seconds:g})" in bridge.USAGE


def test_main_leaves_the_exit_code_to_a_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mcp_bridge_vscode.py", *COMMAND])
    monkeypatch.setattr(bridge, "serve", lambda _options: None)
    assert bridge.main() is None  # type: ignore[func-returns-value]


# serve ------------------------------------------------------------------------------


class FakeBridge:
    """Stands for Bridge and keeps how it was made."""

    made: dict[str, Any]

    def __init__(self, **made: Any) -> None:
        type(self).made = made

    def end_input(self) -> None:
        """Watched for."""

    def handle_signal(self) -> None:
        """Handled."""

    def run(self) -> int:
        return 5


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """`serve` may be called: what handles signals, and nothing of the process changes."""
    found: list[Any] = []
    monkeypatch.setattr(bridge, "Bridge", FakeBridge)
    monkeypatch.setattr(bridge, "watch_parent", lambda _on_death: None)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(bridge, "watch_signals", found.append)
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield found
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--", "/opt/my server.py"], "my server"),
        (["--", "npx"], "npx"),
        (["--", "dir/"], "mcp-bridge-vscode"),
        (["--name", "given", "--", "npx"], "given"),
        (["--", ".hidden"], ".hidden"),
    ],
)
@pytest.mark.usefixtures("handlers")
def test_the_fallback_name_is_that_of_the_command(arguments: list[str], name: str) -> None:
    assert run_main(arguments) is None
    assert FakeBridge.made["fallback_name"] == name


@pytest.mark.usefixtures("handlers")
def test_the_options_reach_the_bridge() -> None:
    assert run_main(["--discover-timeout=5", "--max-line-bytes=1000", "--", "s", "x"]) is None
    made = FakeBridge.made
    assert made["command"] == ["s", "x"]
    assert (made["limits"].discover_seconds, made["limits"].line_bytes) == (5.0, 1000)
    assert made["limits"].requests == LIMITS.requests


@pytest.mark.usefixtures("handlers")
def test_the_many_objects_of_a_big_frame_are_not_searched_for_garbage_again_and_again() -> None:
    """Such a frame takes three times as long with Python's own thresholds, and all wait for it."""
    run_main(["--", "s"])
    frame = b'{"params":%s}' % json.dumps([[[number]] for number in range(20_000)]).encode()
    before = [generation["collections"] for generation in gc.get_stats()]
    bridge.parse_frame(frame, 64)
    after = [generation["collections"] for generation in gc.get_stats()]
    assert sum(after) - sum(before) <= 1


def test_the_signals_that_end_us_are_handled(handlers: list[Any]) -> None:
    run_main(["--", "s"])
    assert [handle.__func__ for handle in handlers] == [FakeBridge.handle_signal]


@pytest.mark.usefixtures("handlers")
def test_a_thread_that_fails_says_its_place_and_no_value(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_main(["--", "s"])
    hook, log = threading.excepthook, FakeBridge.made["log"]
    hook(threading.ExceptHookArgs((ValueError, ValueError(VALUE), None, None)))
    hook(threading.ExceptHookArgs((ValueError, None, None, None)))
    log.close(WAIT)
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "mcp-bridge-vscode: vscode: error: internal error of a thread, ValueError",
        "mcp-bridge-vscode: vscode: error: internal error of a thread, SystemExit",
    ]


@pytest.mark.skipif(os.name != "posix", reason="closed descriptors are a matter of POSIX")
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_a_standard_descriptor_that_was_closed_is_taken(closed: list[int]) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(bridge.__file__).parent)!r})
import mcp_bridge_vscode as bridge
spare = os.dup(1)
for descriptor in {closed}:
    os.close(descriptor)
bridge.take_standard_descriptors()
taken = [os.get_inheritable(n) and os.fstat(n).st_rdev == os.stat(os.devnull).st_rdev
         for n in {closed}]
os.write(spare, repr(taken).encode())
os._exit(0)
"""
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-I", "-c", code], capture_output=True, check=True, timeout=WAIT
    )
    assert done.stdout.decode() == repr([True] * len(closed))
