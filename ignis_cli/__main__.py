"""The command `ignis`, also as ``python -m ignis_cli``."""

import signal
import sys

from queue_core.support.collector import collect_rarely

#: What the command line needs beside the queue.
_NEEDED = ("rich", "typer")
#: The exit code after Ctrl-C, as a shell shows it.
_INTERRUPTED = 130


def main() -> None:
    """Run the command `ignis`, or say what is missing for it."""
    collect_rarely()
    # The parent process may have told this one to ignore Ctrl-C.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        # Imports and Python's own end have nothing to tidy up: there, Ctrl-C ends it at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from ignis_cli.app import app
        from ignis_cli.display import buffer_output
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(
            "ignis: the command line needs typer and rich, which are not installed: "
            "pip install 'ignis-queue[cli]'"
        )
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        buffer_output()
        app()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
