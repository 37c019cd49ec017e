"""A command that has no room for what it writes says so in one line, with the exit code of bad input."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import TextIO

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
    except (OSError, BaseExceptionGroup) as error:
        full = _of_a_full_disk(error)
        if full is None:
            raise
        place = "" if full.filename is None else f": {full.filename}"
        with contextlib.suppress(OSError):  # standard error may have no room either
            print(f"rmq-actors: {os.strerror(full.errno or errno.ENOSPC)}{place}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            _give_up(stream)
        raise SystemExit(ExitCode.BAD_INPUT) from None


def _of_a_full_disk(error: BaseException) -> OSError | None:
    """The first error of a full disk, if nothing else has happened."""
    if isinstance(error, BaseExceptionGroup):
        found = [_of_a_full_disk(each) for each in error.exceptions]
        return found[0] if all(found) else None
    return error if isinstance(error, OSError) and error.errno in _FULL else None


def _give_up(stream: TextIO) -> None:
    """Python would try again to write what is left of it as it ends, and say that it cannot."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
