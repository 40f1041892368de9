// Adds to the pages what HTML alone cannot do: changes as they happen, countdowns, and keys. Every page works without it.

const body = document.body;
const pill = document.getElementById("live");
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// The gateway's clock is the only clock: what this browser's clock says is corrected by the difference.
let skew = Number(body.dataset.now || Date.now()) - Date.now();
const now = () => Date.now() + skew;

const two = (n) => String(n).padStart(2, "0");
function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d`;
}
function ago(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 5) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

const first = new WeakMap();
function ring(time, left) {
  if (!first.has(time)) first.set(time, Math.max(left, 1000));
  const part = Math.min(1, left / first.get(time));
  let svg = $("svg", time);
  if (!svg) {
    svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", "ring");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    for (let i = 0; i < 2; i++) {
      const circle = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      for (const [name, value] of [["cx", 12], ["cy", 12], ["r", 9]]) circle.setAttribute(name, value);
      svg.append(circle);
    }
  }
  const around = 2 * Math.PI * 9;
  svg.lastChild.setAttribute("stroke-dasharray", `${(part * around).toFixed(1)} ${around.toFixed(1)}`);
  return svg;
}

function tick() {
  for (const time of $$("time[data-until]")) {
    const left = Number(time.dataset.until) - now();
    time.title ||= time.textContent;
    const text = left > 0 ? span(left) : time.dataset.over || "now";
    if (time.dataset.shown === text) continue;
    time.dataset.shown = text;
    if ("ring" in time.dataset && left > 0) time.replaceChildren(ring(time, left), text);
    else time.textContent = text;
  }
  for (const time of $$("time[data-at]")) {
    time.title ||= time.textContent;
    const text = ago(now() - Number(time.dataset.at));
    if (time.textContent !== text) time.textContent = text;
  }
}

// Changes. A part in which somebody types is not replaced: it says that there is something new.
const waiting = new Map();
const isBusy = (region) =>
  region.contains(document.activeElement) && document.activeElement.matches("input,textarea,select,summary") ||
  $$("textarea,input:not([type=hidden]),select", region).some((field) =>
    field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
      : field.tagName === "SELECT" ? false : field.value !== field.defaultValue);

function put(region, html) {
  if (region.innerHTML === html) return;
  const open = $$("details", region).map((one) => one.open);
  const holder = document.createElement("template");
  holder.innerHTML = html;
  const had = region.contains(document.activeElement) && document.activeElement.getAttribute("href");
  region.replaceChildren(holder.content);
  $$("details", region).forEach((one, place) => { if (open[place]) one.open = true; });
  if (had) $$("a[href]", region).find((link) => link.getAttribute("href") === had)?.focus();
  region.classList.remove("fresh");
  void region.offsetWidth;
  if (region.id !== "nav" && region.id !== "banner") region.classList.add("fresh");
  tick();
}

function offer() {
  let button = $("#updates");
  if (!waiting.size) return button?.remove();
  if (button) return;
  button = document.createElement("button");
  button.id = "updates";
  button.className = "updates";
  button.textContent = "This page has changed. Show the changes (u)";
  button.addEventListener("click", apply);
  $("main").prepend(button);
}
function apply() {
  for (const [id, html] of waiting) {
    const region = document.getElementById(id);
    if (region) put(region, html);
  }
  waiting.clear();
  offer();
}

function title(text) {
  const count = $("[data-count=approvals]")?.textContent;
  document.title = `${count ? `(${count}) ` : ""}${text} · Sluicegate`;
}
let heading = document.title.replace(/ · Sluicegate$/, "");

function take(change) {
  skew = change.now - Date.now();
  for (const { id, html } of change.regions) {
    let region = document.getElementById(id);
    if (!region) {
      region = document.createElement("div");
      region.id = id;
      region.className = "region";
      region.dataset.live = "";
      $("main").append(region);
    }
    if (isBusy(region)) {
      const holder = document.createElement("template");
      holder.innerHTML = html;
      if (holder.innerHTML !== region.innerHTML) waiting.set(id, html);
    } else {
      waiting.delete(id);
      put(region, html);
    }
  }
  for (const region of $$("main [data-live]")) {
    if (!change.all.includes(region.id) && !isBusy(region)) region.remove();
  }
  heading = change.title;
  title(heading);
  offer();
}

function say(word, state) {
  if (!pill) return;
  pill.hidden = false;
  pill.textContent = word;
  pill.className = `pill ${state}`;
}

let source, cursor = body.dataset.cursor, polling;
function follow() {
  if (!body.dataset.page || source) return;
  const address = `/ui/stream?page=${encodeURIComponent(body.dataset.page)}&after=${encodeURIComponent(cursor)}`;
  source = new EventSource(address);
  source.addEventListener("open", () => { say("Live", "on"); stopPolling(); });
  source.addEventListener("regions", (event) => { cursor = event.lastEventId || cursor; take(JSON.parse(event.data)); });
  source.addEventListener("clock", (event) => { skew = Number(event.data) - Date.now(); });
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) { source = undefined; say("Offline", "off"); poll(); }
    else say("Reconnecting", "");
  });
}
function pause() {
  source?.close();
  source = undefined;
  stopPolling();
  say("Paused", "");
}
function stopPolling() { clearInterval(polling); polling = undefined; }
// Without a stream, the page is read again from time to time.
function poll() {
  polling ??= setInterval(async () => {
    try {
      const answer = await fetch(body.dataset.page, { headers: { accept: "text/html" } });
      if (answer.redirected) return location.reload();
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const regions = $$("[data-live]", page).map((one) => ({ id: one.id, html: one.innerHTML }));
      cursor = page.body.dataset.cursor;
      take({ now: Number(page.body.dataset.now), regions, all: regions.map((one) => one.id), title: heading });
      stopPolling();
      follow();
    } catch { say("Offline", "off"); }
  }, 10000);
}
// A hidden page needs no connection: browsers allow only a few to one host.
let hiding;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(pause, 60000);
  else follow();
});
addEventListener("pagehide", () => source?.close());

// Signing in: the code of the link stands after the `#`, which no server sees. It is taken off the address at once.
const secret = $("#sign-in #secret");
if (secret && /^#[\w-]{43}$/.test(location.hash)) {
  secret.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  $("#from-link").hidden = false;
  $("#sign-in button").focus();
}

