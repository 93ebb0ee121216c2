// The panels whose components are in Grafana's core and not in @grafana/ui: drawn by this preview, and marked so.
import React from 'react';
import * as chromatic from 'd3-scale-chromatic';
import { theme } from './frames';

export const TEXT = { fill: theme.colors.text.secondary, fontSize: 11, fontFamily: theme.typography.fontFamily };

function ticks(window, width) {
  const most = width < 700 ? 4 : 9;
  const minutes = [1, 2, 5, 10, 30, 60, 180, 720].find((each) => (window.end - window.start) / 60 / each <= most) ?? 1440;
  const found = [];
  for (let when = Math.ceil(window.start / 60 / minutes) * 60 * minutes; when <= window.end; when += 60 * minutes) {
    found.push(when);
  }
  return found;
}

function clock(when) {
  return new Date(when * 1000).toISOString().slice(11, 16);
}

function room(frames) {
  return Math.min(260, 14 + 6.3 * Math.max(...frames.map((frame) => frame.name.length)));
}

function Axis({ window, x, width, top }) {
  return ticks(window, width).map((when) => (
    <text key={when} x={x(when)} y={top + 14} textAnchor="middle" style={TEXT}>{clock(when)}</text>
  ));
}

function Names({ frames, left, each }) {
  return frames.map((frame, row) => (
    <text key={frame.name} x={left - 8} y={(row + 0.5) * each + 4} textAnchor="end" style={TEXT}>{frame.name}</text>
  ));
}

export function Strips({ panel, frames, window, width, height }) {
  const states = panel.fieldConfig.defaults.mappings[0].options;
  const left = room(frames);
  const bottom = height - 44;
  const each = bottom / frames.length;
  const x = (when) => left + ((when - window.start) / (window.end - window.start)) * (width - left - 10);
  const cells = frames.flatMap((frame, row) => {
    const [times, values] = frame.fields.map((field) => field.values);
    const found = [];
    for (let index = 0; index < values.length; ) {
      let next = index + 1;
      while (next < values.length && values[next] === values[index]) next += 1;
      const state = states[String(values[index])];
      if (values[index] !== null && state) {
        const from = x(times[index] / 1000);
        const to = next < times.length ? x(times[next] / 1000) : x(window.end);
        found.push(<rect key={`${row} ${index}`} x={from} y={row * each + each * 0.1} width={Math.max(0, to - from)}
          height={each * 0.8} fill={theme.visualization.getColorByName(state.color)} fillOpacity={0.85} />);
      }
      index = next;
    }
    return found;
  });
  let legendX = left;
  return (
    <svg width={width} height={height}>
      <Names frames={frames} left={left} each={each} />
      {cells}
      <Axis window={window} x={x} width={width} top={bottom} />
      {Object.values(states).map((state) => {
        const at = legendX;
        legendX += 30 + 6.5 * state.text.length;
        return (
          <g key={state.text}>
            <rect x={at} y={height - 14} width={14} height={4} fill={theme.visualization.getColorByName(state.color)} />
            <text x={at + 19} y={height - 8} style={TEXT}>{state.text}</text>
          </g>
        );
      })}
    </svg>
  );
}

export function Heat({ panel, frames, window, width, height }) {
  const { scheme, reverse, min, max } = panel.options.color;
  const all = frames.flatMap((frame) => frame.fields[1].values).filter((value) => value !== null);
  const least = min ?? Math.min(...all);
  const most = max ?? Math.max(...all);
  // Schemes of two colours are always turned round in Grafana, so that red is the upper end.
  const turned = reverse || /^(BrBG|PiYG|PRGn|PuOr|RdBu|RdGy|RdYlBu|RdYlGn|Spectral)$/.test(scheme);
  const colour = (value) => {
    const share = Math.min(1, Math.max(0, (value - least) / (most - least || 1)));
    return chromatic[`interpolate${scheme}`](turned ? 1 - share : share);
  };
  const left = room(frames);
  const bottom = height - 48;
  const each = bottom / frames.length;
  const x = (when) => left + ((when - window.start) / (window.end - window.start)) * (width - left - 10);
  const wide = x(window.start + window.step) - x(window.start);
  const rows = frames.map((_, row) => frames[frames.length - 1 - row]);
  const legend = Array.from({ length: 64 }, (_, index) => least + ((most - least) * index) / 63);
  return (
    <svg width={width} height={height}>
      <Names frames={rows} left={left} each={each} />
      {rows.flatMap((frame, row) => frame.fields[1].values.map((value, index) => value !== null && (
        <rect key={`${row} ${index}`} x={x(frame.fields[0].values[index] / 1000)} y={row * each} width={wide - 1}
          height={each - 1} fill={colour(value)} />
      )))}
      <Axis window={window} x={x} width={width} top={bottom} />
      {legend.map((value, index) => (
        <rect key={value} x={left + index * 4} y={height - 22} width={4} height={8} fill={colour(value)} />
      ))}
      <text x={left} y={height - 3} style={TEXT}>{least.toFixed(1)}</text>
      <text x={left + 256} y={height - 3} textAnchor="end" style={TEXT}>{most.toFixed(1)}</text>
    </svg>
  );
}
