# SPDX-License-Identifier: Apache-2.0
"""Random v1model programs with random entries, for tests against the reference interpreter."""

from random import Random
from typing import Any

from bmv2_programs import (
    STANDARD,
    Json,
    ProgramBuilder,
    assign,
    call,
    const,
    extract,
    field,
    header,
    op,
    std,
    wrap,
)


class RandomProgram:
    """A random program with random entries: `json`, `entries` [(table, match, priority, action, params)]."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.b = ProgramBuilder()
        # Whether expressions may read registers, which is state beyond their own values.
        self.reads_cells = True
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
                "register",
            )
        )
        if choice == "?":
            return op(
                "?", self.data(depth - 1, params), self.data(depth - 1, params), self.truth(depth - 1, params)
            )
        if choice == "register":
            if not self.reads_cells:
                return self.data(0, params)
            return {"type": "register", "value": ["cells", self.data(rng.randint(0, 1), params)]}
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
        if choice < 0.02:
            return assign(
                {"type": "register", "value": ["cells", self.data(1, params)]}, self.data(2, params)
            )
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
