"""The inline CSS and JavaScript of the HTML report: its style, and sorting of its table."""

from __future__ import annotations

_LIGHT = {
    "page": "#ffffff",
    "ink": "#1f2430",
    "muted": "#667085",
    "line": "#e4e7ec",
    "tint": "#f7f8fa",
    "best": "#fdebdd",
}
_DARK = {
    "page": "#14171c",
    "ink": "#e6e9ef",
    "muted": "#98a2b3",
    "line": "#2b313b",
    "tint": "#1b1f26",
    "best": "#3a2416",
}

_CSS = """
:root{--page:%(page)s;--ink:%(ink)s;--muted:%(muted)s;--line:%(line)s;--tint:%(tint)s;--best:%(best)s}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:28px;margin:0 0 4px}h2{font-size:19px;margin:44px 0 12px}
.config{color:var(--muted);margin:0 0 20px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0}
dl div{background:var(--tint);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
dt{color:var(--muted);font-size:13px}dd{margin:2px 0 0;font-size:22px;font-weight:600}
dd small{display:block;font-size:12px;font-weight:400;color:var(--muted)}
figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:8px;overflow-x:auto}
figure svg,figure img{display:block;width:100%%;min-width:700px;height:auto}
.scroll{max-height:560px;overflow:auto;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
thead th{position:sticky;top:0;background:var(--tint);cursor:pointer;white-space:nowrap}
tr.best td{background:var(--best)}
.facts{margin:0 0 16px}.facts th{width:150px;color:var(--muted);font-weight:400}.facts td{overflow-wrap:anywhere}
pre{background:var(--tint);border:1px solid var(--line);border-radius:8px;padding:14px;overflow:auto}
"""

SCRIPT = """
for(const table of document.querySelectorAll("table.sortable")){
 table.tHead.addEventListener("click",e=>{
  const th=e.target.closest("th");if(!th)return;
  const at=th.cellIndex,up=th.dataset.up!=="1";th.dataset.up=up?"1":"0";
  const rows=[...table.tBodies[0].rows],text=r=>r.cells[at].textContent;
  const numbers=rows.every(r=>text(r)===""||!isNaN(text(r)));
  rows.sort((a,b)=>{const x=text(a),y=text(b);
   if(x===""||y==="")return (x==="")-(y==="");
   const d=numbers?x-y:x.localeCompare(y);return up?d:-d});
  table.tBodies[0].append(...rows);
 });
}
"""


def style(dark: bool) -> str:
    """Return the style sheet of a light or a dark page."""
    return _CSS % (_DARK if dark else _LIGHT)
