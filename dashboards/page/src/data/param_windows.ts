// Parameters in windows of 200 rows, as the table is scrolled: ten thousand are never here at once.
import { useEffect, useRef, useState } from "preact/hooks";
import type { AgentData } from "./agent_data";
import { ask, Refusal, type Param, type Params } from "./api";

export const WINDOW_ROWS = 200;
const KEPT_WINDOWS = 12;
const EVERY_MS = 3_000;

export interface ParamRows {
  /** null until the first answer. */
  matched: number | null;
  total: number;
  rowAt: (index: number) => Param | undefined;
  /** Why there are none, for a person. */
  error: string;
}

interface Choice {
  sort: string;
  order: string;
  search: string;
}

export function useParamRows(
  data: AgentData, choice: Choice, firstRow: number, lastRow: number,
): ParamRows {
  const windows = useRef(new Map<number, Param[]>());
  const [size, setSize] = useState<{ matched: number | null; total: number }>(
    { matched: null, total: 0 });
  const [error, setError] = useState("");
  const [, setFetched] = useState(0);
  const shown = useRef<number[]>([]);
  const firstWindow = Math.floor(firstRow / WINDOW_ROWS);
  const lastWindow = Math.floor(lastRow / WINDOW_ROWS);
  shown.current = firstWindow === lastWindow ? [firstWindow] : [firstWindow, lastWindow];
  const key = `${choice.sort} ${choice.order} ${data.epoch} ${choice.search}`;

  const fetchWindow = async (index: number, signal: AbortSignal) => {
    const answer = await ask<Params>("params", {
      sort: choice.sort, order: choice.order, search: choice.search,
      offset: index * WINDOW_ROWS, limit: WINDOW_ROWS,
    }, signal);
    const kept = windows.current;
    kept.delete(index);
    kept.set(index, answer.params);
    for (const old of kept.keys()) {
      if (kept.size <= KEPT_WINDOWS) break;
      kept.delete(old);
    }
    setSize({ matched: answer.matched, total: answer.total });
    setFetched((count) => count + 1);
  };

  // Another order or search: what is shown stays until the first answer replaces it.
  useEffect(() => {
    const gone = new AbortController();
    let isFirst = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) {
        const answers = shown.current.map((index) => {
          if (isFirst) windows.current = new Map();
          isFirst = false;
          return fetchWindow(index, gone.signal);
        });
        const refused = (await Promise.allSettled(answers)).find((each) => {
          return each.status === "rejected" && each.reason instanceof Refusal;
        });
        if (gone.signal.aborted) return;
        setError(refused?.status === "rejected" ? String(refused.reason.message) : "");
      }
      if (!gone.signal.aborted && data.link !== "recording") {
        timer = setTimeout(() => void turn(), EVERY_MS);
      }
    };
    void turn();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [key]);

  // Scrolled to rows that are not here.
  useEffect(() => {
    const missing = shown.current.filter((index) => !windows.current.has(index));
    if (missing.length === 0 || size.matched === null) return;
    const gone = new AbortController();
    const timer = setTimeout(() => {
      for (const index of missing) fetchWindow(index, gone.signal).catch(() => undefined);
    }, 60);
    return () => {
      clearTimeout(timer);
      gone.abort();
    };
  }, [firstWindow, lastWindow, key, size.matched === null]);

  const rowAt = (index: number) => {
    return windows.current.get(Math.floor(index / WINDOW_ROWS))?.[index % WINDOW_ROWS];
  };
  return { ...size, rowAt, error };
}

/** All that the table would show if one scrolled through it. */
export async function allRows(choice: Choice): Promise<Param[]> {
  const rows: Param[] = [];
  for (;;) {
    const answer = await ask<Params>("params", { ...choice, offset: rows.length, limit: 1000 });
    rows.push(...answer.params);
    if (answer.params.length === 0 || rows.length >= answer.matched) return rows;
  }
}
