// SPDX-License-Identifier: Apache-2.0
// What of a fabric does not change while a controller runs: its nodes, and both directions of each cable.
//
// A fabric has tens of thousands of directions. The first picture needs none of their names, so names and the
// maps from names are made when they are first asked for.

import type { FabricColumns } from "./types";

/** One direction of a cable, at index 2 * cable (a to b) or 2 * cable + 1 (b to a) of the columns. */
export interface Direction {
  src: string;
  dst: string;
  srcPort: number;
  dstPort: number;
  rateBps: number;
  cable: string;
  /** "leaf1>spine2", with ports where several cables join the two nodes. */
  id: string;
}

export class Fabric {
  readonly nodes: string[];
  /** How many directions there are. */
  readonly size: number;
  private readonly made: (Direction | undefined)[] = [];
  private readonly known: Partial<{
    index: Map<string, number>; cablesOfPair: Map<number, number>; between: Map<string, number[]>;
    byId: Map<string, number>; cables: Map<string, number>; around: number[][];
  }> = {};

  constructor(readonly columns: FabricColumns) {
    this.nodes = [...columns.switches.name, ...columns.hosts.name];
    this.size = 2 * columns.cables.a.length;
  }

  /** The number of a node by its name. */
  get index(): Map<string, number> {
    return (this.known.index ??= new Map(this.nodes.map((name, i) => [name, i])));
  }

  direction(i: number): Direction {
    return (this.made[i] ??= this.describe(i));
  }

  /** Indices of all parallel directions from one node to another, by "src>dst". */
  get between(): Map<string, number[]> {
    return (this.known.between ??= this.collect((map: Map<string, number[]>, { src, dst }, i) => {
      const pair = `${src}>${dst}`;
      const list = map.get(pair);
      if (list) list.push(i);
      else map.set(pair, [i]);
    }));
  }

  /** The index of a direction by its id. */
  get byId(): Map<string, number> {
    return (this.known.byId ??= this.collect((map: Map<string, number>, { id }, i) => map.set(id, i)));
  }

  /** The number of a cable by its name. */
  get cables(): Map<string, number> {
    return (this.known.cables ??= this.collect((map: Map<string, number>, { cable }, i) => map.set(cable, i >> 1)));
  }

  /** The directions that leave or enter the node of that number. */
  around(node: number): number[] {
    if (!this.known.around) {
      const lists: number[][] = this.nodes.map(() => []);
      const { a, b } = this.columns.cables;
      for (let k = 0; k < a.length; k += 1) {
        lists[a[k]!]!.push(2 * k, 2 * k + 1);
        lists[b[k]!]!.push(2 * k, 2 * k + 1);
      }
      this.known.around = lists;
    }
    return this.known.around[node] ?? [];
  }

  private pair(k: number): number {
    const { a, b } = this.columns.cables;
    return Math.min(a[k]!, b[k]!) * this.nodes.length + Math.max(a[k]!, b[k]!);
  }

  private describe(i: number): Direction {
    const { a, b, a_port, b_port, rate_bps } = this.columns.cables;
    if (!this.known.cablesOfPair) {
      const counts = new Map<number, number>();
      for (let k = 0; k < a.length; k += 1) counts.set(this.pair(k), (counts.get(this.pair(k)) ?? 0) + 1);
      this.known.cablesOfPair = counts;
    }
    const k = i >> 1;
    const several = this.known.cablesOfPair.get(this.pair(k))! > 1;
    const ends = [{ node: this.nodes[a[k]!]!, port: a_port[k]! }, { node: this.nodes[b[k]!]!, port: b_port[k]! }];
    const [from, to] = i % 2 === 0 ? [ends[0]!, ends[1]!] : [ends[1]!, ends[0]!];
    const named = (end: { node: string; port: number }) => (several ? `${end.node}:${end.port}` : end.node);
    const [src, dst] = [named(from), named(to)];
    return {
      src: from.node, dst: to.node, srcPort: from.port, dstPort: to.port, rateBps: rate_bps[k]!,
      cable: src < dst ? `${src}-${dst}` : `${dst}-${src}`, id: `${src}>${dst}`,
    };
  }

  private collect<V>(add: (map: Map<string, V>, direction: Direction, i: number) => void): Map<string, V> {
    const map = new Map<string, V>();
    for (let i = 0; i < this.size; i += 1) add(map, this.direction(i), i);
    return map;
  }
}
