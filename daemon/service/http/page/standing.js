// SPDX-License-Identifier: Apache-2.0
// The receivers that stand still, and what there is to say of them and their channels.

import {seen} from './broker.js';
import {endKey, idleFor, isBroadcast, isFull, isOpen, oldestMs, receiversOf, sendersOf, waitingIn} from './channels.js';
import {number, plural, printable, processText, sizeText, timeText} from './text.js';

const STANDS_MS = 10000;  // a receiver that takes nothing for so long, though something waits, stands still

// The open receivers of a channel that stand still: [{channel, end, ms}].
export function standingEnds(channel) {
  const all = receiversOf(channel).filter(isOpen).map((end) => ({channel, end, ms: idleFor(channel, end)}));
  return all.filter(({ms}) => ms >= STANDS_MS);
}

// Those of all channels: [{channel, end, ms, heldBackBy}]. A receiver that sends into a full channel is held back by
// that channel. null: it is itself what stands still, or it waits for processes that wait for it.
export function standing() {
  const channels = seen.channels?.rows ?? [];
  const fullOnes = new Map();  // by a sender's key: the full channels into which it sends
  for (const channel of channels.filter(isFull)) {
    for (const key of new Set(sendersOf(channel).filter(isOpen).map(endKey))) {
      fullOnes.set(key, [...(fullOnes.get(key) ?? []), channel]);
    }
  }
  const heldBackBy = ({channel, end}) => (fullOnes.get(endKey(end)) ?? []).find((each) => each !== channel) ?? null;
  const all = channels.flatMap(standingEnds).map((each) => ({...each, heldBackBy: heldBackBy(each)}));
  return all.map((each) => isInCircle(each, all) ? {...each, heldBackBy: null} : each);
}

function isInCircle(stand, all) {
  const passed = new Set();
  const waiting = [stand.heldBackBy];
  while (waiting.length > 0) {
    const channel = waiting.pop();
    if (channel === stand.channel) return true;
    if (channel === null || passed.has(channel)) continue;
    passed.add(channel);
    waiting.push(...all.filter((each) => each.channel === channel).map((each) => each.heldBackBy));
  }
  return false;
}

export const isCause = (stand) => stand.heldBackBy === null;

// --- In words

export function channelText({namespace, name}) {
  const text = `'${printable(name)}'`;
  return namespace === 'default' ? text : `${text} of namespace '${printable(namespace)}'`;
}

// A direct channel does not tell sizes.
export function waitText(channel) {
  const count = waitingIn(channel);
  const bytes = number(channel.queued_bytes);
  const size = bytes > 0 && !isBroadcast(channel) ? ` (${sizeText(bytes)})` : '';
  const age = oldestMs(channel) === null ? '' : `, the oldest for ${timeText(oldestMs(channel))}`;
  return `${plural(count, 'array')}${size} ${count === 1 ? 'waits' : 'wait'}${age}`;
}

export const standsText = ({channel, end, ms}) => `${processText(end.client, end.process_id)} has taken nothing ` +
    `from channel ${channelText(channel)} for ${timeText(ms)}; ${waitText(channel)}.`;

export const heldBackText = ({channel, end, heldBackBy}) =>
    `${processText(end.client, end.process_id)} takes nothing ` +
    `from channel ${channelText(channel)}, because it waits for room in channel ${channelText(heldBackBy)}.`;
