// SPDX-License-Identifier: Apache-2.0
// The alerts: one table of rules, computed from the last answers.

import {isHidden, seen} from './broker.js';
import {fullFor, isBroadcast, isFull, isOpen, receiversOf} from './channels.js';
import {html, section} from './document.js';
import {channelText, heldBackText, isCause, standing, standingEnds, standsText, waitText} from './standing.js';
import {deviceText, number, percent, plural, printable, sizeText, timeText} from './text.js';
import {nearlyFullFiles, tierOff} from './tiers.js';

const NEARLY = 0.9;
const SENTENCES_MAX = 20;  // of one rule

// A rule's title, its grade, and the sentences that it says now.
const RULES = [
  {title: 'Out of service', grade: 'bad', says: brokenDevices},
  {title: 'Stands still', grade: 'bad', says: () => standing().filter(isCause).map(standsText)},
  {title: 'Held back', grade: 'warn', says: () => standing().filter((each) => !isCause(each)).map(heldBackText)},
  {title: 'Full', grade: 'warn', says: fullChannels},
  {title: 'No receiver', grade: 'warn', says: channelsWithoutReceiver},
  {title: 'Quota', grade: 'warn', says: nearlyUsedQuotas},
  {title: 'Files', grade: 'bad', says: tierOff},
  {title: 'Files', grade: 'warn', says: nearlyFullFiles},
  {title: 'Awaited', grade: 'warn', says: awaitedSessions},
  {title: 'Lost', grade: 'warn', says: lostShares},
  {title: 'Store', grade: 'warn', says: nearlyFullStore},
  {title: 'Draining', grade: 'warn', says: () => seen.info.draining ? ['The daemon accepts no new work.'] : []},
  {title: 'No keeper', grade: 'note', says: missingKeeper},
  {title: 'Not all', grade: 'note', says: cutLists},
];

function brokenDevices() {
  const why = ({refused}) => printable(refused?.find(({cause}) => cause === 'REFUSAL_CAUSE_FAILED')?.why);
  const broken = (seen.info.devices ?? []).filter((device) => device.out_of_service);
  return broken.map((device) => `Device ${deviceText(device)}: ${why(device) || 'a call to it failed'}.`);
}

const channels = () => seen.channels?.rows ?? [];

// Channels whose receivers take, but not quickly enough.
function fullChannels() {
  const isSlow = (channel) => isFull(channel) && fullFor(channel) > 0 && standingEnds(channel).length === 0;
  const slow = channels().filter((channel) => isSlow(channel) && receiversOf(channel).some(isOpen));
  return slow.map(
      (channel) => `The senders of channel ${channelText(channel)} have waited for its receivers for ` +
          `${timeText(fullFor(channel))}; ${waitText(channel)}.`);
}

function channelsWithoutReceiver() {
  const isLeft = (each) => number(each.queued) > 0 && number(each.receivers) === 0 && !isBroadcast(each);
  const left = channels().filter(isLeft);
  return left.map(
      (channel) => `No process receives from channel ${channelText(channel)}; ${waitText(channel)}. ` +
          'Start one, or free the memory with arraybridgectl channel drain.');
}

function nearlyUsedQuotas() {
  const isNear = ({quota_bytes, charged_bytes}) =>
      number(quota_bytes) > 0 && number(charged_bytes) > NEARLY * number(quota_bytes);
  const owner = ({shared, uid}) => shared ? 'several users' : `user ${number(uid)}`;
  return (seen.namespaces?.rows ?? []).filter(isNear).map((each) => {
    const quota = number(each.quota_bytes);
    return `Namespace '${printable(each.namespace)}' of ${owner(each)} has used ` +
        `${percent(number(each.charged_bytes), quota)} of its quota of ${sizeText(quota)}.`;
  });
}

function awaitedSessions() {
  const count = (seen.sessions?.rows ?? []).filter((each) => each.awaited).length;
  return count === 0 ? [] : [`The daemon waits for ${plural(count, 'client')} of the life before.`];
}

function lostShares() {
  const count = number(seen.info.life?.lost_shares);
  return count === 0 ? [] : [`${plural(count, 'named array')} of the life before could not be taken over.`];
}

function nearlyFullStore() {
  const used = number(seen.info.life?.store_entries);
  const most = number(seen.info.life?.store_entries_max);
  if (most === 0 || used <= NEARLY * most) return [];
  return [
    `${used} of at most ${most} descriptors are kept for the next life. Beyond that, new sessions and arenas are ` +
    'refused.'
  ];
}

function missingKeeper() {
  const lost = 'If the daemon is killed now, all arrays are lost.';
  const texts = {
    HOLDER_NONE: `${lost} Under systemd, or with --keeper, the next daemon goes on with them.`,
    HOLDER_ENDED: `The keeper has ended. ${lost}`,
    HOLDER_FULL: `The service manager may keep too few descriptors. ${lost}`,
  };
  const text = texts[seen.info.life?.holder];
  return text === undefined ? [] : [text];
}

function cutLists() {
  const names = ['sessions', 'namespaces', 'channels'].filter((name) => seen[name]?.more);
  return names.map(
      (name) => `The page reads the first ${seen[name].rows.length} ${name} only. arraybridgectl ls lists all.`);
}

const capped = (sentences) => sentences.length <= SENTENCES_MAX ?
    sentences :
    [...sentences.slice(0, SENTENCES_MAX), `And ${sentences.length - SENTENCES_MAX} more.`];

export function alertsView() {
  const item = (grade, title, text) => html('li', {class: grade}, html('b', {}, title), text);
  const items = RULES.flatMap(({title, grade, says}) => capped(says()).map((text) => item(grade, `${title}: `, text)));
  const fine = isHidden() ? 'Nothing that can be told here needs attention.' : 'Nothing needs attention.';
  if (items.length === 0) items.push(item('fine', '', fine));
  return section('alerts', 'Alerts', html('ul', {class: 'alerts'}, ...items));
}
