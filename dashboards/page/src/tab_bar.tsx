import { useEffect, useRef } from "preact/hooks";
import type { AgentData } from "./data/agent_data";
import { isOpen } from "./words/incident_words";
import { countText } from "./words/number_text";
import { tabLink, TABS, type Tab, type View } from "./view/view";

export const TAB_WORDS: Record<Tab, string> = {
  overview: "Overview",
  layers: "Layers",
  parameters: "Parameters",
  incidents: "Incidents",
  syncs: "Host syncs",
  ranks: "Ranks",
  configuration: "Configuration",
};

export function TabBar({ data, view }: { data: AgentData; view: View }) {
  const bar = useRef<HTMLElement>(null);
  // On a narrow screen the bar scrolls, and the chosen one may be out of sight.
  useEffect(() => {
    const chosen = bar.current?.querySelector<HTMLElement>("[aria-current]");
    if (chosen) bar.current!.scrollLeft = chosen.offsetLeft - bar.current!.clientWidth / 3;
  }, [view.tab]);
  return (
    <nav aria-label="Views" ref={bar}>
      {TABS.map((tab) => (
        <a
          key={tab} href={tabLink(view, tab)}
          aria-current={tab === view.tab ? "page" : undefined}
        >
          {TAB_WORDS[tab]}{tab === "incidents" && <IncidentCount data={data} />}
        </a>
      ))}
    </nav>
  );
}

function IncidentCount({ data }: { data: AgentData }) {
  const status = data.status!;
  if (status.incidents_total === 0) return null;
  const open = status.incidents.some(isOpen);
  return (
    <span class={open ? "count bad" : "count"}>
      {countText(status.incidents_total)}
      <span class="unseen">{open ? " in all, some open" : " in all"}</span>
    </span>
  );
}
