'use strict';
// The page is complete without this script. It adds charts, a table that can be
// filtered and sorted, and judging by other limits and prices. All figures come from
// the data blocks; the state stands in the address, so that a link keeps it.
(async () => {
const $ = (id) => document.getElementById(id);
const all = (sel, root = document) => [...root.querySelectorAll(sel)];
const el = (tag, props = {}, ...kids) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props)) k in e ? (e[k] = v) : e.setAttribute(k, v);
  e.append(...kids);
  return e;
};
const root = document.documentElement;

async function block(id) {
  const node = $('data-' + id);
  if (!node) return null;
  const bytes = Uint8Array.from(atob(node.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

// ---- state in the address
const state = new URLSearchParams(location.hash.slice(1));
const keep = (key, value) => {
  if (value === '' || value == null) state.delete(key); else state.set(key, value);
  history.replaceState(null, '', state.size ? '#' + state : location.pathname + location.search);
};
const say = (text) => { $('live').textContent = text; };

// ---- theme
function theme(value) {
  if (value === 'auto') root.removeAttribute('data-theme'); else root.dataset.theme = value;
  keep('theme', value === 'auto' ? '' : value);
}
$('theme').value = state.get('theme') || 'auto';
theme($('theme').value);

// ---- copying
function copyButton(text) {
  const b = el('button', {type: 'button', className: 'copy', textContent: 'Copy'});
  b.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      say('Copied');
      b.textContent = 'Copied';
      setTimeout(() => { b.textContent = 'Copy'; }, 1500);
    } catch { // no access on file: pages everywhere: select instead
      const code = b.parentNode.querySelector('code');
      if (code) getSelection().selectAllChildren(code);
      say('Selected: press the keys for copying');
    }
  };
  return b;
}
for (const p of all('.cmd')) p.append(copyButton(() => p.querySelector('code').textContent));

const D = await block('points');
const T = await block('timelines');
if (!D.id) { // nothing completed: no charts, no table
  $('theme').closest('.tools').hidden = false;
  $('theme').onchange = () => theme($('theme').value);
  root.dataset.ready = '1';
  return;
}
for (const e of all('.tools, .js')) e.hidden = false;
const n = D.id.length;
const columns = new Map(D.columns.map((c) => [c.key, c]));

// ---- numbers, as the tables of the page print them
const digits = (v) => {
  if (v == null) return '-';
  const a = Math.abs(v);
  if (Number.isInteger(v) && a < 1e15 || a >= 1000) return Math.round(v).toLocaleString('en-US');
  if (a >= 100) return v.toFixed(1);
  if (a >= 10) return v.toFixed(2);
  return String(+v.toPrecision(4));
};
const percent = (v) => {
  if (v == null) return '-';
  const p = 100 * v;
  if (p < 100 && p > 99.9) return Math.min(p, 99.99).toFixed(2) + ' %';
  return +p.toFixed(1) + ' %';
};
const dollars = (v) => v == null ? '-' : '$' + (v >= 1000 ? Math.round(v).toLocaleString('en-US') : v >= 0.1 || v === 0 ? v.toFixed(2) : String(+v.toPrecision(2)));

// ---- loads that a point stands in
const loadsOf = (i) => D.also[i] || [D.load[i]];
const under = (i, k) => loadsOf(i).includes(k);

// ---- columns of the table
const word = (c) => (i) => c.index[i] < 0 ? null : c.dict[c.index[i]];
const numeric = (c) => c.dict && c.dict.every((t) => t !== '' && !Number.isNaN(+t));
let judged = {meets: D.meets.slice(), share: D.share, goal: D.goal};
const table = [
  {key: 'point', name: 'point', shown: true, text: (i) => D.label[i]},
  {key: 'load', name: 'load', shown: D.loads.length > 1, text: (i) => loadsOf(i).map((k) => D.loads[k].label).join('; ')},
  {key: 'gpus', name: 'GPUs', shown: true, num: (i) => D.gpus[i]},
  {key: 'seeds', name: 'seeds', shown: false, num: (i) => D.seeds[i]},
];
for (const c of D.columns) {
  if (c.key === 'verdict' || c.key === 'gpus') continue;
  const t = {key: c.key, name: c.axis ? c.name : c.name + (c.unit && !c.name.includes('/') ? ', ' + c.unit : ''), shown: !!c.shown, axis: c.axis};
  if (c.dict || c.index) {
    if (c.dict && numeric(c)) t.num = (i) => c.index[i] < 0 ? null : +c.dict[c.index[i]];
    t.text = word(c);
  } else {
    t.num = (i) => c.nums[i];
  }
  table.push(t);
}
table.push({key: 'sla', name: 'SLA', shown: true, num: (i) => judged.share[i], text: (i) => judged.share[i] == null ? null : percent(judged.share[i])});
const verdict = columns.get('verdict');
table.push({key: 'verdict', name: 'verdict', shown: true, text: (i) => judged.why ? judged.why(i) : word(verdict)(i)});
table.push({key: 'id', name: 'id', shown: true, code: true, text: (i) => D.id[i]});
const cell = (c, i) => {
  if (c.key.startsWith('usd_')) return dollars(c.num(i));
  if (c.text) return c.text(i) ?? '-';
  return digits(c.num(i));
};

function column(name) {
  const plain = (s) => s.toLowerCase().replace(/[ ,]/g, '');
  const want = plain(name);
  const tests = [(c) => plain(c.key) === want, (c) => plain(c.name) === want, (c) => c.key.endsWith('.' + want), (c) => plain(c.key) === want + '.mode', (c) => plain(c.key).replace(/_ms$/, '') === want];
  for (const t of tests) {
    const found = table.filter(t);
    if (found.length) return found[0];
  }
  return null;
}

// ---- filter: words of the form column OP value, all of which must hold
function parseFilter(text) {
  const out = [];
  for (const part of text.match(/\S+/g) || []) {
    const m = part.match(/^([^<>=!]+)(<=|>=|!=|=|<|>)(.*)$/);
    if (!m) throw new Error(`"${part}" is no condition: write column=value, column<value and so on`);
    const c = column(m[1]);
    if (!c) throw new Error(`there is no column "${m[1]}"`);
    const number = m[3] !== '' && !Number.isNaN(+m[3]);
    if (m[2] !== '=' && m[2] !== '!=' && !(number && c.num)) throw new Error(`column "${m[1]}" cannot be compared with "${m[3]}"`);
    out.push({c, op: m[2], text: m[3], number: number && c.num ? +m[3] : null, raw: m[1]});
  }
  return out;
}
function holds(f, i) {
  if (f.number != null) {
    const v = f.c.num(i);
    if (v == null) return f.op === '!=';
    switch (f.op) {
      case '=': return v === f.number;
      case '!=': return v !== f.number;
      case '<': return v < f.number;
      case '>': return v > f.number;
      case '<=': return v <= f.number;
    }
    return v >= f.number;
  }
  const same = (f.c.text ? f.c.text(i) ?? '' : '') === f.text;
  return f.op === '=' ? same : !same;
}

let filters = [];
let order = []; // rows shown, in order
let sort = {key: '', down: false};
let visible = new Set((state.get('cols') || '').split(',').filter(Boolean));
if (!visible.size) visible = new Set(table.filter((c) => c.shown).map((c) => c.key));
const shownColumns = () => table.filter((c) => visible.has(c.key));

function applyFilter() {
  const note = $('filter-note');
  try {
    filters = parseFilter($('filter').value);
    note.classList.remove('error');
  } catch (e) {
    note.textContent = 'Filter: ' + e.message + '.';
    note.classList.add('error');
    say(note.textContent);
    return;
  }
  keep('f', $('filter').value.trim());
  arrange();
  note.textContent = D.cut ? `${order.length} of the ${n} points that this page carries, of ${n + D.cut} completed ones; points.parquet has all.` : `${order.length} of ${n} completed points.`;
  say(`${order.length} of ${n} points`);
}

function arrange() {
  order = [];
  for (let i = 0; i < n; i++) if (filters.every((f) => holds(f, i))) order.push(i);
  const c = table.find((x) => x.key === sort.key);
  if (c) {
    const of = c.num || c.text;
    const sign = sort.down ? -1 : 1;
    order.sort((a, b) => {
      const x = of(a), y = of(b);
      if (x == null || y == null) return (x == null) - (y == null) || a - b;
      return (x < y ? -sign : x > y ? sign : 0) || a - b;
    });
  } else {
    order.sort((a, b) => D.load[a] - D.load[b] || judged.meets[b] - judged.meets[a] ||
      (judged.meets[a] ? 0 : (judged.share[b] ?? -1) - (judged.share[a] ?? -1)) || better(a, b));
  }
  draw();
}

// better orders points as verdicts do: objective, GPUs, id.
function better(a, b) {
  const x = judged.goal[a], y = judged.goal[b];
  if (x == null || y == null) return (x == null) - (y == null);
  const cheap = judged.byCost ?? D.byCost;
  return (cheap ? x - y : y - x) || D.gpus[a] - D.gpus[b] || (D.id[a] < D.id[b] ? -1 : 1);
}

// ---- the table: rows beyond a screen exist only while they are looked at
const box = $('table-box'), tbl = $('table');
const rowHeight = 31;
let focusRow = 0, first = -1;
const virtual = () => order.length > 500;

function draw() {
  const cols = shownColumns();
  const head = el('tr');
  for (const c of cols) {
    const th = el('th', {scope: 'col', className: c.num && !c.axis ? 'n' : ''});
    if (sort.key === c.key) th.setAttribute('aria-sort', sort.down ? 'descending' : 'ascending');
    th.append(el('button', {type: 'button', textContent: c.name, onclick: () => {
      sort = sort.key !== c.key ? {key: c.key, down: false} : sort.down ? {key: '', down: false} : {key: c.key, down: true};
      keep('s', sort.key && (sort.down ? '-' : '') + sort.key);
      arrange();
      const again = all('th button', tbl).find((b) => b.textContent === c.name);
      if (again) again.focus();
    }}));
    head.append(th);
  }
  tbl.tHead.replaceChildren(head);
  tbl.setAttribute('aria-rowcount', order.length + 1);
  box.classList.toggle('virtual', virtual());
  first = -1;
  focusRow = Math.min(focusRow, Math.max(order.length - 1, 0));
  rows();
}

function rows() {
  const cols = shownColumns();
  let from = 0, to = order.length;
  if (virtual()) {
    from = Math.max(0, Math.floor(box.scrollTop / rowHeight) - 20);
    to = Math.min(order.length, from + 80);
  }
  if (from === first) return;
  first = from;
  const body = document.createDocumentFragment();
  const gap = (k) => k > 0 && body.append(el('tr', {ariaHidden: 'true'}, el('td', {colSpan: cols.length, style: `height:${k * rowHeight}px;padding:0`})));
  gap(from);
  for (let r = from; r < to; r++) {
    const i = order[r];
    const tr = el('tr', {tabIndex: r === focusRow ? 0 : -1});
    tr.dataset.row = r;
    tr.dataset.id = D.id[i];
    tr.setAttribute('aria-rowindex', r + 2);
    for (const c of cols) {
      const td = el('td', {className: c.num && !c.axis ? 'n' : ''});
      const text = cell(c, i);
      if (text === '-') td.title = 'no value: not measured, or the axis does not apply';
      td.append(c.code ? el('code', {textContent: text}) : text);
      tr.append(td);
    }
    body.append(tr);
  }
  gap(order.length - to);
  tbl.tBodies[0].replaceChildren(body);
}
box.addEventListener('scroll', () => virtual() && rows());

function goRow(r) {
  focusRow = Math.max(0, Math.min(order.length - 1, r));
  if (virtual()) {
    const top = focusRow * rowHeight;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * rowHeight) box.scrollTop = Math.max(0, top - 5 * rowHeight);
    first = -1;
    rows();
  }
  for (const tr of all('tbody tr[data-row]', tbl)) tr.tabIndex = +tr.dataset.row === focusRow ? 0 : -1;
  const tr = tbl.querySelector(`tr[data-row="${focusRow}"]`);
  if (tr) tr.focus();
}
tbl.addEventListener('keydown', (e) => {
  const tr = e.target.closest('tr[data-row]');
  if (!tr || e.target !== tr) return;
  const r = +tr.dataset.row;
  const to = {ArrowDown: r + 1, ArrowUp: r - 1, PageDown: r + 15, PageUp: r - 15, Home: 0, End: order.length - 1}[e.key];
  if (to !== undefined) { e.preventDefault(); goRow(to); }
  if (e.key === 'Enter') { e.preventDefault(); open(order[r], tr); }
});
tbl.addEventListener('click', (e) => {
  const tr = e.target.closest('tr[data-row]');
  if (tr && !getSelection().toString()) open(order[+tr.dataset.row], tr);
});

