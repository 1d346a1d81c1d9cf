// The page: which of its two views is shown, the key, the theme, and what is said when the server does not answer.

import * as api from "./api";
import { Compose } from "./compose";
import { announce, byId, Kept, show } from "./dom";
import { JobView } from "./job";
import { count } from "./words";

const theme = new Kept(() => localStorage, "cudal1.theme");
const THEMES = ["", "light", "dark"];
const THEME_NAMES: Record<string, string> = { "": "as the system", light: "light", dark: "dark" };
const THEME_SIGNS: Record<string, string> = { "": "◐", light: "☀", dark: "☾" };

let settings: api.Settings | undefined;
let retry: () => void = () => {};
let countdown = 0;

let shared = ""; // id of a job that an earlier request already started

const compose = new Compose((job) => {
  shared = job.shared ? job.id : "";
  location.hash = `job=${job.id}`;
}, refused);
const view = new JobView({
  lost: (why, seconds, again) => lost(`${sentence(why)} The job does not need this page to go on.`, seconds, again),
  found,
  refused,
  again: (source) => {
    compose.load(source);
    location.hash = "";
  },
  settings: () => settings,
});

/** The connection is gone: says so, and counts down to the next attempt. */
function lost(why: string, seconds: number, again: () => void): void {
  clearInterval(countdown);
  retry = again;
  let left = seconds;
  const tick = () => {
    byId("banner-text").textContent = `${sentence(why)} Trying again ${left > 0 ? `in ${count(left, "second")}` : "now"}.`;
    left -= 1;
    if (left < 0) clearInterval(countdown);
  };
  if (byId("banner").hidden) announce("The connection is lost.");
  tick();
  countdown = window.setInterval(tick, 1000);
  show(byId("banner-retry"), true);
  show(byId("banner"), true);
}

function found(): void {
  clearInterval(countdown);
  if (!byId("banner").hidden) announce("Connected.");
  show(byId("banner"), false);
}

/** The server said no, for good. */
function refused(refusal: api.Refusal): void {
  clearInterval(countdown);
  byId("banner-text").textContent = sentence(refusal.message);
  show(byId("banner-retry"), refusal.passing);
  retry = route;
  show(byId("banner"), true);
  if (refusal.status !== 401) return;
  byId("banner-text").textContent = api.key.get()
    ? "The server does not know this API key."
    : "This server wants an API key: `cudal1 serve --add-key NAME` makes one.";
  keyForm(true);
  byId("key").focus();
}

function keyForm(visible: boolean): void {
  show(byId("key-form"), visible);
  show(byId("key-forget"), !visible && Boolean(api.key.get()));
}

const sentence = (text: string): string => text.replace(/[^.!?]$/, "$&.");

let turn = 0;

/** Shows what the address asks for. */
async function route(): Promise<void> {
  const mine = ++turn;
  const id = /^#job=([0-9a-f]{1,64})$/.exec(location.hash)?.[1];
  found();
  view.close();
  if (!id) {
    show(byId("job"), false);
    show(byId("compose"), true);
    document.title = "cudal1";
    await compose.list();
    return;
  }
  try {
    const job = await api.getJob(id);
    if (mine !== turn) return;
    show(byId("compose"), false);
    show(byId("job"), true);
    show(byId("shared"), job.id === shared);
    view.open(job);
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof api.Refusal)) throw error;
    if (error.passing) return lost(error.message, Math.max(3, error.retryAfter), () => void route());
    show(byId("job"), false);
    show(byId("compose"), true);
    await compose.list();
    refused(error.status === 404 ? new api.Refusal(404, `There is no job ${id.slice(0, 8)} for this key.`) : error);
  }
}

function dress(): void {
  const chosen = THEMES.includes(theme.get()) ? theme.get() : "";
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  const button = byId("theme");
  button.textContent = THEME_SIGNS[chosen]!;
  button.setAttribute("aria-label", `Colours: ${THEME_NAMES[chosen]}`);
  button.title = button.getAttribute("aria-label")!;
}

async function start(): Promise<void> {
  dress();
  byId("theme").addEventListener("click", () => {
    theme.set(THEMES[(THEMES.indexOf(theme.get()) + 1) % THEMES.length]!);
    dress();
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address says which job is shown
    byId("content").focus();
  });
  byId("home").addEventListener("click", (event) => {
    event.preventDefault();
    history.pushState(null, "", location.pathname);
    void move();
  });
  byId("banner-retry").addEventListener("click", () => retry());
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = byId<HTMLInputElement>("key");
    api.key.set(field.value.trim());
    field.value = "";
    keyForm(!api.key.get());
    void route();
  });
  byId("key-forget").addEventListener("click", () => {
    api.key.set("");
    history.pushState(null, "", location.pathname);
    void route();
    keyForm(true);
    byId("key").focus();
  });
  window.addEventListener("hashchange", () => void move());
  window.addEventListener("popstate", () => void move());
  window.addEventListener("online", () => retry());
  await settle();
}

/** Another view: its heading gets the focus, as on a new page. */
async function move(): Promise<void> {
  await route();
  byId(byId("job").hidden ? "compose-title" : "job-title").focus();
}

/** What the server says of itself, asked for until it answers. */
async function settle(): Promise<void> {
  try {
    settings = await api.settings();
  } catch (error) {
    if (!(error instanceof api.Refusal)) throw error;
    show(byId("compose"), !location.hash);
    return lost(error.message, 3, () => void settle());
  }
  compose.configure(settings);
  keyForm(settings.needs_key && !api.key.get());
  await route();
}

void start();
