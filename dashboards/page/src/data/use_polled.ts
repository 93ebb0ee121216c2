// An answer that is asked for again and again while it is shown, and the tab is looked at.
import { useEffect, useRef, useState } from "preact/hooks";
import type { AgentData } from "./agent_data";
import { addressOf, ask, Refusal } from "./api";

export interface Polled<T> {
  answer: T | null;
  /** Why there is none, for a person. */
  error: string;
}

type Query = Record<string, string | number | undefined>;

/** Where only the newest points are asked for: `next` of an answer, and how two become one. */
export interface Growing<T> {
  next: (answer: T) => number;
  join: (before: T, more: T) => T | null;
}

const EVERY_MS = 2_500;

export function usePolled<T>(
  data: AgentData, path: string, query: Query, growing?: Growing<T>,
): Polled<T> {
  const [polled, setPolled] = useState<Polled<T>>({ answer: null, error: "" });
  const growth = useRef(growing);
  const address = addressOf(path, query);
  const { epoch } = data;
  const isReady = data.status !== null;

  useEffect(() => {
    if (!isReady) return;
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let known: T | null = null;

    const fetchIt = async () => {
      const { current: grow } = growth;
      if (!grow || !known) return ask<T>(path, query, gone.signal);
      const more = await ask<T>(path, { ...query, since: grow.next(known) }, gone.signal);
      return grow.join(known, more) ?? ask<T>(path, query, gone.signal);
    };
    const turn = async () => {
      if (!document.hidden) {
        try {
          known = await fetchIt();
          if (!gone.signal.aborted) setPolled({ answer: known, error: "" });
        } catch (error) {
          if (gone.signal.aborted) return;
          // What was seen stays; only a refusal says that it is not there any more.
          const text = error instanceof Error ? error.message : String(error);
          if (error instanceof Refusal) setPolled({ answer: null, error: text });
          else if (!known) setPolled((before) => ({ ...before, error: "No answer yet." }));
        }
      }
      const isForever = data.link === "recording" && known !== null;
      if (!gone.signal.aborted && !isForever) timer = setTimeout(() => void turn(), EVERY_MS);
    };
    void turn();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [address, epoch, isReady]);
  return polled;
}