// ---- one point
let opener = null;
const recent = [];
const why = (i) => cell(table.find((c) => c.key === 'verdict'), i);
const sweepCommand = (i) => `dynosweep sweep SPEC --out ${quote(D.dir)} --point ${D.id[i]}`;
const quote = (s) => /^[\w\-./=:,@%+]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'";
function open(i, from) {
  opener = from;
  keep('p', D.id[i]);
  const d = $('detail');
  const list = el('dl');
  for (const c of table) {
    if (c.key === 'point' || c.key === 'id' || c.key === 'verdict') continue;
    const text = cell(c, i);
    if (text !== '-') list.append(el('dt', {textContent: c.name}), el('dd', {textContent: text}));
  }
  const commands = [D.commands[i] || '# no replay command in this page beyond the best ' + Object.keys(D.commands).length + ' points', sweepCommand(i)];
  d.replaceChildren(el('button', {type: 'button', textContent: 'Close (Esc)', onclick: close}),
    el('h2', {id: 'detail-title', textContent: D.label[i]}), el('p', {className: 'id'}, 'point ', el('code', {textContent: D.id[i]})),
    el('p', {textContent: why(i)}),
    ...commands.map((text) => { const p = el('p', {className: 'cmd'}, el('code', {textContent: text})); p.append(copyButton(() => text)); return p; }), list);
  d.hidden = false;
  d.focus();
  if (!recent.includes(i)) recent.unshift(i);
  recent.length = Math.min(recent.length, 2);
  redraw('latency');
}
function close() {
  $('detail').hidden = true;
  keep('p', '');
  if (opener && document.contains(opener)) opener.focus(); else box.focus();
}
document.addEventListener('keydown', (e) => { if (e.key === 'Escape' && !$('detail').hidden) close(); });

