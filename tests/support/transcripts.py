"""Whole conversations as text files: how a case is read, played, and brought up to date.

    # What the case shows, in a sentence.
    covers: lifecycle.ping, r2
    after: ready                        # another file of `starts` is played first
    limits: requests=2 call_seconds=60  # of the product
    log-level: debug
    hostile: to_server request tools/call: params.name (*)

    client -> {"id": 1, "method": "tools/list"}
    server <- {"id": $list, "method": "tools/list", "params": {"_meta": *}}
    server -> {"id": $list, "result": {"tools": []}}
    client <- {"id": 1, "result": {"tools": []}}

`->` this side says it, `<-` this side must hear it, as its very next frame. A line that begins with
a blank goes on the one before. What was heard and stands nowhere is a fault; so is a log line that
is a warning or an error.

In a frame `$name` binds at its first use (two names of one side never hold one value), `*` fits
anything, `...` at the end of an object any other members, and `~"a*b"` a string by its pattern.
`"jsonrpc": "2.0"` is added and expected. `raw b"..."` stands for bytes, with `+` and `*`.

The other lines:

    client closes                       the end of stdin
    server cannot start: TEXT           the next start fails with spawn_failed and this detail
    server exits: STATUS                the process is gone
    server turns deaf                   it has closed its stdin
    server takes no more: CAUSE         from now on a frame for it fails so
    server is stopped                   waits until the bridge has stopped the newest run
    state is NAME                       waits until the lifecycle is there
    clock +10                           fake seconds
    signal                              as from the system
    log <- SCOPE: LEVEL: PATTERN        the next log line of which this is true
    exit CODE                           waits for it; without it a case ends with stdin and code 0
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import mcp_bridge_vscode as product
from tests.support.fake_client import parse_or_none
from tests.support.running import LOG_LINE, SMALL, RunningBridge
from tests.support.waits import WAIT_SECONDS, Inbox

FOLDER: Final = Path(__file__).resolve().parent.parent / "transcript"
HEAD: Final = re.compile(r"(covers|after|limits|log-level|hostile): *(.*)")
PLAY: Final = re.compile(r"(client|server|log) (->|<-) +(.*)", re.DOTALL)
TOKEN: Final = re.compile(r'~?"(?:[^"\\]|\\.)*"|\$\w+|\*|\.\.\.')
MARK: Final = "\x00"  # begins the strings that stand for the marks of a pattern


class TranscriptError(Exception):
    """A case is not written as it should be."""


class Step(NamedTuple):
    """One line of the play; `first` and `last` are its lines in the file, counted from 0."""

    first: int
    last: int
    text: str


class Case(NamedTuple):
    path: Path
    title: str
    covers: tuple[str, ...]
    after: str
    limits: dict[str, float]
    log_level: str
    hostile: tuple[str, ...]
    steps: tuple[Step, ...]


# --- Reading ----------------------------------------------------------------------------------


def read_case(path: Path) -> Case:
    lines = path.read_text(encoding="utf-8").splitlines()
    title = lines[0].lstrip("# ") if lines and lines[0].startswith("#") else ""
    head: dict[str, list[str]] = {}
    steps: list[Step] = []
    for number, line in enumerate(lines):
        if not line.strip() or line.startswith("#"):
            continue
        found = HEAD.fullmatch(line)
        if line[0] in " \t":
            if not steps:
                raise TranscriptError(f"{path.name}:{number + 1} continues nothing")
            before = steps[-1]
            steps[-1] = Step(before.first, number, before.text + "\n" + line.strip())
        elif found is not None and not steps:
            head.setdefault(found.group(1), []).append(found.group(2))
        else:
            steps.append(Step(number, number, line))
    limits = (pair.split("=") for pair in " ".join(head.get("limits", ())).split())
    return Case(
        path,
        title,
        tuple(name for name in re.split(r"[,\s]+", " ".join(head.get("covers", ()))) if name),
        "".join(head.get("after", ())),
        {name: float(value) for name, value in limits},
        "".join(head.get("log-level", ("info",))),
        tuple(head.get("hostile", ())),
        tuple(steps),
    )


def all_cases() -> list[Case]:
    return [read_case(path) for path in sorted((FOLDER / "cases").glob("**/*.txt"))]


def parse_pattern(text: str) -> Any:
    """The JSON of a frame; each mark is a string that begins with MARK."""

    def stand_in(found: re.Match[str]) -> str:
        mark = found.group()
        if mark.startswith('"'):
            return mark
        if mark == "...":
            return f'"{MARK_TEXT}...": 0'
        if mark.startswith("~"):
            return json.dumps(MARK + "~" + json.loads(mark[1:]))
        return json.dumps(MARK + mark)

    try:
        return json.loads(TOKEN.sub(stand_in, text), strict=False)
    except ValueError as exc:
        raise TranscriptError(f"no pattern: {text}") from exc


MARK_TEXT: Final = json.dumps(MARK)[1:-1]


def write_pattern(pattern: Any) -> str:
    """The text of a pattern, as parse_pattern reads it."""
    if isinstance(pattern, dict):
        members = [
            "..." if key == MARK + "..." else f"{json.dumps(key)}: {write_pattern(value)}"
            for key, value in pattern.items()
        ]
        return "{" + ", ".join(members) + "}"
    if isinstance(pattern, list):
        return "[" + ", ".join(map(write_pattern, pattern)) + "]"
    if isinstance(pattern, str) and pattern.startswith(MARK + "~"):
        return "~" + json.dumps(pattern[2:])
    if isinstance(pattern, str) and pattern.startswith(MARK):
        return pattern[1:]
    return json.dumps(pattern)


def raw_bytes(text: str) -> bytes:
    """The bytes that an expression of bytes, numbers, `+` and `*` stands for."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, int)):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            left, right = value(node.left), value(node.right)
            return left + right if isinstance(node.op, ast.Add) else left * right
        raise TranscriptError(f"no bytes: {text}")

    found = value(ast.parse(text.strip().replace("\n", " "), mode="eval").body)
    assert isinstance(found, bytes)
    return found


