// A topic live: polls for new records and shows them as text. It pauses while the page is hidden.
const ROWS_MAX = 500;
const root = document.querySelector("[data-tail]");
const body = root.querySelector("tbody");
const field = root.querySelector("input[name=q]");
const pause = root.querySelector("[data-pause]");
const said = root.querySelector("[data-said]");
const counts = { shown: 0, leftOut: 0 };
const looks = [];
let after = root.dataset.after;
let paused = false;
let asking = null;
let timer = 0;
let failures = 0;

function cell(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function bytes(shown) {
  const made = document.createElement("td");
  made.className = "bytes";
  if (shown.kind === "null" || shown.kind === "empty") made.append(cell("span", shown.kind, "tag"));
  else made.append(cell("code", shown.text + (shown.cut ? " …" : "")));
  return made;
}

function add(record) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  const link = cell("a", `${record.partition}-${record.offset}`);
  const place = `topics/${encodeURIComponent(record.topic)}/messages/${record.partition}/${record.offset}`;
  link.href = document.documentElement.dataset.base + place;
  head.append(link);
  const when = record.timestamp > 0 ? new Date(record.timestamp).toISOString().replace("T", " ") : "–";
  row.append(head, cell("td", when, "time"), bytes(record.key), bytes(record.value));
  row.append(cell("td", record.headers.join(", "), "bytes"));
  body.prepend(row);
  counts.shown += 1;
  while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
}

function tell() {
  const span = looks.length > 1 ? (looks.at(-1).at - looks[0].at) / 1000 : 0;
  const rate = span > 0 ? looks.slice(1).reduce((sum, look) => sum + look.passed, 0) / span : 0;
  const state = paused ? "paused" : document.hidden ? "idle" : "live";
  said.textContent = `${state} · ${counts.shown} shown · ${counts.leftOut} skipped at most · about ${Math.round(rate)}/s`;
}

async function look() {
  clearTimeout(timer);
  if (asking || paused || document.hidden) return;
  asking = new AbortController();
  const query = new URLSearchParams({ after, q: field.value, partition: root.dataset.partition });
  let wait_ms = 0;
  try {
    const answer = await fetch(`${location.pathname}?${query}`, {
      headers: { Accept: "application/json" },
      signal: asking.signal,
    });
    const page = await answer.json();
    if (!answer.ok) throw new Error(page.why);
    failures = 0;
    after = page.after;
    page.records.forEach(add);
    counts.leftOut += page.left_out;
    looks.push({ at: performance.now(), passed: page.passed });
    if (looks.length > 10) looks.shift();
    tell();
    wait_ms = page.waited ? 0 : 1000;
  } catch (error) {
    if (error.name !== "AbortError") {
      failures += 1;
      said.textContent = `${error.message}; retrying`;
      wait_ms = Math.min(1000 * 2 ** failures, 30000);
    }
  }
  asking = null;
  timer = setTimeout(look, wait_ms);
}

// The filter or state has changed: discard the pending answer; its records come with the next one.
function restart() {
  looks.length = 0;
  if (asking) asking.abort();
  else look();
  tell();
}

pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Resume" : "Pause";
  restart();
});
field.addEventListener("input", restart);
root.querySelector("[data-clear]").addEventListener("click", () => {
  body.replaceChildren();
  counts.shown = 0;
  counts.leftOut = 0;
  tell();
});
root.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", restart);
root.querySelectorAll("[hidden]").forEach((part) => part.removeAttribute("hidden"));
tell();
look();
