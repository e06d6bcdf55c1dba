# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm pipeline`: the bytes each target takes, and what is said where something is missing."""

import json
import re

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from polyrhythm import p4tool
from polyrhythm.cli import main
from polyrhythm.commands.pipeline import PipelineProfile, TofinoProgram, bf_pipeline_config
from polyrhythm.traffic_manager import QUEUES, QueueSettingsError, parse_ports

Field = descriptor_pb2.FieldDescriptorProto
STRING, BYTES, MESSAGE = Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE
U32, U64, I32, BOOL = Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_INT32, Field.TYPE_BOOL
REPEATED, SINGLE = Field.LABEL_REPEATED, Field.LABEL_OPTIONAL


def message_classes(package, **messages):
    """Classes of a proto3 file: message -> fields as (name, number, type or name of a message, label)."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            if isinstance(kind, str):
                item = message.field.add(name=field, number=number, type=MESSAGE, label=label)
                item.type_name = f".{package}.{kind}"
            else:
                message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


# What Stratum parses (stratum/hal/lib/barefoot/bf.proto), said independently of the packer.
BfPipelineConfig = message_classes(
    "bf",
    Profile=[
        ("profile_name", 1, STRING, SINGLE),
        ("context", 2, BYTES, SINGLE),
        ("binary", 3, BYTES, SINGLE),
        ("pipe_scope", 4, U32, REPEATED),
    ],
    BfPipelineConfig=[
        ("p4_name", 1, STRING, SINGLE),
        ("bfruntime_info", 2, BYTES, SINGLE),
        ("profiles", 3, "Profile", REPEATED),
    ],
)["BfPipelineConfig"]


@pytest.fixture
def compiled(tmp_path):
    """A folder as the Tofino back end leaves it, paths as they were to be installed."""
    folder = tmp_path / "polyrhythm.tofino"
    (folder / "pipe").mkdir(parents=True)
    (folder / "bfrt.json").write_text('{"tables": []}')
    (folder / "pipe/context.json").write_text('{"phase0": {}}')
    (folder / "pipe/tofino.bin").write_bytes(bytes(range(256)) * 3)
    prefix = "share/tofinopd/polyrhythm"
    pipeline = {
        "p4_pipeline_name": "pipe",
        "context": f"{prefix}/pipe/context.json",
        "config": f"{prefix}/pipe/tofino.bin",
        "pipe_scope": [0, 1, 200],
    }
    program = {"program-name": "polyrhythm", "bfrt-config": f"{prefix}/bfrt.json", "p4_pipelines": [pipeline]}
    (folder / "polyrhythm.conf").write_text(json.dumps({"p4_devices": [{"p4_programs": [program]}]}))
    return folder


def conf_of(folder):
    return json.loads((folder / "polyrhythm.conf").read_text())


def refusal(capsys, *arguments):
    """The one line that the command writes as it exits with 2."""
    assert main(["pipeline", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("polyrhythm pipeline: ")
    assert error.count("\n") == 1
    return error


# --- pack -----------------------------------------------------------------------------------------------


def test_bmv2_takes_the_json_as_it_is(tmp_path, capsys):
    target = tmp_path / "config"
    assert main(["pipeline", "pack", "--target", "bmv2", "-o", str(target)]) == 0
    assert target.read_bytes() == (p4tool.REPOSITORY / p4tool.JSON_OUTPUT).read_bytes()
    assert f"{target.stat().st_size} bytes" in capsys.readouterr().out


def test_stratum_takes_a_bf_pipeline_config(compiled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "pack", "--target", "stratum", "--compiled", str(compiled)]) == 0
    config = BfPipelineConfig.FromString((tmp_path / "polyrhythm.stratum.bin").read_bytes())
    assert config.p4_name == "polyrhythm"
    assert config.bfruntime_info == (compiled / "bfrt.json").read_bytes()
    [profile] = config.profiles
    assert profile.profile_name == "pipe"
    assert profile.context == (compiled / "pipe/context.json").read_bytes()
    assert profile.binary == (compiled / "pipe/tofino.bin").read_bytes()
    assert list(profile.pipe_scope) == [0, 1, 200]


def test_the_bytes_are_those_that_protobuf_writes():
    profiles = (
        PipelineProfile("a", b"{}", b"\x01" * 300, (0, 1, 300)),
        PipelineProfile("b", b"[]", b"\x02", ()),
    )
    packed = bf_pipeline_config(TofinoProgram("p", b"{}", profiles))
    assert BfPipelineConfig.FromString(packed).SerializeToString(deterministic=True) == packed


def test_paths_beside_the_conf_file_are_found(compiled, tmp_path):
    conf = conf_of(compiled)
    program = conf["p4_devices"][0]["p4_programs"][0]
    program["bfrt-config"] = str(compiled / "bfrt.json")
    program["p4_pipelines"][0]["context"] = "pipe/context.json"
    program["p4_pipelines"][0]["config"] = "polyrhythm.tofino/pipe/tofino.bin"
    (compiled / "polyrhythm.conf").write_text(json.dumps(conf))
    output = tmp_path / "out.bin"
    command = ["pipeline", "pack", "--target", "stratum", "--compiled", str(compiled), "-o", str(output)]
    assert main(command) == 0
    [profile] = BfPipelineConfig.FromString(output.read_bytes()).profiles
    assert len(profile.binary) == 768


def test_without_compiled_artefacts_it_says_what_is_missing(tmp_path, capsys):
    error = refusal(capsys, "pack", "--target", "stratum", "--compiled", tmp_path / "none")
    for part in (".conf", "bfrt.json", "context.json", "tofino.bin", "docs/tofino.md", str(tmp_path)):
        assert part in error


def remove(part):
    return lambda folder: (folder / part).unlink()


def spoil(change):
    def damage(folder):
        conf = conf_of(folder)
        change(conf)
        (folder / "polyrhythm.conf").write_text(json.dumps(conf))

    return damage


DAMAGE = {
    "no binary": (remove("pipe/tofino.bin"), "pipe/tofino.bin, which does not exist"),
    "no schema": (remove("bfrt.json"), "bfrt.json, which does not exist"),
    "empty binary": (lambda folder: (folder / "pipe/tofino.bin").write_bytes(b""), "tofino.bin: is empty"),
    "context is no JSON": (
        lambda folder: (folder / "pipe/context.json").write_text("{"),
        "context.json: is not JSON",
    ),
    "conf is no JSON": (
        lambda folder: (folder / "polyrhythm.conf").write_text("p4"),
        "polyrhythm.conf: does not describe",
    ),
    "conf is a list": (
        lambda folder: (folder / "polyrhythm.conf").write_text("[]"),
        "polyrhythm.conf: does not describe",
    ),
    "two devices": (spoil(lambda conf: conf["p4_devices"].append({})), "one device with one P4 program"),
    "no name": (
        spoil(lambda conf: conf["p4_devices"][0]["p4_programs"][0].pop("program-name")),
        "program-name",
    ),
    "no pipeline": (
        spoil(lambda conf: conf["p4_devices"][0]["p4_programs"][0]["p4_pipelines"].clear()),
        "has no pipeline",
    ),
    "two conf files": (lambda folder: (folder / "other.conf").write_text("{}"), "2 .conf files"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_broken_folder_is_named_in_one_line(compiled, capsys, damage, message):
    damage(compiled)
    assert message in refusal(capsys, "pack", "--target", "stratum", "--compiled", compiled)


def test_compiled_makes_no_sense_for_bmv2(compiled, capsys):
    assert "--compiled is only for" in refusal(capsys, "pack", "--target", "bmv2", "--compiled", compiled)


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    place = tmp_path / "no such folder" / "out"
    assert f"{place}: " in refusal(capsys, "pack", "--target", "bmv2", "-o", place)


# --- traffic manager ------------------------------------------------------------------------------------

# The fields of Stratum's ChassisConfig that are used, with enumerations as what they are on the wire.
CHASSIS = """
    ByteShape: rate_bps 1 u64, burst_bytes 2 u32
    Shape: byte_shaping 2 ByteShape
    ShapeEntry: key 1 u32, value 2 Shape
    NodeShape: per_port_shaping_configs 1 ShapeEntry*
    NodeShapeEntry: key 1 u64, value 2 NodeShape
    Mapping: queue_id 1 i32, priority 2 enum, weight 3 u32, pool 5 enum, base_use_limit 6 u32, baf 7 enum
    Queues: port 1 u32, queue_mapping 3 Mapping*
    Qos: queue_configs 6 Queues*
    QosEntry: key 1 u64, value 2 Qos
    Tofino: node_id_to_port_shaping_config 1 NodeShapeEntry*, node_id_to_qos_config 3 QosEntry*
    Vendor: tofino_config 2 Tofino
    Params: admin_state 1 enum
    Port: id 1 u32, name 2 string, slot 3 i32, port 4 i32, node 5 u64, speed_bps 6 u64, config_params 7 Params
    Node: id 1 u64, slot 2 i32, index 3 i64
    Chassis: platform 1 enum, name 2 string
    Config: chassis 2 Chassis, nodes 3 Node*, singleton_ports 4 Port*, vendor_config 7 Vendor
