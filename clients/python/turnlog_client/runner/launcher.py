"""Starts harnesses by profile name."""

from pathlib import Path

from turnlog_client.runner.attempt import Launch
from turnlog_client.runner.echo import EchoHarness
from turnlog_client.runner.harness_process import HarnessProcess, find_program
from turnlog_client.runner.options import OptionsError, RunnerOptions
from turnlog_client.runner.outputs import HarnessRun
from turnlog_client.runner.proctree import harness_environment


def check_programs(options: RunnerOptions) -> None:
    """Raises OptionsError where the program of a harness is not there: every Run of its would fail."""
    environment = harness_environment(extra=options.environment)
    for profile, command in options.harnesses.items():
        if isinstance(command, str):
            continue
        try:
            find_program(command[0], environment)
        except OSError as error:
            raise OptionsError(f"The harness {profile} cannot be started: {error}") from error


def launcher(options: RunnerOptions, runner_id: str) -> Launch:
    """What starts the harnesses of `options`."""
    environment = harness_environment(extra=options.environment)

    async def launch(profile: str, attempt: str, work_dir: Path) -> HarnessRun:
        command = options.harnesses[profile]
        if isinstance(command, str):
            return EchoHarness()
        return await HarnessProcess.spawn(
            command, runner_id=runner_id, attempt_id=attempt, workdir=work_dir, env=environment
        )

    return launch