# --- Comparing --------------------------------------------------------------------------------


class Names:
    """What the names of a case stand for. Each side of a name has its values once."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._side: dict[str, str] = {}

    def value(self, name: str) -> Any:
        if name not in self._values:
            raise TranscriptError(f"${name} stands for nothing yet")
        return self._values[name]

    def fits(self, name: str, value: Any, side: str) -> bool:
        """Is it the value of this name, which it becomes when the name is new?"""
        if name in self._values:
            return is_same(self._values[name], value)
        others = [self._values[n] for n, s in self._side.items() if s == side]
        if any(is_same(other, value) for other in others):
            return False
        self._values[name], self._side[name] = value, side
        return True


def is_same(one: Any, other: Any) -> bool:
    """Are they the same JSON? 1 is not 1.0, nor true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def fits(pattern: Any, value: Any, names: Names, side: str) -> bool:
    if isinstance(pattern, str) and pattern.startswith(MARK):
        mark = pattern[1:]
        if mark == "*":
            return True
        if mark.startswith("~"):
            return isinstance(value, str) and fnmatchcase(value, mark[1:].replace("[", "[[]"))
        return names.fits(mark[1:], value, side)
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return False
        members = {key: member for key, member in pattern.items() if key != MARK + "..."}
        if len(members) == len(pattern) and set(value) - set(members):
            return False
        return all(
            key in value and fits(member, value[key], names, side)
            for key, member in members.items()
        )
    if isinstance(pattern, list):
        return (
            isinstance(value, list)
            and len(value) == len(pattern)
            and all(fits(p, v, names, side) for p, v in zip(pattern, value))
        )
    return is_same(pattern, value)


