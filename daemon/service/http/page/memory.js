// SPDX-License-Identifier: Apache-2.0
// Memory by holder: user → process → name, in boxes that add up to the charged bytes.

import {isHidden, seen} from './broker.js';
import {sendersOf} from './channels.js';
import {bytesCell, cell, html, longCell, numberCell, row, section, table} from './document.js';
import {channelText} from './standing.js';
import {number, percent, plural, printable, sessionText, sizeText, sum} from './text.js';
import {residencyText} from './tiers.js';
import {treemap} from './treemap.js';

const PROCESSES_DRAWN = 24;  // of one user
const NAMES_DRAWN = 12;      // of one process
const ROWS = 12;             // of the table

const OTHERWISE = 'queued, held by readers, or free';
const ENDED = 'ended processes';
const NOBODY = '–';

const bySize = (one, other) => other.bytes - one.bytes;
const bytesOf = (each) => each.bytes;
const userText = (uid) => `user ${number(uid)}`;

// --- Holders: [{user, process, bytes, names: [{name, bytes, kind}], rest}]. `rest` says what the bytes without a name
// are.

// A process may have several sessions.
function addSession(processes, session) {
  const user = userText(session.uid);
  const key = JSON.stringify([user, session.process_id ?? session.session, session.client]);
  const none = {user, process: sessionText(session), bytes: 0, names: [], rest: OTHERWISE};
  const its = processes.get(key) ?? none;
  its.bytes += number(session.arena_bytes);
  processes.set(key, its);
  return its;
}

// The arrays of ended processes, by the owner of their namespace.
function addNamespace(ended, {shared, namespace, uid, unowned_bytes}) {
  const user = shared ? `namespace ${printable(namespace)}` : userText(uid);
  const its = ended.get(user) ?? {user, process: ENDED, bytes: 0, names: [], rest: 'queued, or held by readers'};
  its.bytes += number(unowned_bytes);
  ended.set(user, its);
}

// A forward is left out: it uses the bytes of another array, which are charged once. So is an array in a file.
function addName(bySession, ended, {share, maker, maker_uid, forward_of}) {
  if (number(forward_of) > 0 || residencyText(share) === 'disk') return;
  const namespace = printable(share.namespace);
  const name = namespace === 'default' ? printable(share.name) : `${namespace}/${printable(share.name)}`;
  const holder = bySession.get(maker) ?? ended.get(`namespace ${namespace}`) ?? ended.get(userText(maker_uid));
  holder?.names.push({name, bytes: number(share.handle?.size), kind: 'named'});
}

// The arrays that wait in a channel are its sender's, if that is the only one and has sent as many.
function addQueue(bySession, channel) {
  const [sender, ...others] = sendersOf(channel);
  if (sender === undefined || others.length > 0 || number(sender.shares) < number(channel.queued)) return;
  const name = `queued in channel ${channelText(channel)}`;
  bySession.get(sender.session)?.names.push({name, bytes: number(channel.queued_bytes), kind: 'queued'});
}

// The channels of the namespaces in which no queue has forwards: those would count the bytes of other arrays.
function channelsOfOwnBytes() {
  const keyOf = ({shared, uid, namespace}) => JSON.stringify([shared === true, number(uid), namespace]);
  const queued = new Map(seen.namespaces.rows.map((each) => [keyOf(each), number(each.queued_bytes)]));
  for (const each of seen.channels.rows) queued.set(keyOf(each), queued.get(keyOf(each)) - number(each.queued_bytes));
  return seen.channels.rows.filter((each) => queued.get(keyOf(each)) === 0);
}

function holders() {
  const processes = new Map();
  const bySession = new Map(seen.sessions.rows.map((each) => [each.session, addSession(processes, each)]));
  const ended = new Map();
  for (const each of seen.namespaces.rows) addNamespace(ended, each);
  for (const each of seen.shares?.rows ?? []) addName(bySession, ended, each);
  for (const each of channelsOfOwnBytes()) addQueue(bySession, each);
  return addedUp([...processes.values(), ...ended.values()], number(seen.stats.charged_bytes));
}

// The answers are of different moments, so their sum may differ from the charged bytes a little. What is missing
// becomes a holder of its own: it is being allocated, or was given up and is still mapped. What is too much is cut off.
function addedUp(all, charged) {
  let over = sum(all.map(bytesOf)) - charged;
  if (over < 0) {
    const isCut = seen.sessions.more || seen.namespaces.more;
    const process = isCut ? 'of sessions that are not listed' : 'being allocated, or given up and still mapped';
    all.push({user: NOBODY, process, bytes: -over, names: [], rest: process});
  }
  for (const each of all.sort(bySize)) {
    const cut = Math.min(Math.max(over, 0), each.bytes);
    each.bytes -= cut;
    over -= cut;
  }
  return all.filter(({bytes}) => bytes > 0).sort(bySize);
}

