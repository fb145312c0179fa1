// What all widgets share: elements, one redraw per frame, sliders, choices, live text.

const SVG = "http://www.w3.org/2000/svg";
const unique = () => `gspo-${Math.random().toString(36).slice(2)}`;

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  set(node, attributes);
  node.append(...children);
  return node;
}

// Sets what differs: the browser would lay out again for an equal value, too.
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
  return node;
}

export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Children of `parent` made by `make`, as many as asked for; existing ones are kept.
export function pool(parent, make) {
  const nodes = [];
  return (count) => {
    while (nodes.length < count) parent.append((nodes[nodes.length] = make(nodes.length)));
    while (nodes.length > count) nodes.pop().remove();
    return nodes;
  };
}

// Builds one view. `build` receives { root, get, change, say } and returns the function that draws
// the model's state; it is called at most once per animation frame, whoever changed the state.
// `lines` reserves room for the sentence in a wide, middle and narrow place: nothing jumps.
export function mount({ model, el }, title, names, lines, build) {
  const root = h("section", { class: "gspo-w", "aria-label": title });
  const live = h("p", { class: "gspo-unseen", "aria-live": "polite" });
  const words = h("p", { class: "gspo-words", "aria-hidden": "true" });
  ["--wide", "--middle", "--narrow"].forEach((at, i) => words.style.setProperty(at, lines[i]));
  let frame = 0;
  let saving = 0;
  let speaking = 0;

  const save = () => {
    saving = 0;
    model.save_changes();
  };
  const change = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    saving ||= setTimeout(save, 50);
  };
  // The state in a sentence, at once for the eye; a screen reader hears it once the hand rests.
  const say = (sentence) => {
    const text = sentence.replace(/ ([<>=]) /g, "\u00a0$1\u00a0"); // no line break in "A > 0"
    if (words.textContent === text) return;
    const first = words.textContent === "";
    words.textContent = text;
    clearTimeout(speaking);
    // What is there from the start can be read, and interrupts nobody.
    if (first) return void (live.textContent = text);
    speaking = setTimeout(() => (live.textContent = text), 500);
  };

  const draw = build({ root, get: (name) => model.get(name), change, say });
  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  for (const name of names) model.on(`change:${name}`, redraw);
  root.append(words, live);
  el.append(root);
  draw();
  const sizes = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) target.plotWidth = contentRect.width;
    draw();
  });
  for (const plot of root.querySelectorAll(".gspo-plot")) sizes.observe(plot);

  return () => {
    sizes.disconnect();
    cancelAnimationFrame(frame);
    clearTimeout(speaking);
    if (saving) {
      clearTimeout(saving);
      save();
    }
    for (const name of names) model.off(`change:${name}`, redraw);
  };
}

// A native range input with a label and a value. show() sets all that can change.
export function slider(label, input) {
  const id = unique();
  const name = h("label", { class: "gspo-name", for: id }, label);
  const value = h("span", { class: "gspo-value", "aria-hidden": "true" });
  const range = h("input", { type: "range", id, "data-lm-suppress-shortcuts": "true" });
  range.addEventListener("input", () => input(Number(range.value)));
  return {
    node: h("div", { class: "gspo-slider" }, name, value, range),
    show({ min, max, step, at, text, spoken = text, label: newLabel = label }) {
      set(range, { min, max, step, "aria-valuetext": spoken });
      range.value = at;
      range.style.setProperty("--at", Math.min(Math.max((at - min) / (max - min), 0), 1));
      write(value, text);
      write(name, newLabel);
    },
  };
}

// A slider over given positive values, small to large: each key press reaches the next of them.
export function steps(label, values, input) {
  const { node, show } = slider(label, (index) => input(values[index]));
  return {
    node,
    show: (value, text, newLabel = label) =>
      show({ min: 0, max: values.length - 1, step: 1, at: nearestIndex(values, value), text, label: newLabel }),
  };
}

// Index of the one of `values`, positive and from small to large, that is nearest by its logarithm.
export function nearestIndex(values, value) {
  const next = values.findIndex((one) => one >= value);
  if (next < 0) return values.length - 1;
  return next > 0 && value * value < values[next] * values[next - 1] ? next - 1 : next;
}

// `value`, or the end of `values` (from small to large) that it lies beyond.
export const within = (values, value) => Math.min(Math.max(value, values[0]), values.at(-1));

// All numbers with two significant digits from `low` to `high`.
export function twoDigits(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (let digits = 10; digits < 100; digits++) found.push(Number(`${digits}e${power - 1}`));
  }
  return found.filter((value) => value >= low && value <= high);
}

// A row of radio buttons. options is [[key, text], ...]; show(key) marks one, or none.
export function choice(label, options, pick) {
  const group = unique();
  const inputs = new Map();
  const labels = options.map(([key, ...text]) => {
    const radio = h("input", {
      type: "radio",
      name: group,
      value: key,
      "data-lm-suppress-shortcuts": "true",
    });
    radio.addEventListener("change", () => pick(key));
    inputs.set(key, radio);
    return h("label", {}, radio, h("span", {}, ...text));
  });
  return {
    node: h("fieldset", { class: "gspo-choice" }, h("legend", {}, label), h("div", {}, ...labels)),
    show(key) {
      for (const [name, radio] of inputs) radio.checked = name === key;
    },
  };
}

// may() says whether pressing is possible now: asked at each press, since two can come between two
// drawings, and by check(), which each drawing calls.
export function button(text, press, may = () => true) {
  const node = h(
    "button",
    { type: "button", class: "gspo-button", "data-lm-suppress-shortcuts": "true" },
    text,
  );
  node.addEventListener("click", () => may() && press());
  node.check = () => (node.disabled = !may());
  return node;
}

// Named numbers. facts([[key, label], ...]) → { node, show({ key: text }) }.
export function facts(rows) {
  const values = new Map();
  const node = h("dl", { class: "gspo-facts" });
  for (const [key, ...label] of rows) {
    values.set(key, h("dd", { "data-fact": key }));
    node.append(h("div", {}, h("dt", {}, ...label), values.get(key)));
  }
  return {
    node,
    show(texts) {
      for (const [key, text] of Object.entries(texts)) write(values.get(key), text);
    },
  };
}

// What colours and lines mean: [[tone, text, line], ...]. line is solid, dashed or dotted; without
// it the tone fills an area.
export function legend(entries) {
  const items = entries.map(([tone, text, line = ""]) =>
    h("li", {}, h("span", { class: "gspo-swatch", "data-tone": tone, "data-line": line }), text),
  );
  return h("ul", { class: "gspo-legend" }, ...items);
}
