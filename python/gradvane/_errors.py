"""What can go wrong before training runs, and how an exception is told."""


class GradvaneError(RuntimeError):
    """Set-up failed. The message says what to change. Nothing raises it once training runs."""


_MOST = 1024
"""characters of an exception's text that a run's status, its alerts and its recordings show"""


def described(error: BaseException) -> str:
    """The exception in one text of bounded length. It goes to the run's status, and so to everyone who may read
    the endpoint."""
    kind = type(error).__name__
    said = text_of(error)
    return text_of(f"{kind}: {said}") if said else kind


def text_of(value: object) -> str:
    """str() of bounded length. It raises nothing: what is wrong with `value` must not become another end of the
    program than its own."""
    try:
        text = str(value)
    except Exception:
        return ""
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
