"""Gradvane's log. A program may have given it handlers and filters that raise: that reaches neither its training nor a
thread of ours."""

from __future__ import annotations

import logging
from typing import Any

from gradvane._errors import is_of_a_signal


class _Log:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, *args: object) -> None:
        self._say(logging.DEBUG, message, args)

    def info(self, message: str, *args: object) -> None:
        self._say(logging.INFO, message, args)

    def warning(self, message: str, *args: object, exc_info: bool = False) -> None:
        self._say(logging.WARNING, message, args, exc_info=exc_info)

    def is_shown(self) -> bool:
        """Whether a line at level INFO is: by `gradvane run`, or by a program that shows such messages."""
        return self._logger.isEnabledFor(logging.INFO) and self._logger.hasHandlers()

    def _say(self, level: int, message: str, args: tuple[object, ...], **named: Any) -> None:
        try:
            self._logger.log(level, message, *args, stacklevel=3, **named)
        except Exception as error:
            if is_of_a_signal(error):
                raise


logger = _Log(logging.getLogger("gradvane"))
