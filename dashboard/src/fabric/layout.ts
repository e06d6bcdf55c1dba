// SPDX-License-Identifier: Apache-2.0
// Where nodes and cables are in the drawing. Pure and deterministic: the same fabric has the same picture.
//
// Tiers are rows: core, spine, leaf, host. Across, positions are fractions of the width, so that only the
// width is zoomed and all tiers stay in sight.

import type { Fabric } from "../api/fabric";

export type Fold = "none" | "hosts" | "pods" | "tiers";
export const TIERS = ["core", "spine", "leaf", "host"] as const;
export type Tier = (typeof TIERS)[number] | "pod";

export interface Box {
  id: string;
  kind: "switch" | "host" | "group";
  tier: Tier;
  /** Fractions of the width: the middle of the box, and the room that it has. */
  x: number;
  room: number;
  row: number;
  /** Indices of the nodes that it stands for; one, or those of a group. */
  members: number[];
  /** For the hosts of a leaf: which of how many it is. */
  place: number;
  of: number;
}

export interface Wire {
  a: number;
  b: number;
  /** Where it leaves the boxes, from 0 (left) to 1. */
  aAt: number;
  bAt: number;
  /** Directions a to b, and b to a. */
  there: number[];
  back: number[];
}

export interface Layout {
  boxes: Box[];
  wires: Wire[];
  rows: Tier[];
  boxOf: Int32Array;
  /** The pod of each node, -1 for cores; and how many pods there are. */
  podOf: Int32Array;
  pods: number;
}

const natural = new Intl.Collator("en", { numeric: true }).compare;

/** The pod of each node: switches below the cores that are connected without them; without cores, each leaf. */
export function podsOf(fabric: Fabric): { podOf: Int32Array; pods: number } {
  const { switches, hosts, cables } = fabric.columns;
  const count = switches.name.length;
  const cores = switches.tier.includes("core");
  const joins = (i: number) => (cores ? switches.tier[i] !== "core" : switches.tier[i] === "leaf");
  const root = Int32Array.from({ length: count }, (_, i) => i);
  const find = (i: number): number => {
    while (root[i] !== i) {
      root[i] = root[root[i]!]!;
      i = root[i]!;
    }
    return i;
  };
  if (cores) {
    cables.a.forEach((a, k) => {
      const b = cables.b[k]!;
      if (a < count && b < count && joins(a) && joins(b)) root[find(a)] = find(b);
    });
  }
  const order = [...switches.name.keys()].sort((i, j) => natural(switches.name[i]!, switches.name[j]!));
  const numbers = new Map<number, number>();
  const podOf = new Int32Array(fabric.nodes.length).fill(-1);
  for (const leavesFirst of [true, false]) {
    for (const i of order) {
      if (!joins(i) || (switches.tier[i] === "leaf") !== leavesFirst) continue;
      const group = find(i);
      if (!numbers.has(group)) numbers.set(group, numbers.size);
      podOf[i] = numbers.get(group)!;
    }
  }
  hosts.leaf.forEach((leaf, i) => {
    podOf[count + i] = podOf[leaf]!;
  });
  return { podOf, pods: numbers.size };
}

