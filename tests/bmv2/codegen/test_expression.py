# SPDX-License-Identifier: Apache-2.0
"""Expressions as source: same value as the interpreter's, within the range that masks are left out by."""

import json
from random import Random

from bmv2_random import RandomProgram
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2.codegen import runtime
from bmv2.codegen.expression import Expressions
from bmv2.codegen.layout import Layout
from bmv2.codegen.writer import Writer
from bmv2.expressions import Scope
from bmv2.ir import is_boolean
from bmv2.json_reader import Reader
from bmv2.loader import load
from bmv2.reference_values import Packet, evaluate
from bmv2.structures import read_structures


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_source_value_and_range(seed: int) -> None:
    rng = Random(seed)
    made = RandomProgram(rng)
    made.reads_cells = False
    ir = load(made.json)
    layout, scope = Layout(ir), Scope(read_structures(Reader(json.loads(made.json), "program")))
    for _ in range(20):
        source = made.data(3) if rng.random() < 0.7 else made.truth(3)
        expression = scope.expression(Reader(source, "test"))
        expressions = Expressions(layout, Writer())
        code = None if is_boolean(expression) else expressions.integer(expression)
        text = expressions.condition(expression) if code is None else code.text
        for _ in range(10):
            packet = Packet({}, set(), b"")
            names = dict(vars(runtime))
            for header in ir.headers.values():
                packet.valid |= {header.name} if header.metadata or rng.random() < 0.5 else set()
                names[layout.valid(header.name)] = int(header.name in packet.valid)
                for item in header.fields.values():
                    low = -(1 << (item.width - 1)) if item.signed else 0
                    high = low + (1 << item.width) - 1
                    value = rng.choice((low, high, max(low, min(high, 1)), rng.randint(low, high)))
                    packet.values[header.name, item.name] = value
                    names[layout.variable(header.name, item.name)] = value
            value = eval(text, names)
            expected = evaluate(expression, packet)
            if code is None:
                assert bool(value) == bool(expected)
            else:
                assert value == expected
                assert code.low is None or code.low <= value
                assert code.high is None or value <= code.high
