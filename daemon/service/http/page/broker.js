// SPDX-License-Identifier: Apache-2.0
// What the page knows of the broker, and how it asks the daemon. Addresses are relative: the page may lie below a
// prefix.

import {become} from './document.js';
import {number} from './text.js';

const ANSWER_MS = 10000;  // without an answer for so long, a request has failed
const SHARES_MS = 8000;   // between two readings of shares, and of the daemon's tables
const SESSION_PAGES = 4;  // a page has at most 512 rows
const NAMESPACE_PAGES = 4;
const CHANNEL_PAGES = 4;
const SHARE_PAGES = 4;
const FILTERED_PAGES = 64;  // the daemon looks at 1024 shares for a page
const NAMES_ENOUGH = 200;
const NAME_BYTES_MAX = 255;
const HOLDERS_ASKED = 2;  // sessions whose shares are asked for, too, if there are more pages of shares
const RESTARTS_KEPT = 5;

// Answers are as the daemon gave them. A list is {rows, more}; null: not read yet, or the configuration hides it.
export const seen = {
  at: 0,           // when the last answers came, by performance.now()
  silentSince: 0,  // since when the daemon has not answered; 0: it answers
  info: null,
  stats: null,
  tier: null,
  sessions: null,
  namespaces: null,
  channels: null,
  shares: null,
  sharesAt: -Infinity,
  found: null,  // the shares whose names begin with `prefix`
  prefix: '',
  restarts: [],  // the daemons that began while this page was open
};

export const isHidden = () => seen.sessions === null;

const request = (path) => fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MS)});

// null: the configuration hides it.
async function ask(path) {
  const answer = await request(path);
  if (answer.status === 403) return null;
  if (!answer.ok) throw new Error(`${path}: status ${answer.status}`);
  return answer.json();
}

// At most so many pages, and no further page when there are enough rows. With a filter, a page may have no row.
async function list(kind, pages, fields = {}, enough = Infinity) {
  const rows = [];
  let token = '';
  for (let page = 0; page < pages && rows.length < enough; ++page) {
    const query = new URLSearchParams({kind, ...fields, page_token: token});
    const answer = await ask(`list.json?${query}`);
    if (answer === null) return null;
    rows.push(...(answer[kind.toLowerCase()] ?? []));
    token = answer.next_page_token ?? '';
    if (token === '') break;
  }
  return {rows, more: token !== ''};
}

// Reads everything; shares only now and then. An error: the daemon does not answer, and nothing has changed.
export async function read() {
  const info = await ask('info.json');
  const stats = await ask('stats.json');
  const tier = await ask('tier.json');
  const lists = await readLists();
  noteRestart(info);
  Object.assign(seen, {info, stats, tier, ...lists, at: performance.now(), silentSince: 0});
  if (performance.now() - seen.sharesAt < SHARES_MS) return;
  await readShares(lists.sessions).catch((error) => console.warn(String(error)));  // they are read again later
  seen.sharesAt = performance.now();
}

// The configuration may change between two requests: all lists are hidden if one is.
async function readLists() {
  const hidden = {sessions: null, namespaces: null, channels: null};
  const sessions = await list('SESSIONS', SESSION_PAGES);
  if (sessions === null) return hidden;
  const namespaces = await list('NAMESPACES', NAMESPACE_PAGES);
  const channels = await list('CHANNELS', CHANNEL_PAGES, {ends: true});
  return namespaces === null || channels === null ? hidden : {sessions, namespaces, channels};
}

async function readShares(sessions) {
  await readTables();
  if (sessions === null) return;
  seen.shares = await readLargestShares(sessions);
  await readNames();
}

// The first pages of the shares. If there are more, also some of the sessions that hold the most.
async function readLargestShares(sessions) {
  const shares = await list('SHARES', SHARE_PAGES);
  if (shares === null || !shares.more) return shares;
  const sorted = [...sessions.rows].sort((one, other) => number(other.arena_bytes) - number(one.arena_bytes));
  const byId = new Map(shares.rows.map((info) => [info.share.id, info]));
  for (const {session} of sorted.slice(0, HOLDERS_ASKED)) {
    const its = await list('SHARES', FILTERED_PAGES, {session}, NAMES_ENOUGH);
    for (const info of its?.rows ?? []) byId.set(info.share.id, info);
  }
  return {rows: [...byId.values()], more: true};
}

export async function readNames() {
  const prefix = seen.prefix;
  const isTooLong = new TextEncoder().encode(prefix).length > NAME_BYTES_MAX;  // the daemon would refuse it
  const found =
      isTooLong ? {rows: [], more: false} : await list('SHARES', FILTERED_PAGES, {name_prefix: prefix}, NAMES_ENOUGH);
  if (prefix === seen.prefix) seen.found = found;  // otherwise the reader has typed on, and a newer answer comes
}

// The tables that the daemon writes, below the live view.
async function readTables() {
  const answer = await request('./');
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('tables');
  if (fresh !== null) become(document.getElementById('tables'), fresh);
}

function noteRestart(info) {
  const before = seen.info;
  if (before === null) return;
  const isSame = info.broker_id === before.broker_id;
  if (isSame && info.life?.number === before.life?.number) return;
  seen.restarts.push({at: new Date(), continues: isSame, life: number(info.life?.number)});
  seen.restarts = seen.restarts.slice(-RESTARTS_KEPT);
  seen.sharesAt = -Infinity;
}
