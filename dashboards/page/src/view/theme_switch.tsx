import { useState } from "preact/hooks";
import { applyTheme, storedTheme, THEMES, type Theme } from "./theme";

const WORDS: Record<Theme, string> = { system: "Auto", light: "Light", dark: "Dark" };

export function ThemeSwitch() {
  const [theme, setTheme] = useState(storedTheme);
  return (
    <select
      class="theme" aria-label="Colours" value={theme}
      onChange={(event) => {
        const chosen = event.currentTarget.value as Theme;
        applyTheme(chosen);
        setTheme(chosen);
      }}
    >
      {THEMES.map((each) => <option key={each} value={each}>{WORDS[each]}</option>)}
    </select>
  );
}
