"""What all commands have in common: help, version, and how they end."""

import fcntl
import signal
import struct
import subprocess
import termios
from importlib.metadata import version
from pathlib import Path
from typing import IO

import pytest

from oncely.surface.cli.program import COMMANDS, build
from tests.surface.command import SCRIPT, Command, environment, on_terminal
from tests.waiting import PATIENCE_SECONDS, wait_until

NAMES = [name for names in COMMANDS.values() for name in names]


def test_version(oncely: Command) -> None:
    done = oncely("--version")
    assert (done.code, done.out, done.err) == (0, f"oncely {version('oncely')}\n", "")


def test_help_lists_every_command(oncely: Command) -> None:
    done = oncely("--help")
    assert (done.code, done.err) == (0, "")
    for group, names in COMMANDS.items():
        assert f"─ {group} ─" in done.out
        for name in names:
            assert f"│ {name} " in done.out


def test_nothing_asked_for_is_help(here: Command) -> None:
    assert here().out == here("--help").out


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    build()([name, "--help"])
    shown = capsys.readouterr().out
    assert f"\n    $ oncely {name}" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for option in ("--url", "--schema", "--json"):
        assert f"│ {option} " in shown


def test_ctrl_c_while_it_waits_for_its_payload(folder: Path) -> None:
    process = subprocess.Popen(
        [SCRIPT, "enqueue", "k", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=folder,
    )
    with process:
        assert process.stdin is not None
        process.stdin.write(b" " * 1_000)
        process.stdin.flush()
        # When it has read all there is, it waits for more.
        wait_until(lambda: unread(process.stdin) == 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() + process.stderr.read() == b""
    assert list(folder.iterdir()) == []


def unread(pipe: IO[bytes] | None) -> int:
    """How many bytes are in it."""
    assert pipe is not None
    count = bytearray(4)
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    [found] = struct.unpack("i", count)
    return int(found)


def test_an_error_on_a_terminal_has_no_colours_and_no_box(folder: Path) -> None:
    done = on_terminal("jobs", "--bogus", cwd=folder)
    assert done.code == 2
    assert done.out == "oncely: Unknown option: --bogus. See `oncely jobs --help`.\n"


def test_a_terminal_that_cannot_show_every_letter(oncely: Command) -> None:
    assert oncely("enqueue", "k", '"Zoë"').code == 0
    done = oncely("jobs", PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].endswith(r'"Zo\xeb"')
    assert oncely("jobs", "--json", PYTHONIOENCODING="ascii").json()[0]["payload"] == "Zoë"
