"""Roles, secrets and keys, without a database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnlog.v1 import access_service_pb2, agent_service_pb2
from turnlog_server.domain.access import PERMISSIONS, VERBS, Caller, Role, Scope, Verb, covers, require
from turnlog_server.domain.credentials import (
    CHANCE_BYTES,
    ApiKey,
    check_expiry,
    check_key,
    check_rotation,
    credential_invalid,
    make_secret,
    parse_secret,
    successor_expiry,
)
from turnlog_server.domain.names import check_id, check_name, check_text
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.workspace import Subject, SubjectKind, require_covers, require_manager_left

ROLES = st.sampled_from(list(Role))
CHANCE = st.binary(min_size=CHANCE_BYTES, max_size=CHANCE_BYTES)
SERVICES = (access_service_pb2, agent_service_pb2)


def caller(role):
    return Caller("ws_1", "prn_1", "key_1", role, 1)


def key(**changes):
    return ApiKey("key_1", "ws_1", "prn_1", "a key", "p" * 12, (), **{"create_time": 1000} | changes)


@given(ROLES, ROLES)
def test_nobody_gives_more_than_they_have(giver, given_role):
    gives = covers(giver, given_role)
    if given_role is not Role.RUNNER:
        assert gives == (VERBS[given_role] <= VERBS[giver])
    if gives:
        require_covers(caller(giver), given_role)
    else:
        with pytest.raises(Refusal) as refused:
            require_covers(caller(giver), given_role)
        assert refused.value.reason is Reason.PERMISSION_MISSING
        assert Verb(refused.value.metadata["verb"]) not in VERBS[giver]


@given(ROLES)
def test_only_managers_and_runners_give_the_role_of_a_runner(giver):
    assert covers(giver, Role.RUNNER) == (giver in (Role.MANAGER, Role.RUNNER))


def test_a_runner_may_do_nothing_but_claim():
    for method, permission in PERMISSIONS.items():
        if permission.verb is Verb.CLAIM:
            require(caller(Role.RUNNER), method)
            continue
        with pytest.raises(Refusal) as refused:
            require(caller(Role.RUNNER), method)
        assert refused.value.reason is Reason.PERMISSION_MISSING


def test_no_role_may_do_nothing_at_all():
    for method in PERMISSIONS:
        with pytest.raises(Refusal):
            require(caller(Role.NONE), method)


@pytest.mark.parametrize("module", SERVICES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_every_rpc_has_a_permission(module):
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert f"{service.full_name}/{method.name}" in PERMISSIONS


@given(CHANCE)
def test_a_secret_reads_back_and_proves_itself_alone(chance):
    secret = make_secret(chance)
    assert parse_secret(secret.text) == secret
    assert secret.text.startswith(f"tlk_{secret.prefix}_")
    assert secret.proves(secret.digest)
    other = make_secret(chance[:-1] + bytes([chance[-1] ^ 1]))
    assert other.prefix == secret.prefix
    assert not secret.proves(other.digest)


@given(CHANCE)
def test_a_secret_is_not_in_its_repr(chance):
    secret = make_secret(chance)
    assert secret.text not in repr(secret)
    assert secret.digest.hex() not in repr(secret)


@given(st.text())
def test_other_text_is_no_secret(text):
    assert parse_secret(text) is None


@given(CHANCE, st.integers(min_value=0, max_value=68), st.sampled_from("WXYZ_ \n"))
def test_a_changed_character_is_seen(chance, at, character):
    text = make_secret(chance).text
    changed = text[:at] + character + text[at + 1 :]
    assert changed == text or parse_secret(changed) is None


def test_secrets_of_the_wrong_size_are_not_made():
    with pytest.raises(ValueError, match="40"):
        make_secret(b"short")


@pytest.mark.parametrize(
    ("role", "pools", "field"),
    [
        (Role.RUNNER, [], "runner_pools"),
        (Role.MANAGER, ["default"], "runner_pools"),
        (Role.NONE, ["default"], "runner_pools"),
        (Role.RUNNER, ["default", "gone"], "runner_pools[1]"),
    ],
)
def test_pools_that_do_not_fit_are_refused_by_name(role, pools, field):
    with pytest.raises(Refusal) as refused:
        check_key(role, pools, ["default"])
    assert refused.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in refused.value.fields] == [field]


def test_pools_that_fit():
    check_key(Role.RUNNER, ["default"], ["default"])
    check_key(Role.MANAGER, [], [])


def test_a_key_expires_in_the_future_or_never():
    assert check_expiry(None, 5) == 0
    assert check_expiry(6, 5) == 6
    for past in (5, 0, -1):
        with pytest.raises(Refusal, match="expire_time"):
            check_expiry(past, 5)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_successor_lives_as_long_as_its_predecessor_was_meant_to(lifetime, now):
    old = key(create_time=1000, expire_time=1000 + lifetime)
    assert successor_expiry(old, now) - now == lifetime
    assert successor_expiry(key(), now) == 0


@pytest.mark.parametrize(("dead", "state"), [(key(revoke_time=5), "REVOKED"), (key(expire_time=2000), "EXPIRED")])
def test_a_dead_key_is_not_rotated(dead, state):
    with pytest.raises(Refusal) as refused:
        check_rotation(dead, 2000)
    assert refused.value.reason is Reason.ILLEGAL_TRANSITION
    assert refused.value.metadata == {"from": state, "to": "ROTATED"}
    check_rotation(key(expire_time=2001), 2000)


def test_the_last_manager_stays():
    boss = Subject("prn_1", "ws_1", SubjectKind.PRINCIPAL, "boss", Role.MANAGER, 1)
    require_manager_left(boss, Role.NONE, 2)
    require_manager_left(boss, Role.MANAGER, 1)
    for becomes in (Role.NONE, Role.VIEWER, Role.RUNNER):
        with pytest.raises(Refusal) as refused:
            require_manager_left(boss, becomes, 1)
        assert refused.value.reason is Reason.ILLEGAL_TRANSITION
        assert refused.value.metadata == {"from": "MANAGER", "to": becomes.value or "NONE"}


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "a\0", "\x1b[31m", "a\x85b"])
def test_names_have_no_control_characters(text):
    with pytest.raises(Refusal, match="display_name"):
        check_name("display_name", text)


def test_descriptions_may_have_lines_but_no_nul():
    assert check_text("description", "one\n\ttwo") == "one\n\ttwo"
    with pytest.raises(Refusal, match=r"U\+0000"):
        check_text("description", "a\0")


def test_an_id_that_no_database_can_hold_is_unknown():
    assert check_id("agent", "agt_1") == "agt_1"
    with pytest.raises(Refusal) as refused:
        check_id("agent", "agt_\0")
    assert refused.value.reason is Reason.NOT_FOUND


def test_scopes_and_messages_tell_what_to_do():
    assert "authorization" in credential_invalid().message
    assert {permission.scope for permission in PERMISSIONS.values()} == set(Scope)
