"""Reflection, v1 and v1alpha: what is served, described with the contract's own comments.

The two versions have the same messages under two package names, so one servicer with the messages of v1alpha answers
both. Symbols are looked up in an index of our own, because Python's descriptor pool does not find methods.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from importlib.resources import files

import grpc
from buf.validate import validate_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, timestamp_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

File = descriptor_pb2.FileDescriptorProto
Request = reflection_pb2.ServerReflectionRequest
Response = reflection_pb2.ServerReflectionResponse

V1 = "grpc.reflection.v1.ServerReflection"
V1ALPHA = "grpc.reflection.v1alpha.ServerReflection"
METHOD = "ServerReflectionInfo"

# Of what is not ours: the services beside ours, what errors carry as Any, and what the contract imports.
_OTHERS = (health_pb2, reflection_pb2, error_details_pb2, status_pb2, validate_pb2, struct_pb2, timestamp_pb2)


class Catalogue:
    """Files by name, and the file of every symbol and extension."""

    def __init__(self, described: Iterable[File]) -> None:
        self._files: dict[str, File] = {}
        self._file_of: dict[str, str] = {}
        self._extensions: dict[str, dict[int, str]] = {}
        self.services: list[str] = []
        for file in described:
            self._add(file)

    @classmethod
    def of_contract(cls) -> "Catalogue":
        """The contract as it was generated, comments and all, and what it stands on."""
        contract = descriptor_pb2.FileDescriptorSet.FromString(files("turnlog").joinpath("contract.binpb").read_bytes())
        ours = {file.name: file for file in contract.file}
        wanted = [*ours, *(module.DESCRIPTOR.name for module in _OTHERS)]
        found: dict[str, File] = {}
        while wanted:
            name = wanted.pop()
            if name not in found:
                found[name] = ours.get(name) or _from_pool(name)
                wanted.extend(found[name].dependency)
        return cls([*found.values(), _v1_of(found[reflection_pb2.DESCRIPTOR.name])])

    def file(self, name: str) -> File | None:
        """The file of this name."""
        return self._files.get(name)

    def file_of(self, symbol: str) -> File | None:
        """The file that declares a package member, however deeply nested."""
        return self._files.get(self._file_of.get(symbol.lstrip("."), ""))

    def file_of_extension(self, message: str, number: int) -> File | None:
        """The file that extends a message under this number."""
        return self._files.get(self._extensions.get(message, {}).get(number, ""))

    def extensions(self, message: str) -> list[int] | None:
        """The numbers under which a message is extended; None for a message that there is not."""
        return sorted(self._extensions.get(message, {})) if message in self._file_of else None

    def _add(self, file: File) -> None:
        self._files[file.name] = file
        package = f"{file.package}." if file.package else ""
        for service in file.service:
            self.services.append(package + service.name)
            self._name(file, package + service.name)
            for method in service.method:
                self._name(file, f"{package}{service.name}.{method.name}")
        for message in file.message_type:
            self._add_message(file, package, message)
        for enum in file.enum_type:
            self._add_enum(file, package, enum)
        self._add_extensions(file, package, file.extension)

    def _add_message(self, file: File, scope: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = scope + message.name
        self._name(file, name)
        for member in (*message.field, *message.oneof_decl):
            self._name(file, f"{name}.{member.name}")
        for nested in message.nested_type:
            self._add_message(file, f"{name}.", nested)
        for enum in message.enum_type:
            self._add_enum(file, f"{name}.", enum)
        self._add_extensions(file, f"{name}.", message.extension)

    def _add_enum(self, file: File, scope: str, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        self._name(file, scope + enum.name)
        for value in enum.value:
            # Values stand beside their enum, as in C; some ask for them below it.
            self._name(file, scope + value.name)
            self._name(file, f"{scope}{enum.name}.{value.name}")

    def _add_extensions(self, file: File, scope: str, fields: Iterable[descriptor_pb2.FieldDescriptorProto]) -> None:
        for field in fields:
            self._name(file, scope + field.name)
            self._extensions.setdefault(field.extendee.lstrip("."), {})[field.number] = file.name

    def _name(self, file: File, symbol: str) -> None:
        self._file_of[symbol] = file.name

    def closure(self, file: File, sent: set[str]) -> Iterator[File]:
        """The file and all that it stands on, but for what was sent before."""
        wanted = [file.name]
        while wanted:
            name = wanted.pop(0)
            if name in sent and name != file.name:
                continue
            sent.add(name)
            found = self._files[name]
            yield found
            wanted.extend(each for each in found.dependency if each not in sent and each not in wanted)


class Reflection:
    """Answers for the services that are registered here.

    services: their full names; the reflection services add themselves.
    """

    def __init__(self, catalogue: Catalogue, services: Iterable[str]) -> None:
        self._catalogue = catalogue
        self._services = sorted({*services, V1, V1ALPHA})

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers both versions."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.answer, request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
        )
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {METHOD: handler}) for service in (V1, V1ALPHA)]
        )

    async def answer(self, requests: AsyncIterator[Request], _context: object) -> AsyncIterator[Response]:
        """One answer for each question, in order. A file goes out once a stream unless it is asked for by name."""
        sent: set[str] = set()
        async for request in requests:
            response = self._answer(request, sent)
            response.valid_host = request.host
            response.original_request.CopyFrom(request)
            yield response

    def _answer(self, request: Request, sent: set[str]) -> Response:
        catalogue = self._catalogue
        match request.WhichOneof("message_request"):
            case "list_services":
                names = [reflection_pb2.ServiceResponse(name=name) for name in self._services]
                return Response(list_services_response=reflection_pb2.ListServiceResponse(service=names))
            case "file_by_filename":
                return self._described(catalogue.file(request.file_by_filename), sent)
            case "file_containing_symbol":
                return self._described(catalogue.file_of(request.file_containing_symbol), sent)
            case "file_containing_extension":
                asked = request.file_containing_extension
                found = catalogue.file_of_extension(asked.containing_type, asked.extension_number)
                return self._described(found, sent)
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                numbers = catalogue.extensions(name)
                if numbers is None:
                    return _error(grpc.StatusCode.NOT_FOUND, "There is no such message here.")
                return Response(
                    all_extension_numbers_response=reflection_pb2.ExtensionNumberResponse(
                        base_type_name=name, extension_number=numbers
                    )
                )
        return _error(grpc.StatusCode.INVALID_ARGUMENT, "This kind of question is not known here.")

    def _described(self, file: File | None, sent: set[str]) -> Response:
        if file is None:
            return _error(grpc.StatusCode.NOT_FOUND, "There is nothing of this name here.")
        described = [each.SerializeToString() for each in self._catalogue.closure(file, sent)]
        return Response(file_descriptor_response=reflection_pb2.FileDescriptorResponse(file_descriptor_proto=described))


def _error(code: grpc.StatusCode, message: str) -> Response:
    number: int = code.value[0]  # type: ignore[index]
    return Response(error_response=reflection_pb2.ErrorResponse(error_code=number, error_message=message))


def _from_pool(name: str) -> File:
    file = File()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    return file


def _v1_of(alpha: File) -> File:
    """The file of v1, which no Python package has: that of v1alpha under another name."""
    text = alpha.SerializeToString()
    file = File.FromString(text)
    file.name = "grpc/reflection/v1/reflection.proto"
    file.package = "grpc.reflection.v1"
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            field.type_name = _renamed(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type, method.output_type = _renamed(method.input_type), _renamed(method.output_type)
    return file


def _renamed(type_name: str) -> str:
    return type_name.replace(".grpc.reflection.v1alpha.", ".grpc.reflection.v1.")
