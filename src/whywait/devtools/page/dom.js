// Building and updating the page. Text is always set as text, never as markup, so no name can become code.

/** Make an element: h("button", {class: "x", "data-task": 3}, "text", child, ...). Null and false are left out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  setAll(element, props);
  element.append(...flat(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Make an SVG element. */
export function s(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAll(element, props);
  element.append(...flat(children));
  return element;
}

function setAll(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Make `parent` contain `children`, changing what is there as little as possible: focus and scroll stay. */
export function show(parent, ...children) {
  const wanted = flat(children).map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
  morphChildren(parent, wanted);
}

function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = parent.firstChild;
  for (const want of wanted) {
    const key = keyOf(want);
    let have = key ? keyed.get(key) : at;
    if (have && !key && keyOf(have)) have = null;
    if (have && alike(have, want)) {
      if (have !== at) parent.insertBefore(have, at);
      else at = at.nextSibling;
      morph(have, want);
    } else {
      parent.insertBefore(want, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (node) => node.dataset?.key;
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function morph(have, want) {
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  if (have.dataset?.keep !== undefined) return; // it looks after itself
  for (const { name } of [...have.attributes]) if (!want.hasAttribute(name)) have.removeAttribute(name);
  for (const { name, value } of want.attributes) {
    if (have.getAttribute(name) === value) continue;
    if (name === "style") have.style.cssText = value; // the policy of this page forbids the attribute, not the property
    else have.setAttribute(name, value);
  }
  morphChildren(have, [...want.childNodes]);
}
