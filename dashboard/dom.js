// SPDX-License-Identifier: Apache-2.0
// h() describes elements as values; patch() changes the document only where it differs from a description.

const SVG = "http://www.w3.org/2000/svg";
const shown = new WeakMap();

/**
 * Describes an element. Properties: `key` (identity among its siblings), `on` ({event: listener}),
 * `style` (an object; custom properties too), else attributes (null or false: absent, true: empty).
 * Children are descriptions, strings, numbers, nested arrays of them, or null for nothing.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flat(children) };
}

/** Makes the children of `parent` equal to `children`, and keeps elements that are already there. */
export function patch(parent, ...children) {
  const wanted = flat(children);
  const keyed = new Map();
  const loose = [];
  for (const node of parent.childNodes) {
    const key = shown.get(node)?.key;
    if (key === undefined) loose.push(node);
    else keyed.set(key, node);
  }
  let place = parent.firstChild;
  for (const want of wanted) {
    let node = want.props?.key === undefined ? takeSameKind(loose, want) : keyed.get(want.props.key);
    if (node !== undefined && want.props?.key !== undefined) keyed.delete(want.props.key);
    if (node === undefined || !sameKind(node, want)) node = create(want, parent);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    update(node, want);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function flat(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (typeof c === "object" ? c : String(c)));
}

function takeSameKind(nodes, want) {
  const at = nodes.findIndex((node) => sameKind(node, want));
  return at < 0 ? undefined : nodes.splice(at, 1)[0];
}

function sameKind(node, want) {
  return typeof want === "string" ? node.nodeType === Node.TEXT_NODE : node.localName === want.tag;
}

function create(want, parent) {
  if (typeof want === "string") return document.createTextNode(want);
  const inSvg = want.tag === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  return inSvg ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
}

function update(node, want) {
  if (typeof want === "string") {
    if (node.data !== want) node.data = want;
    return;
  }
  const before = shown.get(node) ?? {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(want.props)])) {
    if (name === "key") continue;
    if (name === "on") swapListeners(node, before.on ?? {}, want.props.on ?? {});
    else if (name === "style") swapStyle(node, before.style ?? {}, want.props.style ?? {});
    else if (before[name] !== want.props[name]) setAttribute(node, name, want.props[name]);
  }
  shown.set(node, want.props);
  patch(node, want.children);
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

function swapListeners(node, before, after) {
  for (const event of new Set([...Object.keys(before), ...Object.keys(after)])) {
    node[`on${event}`] = after[event] ?? null;
  }
}

function swapStyle(node, before, after) {
  for (const name of Object.keys(before)) if (!(name in after)) node.style.removeProperty(name);
  for (const [name, value] of Object.entries(after)) {
    if (before[name] !== value) node.style.setProperty(name, value);
  }
}