// ---- charts
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const shapes = ['circle', 'rect', 'triangle', 'diamond', 'pin', 'arrow'];
const charts = new Map(); // figure -> chart
let load = Math.max(0, Math.min(D.loads.length - 1, +(state.get('load') || 0)));
const renderer = new URLSearchParams(location.search).has('svg') ? 'svg' : 'canvas';
const base = () => ({animation: false, textStyle: {color: css('--fg'), fontFamily: 'inherit'}, aria: {enabled: false},
  tooltip: {renderMode: 'richText', confine: true, backgroundColor: css('--card'), borderColor: css('--line'), textStyle: {color: css('--fg'), fontSize: 13}}});
const axisStyle = () => ({axisLine: {lineStyle: {color: css('--line')}}, axisLabel: {color: css('--muted'), hideOverlap: true}, splitLine: {lineStyle: {color: css('--grid')}}, nameTextStyle: {color: css('--muted')}});

function chart(fig, paper) {
  let c = charts.get(fig);
  if (!c) {
    const box = fig.querySelector('.canvas');
    box.replaceChildren();
    // On paper the size is that of the style sheet, known before the layout is.
    const size = paper ? {width: 690, height: {tradeoff: 300, timeline: 460}[fig.dataset.chart] || 240} : {};
    c = echarts.init(box, null, {renderer: paper ? 'svg' : renderer, ...size});
    c.on('finished', () => { root.dataset.drawn = String(+(root.dataset.drawn || 0) + 1); });
    charts.set(fig, c);
  }
  return c;
}

