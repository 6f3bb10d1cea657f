"""Which dialect a server gets, and which versions are served."""

import pytest
from turnlog_server.store.dialect import COCKROACH, COCKROACH_SWITCHES_ON_POSTGRES, POSTGRES, detect

CRDB = "CockroachDB CCL v26.2.1 (x86_64-pc-linux-gnu)"


def test_the_server_decides_by_its_own_parameter():
    assert detect(None) is POSTGRES
    assert detect(CRDB) is COCKROACH
    assert detect(CRDB, force="crdb") is COCKROACH


def test_the_switches_can_be_forced_on_postgresql():
    forced = detect(None, force="crdb")
    assert forced is COCKROACH_SWITCHES_ON_POSTGRES
    assert forced.engine == "postgresql"
    for member in ("isolation", "claim_lock", "head_lock_skip", "hint_source", "batch_sessions", "claim_shards"):
        assert getattr(forced, member) == getattr(COCKROACH, member) != getattr(POSTGRES, member)
    assert forced.settings["default_transaction_isolation"] == "serializable"
    assert forced.settings["enable_seqscan"] == "off"


def test_nothing_else_can_be_forced():
    with pytest.raises(ValueError, match="mysql"):
        detect(None, force="mysql")


def test_slots_are_filled_and_other_braces_stay():
    text = "SELECT '{}' FROM t ORDER BY i {claim_lock}"
    assert POSTGRES.sql(text) == "SELECT '{}' FROM t ORDER BY i FOR UPDATE SKIP LOCKED"
    assert COCKROACH.sql(text) == "SELECT '{}' FROM t ORDER BY i "


@pytest.mark.parametrize("version", [150000, 160004, 180000, 210001])
def test_postgresql_served(version):
    assert POSTGRES.version_complaint(version) is None


@pytest.mark.parametrize("version", [90624, 140011])
def test_postgresql_refused(version):
    assert "PostgreSQL 15" in (POSTGRES.version_complaint(version) or "")


@pytest.mark.parametrize("version", [250213, 250220, 250405, 260100, 260201, 270100])
def test_cockroachdb_served(version):
    assert COCKROACH.version_complaint(version) is None


@pytest.mark.parametrize("version", [230200, 240317, 250120, 250212, 250309, 250404])
def test_cockroachdb_refused(version):
    complaint = COCKROACH.version_complaint(version) or ""
    assert "25.2.13" in complaint
    assert f"{version // 10000}.{version // 100 % 100}.{version % 100}" in complaint
