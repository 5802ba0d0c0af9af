"""README.md says what the file does: options, commands, entries, causes, limits, log lines.

In a command or an entry a path below /path/to/ stands for one of the reader; PLACEHOLDERS has what
it is here.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import mcp_bridge_vscode as bridge
from tests.structure import product
from tests.structure.product import TREE, dotted
from tests.support.processes import Bridge

WAIT: Final = 120.0  # bounds every wait of this file
README: Final = (product.ROOT / "README.md").read_text(encoding="utf-8")
PLACEHOLDER: Final = "/path/to/"
NOT_RUN_HERE: Final = re.compile(r"pip install|tests/run\.py")  # a network; these very tests
NEEDED: Final = ("mcp_bridge_vscode.py", "README.md", "LICENSE", "pyproject.toml")
# What the tables of this page leave out of Limits: nobody meets it.
NOT_FOR_USERS: Final = frozenset(
    "edge_bytes round_pause_seconds most_pause_seconds listen_tries listen_wait_seconds"
    " most_listen_wait_seconds listen_life_seconds next_line_seconds log_flush_seconds"
    " idle_workers shown_text shown_bytes".split()
)
OTHER_OPTIONS: Final = frozenset({"--its-option", "--quick", "--stress"})  # a server's, run.py's
VSCODE_LINES: Final = frozenset(  # seen there, or reported of it
    {
        "Waiting for server to respond to `initialize` request...",
        "Process exited with code <n>",
        "MPC <code>: <message>",
        "tools with invalid parameters which will be omitted",
        "<n> tools have invalid JSON schemas and will be omitted",
    }
)


# The parts of a page ----------------------------------------------------------------


def part_of(readme: str, title: str) -> str:
    """The text under a heading of the second level, or nothing."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    return "" if found is None else found.group(1)


def rows_of(text: str) -> list[list[str]]:
    """The cells of the tables, without their heads."""
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        is_head = lines[number + 1 : number + 2] and lines[number + 1].startswith("| ---")
        if line.startswith("| ") and not line.startswith("| ---") and not is_head:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def bare(cell: str) -> str:
    """The text of a cell or a heading without the marks of code."""
    quoted = re.fullmatch(r"(`+) ?(.*?) ?\1", cell.strip())
    return cell.strip() if quoted is None else quoted.group(2)


def blocks_of(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)


def test_every_block_has_a_language_that_is_tested_here() -> None:
    marks = re.findall(r"^```(.*)$", README, re.M)
    assert set(marks[::2]) == {"sh", "json"}
    assert set(marks[1::2]) == {""}


def test_the_page_is_ascii() -> None:
    assert README.isascii()


# Options ----------------------------------------------------------------------------


def options_of_help(usage: str) -> dict[str, str]:
    """Each option with its value, and its default."""
    found: dict[str, str] = {}
    for line in re.sub(r"\n {20,}", " ", usage).splitlines():
        option = re.match(r"  (--[a-z-]+(?: <\w+>)?)  +(.*)", line)
        if option is not None:
            default = re.search(r"\(default: (.*)\)", option.group(2))
            found[option.group(1)] = default.group(1) if default is not None else ""
    return found


def options_of_readme(readme: str) -> dict[str, str]:
    rows = [row for row in rows_of(part_of(readme, "Options")) if row[0].startswith("`-")]
    return {bare(row[0]): row[2].replace("`", "") for row in rows}


def wrong_options(readme: str) -> set[tuple[str, str]]:
    return set(options_of_readme(readme).items()) ^ set(options_of_help(bridge.USAGE).items())


def test_the_options_are_those_of_help() -> None:
    assert wrong_options(README) == set()


def test_an_option_anywhere_on_the_page_is_one_of_help() -> None:
    text = re.sub(r"```sh\n.*?```", "", README, flags=re.S)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - OTHER_OPTIONS
    assert named - {option.split()[0] for option in options_of_help(bridge.USAGE)} == set()


# Commands and entries ---------------------------------------------------------------


class Reader(NamedTuple):
    """A person with a copy of the files, a server of the modern revision, and python3."""

    folder: Path
    env: dict[str, str]
    placeholders: dict[str, str]

    def with_own_paths(self, text: str) -> str:
        for placeholder, path in self.placeholders.items():
            text = text.replace(placeholder, path)
        assert PLACEHOLDER not in text, f"what does it stand for? {text}"
        return text


