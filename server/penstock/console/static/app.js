// Shows the view that the address names, and keeps it up to date.

import { ApiError, get } from "./api.js";
import { auditView } from "./audit.js";
import { say } from "./dom.js";
import { entitiesView, startSearch } from "./entities.js";
import { entityView } from "./entity.js";
import { duration } from "./format.js";
import { noteValues } from "./names.js";
import { nowView } from "./now.js";
import { rulesView } from "./rules.js";

const EVERY_MS = 2_000;
const ZONES = `Times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}, usage in UTC`;
const THEME = "penstock-theme";
const THEMES = { auto: "as the system", light: "light", dark: "dark" };

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
let view = null;
let isLive = true;
let timer = 0;
let turn = 0;

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const views = { "": nowView, rules: rulesView, entities: entitiesView, audit: auditView };
  if (name === "entity" && rest[0]) return entityView(rest[0], rest[1]);
  return (views[name] ?? nowView)();
}

function show() {
  if (location.hash === "#main") return;
  const isFirst = view === null;
  view = route();
  main.replaceChildren(view.element);
  document.title = `${view.title} · Penstock`;
  const here = location.hash.split("/").slice(0, 2).join("/") || "#/";
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === here || (here === "#/entity" && link.getAttribute("href") === "#/entities");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!isFirst) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  turn += 1;
  const mine = turn;
  const shown = view;
  try {
    const overview = await get("overview");
    noteValues(overview.values);
    if (shown === view) await shown.refresh(overview);
    if (mine !== turn) return;
    say(document.getElementById("about"), `Penstock ${overview.version}, up ${duration(overview.at_ms - overview.started_ms)} · ${ZONES}`);
    trouble.hidden = true;
    main.dataset.state = "shown";
  } catch (error) {
    if (mine !== turn) return;
    tell(error);
  } finally {
    if (mine === turn && isLive && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
  }
}

function tell(error) {
  const reason = error instanceof ApiError ? error.message : "the server does not answer";
  trouble.hidden = false;
  say(trouble, `What you see may be old: ${reason}.${isLive ? " Trying again." : ""}`);
  if (!(error instanceof ApiError) && !(error instanceof TypeError)) throw error;
}

function startLive(button) {
  const set = (live) => {
    isLive = live;
    button.setAttribute("aria-pressed", String(live));
    say(button.querySelector(".text"), live ? "Live" : "Paused");
    if (live) refresh();
    else clearTimeout(timer);
  };
  button.addEventListener("click", () => set(!isLive));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isLive) refresh(); });
}

function startTheme(button) {
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
    button.title = `Colours: ${THEMES[theme]}`;
    localStorage.setItem(THEME, theme);
  };
  const kept = localStorage.getItem(THEME);
  set(kept in THEMES ? kept : "auto");
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    set(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
  });
}

const search = document.getElementById("search");
startSearch(search, document.getElementById("found"));
startLive(document.getElementById("live"));
startTheme(document.getElementById("theme"));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    search.focus();
  }
});
window.addEventListener("hashchange", show);
// What a click has begun, such as another filter, may fail as well.
window.addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof ApiError) && !(event.reason instanceof TypeError)) return;
  event.preventDefault();
  tell(event.reason);
});
show();
