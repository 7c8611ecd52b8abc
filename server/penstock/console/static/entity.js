// One entity: its parents as a tree with every bucket, its usage, its denials, and who changed it.

import { get } from "./api.js";
import { makeEvents } from "./audit.js";
import { BarPlot } from "./chart.js";
import { card, choice, empty, follow, h, say } from "./dom.js";
import { duration, isRule, resource, short, whole } from "./format.js";
import { entityName } from "./names.js";
import { makeDenials } from "./now.js";

const LOW = 0.1;
const HALF = 0.5;
const MOST_PLOTS = 12;

export function entityView(id, wantedResource = "") {
  const facts = h("p", { class: "facts" });
  const children = h("div", { class: "children" });
  const trees = h("div", { class: "trees" });
  const nothing = empty("");
  const denials = makeDenials(id);
  const usage = makeUsage(id);
  const events = makeEvents(() => id);
  const element = h("div", { class: "view entity" },
    h("h1", {}, h("span", { class: "unseen" }, "Entity "), h("span", { class: "name" }, id)), facts,
    card("Buckets", [], trees, nothing), usage.element, denials.element, children, events.element);
  let turn = 0;

  async function refresh() {
    const answer = await get("entity", { id, resource: wantedResource });
    showFacts(facts, answer, wantedResource);
    follow(trees, answer.trees.map((tree) => ({ ...tree, at_ms: answer.at_ms })), (tree) => tree.resource, makeTree);
    nothing.hidden = Boolean(answer.trees.length);
    say(nothing, answer.entity ? "No buckets lately, so nothing limits this entity now." : "No such entity is stored, and no bucket has this name.");
    children.hidden = !answer.children.length;
    if (answer.children.length) showChildren(children, answer);
    await denials.refresh();
    if (turn % 15 === 0) await Promise.all([usage.refresh(), events.refresh()]);
    turn += 1;
  }
  return { element, refresh, title: id };
}

function showFacts(facts, { entity, trees }, wantedResource) {
  const ofRule = trees.some((tree) => isRule(tree.resource));
  const texts = entity
    ? [entity.parent === null ? "no parent" : `child of ${entity.parent}`, entity.cascade ? "cascades to its parent" : "", ...Object.entries(entity.metadata).map(([key, value]) => `${key}=${value}`)]
    : [ofRule ? "made from the entries of a descriptor, by a rule" : "not stored"];
  if (wantedResource && !ofRule) texts.push(`only ${wantedResource}`);
  say(facts, texts.filter(Boolean).join(" · "));
}

function showChildren(box, answer) {
  const key = answer.children.join("\n");
  if (box.shown === key) return;
  box.shown = key;
  const links = answer.children.map((child) => h("li", {}, entityName(child)));
  box.replaceChildren(card(answer.has_more_children ? "Children (the first 50)" : "Children", [], h("ul", { class: "names" }, ...links)));
}

/** The levels of one resource: the topmost parent first, the entity as its last branch. */
function makeTree(tree) {
  const list = h("ol", { class: "tree" });
  const element = h("section", { class: "resource" }, h("h3", {}, isRule(tree.resource) ? "rules of " : "", h("span", { class: "name" }, resource(tree.resource))), list);
  return {
    element,
    update(now) {
      const levels = now.levels.map((level, depth) => ({ ...level, depth, at_ms: now.at_ms })).reverse();
      follow(list, levels, (level) => level.entity, makeLevel);
    },
  };
}

function makeLevel(level) {
  const notes = h("span", { class: "notes" });
  const buckets = h("ul", { class: "buckets" });
  const unlimited = h("p", { class: "empty small" }, "no limits");
  const name = level.depth ? entityName(level.entity) : h("span", { class: "name" }, level.entity);
  const element = h("li", { class: level.depth ? "level" : "level self" }, h("p", { class: "who" }, name, notes), buckets, unlimited);
  return {
    element,
    update(now) {
      const texts = [now.scope ? `limits of ${now.scope}` : "", now.is_used || !now.buckets.length ? "" : "not used lately", now.is_counted ? "" : "not counted: no cascade"];
      say(notes, texts.filter(Boolean).join(" · "));
      unlimited.hidden = Boolean(now.buckets.length);
      follow(buckets, now.buckets.map((bucket) => ({ ...bucket, at_ms: now.at_ms })), (bucket) => bucket.name, makeBucket);
    },
  };
}