"""
KINDS = {"u32": U32, "u64": U64, "i32": I32, "i64": Field.TYPE_INT64, "string": STRING, "enum": STRING}


def chassis_class():
    messages = {}
    for line in CHASSIS.strip().splitlines():
        name, fields = line.strip().split(": ")
        messages[name] = []
        for field in fields.split(", "):
            title, number, kind = field.split(" ")
            label = REPEATED if kind.endswith("*") else SINGLE
            kind = kind.rstrip("*")
            messages[name].append((title, int(number), KINDS.get(kind, kind), label))
    return message_classes("chassis", **messages)["Config"]


def test_chassis_config_is_protobuf_text_with_strict_priorities(capsys):
    command = ["pipeline", "traffic-manager", "--target", "stratum", "--ports", "1-3,32"]
    assert main([*command, "--shape", "97.5", "--queue-cells", "1234"]) == 0
    text = capsys.readouterr().out
    # Enumerations are read as strings here.
    text = re.sub(r"(platform|priority|pool|baf|admin_state): (\w+)", r'\1: "\2"', text)
    config = text_format.Parse(text, chassis_class()())
    assert config.chassis.platform == "PLT_GENERIC_BAREFOOT_TOFINO"
    assert [(port.id, port.name, port.speed_bps) for port in config.singleton_ports] == [
        (port, f"{port}/0", 100_000_000_000) for port in (1, 2, 3, 32)
    ]
    tofino = config.vendor_config.tofino_config
    [qos], [shaping] = tofino.node_id_to_qos_config, tofino.node_id_to_port_shaping_config
    assert qos.key == shaping.key == config.nodes[0].id
    for queues in qos.value.queue_configs:
        assert [(m.queue_id, m.priority) for m in queues.queue_mapping] == [
            (qid, f"PRIO_{qid}") for qid in range(QUEUES)
        ]
        assert {(m.base_use_limit, m.baf) for m in queues.queue_mapping} == {(1234, "DISABLE_BAF")}
    assert [queues.port for queues in qos.value.queue_configs] == [1, 2, 3, 32]
    rates = {entry.key: entry.value.byte_shaping.rate_bps for entry in shaping.value.per_port_shaping_configs}
    assert rates == dict.fromkeys((1, 2, 3, 32), 97_500_000_000)


class Recorder:
    """Stands in for bf_switchd's `bfrt`: every call is recorded under its dotted name."""

    def __init__(self, calls, name=""):
        self._calls, self._name = calls, name

    def __getattr__(self, part):
        return Recorder(self._calls, f"{self._name}.{part}" if self._name else part)

    def __call__(self, **arguments):
        self._calls.append((self._name, arguments))
        self.data = {}
        if self._name == "port.port_hdl_info.get":
            self.data = {b"$DEV_PORT": 128 + 4 * arguments["CONN_ID"]}
        elif self._name == "tf1.tm.port.cfg.get":
            self.data = {b"pg_id": arguments["dev_port"] % 128 // 4, b"egress_qid_queues": list(range(8, 16))}
        return self


@pytest.mark.parametrize("shape", [None, 40])
def test_the_script_for_bf_switchd_runs_and_sets_strict_priorities(tmp_path, shape):
    script = tmp_path / "tm.py"
    shaped = [] if shape is None else ["--shape", str(shape)]
    command = ["pipeline", "traffic-manager", "--target", "bf_switchd", "--ports", "1,9", *shaped]
    assert main([*command, "-o", str(script)]) == 0
    calls = []
    exec(compile(script.read_text(), script, "exec"), {"bfrt": Recorder(calls)})
    priorities = [
        (call["pipe"], call["pg_id"], call["pg_queue"], call["max_priority"])
        for name, call in calls
        if name == "tf1.tm.queue.sched_cfg.mod"
    ]
    assert priorities == [(1, pg, 8 + qid, str(qid)) for pg in (1, 9) for qid in range(QUEUES)]
    rates = [call["max_rate"] for name, call in calls if name == "tf1.tm.port.sched_shaping.mod"]
    assert rates == ([] if shape is None else [shape * 1_000_000] * 2)
    assert calls[-1][0] == "complete_operations"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ports", "0-3"], "1 to 65"),
        (["--ports", "5-3"], "not in order"),
        (["--ports", "one"], "neither a port nor a range"),
        (["--ports", ""], "neither a port nor a range"),
        (["--speed", "400"], "10, 25, 40, 50, 100"),
        (["--shape", "101"], "up to the speed of the port"),
        (["--shape", "0"], "above 0"),
        (["--shape", "nan"], "above 0"),
        (["--queue-cells", "0"], "legal: 1 to 524287"),
    ],
)
def test_settings_that_make_no_sense(capsys, options, message):
    assert message in refusal(capsys, "traffic-manager", "--target", "stratum", *options)


def test_ports_are_a_set():
    assert parse_ports("3,1-2,2-3") == (1, 2, 3)
    with pytest.raises(QueueSettingsError):
        parse_ports("1-")


# --- documentation --------------------------------------------------------------------------------------


def test_the_documented_commands_run(compiled, tmp_path, monkeypatch, capsys):
    """Every `polyrhythm pipeline` line of the two pages, in a folder that holds compiled artefacts."""
    (tmp_path / "build").mkdir()
    (tmp_path / "artefacts").mkdir()
    compiled.rename(tmp_path / "build/tofino")
    monkeypatch.chdir(tmp_path)
    pages = [(p4tool.REPOSITORY / "docs" / page).read_text() for page in ("tofino.md", "data-plane.md")]
    lines = re.findall(r"^\s*polyrhythm (pipeline [^#\n]+)", "\n".join(pages), flags=re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        assert main(line.split()) == 0, line
    assert (tmp_path / "artefacts/polyrhythm.bin").is_file()
    assert {
        "bmv2.bin",
        "chassis_config.pb.txt",
        "traffic_manager.py",
    } <= {path.name for path in tmp_path.iterdir()}
    assert capsys.readouterr().err == ""
