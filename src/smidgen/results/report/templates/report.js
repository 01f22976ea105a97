"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  // Light or dark: as the system has it, until the button says otherwise.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();

  // What a bar or a dot stands for: by pointer, by touch, and by the arrow keys.
  const hint = "Point at, tap, or use the arrow keys for what a bar or a dot stands for.";
  for (const figure of all(".chart")) {
    const readout = figure.querySelector(".readout");
    const show = (mark) => {
      all(".at", figure).forEach((other) => other.classList.remove("at"));
      readout.classList.toggle("hint", !mark);
      readout.textContent = mark ? mark.querySelector("title").textContent.replace(/\n/g, " · ") : hint;
      if (mark) mark.classList.add("at");
    };
    for (const plot of all(".plot", figure)) {
      const marks = all("svg :is(rect, circle)", plot).filter((mark) => mark.querySelector("title"));
      if (!marks.length) continue;
      let place = -1;
      const go = (to) => {
        place = Math.max(0, Math.min(marks.length - 1, to));
        show(marks[place]);
      };
      const find = (event) => {
        const found = marks.indexOf(event.target.closest("rect, circle"));
        if (found >= 0 && found !== place) go(found);
      };
      plot.tabIndex = 0;
      plot.setAttribute("role", "group");
      plot.setAttribute("aria-label", figure.querySelector("h3").textContent + ". " + hint);
      plot.addEventListener("pointermove", find);
      plot.addEventListener("click", find);
      plot.addEventListener("keydown", (event) => {
        const to = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: marks.length - 1 }[event.key];
        if (event.key === "Escape") {
          place = -1;
          show(null);
        } else if (to !== undefined) {
          event.preventDefault();
          go(to);
        }
      });
      show(null);
    }
  }

  // Tables by any column, numbers by value, and back.
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    all("thead th", table).forEach((head, column) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.textContent = head.textContent;
      head.replaceChildren(sort);
      const value = (row) => {
        const cell = row.cells[column];
        const number = cell.dataset.number;
        return number !== undefined ? Number(number) : cell.textContent.trim();
      };
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      };
      sort.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !head.classList.contains("number"));
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = Array.from(body.rows).sort((a, b) => (up ? compare(a, b) : compare(b, a)));
        body.append(...rows);
      });
    });
  }

  // Where the reader is.
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = links.get(entry.target.id);
      if (!link || !entry.isIntersecting) continue;
      links.forEach((other) => other.removeAttribute("aria-current"));
      link.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  all("main > section[id]").forEach((section) => seen.observe(section));
})();
