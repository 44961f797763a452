"""The page's one style sheet: light and dark, narrow and wide, on paper."""

CSS = """
:root { color-scheme: light dark; --ink: #1d2129; --dim: #667; --line: #d8dce3; --back: #fff; --soft: #f4f6f9;
  --good: #17663a; --bad: #a3202c; --warn: #8a5a00; --link: #1650a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ec; --dim: #9aa3b2; --line: #353b46; --back: #14171c;
  --soft: #1d2128; --good: #6fd39b; --bad: #ff8a8f; --warn: #f0c060; --link: #8ab4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.2rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
section { border-top: 1px solid var(--line); } a { color: var(--link); } a:focus-visible, summary:focus-visible
  { outline: 2px solid var(--link); outline-offset: 2px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .6rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; margin: .4rem 0;
  font: 13px/1.45 ui-monospace, monospace; white-space: pre-wrap; max-height: 32rem; overflow: auto; }
details { border-left: 3px solid var(--line); margin: .35rem 0; padding-left: .7rem; } summary { cursor: pointer; }
.task, .answer { white-space: pre-wrap; }
.answer { border-left: 3px solid var(--good); padding-left: .8rem; margin: .6rem 0; }
.dim, .seq, time { color: var(--dim); font-size: .85em; } .seq { font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } tr:target { background: var(--soft); }
code { font: 13px ui-monospace, monospace; }
@media (max-width: 560px) { body { padding: .7rem; font-size: 15px; } dl { grid-template-columns: 1fr; }
  dt { margin-top: .3rem; } }
@media print { details > * { display: block; } pre { max-height: none; } body { max-width: none; } }
"""