// Keys. Single keys can be turned off, and never count while somebody types.
const off = $("#keys-off");
const stored = () => { try { return localStorage.getItem("sluice-keys") === "off"; } catch { return false; } };
if (off) {
  off.checked = stored();
  off.addEventListener("change", () => { try { localStorage.setItem("sluice-keys", off.checked ? "off" : "on"); } catch { /* kept for this page only */ } });
}
let here = -1, gone = 0;
const items = () => $$("[data-item]");
function move(by) {
  const all = items();
  if (!all.length) return;
  all[here]?.classList.remove("here");
  here = Math.max(0, Math.min(all.length - 1, here + by));
  all[here].classList.add("here");
  all[here].scrollIntoView({ block: "nearest" });
  (all[here].matches("a") ? all[here] : $("a,button,input", all[here]))?.focus({ preventScroll: true });
}
const point = (key) => {
  const found = items()[here] && $(`[data-key=${key}]`, items()[here]) || $(`[data-key=${key}]`);
  found?.scrollIntoView({ block: "center" });
  found?.focus();
};
const pages = { o: "/ui", a: "/ui/approvals", p: "/ui/pending", d: "/ui/dead", l: "/ui/alerts", s: "/ui/sessions" };
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && $("#go")) {
    event.preventDefault();
    $(".menu").open = true;
    return $("#go").focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || off?.checked || !body.dataset.page) return;
  if (event.target.matches?.("input:not([type=checkbox]):not([type=radio]),textarea,select")) return;
  if (Date.now() - gone < 1200 && pages[event.key]) { gone = 0; return location.assign(pages[event.key]); }
  const does = {
    g: () => { gone = Date.now(); }, j: () => move(1), k: () => move(-1), u: apply,
    a: () => point("a"), r: () => point("r"), c: () => point("c"),
    x: () => items()[here] && $("input[type=checkbox]", items()[here])?.click(),
    F: () => location.assign("/ui/freeze"), "/": () => $("[data-filter]")?.focus(), "?": () => $("#keys").showModal(),
  }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
});
// The menu closes when somebody goes on elsewhere.
document.addEventListener("click", (event) => { const menu = $(".menu[open]"); if (menu && !menu.contains(event.target)) menu.open = false; });

tick();
setInterval(tick, 500);
title(heading);
follow();
