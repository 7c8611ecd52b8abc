// Who changed what, and when.

import { ApiError, get } from "./api.js";
import { card, choice, empty, h, say } from "./dom.js";
import { entityName } from "./names.js";

const SYSTEM = "$SYSTEM";
const RESOURCE = "$RESOURCE:";

/** A card with the changes of a subject, the latest first. */
export function makeEvents(subjectOf) {
  const list = h("ol", { class: "events" });
  const nothing = empty("");
  const more = h("button", { class: "quiet", type: "button", onclick: () => load(true) }, "Show older");
  const element = card("Changes", [], list, nothing, more);
  let next = null;

  async function load(goesOn) {
    const subject = subjectOf();
    const answer = subject ? await read(subject, goesOn ? next : "") : { events: [], next: null };
    if (subject !== subjectOf()) return;
    next = answer.next;
    say(nothing, answer.problem ?? "No changes on record.");
    const made = answer.events.map(makeEvent);
    if (goesOn) list.append(...made);
    else list.replaceChildren(...made);
    nothing.hidden = Boolean(list.children.length);
    more.hidden = next === null;
  }
  return { element, refresh: () => load(false) };
}

/** A page of events, or why there is none. */
async function read(subject, after) {
  try {
    return await get("audit", { subject, limit: 20, after });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { events: [], next: null, problem: error.message };
  }
}

export function auditView() {
  let kind = "system";
  const named = h("input", { type: "search", "aria-label": "Name", placeholder: "Name", spellcheck: "false", hidden: true, onchange: () => events.refresh() });
  const subjectOf = () => {
    const name = named.value.trim();
    if (kind === "system") return SYSTEM;
    return kind === "resource" && name ? `${RESOURCE}${name}` : name;
  };
  const events = makeEvents(subjectOf);
  const kinds = choice("Changes of", [["system", "System"], ["resource", "Resource"], ["entity", "Entity"]], kind, (value) => {
    kind = value;
    named.hidden = kind === "system";
    if (!named.hidden) named.focus();
    events.refresh();
  });
  const element = h("div", { class: "view" }, h("h1", {}, "Audit"), h("div", { class: "row" }, kinds, named), events.element);
  let isLoaded = false;
  return { element, title: "Audit", refresh: async () => { if (!isLoaded) await events.refresh(); isLoaded = true; } };
}

function makeEvent(event) {
  const lines = differences(event).map(([sign, name, text]) => h("li", { class: { "+": "added", "-": "removed", "~": "changed" }[sign] },
    h("span", { class: "sign", "aria-label": { "+": "added", "-": "removed", "~": "changed" }[sign] }, sign), `${name}${text ? `: ${text}` : ""}`));
  const scope = event.scope ? [event.scope.entity ? `entity ${event.scope.entity}` : "", event.scope.resource ? `resource ${event.scope.resource}` : ""].filter(Boolean).join(", ") || "system" : "";
  const subject = event.subject.startsWith("$") ? null : entityName(event.subject);
  return h("li", { class: "event" },
    h("p", {}, h("time", { datetime: new Date(event.at_ms).toISOString() }, event.at), h("b", {}, event.by), h("span", { class: "tag" }, event.action), subject, h("span", { class: "scope" }, scope)),
    h("ul", {}, ...lines));
}

/** What a change added, removed and changed, by name. */
function differences({ before, after }) {
  const [old, now] = [facts(before), facts(after)];
  const lines = [];
  for (const name of [...new Set([...Object.keys(old), ...Object.keys(now)])].sort()) {
    if (!(name in old)) lines.push(["+", name, now[name]]);
    else if (!(name in now)) lines.push(["-", name, old[name]]);
    else if (old[name] !== now[name]) lines.push(["~", name, `${old[name]} → ${now[name]}`]);
  }
  return lines;
}

function facts(side) {
  if (side === null) return {};
  if (side.buckets) return Object.fromEntries(side.buckets.map((bucket) => [bucket.name || "limit", `${bucket.balance} left`]));
  const pairs = side.limits
    ? [...side.limits.map((limit) => [limit.name, limit.rate]), ["on_unavailable", side.on_unavailable]]
    : [["parent", side.parent], ["cascade", side.cascade ? "yes" : ""], ...Object.entries(side.metadata ?? {})];
  return Object.fromEntries(pairs.filter(([, value]) => value).map(([name, value]) => [name, String(value)]));
}
