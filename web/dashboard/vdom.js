/**
 * Describe elements as plain data, and change a page to match: focus, scroll position and hover survive a redraw.
 *
 * Text is only ever set as text and attributes as attributes, so names that tenants choose cannot become markup.
 *
 * @typedef {{tag: string, key: string | null, attrs: Record<string, any>, children: (VNode | string)[]}} VNode
 * @typedef {VNode | string | number | null | undefined | false | Child[]} Child
 */

const SVG = "http://www.w3.org/2000/svg";

/** @type {WeakMap<Element, VNode>} what each element was last drawn from */
const drawn = new WeakMap();

/**
 * Describe an element. Attributes: `key` names it among its siblings, `style` is an object of properties, functions
 * named `onclick` and the like listen, `true` is a bare attribute; null, undefined and false are left out.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [attrs]
 * @param {...Child} children
 * @returns {VNode}
 */
export function h(tag, attrs, ...children) {
  const { key = null, ...rest } = attrs ?? {};
  return { tag, key: key === null ? null : String(key), attrs: rest, children: flat(children) };
}

/** @param {Child[]} children @returns {(VNode | string)[]} */
function flat(children) {
  /** @type {(VNode | string)[]} */
  const kept = [];
  for (const child of children) {
    if (Array.isArray(child)) kept.push(...flat(child));
    else if (typeof child === "number") kept.push(String(child));
    else if (child !== null && child !== undefined && child !== false) kept.push(child);
  }
  return kept;
}

/**
 * Return the text that a reader of the described element sees.
 *
 * @param {Child} node
 * @returns {string}
 */
export function textOf(node) {
  if (node === null || node === undefined || node === false) return "";
  if (typeof node !== "object") return String(node);
  const children = Array.isArray(node) ? node : node.children;
  return children.map(textOf).filter(Boolean).join(" ");
}

/**
 * List the described elements below one that pass a test, in order.
 *
 * @param {Child} node
 * @param {(node: VNode) => boolean} test
 * @returns {VNode[]}
 */
export function findAll(node, test) {
  if (typeof node !== "object" || node === null) return [];
  if (Array.isArray(node)) return node.flatMap((each) => findAll(each, test));
  return [...(test(node) ? [node] : []), ...node.children.flatMap((each) => findAll(each, test))];
}

/**
 * Make the children of an element match a description.
 *
 * @param {Element} root
 * @param {...Child} children
 */
export function draw(root, ...children) {
  patchChildren(root, flat(children));
}

/** @param {Element} parent @param {(VNode | string)[]} wanted */
function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.children) {
    const key = drawn.get(child)?.key;
    if (key != null) keyed.set(key, child);
  }
  /** @type {ChildNode | null} */
  let place = parent.firstChild;
  for (const each of wanted) {
    const reused = reuse(place, keyed, each);
    const node = reused ?? create(each, parent);
    if (reused && typeof each !== "string") patchElement(/** @type {Element} */ (reused), each);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/**
 * Return the node of the page that can become what is wanted, or null.
 *
 * @param {ChildNode | null} place  where it will be
 * @param {Map<string, Element>} keyed
 * @param {VNode | string} wanted
 */
function reuse(place, keyed, wanted) {
  if (typeof wanted === "string") {
    if (place?.nodeType !== Node.TEXT_NODE) return null;
    if (place.nodeValue !== wanted) place.nodeValue = wanted;
    return place;
  }
  const candidate = wanted.key === null ? place : keyed.get(wanted.key);
  const before = candidate && drawn.get(/** @type {Element} */ (candidate));
  return before && before.tag === wanted.tag && before.key === wanted.key ? candidate : null;
}

/** @param {VNode | string} wanted @param {Element} parent */
function create(wanted, parent) {
  if (typeof wanted === "string") return document.createTextNode(wanted);
  const isSvg = wanted.tag === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  const made = isSvg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  drawn.set(made, { tag: wanted.tag, key: wanted.key, attrs: {}, children: [] });
  patchElement(made, wanted);
  return made;
}

/** @param {Element} element @param {VNode} wanted */
function patchElement(element, wanted) {
  const before = drawn.get(element)?.attrs ?? {};
  for (const name of Object.keys(before)) if (!(name in wanted.attrs)) setAttribute(element, name, null, before[name]);
  for (const [name, to] of Object.entries(wanted.attrs)) {
    if (to !== before[name]) setAttribute(element, name, to, before[name]);
  }
  drawn.set(element, wanted);
  patchChildren(element, wanted.children);
}

/** @param {any} element @param {string} name @param {any} to @param {any} from */
function setAttribute(element, name, to, from) {
  if (name.startsWith("on")) element[name] = to ?? null;
  else if (name === "style") setStyle(element, to ?? {}, from ?? {});
  else if (to === null || to === undefined || to === false) element.removeAttribute(name);
  else element.setAttribute(name, to === true ? "" : String(to));
}

/**
 * Set styles by property: a page that forbids style attributes allows this.
 *
 * @param {HTMLElement} element @param {Record<string, string>} to @param {Record<string, string>} from
 */
function setStyle(element, to, from) {
  for (const name of Object.keys(from)) if (!(name in to)) element.style.removeProperty(name);
  for (const [name, value] of Object.entries(to)) if (value !== from[name]) element.style.setProperty(name, value);
}
