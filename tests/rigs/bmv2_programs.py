# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSON for tests: a builder of v1model programs."""

import json
from typing import Any

STANDARD = {
    "ingress_port": 9,
    "egress_spec": 9,
    "egress_port": 9,
    "instance_type": 32,
    "packet_length": 32,
    "enq_timestamp": 32,
    "enq_qdepth": 19,
    "deq_timedelta": 32,
    "deq_qdepth": 19,
    "ingress_global_timestamp": 48,
    "egress_global_timestamp": 48,
    "mcast_grp": 16,
    "egress_rid": 16,
    "checksum_error": 1,
    "parser_error": 32,
    "priority": 3,
}
ALIASES = {
    "queueing_metadata": ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"),
    "intrinsic_metadata": (
        "ingress_global_timestamp",
        "egress_global_timestamp",
        "mcast_grp",
        "egress_rid",
        "priority",
    ),
}
Json = dict[str, Any]


def field(header: str, name: str) -> Json:
    return {"type": "field", "value": [header, name]}


def std(name: str) -> Json:
    return field("standard_metadata", name)


def const(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


def param(index: int) -> Json:
    return {"type": "runtime_data", "value": index}


def header(name: str) -> Json:
    return {"type": "header", "value": name}


def op(operator: str, left: Json | None, right: Json, cond: Json | None = None) -> Json:
    value: Json = {"op": operator, "left": left, "right": right}
    if cond is not None:
        value["cond"] = cond
    return {"type": "expression", "value": value}


def wrap(expression: Json) -> Json:
    """p4c wraps expressions given to primitives once more."""
    return {"type": "expression", "value": expression} if expression["type"] == "expression" else expression


def call(name: str, *args: Json) -> Json:
    return {"op": name, "parameters": [wrap(arg) for arg in args]}


def assign(target: Json, value: Json) -> Json:
    return call("assign", target, value)


class ProgramBuilder:
    """A v1model program under construction; `json()` is what p4c would have written."""

    def __init__(self) -> None:
        self.document: Json = {
            "__meta__": {"version": [2, 23]},
            "header_types": [],
            "headers": [],
            "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2]],
            "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": []}],
            "deparsers": [{"name": "deparser", "id": 0, "order": []}],
            "counter_arrays": [],
            "register_arrays": [],
            "calculations": [],
            "checksums": [],
            "actions": [],
            "pipelines": [],
            "field_aliases": [
                [f"{group}.{name}", ["standard_metadata", name]]
                for group, names in ALIASES.items()
                for name in names
            ],
        }
        self.nodes: dict[str, dict[str, list[Json]]] = {
            name: {"tables": [], "conditionals": []} for name in ("ingress", "egress")
        }
        self.first: dict[str, str | None] = {"ingress": None, "egress": None}
        self.profiles: dict[str, list[Json]] = {"ingress": [], "egress": []}
        self.add_header("standard_metadata", dict(STANDARD), metadata=True)
        self.add_action("NoAction")

    def add_header(self, name: str, fields: dict[str, Any], metadata: bool = False) -> None:
        """Fields map names to widths, or to (width, signed)."""
        layout = [
            [field_name, *(width if isinstance(width, tuple) else (width, False))]
            for field_name, width in fields.items()
        ]
        self.document["header_types"].append({"name": f"{name}_t", "id": 0, "fields": layout})
        self.document["headers"].append(
            {"name": name, "id": 0, "header_type": f"{name}_t", "metadata": metadata}
        )
        if not metadata:
            self.document["deparsers"][0]["order"].append(name)

    def add_state(
        self,
        name: str,
        ops: list[Json],
        key: list[Json] | None = None,
        transitions: list[tuple[str, str | None, str | None]] | None = None,
        default: str | None = None,
    ) -> None:
        """Transitions are (value, mask, next state) in hexadecimal."""
        ways: list[Json] = [
            {"type": "hexstr", "value": value, "mask": mask, "next_state": way}
            for value, mask, way in transitions or []
        ]
        ways.append({"value": "default", "mask": None, "next_state": default})
        self.document["parsers"][0]["parse_states"].append(
            {"name": name, "id": 0, "parser_ops": ops, "transition_key": key or [], "transitions": ways}
        )

    def add_action(self, name: str, primitives: list[Json] | None = None, **params: int) -> int:
        """Params map names to widths; returns the action's id."""
        identity = len(self.document["actions"])
        data = [{"name": key, "bitwidth": width} for key, width in params.items()]
        self.document["actions"].append(
            {"name": name, "id": identity, "runtime_data": data, "primitives": primitives or []}
        )
        return identity

    def add_table(
        self,
        pipeline: str,
        name: str,
        key: list[tuple[str, tuple[str, str]]],
        actions: list[int],
        *,
        default: tuple[int, list[int]] = (0, []),
        next_node: str | None = None,
        const: bool = False,
        **extra: Any,
    ) -> None:
        """Keys are (match kind, (header, field)); `extra` overrides members of the JSON."""
        names = [self.document["actions"][i]["name"] for i in actions]
        order = ("range", "ternary", "lpm", "exact")
        kind = next((k for k in order if any(k == part[0] for part in key)), "exact")
        self.nodes[pipeline]["tables"].append(
            {
                "name": name,
                "id": 0,
                "key": [
                    {"match_type": k, "target": list(t), "mask": None, "name": ".".join(t)} for k, t in key
                ],
                "match_type": kind,
                "type": "simple",
                "max_size": 1024,
                "with_counters": False,
                "action_ids": actions,
                "actions": names,
                "base_default_next": next_node,
                "next_tables": dict.fromkeys(names, next_node),
                "default_entry": {
                    "action_id": default[0],
                    "action_const": const,
                    "action_data": [hex(value) for value in default[1]],
                    "action_entry_const": const,
                },
            }
            | extra
        )

    def do(self, pipeline: str, name: str, primitives: list[Json], next_node: str | None = None) -> None:
        """A statement: p4c makes it a table without a key."""
        action = self.add_action(f"{name}_act", primitives)
        self.add_table(pipeline, name, [], [action], default=(action, []), next_node=next_node, const=True)

    def branch(
        self, pipeline: str, name: str, condition: Json, if_true: str | None, if_false: str | None
    ) -> None:
        self.nodes[pipeline]["conditionals"].append(
            {"name": name, "id": 0, "expression": condition, "true_next": if_true, "false_next": if_false}
        )

    def json(self) -> str:
        self.document["pipelines"] = [
            {"name": name, "id": i, "init_table": self.first[name], "action_profiles": self.profiles[name]}
            | self.nodes[name]
            for i, name in enumerate(("ingress", "egress"))
        ]
        return json.dumps(self.document)


def extract(name: str) -> Json:
    return {"op": "extract", "parameters": [{"type": "regular", "value": name}]}


def forwarder(primitives: list[Json] | None = None) -> ProgramBuilder:
    """Ethernet in, out of the port in the destination's low 9 bits; priority from the type's low bits."""
    b = ProgramBuilder()
    b.add_header("eth", {"dst": 48, "src": 48, "type": 16})
    b.add_state("start", [extract("eth")])
    b.first["ingress"] = "go"
    b.do(
        "ingress",
        "go",
        [
            assign(std("egress_spec"), op("&", field("eth", "dst"), const(0x1FF))),
            assign(std("priority"), op("&", field("eth", "type"), const(7))),
            *(primitives or []),
        ],
    )
    return b
