"""Recordings of the flight recorder: docs/recording-format.md. Needs no torch."""

class RecordingError(ValueError):
    """What is wrong with a file, for a person."""

class Server:
    @property
    def url(self) -> str: ...
    def stop(self) -> None: ...

def read(path: str) -> str:
    """JSON: everything but what single parameters were."""

def steps(path: str) -> str:
    """One JSON object a line, as docs/step-log.md has it."""

def story(path: str, json: bool = False) -> str: ...
def diff(
    a: str, step_a: int | None, b: str, step_b: int | None, json: bool = False, tolerance: float = 1e-3
) -> str: ...
def serve(path: str, address: str, port: int) -> Server: ...
