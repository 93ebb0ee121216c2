"""What can go wrong before training runs."""


class GradvaneError(RuntimeError):
    """Set-up failed. The message says what to change. Nothing raises it once training runs."""
