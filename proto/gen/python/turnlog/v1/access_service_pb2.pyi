import datetime

from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnlog.v1 import access_pb2 as _access_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetWorkspaceRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWorkspaceResponse(_message.Message):
    __slots__ = ("workspace",)
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    workspace: _access_pb2.Workspace
    def __init__(self, workspace: _Optional[_Union[_access_pb2.Workspace, _Mapping]] = ...) -> None: ...

class SetConcurrencyLimitRequest(_message.Message):
    __slots__ = ("request_id", "max_concurrent_runs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_RUNS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    max_concurrent_runs: int
    def __init__(self, request_id: _Optional[str] = ..., max_concurrent_runs: _Optional[int] = ...) -> None: ...

class SetConcurrencyLimitResponse(_message.Message):
    __slots__ = ("workspace", "replayed")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    workspace: _access_pb2.Workspace
    replayed: bool
    def __init__(self, workspace: _Optional[_Union[_access_pb2.Workspace, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class CreatePrincipalRequest(_message.Message):
    __slots__ = ("request_id", "display_name", "role")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    display_name: str
    role: _access_pb2.Role
    def __init__(self, request_id: _Optional[str] = ..., display_name: _Optional[str] = ..., role: _Optional[_Union[_access_pb2.Role, str]] = ...) -> None: ...

class CreatePrincipalResponse(_message.Message):
    __slots__ = ("principal", "replayed")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    principal: _access_pb2.Principal
    replayed: bool
    def __init__(self, principal: _Optional[_Union[_access_pb2.Principal, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetPrincipalRequest(_message.Message):
    __slots__ = ("principal_id",)
    PRINCIPAL_ID_FIELD_NUMBER: _ClassVar[int]
    principal_id: str
    def __init__(self, principal_id: _Optional[str] = ...) -> None: ...

class GetPrincipalResponse(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: _access_pb2.Principal
    def __init__(self, principal: _Optional[_Union[_access_pb2.Principal, _Mapping]] = ...) -> None: ...

class ListPrincipalsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPrincipalsResponse(_message.Message):
    __slots__ = ("principals", "next_page_token")
    PRINCIPALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    principals: _containers.RepeatedCompositeFieldContainer[_access_pb2.Principal]
    next_page_token: str
    def __init__(self, principals: _Optional[_Iterable[_Union[_access_pb2.Principal, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateServiceAccountRequest(_message.Message):
    __slots__ = ("request_id", "display_name", "role")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    display_name: str
    role: _access_pb2.Role
    def __init__(self, request_id: _Optional[str] = ..., display_name: _Optional[str] = ..., role: _Optional[_Union[_access_pb2.Role, str]] = ...) -> None: ...

class CreateServiceAccountResponse(_message.Message):
    __slots__ = ("service_account", "replayed")
    SERVICE_ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    service_account: _access_pb2.ServiceAccount
    replayed: bool
    def __init__(self, service_account: _Optional[_Union[_access_pb2.ServiceAccount, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetServiceAccountRequest(_message.Message):
    __slots__ = ("service_account_id",)
    SERVICE_ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    service_account_id: str
    def __init__(self, service_account_id: _Optional[str] = ...) -> None: ...

class GetServiceAccountResponse(_message.Message):
    __slots__ = ("service_account",)
    SERVICE_ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    service_account: _access_pb2.ServiceAccount
    def __init__(self, service_account: _Optional[_Union[_access_pb2.ServiceAccount, _Mapping]] = ...) -> None: ...

class ListServiceAccountsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListServiceAccountsResponse(_message.Message):
    __slots__ = ("service_accounts", "next_page_token")
    SERVICE_ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    service_accounts: _containers.RepeatedCompositeFieldContainer[_access_pb2.ServiceAccount]
    next_page_token: str
    def __init__(self, service_accounts: _Optional[_Iterable[_Union[_access_pb2.ServiceAccount, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SetRoleRequest(_message.Message):
    __slots__ = ("request_id", "subject", "role")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    subject: str
    role: _access_pb2.Role
    def __init__(self, request_id: _Optional[str] = ..., subject: _Optional[str] = ..., role: _Optional[_Union[_access_pb2.Role, str]] = ...) -> None: ...

class SetRoleResponse(_message.Message):
    __slots__ = ("role", "replayed")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    role: _access_pb2.Role
    replayed: bool
    def __init__(self, role: _Optional[_Union[_access_pb2.Role, str]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class RemoveRoleRequest(_message.Message):
    __slots__ = ("request_id", "subject")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    subject: str
    def __init__(self, request_id: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class RemoveRoleResponse(_message.Message):
    __slots__ = ("replayed",)
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    replayed: bool
    def __init__(self, replayed: _Optional[bool] = ...) -> None: ...

class CreateApiKeyRequest(_message.Message):
    __slots__ = ("request_id", "subject", "display_name", "runner_pools", "expire_time")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    RUNNER_POOLS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    subject: str
    display_name: str
    runner_pools: _containers.RepeatedScalarFieldContainer[str]
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[str] = ..., subject: _Optional[str] = ..., display_name: _Optional[str] = ..., runner_pools: _Optional[_Iterable[str]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateApiKeyResponse(_message.Message):
    __slots__ = ("api_key", "secret", "replayed")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    api_key: _access_pb2.ApiKey
    secret: str
    replayed: bool
    def __init__(self, api_key: _Optional[_Union[_access_pb2.ApiKey, _Mapping]] = ..., secret: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetApiKeyRequest(_message.Message):
    __slots__ = ("api_key_id",)
    API_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    api_key_id: str
    def __init__(self, api_key_id: _Optional[str] = ...) -> None: ...

class GetApiKeyResponse(_message.Message):
    __slots__ = ("api_key",)
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    api_key: _access_pb2.ApiKey
    def __init__(self, api_key: _Optional[_Union[_access_pb2.ApiKey, _Mapping]] = ...) -> None: ...

class ListApiKeysRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListApiKeysResponse(_message.Message):
    __slots__ = ("api_keys", "next_page_token")
    API_KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    api_keys: _containers.RepeatedCompositeFieldContainer[_access_pb2.ApiKey]
    next_page_token: str
    def __init__(self, api_keys: _Optional[_Iterable[_Union[_access_pb2.ApiKey, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RotateApiKeyRequest(_message.Message):
    __slots__ = ("request_id", "api_key_id", "overlap")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    API_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    api_key_id: str
    overlap: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[str] = ..., api_key_id: _Optional[str] = ..., overlap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RotateApiKeyResponse(_message.Message):
    __slots__ = ("api_key", "secret", "replayed")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    api_key: _access_pb2.ApiKey
    secret: str
    replayed: bool
    def __init__(self, api_key: _Optional[_Union[_access_pb2.ApiKey, _Mapping]] = ..., secret: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class RevokeApiKeyRequest(_message.Message):
    __slots__ = ("request_id", "api_key_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    API_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    api_key_id: str
    def __init__(self, request_id: _Optional[str] = ..., api_key_id: _Optional[str] = ...) -> None: ...

class RevokeApiKeyResponse(_message.Message):
    __slots__ = ("api_key", "replayed")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    api_key: _access_pb2.ApiKey
    replayed: bool
    def __init__(self, api_key: _Optional[_Union[_access_pb2.ApiKey, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class CreateRunnerPoolRequest(_message.Message):
    __slots__ = ("request_id", "name", "description")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    description: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class CreateRunnerPoolResponse(_message.Message):
    __slots__ = ("runner_pool", "replayed")
    RUNNER_POOL_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    runner_pool: _access_pb2.RunnerPool
    replayed: bool
    def __init__(self, runner_pool: _Optional[_Union[_access_pb2.RunnerPool, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetRunnerPoolRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetRunnerPoolResponse(_message.Message):
    __slots__ = ("runner_pool",)
    RUNNER_POOL_FIELD_NUMBER: _ClassVar[int]
    runner_pool: _access_pb2.RunnerPool
    def __init__(self, runner_pool: _Optional[_Union[_access_pb2.RunnerPool, _Mapping]] = ...) -> None: ...

class ListRunnerPoolsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunnerPoolsResponse(_message.Message):
    __slots__ = ("runner_pools", "next_page_token")
    RUNNER_POOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runner_pools: _containers.RepeatedCompositeFieldContainer[_access_pb2.RunnerPool]
    next_page_token: str
    def __init__(self, runner_pools: _Optional[_Iterable[_Union[_access_pb2.RunnerPool, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
