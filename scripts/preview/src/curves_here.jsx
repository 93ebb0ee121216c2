// Grafana's XY chart, which is in its core: a curve for each run, its x axis the step.
import React from 'react';
import { getDisplayProcessor, formattedValueToString, FieldType } from '@grafana/data';
import { configOf, theme, ZONE } from './frames';
import { TEXT } from './drawn_here';

const LEFT = 64;
const RIGHT = 14;
const TOP = 8;
const BOTTOM = 52;

function nice(least, most, count) {
  const rough = (most - least || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const each = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let value = Math.ceil(least / each) * each; value <= most + each * 1e-9; value += each) {
    found.push(Number(value.toPrecision(12)));
  }
  return found;
}

function powers(least, most) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power += 1) {
    for (const factor of [1, 2, 3, 5, 7]) found.push(Number((factor * 10 ** power).toPrecision(2)));
  }
  return found.filter((value) => value >= least * 0.999 && value <= most * 1.001);
}

export function Curves({ panel, frames, width, height }) {
  const config = configOf(panel, '');
  const logarithmic = config.custom.scaleDistribution?.type === 'log';
  const shown = getDisplayProcessor({ field: { type: FieldType.number, config }, theme, timeZone: ZONE });
  const points = frames.flatMap((frame) => frame.points);
  const [steps, values] = ['A', 'B'].map((ref) => points.map((point) => point[ref]));
  const [from, to] = [Math.min(...steps), Math.max(...steps)];
  const room = logarithmic ? 0 : (Math.max(...values) - Math.min(...values)) * 0.05 || Math.abs(values[0]) * 0.1 || 1;
  const [least, most] = [Math.min(...values) - room, Math.max(...values) + room];
  const scaled = logarithmic ? Math.log : (value) => value;
  const x = (step) => LEFT + ((step - from) / (to - from || 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (scaled(value) - scaled(least)) / (scaled(most) - scaled(least) || 1))
    * (height - TOP - BOTTOM);
  const colour = (index) => theme.visualization.getColorByName(
    theme.visualization.palette[index % theme.visualization.palette.length]);
  const grid = theme.colors.border.weak;
  let at = LEFT;
  return (
    <svg width={width} height={height}>
      {(logarithmic ? powers(least, most) : nice(least, most, 5)).map((value) => (
        <g key={value}>
          <line x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} stroke={grid} />
          <text x={LEFT - 8} y={y(value) + 4} textAnchor="end" style={TEXT}>{formattedValueToString(shown(value))}</text>
        </g>
      ))}
      {nice(from, to, width < 700 ? 6 : 10).map((step) => (
        <g key={step}>
          <line x1={x(step)} x2={x(step)} y1={TOP} y2={height - BOTTOM} stroke={grid} />
          <text x={x(step)} y={height - BOTTOM + 15} textAnchor="middle" style={TEXT}>{step.toLocaleString('en')}</text>
        </g>
      ))}
      <text x={(LEFT + width - RIGHT) / 2} y={height - BOTTOM + 31} textAnchor="middle" style={TEXT}>Step</text>
      {frames.map((frame, index) => (
        <polyline key={frame.name} fill="none" stroke={colour(index)} strokeWidth={1.3}
          points={frame.points.map(({ A, B }) => `${x(A)},${y(B)}`).join(' ')} />
      ))}
      {frames.map((frame, index) => {
        const here = at;
        at += 34 + 6.5 * frame.name.length;
        return (
          <g key={frame.name}>
            <rect x={here} y={height - 12} width={14} height={4} fill={colour(index)} />
            <text x={here + 19} y={height - 6} style={TEXT}>{frame.name}</text>
          </g>
        );
      })}
    </svg>
  );
}
