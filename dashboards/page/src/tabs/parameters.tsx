// Every parameter, in a table that holds only the rows in sight.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Num, Param, Tensor } from "../data/api";
import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import { Search } from "./layers";
import { countText, numberText, percentText, plural, UNMEASURED } from "../words/number_text";
import { TENSOR_NUMBERS, type TensorNumber } from "../words/numbers";
import { ParamPanel } from "./param_panel";
import { allRows, useParamRows } from "../data/param_windows";
import { hashOf, type View } from "../view/view";

interface ColumnSpec {
  sort: string;
  label: string;
  /** Class, which has the width too. */
  look: string;
  text: (param: Param) => string;
}

const COLUMNS: ColumnSpec[] = [
  { sort: "name", label: "parameter", look: "name", text: (p) => p.name },
  { sort: "state", label: "state", look: "state-column", text: (p) => p.state },
  { sort: "nonfinite_steps", label: "not finite", look: "remark", text: remarkOf },
  { sort: "numel", label: "elements", look: "n", text: (p) => countText(p.numel) },
  ...TENSOR_NUMBERS.map((number) => ({
    sort: number.key, label: number.label, look: number.label.length > 10 ? "n long" : "n",
    text: (p: Param) => statText(tensorOf(number, p), numberOf(number, p), number.unit),
  })),
];

function tensorOf(number: TensorNumber, param: Param): Tensor | undefined {
  return number.site === "grad" ? param.grad : param.weight;
}

function numberOf(number: TensorNumber, param: Param): Num | undefined {
  if (number.tensor_key === "") return param.update_ratio?.value;
  return tensorOf(number, param)?.[number.tensor_key];
}

/** Norms are over finite elements; a tensor without one has none. */
function statText(
  tensor: Tensor | undefined, value: Num | undefined, unit: TensorNumber["unit"],
): string {
  if (unit === "ratio") return numberText(value);
  if (!tensor) return UNMEASURED;
  const { nan, pos_inf: positive, neg_inf: negative } = tensor.nonfinite;
  const isRuined = tensor.numel > 0 && nan + positive + negative >= tensor.numel;
  if (isRuined) return "NaN";
  return unit === "share" ? percentText(value) : numberText(value);
}

function remarkOf(param: Param): string {
  const bad = param.first_nonfinite;
  if (!bad) return "";
  return `${plural(param.nonfinite_steps, "step")}, first ${countText(bad.run_step)}`;
}

const ROW_PX = 30;
const SPARE_ROWS = 8;
const WORDY = new Set(["name", "group", "state", "worst", "index"]);

export function Parameters({ data, view, change }: TabProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const sizes = new ResizeObserver(() => setHeight(scroller.current?.clientHeight ?? 600));
    sizes.observe(scroller.current!);
    return () => sizes.disconnect();
  }, []);
  // Another order or search begins at its top.
  useEffect(() => {
    if (scroller.current) scroller.current.scrollTop = 0;
  }, [view.sort, view.order, view.search]);

  const from = Math.max(0, Math.floor(top / ROW_PX) - SPARE_ROWS);
  const inSight = Math.ceil(height / ROW_PX) + 2 * SPARE_ROWS;
  const rows = useParamRows(data, view, from, from + inSight);
  const matched = rows.matched ?? 0;
  const to = Math.min(matched, from + inSight);
  const status = data.status!;

  const exportAll = async () => {
    const all = await allRows({ sort: view.sort, order: view.order, search: view.search });
    save(fileName(status.run, status.rank, "parameters"), csvOfParams(all));
  };

  return (
    <>
      <div class="bar">
        <Search text={view.search} onChange={(search) => change({ search }, "replace")} />
        <button
          type="button" aria-pressed={view.sort === "worst"}
          onClick={() => change({ sort: "worst", order: "" })}
        >
          Worst first
        </button>
        <button
          type="button" aria-pressed={view.sort === "index"}
          onClick={() => change({ sort: "index", order: "" })}
        >
          Model order
        </button>
        <span class="grain" role="status">{rows.error || sizeText(rows.matched, rows.total)}</span>
        <span class="push" />
        <button type="button" onClick={() => void exportAll()}>Export CSV</button>
      </div>
      <div
        class={`table-scroll${view.param ? " short" : ""}`} ref={scroller} tabIndex={0}
        role="region" aria-label="Parameters" onScroll={() => setTop(scroller.current!.scrollTop)}
      >
        <table class="rows" aria-rowcount={matched + 1}>
          <thead>
            <tr aria-rowindex={1}>
              {COLUMNS.map((column) => (
                <HeadCell key={column.sort} column={column} view={view} change={change} />
              ))}
            </tr>
          </thead>
          <tbody>
            <Spacer rows={from} />
            {Array.from({ length: Math.max(0, to - from) }, (_, i) => (
              <Row key={from + i} index={from + i} param={rows.rowAt(from + i)} view={view} />
            ))}
            <Spacer rows={Math.max(0, matched - to)} />
          </tbody>
        </table>
      </div>
      {view.param && (
        <ParamPanel data={data} view={view} change={change} onClose={() => change({ param: "" })} />
      )}
    </>
  );
}

