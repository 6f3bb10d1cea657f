"""`turnlog`, the command line: each command is RPCs of the public contract and nothing else."""

import os
import sys


def main() -> None:
    """The program `turnlog`."""
    # gRPC's own remarks about connections would stand between what a person reads. Read when gRPC is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A runner starts harnesses beside its connection: gRPC's fork handlers have no business in them.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        # The longest part of a short command: Ctrl-C may well come during it.
        from turnlog_client.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
