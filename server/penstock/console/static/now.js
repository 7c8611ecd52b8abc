// The first view: how the server is, rates over time, who is limited now, and the last denials.

import { get } from "./api.js";
import { TimePlot } from "./chart.js";
import { card, choice, empty, follow, h, say } from "./dom.js";
import { clock, duration, isRule, limit, micros, percent, resource, short, whole } from "./format.js";
import { entityName } from "./names.js";

const LEAST_POINTS = 60;
const LATEST = 12;
const LOOKED_AT = 200;

export function nowView() {
  const status = h("div", { class: "status" });
  const tiles = ["Decisions", "Denied", "Answers", "Store"].map(makeTile);
  const rates = new TimePlot({
    label: "Decisions per second",
    format: (value) => short(value),
    stacked: true,
    series: [{ name: "admitted", style: "admitted" }, { name: "denied", style: "denied" }],
  });
  const times = new TimePlot({
    label: "Latency",
    format: (value) => micros(Math.round(value)),
    series: [
      { name: "answers, 99 % within", style: "answers-most" },
      { name: "answers, mean", style: "answers" },
      { name: "store, mean", style: "store" },
    ],
  });
  const limited = makeLimited();
  const denials = makeDenials();
  const element = h("div", { class: "view now" },
    h("h1", { class: "unseen" }, "Now"),
    status,
    h("div", { class: "tiles" }, ...tiles.map((tile) => tile.element)),
    h("div", { class: "pair" },
      card("Decisions per second", [], rates.element),
      card("Latency", [], times.element)),
    limited.element,
    denials.element);

  async function refresh(overview) {
    showStatus(status, overview);
    showRates(overview, rates, times, tiles);
    await Promise.all([limited.refresh(), denials.refresh()]);
  }
  return { element, refresh, title: "Now" };
}

function makeTile(name) {
  const value = h("p", { class: "value" }, "–");
  const more = h("p", { class: "more" }, "");
  const element = h("div", { class: "tile" }, h("h2", {}, name), value, more);
  return { element, update(text, note) { say(value, text); say(more, note); } };
}

function showStatus(status, { health, workers, rules, store, rates, started_ms, at_ms }) {
  const well = health.healthy && health.ready;
  const lately = rates.points.slice(-Math.ceil(60_000 / rates.step_ms));
  const storeErrors = lately.reduce((sum, point) => sum + point.store_errors, 0);
  const facts = [
    { key: "health", kind: well ? "good" : "bad", text: well ? "Healthy" : health.healthy ? "Not ready" : "Not healthy", note: health.reason },
    { key: "rules", kind: rules.last_load_failed ? "warn" : "", text: `${whole(rules.count)} ${rules.count === 1 ? "rule" : "rules"} in ${whole(rules.domains)} ${rules.domains === 1 ? "domain" : "domains"}`,
      note: rules.last_load_failed ? `the last load failed, the last good rules are in force: ${rules.error.split("\n")[0]}` : rules.about.join(" · ") },
    { key: "store", kind: storeErrors ? "warn" : "", text: { sqlite: "SQLite", dynamodb: "DynamoDB", memory: "Memory" }[store.kind] ?? store.kind,
      note: storeErrors ? `${whole(storeErrors)} errors in the last minute` : store.errors ? `no errors lately, ${whole(store.errors)} since the start` : "no errors" },
    { key: "workers", kind: workers.running < workers.wanted ? "warn" : "", text: `${workers.running} of ${workers.wanted} ${workers.wanted === 1 ? "process" : "workers"}`,
      note: `up ${duration(at_ms - started_ms)}` },
  ];
  follow(status, facts, (fact) => fact.key, () => {
    const text = h("b", {}, "");
    const note = h("span", {}, "");
    const element = h("p", {}, h("span", { class: "dot", "aria-hidden": "true" }), text, " ", note);
    return { element, update(fact) { element.className = `fact ${fact.kind}`; say(text, fact.text); say(note, fact.note); } };
  });
}

function showRates({ rates, totals }, plot, times, tiles) {
  const { step_ms: step, points } = rates;
  const missing = Math.max(0, LEAST_POINTS - points.length);
  const end = points.length ? points[points.length - 1].at_ms : Date.now();
  const at = [...Array.from({ length: missing }, (_, number) => end - (points.length + missing - 1 - number) * step), ...points.map((point) => point.at_ms)];
  const row = (read) => [...Array(missing).fill(null), ...points.map(read)];
  const perSecond = (count) => (count * 1000) / step;
  plot.update(at, [row((point) => perSecond(point.requests - point.denials)), row((point) => perSecond(point.denials))]);
  times.update(at, [row((point) => point.answer_p99_us), row((point) => point.answer_mean_us), row((point) => point.store_mean_us)]);
  const last = points[points.length - 1];
  const [decisions, denied, answers, store] = tiles;
  decisions.update(last ? `${short(perSecond(last.requests))}/s` : "–", `${whole(totals.requests)} since the start`);
  const share = last?.requests ? percent(last.denials / last.requests) : "0 %";
  denied.update(last ? `${short(perSecond(last.denials))}/s` : "–", `${share} of the last ${step / 1000} s`);
  denied.element.classList.toggle("alert", Boolean(last?.denials));
  answers.update(micros(last?.answer_mean_us), last?.answer_p99_us ? `99 % within ${micros(last.answer_p99_us)}` : "no requests");
  store.update(micros(last?.store_mean_us), last?.store_calls ? `${short(perSecond(last.store_calls))} calls/s` : "no calls");
}

