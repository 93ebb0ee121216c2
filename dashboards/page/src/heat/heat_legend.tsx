// What the colours of the heat map mean.
import { shade, type ColourScale } from "./colour_scale";

const STEPS = 32;

interface Props {
  scale: ColourScale | null;
  text: (value: number) => string;
  isLog: boolean;
  hasBad: boolean;
  isHeld: boolean;
}

export function HeatLegend({ scale, text, isLog, hasBad, isHeld }: Props) {
  return (
    <div class="heat-legend">
      {scale && (
        <div class="ramp">
          <div class="ramp-colours" aria-hidden="true">
            {Array.from({ length: STEPS }, (_, i) => (
              <i key={i} style={{ background: shade(i / (STEPS - 1)) }} />
            ))}
          </div>
          <div class="ramp-ticks">
            {scale.ticks.map((tick) => (
              <span key={tick} style={{ left: `${scale.shareOf(tick) * 100}%` }}>{text(tick)}</span>
            ))}
          </div>
        </div>
      )}
      <ul class="samples">
        {hasBad && <li><i class="sample sample-bad" />not finite</li>}
        {isLog && <li><i class="sample sample-zero" />zero</li>}
        {isHeld && <li>a reading holds until the next</li>}
        <li><i class="sample sample-blank" />not measured</li>
      </ul>
    </div>
  );
}
