// Rewards of one group: mean, std, advantages, and who is pushed up or down.

import { groupAdvantages, meanAndStd, sum } from "./math.js";
import { fixed, signed, signedSum, significant } from "./text.js";
import { button, choice, facts, h, mount, pool, set, slider, svg, write } from "./frame.js";
import { axis, plot, scale, width } from "./plot.js";

const NAMES = ["rewards", "ddof", "normalize", "low", "high"];
const ROW = 40;
const TOP = 26;
const MOST = 16; // answers

const plus = (text) => (text === "0" || text.startsWith("−") ? text : `+${text}`);

export function render(context) {
  return mount(context, "Group advantages", NAMES, [2, 3, 4], ({ root, get, change, say }) => {
    const setReward = (index, value) => {
      const rewards = [...get("rewards")];
      rewards[index] = value;
      change({ rewards });
    };
    const full = (share) => get("low") + share * (get("high") - get("low"));
    const example = (shares) => () => change({ rewards: shares.map(full) });

    const more = button(
      "Add an answer",
      () => change({ rewards: [...get("rewards"), get("low")] }),
      () => get("rewards").length < MOST,
    );
    const fewer = button(
      "Remove the last",
      () => change({ rewards: get("rewards").slice(0, -1) }),
      () => get("rewards").length > 2,
    );
    const divide = choice(
      "Divide by",
      [
        ["0", "std with n"],
        ["1", "std with n − 1"],
        ["none", "nothing"],
      ],
      (key) =>
        change(key === "none" ? { normalize: false } : { normalize: true, ddof: Number(key) }),
    );

    const list = h("div", { class: "gspo-rewards" });
    const sliders = [];
    const rows = pool(list, (index) => {
      sliders[index] = slider(`answer ${index + 1}`, (value) => setReward(index, value));
      return sliders[index].node;
    });
    const meanMark = h("div", { class: "gspo-mean-mark" });
    const meanText = h("span");
    const chart = plot(TOP + 4 * ROW, "Advantages of the answers");
    const aAxis = axis(chart, false);
    const zero = svg("line", { class: "gspo-base" });
    const bars = pool(chart, () => svg("rect", { class: "gspo-push" }));
    const texts = pool(chart, () => svg("text", { class: "gspo-push-text gspo-title gspo-halo" }));
    chart.append(zero);
    const numbers = facts([
      ["mean", "mean reward"],
      ["std", "std"],
      ["sum", "sum of A"],
      ["signal", "with a signal"],
    ]);
    numbers.node.classList.add("gspo-four");
    root.append(
      h(
        "div",
        { class: "gspo-bar" },
        h(
          "div",
          { class: "gspo-buttons", role: "group", "aria-label": "Examples" },
          button("1 · 0 · 0.5 · 0", example([1, 0, 0.5, 0])),
          button("one right of eight", example([0, 0, 1, 0, 0, 0, 0, 0])),
          button("all wrong", example([0, 0, 0, 0])),
        ),
        h("div", { class: "gspo-buttons" }, fewer, more),
        divide.node,
      ),
      h(
        "div",
        { class: "gspo-group" },
        h(
          "div",
          {},
          h("div", { class: "gspo-head" }, "rewards", meanText),
          list,
        ),
        h("div", {}, chart),
      ),
      numbers.node,
    );
    list.append(meanMark);

    return function draw() {
      const rewards = get("rewards");
      const ddof = get("ddof");
      const normalize = get("normalize");
      const [low, high] = [get("low"), get("high")];
      const count = rewards.length;
      const { mean, std, equal } = meanAndStd(rewards, ddof);
      const exact = groupAdvantages(
        rewards,
        rewards.map(() => 0),
        { normalize, ddof },
      );
      // The mean of 0.1, 0.2 and 0.3 is 0.2 but for rounding: that pushes nobody.
      const least = 1e-9 * Math.max(...exact.map(Math.abs));
      const advantages = exact.map((a) => (Math.abs(a) < least ? 0 : a));

      divide.show(normalize ? String(ddof) : "none");
      more.check();
      fewer.check();
      rows(count);
      const step = (high - low) / 100;
      const digits = Math.max(2, Math.ceil(-Math.log10(step) - 1e-9));
      const meanShown = fixed(mean, digits + 1);
      const stdShown = fixed(std, digits + 1);
      rewards.forEach((reward, i) => {
        const a = advantages[i];
        const push = a > 0 ? "likelier" : a < 0 ? "less likely" : "no push";
        sliders[i].show({
          min: low,
          max: high,
          step,
          at: reward,
          text: fixed(reward, digits),
          spoken: `${fixed(reward, digits)}, advantage ${signed(a)}, ${push}`,
        });
      });
      meanMark.style.setProperty("--at", (mean - low) / (high - low));
      write(meanText, `mean ${meanShown}`);

      const wide = width(chart);
      const tall = TOP + count * ROW;
      set(chart, { height: tall });
      const reach = Math.max(2, Math.ceil(Math.max(...advantages.map(Math.abs)) * 2 - 1e-9) / 2);
      const x = scale(-reach, reach, 8, wide - 8);
      const named = (shares) =>
        shares.map((share) => [x(share * reach), plus(significant(share * reach, 3))]);
      const five = named([-1, -0.5, 0, 0.5, 1]);
      const fit = five.every(([, text]) => 8 * text.length < (x(reach) - x(0)) / 2);
      aAxis(
        fit ? five : named([-1, 0, 1]),
        -6,
        tall,
      );
      set(zero, { x1: x(0), x2: x(0), y1: TOP - 4, y2: tall });
      const bar = bars(count);
      const text = texts(count);
      advantages.forEach((a, i) => {
        const top = TOP + i * ROW + 7;
        const tone = a > 0 ? "blue" : a < 0 ? "red" : "soft";
        set(bar[i], {
          x: Math.min(x(0), x(a)),
          width: Math.max(Math.abs(x(a) - x(0)), 1),
          y: top,
          height: ROW - 14,
          rx: 3,
          "data-tone": tone,
        });
        set(text[i], {
          x: a >= 0 ? x(0) - 6 : x(0) + 6,
          y: top + 18,
          "data-tone": tone,
          "text-anchor": a >= 0 ? "end" : "start",
        });
        write(text[i], `${a > 0 ? "▲ " : a < 0 ? "▼ " : ""}${signed(a)}`);
      });

      const up = advantages.filter((a) => a > 0).length;
      const downward = advantages.filter((a) => a < 0).length;
      numbers.show({
        mean: meanShown,
        std: stdShown,
        sum: signedSum(sum(advantages), 6),
        signal: `${up + downward} of ${count}`,
      });
      say(
        equal
          ? `${count === 2 ? "Both" : `All ${count}`} rewards are equal: a dead group. ` +
              "Every advantage is 0 and no answer becomes likelier or less likely, " +
              "however right or wrong they all are."
          : `A = (reward − ${meanShown})${normalize ? ` / ${stdShown}` : ""}. ` +
              `${up} of ${count} answers become likelier, ${downward} less likely` +
              `${count - up - downward ? `, ${count - up - downward} stay as they are` : ""}. ` +
              "What counts is being better than the group, not being right.",
      );
    };
  });
}