const numericColumns = table.filter((c) => c.num && !c.axis && c.key !== 'seeds');
const colourColumns = table.filter((c) => c.axis);
const pick = {x: state.get('x') || 'tokens_per_user', y: state.get('y') || 'tokens_per_gpu', c: state.get('c') || (colourColumns.find((c) => /mode$/.test(c.key)) || colourColumns.find((c) => !/^(workload|sla)\./.test(c.key)) || colourColumns[0] || {key: ''}).key};
for (const s of all('select[data-axis]')) {
  const list = s.dataset.axis === 'c' ? [{key: '', name: 'one colour'}, ...colourColumns] : numericColumns;
  for (const c of list) s.append(el('option', {value: c.key, textContent: c.name}));
  s.value = pick[s.dataset.axis];
  if (s.selectedIndex < 0) { s.selectedIndex = 0; pick[s.dataset.axis] = s.value; }
  s.onchange = () => {
    pick[s.dataset.axis] = s.value;
    keep(s.dataset.axis, s.value);
    for (const o of all(`select[data-axis=${s.dataset.axis}]`)) o.value = s.value;
    redraw('tradeoff');
  };
}

function span(of, list) {
  let low = Infinity, high = -Infinity;
  for (const i of list) { const v = of(i); if (v != null) { low = Math.min(low, v); high = Math.max(high, v); } }
  return {log: low > 0 && high > 30 * low};
}

