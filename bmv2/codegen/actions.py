# SPDX-License-Identifier: Apache-2.0
"""Actions as Python source. The body of an action is written at each place that calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Action, Const, HeaderArg, ObjectArg, Param, Primitive, walk
from .externs import Externs
from .layout import has_exit
from .steps import Step, StepWriter
from .writer import ControlFlowGraph, Writer


class Actions:
    """Writes primitives into one function."""

    def __init__(self, steps: StepWriter) -> None:
        self._writer: Writer = steps.writer
        self._expressions = steps.expressions
        self._writers: dict[str, Step] = {**steps.writers(), **Externs(steps).writers()}

    def call(self, action: Action, params: Sequence[str]) -> None:
        """Write an action's body; `params` are sources of its run-time arguments."""
        self._expressions.params = self._bind_params(action, params)
        steps = action.primitives
        if any(step.op.startswith("_jump") for step in steps):
            self._jumping(steps)
        else:
            for step in steps:
                self.primitive(step)
        if has_exit(action):
            with self._writer.block("if leaving"):
                self._writer.line("break")

    def _bind_params(self, action: Action, params: Sequence[str]) -> list[str]:
        """Give arguments that are used more than once a variable."""
        uses = [0] * len(params)
        flat = [part for step in action.primitives for part in step.flat()]
        for arg in (arg for step in flat for arg in step.args):
            if not isinstance(arg, HeaderArg | ObjectArg):
                for part in walk(arg):
                    if isinstance(part, Param):
                        uses[part.index] += 1
        sources = list(params)
        for index, count in enumerate(uses):
            if count > 1 and not params[index].isdigit():
                self._writer.line(f"param{index} = {params[index]}")
                sources[index] = f"param{index}"
        return sources

    def _jumping(self, steps: Sequence[Primitive]) -> None:
        end = len(steps)

        def following(index: int) -> Sequence[int | None]:
            step = steps[index]
            ways = [index + 1]
            if step.op.startswith("_jump"):
                target = step.args[-1]
                assert isinstance(target, Const)
                ways = [target.value] if step.op == "_jump" else [index + 1, target.value]
            return [way if way < end else None for way in ways]

        if any(part.op == "exit" for step in steps for part in step.flat()):
            self._writer.line("leaving = 0")
        if any(way is not None and way <= index for index in range(end) for way in following(index)):
            self._looping(steps, following)
            return
        graph: ControlFlowGraph[int] = ControlFlowGraph(0, following, "step")

        def emit(index: int, follow: Callable[[int | None], None]) -> None:
            step = steps[index]
            if step.op != "_jump_if_zero":
                if step.op != "_jump":
                    self.primitive(step)
                return
            onward, target = following(index)
            if onward == target:
                return
            test = step.args[0]
            assert not isinstance(test, HeaderArg | ObjectArg)
            with self._writer.block(f"if {self._expressions.condition(test)}"):
                follow(onward)
            with self._writer.block("else"):
                follow(target)

        graph.write(self._writer, emit)

    def _looping(self, steps: Sequence[Primitive], following: Callable[[int], Sequence[int | None]]) -> None:
        """Write an action that jumps back as a loop over its numbered steps."""
        self._writer.line("step = 0")
        with self._writer.block("while step >= 0"):
            for index, step in enumerate(steps):
                ways = [-1 if way is None else way for way in following(index)]
                with self._writer.block(f"{'elif' if index else 'if'} step == {index}"):
                    if step.op == "_jump_if_zero":
                        test = step.args[0]
                        assert not isinstance(test, HeaderArg | ObjectArg)
                        condition = self._expressions.condition(test)
                        self._writer.line(f"step = {ways[0]} if {condition} else {ways[1]}")
                        continue
                    if step.op != "_jump":
                        self.primitive(step)
                    self._writer.line(f"step = {ways[0]}")

    def primitive(self, step: Primitive) -> None:
        """Write one primitive other than a jump."""
        if step.op == "block":
            for part in step.steps:
                self.primitive(part)
        elif step.op == "when":
            self._when(step)
        elif step.op == "exit":
            # BMv2 ends the pipeline after the action, whose further primitives still run.
            self._writer.line("leaving = 1")
        elif step.op in self._writers:
            self._writers[step.op](step.args)

    def _when(self, step: Primitive) -> None:
        """Write a conditional. A chain of conditionals becomes `elif`, because Python limits the depth of
        nesting.
        """
        head = "if"
        rest: tuple[Primitive, ...] = (step,)
        while len(rest) == 1 and rest[0].op == "when":
            test = rest[0].args[0]
            assert not isinstance(test, HeaderArg | ObjectArg)
            with self._writer.block(f"{head} {self._expressions.condition(test)}"):
                for part in rest[0].steps:
                    self.primitive(part)
            head, rest = "elif", rest[0].otherwise
        with self._writer.block("else"):
            for part in rest:
                self.primitive(part)