function makeBucket(bucket) {
  const bar = h("span", { class: "level-bar", role: "meter", "aria-valuemin": 0 }, h("span", {}));
  const left = h("b", {});
  const full = h("span", { class: "full" });
  const rate = h("span", { class: "rate" });
  const element = h("li", { class: "bucket" }, h("span", { class: "what" }, h("span", { class: "limit-name" }, bucket.name || "limit"), rate), bar, h("span", { class: "left" }, left, " ", full));
  return {
    element,
    update(now) {
      const share = now.balance === null ? 1 : now.burst ? now.balance / now.burst : 0;
      const inDebt = now.balance < 0;
      const isUnlimited = now.balance === null;
      const text = isUnlimited ? "unlimited" : inDebt ? `${whole(-now.balance)} in debt` : `${whole(now.balance)} of ${whole(now.burst)} left`;
      say(rate, now.rate.split(",")[0]);
      say(left, text);
      say(full, isUnlimited ? "" : now.resets_at !== null ? `resets in ${duration(until(now.resets_at, now.at_ms))}` : now.full_in_ms === 0 ? "full" : now.full_in_ms === null ? "never full" : `full in ${duration(now.full_in_ms)}`);
      bar.className = `level-bar ${inDebt ? "debt" : share < LOW ? "low" : share < HALF ? "half" : "high"}`;
      bar.setAttribute("aria-valuemax", now.burst ?? 1);
      bar.setAttribute("aria-valuenow", Math.max(0, now.balance ?? 1));
      bar.setAttribute("aria-valuetext", `${text}, ${full.textContent}`);
      bar.setAttribute("aria-label", now.name || "limit");
      bar.firstChild.style.setProperty("--share", Math.min(1, Math.abs(share)));
    },
  };
}

function makeUsage(id) {
  const wanted = { window: "hour" };
  const plots = h("div", { class: "plots" });
  const nothing = empty("No usage on record. Usage is counted for stored limits, and not for rules.");
  const window = choice("Window", [["hour", "Hours"], ["day", "Days"], ["month", "Months"]], wanted.window, (value) => { wanted.window = value; refresh(); });
  const element = card("Usage, in UTC", [window], plots, nothing);

  async function refresh() {
    const answer = await get("usage", { id, window: wanted.window });
    if (answer.window !== wanted.window) return;
    const names = answer.starts_ms.map((start) => label(start, answer.window));
    const series = new Map();
    for (const used of answer.usage) {
      const index = answer.starts_ms.indexOf(used.start_ms);
      for (const [what, amount] of Object.entries({ requests: used.takes, ...used.amounts })) {
        const key = `${used.resource}\n${what}`;
        if (!series.has(key)) series.set(key, { key, resource: used.resource, what, values: names.map(() => 0) });
        series.get(key).values[index] = Math.max(0, amount);
      }
    }
    const shown = [...series.values()].slice(0, MOST_PLOTS);
    follow(plots, shown.map((one) => ({ ...one, names })), (one) => one.key, makeUsagePlot);
    nothing.hidden = Boolean(shown.length);
  }
  return { element, refresh };
}

function makeUsagePlot(one) {
  const plot = new BarPlot({ label: `${one.what} of ${one.resource}`, format: (value) => short(value) });
  const total = h("span", { class: "total" });
  const element = h("figure", {}, h("figcaption", {}, h("b", {}, one.what), h("span", { class: "tag" }, one.resource), total), plot.element);
  return {
    element,
    update(now) {
      say(total, `${whole(now.values.reduce((sum, value) => sum + value, 0))} in all`);
      plot.update(now.names, now.values);
    },
  };
}

/** How long it is from the server's time to a time such as 2026-11-18 14:30:00Z. */
const until = (time, at_ms) => Math.max(0, Date.parse(time.replace(" ", "T")) - at_ms);

/** Windows are those of UTC. */
function label(start, window) {
  const text = new Date(start).toISOString();
  if (window === "month") return text.slice(0, 7);
  return window === "day" ? text.slice(5, 10) : `${text.slice(5, 10)} ${text.slice(11, 13)}h`;
}
