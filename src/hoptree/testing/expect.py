"""Messages of suites when an expected error is not raised."""

from __future__ import annotations

from collections.abc import Callable


def expect_error(kind: type[Exception], text: str, call: Callable[[], object], after: str = "") -> None:
    """Fail unless ``call`` raises an error of this kind with this text in its message."""
    where = f" after: {after}" if after else ""
    try:
        result = call()
    except kind as error:
        message = str(error)
    except Exception as error:
        raise AssertionError(f"expected {kind.__name__}{where}, got {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"expected {kind.__name__}{where}, got {result!r}")
    assert text in message, f"{kind.__name__}: expected {text!r} in its message, got: {message}"
