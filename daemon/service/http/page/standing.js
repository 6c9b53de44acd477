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

// Those of all channels: [{channel, end, ms, heldBackBy}]. One that sends into a full channel whose receivers stand
// still is held back by that channel, and null stands for none: then the receiver is itself what stands still.
export function standing() {
  const all = (seen.channels?.rows ?? []).flatMap(standingEnds);
  const blocking = [...new Set(all.map(({channel}) => channel))].filter(isFull);
  const isSender = (channel, end) => sendersOf(channel).some((sender) => endKey(sender) === endKey(end));
  const heldBackBy = ({channel, end}) => blocking.find((each) => each !== channel && isSender(each, end)) ?? null;
  return all.map((each) => ({...each, heldBackBy: heldBackBy(each)}));
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
