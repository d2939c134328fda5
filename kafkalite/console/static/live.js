// Refresh parts of a visible page, and suggest names. Every page works without this file.
const EVERY_MS = 5000;
const PAUSE_MS = 80;

async function fetched(address, signal) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, signal });
  if (!answer.ok) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// A part in use is not replaced: an opened table, or a link with the focus.
function isInUse(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open]") !== null;
}

async function renew() {
  const parts = [...document.querySelectorAll("[data-live][id]")].filter((part) => !isInUse(part));
  if (document.hidden || parts.length === 0) return;
  const page = await fetched(location.href);
  if (!page) return;
  for (const part of parts) {
    const fresh = page.getElementById(part.id);
    if (fresh && part.isConnected && !isInUse(part)) part.replaceWith(document.adoptNode(fresh));
  }
}

async function again() {
  try {
    await renew();
  } catch {
    // The server does not answer: keep the page and try again.
  }
  setTimeout(again, EVERY_MS);
}

function suggest(field) {
  const place = document.getElementById(field.dataset.suggest);
  let waiting = 0;
  let asked = new AbortController();
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      asked.abort();
      asked = new AbortController();
      const text = field.value.trim();
      if (!text) {
        place.replaceChildren();
        return;
      }
      try {
        const page = await fetched(`${field.form.action}?q=${encodeURIComponent(text)}`, asked.signal);
        const found = page?.getElementById("found");
        if (found) place.replaceChildren(...document.adoptNode(found).childNodes);
      } catch {
        // Another character was typed, or the server does not answer: the button still works.
      }
    }, PAUSE_MS);
  });
}

for (const field of document.querySelectorAll("[data-suggest]")) suggest(field);
if (document.querySelector("[data-live]")) setTimeout(again, EVERY_MS);