export function place(fabric: Fabric, fold: Fold): Layout {
  const { switches, hosts } = fabric.columns;
  const count = switches.name.length;
  const { podOf, pods } = podsOf(fabric);
  const tierOf = (i: number): Tier => (i < count ? (switches.tier[i] as Tier) : "host");

  // Which box each node is in.
  const groupOf = (i: number): string => {
    const tier = tierOf(i);
    if (fold === "hosts" && tier === "host") return `switch ${hosts.leaf[i - count]}`;
    if (fold === "pods" && podOf[i]! >= 0) return `pod ${podOf[i]! + 1}`;
    if (fold === "tiers") return podOf[i]! >= 0 && switches.tier.includes("core") ? `${tier}s of pod ${podOf[i]! + 1}` : `all ${tier}s`;
    return i < count ? `switch ${i}` : `host ${i}`;
  };
  const members = new Map<string, number[]>();
  for (let i = 0; i < fabric.nodes.length; i += 1) {
    const group = groupOf(i);
    const known = members.get(group);
    if (known) known.push(i);
    else members.set(group, [i]);
  }

  const boxes: Box[] = [];
  for (const [group, nodes] of members) {
    const first = nodes[0]!;
    const single = nodes.length === 1 || (fold === "hosts" && first < count);
    const tier: Tier = fold === "pods" && podOf[first]! >= 0 ? "pod" : tierOf(first);
    boxes.push({
      id: single ? fabric.nodes[first]! : group,
      kind: single ? (first < count ? "switch" : "host") : "group",
      tier, x: 0, room: 0, row: 0, members: nodes, place: 0, of: 1,
    });
  }
  const present = (["core", "spine", "pod", "leaf", "host"] as Tier[]).filter((tier) => boxes.some((box) => box.tier === tier));
  const lead = (box: Box) => box.members[0]!;
  const order = (a: Box, b: Box) => podOf[lead(a)]! - podOf[lead(b)]! || natural(a.id, b.id);
  const split = switches.tier.includes("core") && fold !== "pods";
  present.forEach((tier, row) => {
    const list = boxes.filter((box) => box.tier === tier).sort(order);
    for (const box of list) box.row = row;
    if (tier === "host") return;
    // In a fabric of pods each pod has its share of the width, on every row but that of the cores.
    const parts = split && tier !== "core" ? groupsBy(list, (box) => podOf[lead(box)]!) : [list];
    parts.forEach((part, p) => part.forEach((box, i) => {
      box.room = 1 / parts.length / part.length;
      box.x = (p + (i + 0.5) / part.length) / parts.length;
    }));
  });

  const boxOf = new Int32Array(fabric.nodes.length);
  boxes.forEach((box, at) => box.members.forEach((i) => {
    boxOf[i] = at;
  }));
  // Hosts share the room of their leaf.
  const byLeaf = groupsBy(boxes.filter((box) => box.tier === "host"), (box) => boxOf[hosts.leaf[lead(box) - count]!]!);
  for (const list of byLeaf) {
    const leaf = boxes[boxOf[hosts.leaf[lead(list[0]!) - count]!]!]!;
    list.sort((a, b) => hosts.leaf_port[lead(a) - count]! - hosts.leaf_port[lead(b) - count]! || natural(a.id, b.id));
    list.forEach((box, i) => {
      box.room = leaf.room / list.length;
      box.x = leaf.x - leaf.room / 2 + (i + 0.5) * box.room;
      box.place = i;
      box.of = list.length;
    });
  }
  return { boxes, wires: wiresOf(fabric, boxes, boxOf), rows: present, boxOf, podOf, pods };
}

function wiresOf(fabric: Fabric, boxes: Box[], boxOf: Int32Array): Wire[] {
  const single = boxes.length === fabric.nodes.length;
  const wires: Wire[] = [];
  const known = new Map<number, number>();
  const { a, b } = fabric.columns.cables;
  for (let k = 0; k < a.length; k += 1) {
    const from = boxOf[a[k]!]!;
    const to = boxOf[b[k]!]!;
    if (from === to) continue;
    const key = Math.min(from, to) * boxes.length + Math.max(from, to);
    // Parallel cables are drawn beside each other, cables between groups as one.
    const at = single ? undefined : known.get(key);
    if (at === undefined) {
      known.set(key, wires.length);
      wires.push({ a: from, b: to, aAt: 0.5, bAt: 0.5, there: [2 * k], back: [2 * k + 1] });
    } else {
      const wire = wires[at]!;
      const along = wire.a === from;
      wire.there.push(2 * k + (along ? 0 : 1));
      wire.back.push(2 * k + (along ? 1 : 0));
    }
  }
  spread(boxes, wires);
  return wires;
}

/** Cables leave a box in the order of their far ends, so that they do not cross at the box. */
function spread(boxes: Box[], wires: Wire[]): void {
  // End 2 * k is that of wire k at its box a, 2 * k + 1 the one at b. Each box has two sides: up and down.
  const far = new Float64Array(2 * wires.length);
  const sides: number[][] = Array.from({ length: 2 * boxes.length }, () => []);
  wires.forEach(({ a, b }, k) => {
    far[2 * k] = boxes[b]!.x;
    far[2 * k + 1] = boxes[a]!.x;
    const upwards = boxes[b]!.row < boxes[a]!.row;
    sides[2 * a + (upwards ? 0 : 1)]!.push(2 * k);
    sides[2 * b + (upwards || boxes[a]!.row === boxes[b]!.row ? 1 : 0)]!.push(2 * k + 1);
  });
  for (const ends of sides) {
    ends.sort((p, q) => far[p]! - far[q]!);
    for (let i = 0; i < ends.length; i += 1) wires[ends[i]! >> 1]![ends[i]! % 2 === 0 ? "aAt" : "bAt"] = (i + 0.5) / ends.length;
  }
}

function groupsBy<T>(list: T[], keyOf: (one: T) => number): T[][] {
  const groups = new Map<number, T[]>();
  for (const one of list) {
    const key = keyOf(one);
    const known = groups.get(key);
    if (known) known.push(one);
    else groups.set(key, [one]);
  }
  return [...groups.values()];
}
