// SPDX-License-Identifier: Apache-2.0
// Names that lead to what they name, and the badge of a job: a number and a colour, so that colour is never
// the only cue.

import type { ComponentChildren } from "preact";
import { jobColour } from "../fabric/colours";
import type { Pick } from "../state/address";
import { choose, state } from "../state/store";

export function PickButton({ pick, children }: { pick: Pick; children: ComponentChildren }) {
  const now = state.address.pick;
  const pressed = now?.kind === pick.kind && now.id === pick.id;
  return <button type="button" class="link" aria-pressed={pressed} onClick={() => choose(pick)}>{children}</button>;
}

export function Badge({ index, name }: { index: number; name: string }) {
  return <span class="badge" style={{ "--job": jobColour(index) }} title={name} aria-hidden="true">{index + 1}</span>;
}

export function JobName({ name, jobs }: { name: string; jobs: string[] }) {
  const index = jobs.indexOf(name);
  return <>{index >= 0 && <Badge index={index} name={name} />} <PickButton pick={{ kind: "job", id: name }}>{name}</PickButton></>;
}
