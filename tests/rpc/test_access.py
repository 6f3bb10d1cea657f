"""AccessService from the request to the tables and back."""

import asyncio
from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration
from support.tenants import Replica, request_id, tenant
from turnlog.v1 import access_pb2 as pb
from turnlog_server.domain.access import Role
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.times import timestamp

HOUR = 3_600_000_000


@pytest.fixture
def replica(database):
    return Replica(database)


async def refused(awaitable):
    with pytest.raises(Refusal) as caught:
        await awaitable
    return caught.value


async def epoch(replica, bearer):
    return (await replica.authenticator.judge(await replica.authenticator.authenticate(bearer))).epoch


async def subject(replica, bearer, role, kind="ServiceAccount"):
    made = await replica.call(bearer, f"Create{kind}", display_name="someone", role=f"ROLE_{role}")
    return made.service_account.service_account_id if kind == "ServiceAccount" else made.principal.principal_id


async def test_the_workspace_of_the_key(replica, database):
    one = await tenant(database, "acme")
    workspace = (await replica.call(one.manager, "GetWorkspace")).workspace
    assert (workspace.workspace_id, workspace.name) == (one.workspace_id, "acme")
    assert not workspace.HasField("max_concurrent_runs")
    assert workspace.create_time.seconds > 0


async def test_the_concurrency_limit_is_set_and_cleared(replica, database):
    one = await tenant(database)
    before = await epoch(replica, one.manager)
    made = await replica.call(one.manager, "SetConcurrencyLimit", max_concurrent_runs=3)
    assert made.workspace.max_concurrent_runs == 3
    assert await epoch(replica, one.manager) == before + 1
    await replica.call(one.manager, "SetConcurrencyLimit")
    assert not (await replica.call(one.manager, "GetWorkspace")).workspace.HasField("max_concurrent_runs")


@pytest.mark.parametrize(("kind", "field"), [("Principal", "principal"), ("ServiceAccount", "service_account")])
async def test_a_subject_is_made_read_and_listed(replica, database, kind, field):
    one = await tenant(database)
    created = await replica.call(one.manager, f"Create{kind}", display_name="Ada", role="ROLE_VIEWER")
    made = getattr(created, field)
    identity = getattr(made, f"{field}_id")
    assert (made.display_name, made.role, created.replayed) == ("Ada", pb.ROLE_VIEWER, False)
    found = await replica.call(one.manager, f"Get{kind}", **{f"{field}_id": identity})
    assert getattr(found, field) == made
    listed = await replica.call(one.manager, f"List{kind}s")
    assert getattr(listed, f"{field}s")[0] == made


async def test_a_role_is_given_and_taken(replica, database):
    one = await tenant(database)
    who = await subject(replica, one.manager, "UNSPECIFIED", "Principal")
    secret = (await replica.call(one.manager, "CreateApiKey", subject=who, display_name="k")).secret
    assert (await refused(replica.call(secret, "GetWorkspace"))).reason is Reason.PERMISSION_MISSING
    await replica.call(one.manager, "SetRole", subject=who, role="ROLE_VIEWER")
    await replica.call(secret, "GetWorkspace")
    await replica.call(one.manager, "RemoveRole", subject=who)
    gone = await refused(replica.call(secret, "GetWorkspace"))
    assert gone.reason is Reason.PERMISSION_MISSING
    assert (await replica.call(one.manager, "GetPrincipal", principal_id=who)).principal.role == pb.ROLE_UNSPECIFIED


async def test_the_last_manager_keeps_the_role(replica, database):
    one = await tenant(database)
    for change in ({"rpc": "RemoveRole"}, {"rpc": "SetRole", "role": "ROLE_VIEWER"}):
        refusal = await refused(replica.call(one.manager, change.pop("rpc"), subject=one.manager_id, **change))
        assert refusal.reason is Reason.ILLEGAL_TRANSITION
    await subject(replica, one.manager, "MANAGER")
    await replica.call(one.manager, "RemoveRole", subject=one.manager_id)


async def test_two_managers_who_remove_each_other_leave_one(replica, database):
    one = await tenant(database)
    other = await subject(replica, one.manager, "MANAGER", "Principal")
    secret = (await replica.call(one.manager, "CreateApiKey", subject=other, display_name="k")).secret
    results = await asyncio.gather(
        replica.call(one.manager, "RemoveRole", subject=other),
        replica.call(secret, "RemoveRole", subject=one.manager_id),
        return_exceptions=True,
    )
    failed = [result for result in results if isinstance(result, Refusal)]
    assert len(failed) == 1
    assert failed[0].reason in (Reason.PERMISSION_MISSING, Reason.ILLEGAL_TRANSITION)


