# SPDX-License-Identifier: Apache-2.0
"""The policy of a running controller: which are installed, which is in force, and the change to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from controller.agents.server import AgentServer
from controller.live.core import Core
from controller.live.measuring import depends_on_profiles
from controller.live.operator_commands import ChosenPolicy, PolicySet
from controller.northbound.policy_routes import InstalledPolicy, OptionValue, PolicySetting
from controller.northbound.problems import OperationError
from controller.planner import Policy, PolicyError
from controller.planner.options import with_typed_options
from controller.planner.registry import registered, registered_policy


class RunningPolicy:
    """The `PolicyOperations` of a running controller. Use it on the controller's event loop.

    `command` gives the core an input; `agents` tell new sessions the policy.
    """

    def __init__(self, core: Core, command: Callable[[PolicySet], None], agents: AgentServer) -> None:
        self._core = core
        self._command = command
        self._agents = agents
        # What is asked for. The core has it after its next step.
        self._wanted, self._chosen = core.settings.policy, core.chosen_policy
        # Pages ask for them every few seconds, and a reference lists all options.
        self._reference, self._start = self._wanted.reference, core.start_policy.reference

    def setting(self) -> PolicySetting:
        """The policy that plans are made by from now on."""
        core, wanted = self._core, self._wanted
        planned = core.plan.policy if core.plan is not None else None
        there = core.settings.policy == wanted
        return PolicySetting(
            self._reference,
            self._start,
            self._chosen is not None,
            there and (not core.registry.jobs or planned == self._reference),
        )

    async def installed(self) -> Sequence[InstalledPolicy]:
        """All registered policies. Importing one may take long, so it happens in a thread."""
        return await asyncio.to_thread(_installed)

    async def choose(self, name: str, options: Mapping[str, OptionValue]) -> None:
        """Make plans by another policy, or by other options. Raises OperationError."""
        policy = await asyncio.to_thread(policy_with, name, options)
        given = tuple(sorted(options.items()))
        self._use(policy, ChosenPolicy(name, given))

    def reset(self) -> None:
        """Make plans by the policy of the start again."""
        self._use(self._core.start_policy, None)

    def _use(self, policy: Policy, chosen: ChosenPolicy | None) -> None:
        if (policy, chosen) == (self._wanted, self._chosen):
            return
        self._wanted, self._chosen, self._reference = policy, chosen, policy.reference
        core, agents = self._core, self._agents
        measured = core.settings.measure.enabled and depends_on_profiles(policy)
        agents.terms = replace(agents.terms, policy=policy.name, profiles=measured)
        self._command(PolicySet(policy, chosen))


def policy_with(name: str, options: Mapping[str, OptionValue]) -> Policy:
    """A registered policy with some options, each of the type that the policy declares.

    Raises:
        OperationError: there is no such policy or option, or it is not for a running fabric.
    """
    try:
        policy = registered_policy(name)
        if policy.simulator_only:
            raise PolicyError(f"policy {name} runs in the simulator only (polyrhythm sim)")
        policy = with_typed_options(policy, options.items())
    except PolicyError as error:
        raise OperationError(409, str(error)) from None
    return policy


def _installed() -> tuple[InstalledPolicy, ...]:
    found = []
    for name in registered():
        try:
            policy = registered_policy(name)
        except PolicyError as error:
            found.append(InstalledPolicy(name, None, False, str(error)))
        else:
            found.append(InstalledPolicy(name, policy.reference, policy.simulator_only))
    return tuple(found)
