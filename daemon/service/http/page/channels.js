// SPDX-License-Identifier: Apache-2.0
// Channels over time: how full they are, their rates, and since when a receiver has taken nothing.

import {seen} from './broker.js';
import {number} from './text.js';

const RATE_MS = 6000;  // a rate is the mean over this time

// --- One channel

export const keyOf = ({shared, uid, namespace, name}) => JSON.stringify([shared ? '' : number(uid), namespace, name]);
export const endKey = ({session, process_id, client}) => JSON.stringify([session, process_id, client]);

export const isOpen = (end) => number(end.closed_ms) === 0;
export const sendersOf = (channel) => (channel.ends ?? []).filter((end) => end.sends);
export const receiversOf = (channel) => (channel.ends ?? []).filter((end) => !end.sends);

// Every receiver of a broadcast gets each array; in a queue, one of them does.
export const isBroadcast = ({mode}) => mode === 'CHANNEL_MODE_BROADCAST' || mode === 'CHANNEL_MODE_LATEST';
const drops = ({mode, drop_oldest}) => mode === 'CHANNEL_MODE_LATEST' || drop_oldest === true;

// The arrays that wait: those of the slowest receiver of a broadcast, which may keep others for receivers to come.
export function waitingIn(channel) {
  if (!isBroadcast(channel)) return number(channel.queued);
  return Math.max(0, ...receiversOf(channel).map((end) => number(end.waiting)));
}

// Its senders wait for room.
export const isFull = (channel) =>
    number(channel.capacity) > 0 && waitingIn(channel) >= number(channel.capacity) && !drops(channel);

// --- All channels, from one reading to the next

// By key: {samples, takenAt, endsTakenAt, fullAt}. `takenAt`: when a receiver last took something, or nothing waited.
const histories = new Map();

// Nothing is known of the time until now: the page was hidden, or the daemon did not answer.
export const forget = () => histories.clear();

// Adds the newest reading. Call it once after each.
export function follow() {
  const channels = seen.channels?.rows ?? [];
  const keys = new Set(channels.map(keyOf));
  for (const key of histories.keys()) {
    if (!keys.has(key)) histories.delete(key);
  }
  for (const channel of channels) {
    const key = keyOf(channel);
    if (!histories.has(key)) histories.set(key, {samples: [], takenAt: seen.at, endsTakenAt: new Map(), fullAt: null});
    extend(histories.get(key), channel);
  }
}

const countOf = (end) => number(end.shares);

// A session may have several receivers of one channel.
function receiverKey(channel, end) {
  const key = endKey(end);
  const nth = receiversOf(channel).filter((each) => endKey(each) === key).indexOf(end);
  return `${key} ${nth}`;
}

function extend(history, channel) {
  const at = seen.at;
  const counts = new Map(receiversOf(channel).map((end) => [receiverKey(channel, end), countOf(end)]));
  const sample = {at, sent: number(channel.sent), received: number(channel.received), counts};
  if (isBehind(sample, history.samples.at(-1))) history.samples = [];
  const last = history.samples.at(-1);
  if (last?.received !== sample.received || waitingIn(channel) === 0) history.takenAt = at;
  for (const end of receiversOf(channel)) {
    const key = receiverKey(channel, end);
    if (number(end.waiting) === 0 || last?.counts.get(key) !== counts.get(key)) history.endsTakenAt.set(key, at);
  }
  history.fullAt = isFull(channel) ? history.fullAt ?? at : null;
  history.samples.push(sample);
  while (history.samples.length > 2 && at - history.samples[1].at > RATE_MS) history.samples.shift();
}

// Counts fall when another daemon counts from 0.
const isBehind = (sample, last) => last !== undefined && (sample.sent < last.sent || sample.received < last.received);

// `counter`: 'sent' or 'received'.
export function rateOf(channel, counter) {
  const samples = histories.get(keyOf(channel))?.samples ?? [];
  if (samples.length < 2) return null;
  const [first, last] = [samples[0], samples.at(-1)];
  return 1000 * (last[counter] - first[counter]) / (last.at - first.at);
}

// For how many milliseconds it has been full at each reading.
export function fullFor(channel) {
  const history = histories.get(keyOf(channel));
  return history === undefined || history.fullAt === null ? 0 : seen.at - history.fullAt;
}

// How long the first array that waits has been waiting, in milliseconds; null: not known. A direct channel does not
// tell it: then it has waited at least since a receiver last took something.
export function oldestMs(channel) {
  const told = number(channel.oldest_ms);
  if (waitingIn(channel) === 0) return null;
  if (told > 0) return told;
  const history = histories.get(keyOf(channel));
  const ms = history === undefined ? 0 : seen.at - history.takenAt;
  return ms > 0 ? ms : null;
}

// For how many milliseconds this receiver has taken nothing although something waits. In a queue any receiver may take.
export function idleFor(channel, end) {
  const history = histories.get(keyOf(channel));
  if (history === undefined || waitingIn(channel) === 0) return 0;
  const takenAt = isBroadcast(channel) ? history.endsTakenAt.get(receiverKey(channel, end)) : history.takenAt;
  const ms = seen.at - (takenAt ?? seen.at);
  const told = number(channel.oldest_ms);  // nothing waited before
  return told > 0 ? Math.min(ms, told) : ms;
}
