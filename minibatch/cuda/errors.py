"""What can stand between a caller and a kernel."""


class KernelUnavailable(RuntimeError):
    """Something a backend needs is not on this machine. The message names it, says where it was looked for, and what
    to do."""


class BuildError(RuntimeError):
    """The compiler refused a source. The message is its first error; `log` holds all it said."""

    def __init__(self, message: str, log: str = ""):
        super().__init__(message)
        self.log = log


class LaunchError(RuntimeError):
    """A kernel was not started, or CUDA reports a failure."""
