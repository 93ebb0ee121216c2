// The style sheet of the pages. Light and dark by the reader's own setting; colours differ in lightness
// too, and every state is written out, so nothing hangs on telling red from green.
#include "exporters/page.hpp"

namespace gradvane::exporters {
namespace {

constexpr const char* kStyle = R"css(:root {
  color-scheme: light dark;
  --ink: #1c2430; --soft: #5a6675; --paper: #f6f7f9; --card: #ffffff; --rule: #dfe3e8;
  --line: #2563b8; --bad: #b3261e; --bad-paper: #fdecea; --good: #1b6e3c; --warn: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6eaf0; --soft: #9aa6b5; --paper: #12161c; --card: #1b212a; --rule: #2e3743;
    --line: #7db4ff; --bad: #ff9d94; --bad-paper: #3a1f1d; --good: #7fd6a0; --warn: #f0c060;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 72rem; padding: 1.25rem 1.5rem 2rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
code { font: 0.93em ui-monospace, "DejaVu Sans Mono", monospace; }
a { color: var(--line); }
header h1 { margin: 0; font-size: 1.5rem; overflow-wrap: anywhere; }
header p { margin: 0.25rem 0 0; color: var(--soft); }
h2 { margin: 0 0 0.5rem; font-size: 1.05rem; }
.badge {
  display: inline-block; margin-left: 0.5rem; padding: 0.1rem 0.6rem; border: 1px solid;
  border-radius: 1rem; font-size: 0.85rem; font-weight: 600; vertical-align: 0.2em;
}
.badge.running, .badge.finished { color: var(--good); }
.badge.starting { color: var(--soft); }
.badge.stalled { color: var(--warn); }
.badge.failed { color: var(--bad); }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr));
  grid-auto-flow: dense; gap: 0.75rem;
  margin: 1.25rem 0;
}
.tile, figure, section:not(.charts) {
  background: var(--card); border: 1px solid var(--rule); border-radius: 0.5rem;
}
.tile { padding: 0.65rem 0.9rem; }
.tile.wide { grid-column: span 2; }
.tile.bad { background: var(--bad-paper); border-color: var(--bad); }
.tile.bad dd:not(.note) { color: var(--bad); }
dt { color: var(--soft); font-size: 0.85rem; }
dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dd.note { font-size: 0.82rem; font-weight: 400; color: var(--soft); overflow-wrap: anywhere; }
.tile.bad dd.note { color: var(--ink); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 0.75rem; }
figure { margin: 0; padding: 0.65rem 0.9rem; }
figcaption { font-size: 0.85rem; color: var(--soft); }
figcaption .bad { color: var(--bad); font-weight: 600; }
.plot { display: flex; gap: 0.5rem; margin-top: 0.35rem; }
.scale {
  display: flex; flex-direction: column; justify-content: space-between; min-width: 3.5rem;
  text-align: right;
}
.scale, .steps { font-size: 0.78rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.steps { display: flex; justify-content: space-between; margin-left: 4rem; }
svg { flex: 1; min-width: 0; height: 8rem; border-left: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
path.line { fill: none; stroke: var(--line); stroke-width: 1.6; vector-effect: non-scaling-stroke; }
line.bad { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
section:not(.charts) { margin-top: 0.75rem; padding: 0.8rem 0.9rem; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 0.88rem; }
th, td { padding: 0.3rem 0.6rem; text-align: left; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--rule); }
tbody th { font-weight: 400; }
tbody tr + tr > * { border-top: 1px solid var(--rule); }
td.remark { white-space: normal; min-width: 9rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.state { color: var(--soft); }
.state.nonfinite { color: var(--bad); font-weight: 600; }
.state.missing, .state.unsupported, .state.zero { color: var(--warn); }
.incidents { margin: 0; padding-left: 1.2rem; }
.incidents li + li { margin-top: 0.4rem; }
.empty, .more { margin: 0.4rem 0 0; color: var(--soft); font-size: 0.88rem; }
footer { margin-top: 1.25rem; color: var(--soft); font-size: 0.82rem; }
)css";

}  // namespace

HttpResponse style_sheet() {
  return {
      .content_type = "text/css; charset=utf-8", .body = kStyle, .cache_control = "max-age=300"};
}

}  // namespace gradvane::exporters