function sizeText(matched: number | null, total: number): string {
  if (matched === null) return "Loading …";
  if (total === 0) return "No parameters are being watched.";
  return matched === total ? plural(total, "parameter")
    : `${countText(matched)} of ${plural(total, "parameter")}`;
}

/** Stands for the rows that are out of sight. */
function Spacer({ rows }: { rows: number }) {
  if (rows === 0) return null;
  return (
    <tr class="spacer" aria-hidden="true">
      <td colSpan={COLUMNS.length} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

function HeadCell(
  { column, view, change }: { column: ColumnSpec } & Pick<TabProps, "view" | "change">,
) {
  const isSorted = view.sort === column.sort;
  const usual = WORDY.has(column.sort) ? "asc" : "desc";
  const order = view.order || usual;
  const next = isSorted && order === usual ? (usual === "asc" ? "desc" : "asc") : "";
  return (
    <th
      scope="col" class={column.look}
      aria-sort={isSorted ? (order === "asc" ? "ascending" : "descending") : undefined}
    >
      <button type="button" onClick={() => change({ sort: column.sort, order: next })}>
        {column.label}
        <span aria-hidden="true">{isSorted ? (order === "asc" ? " ↑" : " ↓") : ""}</span>
      </button>
    </th>
  );
}

function Row({ index, param, view }: { index: number; param: Param | undefined; view: View }) {
  if (!param) {
    return (
      <tr aria-rowindex={index + 2} aria-busy="true">
        <td colSpan={COLUMNS.length} class="waiting">…</td>
      </tr>
    );
  }
  return (
    <tr aria-rowindex={index + 2} class={view.param === param.name ? "chosen" : ""}>
      {COLUMNS.map((column) => {
        const text = column.text(param);
        if (column.sort === "name") {
          return (
            <th scope="row" class="name" key="name">
              <a href={hashOf({ ...view, param: param.name })} title={param.name}>
                <code>{param.name}</code>
              </a>
            </th>
          );
        }
        const look = column.sort === "state" ? `state ${param.state}` : column.look;
        return <td key={column.sort} class={look}>{text}</td>;
      })}
    </tr>
  );
}

function csvOfParams(params: Param[]): string {
  const head = ["index", "name", "group", "shape", "dtype", "state", "elements",
    ...TENSOR_NUMBERS.map(({ key }) => key), "nonfinite_steps", "first_nonfinite_step"];
  return csvOf(head, params.map((p) => [
    p.index, p.name, p.group, p.shape.join("x"), p.dtype, p.state, p.numel,
    ...TENSOR_NUMBERS.map((number) => numberOf(number, p)), p.nonfinite_steps, p.first_nonfinite?.run_step,
  ]));
}
