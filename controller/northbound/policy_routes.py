# SPDX-License-Identifier: Apache-2.0
"""REST routes of the policy: which are installed, which one makes the plans, and the change to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import APIRouter, Body, Response
from pydantic import Field

from controller.model.plan import PolicyReference
from controller.northbound import render, schema
from controller.northbound.access import requires
from controller.northbound.etags import Changes, IfMatch, tag_of
from controller.northbound.problems import STANDBY, leading, problems
from controller.northbound.tokens import Role

_ERRORS = problems(
    _409="There is no such policy or option, or it is not for a running fabric.",
    _412="The policy was changed meanwhile.",
    _503="This controller does not lead.",
)
OptionValue = bool | int | float | str | None
Value = (
    bool
    | Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=200)]
    | None
)


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """Which policy makes plans. `chosen`: by an operator, and not by the start. `in_force`: the present plan
    was made by it, or there is no job."""

    policy: PolicyReference
    start: PolicyReference
    chosen: bool
    in_force: bool


@dataclass(frozen=True, slots=True)
class InstalledPolicy:
    """A registered policy; `fault` says why it cannot be imported."""

    name: str
    policy: PolicyReference | None
    simulator_only: bool
    fault: str = ""


class PolicyIn(schema.In):
    """The policy that shall make the plans."""

    name: str = Field(description="A registered policy.", max_length=200, examples=["crux"])
    options: dict[Annotated[str, Field(max_length=200)], Value] = Field(
        default_factory=dict,
        max_length=100,
        description="Options that differ from those of the registered policy.",
        examples=[{"priority.levels": 4}],
    )


class PolicySettingOut(schema.Out):
    """The policy that makes the plans."""

    policy: schema.PolicyOut
    start: schema.PolicyOut = Field(description="The policy that the controller was started with.")
    chosen: bool = Field(description="Whether an operator has chosen it; it then outlasts a restart.")
    in_force: bool = Field(
        description="Whether the present plan was made by it; also true while there is no job."
    )


class InstalledPolicyOut(schema.Out):
    """A registered policy."""

    name: str
    policy: schema.PolicyOut | None = Field(description="null: it cannot be imported.")
    simulator_only: bool = Field(description="Whether it is for `polyrhythm sim` only.")
    fault: str = Field(description="Why it cannot be imported; empty: it can.")


class PoliciesOut(schema.Out):
    """All registered policies, by name."""

    policies: tuple[InstalledPolicyOut, ...]


class PolicyOperations(Protocol):
    """What the routes call."""

    def setting(self) -> PolicySetting:
        """The policy that makes the plans."""

    async def installed(self) -> Sequence[InstalledPolicy]:
        """All registered policies."""

    async def choose(self, name: str, options: Mapping[str, OptionValue]) -> None:
        """Make plans by another policy, or by other options. Raises OperationError."""

    def reset(self) -> None:
        """Make plans by the policy of the start again."""


def policy_routes(operations: PolicyOperations | None) -> APIRouter:
    """The routes. `operations` None: a controller that does not lead; all answer 503."""
    router = APIRouter(tags=["policy"])
    changes = Changes()

    def tag() -> str:
        return tag_of(leading(operations).setting().policy)

    def shown(response: Response) -> PolicySettingOut:
        setting = leading(operations).setting()
        response.headers["ETag"] = tag_of(setting.policy)
        return PolicySettingOut(
            policy=render.policy(setting.policy),
            start=render.policy(setting.start),
            chosen=setting.chosen,
            in_force=setting.in_force,
        )

    @router.get("/policies", summary="All registered policies", responses=problems(_503=STANDBY))
    async def get_policies() -> PoliciesOut:
        return PoliciesOut(
            policies=tuple(
                InstalledPolicyOut(
                    name=found.name,
                    policy=None if found.policy is None else render.policy(found.policy),
                    simulator_only=found.simulator_only,
                    fault=found.fault,
                )
                for found in await leading(operations).installed()
            )
        )

    @router.get("/policy", summary="The policy that makes the plans", responses=problems(_503=STANDBY))
    async def get_policy(response: Response) -> PolicySettingOut:
        return shown(response)

    @router.put(
        "/policy",
        summary="Make plans by another policy, or by other options",
        description="A plan by it follows at once. It stays so, also after a restart of a controller with a "
        "store, until it is set again or DELETE.",
        responses=_ERRORS,
        dependencies=[requires(Role.OPERATE)],
    )
    async def set_policy(
        asked: Annotated[PolicyIn, Body()], response: Response, if_match: IfMatch = None
    ) -> PolicySettingOut:
        async with changes.checked(if_match, tag):
            await leading(operations).choose(asked.name, asked.options)
        return shown(response)

    @router.delete(
        "/policy",
        summary="Make plans by the policy of the start again",
        responses=_ERRORS,
        dependencies=[requires(Role.OPERATE)],
    )
    async def reset_policy(response: Response, if_match: IfMatch = None) -> PolicySettingOut:
        async with changes.checked(if_match, tag):
            leading(operations).reset()
        return shown(response)

    return router