def filled(pattern: Any, names: Names) -> Any:
    """What this side says: the names are replaced by what they stand for."""
    if isinstance(pattern, str) and pattern.startswith(MARK):
        if not pattern.startswith(MARK + "$"):
            raise TranscriptError(f"{pattern[1:]} can be heard and not said")
        return names.value(pattern[2:])
    if isinstance(pattern, dict):
        return {key: filled(value, names) for key, value in pattern.items()}
    if isinstance(pattern, list):
        return [filled(value, names) for value in pattern]
    return pattern


def brought_up_to_date(pattern: Any, value: Any, names: Names, side: str) -> Any:
    """The pattern where it fits, and the value where it does not."""
    if fits(pattern, value, names, side):
        return pattern
    if isinstance(pattern, dict) and isinstance(value, dict):
        keys = [key for key in pattern if key in value] + [k for k in value if k not in pattern]
        return {
            key: brought_up_to_date(pattern[key], value[key], names, side)
            if key in pattern
            else value[key]
            for key in keys
        }
    if isinstance(pattern, list) and isinstance(value, list) and len(pattern) == len(value):
        return [brought_up_to_date(p, v, names, side) for p, v in zip(pattern, value)]
    return value


# --- Playing ----------------------------------------------------------------------------------


class Play:
    """One case, from its first line to the end of its bridge. `changed` is for --update."""

    def __init__(self, case: Case, *, may_update: bool = False) -> None:
        self._case = case
        self._may_update = may_update
        self._names = Names()
        self._exit_code: int | None = None
        self._is_ended_early = False  # by us: what is still in flight is cancelled
        self.changed: dict[Step, str] = {}
        self.added: list[str] = []
        levels = {"err": "ERROR", "warn": "WARNING", "info": "INFO", "debug": "DEBUG"}
        self._bridge = RunningBridge(
            limits=SMALL.replace(**case.limits),
            level=product.LogLevel[levels[case.log_level]],
            hostile=case.hostile,
        )

    def run(self) -> None:
        try:
            if self._case.after:
                may_update, self._may_update = self._may_update, False
                self._play(read_case(FOLDER / "starts" / f"{self._case.after}.txt"))
                self._may_update = may_update
            self._play(self._case)
            if self._exit_code is None:
                self._is_ended_early = True
                self._bridge.client.close()
                self._exit(0)
        finally:
            self._bridge.release()
        self._check_rest("client", self._bridge.client.heard)
        self._check_rest("server", self._bridge.server.heard)
        self._check_log()

    def _play(self, case: Case) -> None:
        for step in case.steps:
            try:
                self._take(step)
            except (AssertionError, TranscriptError, product.BridgeError) as exc:
                place = f"{case.path.name}:{step.first + 1}"
                raise AssertionError(f"{place}: {step.text}\n{exc}") from exc

    def _take(self, step: Step) -> None:
        found = PLAY.fullmatch(step.text)
        if found is None:
            self._act(step.text)
            return
        side, verb, text = found.groups()
        if side == "log":
            self._hear_log(step, text)
        elif verb == "->":
            data = raw_bytes(text[4:]) if text.startswith("raw ") else self._frame(text)
            if side == "client":
                self._bridge.client.send_raw(data + b"\n")
            else:
                self._bridge.server.say_raw(data)
        elif side == "client":
            self._hear(step, side, text, self._bridge.client.heard)
        else:
            self._hear(step, side, text, self._bridge.server.heard)

    def _frame(self, text: str) -> bytes:
        frame = filled(parse_pattern(text), self._names)
        return json.dumps({"jsonrpc": "2.0", **frame}).encode()

    def _hear(self, step: Step, side: str, text: str, inbox: Inbox[bytes]) -> None:
        line = inbox.take()
        assert line is not None, f"the {side} hears nothing"
        if text.startswith("raw "):
            if line == raw_bytes(text[4:]):
                return
            assert self._may_update, f"heard: {line!r}"
            self.changed[step] = f"{side} <- raw {line!r}"
            return
        frame = parse_or_none(line)
        assert frame is not None, f"no JSON object: {line!r}"
        assert frame.pop("jsonrpc", None) == "2.0", f"heard: {line!r}"
        pattern = parse_pattern(text)
        if not fits(pattern, frame, self._names, side):
            assert self._may_update, f"heard: {json.dumps(frame)}"
            pattern = brought_up_to_date(pattern, frame, self._names, side)
            self.changed[step] = f"{side} <- {write_pattern(pattern)}"

    def _hear_log(self, step: Step, text: str) -> None:
        scope, level, words = text.split(": ", 2)
        pattern = words.replace("[", "[[]")

        def is_wanted(line: bytes) -> bool:
            found = LOG_LINE.fullmatch(line.decode())
            return (
                found is not None
                and found.group(1, 2) == (scope, level)
                and fnmatchcase(found.group(3), pattern)
            )

        lines = self._bridge.stderr.lines
        if lines.take_where(is_wanted) is None:
            rest = b"\n".join(lines.so_far()).decode()
            assert self._may_update, f"the log has no such line:\n{rest}"
            self.changed[step] = ""

    def _act(self, text: str) -> None:
        verb, _, rest = text.partition(": ")
        actions: dict[str, Callable[[], object]] = {
            "client closes": self._bridge.client.close,
            "server exits": lambda: self._bridge.server.run.exit(rest),
            "server turns deaf": self._turn_deaf,
            "server is stopped": self._wait_stopped,
            "signal": self._bridge.bridge.handle_signal,
            "server cannot start": lambda: self._fail_start(rest),
            "server takes no more": lambda: self._refuse_frames(rest),
        }
        words = text.split()
        if verb in actions:
            actions[verb]()
        elif words[0] == "clock":
            self._bridge.clock.advance(float(words[1]))
        elif words[0] == "exit":
            self._exit(int(words[1]))
        elif words[:2] == ["state", "is"]:
            self._bridge.wait_state(product.State(words[2]))
        else:
            raise TranscriptError(f"no step: {text}")

    def _turn_deaf(self) -> None:
        self._bridge.server.run.turn_deaf()

    def _wait_stopped(self) -> None:
        assert self._bridge.server.run.stopped.wait(WAIT_SECONDS), "the server is not stopped"

    def _fail_start(self, detail: str) -> None:
        self._bridge.server.start_error = product.BridgeError(product.Cause.SPAWN_FAILED, detail)

    def _refuse_frames(self, cause: str) -> None:
        self._bridge.server.queue_error = product.BridgeError(product.Cause(cause))

    def _exit(self, code: int) -> None:
        self._exit_code = self._bridge.wait_exit()
        assert self._exit_code == code, f"the exit code is {self._exit_code}"

    # --- What is left when the bridge has ended --------------------------------------------------

    def _check_rest(self, side: str, inbox: Inbox[bytes]) -> None:
        rest = inbox.rest()
        if self._is_ended_early and side == "server":
            rest = [
                line for line in rest if product.StopReason.END_OF_INPUT.value.encode() not in line
            ]
        if rest and self._may_update:
            for line in rest:
                frame = {k: v for k, v in json.loads(line).items() if k != "jsonrpc"}
                self.added.append(f"{side} <- {json.dumps(frame)}")
            return
        assert not rest, f"the {side} also heard: {rest}"

    def _check_log(self) -> None:
        lines = [line.decode() for line in self._bridge.stderr.lines.rest()]
        odd = [line for line in lines if LOG_LINE.fullmatch(line) is None]
        assert not odd, f"no log lines: {odd}"
        alarming = [line for line in lines if ": warning: " in line or ": error: " in line]
        if alarming and self._may_update:
            self.added += ["log <- " + line.partition(": ")[2] for line in alarming]
            return
        assert not alarming, "the log also has:\n" + "\n".join(alarming)


def updated_text(case: Case, play: Play) -> str:
    """The text of the case's file with what was heard in place of what was not."""
    lines = case.path.read_text(encoding="utf-8").splitlines()
    for step, text in sorted(play.changed.items(), reverse=True):
        lines[step.first : step.last + 1] = [text] if text else []
    return "\n".join([*lines, *play.added]) + "\n"