function tradeoff(fig) {
  const L = D.loads[load];
  const cx = table.find((c) => c.key === pick.x), cy = table.find((c) => c.key === pick.y);
  const list = [];
  for (let i = 0; i < n; i++) if (under(i, load) && filters.every((f) => holds(f, i)) && cx.num(i) != null && cy.num(i) != null) list.push(i);
  const colour = columns.get(pick.c);
  const groups = new Map();
  for (const i of list) {
    const name = colour ? word(colour)(i) ?? 'none' : 'points';
    groups.set(name, [...(groups.get(name) || []), i]);
  }
  let names = [...groups.keys()].sort((a, b) => groups.get(b).length - groups.get(a).length);
  if (names.length > 6) {
    groups.set('other', names.slice(5).flatMap((g) => groups.get(g)));
    names = [...names.slice(0, 5), 'other'];
  }
  const usual = pick.x === 'tokens_per_user' && pick.y === 'tokens_per_gpu';
  const on = new Set(usual ? L.front : []);
  const many = list.length > 400;
  const item = (i) => ({value: [cx.num(i), cy.num(i)], point: i});
  const series = names.map((g, k) => {
    const tone = css('--c' + k);
    return {name: g, type: 'scatter', symbol: shapes[k], z: 3, color: tone, data: groups.get(g).sort((a, b) => a - b).map((i) => {
      const strong = on.has(i) || !many;
      return {...item(i), symbolSize: on.has(i) ? 13 : many ? 5 : 10,
        itemStyle: judged.meets[i] ? {color: tone, opacity: strong ? 0.95 : 0.35} : {color: 'transparent', borderColor: tone, borderWidth: 1.3, opacity: strong ? 0.9 : 0.4}};
    })};
  });
  const front = L.front.filter((i) => i >= 0 && list.includes(i));
  if (usual) series.push({type: 'line', name: 'front', data: front.map(item), lineStyle: {color: css('--muted'), width: 1.2}, symbol: 'none', z: 2, tooltip: {show: false}});
  const bars = front.filter((i) => D.yLow[i] != null);
  if (usual && bars.length) series.push({type: 'custom', name: 'interval', z: 2, silent: true, data: bars.map((i) => [D.xLow[i], D.xHigh[i], D.yLow[i], D.yHigh[i], cx.num(i), cy.num(i)]),
    encode: {x: [0, 1, 4], y: [2, 3, 5]}, renderItem: (params, api) => {
      const at = (x, y) => api.coord([x, y]);
      const line = (a, b) => ({type: 'line', shape: {x1: a[0], y1: a[1], x2: b[0], y2: b[1]}, style: {stroke: css('--muted'), lineWidth: 1}});
      const v = [0, 1, 2, 3, 4, 5].map((k) => api.value(k));
      return {type: 'group', children: [line(at(v[0], v[5]), at(v[1], v[5])), line(at(v[4], v[2]), at(v[4], v[3]))]};
    }});
  const w = judged.winner ?? L.winner;
  if (w >= 0 && list.includes(w)) series.push({type: 'scatter', name: 'deploy', data: [item(w)], symbol: 'circle', symbolSize: 22, z: 5, silent: true,
    itemStyle: {color: 'transparent', borderColor: css('--fg'), borderWidth: 2.5}, label: {show: true, formatter: 'deploy', position: 'right', color: css('--fg'), backgroundColor: css('--bg'), padding: [1, 4], fontSize: 13, fontWeight: 600, distance: 6}});
  const xs = span(cx.num, list), ys = span(cy.num, list);
  chart(fig).setOption({...base(), grid: {left: 68, right: 24, top: 40, bottom: 48}, legend: {top: 0, type: 'scroll', data: names, textStyle: {color: css('--fg')}, pageTextStyle: {color: css('--fg')}},
    tooltip: {...base().tooltip, formatter: (p) => p.data.point == null ? '' : `${D.label[p.data.point]}\n${cx.name}: ${cell(cx, p.data.point)}\n${cy.name}: ${cell(cy, p.data.point)}\nGPUs ${digits(D.gpus[p.data.point])}, SLA ${percent(judged.share[p.data.point])}\n${why(p.data.point)}`},
    xAxis: {type: xs.log ? 'log' : 'value', name: cx.name, nameLocation: 'middle', nameGap: 30, scale: true, ...axisStyle()},
    yAxis: {type: ys.log ? 'log' : 'value', name: cy.name, nameLocation: 'middle', nameGap: 52, scale: true, ...axisStyle()}, series}, true);
  fig.listed = front.length ? front : list;
  if (!fig.wired) {
    fig.wired = true;
    chart(fig).on('click', (p) => p.data && p.data.point != null && open(p.data.point, fig));
    fig.addEventListener('keydown', (e) => step(fig, e));
  }
}

// step walks the front from left to right.
function step(fig, e) {
  const list = fig.listed || [];
  const way = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[e.key];
  if (way && list.length) {
    e.preventDefault();
    fig.at = Math.max(0, Math.min(list.length - 1, (fig.at ?? (way > 0 ? -1 : list.length)) + way));
    const i = list[fig.at];
    say(`${fig.at + 1} of ${list.length}: ${D.label[i]}, ${digits(D.gpus[i])} GPUs, SLA ${percent(judged.share[i])}, ${why(i)}`);
    const c = chart(fig);
    c.getOption().series.forEach((s, k) => {
      const at = s.type === 'scatter' && s.name !== 'deploy' ? s.data.findIndex((x) => x.point === i) : -1;
      if (at >= 0) c.dispatchAction({type: 'showTip', seriesIndex: k, dataIndex: at});
    });
  } else if (e.key === 'Enter' && fig.at != null) {
    e.preventDefault(); // the key would press the button that gets the focus
    open(list[fig.at], fig);
  }
  else if (e.key === 't' && fig.at != null) {
    const r = order.indexOf(list[fig.at]);
    if (r >= 0) goRow(r);
  }
}

