// Tables as RFC 4180 has them, for spreadsheets and pandas alike.

export type Cell = string | number | null | undefined;

/** What was not measured is an empty field. Names come from the run: see `inert`. */
export function csvOf(head: string[], rows: Iterable<Cell[]>): string {
  const lines = [head.map(field).join(",")];
  for (const row of rows) lines.push(row.map(field).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function field(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  const text = typeof cell === "string" ? inert(cell) : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A spreadsheet takes text that begins with one of these for a formula; with an apostrophe in front it is text. */
function inert(text: string): string {
  const isNumber = text.trim() !== "" && !Number.isNaN(Number(text));
  return /^[=+\-@\t\r]/.test(text) && !isNumber ? `'${text}` : text;
}

export function save(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // The download has its own hold on the bytes once it has begun.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** run-rank0-what.csv, with nothing in it that a file system would mind. */
export function fileName(run: string | undefined, rank: number | undefined, what: string): string {
  const words = [run ?? "gradvane", `rank${rank ?? 0}`, what];
  return `${words.join("-").replace(/[^\w.-]+/g, "_")}.csv`;
}