async def test_a_change_on_a_permission_that_is_gone_is_refused_though_the_caller_was_remembered(replica, database):
    one = await tenant(database)
    other = await subject(replica, one.manager, "MANAGER", "Principal")
    secret = (await replica.call(one.manager, "CreateApiKey", subject=other, display_name="k")).secret
    stale = await replica.authenticator.authenticate(secret)
    await replica.call(one.manager, "SetRole", subject=other, role="ROLE_VIEWER")
    refusal = await refused(replica.call_as(stale, "CreatePrincipal", display_name="Eve", role="ROLE_MANAGER"))
    assert refusal.reason is Reason.PERMISSION_MISSING
    refusal = await refused(replica.call_as(stale, "CreateAgent", name="eve"))
    assert refusal.reason is Reason.PERMISSION_MISSING


async def test_what_a_remembered_caller_may_still_do_it_may(replica, database):
    one = await tenant(database)
    stale = await replica.authenticator.authenticate(one.manager)
    for _ in range(3):
        await subject(replica, one.manager, "VIEWER")
    made = await replica.call_as(stale, "CreatePrincipal", display_name="Ada", role="ROLE_VIEWER")
    assert made.principal.principal_id


async def test_a_key_is_shown_once_and_works(replica, database):
    one = await tenant(database)
    who = await subject(replica, one.manager, "VIEWER")
    asked = {"subject": who, "display_name": "k", "request_id": request_id()}
    made = await replica.call(one.manager, "CreateApiKey", **asked)
    assert made.secret.startswith(f"tlk_{made.api_key.prefix}_")
    assert not made.replayed
    caller = await replica.authenticator.authenticate(made.secret)
    assert (caller.subject, caller.role, caller.workspace_id) == (who, Role.VIEWER, one.workspace_id)

    again = await replica.call(one.manager, "CreateApiKey", **asked)
    assert (again.secret, again.replayed, again.api_key) == ("", True, made.api_key)
    found = await replica.call(one.manager, "GetApiKey", api_key_id=made.api_key.api_key_id)
    assert found.api_key == made.api_key
    assert made.secret not in str(found)


async def test_a_key_is_revoked_at_once(replica, database):
    one = await tenant(database)
    made = await replica.call(one.manager, "CreateApiKey", subject=one.manager_id, display_name="k")
    await replica.call(made.secret, "GetWorkspace")
    revoked = await replica.call(one.manager, "RevokeApiKey", api_key_id=made.api_key.api_key_id)
    assert revoked.api_key.HasField("revoke_time")
    gone = await refused(replica.call(made.secret, "GetWorkspace"))
    unknown = await refused(replica.call("tlk_" + "0" * 12 + "_" + "0" * 52, "GetWorkspace"))
    malformed = await refused(replica.call("nonsense", "GetWorkspace"))
    for refusal in (gone, unknown, malformed):
        assert refusal.reason is Reason.CREDENTIAL_INVALID
        assert (refusal.message, refusal.metadata) == (malformed.message, malformed.metadata)
    # Once more is no error, and changes nothing.
    again = await replica.call(one.manager, "RevokeApiKey", api_key_id=made.api_key.api_key_id)
    assert again.api_key.revoke_time == revoked.api_key.revoke_time


async def test_a_key_expires_by_itself(replica, database):
    one = await tenant(database)
    asked = {"subject": one.manager_id, "display_name": "k", "expire_time": timestamp(replica.clock + HOUR)}
    made = await replica.call(one.manager, "CreateApiKey", **asked)
    await replica.call(made.secret, "GetWorkspace")
    replica.clock += HOUR
    gone = await refused(replica.call(made.secret, "GetWorkspace"))
    assert gone.reason is Reason.CREDENTIAL_EXPIRED
    refusal = await refused(replica.call(one.manager, "CreateApiKey", **asked))
    assert refusal.fields[0].field == "expire_time"


async def test_a_request_that_was_accepted_is_replayed_though_its_expiry_has_passed(replica, database):
    one = await tenant(database)
    asked = {"subject": one.manager_id, "display_name": "k", "expire_time": timestamp(replica.clock + HOUR)}
    asked["request_id"] = request_id()
    made = await replica.call(one.manager, "CreateApiKey", **asked)
    replica.clock += HOUR
    again = await replica.call(one.manager, "CreateApiKey", **asked)
    assert (again.replayed, again.api_key) == (True, made.api_key)


