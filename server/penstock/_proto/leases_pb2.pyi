from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaseRequest(_message.Message):
    __slots__ = ("entity", "resource", "amounts", "limits", "domain", "taken_ms")
    class AmountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TakenMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    TAKEN_MS_FIELD_NUMBER: _ClassVar[int]
    entity: str
    resource: str
    amounts: _containers.ScalarMap[str, int]
    limits: _containers.ScalarMap[str, str]
    domain: str
    taken_ms: _containers.ScalarMap[str, int]
    def __init__(self, entity: _Optional[str] = ..., resource: _Optional[str] = ..., amounts: _Optional[_Mapping[str, int]] = ..., limits: _Optional[_Mapping[str, str]] = ..., domain: _Optional[str] = ..., taken_ms: _Optional[_Mapping[str, int]] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("amounts", "refused", "unlimited", "at_ms")
    class Refused(_message.Message):
        __slots__ = ("entity", "limit", "wait_ms", "burst")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        LIMIT_FIELD_NUMBER: _ClassVar[int]
        WAIT_MS_FIELD_NUMBER: _ClassVar[int]
        BURST_FIELD_NUMBER: _ClassVar[int]
        entity: str
        limit: str
        wait_ms: int
        burst: int
        def __init__(self, entity: _Optional[str] = ..., limit: _Optional[str] = ..., wait_ms: _Optional[int] = ..., burst: _Optional[int] = ...) -> None: ...
    class AmountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    amounts: _containers.ScalarMap[str, int]
    refused: LeaseResponse.Refused
    unlimited: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    def __init__(self, amounts: _Optional[_Mapping[str, int]] = ..., refused: _Optional[_Union[LeaseResponse.Refused, _Mapping]] = ..., unlimited: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ...) -> None: ...
