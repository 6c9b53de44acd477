// SPDX-License-Identifier: Apache-2.0
// Names, sessions, and the lives of the broker.

import {seen} from './broker.js';
import {bytesCell, cell, html, longCell, numberCell, row, section, table} from './document.js';
import {dateText, number, plural, printable, sessionText, shortened, sizeText, sum, timeText} from './text.js';
import {residencyText} from './tiers.js';

const ROWS_MAX = 200;
const SHAPE_LETTERS = 40;

// --- Names

// "float32[1080, 1920] and 2 more"
function arraysText({specs}) {
  const [first, ...others] = specs?.arrays ?? [];
  if (first === undefined) return '';
  const shape = shortened((first.shape ?? []).join(', '), SHAPE_LETTERS);
  return `${printable(first.dtype)}[${shape}]${others.length > 0 ? ` and ${others.length} more` : ''}`;
}

function makerText(sessions, {maker, maker_process_id}) {
  if (sessions.has(maker)) return sessionText(sessions.get(maker));
  return number(maker_process_id) > 0 ? `process ${number(maker_process_id)}, ended` : 'ended';
}

// The rows below the filter.
export function namesView() {
  const {rows, more} = seen.found ?? {rows: [], more: false};
  const sessions = new Map(seen.sessions.rows.map((each) => [each.session, each]));
  const shown = rows.slice(0, ROWS_MAX)
                    .map(
                        ({share, ...info}) =>
                            row(longCell(printable(share.name)), longCell(printable(share.namespace)),
                                longCell(arraysText(share)), bytesCell(number(share.handle?.size)),
                                cell(residencyText(share)), longCell(makerText(sessions, info)),
                                numberCell(number(info.leases)), numberCell(timeText(number(info.age_ms)))));
  const all = seen.prefix === '' ? ` of ${number(seen.stats.shares)}` : '';
  const isCut = more || rows.length > ROWS_MAX;
  const first = shown.length > 0 ? `The first ${shown.length}${all} are shown.` : 'None among the first names of all.';
  const remark = isCut ? first : `${plural(shown.length, 'name')}.`;
  const columns = ['name', 'namespace', 'array', '#bytes', 'where', 'maker', '#leases', '#age'];
  return html(
      'div', {}, html('p', {class: 'remark'}, remark), table('Names', columns, shown, 'no name begins with that'));
}

// --- Sessions

const heldBy = (session) => number(session.arena_bytes);

const sessionRow = (each) => row(
    longCell(printable(each.client) || '–'), numberCell(number(each.process_id) || '–'), numberCell(number(each.uid)),
    cell(printable(each.door)), bytesCell(heldBy(each)), numberCell(number(each.leases)),
    numberCell(timeText(number(each.age_ms))), cell(each.awaited ? 'awaited' : ''));

export function sessionsView() {
  const sorted = [...seen.sessions.rows].sort((one, other) => heldBy(other) - heldBy(one));
  const others = sorted.splice(ROWS_MAX);
  const count = number(seen.stats.sessions) - sorted.length;
  const text = `The ${sorted.length} sessions that hold the most; ${count} others hold ` +
      `${seen.sessions.more ? 'at least ' : ''}${sizeText(sum(others.map(heldBy)))}.`;
  const columns = ['client', '#process', '#user', 'door', '#memory', '#leases', '#age', 'state'];
  return section(
      'sessions', 'Sessions', others.length > 0 ? html('p', {class: 'remark'}, text) : null,
      table('Sessions', columns, sorted.map(sessionRow), 'no session is open'));
}

// --- Lives

const KEEPERS = {
  HOLDER_NONE: 'nothing',
  HOLDER_KEEPER: 'the keeper',
  HOLDER_SERVICE_MANAGER: 'the service manager',
  HOLDER_ENDED: 'nothing: the keeper has ended',
  HOLDER_FULL: 'nothing: the service manager may keep too few descriptors',
};

const began = (seconds) => number(seconds) > 0 ? dateText(new Date(1000 * number(seconds))) : '–';

function keeperText({holder, store_entries, store_entries_max}) {
  const entries = `: ${number(store_entries)} of at most ${number(store_entries_max)} descriptors`;
  return `${KEEPERS[holder] ?? '–'}${number(store_entries_max) > 0 ? entries : ''}`;
}

function restartRow({at, continues, life}) {
  const text = continues ? `life ${life} goes on with the arrays of the one before` :
                           'another broker, without the arrays of this one';
  return ['seen by this page', `${dateText(at)}: ${text}`];
}

export function livesView() {
  const life = seen.info.life ?? {};
  const lost = plural(number(life.lost_shares), 'named array');
  const taken =
      `${plural(number(life.recovered_shares), 'array')}, ${plural(number(life.recovered_sessions), 'session')}, `;
  const facts = [
    ['this life', `number ${number(life.number)}, since ${began(life.began_unix_s)}`],
    ['first life', `since ${began(life.first_began_unix_s)}`],
    ['the life before was ended by', printable(life.last_end) || '–'],
    ['taken over from it', taken + sizeText(number(life.recovered_bytes))],
    ['lost', `${lost} of it, ${number(life.lost_shares_total)} in all lives`],
    ['damaged records', String(number(life.damaged_records))],
    ['kept for the next life by', keeperText(life)],
    ...seen.restarts.map(restartRow),
  ];
  const rows = facts.map(([name, text]) => row(html('th', {scope: 'row'}, name), cell(text)));
  return section('lives', 'Lives and losses', html('table', {class: 'facts'}, html('tbody', {}, ...rows)));
}
