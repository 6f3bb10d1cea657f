"""Reflection finds everything by every name, in both versions, and reads like documentation."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2 as pb
from support.server_process import channel
from turnlog_server.app.door import Door
from turnlog_server.app.reflection import METHOD, V1, V1ALPHA, Catalogue
from turnlog_server.app.settings import Settings

Request = pb.ServerReflectionRequest


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A door with nothing behind it."""
    door = Door(Settings(listen="127.0.0.1:0"))
    await door.open()
    yield door.address
    await door.close(0)


async def ask(address: str, service: str, *requests: Request) -> list[pb.ServerReflectionResponse]:
    async with channel(address) as opened:
        call = opened.stream_stream(
            f"/{service}/{METHOD}",
            request_serializer=Request.SerializeToString,
            response_deserializer=pb.ServerReflectionResponse.FromString,
        )
        return [answer async for answer in call(iter(requests))]


def files_of(answer: pb.ServerReflectionResponse) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    found = map(descriptor_pb2.FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
    return {file.name: file for file in found}


def every_symbol() -> list[str]:
    """Everything of ours that has a name: services, methods, messages, fields, enums, values."""
    names: list[str] = []

    def walk(scope: str, message: Any) -> None:
        name = f"{scope}.{message.name}"
        names.append(name)
        names.extend(f"{name}.{member.name}" for member in (*message.field, *message.oneof_decl))
        for nested in message.nested_type:
            walk(name, nested)
        for enum in message.enum_type:
            names.extend((f"{name}.{enum.name}", *(f"{name}.{value.name}" for value in enum.value)))

    catalogue = Catalogue.of_contract()
    for service in catalogue.services:
        file = catalogue.file_of(service)
        assert file is not None
        names.append(service)
        names.extend(f"{service}.{method.name}" for each in file.service for method in each.method)
        for message in file.message_type:
            walk(file.package, message)
        for enum in file.enum_type:
            names.extend((f"{file.package}.{enum.name}", *(f"{file.package}.{value.name}" for value in enum.value)))
    return sorted(set(names))


@pytest.mark.case(13)
@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_every_symbol_is_found_with_all_that_it_stands_on(address: str, version: str) -> None:
    symbols = every_symbol()
    assert len(symbols) > 500
    answers = await ask(address, version, *(Request(file_containing_symbol=symbol) for symbol in symbols))
    known: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for symbol, answer in zip(symbols, answers, strict=True):
        assert answer.original_request.file_containing_symbol == symbol
        files = files_of(answer)
        assert files, symbol
        known |= files
    assert all(dependency in known for file in known.values() for dependency in file.dependency)


@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_the_other_questions(address: str, version: str) -> None:
    extended = "google.protobuf.MethodOptions"
    field = pb.ExtensionRequest(containing_type="google.protobuf.FieldOptions", extension_number=1159)
    services, named, of_field, numbers, absent, unknown, neither = await ask(
        address,
        version,
        Request(list_services=""),
        Request(file_by_filename="turnlog/v1/event.proto"),
        Request(file_containing_extension=field),
        Request(all_extension_numbers_of_type="google.protobuf.FieldOptions"),
        Request(file_containing_symbol="turnlog.v1.Nothing"),
        Request(all_extension_numbers_of_type="turnlog.v1.Nothing"),
        Request(),
    )
    names = [service.name for service in services.list_services_response.service]
    assert {V1, V1ALPHA, "grpc.health.v1.Health", "turnlog.v1.EventService", "turnlog.runner.v1.RunnerService"} <= {
        *names
    }
    assert "turnlog/v1/event.proto" in files_of(named)
    assert "buf/validate/validate.proto" in files_of(of_field)
    assert 1159 in numbers.all_extension_numbers_response.extension_number
    for answer, code in ((absent, "NOT_FOUND"), (unknown, "NOT_FOUND"), (neither, "INVALID_ARGUMENT")):
        assert answer.error_response.error_code == getattr(grpc.StatusCode, code).value[0], extended


async def test_a_file_goes_out_once_a_stream(address: str) -> None:
    first, second = await ask(
        address,
        V1,
        Request(file_containing_symbol="turnlog.v1.EventService"),
        Request(file_containing_symbol="turnlog.v1.SessionService"),
    )
    assert not (files_of(first).keys() & files_of(second).keys()) - {"turnlog/v1/session_service.proto"}


async def test_the_types_that_errors_carry_are_described(address: str) -> None:
    answers = await ask(
        address,
        V1,
        *(Request(file_containing_symbol=f"google.rpc.{name}") for name in ("ErrorInfo", "RetryInfo", "Status")),
    )
    assert all(files_of(answer) for answer in answers)


def every_message() -> Iterator[Any]:
    """Descriptors of all messages of the contract, nested ones too."""

    def within(message: Any) -> Iterator[Any]:
        yield message
        for nested in message.nested_types:
            yield from within(nested)

    pool = descriptor_pool.Default()
    catalogue = Catalogue.of_contract()
    for name in {catalogue.file_of(service).name for service in catalogue.services}:  # type: ignore[union-attr]
        if name.startswith("turnlog/"):
            for dependency in (pool.FindFileByName(name), *pool.FindFileByName(name).dependencies):
                for message in dependency.message_types_by_name.values():
                    yield from within(message)


async def grpcurl(address: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "grpcurl",
        "-plaintext",
        "-max-time",
        "30",
        address,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.case(13)
@pytest.mark.system("grpcurl")
async def test_grpcurl_lists_and_describes_everything(address: str) -> None:
    services = (await grpcurl(address, "list")).split()
    assert len(services) > 8
    methods = [method for service in services for method in (await grpcurl(address, "list", service)).split()]
    described = await grpcurl(address, "describe")
    for service in services:
        assert f"{service} is a service:" in described
    messages = sorted(each.full_name for each in every_message())
    assert len(messages) > 100
    gate = asyncio.Semaphore(4)

    async def describe(symbol: str) -> None:
        async with gate:
            assert (await grpcurl(address, "describe", symbol)).startswith(f"{symbol} is ")

    carried = [f"google.rpc.{name}" for name in ("ErrorInfo", "BadRequest", "RetryInfo", "Status")]
    await asyncio.gather(*map(describe, (*methods, *messages, *carried)))


@pytest.mark.system("grpcurl")
async def test_describe_reads_like_documentation(address: str) -> None:
    said = await grpcurl(address, "describe", "turnlog.v1.EventService.FollowEvents")
    assert "// Replays the log after a cursor and goes on live" in said
