# SPDX-License-Identifier: Apache-2.0
"""Random v1model programs with stacks, unions, fields of variable width, copies of packets and meters."""

from random import Random
from typing import Any

from bmv2_programs import Json, assign, call, const, field, header, op, std
from bmv2_random import RandomProgram

STACK, TWIN_STACK, UNION, UNION_STACK = "st", "st2", "un", "us"
SIZE = 3
# What every list keeps, so that a packet asks for a copy of itself once only.
ASKED = ("meta", "asked")


def stack(name: str) -> Json:
    return {"type": "header_stack", "value": name}


class FeatureProgram(RandomProgram):
    """A RandomProgram with all that is rare in programs."""

    def __init__(self, rng: Random) -> None:
        self.next_header = 100
        super().__init__(rng)

    def _layout(self, name: str, bits: int, metadata: bool) -> dict[str, Any]:
        layout = super()._layout(name, bits, metadata)
        if metadata:
            layout[ASKED[1]] = (1, False)
        return layout

    def _header(self, name: str, kind: str) -> int:
        self.next_header += 1
        entry = {"name": name, "id": self.next_header, "header_type": kind, "metadata": False}
        self.b.document["headers"].append(entry)
        self.b.document["deparsers"][0]["order"].append(name)
        return self.next_header

    def _type(self, name: str, fields: list[list[Any]], **more: Any) -> None:
        self.b.document["header_types"].append({"name": name, "id": 0, "fields": fields} | more)

    def _structures(self) -> None:
        document = self.b.document
        self._type("item_t", [["f0", 8, False], ["f1", 5, True], ["f2", 3, False]])
        self._type("byte_t", [["b", 8, False]])
        self._type("word_t", [["w", 12, False], ["x", 4, False]])
        before = [["n", 8, False]] if self.rng.random() < 0.7 else []
        after = [["tail", 16, True]] if self.rng.random() < 0.7 else []
        size = 4 + len(before) + 2 * len(after)
        self._type("var_t", [*before, ["body", "*"], *after], max_length=size)
        for number, name in enumerate((STACK, TWIN_STACK)):
            ids = [self._header(f"{name}[{i}]", "item_t") for i in range(SIZE)]
            document.setdefault("header_stacks", []).append(
                {"name": name, "id": number, "header_type": "item_t", "size": SIZE, "header_ids": ids}
            )
        document["header_union_types"] = [
            {"name": "un_t", "id": 0, "headers": [["byte", "byte_t"], ["word", "word_t"]]}
        ]
        unions = []
        for number, name in enumerate((UNION, "un2", f"{UNION_STACK}[0]", f"{UNION_STACK}[1]")):
            ids = [self._header(f"{name}.byte", "byte_t"), self._header(f"{name}.word", "word_t")]
            unions.append({"name": name, "id": number, "union_type": "un_t", "header_ids": ids})
        document["header_unions"] = unions
        document["header_union_stacks"] = [
            {"name": UNION_STACK, "id": 0, "union_type": "un_t", "size": 2, "header_union_ids": [2, 3]}
        ]
        for name in ("vb", "vb2"):
            self._header(name, "var_t")
        self.fields += [("st[0]", "f0", 8), ("st[2]", "f1", 5), ("un.byte", "b", 8), ("un.word", "w", 12)]
        self.readable += self.rng.sample(self.fields[-4:], 2)
        document["parse_vsets"] = [{"name": "vs", "id": 0, "compressed_bitwidth": 8, "max_size": 8}]
        kept = [field(*ASKED), field("meta", "f0"), std("priority")]
        document["field_lists"] = [
            {"id": 1, "name": "one", "elements": kept},
            {"id": 2, "name": "two", "elements": kept[:1]},
        ]
        document["learn_lists"] = [
            {"id": 1, "name": "news", "elements": [field(*f[:2]) for f in self.rng.sample(self.fields, 3)]}
        ]
        document["meter_arrays"] = [
            {"name": "m", "id": 0, "is_direct": False, "rate_count": 2, "type": kind, "size": 4}
            for kind in (self.rng.choice(("packets", "bytes")),)
        ]
        var = field("vb", "body")
        for number, algorithm in enumerate(("crc16_custom", "crc32_custom", "csum16", "xor32")):
            inputs: list[Json] = [field("un.word", "w"), const(5) | {"bitwidth": 3}]
            inputs += [var] if self.rng.random() < 0.5 else [{"type": "header", "value": "st[1]"}]
            inputs += [{"type": "payload", "value": None}] if self.rng.random() < 0.5 else []
            document["calculations"].append(
                {"name": f"p{number}", "id": 20 + number, "algo": algorithm, "input": inputs}
            )

    def _parser(self) -> None:
        self._structures()
        super()._parser()
        rng = self.rng
        states = self.b.document["parsers"][0]["parse_states"]
        for state in states:
            for way in state["transitions"]:
                if way["next_state"] is None and rng.random() < 0.8:
                    way["next_state"] = "x_stack"
        item: Json = {"op": "extract", "parameters": [{"type": "stack", "value": STACK}]}
        last: Json = {"type": "stack_field", "value": [STACK, "f0"]}
        again = rng.choice(("x_stack", "x_union"))
        more: list[Json] = []
        if rng.random() < 0.4:
            shift = call(rng.choice(("push", "pop")), stack(STACK), const(rng.randint(0, 2)))
            more = [{"op": "primitive", "parameters": [shift]}]
        ways = [("0x80", "0x80", "x_stack"), ("0x01", "0x01", again), ("0x00", None, None)]
        self.b.add_state("x_stack", [item, *more], [last], ways, default="x_union")
        member = rng.choice(("byte", "word"))
        pair: Json = {
            "op": "extract",
            "parameters": [{"type": "union_stack", "value": [UNION_STACK, member]}],
        }
        one: Json = {"op": "extract", "parameters": [{"type": "regular", "value": f"{UNION}.{member}"}]}
        union_key: Json = {
            "type": "union_stack_field",
            "value": [UNION_STACK, member, "b" if member == "byte" else "x"],
        }
        self.b.add_state(
            "x_union",
            [one, pair],
            [union_key],
            [("0x03", None, "x_union"), ("0x01", "0x01", "x_var")],
            "x_set",
        )
        self.b.add_state("x_set", [], [field("st[0]", "f0")], [], default=None)
        states[-1]["transitions"].insert(
            0, {"type": "parse_vset", "value": "vs", "mask": None, "next_state": "x_var"}
        )
        length = op("*", op("&", field("st[0]", "f0"), const(7)), const(rng.choice((8, 8, 4))))
        take: Json = {"op": "extract_VL", "parameters": [{"type": "regular", "value": "vb"}, length]}
        self.b.add_state("x_var", [take], [])

    def _index(self, params: list[int]) -> Json:
        return op("&", self.data(1, params), const(self.rng.choice((1, 3))))

    def _element(self, params: list[int]) -> Json:
        value = {"op": "dereference_header_stack", "left": stack(STACK), "right": self._index(params)}
        return {"type": "expression", "value": value}

    def data(self, depth: int, params: list[int] | None = None) -> Json:
        rng = self.rng
        if hasattr(self, "next_header") and self.next_header > 100 and depth == 0 and rng.random() < 0.15:
            if rng.random() < 0.5:
                return op("last_stack_index" if rng.random() < 0.3 else "size_stack", None, stack(STACK))
            left = {"op": "dereference_header_stack", "left": stack(STACK), "right": field("meta", "f0")}
            value = {"op": "access_field", "left": {"type": "expression", "value": left}, "right": 1}
            return {"type": "expression", "value": value}
        return super().data(depth, params)

    def truth(self, depth: int, params: list[int] | None = None) -> Json:
        rng = self.rng
        if depth <= 0 and self.next_header > 100 and rng.random() < 0.2:
            union = {"type": "header_union", "value": UNION}
            return rng.choice(
                (
                    op("valid_union", None, union),
                    op("==", union, {"type": "header_union", "value": "un2"}),
                    op("==", header("st[0]"), header("st2[1]")),
                    op("!=", header("vb"), header("vb2")),
                )
            )
        return super().truth(depth, params)

    def _primitive(self, params: list[int]) -> Json:
        rng = self.rng
        if rng.random() < 0.55:
            return super()._primitive(params)
        choice = rng.randrange(14)
        if choice == 0:
            return call(
                rng.choice(("push", "pop")), stack(rng.choice((STACK, TWIN_STACK))), const(rng.randint(0, 4))
            )
        if choice == 1:
            pair = [stack(STACK), stack(TWIN_STACK)]
            rng.shuffle(pair)
            return call("assign_header_stack", *pair)
        if choice == 2:
            kind = {"type": "header_union_stack", "value": UNION_STACK}
            return call(rng.choice(("push", "pop")), kind, const(1))
        if choice == 3:
            pair = [{"type": "header_union", "value": name} for name in (UNION, "un2")]
            rng.shuffle(pair)
            return call("assign_union", *pair)
        if choice == 4:
            name = rng.choice(("un.byte", "un.word", "st[1]", "us[0].word", "vb", "vb2", "st2[1]"))
            return call(rng.choice(("add_header", "remove_header")), header(name))
        if choice == 5:
            pair = [header("vb"), header("vb2")]
            rng.shuffle(pair)
            return call("assign_header", *pair)
        if choice == 6:
            return call("assign_VL", field("vb", "body"), field("vb2", "body"))
        if choice == 7:
            element = self._element(params)
            target = {"op": "access_field", "left": element, "right": rng.randrange(3)}
            return {
                "op": "assign",
                "parameters": [{"type": "expression", "value": target}, self.data(1, params)],
            }
        if choice == 8:
            other = header(rng.choice(("st[1]", "st2[0]")))
            ways = [self._element(params), other]
            rng.shuffle(ways)
            return {"op": "assign_header", "parameters": ways}
        if choice == 9:
            calculation = {"type": "calculation", "value": f"p{rng.randrange(4)}"}
            target = field(*rng.choice([f for f in self.fields if f[0] != "standard_metadata"])[:2])
            return call("modify_field_with_hash_based_offset", target, const(0), calculation, const(1 << 32))
        if choice == 10:
            return call("generate_digest", const(0), const(1))
        if choice == 11:
            meter = {"type": "meter_array", "value": "m"}
            return call("execute_meter", meter, op("&", self.data(1, params), const(7)), field("meta", "f0"))
        if choice == 12:
            return call("truncate", op("&", self.data(1, params), const(127)))
        test = op("or", op("!=", self.data(1, params), const(3)), self.truth(1, params))
        text = {"type": "string", "value": r"f0 is {}, and \{\} too"}
        values = {"type": "parameters_vector", "value": [self.data(1, params)]}
        log: Json = {"op": "log_msg", "parameters": [text, values]}
        return rng.choice((log, call("assert", test)))

    def _action(self, name: str) -> int:
        """Now and then an action that makes a packet come again, once."""
        rng = self.rng
        if rng.random() > 0.25:
            return super()._action(name)
        session, kept = const(rng.choice((1, 2, 3, 4))), const(rng.choice((1, 2)))
        ingress = name.startswith("ingress")
        clone = "clone_ingress_pkt_to_egress" if ingress else "clone_egress_pkt_to_egress"
        ask = rng.choice((call(clone, session, kept), call("resubmit" if ingress else "recirculate", kept)))
        group = [assign(std("mcast_grp"), const(rng.randint(1, 4)))] if ingress and rng.random() < 0.3 else []
        steps = [
            call("_jump_if_zero", op("b2d", None, op("==", field(*ASKED), const(0))), const(3 + len(group))),
            assign(field(*ASKED), const(1)),
            ask,
            *group,
        ]
        return self.b.add_action(name, steps)
