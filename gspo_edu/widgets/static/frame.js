// What all widgets share: elements, one redraw per frame, sliders, choices, axes, live text.

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
    words.textContent = text;
    clearTimeout(speaking);
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

// An SVG as wide as its place and `height` pixels high; width(plot) is the current width in pixels.
export function plot(height, label) {
  return svg("svg", {
    class: "gspo-plot",
    height,
    role: "img",
    "aria-label": label,
  });
}

export const width = (plot) => plot.plotWidth || 600;

// Calls move(x, y, first) with pixel positions inside `node` while the pointer is down.
export function drag(node, move) {
  const report = (event, first) => {
    const box = node.getBoundingClientRect();
    move(event.clientX - box.left, event.clientY - box.top, first);
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
    report(event, true);
  });
  node.addEventListener("pointermove", (event) => {
    if (node.hasPointerCapture(event.pointerId)) report(event, false);
  });
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
  const nearest = (value) => {
    const next = Math.max(values.findIndex((one) => one >= value), 0);
    if (values.at(-1) < value) return values.length - 1;
    return next > 0 && value * value < values[next] * values[next - 1] ? next - 1 : next;
  };
  return {
    node,
    show: (value, text, newLabel = label) =>
      show({ min: 0, max: values.length - 1, step: 1, at: nearest(value), text, label: newLabel }),
  };
}

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

export function button(text, press, attributes = {}) {
  const node = h(
    "button",
    { type: "button", class: "gspo-button", "data-lm-suppress-shortcuts": "true", ...attributes },
    text,
  );
  node.addEventListener("click", press);
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

// A linear map from [a, b] to [x, y], and back.
export function scale(a, b, x, y) {
  const to = (value) => x + ((value - a) / (b - a)) * (y - x);
  to.back = (pixel) => a + ((pixel - x) / (y - x)) * (b - a);
  return to;
}

// About `count` round numbers within [low, high], each with its text.
export function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, i) => {
    const value = (first + i) * step;
    return [value, fixed(value, digits)];
  });
}

// Axis marks with labels along the lower or left edge, and their grid lines.
export function axis(parent, vertical) {
  const group = svg("g");
  parent.append(group);
  const lines = pool(group, () => svg("line", { class: "gspo-grid" }));
  const labels = pool(group, () =>
    svg("text", { class: "gspo-tick", "text-anchor": vertical ? "end" : "middle" }),
  );
  return (marks, near, far) => {
    const line = lines(marks.length);
    const label = labels(marks.length);
    marks.forEach(([at, text], i) => {
      set(
        line[i],
        vertical ? { x1: near, x2: far, y1: at, y2: at } : { x1: at, x2: at, y1: near, y2: far },
      );
      set(label[i], vertical ? { x: near - 8, y: at + 4 } : { x: at, y: near + 18 });
      write(label[i], text);
    });
  };
}

export const path = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)},${y.toFixed(2)}`).join("");

// Upright rectangles [left, top, wide, tall] as one path: a hundred of them cost as much as one.
export const boxes = (all) =>
  all
    .map((box) => box.map((size) => size.toFixed(2)))
    .map(([left, top, wide, tall]) => `M${left},${top}h${wide}v${tall}h-${wide}z`)
    .join("");

export const signed = (value, digits = 2) => {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return "0";
  return (value < 0 ? "−" : "+") + text;
};

export const fixed = (value, digits) => value.toFixed(digits).replace("-", "−");

// `digits` significant digits, as a person would write them.
export function significant(value, digits = 4) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return `${Number(mantissa)}·10${superscript(Number(exponent))}`.replace("-", "−");
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

// A small number as code writes it: 0.2, 3e-4.
export const short = (value) => (value < 0.001 ? value.toExponential() : String(value));

export const superscript = (number) =>
  String(number).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));

export const percent = (share) => {
  if (share > 0 && share < 0.0005) return "< 0.1\u00a0%";
  return `${(100 * share).toFixed(1)}\u00a0%`;
};
