// One dashboard as a page: the panels where its file puts them, all rows open.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { initPluginTranslations } from '@grafana/i18n';
import { ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import 'uplot/dist/uPlot.min.css';
import { Bars, Graph, Rows, Tile } from './drawn_by_grafana';
import { Heat, Strips } from './drawn_here';
import { Curves } from './curves_here';
import { curves, seriesFrames, tableFrame, theme } from './frames';

const CELL = 38;
const GAP = 8;
const HERE = { 'state-timeline': Strips, heatmap: Heat, xychart: Curves };
const GRAFANA = { timeseries: Graph, stat: Tile, bargauge: Bars };

function Nothing({ panel, width, height }) {
  return <div style={{ width, height, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary }}>
    {panel.fieldConfig.defaults.noValue ?? 'No data'}</div>;
}

function Content({ panel, prepared, events, window, width, height }) {
  if (!prepared || !(prepared.length ?? prepared.fields.length)) {
    return <Nothing panel={panel} width={width} height={height} />;
  }
  if (panel.type === 'table') return <Rows frame={prepared} width={width} height={height} />;
  const Drawn = GRAFANA[panel.type] ?? HERE[panel.type];
  return <Drawn panel={panel} frames={prepared} events={events} window={window} width={width} height={height} />;
}

function Board({ board, prepared, events, window, picked, width }) {
  const column = (width - GAP) / 24;
  return (
    <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, width,
      fontFamily: theme.typography.fontFamily, position: 'relative', height: board.height }}>
      <div style={{ padding: '14px 16px 0', fontSize: 20, fontWeight: 500 }}>{board.title}</div>
      <div style={{ padding: '6px 16px', display: 'flex', gap: 18, fontSize: 12, color: theme.colors.text.secondary }}>
        {picked.map(([name, value]) => <span key={name}>{name} <b style={{ color: theme.colors.text.primary }}>{value}</b></span>)}
        <span style={{ marginLeft: 'auto' }}>{events.map(({ name, colour }) => (
          <span key={name} style={{ marginLeft: 14 }}>
            <span style={{ color: theme.visualization.getColorByName(colour) }}>┆</span> {name}</span>))}</span>
      </div>
      {board.panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const style = { position: 'absolute', left: GAP + x * column, top: 72 + y * CELL };
        if (panel.type === 'row') {
          return <div key={panel.id} style={{ ...style, padding: '8px 4px', fontSize: 15 }}>{panel.title}</div>;
        }
        return (
          <div key={panel.id} style={style}>
            <PanelChrome title={panel.title} width={w * column - GAP} height={h * CELL - GAP}
              titleItems={panel.type in HERE ? [<span key="here" style={{ fontSize: 11, padding: '6px 8px',
                color: theme.colors.text.disabled }}>drawn by the preview, not by Grafana</span>] : []}>
              {(innerWidth, innerHeight) => (
                <Content panel={panel} prepared={prepared[panel.id]} events={events} window={window}
                  width={innerWidth} height={innerHeight} />
              )}
            </PanelChrome>
          </div>
        );
      })}
      <div style={{ position: 'absolute', bottom: 8, left: 16, fontSize: 11, color: theme.colors.text.disabled }}>
        {board.footnote}</div>
    </div>
  );
}

async function main() {
  const data = window.gradvaneBoard;
  await initPluginTranslations('gradvane-preview');
  const prepared = {};
  for (const panel of data.board.panels) {
    if (panel.type === 'row') continue;
    const answers = data.answers[panel.id];
    if (panel.type === 'table') prepared[panel.id] = await tableFrame(panel, answers);
    else if (panel.type === 'xychart') prepared[panel.id] = curves(panel, answers);
    else prepared[panel.id] = seriesFrames(panel, answers, data.window);
  }
  document.body.style.margin = 0;
  createRoot(document.getElementById('board')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Board board={data.board} prepared={prepared} events={data.events} window={data.window} picked={data.picked}
        width={data.width} />
    </ThemeContext.Provider>);
}

main().catch((error) => { document.body.textContent = `The preview failed: ${error.stack}`; });
