// The ranks that share a port: how each is, and how far apart they are.
import { ask, type Column, type History, type Rank, type Site, type Track } from "./api";
import { useEffect, useState } from "preact/hooks";
import type { Points } from "./points";
import { INCIDENT_CLASSES } from "../words/incident_classes";

const EVERY_MS = 5_000;
/** Of each rank. */
const STEPS = 300;
/** More are a load on the machine that trains. */
export const MOST_DRAWN = 16;
const SITES: Site[] = ["loss", "grad", "weight"];
const NUMBERS = ["loss", "grad_norm", "step_seconds", "rank_wait_seconds"];

/** Whether a rank answers at the port of this one; the port may be reached under another address than the ranks know, as
 * through ssh. */
export function isHere(here: Rank | undefined, there: string): boolean {
  const [port, rank] = there.split(/(?=\/rank\/\d+$)/);
  return rank !== undefined && here !== undefined && here.url.startsWith(`${port}/rank/`);
}

export function addressFrom(here: Rank | undefined, there: string): string {
  if (!isHere(here, there)) return `${there}/`;
  const rank = there.slice(there.lastIndexOf("/rank/"));
  return location.pathname.startsWith("/rank/") ? `../..${rank}/` : `.${rank}/`;
}

const GRAVITIES: Record<string, number> = { nonfinite: 5, standstill: 4, training: 3, mild: 1 };

/** How bad it is: the larger, the sooner someone should look at it. */
export function badness(rank: Rank): number {
  if (rank.state === "failed") return 8;
  if (rank.answers === false && rank.state !== "finished") return 7;
  if (rank.state === "stalled") return 6;
  const open = (rank.open_incidents ?? []).map((name) => {
    return GRAVITIES[INCIDENT_CLASSES.find((each) => each.name === name)?.gravity ?? ""] ?? 1;
  });
  return Math.max(0, (rank.nonfinite_steps ?? 0) > 0 ? 2 : 0, ...open);
}

/** Of equally bad ones the lower rank comes first. */
export function worstFirst(ranks: Rank[]): Rank[] {
  return [...ranks].sort((a, b) => badness(b) - badness(a) || a.rank - b.rank);
}

function median(sorted: number[]): number {
  const middle = sorted.length >> 1;
  const upper = sorted[middle]!;
  return sorted.length % 2 ? upper : (sorted[middle - 1]! + upper) / 2;
}

/** By step: the median of the ranks that measured it, and the lowest and highest of them. */
export function joinedRanks(histories: History[]): Points {
  const places = new Map<number, [history: History, at: number][]>();
  for (const history of histories) {
    history.last.forEach((step, at) => {
      const there = places.get(step);
      if (there) there.push([history, at]);
      else places.set(step, [[history, at]]);
    });
  }
  const steps = [...places.keys()].sort((a, b) => a - b);
  const most = (step: number, of: (history: History, at: number) => number) => {
    return Math.max(...places.get(step)!.map(([history, at]) => of(history, at)));
  };
  const trackOf = (name: string): Track => {
    const track = { last: [] as Column, min: [] as Column, max: [] as Column };
    for (const step of steps) {
      const values = places.get(step)!
        .map(([history, at]) => history.series[name]?.last[at] ?? null)
        .filter((value) => value !== null)
        .sort((a, b) => a - b);
      const isMeasured = values.length > 0;
      track.last.push(isMeasured ? median(values) : null);
      track.min.push(isMeasured ? values[0]! : null);
      track.max.push(isMeasured ? values.at(-1)! : null);
    }
    return track;
  };
  const names = NUMBERS.filter((name) => histories.some((history) => history.series[name]));
  return {
    exact: true,
    stepsPerPoint: 1,
    first: steps,
    last: steps,
    own: steps,
    time: steps.map((step) => most(step, (history, at) => history.time[at]!)),
    bad: Object.fromEntries(SITES.map((site) => {
      return [site, steps.map((step) => most(step, (history, at) => history.nonfinite[site][at] ?? 0))];
    })) as Record<Site, number[]>,
    skipped: steps.map((step) => most(step, (history, at) => history.skipped[at] ?? 0)),
    tracks: Object.fromEntries(names.map((name) => [name, trackOf(name)])),
  };
}

/** The newest steps of the ranks at these addresses. One that does not answer is left out. */
export function useRankHistories(addresses: string[]): Points | null {
  const [points, setPoints] = useState<Points | null>(null);
  const all = addresses.join("\n");
  useEffect(() => {
    if (!all) return;
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) {
        const query = { resolution: "steps", limit: STEPS };
        const answers = await Promise.allSettled(
          all.split("\n").map((of) => ask<History>("history", query, gone.signal, of)));
        const found = answers.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
        if (!gone.signal.aborted && found.length > 0) setPoints(joinedRanks(found));
      }
      if (!gone.signal.aborted) timer = setTimeout(() => void turn(), EVERY_MS);
    };
    void turn();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [all]);
  return points;
}
