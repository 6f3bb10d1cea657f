"""Every setting as an option of a command, from the one declaration in `settings`."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from turnlog_server.app.settings import PREFIX, Settings, SettingsError

Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with settings.", envvar=f"{PREFIX}CONFIG", rich_help_panel="Settings"),
]


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for each setting; it is called with all of them as `settings`."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "settings"]
    options = [_option(name, field) for name, field in Settings.model_fields.items()]
    config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Config)

    def run(**given: Any) -> Any:
        flags = {name: given.pop(name) for name in Settings.model_fields}
        try:
            settings = Settings.load(flags, config=given.pop("config"))
        except SettingsError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None
        return command(settings=settings, **given)

    # typer reads a command's parameters from its signature.
    run.__signature__ = inspect.Signature([*(each.replace(kind=config.kind) for each in own), *options, config])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    extra: dict[str, Any] = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flag = "--" + name.replace("_", "-")
    shown = "" if field.default in (None, "") else f" [default: {field.default}]"
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if field.annotation is bool else flag,
        help=f"{field.description}{'' if field.annotation is bool else shown}",
        metavar=None if field.annotation is bool else _metavar(field.annotation),
        show_default=False,
        rich_help_panel=extra["panel"],
        hidden=extra["hidden"],
    )
    # Text, so that pydantic alone says what is a number and what is not.
    kind = bool | None if field.annotation is bool else str | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _metavar(annotation: Any) -> str:
    for each in (annotation, *get_args(annotation)):
        if get_origin(each) is Literal:
            return "|".join(get_args(each))
        if each in (int, float):
            return "NUMBER"
        if each is Path:
            return "PATH"
    return "TEXT"
