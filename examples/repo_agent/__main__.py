"""`python examples/repo_agent --tree FOLDER`: the harness process that a runner starts."""

import sys
from pathlib import Path

# Started by path, from any working folder: the package is found beside this file.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from repo_agent.agent import main

main()
