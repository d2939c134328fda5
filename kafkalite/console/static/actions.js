// Watch jobs, copy to the clipboard, select all. Pages work without this file.
const job = document.querySelector("[data-job]");

async function watch() {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${document.documentElement.dataset.base}jobs/${job.dataset.job}`, { headers: { Accept: "application/json" } });
    const row = (await answer.json()).job;
    if (!row || row.state !== "running") {
      location.reload();
      return;
    }
    const done = document.querySelector("[data-done]");
    done.textContent = row.done.toLocaleString("en");
    const bar = document.querySelector("progress");
    if (row.total) bar.value = row.done;
  } catch {
    // the next interval tries again
  }
}

if (job) setInterval(watch, 1000);

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.nextElementSibling.textContent);
    button.textContent = "Copied";
  });
}

for (const box of document.querySelectorAll("[data-all]")) {
  box.addEventListener("change", () => {
    for (const one of document.querySelectorAll("input[name=letter]")) one.checked = box.checked;
  });
}

for (const field of document.querySelectorAll("[data-into]")) {
  field.closest("[data-needs-script]").hidden = false;
  field.addEventListener("change", async () => {
    if (field.files.length) field.form.elements[field.dataset.into].value = await field.files[0].text();
  });
}
