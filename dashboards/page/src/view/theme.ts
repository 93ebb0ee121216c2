// Light and dark: as the system has it, or as the reader chose. Canvas needs the colours as values.

export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

const KEY = "gradvane-theme";

/** Storage can be switched off, and then throws. */
export function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return THEMES.find((theme) => theme === stored) ?? "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme: Theme): void {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // It is used all the same, as long as the page is open.
  }
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  refreshPalette();
}

export interface Palette {
  ink: string;
  soft: string;
  card: string;
  rule: string;
  grid: string;
  bad: string;
  badPaper: string;
  warn: string;
  lines: [string, string];
  zero: string;
}

let palette: Palette | null = null;
const listeners = new Set<() => void>();

export function currentPalette(): Palette {
  palette ??= readPalette();
  return palette;
}

function readPalette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    ink: colour("--ink"),
    soft: colour("--soft"),
    card: colour("--card"),
    rule: colour("--rule"),
    grid: colour("--grid"),
    bad: colour("--bad"),
    badPaper: colour("--bad-paper"),
    warn: colour("--warn"),
    lines: [colour("--line"), colour("--line-2")],
    zero: colour("--zero"),
  };
}

function refreshPalette(): void {
  palette = null;
  for (const listener of listeners) listener();
}

/** Whoever paints on a canvas paints again when the colours change. */
export function onPaletteChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshPalette);
