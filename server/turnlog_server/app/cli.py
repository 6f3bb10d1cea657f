"""The program `turnlog-server`; its commands are in `commands`."""

import os
import sys


def main() -> None:
    """The console script."""
    # The embedded PostgreSQL is started beside a gRPC server, as another user and so by a plain fork. gRPC's own fork
    # handlers would run in that child, on threads that are not there, and can crash it. Read when gRPC starts.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        # The longest part of a short command: Ctrl-C may well come during it.
        from turnlog_server.app.commands import app
        from turnlog_server.app.usage import invoke

        sys.exit(invoke(app, sys.argv[1:], "turnlog-server"))
    except KeyboardInterrupt:
        sys.exit(130)
