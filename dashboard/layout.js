// SPDX-License-Identifier: Apache-2.0
// The positions of nodes and cables in the drawing: spines at the top, then leaves, then hosts.

const TIERS = ["core", "spine", "leaf", "host"];
const ROW = 150;
const PITCH = 104;
const MIN_WIDTH = 840;
const SIZES = { core: [96, 34], spine: [104, 34], leaf: [190, 34], host: [64, 30] };

/**
 * Computes the layout of a fabric: {width, height, nodes: Map(name -> {name, tier, x, y, w, h}),
 * wires: Map(link id -> {x1, y1, x2, y2})}; each wire runs from its source to its destination.
 */
export function place(fabric) {
  const rows = new Map(TIERS.map((tier) => [tier, []]));
  for (const s of fabric.switches) rows.get(s.tier)?.push(s.name);
  const leaves = rows.get("leaf");
  const hosts = [...fabric.hosts].sort(
    (a, b) => leaves.indexOf(a.leaf) - leaves.indexOf(b.leaf) || a.leaf_port - b.leaf_port,
  );
  rows.set("host", hosts.map((host) => host.name));

  const used = TIERS.filter((tier) => rows.get(tier).length > 0);
  const width = Math.max(MIN_WIDTH, ...used.map((tier) => rows.get(tier).length * PITCH));
  const nodes = new Map();
  used.forEach((tier, row) => {
    const list = rows.get(tier);
    const pitch = width / list.length;
    const [w, h] = SIZES[tier];
    list.forEach((name, i) => {
      nodes.set(name, { name, tier, x: (i + 0.5) * pitch, y: 30 + row * ROW, w: Math.min(w, pitch - 12), h });
    });
  });
  return { width, height: 30 + (used.length - 1) * ROW + 52, nodes, wires: wires(fabric, nodes) };
}

/** The name of one direction of a cable. */
export function linkId(link) {
  return `${link.src}:${link.src_port}>${link.dst}`;
}

function wires(fabric, nodes) {
  const anchors = attach(fabric, nodes);
  const result = new Map();
  for (const link of fabric.links) {
    const from = anchors.get(`${link.src}/${link.dst}/${link.src_port}`);
    const to = anchors.get(`${link.dst}/${link.src}/${link.dst_port}`);
    if (from && to) result.set(linkId(link), { x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
  }
  return result;
}

/** Cables leave a node's upper or lower edge in the order of their far ends, so that they do not cross. */
function attach(fabric, nodes) {
  const edges = new Map();
  for (const link of fabric.links) {
    const node = nodes.get(link.src);
    const peer = nodes.get(link.dst);
    if (!node || !peer) continue;
    const side = peer.y < node.y ? -1 : 1;
    const edge = `${link.src}/${side}`;
    if (!edges.has(edge)) edges.set(edge, { node, side, ends: [] });
    edges.get(edge).ends.push({ id: `${link.src}/${link.dst}/${link.src_port}`, x: peer.x });
  }
  const anchors = new Map();
  for (const { node, side, ends } of edges.values()) {
    ends.sort((a, b) => a.x - b.x);
    const gap = Math.min(44, (node.w - 16) / ends.length);
    ends.forEach(({ id }, i) => {
      anchors.set(id, [node.x + (i - (ends.length - 1) / 2) * gap, node.y + (side * node.h) / 2]);
    });
  }
  return anchors;
}
