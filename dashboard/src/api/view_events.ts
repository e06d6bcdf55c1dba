// SPDX-License-Identifier: Apache-2.0
// The state from an event that carries a whole view.

import type { FabricColumns, JobRow, Keyframe, Tables } from "./types";

interface Profile { period_ms: number; phases: { start_ms: number; end_ms: number; rate_bps: number }[] }
interface Link { src: string; dst: string; src_port: number; dst_port: number; capacity_bps: number; load: number | null; marks: number | null; up: boolean; drained: boolean }
export interface View {
  time_ns: number;
  scenario: string;
  fabric: {
    name: string;
    hosts: { name: string; ip: string; leaf: string; leaf_port: number; rate_bps: number }[];
    switches: { name: string; tier: string; device_id: number; state: string; entries: number; drained: boolean; strays: number }[];
    links: Link[];
    verified_paths: number;
    unverified_paths: number;
  };
  jobs: (Omit<JobRow, "hosts" | "phases" | "alone_ms" | "last_ms"> & { name: string; hosts: string[]; profile: Profile | null; recent_ms: number[]; floor_breaches: number; shares_level_with: string[] })[];
  plan: {
    version: number;
    policy: { name: string };
    epoch_ns: number;
    jobs: { job: string; expected_ms: number | null; ecmp_ms: number | null; floor_ms: number | null }[];
    links: { src: string; dst: string; jobs: string[]; score: number }[];
  } | null;
  fallback_flows: { flow: string; host: string; since_ns: number; why: string }[];
}

export function keyframeOf(view: View): Keyframe {
  const { hosts, switches, links } = view.fabric;
  const at = new Map([...switches, ...hosts].map(({ name }, i) => [name, i]));
  const fabric: FabricColumns = {
    name: view.fabric.name,
    switches: { name: switches.map((s) => s.name), tier: switches.map((s) => s.tier), device_id: switches.map((s) => s.device_id) },
    hosts: {
      name: hosts.map((h) => h.name), ip: hosts.map((h) => h.ip), leaf: hosts.map((h) => at.get(h.leaf)!),
      leaf_port: hosts.map((h) => h.leaf_port), rate_bps: hosts.map((h) => h.rate_bps),
    },
    cables: { a: [], a_port: [], b: [], b_port: [], rate_bps: [] },
  };
  const tables: Tables = { status: {}, jobs: {}, switches: {}, cables: {}, shared: {}, alarms: {}, fallback: {} };
  // Both directions of a cable follow each other.
  for (let i = 0; i + 1 < links.length; i += 2) {
    const { src, dst, src_port, dst_port, capacity_bps, up, drained } = links[i]!;
    fabric.cables.a.push(at.get(src)!);
    fabric.cables.a_port.push(src_port);
    fabric.cables.b.push(at.get(dst)!);
    fabric.cables.b_port.push(dst_port);
    fabric.cables.rate_bps.push(capacity_bps);
    if (!up || drained) tables.cables[[src, dst].sort().join("-")] = { up, drained };
  }
  if (view.plan) tables.status.plan = { version: view.plan.version, policy: view.plan.policy.name, epoch_ns: view.plan.epoch_ns };
  tables.status.paths = { verified: view.fabric.verified_paths, unverified: view.fabric.unverified_paths };
  tables.status.measured = { time_ns: view.time_ns };
  for (const job of view.jobs) {
    const planned = view.plan?.jobs.find((one) => one.job === job.name);
    tables.jobs[job.name] = {
      ...job,
      hosts: job.hosts.map((name) => at.get(name)! - switches.length),
      last_ms: job.recent_ms.at(-1) ?? null,
      phases: job.profile?.phases.map((p) => [p.start_ms, p.end_ms, p.rate_bps]) ?? null,
      alone_ms: job.profile?.period_ms ?? null,
      expected_ms: planned?.expected_ms ?? null,
      ecmp_ms: planned?.ecmp_ms ?? null,
      floor_ms: planned?.floor_ms ?? null,
    };
    if (job.silence !== null || job.floor_breaches > 1) {
      tables.alarms[`starved_job/${job.name}`] = {
        kind: "starved_job", subject: job.name, since_ns: view.time_ns,
        text: job.silence ?? `below its floor ${job.floor_breaches} times`,
      };
    }
  }
  for (const { name, state, entries, drained, strays } of switches) tables.switches[name] = { state, entries, drained, strays };
  for (const link of view.plan?.links ?? []) tables.shared[`${link.src}>${link.dst}`] = link;
  for (const { flow, ...row } of view.fallback_flows) tables.fallback[flow] = row;
  return {
    seq: 0,
    time_ns: view.time_ns,
    scenario: view.scenario,
    fabric,
    links: {
      load: links.map((l) => (l.load === null ? null : Math.round(l.load * 100))),
      queue_packets: links.map(() => null),
      marks: links.map((l) => l.marks),
    },
    tables,
  };
}
