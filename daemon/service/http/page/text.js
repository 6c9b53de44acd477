// SPDX-License-Identifier: Apache-2.0
// The daemon's texts and numbers, as a reader sees them.

// Control characters, and those that turn the direction of writing, break lines or have no width: any process may have
// put them into a name.
const ACTING = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const escaped = (letter) => {
  const code = letter.codePointAt(0).toString(16);
  return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u${code.padStart(4, '0')}`;
};

export const printable = (text) => (text ?? '').replace(ACTING, escaped);

export const shortened = (text, most) => {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join('')}…`;
};

// 64-bit numbers are strings in the daemon's JSON, and a number that is 0 is absent.
export const number = (value) => Number(value ?? 0);

export const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);

export function sizeText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = bytes;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return unit === 0 ? `${bytes} B` : `${value.toFixed(1)} ${units[unit]}`;
}

export const exactly = (bytes) => `${bytes.toLocaleString('en')} bytes`;

export function timeText(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

export const dateText = (date) => `${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`;

export function percent(part, whole) {
  if (whole === 0) return '–';
  return part === whole ? '100 %' : `${(100 * part / whole).toFixed(1)} %`;
}

// Shares a second; null: not known yet.
export function rateText(rate) {
  if (rate === null) return '–';
  return rate > 0 && rate < 10 ? `${rate.toFixed(1)}/s` : `${Math.round(rate)}/s`;
}

export const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;

export function processText(client, process) {
  const name = printable(client) || 'a client without a name';
  return number(process) === 0 ? name : `${name} (process ${number(process)})`;
}

export const sessionText = (session) => processText(session.client, session.process_id);

export const deviceText = ({device}) =>
    number(device?.type) <= 1 ? 'host' : `cuda:${number(device.id)} ${printable(device.uuid)}`;