function timeline(fig) {
  const t = T[$('timeline').selectedIndex] || T[0];
  const o = t.of, pair = (ys) => ys.map((y, i) => [o.at[i], y]);
  const has = (ys) => ys.some((y) => y > 0);
  const line = (name, ys, grid, k, more = {}) => ({name, type: 'line', xAxisIndex: grid, yAxisIndex: grid, data: pair(ys), showSymbol: false, color: css('--c' + k), lineStyle: {width: 1.4}, ...more});
  const series = [line('requests/s', o.demand, 0, 0)];
  const pools = has(o.readyPrefill) ? [['prefill', 'readyPrefill', 'startingPrefill', 3], ['decode', 'readyDecode', 'startingDecode', 2]] : [['workers', 'readyDecode', 'startingDecode', 2]];
  for (const [name, ready, starting, k] of pools) {
    series.push(line(name + ' ready', o[ready], 1, k, {step: 'end', stack: pools.length > 1 ? undefined : name, areaStyle: pools.length > 1 ? undefined : {opacity: 0.25}}));
    series.push(line(name + ' starting', o[starting], 1, 1, {step: 'end', stack: pools.length > 1 ? undefined : name, lineStyle: {width: 1, type: 'dashed'}, areaStyle: pools.length > 1 ? undefined : {opacity: 0.4, decal: {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: -0.7}}}));
  }
  series.push(line('queued', o.queued, 2, 4));
  series.push(line('TTFT highest', o.ttftHigh, 3, 5, {lineStyle: {width: 1}, connectNulls: true}));
  series.push(line('TTFT mean', o.ttft, 3, 0, {connectNulls: true, markLine: t.slaTTFT ? {silent: true, symbol: 'none', label: {formatter: 'SLA', color: css('--bad')}, lineStyle: {color: css('--bad')}, data: [{yAxis: t.slaTTFT}]} : undefined}));
  const names = ['requests/s', 'workers', 'queued', 'TTFT, ms'];
  const ttftLog = Math.max(...o.ttftHigh.map((v) => v || 0)) > 30 * Math.min(...o.ttft.filter((v) => v > 0));
  chart(fig).setOption({...base(), legend: {top: 0, type: 'scroll', textStyle: {color: css('--fg')}}, tooltip: {...base().tooltip, trigger: 'axis', valueFormatter: digits},
    axisPointer: {link: [{xAxisIndex: 'all'}]}, dataZoom: [{type: 'inside', xAxisIndex: [0, 1, 2, 3]}, {type: 'slider', xAxisIndex: [0, 1, 2, 3], bottom: 4, height: 18, textStyle: {color: css('--muted')}}],
    grid: [0, 1, 2, 3].map((k) => ({left: 64, right: 40, top: `${7 + k * 22}%`, height: '16%'})),
    xAxis: [0, 1, 2, 3].map((k) => ({type: 'value', gridIndex: k, min: 0, max: o.at[o.at.length - 1], ...axisStyle(), axisLabel: {show: k === 3, color: css('--muted'), formatter: (v) => Math.round(v) + ' s'}})),
    yAxis: names.map((name, k) => ({type: k === 3 && ttftLog ? 'log' : 'value', gridIndex: k, name, ...axisStyle(), splitNumber: 3, nameTextStyle: {color: css('--muted'), align: 'left'}})), series}, true);
  const head = ['s', 'requests/s', 'ready', 'starting', 'queued', 'TTFT mean, ms', 'TTFT highest, ms'];
  const body = el('tbody');
  const stride = Math.ceil(o.at.length / 120);
  for (let i = 0; i < o.at.length; i += stride) {
    const cells = [o.at[i], o.demand[i], o.readyPrefill[i] + o.readyDecode[i], o.startingPrefill[i] + o.startingDecode[i], o.queued[i], o.ttft[i], o.ttftHigh[i]];
    body.append(el('tr', {}, ...cells.map((v) => el('td', {className: 'n', textContent: digits(v)}))));
  }
  $('timeline-table').replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...head.map((h) => el('th', {scope: 'col', className: 'n', textContent: h})))), body));
}

function latency(fig) {
  const which = $('latency').value;
  const curves = new Map(D.curves.map((c) => [c.point, c]));
  const L = D.loads[load];
  const next = order.length ? D.id.map((_, i) => i).filter((i) => under(i, load) && judged.meets[i]).sort(better).slice(0, 2) : [];
  const wanted = [...new Set([L.winner, ...next, ...recent])].filter((i) => i >= 0 && curves.has(i)).slice(0, 4);
  const shown = wanted.length ? wanted : D.curves.filter((c) => under(c.point, load)).slice(0, 2).map((c) => c.point);
  const series = shown.map((i, k) => ({name: D.label[i] + ' ' + D.id[i].slice(0, 6), type: 'line', color: css('--c' + k), symbol: shapes[k], symbolSize: 7,
    data: (curves.get(i).ms[which] || []).map((ms, q) => [Math.max(ms, 0.01), 100 * D.quantiles[q]])}));
  const sla = L.sla && {ttft: L.sla.ttft_ms, tpot: L.sla.itl_ms, e2e_latency: L.sla.e2e_ms}[which];
  if (sla && series.length) series[0].markLine = {silent: true, symbol: 'none', label: {formatter: 'SLA', color: css('--bad')}, lineStyle: {color: css('--bad')}, data: [{xAxis: sla}]};
  chart(fig).setOption({...base(), grid: {left: 56, right: 24, top: 44, bottom: 48}, legend: {top: 0, type: 'scroll', textStyle: {color: css('--fg')}},
    tooltip: {...base().tooltip, formatter: (p) => `${p.seriesName}\n${digits(p.value[1])} % within ${digits(p.value[0])} ms`},
    xAxis: {type: 'log', name: 'ms', nameLocation: 'middle', nameGap: 28, ...axisStyle()}, yAxis: {type: 'value', min: 0, max: 100, name: '%', ...axisStyle()}, series}, true);
}

const painters = {tradeoff, timeline, latency};
function redraw(kind) {
  for (const fig of all('figure.chart')) {
    if (kind && fig.dataset.chart !== kind || fig.offsetParent === null && !fig.closest('.load:not([hidden])')) continue;
    if (fig.closest('[hidden]')) continue;
    painters[fig.dataset.chart](fig);
  }
}
function rebuild(paper) {
  for (const [, c] of charts) c.dispose();
  charts.clear();
  for (const fig of all('figure.chart')) {
    if (fig.closest('[hidden]')) continue;
    fig.wired = false;
    chart(fig, paper);
  }
  redraw();
}

