// How numbers are written.

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
