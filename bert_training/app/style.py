"""The look of the page. No font and no picture comes from the network.

It is put into the head of the page as it is, because Gradio rewrites what it is given as ``css``, and wrongly so inside
of ``@media``.
"""

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")

CSS = """
gradio-app { min-width: 0; }
.gradio-container { width: 100% !important; max-width: min(1120px, 100vw) !important; margin: 0 auto !important; }
footer { display: none !important; }
.bert h1 { font-size: 1.5rem; font-weight: 650; margin: .4rem 0 .1rem; overflow-wrap: anywhere; }
.gradio-container .main, .gradio-container main, .gradio-container .tabs, .gradio-container .tabitem { width: 100%;
  min-width: 0; }
.gradio-container .tabitem { padding: .75rem 0 0 !important; }
.bert .html-container { padding: 0 !important; }
.bert header p, .bert .hint { opacity: .72; font-size: .875rem; line-height: 1.45; margin: .1rem 0 .5rem; }
.bert .what-is-this { font-size: 1rem; line-height: 1.5; max-width: 68ch; margin: .25rem 0 .25rem; }
.bert h4 { font-size: .95rem; font-weight: 600; margin: 1.1rem 0 .3rem; }
.bert h4:first-child { margin-top: 0; }
.bert .notice { border-left: 4px solid #d97706; background: rgba(217, 119, 6, .12); padding: .7rem .9rem;
  border-radius: 6px; overflow-wrap: anywhere; }
.bert .file { display: block; border: 1px dashed var(--border-color-primary); border-radius: 8px;
  padding: .7rem .9rem; }
.bert .text { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.75; max-height: 22rem; overflow-y: auto;
  border: 1px solid var(--border-color-primary); border-radius: 8px; padding: .7rem .9rem; margin: .3rem 0 .6rem; }
.bert .bars { display: grid; gap: .35rem; }
.bert .bar { display: grid; grid-template-columns: minmax(7rem, 2fr) 3fr 4.4rem; gap: .6rem; align-items: center; }
.bert .bar .what { overflow-wrap: anywhere; unicode-bidi: isolate; }
.bert .bar.first .what { font-weight: 650; }
.bert .track { display: block; height: .7rem; border-radius: 4px; overflow: hidden;
  background: rgba(128, 128, 128, .18); }
.bert .fill { display: block; height: 100%; background: rgb(37, 99, 235); border-radius: 4px; }
.bert .bar:not(.first) .fill { opacity: .55; }
.bert .share, .bert .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bert .scroll { overflow-x: auto; }
.bert .tall { max-height: 24rem; overflow-y: auto; }
.bert table.plain { width: 100%; border-collapse: collapse; font-size: .9rem; margin: 0; }
.bert table.plain, .bert table.plain thead, .bert table.plain tr { border: 0 !important; }
.bert table.plain th, .bert table.plain td { padding: .3rem .55rem; border: 0 !important; background: none;
  border-bottom: 1px solid var(--border-color-primary) !important; text-align: left; vertical-align: middle; }
.bert table.plain th:first-child, .bert table.plain td:first-child { padding-left: 0; }
.bert table.plain .chip { white-space: nowrap; }
.bert table.plain th { font-weight: 600; }
.bert table.plain .number { text-align: right; }
.bert table.plain tr.last td, .bert table.plain tr.last th { font-weight: 650; }
.bert table.plain td { unicode-bidi: isolate; overflow-wrap: break-word; max-width: 32rem; }
.bert table.plain .original { white-space: pre-wrap; }
.bert .chip { display: inline-block; padding: .05rem .4rem; margin: .1rem 0; border-radius: 5px; font-size: .875rem;
  background: rgba(128, 128, 128, .16); overflow-wrap: anywhere; unicode-bidi: isolate; }
.bert .chip small { opacity: .75; }
.bert .special { border: 1px dashed var(--body-text-color-subdued); background: none; }
.bert mark { background: rgba(250, 204, 21, .5); color: inherit; border-radius: 4px; padding: .05rem .2rem; }
.bert mark small { font-size: .7rem; font-weight: 650; margin-left: .35rem; opacity: .8; }
.bert .c0 { background: rgba(59, 130, 246, .26); } .bert .c1 { background: rgba(245, 158, 11, .30); }
.bert .c2 { background: rgba(16, 185, 129, .26); } .bert .c3 { background: rgba(236, 72, 153, .22); }
.bert .c4 { background: rgba(139, 92, 246, .25); } .bert .c5 { background: rgba(100, 116, 139, .28); }
.bert .answer { font-size: 1.35rem; font-weight: 650; margin: .1rem 0 .5rem; overflow-wrap: anywhere; }
.bert .answer.none { opacity: .7; font-weight: 500; }
.bert .score b { font-size: 2rem; font-weight: 650; margin-right: .5rem; font-variant-numeric: tabular-nums; }
.bert .heads { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 1rem; }
.bert .heads.wide { grid-template-columns: 1fr; gap: .6rem; }
.bert figure { margin: 0; min-width: 0; }
.bert figcaption { font-size: .875rem; font-weight: 600; margin-bottom: .2rem; }
.bert svg { width: 100%; height: auto; display: block; }
.bert svg text { font-size: 10px; fill: var(--body-text-color); }
.bert svg .frame { fill: none; stroke: var(--border-color-primary); }
.bert .looks { line-height: 1.9; }
.bert .look { padding: .1rem .3rem; border-radius: 4px; margin-right: .15rem; overflow-wrap: anywhere; }
.bert .look.from { outline: 2px solid #d97706; }
@media (max-width: 640px) {
  .gradio-container .main { padding: 8px 12px !important; }
  .gradio-container .tab-container button { padding: 0 .5rem; font-size: .8125rem; }
  .bert .bar { grid-template-columns: minmax(6rem, 2fr) 2fr 4rem; }
  .bert table.plain th, .bert table.plain td { padding: .3rem .4rem; }
}
"""
