#include "nibble/report/style.h"

namespace nibble::report {

// Contrast of text is at least 4.5 on its ground, of marks at least 3, in both
// schemes; series differ in shape as well as in colour.
const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --ground: #ffffff; --panel: #f6f7f9; --ink: #1b1f24; --soft: #57606a;
  --line: #d8dee4; --bar: #2a6fbb; --ghost: #c4ccd4;
  --c0: #1f6fc0; --c1: #c2500f; --c2: #1a7f52; --c3: #8045ad;
  --c4: #9a6b00; --c5: #b83275; --c6: #0f7681; --c7: #5d6570;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171b; --panel: #1d2126; --ink: #e6e9ed; --soft: #a2abb5;
    --line: #363c44; --bar: #5a9be6; --ghost: #4a525c;
    --c0: #63a8f2; --c1: #f08a4b; --c2: #4fc08d; --c3: #bd8ae6;
    --c4: #d8a93a; --c5: #ec7bb0; --c6: #4fbac6; --c7: #a7b0bb;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
p { margin: .4rem 0 .8rem; }
.soft { color: var(--soft); }
.cards { display: grid; gap: .6rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
.card { background: var(--panel); border: 1px solid var(--line);
  border-radius: .5rem; padding: .6rem .8rem; min-width: 0; }
.card b { display: block; font-size: 1.25rem; line-height: 1.3;
  font-weight: 600; overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: .85rem; }
figure { margin: 0 0 .6rem; }
.wide { overflow-x: auto; }
.wide:focus-visible, summary:focus-visible {
  outline: 2px solid var(--bar); outline-offset: 2px; }
svg { display: block; width: 100%; min-width: 32rem; height: auto; }
svg text { fill: var(--ink); font: 13px system-ui, "Segoe UI", sans-serif; }
svg .soft { fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .bar { fill: var(--bar); }
svg .ghost { fill: var(--ghost); }
svg .lead { stroke: var(--soft); stroke-width: 1; }
.s0 { fill: var(--c0); stroke: var(--c0); }
.s1 { fill: var(--c1); stroke: var(--c1); }
.s2 { fill: var(--c2); stroke: var(--c2); }
.s3 { fill: var(--c3); stroke: var(--c3); }
.s4 { fill: var(--c4); stroke: var(--c4); }
.s5 { fill: var(--c5); stroke: var(--c5); }
.s6 { fill: var(--c6); stroke: var(--c6); }
.s7 { fill: var(--c7); stroke: var(--c7); }
.range { stroke-width: 3; stroke-opacity: .35; }
table { border-collapse: collapse; font-size: .9rem; margin: .4rem 0; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
td.figure, th.figure { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td.name { overflow-wrap: break-word; min-width: 6rem; }
td.name:first-child { min-width: 11rem; }
details { margin: .3rem 0 1rem; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
pre { background: var(--panel); border: 1px solid var(--line);
  border-radius: .5rem; padding: .7rem; overflow-x: auto; font-size: .85rem; }
.note { border-left: 4px solid var(--c4); background: var(--panel);
  padding: .5rem .8rem; border-radius: .25rem; }
)css";

}  // namespace nibble::report
