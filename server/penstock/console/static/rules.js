// The rules in force, with what hits them.

import { get } from "./api.js";
import { card, choice, empty, follow, h, once, say } from "./dom.js";
import { limit, whole } from "./format.js";

const PAGE = 100;

export function rulesView() {
  const wanted = { contains: "", over: "minute", limit: PAGE };
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Rules that contain", spellcheck: "false",
    oninput: once(() => { wanted.contains = filter.value.trim(); wanted.limit = PAGE; return refresh(); }) });
  const over = choice("Time", [["minute", "Minute"], ["hour", "Hour"]], wanted.over, (value) => { wanted.over = value; refresh(); });
  const body = h("tbody", {});
  const titles = ["Rule", "Limits", "Asked", "Denied"];
  const table = h("table", { class: "rules" }, h("caption", { class: "unseen" }, "Rules"),
    h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), body);
  const nothing = empty("No such rule.");
  const more = h("button", { class: "quiet", type: "button", onclick: () => { wanted.limit = Math.min(1000, wanted.limit + 3 * PAGE); refresh(); } }, "Show more");
  const count = h("p", { class: "span" });
  const about = h("p", { class: "span" });
  const failure = h("p", { class: "problem lines" });
  const element = h("div", { class: "view" }, h("h1", {}, "Rules in force"), about, failure,
    card("Rules", [filter, over], table, nothing, count, more));

  async function refresh(overview) {
    if (overview) {
      say(about, overview.rules.about.join(" · "));
      say(failure, overview.rules.error ? `The last load failed, the last good rules are in force:\n${overview.rules.error}` : "");
    }
    const asked = { ...wanted };
    const answer = await get("rules", asked);
    if (asked.contains !== wanted.contains || asked.over !== wanted.over) return;
    follow(body, answer.rules.map(keyed), (row) => row.key, makeRow);
    table.hidden = !answer.rules.length;
    nothing.hidden = Boolean(answer.rules.length);
    more.hidden = answer.next === null || wanted.limit >= 1000;
    say(count, answer.rules.length < answer.count ? `${whole(answer.rules.length)} of ${whole(answer.count)} rules. Filter to find others.` : "");
  }
  return { element, refresh, title: "Rules" };
}

/** A changed rule is another row. Two rules may have one name, so the place counts, too. */
function keyed(row, place) {
  const { requests, denials, error, ...rule } = row;
  return { ...row, key: `${place} ${JSON.stringify(rule)}` };
}

function makeRow(row) {
  const modes = [["shadow", row.shadow_mode], ["quota", row.quota_mode]].filter(([, is]) => is).map(([name]) => h("span", { class: "tag" }, name));
  const limits = row.limits.map((one) => h("span", { class: "limit" }, limit(one), one.burst === one.tokens ? null : h("small", {}, ` burst ${whole(one.burst)}`)));
  const asked = h("td", { class: "number" });
  const denied = h("td", { class: "number" });
  const rest = row.mapping ?? (row.limits.length ? "" : "unlimited");
  const element = h("tr", {}, h("th", { scope: "row" }, h("span", { class: "name" }, row.rule), ...modes),
    h("td", { class: "limits" }, ...limits, rest ? h("span", { class: "limit" }, rest) : null), asked, denied);
  return {
    element,
    update(now) {
      say(asked, counted(now.requests, now.error));
      say(denied, counted(now.denials, now.error));
      denied.classList.toggle("some", now.denials > now.error);
    },
  };
}

/** A count, which may be too high by an error. */
function counted(count, error) {
  if (!count) return "–";
  return error < count ? `${whole(count)}${error ? ` (up to ${whole(error)} too many)` : ""}` : `at most ${whole(count)}`;
}
