// Numbers as the plain page writes them, too: test/same_text.json has the cases for both.
import type { Kind, Num, Site } from "../data/api";

export const UNMEASURED = "–";

/** Of a record's number, which may be a word: null where it is not finite or was not measured. */
export function finite(value: Num | undefined | null): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Four digits, as C's %.4g prints them, but up to a million without an exponent. */
export function numberText(value: Num | undefined | null): string {
  if (value === undefined || value === null) return UNMEASURED;
  if (value === "nan" || Number.isNaN(value)) return "NaN";
  if (value === "inf" || value === Infinity) return "+Inf";
  if (value === "-inf" || value === -Infinity) return "−Inf";
  if (value === 0) return "0";
  const size = Math.abs(Number(value.toPrecision(4)));
  if (size >= 1000 && size < 1e6) return minus(countText(Math.round(value)));
  if (size < 1e-4 || size >= 1e6) {
    const [digits = "", power = ""] = value.toExponential(3).split("e");
    const sign = power.startsWith("-") ? "−" : "";
    return minus(`${trimmed(digits)}e${sign}${power.replace(/^[+-]/, "")}`);
  }
  return minus(trimmed(value.toPrecision(4)));
}

function trimmed(digits: string): string {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
}

function minus(text: string): string {
  return text.startsWith("-") ? `−${text.slice(1)}` : text;
}

export function countText(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function percentText(ratio: Num | undefined | null): string {
  const value = finite(ratio);
  return value === null ? numberText(ratio) : `${numberText(value * 100)} %`;
}

export function durationText(seconds: Num | undefined | null): string {
  const value = finite(seconds);
  if (value === null || value < 0 || value > 1e12) return UNMEASURED;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${threeDigits(value * 1000)} ms`;
  if (value < 59.95) return `${threeDigits(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function threeDigits(value: number): string {
  return String(Number(value.toPrecision(3)));
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytesText(bytes: Num | undefined | null): string {
  let value = finite(bytes);
  if (value === null) return UNMEASURED;
  let unit = 0;
  while (value >= 1024 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    ++unit;
  }
  return `${numberText(value)} ${BYTE_UNITS[unit]}`;
}

/** In UTC: the plain page cannot know the reader's time zone, and both write a time the same way. */
export function timeText(seconds: Num | undefined | null): string {
  const value = finite(seconds);
  if (value === null) return UNMEASURED;
  const time = new Date(value * 1000);
  if (Number.isNaN(time.getTime())) return UNMEASURED;
  return `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Without the day if it is today. */
export function clockText(seconds: Num | undefined | null): string {
  const text = timeText(seconds);
  const today = timeText(Date.now() / 1000).slice(0, 11);
  return text.startsWith(today) ? text.slice(11) : text;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}

const KIND_WORDS: Record<Kind, string> = { nan: "NaN", pos_inf: "+Inf", neg_inf: "−Inf" };

/** Several kinds that came at once have no name of their own. */
export function kindText(kind: Kind | undefined): string {
  return kind ? KIND_WORDS[kind] : "NaN or Inf";
}

const SITE_WORDS: Record<Site, string> = { loss: "loss", grad: "gradient", weight: "weights" };

export function siteText(site: Site): string {
  return SITE_WORDS[site];
}
