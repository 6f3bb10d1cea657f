"""The settings of a server, each declared once: its name, type, default, and the sentence that `--help` shows.

A value comes from the first of these that has one: the flag `--pool-size`, the environment variable
`TURNLOG_POOL_SIZE`, the line `pool_size = …` in the TOML file named by `--config` or `TURNLOG_CONFIG`, the default.
A secret may also come from a file: `database_url_file` stands for `database_url` in any of the three.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.sources import InitSettingsSource

from turnlog_server.app.usage import plain
from turnlog_server.domain.draft import SECOND, Rules
from turnlog_server.domain.limits import PROGRESS_SECONDS

PREFIX: Final = "TURNLOG_"
SECRETS: Final = ("database_url",)

LogFormat = Literal["auto", "json", "human"]
LogLevel = Literal["debug", "info", "warning", "error"]


class SettingsError(Exception):
    """The settings cannot be used; the message says which one and why."""


def _field(default: Any, panel: str, description: str, *, hidden: bool = False, **bounds: Any) -> Any:
    extra = {"panel": panel, "hidden": hidden}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


DATABASE, NETWORK, RUNS, FLEET, OPERATION = "Database", "Network", "Runs", "Runners", "Operation"


class Settings(BaseSettings):
    """Everything that may be chosen. Durations are seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    database_url: SecretStr | None = _field(
        None, DATABASE, "PostgreSQL (15 or later) or CockroachDB to use instead of the embedded PostgreSQL."
    )
    database_url_file: Path | None = _field(None, DATABASE, "File that holds the database URL.")
    data_dir: Path = _field(Path(".turnlog"), DATABASE, "Folder of the embedded PostgreSQL.")
    postgres_bin: Path | None = _field(
        None, DATABASE, "Folder with the programs of the PostgreSQL to embed; the packaged one by default."
    )
    pool_size: int = _field(
        8, DATABASE, "Connections of a replica, beside the lane's and the listener's.", ge=2, le=1000
    )
    embedded_fsync: bool = _field(True, DATABASE, "Off loses data in a power cut: for tests.", hidden=True)
    force_dialect: Literal["crdb"] | None = _field(
        None, DATABASE, "Use CockroachDB's switches whatever the database is: for tests.", hidden=True
    )

    listen: str = _field("127.0.0.1:7777", NETWORK, "Address to serve on; port 0 takes a free one.")
    insecure: bool = _field(False, NETWORK, "Serve without TLS to other machines, too.")
    tls_cert: Path | None = _field(None, NETWORK, "Certificate chain (PEM). Read again when it changes.")
    tls_key: Path | None = _field(None, NETWORK, "Private key of the certificate (PEM).")
    tls_client_ca: Path | None = _field(
        None, NETWORK, "Ask clients for a certificate, and accept those that this CA (PEM) signed."
    )
    max_concurrent_streams: int = _field(1000, NETWORK, "Calls at a time on one connection.", ge=1)

    startup_allowance_seconds: float = _field(60.0, RUNS, "From accepting a Run to a ready harness.", gt=0)
    max_startup_attempts: int = _field(5, RUNS, "Start-ups of a Run that may fail in a row; 0 for no bound.", ge=0)
    max_attempts: int = _field(50, RUNS, "Attempts of a Run in all; 0 for no bound.", ge=0)
    queue_timeout_seconds: float = _field(86400.0, RUNS, "How long a Run waits for a runner; 0 for ever.", ge=0)
    stop_grace_seconds: float = _field(10.0, RUNS, "What a runner gets to settle a Run that it must stop.", gt=0)

    runner_lease_ttl_seconds: float = _field(10.0, FLEET, "A runner not heard of for this long is lost.", gt=0)
    runner_heartbeat_seconds: float = _field(3.0, FLEET, "How often runners say that they live.", gt=0)

    safety_poll_seconds: float = _field(
        1.0, OPERATION, "How often to look for what no hint told of; bounds how late a revocation takes effect.", gt=0
    )
    progress_seconds: float = _field(
        float(PROGRESS_SECONDS), OPERATION, "The longest silence of an idle follow.", gt=0, le=PROGRESS_SECONDS
    )
    drain_grace_seconds: float = _field(20.0, OPERATION, "What calls in flight get after SIGTERM.", ge=0, le=86400)
    metrics_listen: str = _field("", OPERATION, "Address for Prometheus, such as 127.0.0.1:9464; empty for none.")
    log_level: LogLevel = _field("info", OPERATION, "Least severe log lines to show.")
    log_format: LogFormat = _field("auto", OPERATION, "JSON lines, or lines for people; auto looks for a terminal.")
    bench: bool = _field(False, OPERATION, "Serve what benchmarks measure against.", hidden=True)

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Self:
        """The settings of this process. `flags` with the value None count as not given.

        Raises SettingsError.
        """
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        config = config or (Path(named) if (named := os.environ.get(f"{PREFIX}CONFIG")) else None)
        token = _config_file.set(config)
        try:
            return cls(**given)
        except ValidationError as error:
            raise SettingsError("\n".join(_sentence(each) for each in error.errors())) from None
        finally:
            _config_file.reset(token)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then the environment, then the file."""
        config = _config_file.get()
        file = InitSettingsSource(settings_cls, _toml(config) if config is not None else {})
        return tuple(_WithSecretFiles(settings_cls, source) for source in (init_settings, env_settings, file))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key are given together or not at all: give --tls-cert and --tls-key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key: clients show a certificate only over TLS")
        if self.runner_heartbeat_seconds * 2 > self.runner_lease_ttl_seconds:
            raise ValueError("runner_heartbeat_seconds must be at most half of runner_lease_ttl_seconds")
        return self

    @field_validator("listen", "metrics_listen")
    @classmethod
    def _names_a_port(cls, address: str) -> str:
        if address and not address.startswith("unix:") and not address.rpartition(":")[2].isdecimal():
            raise ValueError("must name a port, as in 127.0.0.1:7777")
        return address

    @property
    def dsn(self) -> str | None:
        """Where the database is; None for the embedded one."""
        return self.database_url.get_secret_value() if self.database_url is not None else None

    @property
    def rules(self) -> Rules:
        """What decisions depend on."""
        return Rules(
            startup_allowance=_micros(self.startup_allowance_seconds),
            max_startup_attempts=self.max_startup_attempts,
            max_attempts=self.max_attempts,
            queue_timeout=_micros(self.queue_timeout_seconds),
            stop_grace=_micros(self.stop_grace_seconds),
        )

    def require_safe_transport(self) -> None:
        """Refuses to send keys and messages in the clear to other machines, unless that was asked for."""
        if self.tls_cert is None and not self.insecure and not is_loopback(self.listen):
            raise SettingsError(
                f"{self.listen} can be reached by other machines, and without TLS everything sent there, keys too, "
                "can be read on the way: give --tls-cert and --tls-key, listen on 127.0.0.1, or say --insecure."
            )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches what listens on `address`."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable(address: str) -> str:
    """The address for a client on this machine: the wildcard is nobody's."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host.strip("[]") in ("0.0.0.0", "::", "") and port else address


