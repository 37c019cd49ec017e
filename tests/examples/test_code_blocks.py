"""Every block of code in README and the documents works: programs run, commands are understood, settings are read.

A new block needs nothing here, unless it is a part of a program: see `fragments.py`. A block without a kind is a
figure, a format, or what a program prints. The commands of `docs/operating.md` are run by `test_operating_page.py`.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rmq_actors.cli.main import app
from rmq_actors.embedding.broker import load_broker_config
from rmq_actors.embedding.name_server import load_namesrv_config
from rmq_actors.embedding.tls_settings import load_tls_config
from rmq_actors.remoting.plain_acl_file import parse_plain_acl
from rmq_actors.remoting.tls import TlsConfig
from rmq_actors.settings.properties_text import parse_properties
from tests.examples.blocks import BLOCKS, PAGES, PROJECT, Block
from tests.examples.fragments import BEFORE_TESTS, FRAGMENTS
from tests.worlds.extras import project

KINDS = {"", "console", "properties", "python", "sh", "yaml"}
#: RocketMQ's and the system's.
OTHER_PROGRAMS = {"kill", "mqadmin"}
TLS_FILE = "/etc/rocketmq/tls.properties"


def of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind in kinds]


def is_test(block: Block) -> bool:
    return "def test_" in block.text


# --- programs ---------------------------------------------------------------------------------------------------------

PROGRAMS = [block for block in of_kind("python") if not is_test(block)]
TESTS = [block for block in of_kind("python") if is_test(block)]


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = FRAGMENTS.get(block.key)
    if run is None:
        exec(compile(block.text, str(block), "exec", dont_inherit=True), {"__name__": "block"})
    else:
        run(block.text)


def test_tests_pass(tmp_path: Path) -> None:
    """In one process, as a user's are."""
    for number, block in enumerate(TESTS):
        (tmp_path / f"test_{number}.py").write_text(BEFORE_TESTS.get(block.key, "") + block.text)
    # A directory of its own: at its end pytest removes those of earlier runs, which may be large.
    own = f"--basetemp={tmp_path / 'temporary'}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", own],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(TESTS)} passed" in done.stdout


# --- commands ---------------------------------------------------------------------------------------------------------

COMMANDS = [(str(block), line) for block in of_kind("console", "sh") for line in block.commands]


def commands_of(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the program that does something, by its words."""
    children = getattr(command, "commands", {})
    if not children:
        yield words, command
    for name, child in children.items():
        yield from commands_of(child, *words, name)


PROGRAM = dict(commands_of(typer.main.get_command(app)))


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}


def command_in(words: list[str]) -> tuple[str, ...]:
    (found,) = (command for command in PROGRAM if tuple(words[: len(command)]) == command)
    return found


def check_command(line: str) -> None:
    """Raise if there is no such program, command, option, target or file."""
    words = shlex.split(line, comments=True)
    if words[-1] == "&":
        words.pop()
    program, *arguments = words
    if program == "rmq-actors":
        if arguments != ["--help"]:
            command = command_in(arguments)
            PROGRAM[command].make_context("", arguments[len(command) :])  # it raises what a user would be told
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= {*targets}
    elif program == "pip":
        assert arguments[0] == "install"
        for wanted in arguments[1:]:
            found = re.fullmatch(r"(?:rmq-actors|\.)(?:\[([a-z,]+)\])?", wanted)
            assert found, wanted
            assert {*(found[1] or "").split(",")} - {""} <= {*project()["optional-dependencies"]}
    elif program in {"bash", "python"}:
        assert (PROJECT / arguments[0]).exists() or (arguments[0] == "-m" and importlib.util.find_spec(arguments[1]))
    else:
        assert program in OTHER_PROGRAMS, program


@pytest.mark.parametrize(("place", "line"), COMMANDS, ids=lambda text: text if text.startswith("$") else None)
def test_a_command_is_understood(place: str, line: str) -> None:
    check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "rmq-actors chaos rum",
        "rmq-actors broker --cfg x",
        "rmq-actors trace recover",
        "make love",
        "pip install rmq-actor",
    ],
)
def test_a_command_that_is_none_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r".*"):
        check_command(line)


def test_the_table_of_commands_has_all_and_their_options() -> None:
    page = (PROJECT / "docs" / "commands.md").read_text()
    page = page.partition("| command | what it does |")[2]
    rows = [re.sub(r"[\[\]]", " ", row).split() for row in re.findall(r"^\| `([a-z][^`]*)` \|", page, re.MULTILINE)]
    assert {command_in(row) for row in rows} == PROGRAM.keys()
    for row in rows:
        assert {word for word in row if word.startswith("-")} <= options_of(PROGRAM[command_in(row)]), row


def test_commands_within_the_text_are_there() -> None:
    for page in PAGES:
        for span in re.findall(r"`rmq-actors ([a-z][^`]*)`", page.read_text()):
            words = re.sub(r"[\[\]]", " ", span).split()
            near = [command for command in PROGRAM if command[: len(words)] == tuple(words[: len(command)])]
            assert near, f"{page.name}: {span}"
            if near[0] == tuple(words[: len(near[0])]):
                assert {word for word in words if word.startswith("-")} <= options_of(PROGRAM[near[0]]), span


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [block for block in of_kind("properties") if block.text.startswith("# ")], ids=str)
def test_a_brokers_file_is_read(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(block.text)
    loaded = load_broker_config(path)
    assert [*loaded.file.warnings] == []


def test_the_files_of_tls_are_read(tmp_path: Path) -> None:
    own, tls = (block for block in of_kind("properties") if not block.text.startswith("# "))
    TlsConfig.from_properties(parse_properties(tls.text, str(tls)))
    (tmp_path / "tls.properties").write_text(tls.text)
    conf = tmp_path / "namesrv.conf"
    conf.write_text(own.text.replace(TLS_FILE, str(tmp_path / "tls.properties")))
    loaded = load_namesrv_config(conf)
    assert loaded.unknown == ()
    assert load_tls_config(loaded.properties) != TlsConfig()


def test_the_file_of_accounts_is_read() -> None:
    (block,) = of_kind("yaml")
    rules = parse_plain_acl({"conf/plain_acl.yml": block.text.encode()})
    assert [*rules.accounts] == ["RocketMQ"]


# --- nothing is left out ----------------------------------------------------------------------------------------------


def test_every_block_is_of_a_kind_that_is_tried() -> None:
    assert {block.kind for block in BLOCKS} == KINDS


def test_no_command_hides_in_a_block_without_a_kind() -> None:
    begins = re.compile(r"^(?:\$ |rmq-actors |make |pip |python |(?:async )?(?:def|with|from|import) )", re.MULTILINE)
    assert [str(block) for block in of_kind("") if begins.search(block.text)] == []


def test_every_completion_has_its_block() -> None:
    keys = [block.key for block in of_kind("python")]
    assert {*FRAGMENTS, *BEFORE_TESTS} <= {*keys}
    assert [key for key in keys if keys.count(key) > 1 and key in {*FRAGMENTS, *BEFORE_TESTS}] == []
