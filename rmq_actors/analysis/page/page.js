"use strict";
(() => {
  const root = document.documentElement;

  // The page checks itself: every plot that was made is here, and has marks that can be seen.
  function checkPlots() {
    const expected = root.dataset.expected.split(" ").filter(Boolean);
    const empty = [];
    const counts = [];
    for (const id of expected) {
      const plot = document.getElementById(id);
      const marks = plot ? [...plot.querySelectorAll(".mark")].filter(isVisible) : [];
      counts.push(`${id}:${marks.length}`);
      if (plot) plot.dataset.marks = marks.length;
      if (!marks.length) empty.push(id);
    }
    const strangers = [...document.querySelectorAll("svg.plot")].filter((plot) => !expected.includes(plot.id));
    empty.push(...strangers.map((plot) => plot.id));
    root.dataset.marks = counts.join(" ");
    root.dataset.plots = empty.length ? `empty: ${empty.join(" ")}` : "ok";
    if (empty.length) {
      const alarm = document.createElement("p");
      alarm.className = "alarm";
      alarm.textContent = `These plots show nothing: ${empty.join(", ")}`;
      document.body.prepend(alarm);
      console.error(alarm.textContent);
    }
  }

  function isVisible(mark) {
    const box = mark.getBoundingClientRect();
    return box.width > 0 || box.height > 0;
  }

  const tip = document.getElementById("tip");
  function showTip(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  }
  function hideTip() {
    tip.hidden = true;
  }

  function watchMarks() {
    for (const mark of document.querySelectorAll("svg .mark:not(.line)")) {
      const title = mark.querySelector("title");
      const text = title.textContent;
      mark.setAttribute("aria-label", text);
      // Else the browser's own tip would come on top of this one.
      title.remove();
      mark.addEventListener("pointermove", (event) => {
        event.stopPropagation();
        showTip(event, text);
      });
      mark.addEventListener("pointerleave", hideTip);
    }
  }

  function formatBytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return `${+value.toPrecision(3)} ${units[unit]}`;
  }

  function watchLag(hover) {
    const data = JSON.parse(hover.dataset.lag);
    const plot = hover.closest("svg");
    const line = hover.querySelector(".hover-line");
    plot.addEventListener("pointermove", (event) => {
      const scale = plot.viewBox.baseVal.width / plot.getBoundingClientRect().width;
      const x = (event.clientX - plot.getBoundingClientRect().left) * scale;
      if (x < data.left || x > data.right) return leave();
      const time = ((x - data.left) / (data.right - data.left)) * data.end_ms;
      const values = data.series.map((series) => {
        const value = series.values[Math.floor((time - series.first_ms) / series.bucket_ms)];
        return `${series.name}: ${value === undefined ? "not there yet" : formatBytes(value)}`;
      });
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.style.visibility = "visible";
      showTip(event, [`${(time / 1000).toFixed(2)} s`, ...values].join("\n"));
    });
    function leave() {
      line.style.visibility = "hidden";
      hideTip();
    }
    plot.addEventListener("pointerleave", leave);
  }

  function watchTable(table) {
    const body = table.tBodies[0];
    const search = document.getElementById("runs-search");
    const failedOnly = document.getElementById("runs-failed");
    const shown = document.getElementById("runs-shown");
    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        const keep = words.every((word) => text.includes(word)) && !(failedOnly.checked && row.dataset.result === "passed");
        row.hidden = !keep;
        count += keep;
      }
      shown.textContent = `${count} of ${body.rows.length} rows`;
    }
    search.addEventListener("input", filter);
    failedOnly.addEventListener("change", filter);
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      cell.querySelector("button").addEventListener("click", () => {
        const direction = cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", direction);
        const value = (row) => row.cells[index].dataset.value ?? row.cells[index].textContent;
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...body.rows].sort((a, b) => sign * value(a).localeCompare(value(b), "en", { numeric: true }));
        body.append(...rows);
      });
    });
    filter();
  }

  function watchCommand(button) {
    button.addEventListener("click", () => {
      const text = button.parentElement.querySelector("pre").textContent;
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      // The newer clipboard interface is not there for pages opened from a file.
      button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl+C";
      field.remove();
    });
  }

  checkPlots();
  watchMarks();
  document.querySelectorAll(".hover").forEach(watchLag);
  document.querySelectorAll("table.runs").forEach(watchTable);
  document.querySelectorAll(".command button").forEach(watchCommand);
})();
