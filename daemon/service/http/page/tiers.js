// SPDX-License-Identifier: Apache-2.0
// Where the bytes of shares are, and the files of the broker's directory.

import {seen} from './broker.js';
import {exactly, number, percent, printable, sizeText} from './text.js';

const CPU = 1;  // the type of the host's device
const NEARLY = 0.9;

// "host", "device", or "disk": the bytes are in a file alone, so the handle has no kind.
export function residencyText({handle}) {
  if (handle === undefined) return '';
  if (handle.kind === undefined) return 'disk';
  return number(handle.device?.type) === CPU ? 'host' : 'device';
}

// The facts of the head; none if the broker has no directory for files.
export function fileFacts() {
  const bytes = number(seen.tier?.disk_bytes);
  const most = number(seen.tier?.disk_bytes_max);
  if (most === 0) return [];
  return [['in files', `${sizeText(bytes)} of ${sizeText(most)}`, `${exactly(bytes)} of ${exactly(most)}`]];
}

export function tierOff() {
  const why = printable(seen.tier?.off);
  if (why === '') return [];
  return [`No bytes of shares are written to files any more: ${why}. Mend it, then restart the daemon.`];
}

export function nearlyFullFiles() {
  const bytes = number(seen.tier?.disk_bytes);
  const most = number(seen.tier?.disk_bytes_max);
  if (bytes <= NEARLY * most) return [];
  return [
    `Files of shares use ${percent(bytes, most)} of ${sizeText(most)} (tiers.disk_max). At the maximum, shares ` +
    'stay in memory.'
  ];
}
