// Numbers as people read them, and those beside an axis. Sizes go by log₁₀, which no number is too large for.

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// Four digits: `0.9987`, `1.3e-5`.
const numberText = (value) => String(Number(value.toPrecision(4)));

// Four digits of 10^log: `0.9987`, `1.3e-5`, `1.3e16300`.
function sizeText(log) {
  const exponent = Math.floor(log);
  const mantissa = Number((10 ** (log - exponent)).toPrecision(4));
  if (mantissa >= 10) return sizeText(exponent + 1);
  if (exponent >= -4 && exponent < 6) return numberText(mantissa * 10 ** exponent);
  return `${mantissa}e${exponent}`;
}

// A number of an axis, as text.
const coordinateText = (coordinate, log) => (log ? sizeText(coordinate) : numberText(coordinate));

// `digits` · 10^exponent: `0.05`, `200`, `2·10⁻¹²`.
function powerText(digits, exponent) {
  if (exponent >= -3 && exponent <= 4) return String(Number(`${digits}e${exponent}`));
  const raised = [...String(exponent)].map((sign) => SUPERSCRIPTS[Number(sign)] ?? "⁻").join("");
  return Number(digits) === 1 ? `10${raised}` : `${digits}·10${raised}`;
}

// The next of …, 1, 2, 5, 10, 20, 50, … from `step` on.
function nice(step) {
  const decade = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map((digit) => digit * decade).find((found) => found >= step * (1 - 1e-9));
}

// Multiples of `step` between two numbers, each with as many decimals as the step has.
function multiples(low, high, step) {
  const decimals = Math.min(100, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index <= high / step + 1e-9; index += 1) {
    found.push({ at: index * step, label: (index * step).toFixed(decimals) });
  }
  return found;
}

// Some six numbers between both ends of an axis: `at` is the coordinate.
function ticks(low, high, log) {
  const span = high - low;
  if (!log) return multiples(low, high, nice(span / 6)).map(({ at, label }) => ({ at, label: String(Number(label)) }));
  if (span > 3) return multiples(low, high, Math.max(1, nice(span / 6))).map(({ at }) => ({ at, label: powerText(1, at) }));
  const decade = Math.floor(low);
  const numbers =
    span > 0.7
      ? [0, 1, 2, 3, 4].flatMap((more) => [1, 2, 5].map((digit) => ({ label: digit, exponent: decade + more })))
      : multiples(10 ** (low - decade), 10 ** (high - decade), nice((10 ** (high - decade) - 10 ** (low - decade)) / 6)).map(
          ({ label }) => ({ label, exponent: decade }),
        );
  const placed = numbers.map(({ label, exponent }) => ({ at: Math.log10(Number(label)) + exponent, label: powerText(label, exponent) }));
  return placed.filter(({ at }) => at >= low && at <= high);
}