// --- Boxes: {user, process, label, bytes, kind}

// The largest names of a holder, its other names as one, and its bytes without a name.
function boxesOf(holder) {
  const boxes = [];
  let left = holder.bytes;
  const add = (label, bytes, kind) => {
    const drawn = Math.min(bytes, left);
    left -= drawn;
    if (drawn > 0) boxes.push({user: holder.user, process: holder.process, label, bytes: drawn, kind});
  };
  const names = holder.names.sort(bySize);
  for (const {name, bytes, kind} of names.slice(0, NAMES_DRAWN)) add(name, bytes, kind);
  const others = names.slice(NAMES_DRAWN);
  add(plural(others.length, 'smaller name'), sum(others.map(bytesOf)), 'named');
  add(seen.shares?.more ? `other names, ${holder.rest}` : holder.rest, left, 'rest');
  return boxes;
}

// {label, bytes, children} of users; their children are processes, whose children are boxes.
function usersOf(all) {
  const users = new Map();
  for (const holder of all) {
    const user = users.get(holder.user) ?? {label: holder.user, bytes: 0, children: []};
    user.bytes += holder.bytes;
    user.children.push({label: holder.process, bytes: holder.bytes, children: boxesOf(holder)});
    users.set(holder.user, user);
  }
  for (const user of users.values()) joinSmall(user);
  return [...users.values()].sort(bySize);
}

function joinSmall(user) {
  const small = user.children.length > PROCESSES_DRAWN + 1 ? user.children.splice(PROCESSES_DRAWN) : [];
  if (small.length === 0) return;
  const bytes = sum(small.map(bytesOf));
  const label = `${small.length} smaller processes`;
  const box = {user: user.label, process: label, label: 'all that they hold', bytes, kind: 'rest'};
  user.children.push({label, bytes, children: [box]});
}

// --- The section

function rowsOf(users, hues, charged) {
  const boxes = users.flatMap(
      (user) => user.children.flatMap(
          (process) => process.children.map((box) => ({...box, swatch: `swatch ${hues.get(process)} ${box.kind}`}))));
  boxes.sort(bySize);
  const others = boxes.length > ROWS + 1 ? boxes.splice(ROWS) : [];
  const amounts = (bytes) => [bytesCell(bytes), numberCell(percent(bytes, charged))];
  const rows = boxes.map(({user, process, label, bytes, swatch}) => {
    const first = html('td', {}, html('i', {class: swatch}), user);
    return row(first, longCell(process), longCell(label), ...amounts(bytes));
  });
  const rest = sum(others.map(bytesOf));
  if (others.length > 0)
    rows.push(row(cell(NOBODY), cell(NOBODY), cell(`${others.length} smaller boxes`), ...amounts(rest)));
  rows.push(html('tr', {class: 'total'}, cell('all'), cell(''), cell('CHARGED'), ...amounts(charged)));
  return rows;
}

function summary({user, process, bytes}, charged) {
  const who = user === NOBODY ? process : `${process}, ${user}`;
  const share = `: ${sizeText(bytes)} of ${sizeText(charged)} charged (${percent(bytes, charged)}). `;
  const legend = `A coloured box is an array with a name, a pale one the queue of a channel; grey has no name: it is ${
      OTHERWISE}.`;
  return html('p', {}, 'Most is held by ', html('b', {}, who), share, legend);
}

function undrawn() {
  if (!seen.shares?.more) return null;
  const all = number(seen.stats.shares);
  const text = `${Math.max(0, all - seen.shares.rows.length)} of ${all} names are not drawn one by one: they are in ` +
      'the grey boxes of their processes.';
  return html('p', {class: 'remark'}, text);
}

const HIDDEN = 'Names, processes and channels are hidden, because every user of this host can open this page. ' +
    'http.namespaces = true in the configuration (--http-namespaces) shows them to everybody who can open it. ' +
    'arraybridgectl shows to each user what is the user\'s own.';

export function memoryView(width) {
  const view = (...content) => section('memory', 'Memory by holder', ...content);
  if (isHidden()) return view(html('p', {}, HIDDEN));
  const charged = number(seen.stats.charged_bytes);
  if (charged === 0) return view(html('p', {}, 'No memory is charged.'));
  const all = holders();
  const users = usersOf(all);
  const {picture, hues} = treemap(users, width);
  const columns = ['user', 'process', 'name', '#bytes', '#of all'];
  return view(
      summary(all[0], charged), undrawn(), picture,
      table('Memory by holder', columns, rowsOf(users, hues, charged), ''));
}
