// SPDX-License-Identifier: Apache-2.0
// The live view of the status page: it reads info.json, stats.json and list.json beside the page, again and again, and
// draws them into <div id=live>. Without scripts the page has the daemon's own tables, which stay below it.

import {alertsView} from './alerts.js';
import {isHidden, read, readNames, seen} from './broker.js';
import {follow, forget} from './channels.js';
import {become, html, section} from './document.js';
import {livesView, namesView, sessionsView} from './lists.js';
import {memoryView} from './memory.js';
import {pipelineView} from './pipeline.js';
import {servicesView} from './services.js';
import {exactly, number, printable, sizeText, sum, timeText} from './text.js';
import {fileFacts} from './tiers.js';

const POLL_MS = 1500;      // between two readings
const PAUSE_PER_WORK = 4;  // a daemon that takes long to answer is asked less often
const TYPING_MS = 200;     // after the last letter of a filter
const NARROWEST = 300;     // pixels

// --- The head

function factsView() {
  const {info, stats} = seen;
  const charged = number(stats.charged_bytes);
  const capacity = sum((stats.devices ?? []).map((device) => number(device.capacity_bytes)));
  const facts = [
    ['charged', `${sizeText(charged)} of ${sizeText(capacity)}`, `${exactly(charged)} of ${exactly(capacity)}`],
    ...fileFacts(),
    ['names', number(stats.shares)],
    ['sessions', number(stats.sessions)],
    ['channels', number(stats.channels)],
    ['life', number(info.life?.number)],
  ];
  const views =
      facts.map(([name, value, title]) => html('div', {title}, html('dt', {}, name), html('dd', {}, String(value))));
  return html('dl', {class: 'facts'}, ...views);
}

function silenceView() {
  if (seen.silentSince === 0) return html('p', {id: 'silence', hidden: true});
  const seconds = Math.round((performance.now() - seen.silentSince) / 1000);
  const text = `The daemon has not answered for ${seconds} s; trying again. The page shows its last answers.`;
  return html('p', {id: 'silence', class: 'bad'}, text);
}

function headView() {
  const {version, uptime_ms} = seen.info;
  const about = html('small', {}, `${printable(version)}, up ${timeText(number(uptime_ms))}`);
  return html('header', {}, html('h1', {}, 'arraybridged ', about), silenceView(), factsView());
}

// --- The parts of the view

const live = document.getElementById('live');
const PARTS = ['head', 'alerts', 'memory', 'pipeline', 'services', 'names', 'sessions', 'lives'];
const parts = Object.fromEntries(PARTS.map((name) => [name, html('div')]));
const found = html('div');  // the rows below the filter, which itself is drawn once

function begin() {
  const attributes = {id: 'filter', type: 'search', maxlength: 256, autocomplete: 'off', spellcheck: 'false'};
  const filter = html('input', attributes);
  let typed;
  filter.addEventListener('input', () => {
    seen.prefix = filter.value;
    clearTimeout(typed);
    typed = setTimeout(() => readNames().then(draw, noteSilence), TYPING_MS);
  });
  const label = html('label', {}, 'begins with ', filter);
  parts.names.append(section('names', 'Names', label, found));
  live.append(...Object.values(parts));
  document.body.classList.add('is-live');
}

function show(part, view) {
  if (part.firstChild === null) return part.append(view);
  become(part.firstChild, view);
}

function draw() {
  if (seen.info === null) return;  // the daemon has not answered yet
  if (live.firstChild === null) begin();
  const width = Math.max(NARROWEST, live.clientWidth);
  show(parts.head, headView());
  show(parts.alerts, alertsView());
  show(parts.memory, memoryView(width));
  show(parts.lives, livesView());
  for (const part of [parts.pipeline, parts.services, parts.names, parts.sessions]) part.hidden = isHidden();
  if (isHidden()) return;
  show(parts.pipeline, pipelineView(width));
  show(parts.services, servicesView());
  show(found, namesView());
  show(parts.sessions, sessionsView());
}

// --- Again and again

let shownAt = 0;  // since when the page is shown

function noteSilence(error) {
  seen.silentSince ||= seen.at === 0 ? performance.now() : Math.max(seen.at, shownAt);
  console.warn(String(error));
}

const shown = () => new Promise((resolve) => {
  if (!document.hidden) return resolve();
  document.addEventListener('visibilitychange', resolve, {once: true});
});

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function poll() {
  for (;;) {
    const wasHidden = document.hidden;
    const wasAway = wasHidden || seen.silentSince !== 0;
    await shown();
    const begun = performance.now();
    if (wasHidden) shownAt = begun;
    try {
      await read();
      if (wasAway) forget();
      follow();
    } catch (error) {
      noteSilence(error);
    }
    try {
      draw();
    } catch (error) {
      console.error(error);  // the next answers may be other ones
    }
    const work = performance.now() - begun;
    await pause(seen.silentSince !== 0 ? POLL_MS : Math.max(POLL_MS, PAUSE_PER_WORK * work));
  }
}

window.addEventListener('resize', draw);
poll();
