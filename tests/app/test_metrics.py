"""What is counted, under which names."""

from prometheus_client import generate_latest
from turnlog_server.app.metrics import Metrics
from turnlog_server.service.lane import LaneObserver
from turnlog_server.store.errors import ErrorClass
from turnlog_server.store.observer import StoreObserver
from turnlog_server.transport.adapter import CallObserver


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"turnlog_{name}", labels)


def test_it_observes_store_lane_and_calls() -> None:
    metrics = Metrics()
    store: StoreObserver = metrics
    lane: LaneObserver = metrics
    calls: CallObserver = metrics
    store.pool_opened(lambda: {"pool_size": 8, "pool_available": 5})
    store.failed("event_append", ErrorClass.RETRY)
    store.commit_unknown("event_append")
    store.hints_lost()
    lane.batch(3, 7, 0.004)
    lane.redecided(2)
    lane.resolved(1, 4)
    calls.request("AppendEvent", "OK", 0.01)
    calls.stream_opened("FollowEvents")
    calls.auth_refused("CREDENTIAL_INVALID")
    calls.admitted("AppendEvent", 0.01)
    assert value(metrics, "pool_connections", state="idle") == 5
    assert value(metrics, "pool_connections", state="waiting") == 0
    assert value(metrics, "store_failures_total", operation="event_append", error_class="retry") == 1
    assert value(metrics, "commits_unknown_total", operation="event_append") == 1
    assert value(metrics, "commits_resolved_total", outcome="missing") == 4
    assert value(metrics, "lane_batch_commands_sum") == 3
    assert value(metrics, "events_appended_total") == 7
    assert value(metrics, "requests_total", method="AppendEvent", code="OK") == 1
    assert value(metrics, "open_streams", method="FollowEvents") == 1
    assert value(metrics, "auth_refusals_total", reason="CREDENTIAL_INVALID") == 1
    assert value(metrics, "admission_seconds_count", method="AppendEvent") == 1


def test_every_metric_says_what_it_means_and_two_sets_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.lease_lost()
    assert value(first, "leases_lost_total") == 1
    assert value(second, "leases_lost_total") == 0
    for line in generate_latest(first.registry).decode().splitlines():
        if line.startswith("# HELP turnlog_"):
            assert line.endswith(".")


def test_a_runner_wakes_whoever_waits_for_one() -> None:
    metrics = Metrics()
    assert not metrics.runner_seen.is_set()
    metrics.runner_connected()
    metrics.runner_gone()
    assert metrics.runner_seen.is_set()
    assert value(metrics, "runners_connected") == 0
