"""The program `turnlog-server`; its commands are in `commands`."""

import sys


def main() -> None:
    """The console script."""
    try:
        # The longest part of a short command: Ctrl-C may well come during it.
        from turnlog_server.app.commands import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
