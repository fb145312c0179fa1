// How numbers are written.

// "0" is written only where the value is exactly zero.
export const signed = (value, digits = 2) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const plain = size < 1e6 && Number(size.toFixed(digits)) !== 0;
  return (value < 0 ? "−" : "+") + (plain ? size.toFixed(digits) : significant(size, 2));
};

// A sum of rounded numbers: what rounding alone has left is zero.
export const signedSum = (value, digits) => signed(Number(value.toFixed(9)), digits);

// signed() in at most six signs, for a small cell.
export function brief(value) {
  const size = Math.abs(value);
  if (size !== 0 && size < 0.0005) return "≈\u00a00";
  return signed(value, size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
}

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

// e to the power of `log`, which may be no number any more: 0.29, 3·10⁻⁵, and, further than `most`
// powers of ten from 1, 10⁻²²⁴³.
export function exponential(log, digits, most = 300) {
  const power = log / Math.LN10;
  if (Math.abs(power) > most) return `10${superscript(Math.round(power))}`;
  return significant(Math.exp(log), digits);
}

// A small number as code writes it: 0.2, 3e-4.
export const short = (value) => (value < 0.001 ? value.toExponential() : String(value));

export const superscript = (number) =>
  String(number).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));

export const percent = (share) => {
  if (share > 0 && share < 0.0005) return "< 0.1\u00a0%";
  return `${(100 * share).toFixed(1)}\u00a0%`;
};
