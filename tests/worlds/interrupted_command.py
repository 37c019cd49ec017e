"""A command in a process of its own, which a test interrupts as a terminal does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

#: A machine may be busy: no test waits so long for what will come.
DEADLINE_S = 240
#: What a command started and does not wait for ends by itself within this time, or is left over.
LEFT_OVER_DEADLINE_S = 20
#: Whoever started the tests in the background has had SIGINT ignored, and a child inherits that.
PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.{}); from rmq_actors.cli.entry import main; main()".format


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


@attrs.frozen
class Command:
    """A command that runs in a process group of its own. It writes into files: a reader of a pipe takes lines away."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return (self.directory / "stdout").read_text()

    @property
    def stderr(self) -> str:
        """The same of standard error."""
        return (self.directory / "stderr").read_text()

    def left_over(self) -> list[str]:
        """The command lines of the other processes of its group that do not end within some seconds of its own end.

        Python's resource tracker notices that end only by its pipe, and what was killed is listed until it is gone.
        """
        deadline = time.monotonic() + LEFT_OVER_DEADLINE_S
        while (children := self.children) and time.monotonic() < deadline:
            time.sleep(0.02)
        return children

    @property
    def children(self) -> list[str]:
        """The command lines of the other processes of its group that are alive."""
        listed = subprocess.run(
            ["ps", "-ww", "-eo", "pid,pgid,stat,args"], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(maxsplit=3) for line in listed.splitlines()[1:]]
        group = self.process.pid
        return [args for pid, pgid, state, args in rows if int(pgid) == group != int(pid) and state[0] != "Z"]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Poll until `condition` is true while the command runs."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None, (self.process.returncode, self.stdout, self.stderr)
            assert time.monotonic() < deadline, (self.stdout, self.stderr)
            time.sleep(0.02)

    def interrupt(self) -> Ended:
        """Ctrl-C: SIGINT goes to the whole group. And the end of the command."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(DEADLINE_S)
        return Ended(code, self.stdout, self.stderr)


@contextlib.contextmanager
def started(*arguments: object, handler: str = "default_int_handler") -> Iterator[Command]:
    """A command; at the end nothing of its group is left."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        outputs = [stack.enter_context((directory / name).open("wb")) for name in ("stdout", "stderr")]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM(handler), *map(str, arguments)],
            stdout=outputs[0],
            stderr=outputs[1],
            start_new_session=True,
        )
        try:
            yield Command(process, directory)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