# pydantic-settings asks for sources by class, not by instance.
_config_file: ContextVar[Path | None] = ContextVar("config_file", default=None)


class _WithSecretFiles(PydanticBaseSettingsSource):
    """A source in which `NAME_file` stands for NAME: so it has the rank of where it was said."""

    def __init__(self, settings_cls: type[BaseSettings], source: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._source = source

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._source.get_field_value(field, field_name)

    def __call__(self) -> dict[str, Any]:
        values = dict(self._source())
        for name in SECRETS:
            path = values.pop(f"{name}_file", None)
            if path is None:
                continue
            if name in values:
                raise SettingsError(f"Give {name} or {name}_file, not both.")
            values[name] = _text(Path(path), f"{name}_file").strip()
        return values


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(path, "--config"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}.") from None


def _text(path: Path, name: str) -> str:
    try:
        return path.expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{name}: {path} cannot be read: {reason}.") from None


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"There is no setting {where}."
    message = plain(error["msg"])
    if not where:
        return f"Settings: {message}."
    given = "" if where in SECRETS else f", and is {str(error['input'])[:100]!r}"
    sources = f"--{where.replace('_', '-')}, {PREFIX}{where.upper()} or the --config file"
    return f"Setting {where}: {message}{given}. It comes from {sources}."


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)
