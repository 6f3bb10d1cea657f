"""The SDK's messages say the same as everybody else's: to the byte in binary, by value in JSON."""

from typing import Any

import betterproto2
import pytest
import turnlog_client.messages.turnlog.runner.v1 as runner_messages
import turnlog_client.messages.turnlog.v1 as messages_v1
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.contract import MESSAGES, messages, sample

PACKAGES = {"turnlog.v1": messages_v1, "turnlog.runner.v1": runner_messages}
every_message = pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.full_name)


def sdk_class(kind) -> type[Any]:
    """The SDK's class of a message; a nested one has its holder's name in front."""
    package = kind.file.package
    return getattr(PACKAGES[package], kind.full_name.removeprefix(f"{package}.").replace(".", ""))


def test_the_sdk_has_every_message():
    for kind in MESSAGES:
        assert issubclass(sdk_class(kind), betterproto2.Message)


@pytest.mark.case(87)
@every_message
def test_a_full_message_goes_there_and_back(kind):
    full = sample(kind)
    there_and_back(kind, full)


@pytest.mark.case(87)
@every_message
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_message_goes_there_and_back(kind, data):
    there_and_back(kind, data.draw(messages(kind)))


def there_and_back(kind, message):
    ours = sdk_class(kind).parse(message.SerializeToString())
    assert canonical(message, bytes(ours)) == message.SerializeToString(deterministic=True)
    # Its JSON is not canonical, but either reads what the other writes.
    theirs = sdk_class(kind).from_json(json_format.MessageToJson(message))
    assert canonical(message, bytes(theirs)) == message.SerializeToString(deterministic=True)
    written = json_format.Parse(ours.to_json(), type(message)())
    assert written == message


def canonical(message, raw):
    """The same bytes with maps in order, as every runtime may order them as it likes."""
    return type(message).FromString(raw).SerializeToString(deterministic=True)
