// Makes and updates elements. Text from outside only ever becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const TYPED_MS = 200;

/** An element with attributes and children. `onclick` and the like are listeners. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set a text only if it has changed, so that a selection by the reader stays. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * Let a list of elements follow a list of items. Elements of items that stay are updated and not
 * made again, so that the keyboard's focus stays where it is.
 */
export function follow(parent, items, keyOf, make) {
  const old = parent.kept ?? new Map();
  const kept = new Map();
  items.forEach((item, index) => {
    const key = keyOf(item);
    const row = old.get(key) ?? make(item);
    row.update(item);
    kept.set(key, row);
    if (parent.children[index] !== row.element) parent.insertBefore(row.element, parent.children[index] ?? null);
  });
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  parent.kept = kept;
}

/** A choice among a few, as a group of radio buttons that look like one switch. */
export function choice(legend, options, chosen, changed) {
  const name = `choice-${legend.replaceAll(" ", "-")}`;
  const buttons = options.map(([value, text]) => {
    const input = h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => changed(value) });
    return h("label", {}, input, h("span", {}, text));
  });
  return h("fieldset", { class: "choice" }, h("legend", { class: "unseen" }, legend), ...buttons);
}

/** Call a function when nobody has typed for a moment, and not for each key. */
export function once(call) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, TYPED_MS);
  };
}

/** A card with a heading. */
export function card(title, tools, ...children) {
  const heading = h("h2", {}, title);
  return h("section", { class: "card" }, h("header", {}, heading, h("div", { class: "card-tools" }, ...tools)), ...children);
}

/** What is said instead of a list without rows. Hidden until the list is known to have none. */
export function empty(text) {
  return h("p", { class: "empty", hidden: true }, text);
}
