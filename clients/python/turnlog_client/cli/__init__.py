"""`turnlog`, the command line: each command is RPCs of the public contract and nothing else."""

import sys


def main() -> None:
    """The program `turnlog`."""
    from turnlog_client.cli.app import run

    sys.exit(run(sys.argv[1:]))
