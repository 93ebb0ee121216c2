// What is looked at, which is all in the address: a link shows what its sender saw.
import { TENSOR_NUMBERS, type TensorNumber } from "../words/numbers";

export const TABS = [
  "overview", "layers", "parameters", "incidents", "syncs", "ranks", "configuration",
] as const;
export type Tab = (typeof TABS)[number];

export const RANGES = ["100", "500", "2000", "run"] as const;
export type Range = (typeof RANGES)[number];

export type HeatValue = TensorNumber["key"];
export const HEAT_VALUES: readonly HeatValue[] = TENSOR_NUMBERS.map((number) => number.key);

export interface View {
  tab: Tab;
  range: Range;
  /** Steps that were zoomed to; they win over the range. */
  zoom: { from: number; to: number } | null;
  log: boolean;
  /** Whose steps; null: of the one that leads the run. */
  optimizer: number | null;
  value: HeatValue;
  rows: "groups" | "params";
  group: string;
  search: string;
  sort: string;
  order: "" | "asc" | "desc";
  param: string;
  incident: number;
}

export const DEFAULT_VIEW: View = {
  tab: "overview",
  range: "run",
  zoom: null,
  log: false,
  optimizer: null,
  value: "grad_norm",
  rows: "groups",
  group: "",
  search: "",
  sort: "worst",
  order: "",
  param: "",
  incident: 0,
};

function oneOf<T extends string>(allowed: readonly T[], text: string | null, otherwise: T): T {
  return allowed.find((word) => word === text) ?? otherwise;
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

const MOST_OPTIMIZER = 2 ** 31 - 1;

function optimizerOf(text: string | null): number | null {
  const index = wholeNumber(text);
  return index !== null && index <= MOST_OPTIMIZER ? index : null;
}

/** Anything it does not know falls back to the default: links are typed by hand, too. */
export function viewOf(hash: string): View {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?");
  const words = new URLSearchParams(query);
  const from = wholeNumber(words.get("from"));
  const to = wholeNumber(words.get("to"));
  return {
    tab: oneOf(TABS, path, DEFAULT_VIEW.tab),
    range: oneOf(RANGES, words.get("range"), DEFAULT_VIEW.range),
    zoom: from !== null && to !== null && from <= to ? { from, to } : null,
    log: words.get("log") === "1",
    optimizer: optimizerOf(words.get("optimizer")),
    value: oneOf(HEAT_VALUES, words.get("value"), DEFAULT_VIEW.value),
    rows: oneOf(["groups", "params"] as const, words.get("rows"), DEFAULT_VIEW.rows),
    group: words.get("group") ?? "",
    search: words.get("search") ?? "",
    sort: words.get("sort") ?? DEFAULT_VIEW.sort,
    order: oneOf(["", "asc", "desc"] as const, words.get("order"), ""),
    param: words.get("param") ?? "",
    incident: wholeNumber(words.get("incident")) ?? 0,
  };
}

/** Defaults are left out, so that an address is as short as what it says. */
export function hashOf(view: View): string {
  const words = new URLSearchParams();
  const add = (key: string, value: string, usual: string) => {
    if (value !== usual) words.set(key, value);
  };
  add("range", view.range, DEFAULT_VIEW.range);
  if (view.zoom) {
    words.set("from", String(view.zoom.from));
    words.set("to", String(view.zoom.to));
  }
  if (view.log) words.set("log", "1");
  if (view.optimizer !== null) words.set("optimizer", String(view.optimizer));
  add("value", view.value, DEFAULT_VIEW.value);
  add("rows", view.rows, DEFAULT_VIEW.rows);
  add("group", view.group, "");
  add("search", view.search, "");
  add("sort", view.sort, DEFAULT_VIEW.sort);
  add("order", view.order, "");
  add("param", view.param, "");
  if (view.incident > 0) words.set("incident", String(view.incident));
  const query = words.toString();
  return `#/${view.tab}${query ? `?${query}` : ""}`;
}

/** Another tab keeps the steps that are looked at, and nothing that only its own neighbour uses. */
export function tabLink(view: View, tab: Tab, change: Partial<View> = {}): string {
  const { range, zoom, log, optimizer } = view;
  return hashOf({ ...DEFAULT_VIEW, range, zoom, log, optimizer, ...change, tab });
}