function makeLimited() {
  const wanted = { by: "denials", of: "entity", over: "minute" };
  const pick = (name, legend, options) => choice(legend, options, wanted[name], (value) => { wanted[name] = value; refresh(); });
  const nothing = empty("");
  const head = h("tr", {});
  const body = h("tbody", {});
  const span = h("p", { class: "span" });
  const table = h("table", { class: "limited" }, h("caption", { class: "unseen" }, "The heaviest keys"), h("thead", {}, head), body);
  const element = card("Who is limited now", [
    pick("by", "Sort by", [["denials", "Denied"], ["requests", "Asked"]]),
    pick("of", "Count by", [["entity", "Entity"], ["rule", "Rule"], ["resource", "Resource"]]),
    pick("over", "Time", [["minute", "Minute"], ["hour", "Hour"]]),
  ], table, nothing, span);

  async function refresh() {
    const asked = { ...wanted };
    const answer = await get("top", asked);
    if (asked.by !== wanted.by || asked.of !== wanted.of || asked.over !== wanted.over) return;
    const names = { entity: "Entity", rule: "Rule", resource: "Resource" };
    const titles = [names[answer.of], "Denied of asked", "By which limit", "Wait"];
    head.replaceChildren(...titles.map((title) => h("th", { scope: "col" }, title)));
    const rows = answer.rows.filter((row) => row[answer.by] > 0);
    follow(body, rows, (row) => [answer.of, row.rule, row.entity, row.resource].join("\n"), makeTopRow);
    table.hidden = !rows.length;
    nothing.hidden = Boolean(rows.length);
    say(nothing, answer.by === "denials" ? `Nobody was limited in the last ${answer.over}.` : `No requests in the last ${answer.over}.`);
    say(span, rows.length ? `Counts of the last ${duration(answer.span_ms)}.` : "");
  }
  return { element, refresh };
}

function makeTopRow(row) {
  const name = row.entity !== null
    ? entityName(row.entity, row.resource)
    : h("span", { class: "name" }, row.rule ?? resource(row.resource));
  const place = row.entity === null ? null : h("span", { class: isRule(row.resource) ? "tag domain" : "tag" }, resource(row.resource));
  const bar = h("span", { class: "share", "aria-hidden": "true" }, h("span", {}));
  const counts = h("span", { class: "counts" });
  const by = h("td", { class: "by" });
  const wait = h("td", { class: "wait" });
  const element = h("tr", {}, h("th", { scope: "row" }, name, place), h("td", { class: "of" }, counts, bar), by, wait);
  return {
    element,
    update(now) {
      const more = now.error ? ` (up to ${whole(now.error)} too many)` : "";
      say(counts, `${whole(now.denials)} of ${whole(now.requests)}${more}`);
      bar.firstChild.style.setProperty("--share", now.requests ? now.denials / now.requests : 0);
      const last = now.last_denial;
      const whose = last && last.limited !== last.entity ? ` of ${last.limited}` : "";
      say(by, last ? `${limit(last.limit)}${whose}` : "–");
      say(wait, last ? duration(last.wait_ms) : "–");
    },
  };
}

export function makeDenials(entity = "") {
  const body = h("tbody", {});
  const nothing = empty("No denials since the start.");
  const titles = ["Last", "Who", "By which limit", "Times", "Wait"];
  const table = h("table", { class: "denials" }, h("caption", { class: "unseen" }, "The last denials, the latest first"),
    h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), body);
  const element = card("Last denials", [], table, nothing);

  async function refresh() {
    const { denials } = await get("denials", { limit: LOOKED_AT, entity });
    const rows = fold(denials).slice(0, LATEST);
    follow(body, rows, (row) => row.key, makeDenialRow);
    table.hidden = !rows.length;
    nothing.hidden = Boolean(rows.length);
  }
  return { element, refresh };
}

/** The same denial again and again is one row: the latest, and how often. */
function fold(denials) {
  const rows = new Map();
  for (const denial of denials) {
    const key = [denial.entity, denial.resource, denial.rule, denial.limited, denial.limit.name, denial.passed].join("\n");
    const known = rows.get(key);
    if (known) known.times += 1;
    else rows.set(key, { ...denial, key, times: 1 });
  }
  return [...rows.values()];
}

function makeDenialRow(denial) {
  const whose = denial.limited === denial.entity ? "" : ` of ${denial.limited}`;
  const time = h("time", {});
  const times = h("td", { class: "amount" });
  const wait = h("td", { class: "wait" });
  const element = h("tr", {},
    h("td", { class: "when" }, time),
    h("th", { scope: "row" }, entityName(denial.entity, denial.resource),
      h("span", { class: isRule(denial.resource) ? "tag domain" : "tag" }, resource(denial.resource))),
    h("td", { class: "by" }, `${limit(denial.limit)}${whose}`, denial.passed ? h("span", { class: "tag passed" }, "passed") : null),
    times, wait);
  return {
    element,
    update(now) {
      time.setAttribute("datetime", new Date(now.at_ms).toISOString());
      say(time, clock(now.at_ms));
      say(times, `${whole(now.times)} ×`);
      say(wait, duration(now.wait_ms));
    },
  };
}
