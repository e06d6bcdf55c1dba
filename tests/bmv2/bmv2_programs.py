# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSON for tests: a builder of v1model programs, and random ones."""

import json
from random import Random
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
            {"name": name, "id": i, "init_table": self.first[name], "action_profiles": []} | self.nodes[name]
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


class RandomProgram:
    """A random program with random entries: `json`, `entries` [(table, match, priority, action, params)]."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.b = ProgramBuilder()
        self.fields: list[tuple[str, str, int]] = []
        self.entries: list[tuple[str, list[tuple[Any, ...]], int, str, list[int]]] = []
        self.headers = [f"h{i}" for i in range(rng.randint(1, 4))]
        self.b.add_header("meta", self._layout("meta", 40, metadata=True), metadata=True)
        for name in self.headers:
            self.b.add_header(name, self._layout(name, 8 * rng.randint(1, 12), metadata=False))
        self.b.add_header("twin", dict(self.layouts[self.headers[0]]))
        self.fields += [
            ("standard_metadata", n, STANDARD[n]) for n in ("ingress_port", "packet_length", "parser_error")
        ]
        # Fields that nothing reads are never decoded: leave some of them.
        self.readable = [item for item in self.fields if rng.random() < 0.4] or self.fields[:1]
        self.b.document["counter_arrays"].append({"name": "hits", "id": 0, "size": 100, "is_direct": False})
        self.b.document["register_arrays"].append({"name": "cells", "id": 0, "size": 16, "bitwidth": 20})
        for i, algorithm in enumerate(("crc32", "crc16", "csum16", "xor16", "identity")):
            inputs: list[Json] = []
            for _ in range(rng.randint(1, 5)):
                name, item, _ = rng.choice(self.readable)
                inputs.append(field(name, item))
            inputs.append(const(rng.getrandbits(12)) | {"bitwidth": 12})
            self.b.document["calculations"].append(
                {"name": f"c{i}", "id": i, "algo": algorithm, "input": inputs}
            )
        self._checksum()
        self._parser()
        for pipeline in ("ingress", "egress"):
            self._pipeline(pipeline)
        self.json = self.b.json()

    layouts: dict[str, dict[str, Any]]

    def _layout(self, name: str, bits: int, metadata: bool) -> dict[str, Any]:
        self.layouts = getattr(self, "layouts", {})
        layout: dict[str, Any] = {}
        left = bits
        while left:
            width = min(left, self.rng.choice((1, 2, 3, 4, 5, 8, 8, 13, 16, 16, 24, 32, 48)))
            signed = width > 1 and self.rng.random() < 0.15
            layout[f"f{len(layout)}"] = (width, signed)
            self.fields.append((name, f"f{len(layout) - 1}", width))
            left -= width
        self.layouts[name] = layout
        return layout

    def _checksum(self) -> None:
        name = self.headers[0]
        whole = [field(name, item) for item in self.layouts[name]]
        target, rest = whole[-1], whole[:-1]
        self.b.document["calculations"].append(
            {"name": "sum", "id": 9, "algo": "csum16", "input": rest or whole}
        )
        valid = op("d2b", None, field(name, "$valid$"))
        for verify in (True, False):
            self.b.document["checksums"].append(
                {
                    "name": f"check{verify}",
                    "id": 0,
                    "type": "generic",
                    "target": target["value"],
                    "calculation": "sum",
                    "verify": verify,
                    "update": not verify,
                    "if_cond": self.rng.choice((None, valid)),
                }
            )

    def _parser(self) -> None:
        names = ["start", *(f"s{i}" for i in range(1, len(self.headers)))]
        for i, (state, name) in enumerate(zip(names, self.headers, strict=True)):
            following = names[i + 1] if i + 1 < len(names) else None
            ops: list[Json] = [extract(name)]
            if self.rng.random() < 0.3:
                ops.append({"op": "set", "parameters": [field("meta", "f0"), wrap(self.data(2))]})
            if self.rng.random() < 0.2:
                size = hex(8 * self.rng.randint(0, 3))
                ops.append({"op": "advance", "parameters": [{"type": "hexstr", "value": size}]})
            if self.rng.random() < 0.2:
                ops.append({"op": "verify", "parameters": [self.truth(1), const(2)]})
            if self.rng.random() < 0.2:
                look = {"type": "lookahead", "value": [0, self.rng.choice((4, 8, 16))]}
                ops.append({"op": "set", "parameters": [field("meta", "f0"), look]})
            item, (width, _) = self.rng.choice(list(self.layouts[name].items()))
            digits = 2 * -(-width // 8)
            ways: list[tuple[str, str | None, str | None]] = []
            for _ in range(self.rng.randint(0, 3)):
                value = format(self.rng.getrandbits(width), f"0{digits}x")
                mask = format(self.rng.getrandbits(width), f"0{digits}x") if self.rng.random() < 0.5 else None
                targets = [following, None]
                if self.rng.random() < 0.1:
                    targets.append(state)
                ways.append(("0x" + value, mask and "0x" + mask, self.rng.choice(targets)))
            self.b.add_state(state, ops, [field(name, item)], ways, default=following)

    def data(self, depth: int, params: list[int] | None = None) -> Json:
        """A random integer expression."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            kind = rng.random()
            if params and kind < 0.3:
                return {"type": "local", "value": rng.randrange(len(params))}
            if kind < 0.8:
                name, item, _ = rng.choice(self.readable)
                return field(name, item)
            return const(rng.choice((0, 1, 0xFF, 0xFFFF, rng.getrandbits(16))))
        choice = rng.choice(
            (
                "+",
                "-",
                "*",
                "&",
                "|",
                "^",
                "~",
                "<<",
                ">>",
                "?",
                "b2d",
                "two_comp_mod",
                "usat_cast",
                "sat_cast",
                "%",
                "/",
            )
        )
        if choice == "?":
            return op(
                "?", self.data(depth - 1, params), self.data(depth - 1, params), self.truth(depth - 1, params)
            )
        if choice == "b2d":
            return op("b2d", None, self.truth(depth - 1, params))
        if choice == "~":
            return op("~", None, self.data(depth - 1, params))
        if choice in ("<<", ">>"):
            amount = const(rng.randint(0, 40))
            if rng.random() < 0.3:
                amount = op("&", self.data(0, params), const(15))
            return op(choice, self.data(depth - 1, params), amount)
        if choice in ("/", "%"):
            left = op("&", self.data(depth - 1, params), const(0xFFFF))
            return op(choice, left, const(rng.randint(1, 99)))
        if choice in ("two_comp_mod", "usat_cast", "sat_cast"):
            return op(choice, self.data(depth - 1, params), const(rng.randint(1, 16)))
        return op(choice, self.data(depth - 1, params), self.data(depth - 1, params))

    def truth(self, depth: int, params: list[int] | None = None) -> Json:
        """A random truth value."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.3:
            if rng.random() < 0.5:
                return op("d2b", None, field(rng.choice([*self.headers, "twin"]), "$valid$"))
            return op(
                rng.choice(("==", "!=", "<", "<=", ">", ">=")), self.data(0, params), self.data(0, params)
            )
        choice = rng.choice(("and", "or", "not", "==", "<", "d2b", "?", "bool=="))
        if choice == "not":
            return op("not", None, self.truth(depth - 1, params))
        if choice == "d2b":
            return op("d2b", None, self.data(depth - 1, params))
        if choice == "?":
            return op("?", self.truth(depth - 1), self.truth(depth - 1), self.truth(depth - 1))
        if choice == "bool==":
            return op("==", self.truth(depth - 1, params), self.truth(depth - 1, params))
        if choice in ("and", "or"):
            return op(choice, self.truth(depth - 1, params), self.truth(depth - 1, params))
        return op(choice, self.data(depth - 1, params), self.data(depth - 1, params))

    def _primitive(self, params: list[int]) -> Json:
        rng = self.rng
        writable = [f for f in self.fields if f[0] != "standard_metadata"]
        target = field(*rng.choice(writable)[:2])
        choice = rng.random()
        if choice < 0.5:
            return assign(target, self.data(3, params))
        if choice < 0.56:
            return call("add_header", header(rng.choice([*self.headers, "twin"])))
        if choice < 0.62:
            return call("remove_header", header(rng.choice([*self.headers, "twin"])))
        if choice < 0.67:
            pair = ["twin", self.headers[0]]
            rng.shuffle(pair)
            return call("assign_header", *map(header, pair))
        if choice < 0.74:
            counter = {"type": "counter_array", "value": "hits"}
            return call("count", counter, op("&", self.data(1, params), const(rng.choice((63, 127)))))
        if choice < 0.80:
            calculation = {"type": "calculation", "value": f"c{rng.randrange(5)}"}
            size = const(rng.choice((0, 1, 7, 1 << 16, 1 << 32)))
            return call(
                "modify_field_with_hash_based_offset", target, const(rng.randint(0, 3)), calculation, size
            )
        if choice < 0.85:
            return call(
                "modify_field_rng_uniform", target, const(rng.randint(0, 3)), const(rng.choice((2, 7, 65535)))
            )
        register = {"type": "register_array", "value": "cells"}
        index = op("&", self.data(1, params), const(rng.choice((15, 31))))
        if choice < 0.90:
            return call("register_read", target, register, index)
        if choice < 0.95:
            return call("register_write", register, index, self.data(2, params))
        if choice < 0.97:
            return call("mark_to_drop", header("standard_metadata"))
        if choice < 0.98:
            return call("exit")
        return call("no_op")

    def _action(self, name: str) -> int:
        params = {f"p{i}": self.rng.choice((1, 4, 9, 16, 48)) for i in range(self.rng.randint(0, 3))}
        steps = [self._primitive(list(params.values())) for _ in range(self.rng.randint(0, 5))]
        if steps and self.rng.random() < 0.4:
            at = self.rng.randrange(len(steps))
            target = self.rng.randint(at + 1, len(steps) + 1)
            test = op("b2d", None, self.truth(1, list(params.values())))
            steps.insert(at, call("_jump_if_zero", test, const(target)))
            if self.rng.random() < 0.5:
                steps.append(call("_jump", const(len(steps) + 1)))
        return self.b.add_action(name, steps, **params)

    def _pipeline(self, pipeline: str) -> None:
        rng = self.rng
        names = [f"{pipeline}{i}" for i in range(rng.randint(1, 6))]
        for i, name in enumerate(names):
            later: list[str | None] = [*names[i + 1 :], f"{pipeline}_end"]
            if rng.random() < 0.4:
                self.b.branch(pipeline, name, self.truth(2), rng.choice(later), rng.choice(later))
            else:
                self._random_table(pipeline, name, later)
        last: list[Json] = []
        if pipeline == "ingress":
            low = field("meta", list(self.layouts["meta"])[-1])
            kept = op("!=", std("egress_spec"), const(511))
            port = op("?", op("&", low, const(3)), const(511), kept)
            last = [assign(std("egress_spec"), port), assign(std("priority"), op("&", low, const(7)))]
        self.b.do(pipeline, f"{pipeline}_end", last)
        self.b.first[pipeline] = names[0]

    def _random_table(self, pipeline: str, name: str, later: list[str | None]) -> None:
        rng = self.rng
        key: list[tuple[str, tuple[str, str]]] = []
        widths: list[int] = []
        kinds = rng.choice(
            (["exact"], ["exact"], ["lpm", "exact"], ["ternary", "exact"], ["range", "ternary", "exact"])
        )
        for i in range(rng.randint(0, 3)):
            kind = kinds[0] if i == 0 else rng.choice([k for k in kinds if k != "lpm"])
            header_name, item, width = rng.choice(self.fields)
            key.append((kind, (header_name, item)))
            widths.append(width)
        actions = [0] + [self._action(f"{name}_a{i}") for i in range(rng.randint(1, 3))]
        data = {i: [a["bitwidth"] for a in self.b.document["actions"][i]["runtime_data"]] for i in actions}
        chosen = rng.choice(actions)
        action_names = [self.b.document["actions"][i]["name"] for i in actions]
        if rng.random() < 0.2:
            ways = {"__HIT__": rng.choice(later), "__MISS__": rng.choice(later)}
        elif rng.random() < 0.3:
            ways = {n: rng.choice(later) for n in action_names}
        else:
            ways = dict.fromkeys(action_names, rng.choice(later))
        default = (chosen, [rng.getrandbits(w) for w in data[chosen]])
        self.b.add_table(
            pipeline, name, key, actions, default=default, next_tables=ways, with_counters=rng.random() < 0.5
        )
        for _ in range(rng.randint(0, 6) if key else 0):
            match = [self._match(kind, width) for (kind, _), width in zip(key, widths, strict=True)]
            priority = len(self.entries) + 1 if {"ternary", "range"} & {k for k, _ in key} else 0
            action = rng.choice(actions)
            params = [rng.getrandbits(w) for w in data[action]]
            action_name = self.b.document["actions"][action]["name"]
            self.entries.append((name, match, priority, action_name, params))

    def _match(self, kind: str, width: int) -> tuple[Any, ...]:
        rng = self.rng
        value = rng.choice((0, 1, rng.getrandbits(width))) & ((1 << width) - 1)
        if kind == "lpm":
            return (kind, value, rng.randint(0, width))
        if kind == "ternary":
            return (kind, value, rng.getrandbits(width))
        if kind == "range":
            return (kind, *sorted((value, rng.getrandbits(width))))
        return (kind, value)