// ---- loads
function showLoad(k) {
  load = k;
  for (const s of all('.load')) s.hidden = +s.dataset.load !== k;
  judged.winner = undefined;
  rejudge();
}
if ($('load')) {
  $('load').value = load;
  $('load').onchange = () => { keep('load', $('load').value === '0' ? '' : $('load').value); showLoad(+$('load').value); };
}

// ---- judging by other limits and prices
const limit = {};
function control(into, name, node) { into.append(el('label', {}, name + ' ', node)); return node; }
if (D.grid) {
  const unlimited = (list) => ['', ...list];
  for (const [key, name, list] of [['ttft', 'TTFT within', D.grid.ttft], ['itl', 'ITL within', D.grid.itl]]) {
    const s = el('select');
    for (const v of unlimited(list)) s.append(el('option', {value: v, textContent: v === '' ? 'as run' : v + ' ms'}));
    limit[key] = control($('limits'), name, s);
  }
  limit.share = control($('limits'), 'for at least', el('input', {type: 'number', min: 1, max: 100, step: 0.1, value: +(100 * D.attainment).toPrecision(6)}));
  limit.share.parentNode.append(' % of requests');
}
const price = [];
if (D.prices) D.prices.systems.forEach((s, k) => {
  const known = D.prices.usd[k];
  price.push(control($('prices'), s === 'default' ? '$ per GPU-hour' : '$ per GPU-hour, ' + s, el('input', {type: 'number', min: 0, step: 0.01, value: known == null ? '' : +known.toPrecision(6)})));
});
for (const [key, node] of [...Object.entries(limit), ...price.map((p, k) => ['price' + k, p])]) {
  node.dataset.start = node.value;
  if (state.has(key)) node.value = state.get(key);
  node.onchange = () => { keep(key, node.value === node.dataset.start ? '' : node.value); rejudge(); };
}

function rejudge() {
  const t = limit.ttft ? limit.ttft.selectedIndex - 1 : -1, u = limit.itl ? limit.itl.selectedIndex - 1 : -1;
  const share = limit.share ? limit.share.value / 100 : D.attainment;
  const priced = price.length && price.every((p) => p.value !== '') && price.some((p) => p.value !== p.dataset.start);
  const relimited = t >= 0 && u >= 0;
  const changed = relimited || priced || limit.share && limit.share.value !== limit.share.dataset.start;
  const note = $('rejudged');
  judged = {meets: D.meets.slice(), share: D.share, goal: D.goal, byCost: D.byCost};
  if (t >= 0 !== u >= 0) {
    note.textContent = 'Choose both limits: requests were counted for pairs of them.';
    return repaint();
  }
  if (!changed) {
    note.textContent = D.grid ? 'Choose limits or type a price: every point is judged again, at the limits that were counted.' : '';
    return repaint();
  }
  if (relimited) judged.share = D.id.map((_, i) => D.grid.shares[i] ? D.grid.shares[i][t * D.grid.itl.length + u] : null);
  const strict = judged.share.some((v) => v != null);
  judged.meets = D.id.map((_, i) => +(!strict || judged.share[i] != null && judged.share[i] >= share));
  if (priced) {
    judged.byCost = true;
    judged.goal = D.id.map((_, i) => price.reduce((sum, p, k) => sum + p.value * D.prices.hours[k][i], 0));
  }
  const able = D.id.map((_, i) => i).filter((i) => under(i, load) && judged.meets[i] && judged.goal[i] != null).sort(better);
  const w = able.length ? able[0] : -1;
  judged.winner = w;
  const show = (v) => judged.byCost ? dollars(v) + '/Mtok' : digits(v) + ' tok/s/GPU';
  judged.why = (i) => i === w ? 'deploy' : !judged.meets[i] ? 'SLA ' + percent(judged.share[i]) : w < 0 || !under(i, load) ? '' : `${((judged.goal[i] / judged.goal[w] - 1) * 100).toFixed(1)} %`;
  const terms = [relimited ? `TTFT within ${D.grid.ttft[t]} ms and ITL within ${D.grid.itl[u]} ms` : 'the SLA as run', `for at least ${+(100 * share).toFixed(2)} % of requests`, priced ? 'at these prices' : ''].filter(Boolean).join(', ');
  const unknown = relimited ? D.id.length - Object.keys(D.grid.shares).length : 0;
  if (w < 0) {
    const near = D.id.map((_, i) => i).filter((i) => under(i, load) && judged.share[i] != null).sort((a, b) => judged.share[b] - judged.share[a])[0];
    note.textContent = `With ${terms}: no point meets it` + (near === undefined ? '.' : `; the nearest, ${D.label[near]}, reaches ${percent(judged.share[near])}.`);
  } else {
    const old = D.loads[load].winner;
    const apart = old >= 0 && old !== w && judged.goal[old] != null && judged.goal[old] !== 0 ? `, ${((judged.goal[w] / judged.goal[old] - 1) * 100).toFixed(1)} % against the choice above` : old === w ? ', the choice above' : '';
    note.textContent = `With ${terms}: deploy ${D.label[w]} (${D.id[w]}), ${digits(D.gpus[w])} GPUs, SLA ${percent(judged.share[w])}, ${show(judged.goal[w])}${apart}.`;
  }
  if (unknown) note.textContent += ` Counts of ${unknown} points are not in this page.`;
  repaint();
}
function repaint() { arrange(); redraw(); }

