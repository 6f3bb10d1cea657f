"""The cookbook covers every command, and each of its lines is right by the contract."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import scripted  # noqa: F401  registers the descriptors of every service
import typer
from google.protobuf import descriptor_pool, json_format, message_factory
from turnlog_client.cli.app import app
from turnlog_client.cli.exits import MEANINGS

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook.md"

# Not one RPC each, and said so in the cookbook.
WITHOUT_A_LINE = {("runner", "start"), ("runner", "check-harness")}


@dataclass(frozen=True)
class Recipe:
    """One block: a command, and the grpcurl line that does the same."""

    needs: str
    command: str
    grpcurl: str

    @property
    def path(self) -> tuple[str, ...]:
        """The command's name."""
        return tuple(self.command.split()[1:3])


def read_recipes() -> list[Recipe]:
    blocks = re.findall(
        r"^```console *(\w*)\n\$ (turnlog .*)\n\$ (grpcurl .*)\n```$", COOKBOOK.read_text(), re.MULTILINE
    )
    return [Recipe(*block) for block in blocks]


RECIPES = read_recipes()


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


@pytest.mark.rule("R17")
def test_every_block_is_a_recipe_and_every_command_has_one() -> None:
    assert len(RECIPES) == COOKBOOK.read_text().count("```console")
    assert {recipe.path for recipe in RECIPES} == set(COMMANDS) - WITHOUT_A_LINE


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.command[8:48])
def test_the_command_line_is_one_that_turnlog_takes(recipe: Recipe) -> None:
    command = COMMANDS[recipe.path]
    context = command.make_context("turnlog", shlex.split(recipe.command)[3:])
    assert not context.args


@pytest.mark.rule("R17")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.command[8:48])
def test_the_grpcurl_line_is_a_valid_request_of_the_contract(recipe: Recipe) -> None:
    words = shlex.split(recipe.grpcurl)
    service, method = words[-1].split("/")
    assert words[-2] == "$ADDRESS"
    described = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(method)
    data = words[words.index("-d") + 1] if "-d" in words else "{}"
    request = message_factory.GetMessageClass(described.input_type)()
    json_format.Parse(data, request)
    if "request_id" in described.input_type.fields_by_name and method != "GetRequest":
        assert getattr(request, "request_id", "") == "$REQUEST"


def test_the_exit_codes_are_those_of_the_program() -> None:
    table = re.findall(r"^\| (\d+) \| (.*) \|$", COOKBOOK.read_text(), re.MULTILINE)
    assert table == [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]
