// Look, predictions, contents and search. Without this script every page can still be read.
{
  const remembered = {
    get(key) {
      try {
        return localStorage.getItem(`gspo-edu-${key}`);
      } catch {
        return null; // storage is forbidden: nothing is kept from page to page
      }
    },
    set(key, value) {
      try {
        localStorage.setItem(`gspo-edu-${key}`, value);
      } catch {}
    },
  };

  // --- Light and dark
  const root = document.documentElement;
  const theme = document.querySelector(".theme");
  const isDark = () =>
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const named = () => (theme.textContent = isDark() ? "Light" : "Dark");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered.set("theme", root.dataset.theme);
    named();
  });
  named();

  // --- Predictions: the outcome opens once there is one
  const normal = (text) => text.replace(/\s/g, "").replace(/[−–]/g, "-").replace(",", ".");
  const DECIMAL = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  // What is wrong with a typed number, or nothing.
  const complaint = (text) => {
    const guess = normal(text);
    if (!DECIMAL.test(guess) || !Number.isFinite(Number(guess))) return "Give a number, such as 0.25.";
    const [, whole, part] = text.trim().match(/^([1-9]\d*),(\d{3})$/) ?? [];
    return part ? `Write ${whole}${part} or ${whole}.${part}: the comma can mean either.` : "";
  };
  const reveal = (form, guess) => {
    const outcome = form.nextElementSibling;
    for (const item of outcome.querySelectorAll("[data-option]")) {
      const option = item.dataset.option;
      const same = option === guess || (guess !== "" && Number(option) === Number(guess));
      item.classList.toggle("mine", same);
    }
    form.querySelector("[role=status]").textContent = `You predicted: ${guess}`;
    outcome.open = true;
  };
  for (const form of document.querySelectorAll(".question")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = String(new FormData(form).get("guess") ?? "");
      const isNumber = form.querySelector("input[type=text]") !== null;
      const wrong = isNumber ? complaint(given) : given === "" ? "Choose one." : "";
      if (wrong) {
        form.querySelector("[role=status]").textContent = wrong;
        return;
      }
      const guess = isNumber ? normal(given) : given;
      remembered.set(form.id, guess);
      reveal(form, guess);
    });
    const before = remembered.get(form.id);
    if (before !== null) {
      const radio = form.querySelector(`input[value="${CSS.escape(before)}"]`);
      if (radio) radio.checked = true;
      else if (form.guess.type === "text") form.guess.value = before;
      reveal(form, before);
    }
  }

  // --- A link to a place inside what is folded opens it
  const unfold = () => {
    const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!place) return;
    for (let at = place.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    place.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  // --- Contents: open where there is room beside the text
  const contents = document.querySelector(".contents");
  if (contents) {
    const wide = matchMedia("(min-width: 1200px)");
    const fit = () => (contents.open = wide.matches);
    wide.addEventListener("change", fit);
    fit();
  }

  // --- What is too wide can be scrolled by keyboard
  const scrollable = () => {
    for (const node of document.querySelectorAll("pre, .scroll, .formula")) {
      if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
      else node.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", scrollable);
  document.addEventListener("toggle", scrollable, true);
  scrollable();

  // --- Search
  const search = document.querySelector(".search");
  const input = search.querySelector("input");
  const panel = search.querySelector(".results");
  const count = panel.querySelector(".count");
  const list = panel.querySelector("ul");
  const MOST = 12;
  let loading = null;
  const load = () =>
    (loading ??= new Promise((done) => {
      const script = document.createElement("script"); // a file on disk cannot be fetched as data
      script.src = search.dataset.index;
      script.onload = done;
      document.head.append(script);
    }));

  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const found = (asked) => {
    const wanted = plain(asked).split(/\s+/).filter(Boolean);
    const hits = [];
    for (const [page, title, address, text] of searchIndex) {
      const head = plain(`${page} ${title}`);
      const body = plain(text);
      if (!wanted.every((word) => head.includes(word) || body.includes(word))) continue;
      const whole = plain(title) === plain(asked) ? 10 : 0;
      const score = whole + wanted.filter((word) => plain(title).includes(word)).length;
      hits.push({ page, title, address, text, score, at: Math.max(0, body.indexOf(wanted[0])) });
    }
    return hits.sort((a, b) => b.score - a.score);
  };
  // About 130 signs of whole words around the place `at`.
  const cutting = (text, at) => {
    const from = at > 40 ? text.indexOf(" ", at - 41) + 1 : 0;
    const most = from + 130;
    const space = text.lastIndexOf(" ", most);
    const to = text.length <= most ? text.length : space > at ? space : most;
    return `${from ? "… " : ""}${text.slice(from, to)}${to < text.length ? " …" : ""}`;
  };
  const item = ({ page, title, address, text, at }) => {
    const link = document.createElement("a");
    link.href = search.dataset.root + address;
    const name = document.createElement("b");
    name.textContent = page === title ? title : `${page} › ${title}`;
    const around = document.createElement("span");
    around.textContent = cutting(text, at);
    link.append(name, around);
    const row = document.createElement("li");
    row.append(link);
    return row;
  };
  const show = async () => {
    const asked = input.value.trim();
    panel.hidden = asked.length < 2;
    if (panel.hidden) return;
    await load();
    const hits = found(input.value.trim());
    const more = hits.length > MOST ? `, the first ${MOST} are shown` : "";
    count.textContent = hits.length ? `${hits.length} found${more}` : "Nothing found";
    list.replaceChildren(...hits.slice(0, MOST).map(item));
  };
  input.addEventListener("focus", load);
  input.addEventListener("input", show);
  search.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Escape") {
      panel.hidden = true;
      input.focus();
    } else if (event.key === "ArrowDown" && links[at + 1]) links[at + 1].focus();
    else if (event.key === "ArrowUp" && at >= 0) (links[at - 1] ?? input).focus();
    else if (event.key === "Enter" && document.activeElement === input && links[0]) links[0].click();
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", () => (panel.hidden = true));
  addEventListener("click", (event) => {
    if (!search.contains(event.target)) panel.hidden = true;
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      input.focus();
    }
  });
}