def write_script(path: Path, *command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    if os.name != "posix":
        pytest.skip("the commands are run by sh")
    folder, programs = tmp_path / "clone", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    for name in NEEDED:
        shutil.copy(product.ROOT / name, folder)
    file, server = str(folder / "mcp_bridge_vscode.py"), programs / "server"
    write_script(programs / "python3", sys.executable)
    server.write_text(  # whatever its options are
        f"#!/bin/sh\nexec {shlex.join((sys.executable, file, 'demo'))}\n", encoding="utf-8"
    )
    server.chmod(0o755)
    placeholders = {f"{PLACEHOLDER}mcp_bridge_vscode.py": file}
    placeholders[f"{PLACEHOLDER}your-server"] = str(server)
    env = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    return Reader(folder, env, placeholders)


def commands_of(readme: str) -> list[str]:
    """The blocks of commands, without the lines that are not run here."""
    blocks = []
    for block in blocks_of(readme, "sh"):
        lines = [line for line in block.splitlines() if not NOT_RUN_HERE.search(line)]
        blocks += ["\n".join(lines)] if lines else []
    return blocks


@pytest.mark.parametrize("commands", commands_of(README), ids=lambda text: text.split("\n")[-1])
def test_the_commands_run(commands: str, reader: Reader) -> None:
    done = subprocess.run(  # noqa: S603 - what the README tells people to run
        ["/bin/sh", "-eu", "-c", reader.with_own_paths(commands)],
        cwd=reader.folder,
        env=reader.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check" not in commands or "\nOK: " in done.stdout


def test_the_tests_and_the_first_try_are_among_the_commands() -> None:
    blocks = blocks_of(README, "sh")
    assert blocks[0] == "python3 mcp_bridge_vscode.py check\n"
    assert any(block.startswith("python3 tests/run.py\n") for block in blocks)


def entries_of(readme: str) -> Iterator[dict[str, Any]]:
    """The servers of the JSON blocks."""
    for block in blocks_of(readme, "json"):
        yield from json.loads(block)["servers"].values()


ENTRIES: Final = list(entries_of(README))


@pytest.mark.parametrize("entry", ENTRIES, ids=[str(number) for number in range(len(ENTRIES))])
def test_the_entries_serve_a_client(entry: dict[str, Any], reader: Reader) -> None:
    assert entry["type"] == "stdio"
    argv = [reader.with_own_paths(text) for text in [entry["command"], *entry["args"]]]
    argv[0] = shutil.which(argv[0], path=reader.env["PATH"]) or argv[0]
    border = argv.index("--")
    program, command = argv[:border], argv[border + 1 :]
    env = {**reader.env, **entry.get("env", {})}
    with Bridge(program=program, command=command, env=env, checks_frames=False) as running:
        result: Any = running.initialize()
        assert "demo" in json.dumps(result)
        assert running.end() == 0


def test_a_secret_has_its_input() -> None:
    blocks = [json.loads(block) for block in blocks_of(README, "json")]
    used = set(re.findall(r"\$\{input:([\w-]+)\}", json.dumps(blocks)))
    inputs = [i for block in blocks for i in block.get("inputs", []) if i["password"] is True]
    assert used == {i["id"] for i in inputs} != set()


# Causes and limits ------------------------------------------------------------------


def wrong_causes(readme: str) -> set[tuple[str, ...]]:
    """Rows that the table of errors lacks or has too many of: cause, code, message."""
    real = {
        (cause.value, str(code), message.replace(bridge._SEE_OUTPUT, ""))
        for cause, (code, message) in bridge.ERROR_TABLE.items()
    }
    rows = [(bare(row[0]), *row[1:3]) for row in rows_of(part_of(readme, "Errors"))]
    return set(rows) ^ real | {row for row in rows if rows.count(row) > 1}


def test_the_causes_are_those_of_the_enum() -> None:
    assert wrong_causes(README) == set()
    assert len(rows_of(part_of(README, "Errors"))) == len(bridge.Cause)


UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "min": 60, "h": 3600}
LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)(?: (s|bytes))?(?: \((\d+) (\w+)\))?")