// ---- wiring
$('theme').onchange = () => { theme($('theme').value); rebuild(); };
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => rebuild());
addEventListener('resize', () => { for (const c of charts.values()) c.resize(); });
addEventListener('hashchange', () => location.reload()); // another link into this page
let before; // theme on the screen, while paper has the light one
addEventListener('beforeprint', () => { before = root.dataset.theme; root.dataset.theme = 'light'; rebuild(true); });
addEventListener('afterprint', () => { if (before) root.dataset.theme = before; else root.removeAttribute('data-theme'); rebuild(); });
for (const f of all('form')) f.addEventListener('submit', (e) => e.preventDefault());
$('filter').value = state.get('f') || '';
let typing;
$('filter').oninput = () => { clearTimeout(typing); typing = setTimeout(() => { applyFilter(); redraw('tradeoff'); }, 120); };
$('reset').onclick = () => { $('filter').value = ''; sort = {key: '', down: false}; keep('s', ''); applyFilter(); redraw('tradeoff'); };
const csvCell = (v) => /[",\n]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v;
const hand = (button, text) => {
  navigator.clipboard?.writeText(text).then(() => say('Copied'), () => fallback(button, text)) ?? fallback(button, text);
};
function fallback(button, text) {
  let area = $('copied');
  if (!area) { area = el('textarea', {id: 'copied', rows: 4, readOnly: true, ariaLabel: 'text to copy'}); button.closest('form').after(area); }
  area.value = text;
  area.focus();
  area.select();
  say('Selected: press the keys for copying');
}
$('csv').onclick = (e) => {
  const cols = shownColumns();
  hand(e.target, [cols.map((c) => csvCell(c.key)).join(','), ...order.map((i) => cols.map((c) => csvCell(c.num && !c.axis ? String(c.num(i) ?? '') : cell(c, i))).join(','))].join('\n') + '\n');
};
const inParquet = {id: '"point_id"', sla: '"sla_attainment"', tokens_per_user: '"mean_output_token_throughput_per_user"', usd_per_million: '"usd_per_million_output_tokens"',
  tokens_per_gpu: 'total_output_tokens / (gpu_hours * 3600)', usd_per_hour: 'cost_usd / duration_ms * 3.6e6'};
const made = new Set(['point', 'load', 'seeds', 'verdict']); // of the report, no columns of the file
$('sql').onclick = (e) => {
  const parts = filters.filter((f) => !made.has(f.c.key)).map((f) => `${inParquet[f.c.key] || '"' + f.c.key + '"'} ${f.op} ${f.number ?? "'" + f.text.replaceAll("'", "''") + "'"}`);
  hand(e.target, `SELECT * FROM '${(D.dir + '/points.parquet').replaceAll("'", "''")}' WHERE status = 'done'${parts.map((p) => ' AND ' + p).join('')};`);
};
for (const c of table) {
  const box = el('input', {type: 'checkbox', checked: visible.has(c.key), onchange: () => {
    box.checked ? visible.add(c.key) : visible.delete(c.key);
    keep('cols', [...visible].join(','));
    draw();
  }});
  $('columns').append(el('label', {}, box, ' ' + c.name));
}
if (T && $('timeline')) {
  for (const t of T) $('timeline').append(el('option', {textContent: `${t.label} (${t.id})`}));
  $('timeline').onchange = () => redraw('timeline');
}
if ($('latency')) $('latency').onchange = () => redraw('latency');
for (const tr of all('tbody.front tr')) tr.addEventListener('dblclick', () => { const i = D.id.indexOf(tr.dataset.id); if (i >= 0) open(i, tr); });
const s = state.get('s') || '';
if (s) sort = {key: s.replace(/^-/, ''), down: s.startsWith('-')};
for (const sec of all('.load')) sec.hidden = +sec.dataset.load !== load;
applyFilter();
rejudge();
const p = D.id.indexOf(state.get('p') || '');
if (p >= 0) open(p, null);
window.dynosweep = {data: D, order: () => order, judged: () => judged, chart: (kind) => charts.get(all('figure.chart').find((f) => f.dataset.chart === kind && !f.closest('[hidden]')))};
root.dataset.ready = '1';
})().catch((e) => {
  document.documentElement.dataset.failed = String(e && e.stack || e);
  console.error(e);
});
