from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("sequence", "time_ns", "host", "hello", "job_join", "job_leave", "flow_request", "iteration", "probe_request", "byte_counts", "clock_request", "flow_opened", "flow_fallback", "workers", "connections", "earlier")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOB_JOIN_FIELD_NUMBER: _ClassVar[int]
    JOB_LEAVE_FIELD_NUMBER: _ClassVar[int]
    FLOW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    PROBE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_REQUEST_FIELD_NUMBER: _ClassVar[int]
    FLOW_OPENED_FIELD_NUMBER: _ClassVar[int]
    FLOW_FALLBACK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time_ns: int
    host: str
    hello: Hello
    job_join: JobJoin
    job_leave: JobLeave
    flow_request: FlowRequest
    iteration: IterationReport
    probe_request: ProbeRequest
    byte_counts: ByteCounts
    clock_request: ClockRequest
    flow_opened: FlowOpened
    flow_fallback: FlowFallback
    workers: Workers
    connections: Connections
    earlier: _containers.RepeatedCompositeFieldContainer[IterationReport]
    def __init__(self, sequence: _Optional[int] = ..., time_ns: _Optional[int] = ..., host: _Optional[str] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., job_join: _Optional[_Union[JobJoin, _Mapping]] = ..., job_leave: _Optional[_Union[JobLeave, _Mapping]] = ..., flow_request: _Optional[_Union[FlowRequest, _Mapping]] = ..., iteration: _Optional[_Union[IterationReport, _Mapping]] = ..., probe_request: _Optional[_Union[ProbeRequest, _Mapping]] = ..., byte_counts: _Optional[_Union[ByteCounts, _Mapping]] = ..., clock_request: _Optional[_Union[ClockRequest, _Mapping]] = ..., flow_opened: _Optional[_Union[FlowOpened, _Mapping]] = ..., flow_fallback: _Optional[_Union[FlowFallback, _Mapping]] = ..., workers: _Optional[_Union[Workers, _Mapping]] = ..., connections: _Optional[_Union[Connections, _Mapping]] = ..., earlier: _Optional[_Iterable[_Union[IterationReport, _Mapping]]] = ...) -> None: ...

