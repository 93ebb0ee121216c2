import { useEffect, useRef, useState } from "preact/hooks";
import type { HeatMap as Answer } from "../data/api";
import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import { HeatMap } from "../heat/heat_map";
import { cellsIn, joinedHeat } from "../heat/heat_map_data";
import { countText } from "../words/number_text";
import { TENSOR_NUMBERS } from "../words/numbers";
import { ParamPanel } from "./param_panel";
import { extentOf, windowOf, type Window } from "../data/points";
import { grainText, RangeBar } from "../view/range_bar";
import { usePolled, type Growing } from "../data/use_polled";
import type { HeatValue } from "../view/view";

const GROWING: Growing<Answer> = { next: (answer) => answer.next, join: joinedHeat };
const ROWS = 200;

export function Layers({ data, view, change }: TabProps) {
  const ofParams = view.rows === "params";
  const { answer, error } = usePolled<Answer>(data, "heatmap", {
    rows: view.rows, value: view.value, limit: ROWS,
    group: ofParams ? view.group : undefined, search: ofParams ? view.search : undefined,
  }, GROWING);
  const extent = answer && answer.first.length > 0
    ? { from: answer.first[0]!, to: answer.last.at(-1)! } : extentOf(data.ring, data.whole);
  const window = extent ? windowOf(view, extent) : null;
  const status = data.status!;

  const open = (name: string) => {
    // Of what is shown, which for a moment is not yet what was asked for.
    if (answer?.rows === "groups") change({ rows: "params", group: name, param: "", search: "" });
    else change({ param: name });
  };
  const zoomTo = (from: number, to: number) => change({ zoom: { from, to } });

  return (
    <>
      {window && (
        <RangeBar
          view={view} change={change} window={window}
          grain={answer ? grainText(answer.steps_per_point, false) : ""}
        >
          {answer && (
            <button
              type="button"
              onClick={() => {
                save(fileName(status.run, status.rank, answer.value), csvOfHeat(answer, window));
              }}
            >
              Export CSV
            </button>
          )}
        </RangeBar>
      )}
      <section class="heat-card">
        <div class="bar">
          <Crumbs view={view} change={change} />
          <span class="push" />
          <label class="field">
            Show{" "}
            <select
              value={view.value}
              onChange={(event) => change({ value: event.currentTarget.value as HeatValue })}
            >
              {TENSOR_NUMBERS.map(({ key, title }) => (
                <option key={key} value={key}>{title}</option>
              ))}
            </select>
          </label>
        </div>
        {ofParams && (
          <Search text={view.search} onChange={(search) => change({ search }, "replace")} />
        )}
        {answer && window && answer.names.length > 0 && answer.first.length > 0 && (
          <HeatMap answer={answer} window={window} onOpen={open} onZoom={zoomTo} />
        )}
        <p class="empty">{emptyText(answer, error, view.search)}</p>
      </section>
      {view.param && (
        <ParamPanel data={data} view={view} change={change} onClose={() => change({ param: "" })} />
      )}
    </>
  );
}

function emptyText(answer: Answer | null, error: string, search: string): string {
  if (!answer) return error || "Loading …";
  if (answer.names.length === 0) {
    return search ? `Nothing is named like “${search}”.` : "No layers are being watched.";
  }
  if (answer.first.length === 0) return "No step has been seen yet.";
  if (answer.names.length >= answer.matched) return "";
  const shown = `The first ${countText(answer.names.length)} of ${countText(answer.matched)} rows`;
  const where = answer.rows === "groups" ? " in every parameter" : "";
  return `${shown}; a search${where} finds the rest.`;
}

function Crumbs({ view, change }: Pick<TabProps, "view" | "change">) {
  if (view.rows === "groups") {
    return (
      <h2>
        Layers <button
          type="button" class="plain" onClick={() => change({ rows: "params", group: "" })}
        >
          Show every parameter
        </button>
      </h2>
    );
  }
  return (
    <h2>
      <button
        type="button" class="plain"
        onClick={() => change({ rows: "groups", group: "", search: "", param: "" })}
      >
        Layers
      </button>{" › "}
      {view.group ? <code>{view.group}</code> : "every parameter"}
    </h2>
  );
}

const TYPING_MS = 250;

/** Tells of what was typed once the typing has paused. */
export function Search({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  const told = useRef(text);
  useEffect(() => {
    if (text === told.current) return;  // our own word comes back; more may have been typed since
    told.current = text;
    setTyped(text);
  }, [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => {
      told.current = typed;
      onChange(typed);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <input
      type="search" class="search" placeholder="Search names" aria-label="Search names"
      value={typed} onInput={(event) => setTyped(event.currentTarget.value)}
    />
  );
}

function csvOfHeat(answer: Answer, window: Window): string {
  const cells = cellsIn(answer, window);
  const rows = cells.last.flatMap((last, point) => cells.names.map((name, row) => [
    cells.first[point], last, name, cells.values[row]?.[point] ?? null,
    cells.bad.get(row)?.get(point) ?? 0,
  ]));
  return csvOf(["first_step", "last_step", "name", answer.value, "nonfinite_steps"], rows);
}