@pytest.mark.parametrize("overlap", [None, 60])
async def test_a_key_is_rotated_with_and_without_overlap(replica, database, overlap):
    one = await tenant(database)
    await replica.call(one.manager, "CreateRunnerPool", name="gpu")
    who = await subject(replica, one.manager, "RUNNER")
    old = await replica.call(one.manager, "CreateApiKey", subject=who, display_name="k", runner_pools=["gpu"])
    fields = {} if overlap is None else {"overlap": Duration(seconds=overlap)}
    new = await replica.call(one.manager, "RotateApiKey", api_key_id=old.api_key.api_key_id, **fields)
    assert new.api_key.rotated_from == old.api_key.api_key_id
    assert (new.api_key.subject, list(new.api_key.runner_pools)) == (who, ["gpu"])
    assert (await replica.authenticator.authenticate(new.secret)).runner_pools == ("gpu",)
    if overlap:
        await replica.authenticator.authenticate(old.secret)
        replica.clock += overlap * 1_000_000
        gone = await refused(replica.authenticator.authenticate(old.secret))
        assert gone.reason is Reason.CREDENTIAL_EXPIRED
    else:
        gone = await refused(replica.authenticator.authenticate(old.secret))
        assert gone.reason is Reason.CREDENTIAL_INVALID
        dead = await refused(replica.call(one.manager, "RotateApiKey", api_key_id=old.api_key.api_key_id))
        assert dead.reason is Reason.ILLEGAL_TRANSITION


async def test_overlap_never_lengthens_a_life(replica, database):
    one = await tenant(database)
    ends = timestamp(replica.clock + HOUR)
    old = await replica.call(one.manager, "CreateApiKey", subject=one.manager_id, display_name="k", expire_time=ends)
    await replica.call(one.manager, "RotateApiKey", api_key_id=old.api_key.api_key_id, overlap=Duration(seconds=86_400))
    kept = await replica.call(one.manager, "GetApiKey", api_key_id=old.api_key.api_key_id)
    assert kept.api_key.expire_time == ends


@pytest.mark.rule("R5")
async def test_a_rotated_key_finds_the_requests_of_its_predecessor(replica, database):
    one = await tenant(database)
    asked = {"name": "support", "request_id": request_id()}
    made = await replica.call(one.manager, "CreateAgent", **asked)
    new = await replica.call(one.manager, "RotateApiKey", api_key_id=one.api_key_id)
    again = await replica.call(new.secret, "CreateAgent", **asked)
    assert (again.replayed, again.agent) == (True, made.agent)


async def test_keys_of_runners_need_pools_that_exist_and_others_may_have_none(replica, database):
    one = await tenant(database)
    runner, viewer = await subject(replica, one.manager, "RUNNER"), await subject(replica, one.manager, "VIEWER")
    for who, pools, field in [
        (runner, [], "runner_pools"),
        (viewer, ["default"], "runner_pools"),
        (runner, ["default", "gpu"], "runner_pools[1]"),
    ]:
        refusal = await refused(
            replica.call(one.manager, "CreateApiKey", subject=who, display_name="k", runner_pools=pools)
        )
        assert refusal.reason is Reason.INVALID_FIELD
        assert refusal.fields[0].field == field
    made = await replica.call(one.manager, "CreateApiKey", subject=runner, display_name="k", runner_pools=["default"])
    assert list(made.api_key.runner_pools) == ["default"]


async def test_pools_are_made_once_and_listed_by_name(replica, database):
    one = await tenant(database)
    for name in ("zebra", "alpha", "mid"):
        await replica.call(one.manager, "CreateRunnerPool", name=name, description=f"pool {name}")
    taken = await refused(replica.call(one.manager, "CreateRunnerPool", name="mid"))
    assert taken.reason is Reason.ALREADY_EXISTS
    assert taken.metadata == {"resource": "runner pool", "name": "mid"}
    listed = await replica.call(one.manager, "ListRunnerPools")
    assert [pool.name for pool in listed.runner_pools] == ["alpha", "default", "mid", "zebra"]
    found = await replica.call(one.manager, "GetRunnerPool", name="alpha")
    assert found.runner_pool.description == "pool alpha"


