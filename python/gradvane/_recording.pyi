"""Recordings of the flight recorder: docs/recording-format.md. Needs no torch. A path of bytes may be any."""

class RecordingError(ValueError):
    """What is wrong with a file, for a person."""

class Server:
    @property
    def url(self) -> str: ...
    def stop(self) -> None: ...

def read(path: str | bytes) -> str:
    """JSON: everything but what single parameters were."""

def steps(path: str | bytes) -> str:
    """One JSON object a line, as docs/step-log.md has it."""

def story(path: str | bytes, json: bool = False) -> str: ...
def diff(
    a: str | bytes, step_a: int | None, b: str | bytes, step_b: int | None, json: bool = False,
    tolerance: float = 1e-3,
) -> str: ...
def serve(path: str | bytes, address: str, port: int, allowed_hosts: str = "") -> Server: ...
