"""Where settings come from, and what is said of those that cannot be used."""

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest
from support.server_process import ran
from turnlog_server.app.cli import main
from turnlog_server.app.settings import Settings, SettingsError, is_loopback, reachable


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TURNLOG_{name.upper()}", raising=False)
    monkeypatch.delenv("TURNLOG_CONFIG", raising=False)


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "turnlog.toml"
    config.write_text('pool_size = 3\nmax_attempts = 4\nlisten = "127.0.0.1:3"\n')
    monkeypatch.setenv("TURNLOG_POOL_SIZE", "5")
    monkeypatch.setenv("TURNLOG_MAX_ATTEMPTS", "6")
    settings = Settings.load({"pool_size": "7", "log_level": None}, config=config)
    assert (settings.pool_size, settings.max_attempts, settings.listen) == (7, 6, "127.0.0.1:3")
    assert settings.log_level == "info"
    monkeypatch.setenv("TURNLOG_CONFIG", str(config))
    assert Settings.load().listen == "127.0.0.1:3"


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_DATABASE_URL", "")
    monkeypatch.setenv("TURNLOG_POOL_SIZE", "")
    settings = Settings.load()
    assert settings.dsn is None
    assert settings.pool_size == 8


def test_a_secret_in_a_file_has_the_rank_of_where_the_file_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://u:hunter2@db/turnlog\n")
    monkeypatch.setenv("TURNLOG_DATABASE_URL_FILE", str(secret))
    settings = Settings.load()
    assert settings.dsn == "postgresql://u:hunter2@db/turnlog"
    assert "hunter2" not in repr(settings)
    assert Settings.load({"database_url": "host=flag"}).dsn == "host=flag"
    monkeypatch.setenv("TURNLOG_DATABASE_URL", "host=other")
    with pytest.raises(SettingsError, match="database_url or database_url_file, not both"):
        Settings.load()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"pool_size": "many"}, "Setting pool_size: must be a whole number, and is 'many'. It comes from --pool-size,"),
        ({"pool_size": "1"}, "pool_size: must be at least 2, and is '1'."),
        ({"pool_size": "99999999999999999999"}, "pool_size: must be at most 1000, and is '99999999999999999999'."),
        ({"drain_grace_seconds": "inf"}, "drain_grace_seconds: must be at most 86400, and is 'inf'."),
        ({"listen": "localhost"}, "listen: must name a port, as in 127.0.0.1:7777, and is 'localhost'."),
        ({"metrics_listen": "9464x"}, "metrics_listen: must name a port"),
        ({"log_level": "loud"}, "Setting log_level"),
        ({"nonsense": "1"}, "There is no setting nonsense"),
        ({"tls_cert": "a.pem"}, "tls_cert and tls_key are given together"),
        ({"tls_client_ca": "a.pem"}, "tls_client_ca needs tls_cert"),
        ({"runner_heartbeat_seconds": "8"}, "at most half of runner_lease_ttl_seconds"),
        ({"database_url_file": "/nowhere/dsn"}, "database_url_file: /nowhere/dsn cannot be read"),
    ],
)
def test_what_cannot_be_used_is_named(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.load(flags)
    assert says in str(refused.value)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    config = tmp_path / "turnlog.toml"
    for text, says in (("pool_size =", "is not TOML"), ("pol_size = 3", "There is no setting pol_size")):
        config.write_text(text)
        with pytest.raises(SettingsError, match=says):
            Settings.load(config=config)


def test_durations_reach_the_decisions() -> None:
    rules = Settings.load({"startup_allowance_seconds": "1.5", "queue_timeout_seconds": "0"}).rules
    assert (rules.startup_allowance, rules.queue_timeout) == (1_500_000, 0)


@pytest.mark.parametrize(
    ("address", "loopback", "shown"),
    [
        ("127.0.0.1:1", True, "127.0.0.1:1"),
        ("[::1]:1", True, "[::1]:1"),
        ("localhost:1", True, "localhost:1"),
        ("unix:/run/x", True, "unix:/run/x"),
        ("0.0.0.0:1", False, "127.0.0.1:1"),
        ("[::]:1", False, "127.0.0.1:1"),
        (":1", False, "127.0.0.1:1"),
        ("10.1.2.3:1", False, "10.1.2.3:1"),
        ("db.example:1", False, "db.example:1"),
    ],
)
def test_addresses(address: str, loopback: bool, shown: str) -> None:
    assert is_loopback(address) is loopback
    assert reachable(address) == shown


def test_ctrl_c_while_the_program_is_still_loading_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == "turnlog_server.app.commands":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "turnlog_server.app.commands", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


async def test_flags_of_the_commands(tmp_path: Path) -> None:
    code, said = await ran(
        "config", "--pool-size", "3", "--insecure", "--database-url", "host=x password=y", cwd=tmp_path
    )
    assert code == 0
    assert "pool_size = 3\n" in said
    assert "insecure = true\n" in said
    assert "password" not in said
    code, said = await ran("serve", "--pool-size", "many", cwd=tmp_path)
    assert code == 2
    assert "Setting pool_size" in said
    _, said = await ran("serve", "--help", cwd=tmp_path)
    assert "--force-dialect" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["key", "create", "x", "--role", "Foo"],
            2,
            "'--role': 'Foo' is not one of 'manager', 'publisher', 'contributor', 'viewer', 'runner'.",
        ),
        (["key", "create", "x", "--expires-in-days", "-1"], 2, "'--expires-in-days': must be at least 0"),
        (["key", "create", "x", "--expires-in-days", "soon"], 2, "'--expires-in-days': must be a number"),
        (["migrate", "--wait", "long"], 2, "'--wait': must be a number"),
        (["workspace", "set-limit", "x", "lots"], 2, "LIMIT: 'lots' is neither a whole number nor `none`"),
        (["workspace"], 2, "set-limit"),
        (["serv"], 2, "No such command 'serv'. Did you mean 'serve'?"),
        (["serve", "--listen", "localhost"], 2, "listen: must name a port, as in 127.0.0.1:7777, and is 'localhost'"),
        (["healthcheck", "--listen", "127.0.0.1:1"], 1, "nothing that is ready answers at 127.0.0.1:1"),
        (["check", "--data-dir", "/dev/null"], 1, "is not a folder: choose another data folder"),
    ],
)
async def test_a_mistake_on_the_command_line_is_told_with_what_to_do(
    arguments: list[str], code: int, says: str, tmp_path: Path
) -> None:
    ended, said = await ran(*arguments, cwd=tmp_path)
    assert ended == code
    assert says in said
    for strange in ("Value error", "Input should", "Traceback"):
        assert strange not in said
