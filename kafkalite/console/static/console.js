// Keyboard shortcuts. Every page works without this file.
const PLACES = { h: "", t: "topics", g: "groups", l: "letters", f: "track", p: "policies", b: "brokers", z: "classic" };
let afterG = false;

function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input, select, textarea") !== null;
}

function follow(selector) {
  const link = document.querySelector(selector);
  if (link) link.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const place = afterG ? PLACES[event.key] : undefined;
  afterG = !afterG && event.key === "g";
  if (place !== undefined) {
    event.preventDefault();
    location.assign(document.documentElement.dataset.base + place);
  } else if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "[") follow("a[rel=prev]");
  else if (event.key === "]") follow("a[rel=next]");
  else if (event.key === "?") document.getElementById("keys").showModal();
});
