// The frame around the views: state first, then tabs, then what was chosen.
import { useEffect, useMemo } from "preact/hooks";
import { useAgentData, type AgentData } from "./data/agent_data";
import { Configuration } from "./tabs/configuration";
import { Header } from "./header";
import { Incidents } from "./tabs/incidents";
import { Layers } from "./tabs/layers";
import type { Live } from "./data/live";
import { Overview } from "./tabs/overview";
import { Parameters } from "./tabs/parameters";
import { Ranks } from "./tabs/ranks";
import { Syncs } from "./tabs/syncs";
import { TabBar } from "./tab_bar";
import { useView } from "./view/use_view";

export function App({ data, live }: { data: AgentData; live: Live }) {
  useAgentData(data);
  const [view, change] = useView();
  const { status } = data;
  const sentence = useMemo(() => data.sentence, [status, data.link]);

  useEffect(() => live.choose(view.optimizer), [live, view.optimizer]);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof HTMLInputElement;
      if (event.key === "Escape" && view.zoom && !isTyping) change({ zoom: null });
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [view.zoom, change]);

  const props = { data, live, view, change };
  return (
    <>
      <Header data={data} sentence={sentence} />
      {status && (
        <>
          <TabBar data={data} view={view} />
          <main id="main" tabIndex={-1} key={view.tab}>
            {view.tab === "overview" && <Overview {...props} />}
            {view.tab === "layers" && <Layers {...props} />}
            {view.tab === "parameters" && <Parameters {...props} />}
            {view.tab === "incidents" && <Incidents {...props} />}
            {view.tab === "syncs" && <Syncs {...props} />}
            {view.tab === "ranks" && <Ranks {...props} />}
            {view.tab === "configuration" && <Configuration {...props} />}
          </main>
          <Footer data={data} />
        </>
      )}
    </>
  );
}

function Footer({ data }: { data: AgentData }) {
  const { status } = data;
  const version = status?.process?.version;
  return (
    <footer>
      <p>
        Gradvane{version && ` ${version}`} · <a href="metrics">metrics</a> ·{" "}
        <a href="api/v1/status">status</a> · <a href="api/v1/params">parameters</a> ·{" "}
        <a href="api/v1/steps">steps</a> · <a href="api/v1/syncs">host syncs</a>
      </p>
    </footer>
  );
}