def wrong_limits(readme: str) -> list[str]:
    rows = rows_of(part_of(readme, "Limits"))
    wrong = []
    for row in rows:
        field, found = bare(row[2]), LIMIT.fullmatch(row[1])
        value = getattr(bridge.LIMITS, field, None)
        if found is None or value is None or float(found.group(1)) != value:
            wrong.append(f"{field}: {row[1]} is {value}")
        elif (found.group(2) or "") != {"seconds": "s", "bytes": "bytes"}.get(
            field.rpartition("_")[2], ""
        ):
            wrong.append(f"{field}: its unit")
        elif found.group(3) and int(found.group(3)) * UNITS[found.group(4)] != value:
            wrong.append(f"{field}: {row[1]} is not the same twice")
    named = [bare(row[2]) for row in rows]
    fields = {k: v for k, v in vars(bridge.Limits).items() if not k.startswith("_")}
    real = {name for name, value in fields.items() if isinstance(value, (int, float))}
    wrong += [f"{field}: how often?" for field in real - NOT_FOR_USERS if named.count(field) != 1]
    causes = {cause.value for cause in bridge.Cause}
    followed = {c for row in rows for c in re.findall(r"`(\w+)`", row[3])}
    return wrong + sorted(followed - causes)


def test_the_limits_are_those_of_the_class() -> None:
    assert wrong_limits(README) == []


def test_what_the_limits_leave_out_is_there() -> None:
    assert set(vars(bridge.Limits)) >= NOT_FOR_USERS


# Log lines --------------------------------------------------------------------------

HOLE: Final = "\0"  # a part of a text that differs from run to run
LEVELS: Final = {"error", "warning", "info", "debug"}
ONCE: Final = {"warn_once": "warning", "info_once": "info"}
SCOPES: Final = {"vscode", "bridge", "mcp_client", "mcp_stdio", "mcp_router"}
HEADING: Final = re.compile(r"^#### (.+)$", re.M)
LOG_LINE: Final = re.compile(r"(\w+): (error|warning|info|debug): (.+)", re.S)


class LogLine(NamedTuple):
    scope: str
    level: str
    text: str  # with holes

    def fits(self, other: LogLine) -> bool:
        """Is `other`, as a page quotes it, a line of this kind?"""
        pattern = "(.+)".join(re.escape(part) for part in self.text.split(HOLE))
        same = (self.scope, self.level) == (other.scope, other.level)
        return same and re.fullmatch(pattern, other.text, re.S) is not None

    def has_words(self) -> bool:
        return len(re.findall("[a-z]", self.text)) >= 4


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return is_text(node.body) and is_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def texts_of(node: ast.expr, local: Mapping[str, ast.expr]) -> list[str]:
    """What an expression may say, with holes; `local` are the texts that have a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [texts_of(part, local) for part in node.values]
        return ["".join(chosen) for chosen in itertools.product(*parts)]
    if isinstance(node, ast.FormattedValue):
        return texts_of(node.value, local)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = texts_of(node.left, local), texts_of(node.right, local)
        return [a + b for a in left for b in right]
    if isinstance(node, ast.IfExp) and is_text(node):
        return texts_of(node.body, local) + texts_of(node.orelse, local)
    if isinstance(node, ast.Call) and dotted(node.func).endswith("request.shown"):
        return [f"request {HOLE} ({HOLE})"]
    if isinstance(node, ast.Name):
        value = getattr(bridge, node.id, None)
        if node.id in local:
            return texts_of(local[node.id], {})
        return [value if isinstance(value, str) else HOLE]
    return [HOLE]


def named_texts(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The texts that a function gives a name before it uses them."""
    return {
        dotted(target): node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and is_text(node.value)
        for target in node.targets
    }


def lines_of_calls() -> Iterator[LogLine]:
    """What is handed to the log by its methods."""
    for _, function in product.functions():
        local = named_texts(function)
        for name, call in product.calls(function):
            method = name.rpartition(".")[2]
            level = ONCE.get(method, method)
            scope = call.args[0] if call.args else None
            if level in LEVELS and isinstance(scope, ast.Constant) and scope.value in SCOPES:
                for text in texts_of(call.args[-1], local):
                    yield LogLine(str(scope.value), level, text)


def lines_made_elsewhere() -> Iterator[LogLine]:
    """Wrong arguments, notes on tool schemas, and what is written without the log."""
    for name, call in product.calls():
        if name == "UsageError":
            yield from (LogLine("vscode", "error", text) for text in texts_of(call.args[0], {}))
    for node in ast.walk(TREE):
        if isinstance(node, ast.AugAssign) and dotted(node.target) == "notes":
            texts = [n for n in ast.walk(node.value) if isinstance(n, ast.JoinedStr)]
            yield from (LogLine("bridge", "info", text) for text in texts_of(texts[0], {}))
        elif isinstance(node, ast.JoinedStr):
            tag, _, rest = texts_of(node, {})[0].partition(": ")
            found = LOG_LINE.fullmatch(rest.rstrip("\n"))
            if tag == bridge.PROGRAM and found is not None:
                yield LogLine(*found.groups())


