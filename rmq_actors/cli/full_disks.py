"""A command that has no room for what it writes says so in one line, with the exit code of bad input."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from rmq_actors.cli.exit_codes import ExitCode

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def exits_with_2() -> Iterator[None]:
    """Let an error of a full disk within the block end the process; what is printed is written by then."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        place = "" if error.filename is None else f": {error.filename}"
        print(f"rmq-actors: {os.strerror(error.errno)}{place}", file=sys.stderr)
        _give_up_standard_output()
        raise SystemExit(ExitCode.BAD_INPUT) from None


def _give_up_standard_output() -> None:
    """Python would try again to write what is left of it as it ends, and say that it cannot."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