class ControllerMessage(_message.Message):
    __slots__ = ("sequence", "host", "welcome", "flow", "schedule", "refusal", "probe_result", "measure", "clock", "accepted", "connection_path")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    PROBE_RESULT_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_PATH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    host: str
    welcome: Welcome
    flow: FlowAssignment
    schedule: JobSchedule
    refusal: Refusal
    probe_result: ProbeResult
    measure: MeasureRequest
    clock: ClockReply
    accepted: JobAccepted
    connection_path: ConnectionPath
    def __init__(self, sequence: _Optional[int] = ..., host: _Optional[str] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., flow: _Optional[_Union[FlowAssignment, _Mapping]] = ..., schedule: _Optional[_Union[JobSchedule, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., probe_result: _Optional[_Union[ProbeResult, _Mapping]] = ..., measure: _Optional[_Union[MeasureRequest, _Mapping]] = ..., clock: _Optional[_Union[ClockReply, _Mapping]] = ..., accepted: _Optional[_Union[JobAccepted, _Mapping]] = ..., connection_path: _Optional[_Union[ConnectionPath, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("host", "ip", "pinning", "protocol", "dscp", "counts_bytes", "mltcp", "instance", "workers", "connects")
    HOST_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    PINNING_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DSCP_FIELD_NUMBER: _ClassVar[int]
    COUNTS_BYTES_FIELD_NUMBER: _ClassVar[int]
    MLTCP_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CONNECTS_FIELD_NUMBER: _ClassVar[int]
    host: str
    ip: str
    pinning: str
    protocol: int
    dscp: str
    counts_bytes: bool
    mltcp: bool
    instance: str
    workers: Workers
    connects: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, host: _Optional[str] = ..., ip: _Optional[str] = ..., pinning: _Optional[str] = ..., protocol: _Optional[int] = ..., dscp: _Optional[str] = ..., counts_bytes: _Optional[bool] = ..., mltcp: _Optional[bool] = ..., instance: _Optional[str] = ..., workers: _Optional[_Union[Workers, _Mapping]] = ..., connects: _Optional[_Iterable[int]] = ...) -> None: ...

class Connections(_message.Message):
    __slots__ = ("connections",)
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    def __init__(self, connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("flow", "protocol", "source_port", "dest_port", "sent_dscp", "closed")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PORT_FIELD_NUMBER: _ClassVar[int]
    DEST_PORT_FIELD_NUMBER: _ClassVar[int]
    SENT_DSCP_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    flow: str
    protocol: int
    source_port: int
    dest_port: int
    sent_dscp: int
    closed: bool
    def __init__(self, flow: _Optional[str] = ..., protocol: _Optional[int] = ..., source_port: _Optional[int] = ..., dest_port: _Optional[int] = ..., sent_dscp: _Optional[int] = ..., closed: _Optional[bool] = ...) -> None: ...

class Workers(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("job", "rank")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("policy", "cnp_dscp", "ack_dscp", "equal_dscp", "mice_dscp", "elephant_bytes", "answer_deadline_ns", "clock_poll_ns", "profiles", "level_dscp")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CNP_DSCP_FIELD_NUMBER: _ClassVar[int]
    ACK_DSCP_FIELD_NUMBER: _ClassVar[int]
    EQUAL_DSCP_FIELD_NUMBER: _ClassVar[int]
    MICE_DSCP_FIELD_NUMBER: _ClassVar[int]
    ELEPHANT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_DEADLINE_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_POLL_NS_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_DSCP_FIELD_NUMBER: _ClassVar[int]
    policy: str
    cnp_dscp: int
    ack_dscp: int
    equal_dscp: int
    mice_dscp: int
    elephant_bytes: int
    answer_deadline_ns: int
    clock_poll_ns: int
    profiles: bool
    level_dscp: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, policy: _Optional[str] = ..., cnp_dscp: _Optional[int] = ..., ack_dscp: _Optional[int] = ..., equal_dscp: _Optional[int] = ..., mice_dscp: _Optional[int] = ..., elephant_bytes: _Optional[int] = ..., answer_deadline_ns: _Optional[int] = ..., clock_poll_ns: _Optional[int] = ..., profiles: _Optional[bool] = ..., level_dscp: _Optional[_Iterable[int]] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("start_ns", "end_ns", "rate_bps")
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    start_ns: int
    end_ns: int
    rate_bps: int
    def __init__(self, start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., rate_bps: _Optional[int] = ...) -> None: ...

class FlowSpec(_message.Message):
    __slots__ = ("name", "src", "dst", "bytes_per_iteration")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SRC_FIELD_NUMBER: _ClassVar[int]
    DST_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_ITERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    src: str
    dst: str
    bytes_per_iteration: int
    def __init__(self, name: _Optional[str] = ..., src: _Optional[str] = ..., dst: _Optional[str] = ..., bytes_per_iteration: _Optional[int] = ...) -> None: ...

class JobJoin(_message.Message):
    __slots__ = ("job", "model", "gpus", "hosts", "rank", "period_ns", "phases", "flops_per_iteration", "flows", "silent", "pcie_link", "pcie_bps", "sender")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PERIOD_NS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_ITERATION_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    PCIE_LINK_FIELD_NUMBER: _ClassVar[int]
    PCIE_BPS_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    job: str
    model: str
    gpus: int
    hosts: _containers.RepeatedScalarFieldContainer[str]
    rank: int
    period_ns: int
    phases: _containers.RepeatedCompositeFieldContainer[Phase]
    flops_per_iteration: float
    flows: _containers.RepeatedCompositeFieldContainer[FlowSpec]
    silent: bool
    pcie_link: str
    pcie_bps: int
    sender: str
    def __init__(self, job: _Optional[str] = ..., model: _Optional[str] = ..., gpus: _Optional[int] = ..., hosts: _Optional[_Iterable[str]] = ..., rank: _Optional[int] = ..., period_ns: _Optional[int] = ..., phases: _Optional[_Iterable[_Union[Phase, _Mapping]]] = ..., flops_per_iteration: _Optional[float] = ..., flows: _Optional[_Iterable[_Union[FlowSpec, _Mapping]]] = ..., silent: _Optional[bool] = ..., pcie_link: _Optional[str] = ..., pcie_bps: _Optional[int] = ..., sender: _Optional[str] = ...) -> None: ...

class JobAccepted(_message.Message):
    __slots__ = ("job", "rank")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class JobLeave(_message.Message):
    __slots__ = ("job", "rank")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class FlowRequest(_message.Message):
    __slots__ = ("flow",)
    FLOW_FIELD_NUMBER: _ClassVar[int]
    flow: str
    def __init__(self, flow: _Optional[str] = ...) -> None: ...

class FlowOpened(_message.Message):
    __slots__ = ("flow", "source_port", "dscp")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PORT_FIELD_NUMBER: _ClassVar[int]
    DSCP_FIELD_NUMBER: _ClassVar[int]
    flow: str
    source_port: int
    dscp: int
    def __init__(self, flow: _Optional[str] = ..., source_port: _Optional[int] = ..., dscp: _Optional[int] = ...) -> None: ...

class FlowFallback(_message.Message):
    __slots__ = ("flow", "on_ecmp", "source_port", "why")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    ON_ECMP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PORT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    flow: str
    on_ecmp: bool
    source_port: int
    why: str
    def __init__(self, flow: _Optional[str] = ..., on_ecmp: _Optional[bool] = ..., source_port: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class FlowAssignment(_message.Message):
    __slots__ = ("flow", "source_port", "dscp", "rate_cap_bps")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PORT_FIELD_NUMBER: _ClassVar[int]
    DSCP_FIELD_NUMBER: _ClassVar[int]
    RATE_CAP_BPS_FIELD_NUMBER: _ClassVar[int]
    flow: str
    source_port: int
    dscp: int
    rate_cap_bps: int
    def __init__(self, flow: _Optional[str] = ..., source_port: _Optional[int] = ..., dscp: _Optional[int] = ..., rate_cap_bps: _Optional[int] = ...) -> None: ...

class ConnectionPath(_message.Message):
    __slots__ = ("flow", "job", "src_ip", "dst_ip", "index", "protocol", "dscp", "known", "conditions", "ended")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SRC_IP_FIELD_NUMBER: _ClassVar[int]
    DST_IP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DSCP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    flow: str
    job: str
    src_ip: str
    dst_ip: str
    index: int
    protocol: int
    dscp: int
    known: bool
    conditions: _containers.RepeatedCompositeFieldContainer[PortCondition]
    ended: bool
    def __init__(self, flow: _Optional[str] = ..., job: _Optional[str] = ..., src_ip: _Optional[str] = ..., dst_ip: _Optional[str] = ..., index: _Optional[int] = ..., protocol: _Optional[int] = ..., dscp: _Optional[int] = ..., known: _Optional[bool] = ..., conditions: _Optional[_Iterable[_Union[PortCondition, _Mapping]]] = ..., ended: _Optional[bool] = ...) -> None: ...

class PortCondition(_message.Message):
    __slots__ = ("source_mask", "dest_mask", "odd")
    SOURCE_MASK_FIELD_NUMBER: _ClassVar[int]
    DEST_MASK_FIELD_NUMBER: _ClassVar[int]
    ODD_FIELD_NUMBER: _ClassVar[int]
    source_mask: int
    dest_mask: int
    odd: bool
    def __init__(self, source_mask: _Optional[int] = ..., dest_mask: _Optional[int] = ..., odd: _Optional[bool] = ...) -> None: ...

class JobSchedule(_message.Message):
    __slots__ = ("job", "epoch_ns", "shift_ns", "period_ns", "realign", "sender", "once")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_NS_FIELD_NUMBER: _ClassVar[int]
    SHIFT_NS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_NS_FIELD_NUMBER: _ClassVar[int]
    REALIGN_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch_ns: int
    shift_ns: int
    period_ns: int
    realign: float
    sender: str
    once: bool
    def __init__(self, job: _Optional[str] = ..., epoch_ns: _Optional[int] = ..., shift_ns: _Optional[int] = ..., period_ns: _Optional[int] = ..., realign: _Optional[float] = ..., sender: _Optional[str] = ..., once: _Optional[bool] = ...) -> None: ...

class IterationReport(_message.Message):
    __slots__ = ("job", "rank", "index", "start_ns", "end_ns", "communication_ns", "bytes_sent", "ecn_marks", "retransmits", "held_ns", "compute_ns", "flops", "drift_ns", "realigned", "clock_error_ns")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_NS_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    ECN_MARKS_FIELD_NUMBER: _ClassVar[int]
    RETRANSMITS_FIELD_NUMBER: _ClassVar[int]
    HELD_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_NS_FIELD_NUMBER: _ClassVar[int]
    REALIGNED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ERROR_NS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    index: int
    start_ns: int
    end_ns: int
    communication_ns: int
    bytes_sent: int
    ecn_marks: int
    retransmits: int
    held_ns: int
    compute_ns: int
    flops: float
    drift_ns: int
    realigned: bool
    clock_error_ns: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., index: _Optional[int] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., communication_ns: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., ecn_marks: _Optional[int] = ..., retransmits: _Optional[int] = ..., held_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ..., flops: _Optional[float] = ..., drift_ns: _Optional[int] = ..., realigned: _Optional[bool] = ..., clock_error_ns: _Optional[int] = ...) -> None: ...

class MeasureRequest(_message.Message):
    __slots__ = ("job", "bin_ns", "report_ns", "profiling")
    JOB_FIELD_NUMBER: _ClassVar[int]
    BIN_NS_FIELD_NUMBER: _ClassVar[int]
    REPORT_NS_FIELD_NUMBER: _ClassVar[int]
    PROFILING_FIELD_NUMBER: _ClassVar[int]
    job: str
    bin_ns: int
    report_ns: int
    profiling: bool
    def __init__(self, job: _Optional[str] = ..., bin_ns: _Optional[int] = ..., report_ns: _Optional[int] = ..., profiling: _Optional[bool] = ...) -> None: ...

class FlowBytes(_message.Message):
    __slots__ = ("flow", "bytes")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    flow: str
    bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, flow: _Optional[str] = ..., bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class ByteCounts(_message.Message):
    __slots__ = ("job", "rank", "start_ns", "bin_ns", "flows", "flops")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    BIN_NS_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    start_ns: int
    bin_ns: int
    flows: _containers.RepeatedCompositeFieldContainer[FlowBytes]
    flops: float
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., start_ns: _Optional[int] = ..., bin_ns: _Optional[int] = ..., flows: _Optional[_Iterable[_Union[FlowBytes, _Mapping]]] = ..., flops: _Optional[float] = ...) -> None: ...

class ClockRequest(_message.Message):
    __slots__ = ("sent_ns",)
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    sent_ns: int
    def __init__(self, sent_ns: _Optional[int] = ...) -> None: ...

class ClockReply(_message.Message):
    __slots__ = ("sent_ns", "received_ns", "replied_ns")
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_NS_FIELD_NUMBER: _ClassVar[int]
    REPLIED_NS_FIELD_NUMBER: _ClassVar[int]
    sent_ns: int
    received_ns: int
    replied_ns: int
    def __init__(self, sent_ns: _Optional[int] = ..., received_ns: _Optional[int] = ..., replied_ns: _Optional[int] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("flow",)
    FLOW_FIELD_NUMBER: _ClassVar[int]
    flow: str
    def __init__(self, flow: _Optional[str] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("flow", "path", "verified")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    flow: str
    path: _containers.RepeatedScalarFieldContainer[str]
    verified: bool
    def __init__(self, flow: _Optional[str] = ..., path: _Optional[_Iterable[str]] = ..., verified: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("what",)
    WHAT_FIELD_NUMBER: _ClassVar[int]
    what: str
    def __init__(self, what: _Optional[str] = ...) -> None: ...

class Tick(_message.Message):
    __slots__ = ("sequence", "time_ns", "sent", "timer", "last")
    class SentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    TIMER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time_ns: int
    sent: _containers.ScalarMap[str, int]
    timer: bool
    last: bool
    def __init__(self, sequence: _Optional[int] = ..., time_ns: _Optional[int] = ..., sent: _Optional[_Mapping[str, int]] = ..., timer: _Optional[bool] = ..., last: _Optional[bool] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("sequence", "sent", "next_timer_ns", "orders")
    class SentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMER_NS_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    sent: _containers.ScalarMap[str, int]
    next_timer_ns: int
    orders: _containers.RepeatedCompositeFieldContainer[CableOrder]
    def __init__(self, sequence: _Optional[int] = ..., sent: _Optional[_Mapping[str, int]] = ..., next_timer_ns: _Optional[int] = ..., orders: _Optional[_Iterable[_Union[CableOrder, _Mapping]]] = ...) -> None: ...

class CableOrder(_message.Message):
    __slots__ = ("switch", "port", "cut")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    switch: str
    port: int
    cut: bool
    def __init__(self, switch: _Optional[str] = ..., port: _Optional[int] = ..., cut: _Optional[bool] = ...) -> None: ...
