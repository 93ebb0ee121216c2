// From a number to a colour, by a map that the colour-blind can read and that grows lighter evenly:
// viridis, by Smith and van der Walt. Neither the red of what is not finite nor the grey of zero is
// in it.

const ANCHORS: readonly [number, number, number][] = [
  [68, 1, 84], [72, 40, 120], [62, 73, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
  [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];
const SHADES = 256;

const TABLE: readonly string[] = Array.from({ length: SHADES }, (_, i) => {
  const place = (i / (SHADES - 1)) * (ANCHORS.length - 1);
  const below = Math.min(Math.floor(place), ANCHORS.length - 2);
  const low = ANCHORS[below]!;
  const high = ANCHORS[below + 1]!;
  const mix = low.map((part, k) => Math.round(part + (high[k]! - part) * (place - below)));
  return `rgb(${mix.join(",")})`;
});

/** Share of the way from 0 to 1. */
export function shade(share: number): string {
  const index = Math.round(Math.min(1, Math.max(0, share)) * (SHADES - 1));
  return TABLE[index]!;
}

export interface ColourScale {
  low: number;
  high: number;
  shareOf: (value: number) => number;
  ticks: number[];
}

/** Logarithmic over what is seen, and at least a factor of two: noise is not to look like more. */
export function logScale(low: number, high: number): ColourScale {
  const middle = Math.sqrt(low * high);
  const from = Math.min(low, middle / Math.SQRT2);
  const to = Math.max(high, middle * Math.SQRT2);
  const range = Math.log(to / from);
  return {
    low: from,
    high: to,
    shareOf: (value) => Math.log(value / from) / range,
    ticks: logTicks(from, to),
  };
}

function logTicks(low: number, high: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return [low, Math.sqrt(low * high), high];
  const every = Math.ceil((last - first + 1) / 5);
  const ticks: number[] = [];
  for (let power = first; power <= last; power += every) ticks.push(10 ** power);
  return ticks;
}

export function linearScale(low: number, high: number): ColourScale {
  const range = high - low || 1;
  return {
    low,
    high,
    shareOf: (value) => (value - low) / range,
    ticks: [0, 0.25, 0.5, 0.75, 1].map((share) => low + share * range),
  };
}
