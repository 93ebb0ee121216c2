// The panels that Grafana's own components draw: @grafana/ui's TimeSeries, BigValue, BarGauge and Table.
import React from 'react';
import { BarGauge, BigValue, Table, TimeSeries, VizRepeater } from '@grafana/ui';
import { VizOrientation, dateTime, getFieldDisplayName } from '@grafana/data';
import { ZONE, theme } from './frames';

export function Graph({ panel, frames, events, window, width, height }) {
  const range = { from: dateTime(window.start * 1000), to: dateTime(window.end * 1000) };
  for (const frame of frames) {
    for (const field of frame.fields) {
      field.config.custom = { drawStyle: 'line', lineInterpolation: 'linear', axisPlacement: 'auto', pointSize: 5,
        stacking: { mode: 'none', group: 'A' }, scaleDistribution: { type: 'linear' }, hideFrom: {},
        thresholdsStyle: { mode: 'off' }, ...field.config.custom };
    }
  }
  return (
    <TimeSeries frames={frames} structureRev={1} timeRange={{ ...range, raw: range }} timeZone={ZONE} width={width}
      height={height} legend={panel.options.legend} options={{}}>
      {(config) => {
        // Grafana's annotation plugin is not among its published components: these lines are ours.
        config.addHook('draw', (plot) => {
          const { ctx, bbox } = plot;
          ctx.save();
          ctx.globalAlpha = 0.6;
          ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
          for (const { colour, times } of events) {
            ctx.strokeStyle = theme.visualization.getColorByName(colour);
            for (const when of times) {
              const x = plot.valToPos(when * 1000, 'x', true);
              if (x < bbox.left || x > bbox.left + bbox.width) continue;
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
            }
          }
          ctx.restore();
        });
        return null;
      }}
    </TimeSeries>
  );
}

function last(field) {
  const values = field.values.filter((value) => value !== null);
  return values[values.length - 1];
}

function shown(frames) {
  return frames.map((frame) => {
    const field = frame.fields[1];
    const values = field.values.filter((value) => value !== null);
    // Grafana's core does this for all fields.
    field.state.range = { min: Math.min(...values), max: Math.max(...values) };
    return { frame, field, display: field.display(last(field)), title: getFieldDisplayName(field, frame) };
  });
}

export function Tile({ panel, frames, width, height }) {
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  const named = textMode === 'value_and_name';
  return (
    <VizRepeater source={frames} getValues={() => shown(frames)} width={width} height={height}
      orientation={VizOrientation.Vertical} autoGrid
      renderValue={({ value, width, height }) => (
        <BigValue theme={theme} width={width} height={height} colorMode={colorMode} graphMode={graphMode}
          justifyMode={justifyMode} textMode={textMode}
          sparkline={graphMode === 'area' ? { x: value.frame.fields[0], y: value.field } : undefined}
          value={{ ...value.display, title: named ? value.title : '' }} />
      )} />
  );
}

export function Bars({ panel, frames, width, height }) {
  const values = shown(frames).sort((one, other) => other.display.numeric - one.display.numeric);
  const most = Math.max(...values.map(({ display }) => display.numeric));
  const longest = Math.max(...values.map(({ title }) => title.length));
  return (
    <VizRepeater source={frames} getValues={() => values} width={width} height={height} itemSpacing={6}
      orientation={VizOrientation.Horizontal} maxVizHeight={panel.options.maxVizHeight} minVizHeight={panel.options.minVizHeight}
      renderValue={({ value, width, height }) => (
        <BarGauge theme={theme} width={width} height={height} orientation={VizOrientation.Horizontal}
          field={{ ...value.field.config, min: 0, max: most }} display={value.field.display}
          value={{ ...value.display, title: value.title }} displayMode={panel.options.displayMode}
          valueDisplayMode={panel.options.valueMode} showUnfilled={panel.options.showUnfilled}
          text={panel.options.text} alignmentFactors={{ title: 'm'.repeat(longest), text: value.display.text + 'mm' }} />
      )} />
  );
}

export function Rows({ frame, width, height }) {
  return <Table data={frame} width={width} height={height} showTypeIcons={false} enableSharedCrosshair={false} />;
}