FROM_CALLS: Final = sorted({line for line in lines_of_calls() if line.has_words()})
REAL_LINES: Final = [*FROM_CALLS, *(x for x in lines_made_elsewhere() if x.has_words())]


def headings_of(readme: str) -> list[str]:
    return [bare(text) for text in HEADING.findall(part_of(readme, "Troubleshooting"))]


def quoted_lines(readme: str) -> list[LogLine]:
    found = [LOG_LINE.fullmatch(text) for text in headings_of(readme)]
    return [LogLine(*line.groups()) for line in found if line is not None]


def unknown_lines(readme: str) -> list[LogLine]:
    return [q for q in quoted_lines(readme) if not any(real.fits(q) for real in REAL_LINES)]


def missing_lines(readme: str) -> list[LogLine]:
    quoted = quoted_lines(readme)
    return [
        real
        for real in FROM_CALLS
        if real.level in {"error", "warning"} and not any(real.fits(line) for line in quoted)
    ]


def test_each_log_line_that_is_quoted_is_one_of_the_file() -> None:
    assert len(quoted_lines(README)) > 30
    assert unknown_lines(README) == []


def test_each_warning_and_error_of_the_log_is_quoted() -> None:
    assert len(FROM_CALLS) > 30
    assert missing_lines(README) == []


def test_each_other_heading_is_a_line_of_vscode_or_a_message_of_the_file() -> None:
    texts = {n.value for n in ast.walk(TREE) if isinstance(n, ast.Constant)}
    others = [text for text in headings_of(README) if LOG_LINE.fullmatch(text) is None]
    unknown = [
        text
        for text in others
        if text not in VSCODE_LINES and text.replace("MPC <code>: ", "", 1) not in texts
    ]
    assert unknown == []
    assert set(others) >= VSCODE_LINES


def test_no_heading_stands_twice() -> None:
    assert len(set(headings_of(README))) == len(headings_of(README))


# The rest ---------------------------------------------------------------------------


def test_the_floors_are_those_of_the_map() -> None:
    rows = rows_of(part_of(README, "Working on this"))
    assert tuple(row[0] for row in rows) == product.FLOORS


def test_each_file_and_folder_of_the_tests_that_is_named_is_there() -> None:
    named = set(re.findall(r"\btests/[\w/.]*\w", README))
    assert "tests/run.py" in named
    assert [name for name in sorted(named) if not (product.ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("look", "old", "new"),
    [
        (wrong_options, "| `--json` |", "| `--jsn` |"),
        (wrong_options, "| `--name <name>` |", "| `--name` |"),
        (wrong_options, "| 67108864 |", "| 67108863 |"),
        (wrong_causes, "| `timeout` | -32603 |", "| `timeout` | -32600 |"),
        (wrong_causes, "| `internal` |", "| `internals` |"),
        (wrong_causes, "The server process has stopped. |", "The process has stopped. |"),
        (wrong_limits, "| 120 s | `list_seconds` |", "| 100 s | `list_seconds` |"),
        (wrong_limits, "| 120 s | `list_seconds` |", "| 120 | `list_seconds` |"),
        (wrong_limits, "bytes (64 MiB)", "bytes (63 MiB)"),
        (wrong_limits, "| `too_many_rounds` |", "| `too_many` |"),
        (unknown_lines, "bridge: error: the upstream server exited", "bridge: error: it exited"),
        (unknown_lines, "bridge: error: the upstream", "bridge: warning: the upstream"),
        (unknown_lines, "vscode: error: the option", "vscode: error: an option"),
        (missing_lines, "bridge: error: the upstream", "bridge: warning: the upstream"),
    ],
)
def test_a_page_that_is_wrong_would_be_seen(look: Callable[[str], Any], old: str, new: str) -> None:
    assert old in README
    assert look(README.replace(old, new))


def test_a_placeholder_that_stands_for_nothing_would_be_seen(reader: Reader) -> None:
    with pytest.raises(AssertionError, match="stand for"):
        reader.with_own_paths(f"python3 {PLACEHOLDER}something")
