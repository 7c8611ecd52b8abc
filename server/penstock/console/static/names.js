// Names of entities, as links to the entity.

import { h } from "./dom.js";

let areShown = true;

/** What the server shows of names. A hash, or no name at all, leads to no entity. */
export function noteValues(values) {
  areShown = values === "shown";
}

export const entityLink = (id, resource) =>
  `#/entity/${encodeURIComponent(id)}${resource ? `/${encodeURIComponent(resource)}` : ""}`;

export function entityName(id, resource) {
  return areShown ? h("a", { class: "name", href: entityLink(id, resource) }, id) : h("span", { class: "name" }, id);
}
