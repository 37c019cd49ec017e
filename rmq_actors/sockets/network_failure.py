"""Says to operators why a connection could not be made, or broke."""

from __future__ import annotations

from collections.abc import Iterator

#: How Trio begins the text of an address that it could not connect to; the message around it names the address already.
_OF_TRIO = "Error connecting to "


def network_failure(error: BaseException) -> str:
    """The system's own words, such as "Connection refused", each once if several addresses of a name were tried.

    Trio's error only says that all attempts failed; its cause says why.
    """
    return ", ".join(dict.fromkeys(_text(cause) for cause in _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    elif type(error) is OSError and error.errno is None and error.__cause__ is not None:
        yield from _causes(error.__cause__)
    else:
        yield error


def _text(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    if text is None:
        return str(error) or type(error).__name__
    return text.rpartition(": ")[2] if text.startswith(_OF_TRIO) else text
