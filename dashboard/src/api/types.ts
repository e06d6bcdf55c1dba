// SPDX-License-Identifier: Apache-2.0
// The answers of the REST API as the page uses them. null means "not known". See docs/api.md.

export interface Columns {
  load: (number | null)[];
  queue_packets: (number | null)[];
  marks: (number | null)[];
}

export interface FabricColumns {
  name: string;
  /** Whether the page may cut links: a fabric that is emulated. */
  emulated?: boolean;
  switches: { name: string[]; tier: string[]; device_id: number[] };
  hosts: { name: string[]; ip: string[]; leaf: number[]; leaf_port: number[]; rate_bps: number[] };
  cables: { a: number[]; a_port: number[]; b: number[]; b_port: number[]; rate_bps: number[] };
}

export type PhaseRow = [start_ms: number, end_ms: number, rate_bps: number];

export interface JobRow {
  model: string;
  gpus: number;
  hosts: number[];
  iterations: number;
  last_ms: number | null;
  mean_ms: number | null;
  p99_ms: number | null;
  level: number | null;
  dscp: number | null;
  shift_ms: number | null;
  period_ms: number | null;
  phases: PhaseRow[] | null;
  alone_ms: number | null;
  expected_ms: number | null;
  ecmp_ms: number | null;
  floor_ms: number | null;
  measuring: boolean;
  left_out: string | null;
  silence: string | null;
}

export interface SwitchRow { state: string; entries: number; drained: boolean; strays: number }
/** Packets of the host on `port` that hosts may not send; `reason` as in docs/southbound.md. */
export interface Stray { port: number; host: string; reason: string; packets: number }
export interface CableRow { up: boolean; drained: boolean }
export interface SharedRow { src: string; dst: string; jobs: string[]; score: number }
export interface AlarmRow { kind: string; subject: string; since_ns: number; text: string }
export interface FallbackRow { host: string; since_ns: number; why: string }

/** Rows by table and key, as keyframes and differences carry them. */
export interface Tables {
  status: {
    plan?: { version: number; policy: string; epoch_ns: number };
    paths?: { verified: number; unverified: number };
    measured?: { time_ns: number | null };
  };
  jobs: Record<string, JobRow>;
  switches: Record<string, SwitchRow>;
  cables: Record<string, CableRow>;
  shared: Record<string, SharedRow>;
  alarms: Record<string, AlarmRow>;
  fallback: Record<string, FallbackRow>;
}

export interface Keyframe {
  seq: number;
  time_ns: number;
  scenario: string;
  fabric: FabricColumns;
  links: Columns;
  tables: Tables;
}

export interface Difference {
  seq: number;
  time_ns: number;
  set?: Record<string, Record<string, Record<string, unknown>>>;
  gone?: Record<string, string[]>;
  /** Columns that changed at the indices `i`; `all_load` is a whole column. */
  links?: Partial<Columns> & { i?: number[]; all_load?: string };
}

export interface Flow {
  flow: string;
  job: string;
  path: string[] | null;
  source_port: number | null;
  dscp: number;
  pinned_in: string[];
  sent_dscp: number | null;
  fallback_reason: string | null;
  why: string;
}

export interface JobDetail {
  name: string;
  model: string;
  recent_ms: number[];
  intensity: number | null;
  floor_breaches: number;
  shares_level_with: string[];
  why: string | null;
  before_plan_ms?: number | null;
  flows: Flow[];
}

export interface ExplainedPath { path: string[]; link: [string, string]; load_bps: number; capacity_bps: number; jobs: string[] }

export interface Explained {
  job: string;
  version: number;
  policy: string;
  sentences: string[];
  times: Record<"alone" | "ecmp" | "expected" | "allowed" | "measured", number | null>;
  level: number;
  shift_ms: number | null;
  neighbours: { job: string; level: number; intensity: number | null; links: number; score: number | null }[];
  flows: { flow: string; chosen: ExplainedPath | null; rejected: ExplainedPath[]; why: string }[];
  flows_in_all: number;
}

export interface Blame {
  job: string;
  time_ns: number;
  iterations: {
    index: number; ended_ns: number; took_ms: number; usual_ms: number; slower_ms: number; host: string;
    link: string | null; other_job: string | null; why: string;
  }[];
}

export interface CircleJob {
  job: string;
  level: number;
  dscp: number;
  period_ms: number;
  shift_ms: number;
  rounds: number | null;
  slotted: boolean;
  phases: { start_ms: number; end_ms: number; rate_bps: number }[];
  expected_ms: number | null;
  alone_ms: number | null;
}

export interface Circle {
  link: string;
  src: string;
  dst: string;
  time_ns: number;
  capacity_bps: number;
  perimeter_ms: number | null;
  score: number | null;
  jobs: CircleJob[];
  before?: { job: string; expected_ms: number | null }[];
  after?: { job: string; expected_ms: number | null }[];
}

export interface LogEvent { id: number; time_ns: number; kind: string; subject: string; text: string }
export interface Series { subject: string; mean: (number | null)[]; low: (number | null)[]; high: (number | null)[] }
/** Measured values of the past: the lists of each subject are as long as `times_ns`. */
export interface History { kind: string; step_ns: number; times_ns: number[]; series: Series[]; next: string | null }
export interface PastPlan { version: number; time_ns: number; policy: string; in_force: boolean; reason?: string }
export interface Policy { name: string; distribution: string; version: string; routing: string; priority: string; timing: string; options: Record<string, boolean | number | string | null> }
export interface PolicySetting { policy: Policy; start: Policy; chosen: boolean; in_force: boolean }
export interface InstalledPolicy { name: string; policy: Policy | null; simulator_only: boolean; fault: string }
export interface Drain { part: "link" | "switch"; name: string; state: "draining" | "drained" }
export interface TableSummary { name: string; desired: number; actual: number | null }
export interface TableEntry { match: Record<string, string>; action: string; params: Record<string, string>; priority: number; missing?: boolean }
export interface AuditRecord { number: number; time: string; caller: string; role: string; peer: string; method: string; path: string; status: number }
export interface Part { ready: number; needed: number; of: number }
export interface Readiness {
  ready: boolean;
  switches: Part;
  agents: Part;
  store: string;
  controller: { role: string; leader: string; leader_web: string; election_id: string };
  not_ready: { part: string; name: string; why: string }[];
}
/** The links as columns of a keyframe, jobs and what was wrong at a past time; queues are not kept. */
export interface MomentOfPast {
  time_ns: number;
  links: Omit<Columns, "queue_packets">;
  jobs: Record<string, { mean_ms: number | null }>;
  plan: { version: number; policy: string; reason: string } | null;
  /** Names of cables and switches. null, as for alarms: the state of that time is not known. */
  down: string[] | null;
  alarms: { name: string; text: string }[] | null;
}
export interface WhatIf {
  time_ns: number;
  horizon_ms: number;
  results: {
    policy: string; fault: string | null; note: string | null; gpu_utilisation?: number | null;
    jobs: { job: string; mean_ms: number | null; alone_ms: number | null }[];
    worst: { job: string; ratio: number | null } | null;
  }[];
}
