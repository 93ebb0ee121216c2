import { useMemo } from "preact/hooks";
import type { Num, Rank, Ranks as Answer } from "../data/api";
import type { TabProps } from "./props";
import { Chart, type Zoom } from "../charts/chart";
import { specsFor } from "../charts/chart_specs";
import { addressFrom, isHere, MOST_DRAWN, useRankHistories, worstFirst } from "../data/ranks";
import { usePolled } from "../data/use_polled";
import { classText } from "../words/incident_words";
import { csvOf, fileName, save } from "../words/csv";
import { countText, durationText, finite, numberText, plural, timeText } from "../words/number_text";

const HEAD = [
  "rank", "url", "state", "pid", "started", "answers", "run_step", "loss", "grad_norm", "step_seconds", "rank_wait_seconds",
  "nonfinite_steps", "open_incidents",
];

export function Ranks({ data, view, change }: TabProps) {
  const { answer, error } = usePolled<Answer>(data, "ranks", {});
  const here = answer?.ranks.find((each) => each.is_this);
  const ranks = answer ? worstFirst(answer.ranks) : [];
  // A browser may not read from other machines' endpoints.
  const drawn = ranks.filter((each) => each.answers && isHere(here, each.url)).sort((a, b) => a.rank - b.rank)
    .slice(0, MOST_DRAWN);
  const points = useRankHistories(
    drawn.length > 1 ? drawn.map((each) => addressFrom(here, each.url)) : []);
  const specs = useMemo(() => specsFor(Object.keys(points?.tracks ?? {})).map((spec) => ({
    ...spec, id: `ranks-${spec.id}`, unit: "median, lowest and highest rank",
  })), [points]);
  const zoom = useMemo<Zoom>(() => ({ zoomTo: () => {}, reset: () => {} }), []);
  if (!answer) return <p class="empty">{error || "Loading …"}</p>;
  const elsewhere = answer.world_size - answer.ranks.length;
  const isShared = answer.ranks.some((each) => each.answers !== undefined);
  return (
    <section>
      <div class="bar">
        <h2>{plural(answer.ranks.length, "rank")}</h2>
        {elsewhere > 0 && (
          <span class="grain">
            {countText(elsewhere)} of {countText(answer.world_size)} have no endpoint here
          </span>
        )}
        <span class="push" />
        {points && (
          <label class="check">
            <input
              type="checkbox" checked={view.log}
              onChange={(event) => change({ log: event.currentTarget.checked })}
            /> log scale
          </label>
        )}
        <button
          type="button" onClick={() => save(fileName(answer.run, answer.rank, "ranks"), csvOf(
            HEAD, ranks.map((each) => HEAD.map((key) => cellOf(each[key as keyof Rank]))),
          ))}
        >
          Export CSV
        </button>
      </div>
      {ranks.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Ranks">
          <table>
            <thead>
              <tr>
                <th scope="col" class="n">rank</th><th scope="col">state</th>
                {isShared && (
                  <>
                    <th scope="col" class="n">step</th><th scope="col" class="n">loss</th>
                    <th scope="col" class="n">gradient norm</th><th scope="col" class="n">step time</th>
                    <th scope="col" class="n">of it waiting for ranks</th>
                    <th scope="col" class="n">not finite</th><th scope="col">open incidents</th>
                  </>
                )}
                <th scope="col">page</th><th scope="col" class="n">process</th>
                <th scope="col">started</th>
              </tr>
            </thead>
            <tbody>
              {ranks.map((each) => (
                <tr key={each.rank} class={each.is_this ? "chosen" : ""}>
                  <th scope="row" class="n">{each.rank}</th>
                  <td>{stateBadge(each)}</td>
                  {isShared && <Numbers rank={each} />}
                  <td>{each.is_this ? "this one" : <a href={addressFrom(here, each.url)}>{linkText(here, each.url)}</a>}</td>
                  <td class="n">{each.pid}</td>
                  <td>{timeText(each.started)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {points && points.last.length > 0 && (
        <div class="chart-grid">
          {specs.map((spec) => (
            <Chart
              key={spec.id} spec={spec} points={points} log={view.log} zoom={zoom} incidents={[]}
              window={{ from: points.first[0]!, to: points.last.at(-1)! }}
            />
          ))}
        </div>
      )}
      {points && ranks.length > drawn.length && (
        <p class="grain">The charts show the last steps of ranks {drawn.map((each) => each.rank).join(", ")}.</p>
      )}
    </section>
  );
}

/** Where ranks share a port, that is not said again. */
function linkText(here: Rank | undefined, url: string): string {
  const port = here?.url.replace(/\/rank\/\d+$/, "/");
  return port && port !== here?.url && url.startsWith(port) ? url.slice(port.length - 1) : url;
}

function stateBadge(rank: Rank) {
  const isOver = rank.state === "finished" || rank.state === "failed";
  if (rank.answers === false && !isOver) return <span class="badge failed">no answer</span>;
  return <span class={`badge ${rank.state}`}>{rank.state}</span>;
}

function Numbers({ rank }: { rank: Rank }) {
  const time = (seconds: Num | undefined) => {
    const known = finite(seconds);
    return known === null ? "–" : durationText(known);
  };
  const bad = rank.nonfinite_steps ?? 0;
  const open = [...new Set(rank.open_incidents ?? [])].map(classText).join(", ");
  const none = rank.answers ? "none" : "–";
  return (
    <>
      <td class="n">{rank.run_step === undefined ? "–" : countText(rank.run_step)}</td>
      <td class="n">{numberText(rank.loss)}</td>
      <td class="n">{numberText(rank.grad_norm)}</td>
      <td class="n">{time(rank.step_seconds)}</td>
      <td class="n">{time(rank.rank_wait_seconds)}</td>
      <td class="n">{bad > 0 ? <span class="badge bad">{plural(bad, "step")}</span> : none}</td>
      <td>{open || none}</td>
    </>
  );
}

function cellOf(value: Rank[keyof Rank]): string | number | undefined {
  if (Array.isArray(value)) return value.join(" ");
  return typeof value === "boolean" ? String(value) : value;
}
