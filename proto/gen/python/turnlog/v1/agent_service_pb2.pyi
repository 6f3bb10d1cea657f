from buf.validate import validate_pb2 as _validate_pb2
from turnlog.v1 import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateAgentRequest(_message.Message):
    __slots__ = ("request_id", "name", "description")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    description: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class CreateAgentResponse(_message.Message):
    __slots__ = ("agent", "replayed")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    replayed: bool
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetAgentRequest(_message.Message):
    __slots__ = ("agent_id",)
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    def __init__(self, agent_id: _Optional[str] = ...) -> None: ...

class GetAgentResponse(_message.Message):
    __slots__ = ("agent",)
    AGENT_FIELD_NUMBER: _ClassVar[int]
    agent: _agent_pb2.Agent
    def __init__(self, agent: _Optional[_Union[_agent_pb2.Agent, _Mapping]] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents", "next_page_token")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Agent]
    next_page_token: str
    def __init__(self, agents: _Optional[_Iterable[_Union[_agent_pb2.Agent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PublishAgentVersionRequest(_message.Message):
    __slots__ = ("request_id", "agent_id", "instructions", "tools")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    agent_id: str
    instructions: str
    tools: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Tool]
    def __init__(self, request_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., instructions: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[_agent_pb2.Tool, _Mapping]]] = ...) -> None: ...

class PublishAgentVersionResponse(_message.Message):
    __slots__ = ("agent_version", "replayed")
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    agent_version: _agent_pb2.AgentVersion
    replayed: bool
    def __init__(self, agent_version: _Optional[_Union[_agent_pb2.AgentVersion, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetAgentVersionRequest(_message.Message):
    __slots__ = ("agent_id", "version_number")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    version_number: int
    def __init__(self, agent_id: _Optional[str] = ..., version_number: _Optional[int] = ...) -> None: ...

class GetAgentVersionResponse(_message.Message):
    __slots__ = ("agent_version",)
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    agent_version: _agent_pb2.AgentVersion
    def __init__(self, agent_version: _Optional[_Union[_agent_pb2.AgentVersion, _Mapping]] = ...) -> None: ...

class ListAgentVersionsRequest(_message.Message):
    __slots__ = ("agent_id", "page_size", "page_token")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    page_size: int
    page_token: str
    def __init__(self, agent_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAgentVersionsResponse(_message.Message):
    __slots__ = ("agent_versions", "next_page_token")
    AGENT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_versions: _containers.RepeatedCompositeFieldContainer[_agent_pb2.AgentVersion]
    next_page_token: str
    def __init__(self, agent_versions: _Optional[_Iterable[_Union[_agent_pb2.AgentVersion, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateHarnessProfileRequest(_message.Message):
    __slots__ = ("request_id", "name", "description")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    description: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class CreateHarnessProfileResponse(_message.Message):
    __slots__ = ("harness_profile", "replayed")
    HARNESS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    harness_profile: _agent_pb2.HarnessProfile
    replayed: bool
    def __init__(self, harness_profile: _Optional[_Union[_agent_pb2.HarnessProfile, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetHarnessProfileRequest(_message.Message):
    __slots__ = ("harness_profile_id",)
    HARNESS_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    harness_profile_id: str
    def __init__(self, harness_profile_id: _Optional[str] = ...) -> None: ...

class GetHarnessProfileResponse(_message.Message):
    __slots__ = ("harness_profile",)
    HARNESS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    harness_profile: _agent_pb2.HarnessProfile
    def __init__(self, harness_profile: _Optional[_Union[_agent_pb2.HarnessProfile, _Mapping]] = ...) -> None: ...

class ListHarnessProfilesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHarnessProfilesResponse(_message.Message):
    __slots__ = ("harness_profiles", "next_page_token")
    HARNESS_PROFILES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    harness_profiles: _containers.RepeatedCompositeFieldContainer[_agent_pb2.HarnessProfile]
    next_page_token: str
    def __init__(self, harness_profiles: _Optional[_Iterable[_Union[_agent_pb2.HarnessProfile, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateSandboxProfileRequest(_message.Message):
    __slots__ = ("request_id", "name", "max_duration_seconds")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    max_duration_seconds: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., max_duration_seconds: _Optional[int] = ...) -> None: ...

class CreateSandboxProfileResponse(_message.Message):
    __slots__ = ("sandbox_profile", "replayed")
    SANDBOX_PROFILE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    sandbox_profile: _agent_pb2.SandboxProfile
    replayed: bool
    def __init__(self, sandbox_profile: _Optional[_Union[_agent_pb2.SandboxProfile, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetSandboxProfileRequest(_message.Message):
    __slots__ = ("sandbox_profile_id",)
    SANDBOX_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    sandbox_profile_id: str
    def __init__(self, sandbox_profile_id: _Optional[str] = ...) -> None: ...

class GetSandboxProfileResponse(_message.Message):
    __slots__ = ("sandbox_profile",)
    SANDBOX_PROFILE_FIELD_NUMBER: _ClassVar[int]
    sandbox_profile: _agent_pb2.SandboxProfile
    def __init__(self, sandbox_profile: _Optional[_Union[_agent_pb2.SandboxProfile, _Mapping]] = ...) -> None: ...

class ListSandboxProfilesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSandboxProfilesResponse(_message.Message):
    __slots__ = ("sandbox_profiles", "next_page_token")
    SANDBOX_PROFILES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sandbox_profiles: _containers.RepeatedCompositeFieldContainer[_agent_pb2.SandboxProfile]
    next_page_token: str
    def __init__(self, sandbox_profiles: _Optional[_Iterable[_Union[_agent_pb2.SandboxProfile, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CreateDeploymentRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CreateDeploymentResponse(_message.Message):
    __slots__ = ("agent_deployment", "replayed")
    AGENT_DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    agent_deployment: _agent_pb2.AgentDeployment
    replayed: bool
    def __init__(self, agent_deployment: _Optional[_Union[_agent_pb2.AgentDeployment, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetDeploymentRequest(_message.Message):
    __slots__ = ("agent_deployment_id",)
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    def __init__(self, agent_deployment_id: _Optional[str] = ...) -> None: ...

class GetDeploymentResponse(_message.Message):
    __slots__ = ("agent_deployment",)
    AGENT_DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    agent_deployment: _agent_pb2.AgentDeployment
    def __init__(self, agent_deployment: _Optional[_Union[_agent_pb2.AgentDeployment, _Mapping]] = ...) -> None: ...

class ListDeploymentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeploymentsResponse(_message.Message):
    __slots__ = ("agent_deployments", "next_page_token")
    AGENT_DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_deployments: _containers.RepeatedCompositeFieldContainer[_agent_pb2.AgentDeployment]
    next_page_token: str
    def __init__(self, agent_deployments: _Optional[_Iterable[_Union[_agent_pb2.AgentDeployment, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PublishDeploymentRevisionRequest(_message.Message):
    __slots__ = ("request_id", "agent_deployment_id", "agent_id", "agent_version_number", "harness_profile_id", "sandbox_profile_id", "runner_pool", "model_route")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    HARNESS_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNER_POOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_ROUTE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    agent_deployment_id: str
    agent_id: str
    agent_version_number: int
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str
    model_route: str
    def __init__(self, request_id: _Optional[str] = ..., agent_deployment_id: _Optional[str] = ..., agent_id: _Optional[str] = ..., agent_version_number: _Optional[int] = ..., harness_profile_id: _Optional[str] = ..., sandbox_profile_id: _Optional[str] = ..., runner_pool: _Optional[str] = ..., model_route: _Optional[str] = ...) -> None: ...

class PublishDeploymentRevisionResponse(_message.Message):
    __slots__ = ("agent_deployment_revision", "replayed")
    AGENT_DEPLOYMENT_REVISION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_revision: _agent_pb2.AgentDeploymentRevision
    replayed: bool
    def __init__(self, agent_deployment_revision: _Optional[_Union[_agent_pb2.AgentDeploymentRevision, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetDeploymentRevisionRequest(_message.Message):
    __slots__ = ("agent_deployment_id", "revision_number")
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    revision_number: int
    def __init__(self, agent_deployment_id: _Optional[str] = ..., revision_number: _Optional[int] = ...) -> None: ...

class GetDeploymentRevisionResponse(_message.Message):
    __slots__ = ("agent_deployment_revision",)
    AGENT_DEPLOYMENT_REVISION_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_revision: _agent_pb2.AgentDeploymentRevision
    def __init__(self, agent_deployment_revision: _Optional[_Union[_agent_pb2.AgentDeploymentRevision, _Mapping]] = ...) -> None: ...

class ListDeploymentRevisionsRequest(_message.Message):
    __slots__ = ("agent_deployment_id", "page_size", "page_token")
    AGENT_DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_id: str
    page_size: int
    page_token: str
    def __init__(self, agent_deployment_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeploymentRevisionsResponse(_message.Message):
    __slots__ = ("agent_deployment_revisions", "next_page_token")
    AGENT_DEPLOYMENT_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agent_deployment_revisions: _containers.RepeatedCompositeFieldContainer[_agent_pb2.AgentDeploymentRevision]
    next_page_token: str
    def __init__(self, agent_deployment_revisions: _Optional[_Iterable[_Union[_agent_pb2.AgentDeploymentRevision, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
