// Stored entities, and the search for one of them.

import { ApiError, get } from "./api.js";
import { card, empty, follow, h, once, say } from "./dom.js";
import { whole } from "./format.js";
import { entityLink, entityName } from "./names.js";

const PAGE = 100;
const FOUND = 8;
const MOST_PAGES = 50;

/** Entities whose names begin so, until there are enough. One answer may look at only a part. */
async function find(prefix, wanted, after = "") {
  const found = [];
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await get("entities", { prefix, limit: wanted - found.length, after });
    found.push(...answer.entities);
    after = answer.next;
    if (after === null || found.length >= wanted) break;
  }
  return { found, next: after };
}

export function entitiesView() {
  const body = h("tbody", {});
  const titles = ["Entity", "Parent", "Cascade", "Metadata"];
  const table = h("table", { class: "entities" }, h("caption", { class: "unseen" }, "Stored entities"),
    h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), body);
  const nothing = empty("");
  const count = h("p", { class: "span", "aria-live": "polite" });
  const more = h("button", { class: "quiet", type: "button", onclick: () => load(true) }, "Show more");
  const filter = h("input", { type: "search", placeholder: "Name begins with", "aria-label": "Name begins with", spellcheck: "false", oninput: once(() => load(false)) });
  const element = h("div", { class: "view" }, h("h1", {}, "Entities"), card("Stored entities", [filter], table, nothing, count, more));
  let rows = [];
  let next = "";
  let turn = 0;

  async function load(goesOn) {
    turn += 1;
    const mine = turn;
    const prefix = filter.value.trim();
    let problem = prefix ? "No stored entity begins so." : "No entities are stored. Rules need none.";
    try {
      const page = await find(prefix, PAGE, goesOn ? next : "");
      if (mine !== turn) return;
      rows = goesOn ? [...rows, ...page.found] : page.found;
      next = page.next;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (mine !== turn) return;
      [rows, next, problem] = [[], null, error.message];
    }
    follow(body, rows, (row) => row.name, makeRow);
    table.hidden = !rows.length;
    nothing.hidden = Boolean(rows.length);
    say(nothing, problem);
    more.hidden = next === null;
    say(count, rows.length ? `${whole(rows.length)} shown${next === null ? "" : ", there are more"}.` : "");
  }
  return { element, refresh: async () => { if (!turn) await load(false); }, title: "Entities" };
}

function makeRow(entity) {
  const pairs = Object.entries(entity.metadata).map(([key, value]) => `${key}=${value}`).join(" ");
  const parent = entity.parent === null ? "–" : entityName(entity.parent);
  const element = h("tr", {}, h("th", { scope: "row" }, entityName(entity.name)),
    h("td", {}, parent), h("td", {}, entity.cascade ? "yes" : "no"), h("td", { class: "metadata" }, pairs || "–"));
  return { element, update() {} };
}

/** The search field of every view: a list of names to choose from, and what was typed itself. */
export function startSearch(input, list) {
  let turn = 0;
  let active = -1;
  let looked = "";

  const options = () => [...list.children];
  const close = () => { list.hidden = true; active = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const open = (name) => { close(); input.value = ""; input.blur(); location.hash = entityLink(name); };

  function choose(index) {
    active = index;
    options().forEach((option, number) => option.setAttribute("aria-selected", String(number === index)));
    if (index >= 0) input.setAttribute("aria-activedescendant", options()[index].id);
  }

  /** What was typed itself, if the list is that of an earlier text. */
  function chosen() {
    const typed = input.value.trim();
    return !list.hidden && active >= 0 && looked === typed ? options()[active].querySelector(".name").textContent : typed;
  }

  async function look() {
    turn += 1;
    const mine = turn;
    const typed = input.value.trim();
    if (!typed) return close();
    let names = [];
    try {
      names = (await find(typed, FOUND)).found.map((entity) => entity.name);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
    if (mine !== turn || document.activeElement !== input) return undefined;
    looked = typed;
    const shown = [...new Set([...names, typed])];
    list.replaceChildren(...shown.map((name, number) => h("li", { id: `found-${number}`, role: "option", "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); open(name); } },
      h("span", { class: "name" }, name), names.includes(name) ? null : h("small", {}, "as typed"))));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    return choose(0);
  }

  input.addEventListener("input", once(look));
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = options().length;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && input.value.trim()) open(chosen());
    else if (!list.hidden && event.key === "ArrowDown") choose((active + 1) % count);
    else if (!list.hidden && event.key === "ArrowUp") choose((active + count - 1) % count);
    else return;
    event.preventDefault();
  });
}