async def test_names_that_would_forge_lines_are_refused(replica, database):
    one = await tenant(database)
    for rpc, field, fields in [
        ("CreatePrincipal", "display_name", {"display_name": "a\nb"}),
        ("CreateApiKey", "display_name", {"display_name": "a\0", "subject": one.manager_id}),
        ("CreateRunnerPool", "description", {"name": "p", "description": "\0"}),
    ]:
        refusal = await refused(replica.call(one.manager, rpc, **fields))
        assert refusal.fields[0].field == field


async def test_every_change_of_access_begins_a_new_epoch(replica, database):
    one = await tenant(database)
    who = await subject(replica, one.manager, "VIEWER")
    key = await replica.call(one.manager, "CreateApiKey", subject=who, display_name="k")
    named = {"api_key_id": key.api_key.api_key_id}
    changes = [
        ("CreatePrincipal", {"display_name": "x", "role": "ROLE_VIEWER"}),
        ("SetRole", {"subject": who, "role": "ROLE_PUBLISHER"}),
        ("RemoveRole", {"subject": who}),
        ("CreateApiKey", {"subject": who, "display_name": "k"}),
        ("RotateApiKey", named | {"overlap": Duration(seconds=60)}),
        ("RevokeApiKey", named),
        ("SetConcurrencyLimit", {"max_concurrent_runs": 1}),
    ]
    for rpc, fields in changes:
        before = await epoch(replica, one.manager)
        await replica.call(one.manager, rpc, **fields)
        assert await epoch(replica, one.manager) == before + 1, rpc


async def test_another_replica_hears_of_a_revocation_by_the_epoch_or_within_a_second(replica, database):
    one = await tenant(database)
    made = await replica.call(one.manager, "CreateApiKey", subject=one.manager_id, display_name="k")
    other = Replica(database)
    await other.authenticator.authenticate(made.secret)
    await replica.call(one.manager, "RevokeApiKey", api_key_id=made.api_key.api_key_id)
    # Nothing told it yet: it believes what it remembers, and a writer is caught by the compare of the epoch.
    stale = await other.authenticator.authenticate(made.secret)
    assert (await refused(other.call_as(stale, "CreateAgent", name="a"))).reason is Reason.CREDENTIAL_INVALID

    third = Replica(database)
    fresh = await replica.call(one.manager, "CreateApiKey", subject=one.manager_id, display_name="k")
    await third.authenticator.authenticate(fresh.secret)
    await replica.call(one.manager, "RevokeApiKey", api_key_id=fresh.api_key.api_key_id)
    third.authenticator.note_epoch(one.workspace_id, await epoch(replica, one.manager))
    assert (await refused(third.authenticator.authenticate(fresh.secret))).reason is Reason.CREDENTIAL_INVALID


async def test_a_fresh_caller_is_at_most_a_second_old(replica, database, monkeypatch):
    one = await tenant(database)
    reads = []
    read = database.read

    async def counted(op, *args, **kwargs):
        reads.append(op)
        return await read(op, *args, **kwargs)

    monkeypatch.setattr(database, "read", counted)
    first = await replica.authenticator.authenticate(one.manager)
    for _ in range(3):
        assert await replica.authenticator.authenticate(one.manager, fresh=True) is first
    assert len(reads) == 1
    monkeypatch.setattr("turnlog_server.service.credentials.FRESH_SECONDS", -1.0)
    await replica.authenticator.authenticate(one.manager)
    assert len(reads) == 1
    await replica.authenticator.authenticate(one.manager, fresh=True)
    assert len(reads) == 2


async def test_a_thousand_streams_that_ask_at_once_are_two_reads_at_most(replica, database, monkeypatch):
    one = await tenant(database)
    caller = await replica.authenticator.authenticate(one.manager)
    await replica.call(one.manager, "SetConcurrencyLimit", max_concurrent_runs=1)
    reads = []
    read = database.read

    async def counted(op, *args, **kwargs):
        reads.append(op)
        return await read(op, *args, **kwargs)

    monkeypatch.setattr(database, "read", counted)
    judged = await asyncio.gather(*(replica.authenticator.judge(caller) for _ in range(1000)))
    assert {each.epoch for each in judged} == {caller.epoch + 1}
    assert len(reads) <= 2


async def test_judging_a_caller_that_was_forgotten(replica, database):
    one = await tenant(database)
    caller = await replica.authenticator.authenticate(one.manager)
    assert await Replica(database).authenticator.judge(caller) == caller
    stranger = replace(caller, api_key_id="key_unknown")
    assert (await refused(replica.authenticator.judge(stranger))).reason is Reason.CREDENTIAL_INVALID
