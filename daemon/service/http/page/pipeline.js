// SPDX-License-Identifier: Apache-2.0
// The pipeline: processes, the channels between them, and what stands still.

import {seen} from './broker.js';
import {isFull, isOpen, keyOf, oldestMs, rateOf, receiversOf, sendersOf, waitingIn} from './channels.js';
import {bytesCell, html, longCell, numberCell, rectangle, row, scrolled, section, svg, table} from './document.js';
import {place} from './graph.js';
import {channelText, isCause, standing, standingEnds, standsText} from './standing.js';
import {number, printable, processText, rateText, shortened, sizeText, timeText} from './text.js';

const CHANNELS_DRAWN = 24;
const ENDS_DRAWN = 8;  // of one channel, of one kind
const ROWS_MAX = 200;
const SENTENCES = 5;
const LETTER_WIDTH = {
  name: 7.9,
  state: 7,
  small: 6,
  plain: 6.6
};
const PROCESS_SIZE = {
  width: 124,
  height: 56
};
const CHANNEL_SIZE = {
  width: 136,
  height: 86
};

// --- The graph: nodes of kind 'process' and 'channel', and links from a sender to its channel and on to its receivers

// The channels that are drawn: those in which something stands still, the full ones, the busiest.
function drawnChannels(all) {
  const rank = (channel) => [standingEnds(channel).length > 0, isFull(channel), rateOf(channel, 'sent') ?? 0];
  const ranks = new Map(all.map((channel) => [channel, rank(channel).map(Number)]));
  const difference = (one, other) =>
      ranks.get(other).map((each, at) => each - ranks.get(one)[at]).find((each) => each !== 0);
  return [...all].sort((one, other) => difference(one, other) ?? 0).slice(0, CHANNELS_DRAWN);
}

// Several ends may belong to one process.
function processOf(nodes, end) {
  const key = `process ${end.process_id ?? end.session} ${end.client}`;
  if (!nodes.has(key)) nodes.set(key, {kind: 'process', end, stand: null, isOpen: false, ...PROCESS_SIZE});
  const node = nodes.get(key);
  node.isOpen ||= isOpen(end);
  return node;
}

// The ends of one kind that are drawn, what stands still first, and one for all others.
function drawnEnds(channel, ends, standOf) {
  if (ends.length <= ENDS_DRAWN) return ends;
  const sorted = [...ends].sort((one, other) => (standOf.get(other)?.ms ?? 0) - (standOf.get(one)?.ms ?? 0));
  const others = {
    session: keyOf(channel),
    client: `${ends.length - ENDS_DRAWN} more ${ends[0].sends ? 'senders' : 'receivers'}`
  };
  return [...sorted.slice(0, ENDS_DRAWN), others];
}

function graphOf(channels) {
  const standOf = new Map(standing().map((stand) => [stand.end, stand]));
  const nodes = new Map();
  const links = [];
  for (const channel of channels) {
    const isBad = receiversOf(channel).some((end) => standOf.get(end)?.heldBackBy === null);
    const node = {kind: 'channel', channel, isBad, ...CHANNEL_SIZE};
    nodes.set(keyOf(channel), node);
    for (const end of drawnEnds(channel, sendersOf(channel), standOf)) links.push([processOf(nodes, end), node]);
    for (const end of drawnEnds(channel, receiversOf(channel), standOf)) {
      const process = processOf(nodes, end);
      process.stand ??= standOf.get(end) ?? null;
      links.push([node, process]);
    }
  }
  return {nodes: [...nodes.values()], links};
}

// --- Drawing

// A link leads from the right of a node to the left of the next one, or from its bottom to the top.
function linkView([from, to], isDown) {
  const isOff = [from, to].some((node) => node.kind === 'process' && !node.isOpen);
  const middle = (node) => isDown ? node.x + node.width / 2 : node.y + node.height / 2;
  const start = isDown ? from.y + from.height : from.x + from.width;
  const end = isDown ? to.y : to.x;
  const bend = to.layer > from.layer ? (end - start) / 2 : 60;
  const at = (along, across) => isDown ? `${across} ${along}` : `${along} ${across}`;
  const points = [at(start + bend, middle(from)), at(end - bend, middle(to)), at(end, middle(to))];
  const tip = [at(end, middle(to)), at(end - 7, middle(to) - 4), at(end - 7, middle(to) + 4)];
  const line = svg('path', {d: `M${at(start, middle(from))} C${points.join(' ')}`});
  return svg('g', {class: isOff ? 'link off' : 'link'}, line, svg('polygon', {points: tip.join(' ')}));
}

function line(node, baseline, text, name = 'plain') {
  if (text === '') return null;
  const letters = Math.floor((node.width - 12) / LETTER_WIDTH[name]);
  return svg('text', {x: node.x + 7, y: node.y + baseline, class: name}, shortened(text, letters));
}

function stateText({stand, isOpen, end}) {
  if (!isOpen) return number(end.closed_ms) > 0 ? `ended ${timeText(number(end.closed_ms))} ago` : '';
  if (stand === null) return '';
  return isCause(stand) ? 'stands still' : 'waits for room';
}

function gradeOf({stand, isOpen}) {
  if (!isOpen) return 'off';
  if (stand === null) return '';
  return isCause(stand) ? 'bad' : 'warn';
}

function processView(node) {
  const {client, process_id} = node.end;
  const state = stateText(node);
  const full = [processText(client, process_id), state].filter(Boolean).join(', ');
  return svg(
      'g', {class: `node process ${gradeOf(node)}`}, svg('title', {}, full), rectangle(node, {rx: 8}),
      line(node, 17, printable(client) || 'a client', 'name'),
      line(node, 32, number(process_id) > 0 ? `process ${number(process_id)}` : '', 'small'),
      line(node, 47, state, 'state'));
}

const ratesText = (channel) => `in ${rateText(rateOf(channel, 'sent'))}, out ${rateText(rateOf(channel, 'received'))}`;

// The age of the oldest array that waits.
const ageText = (channel) => oldestMs(channel) === null ? '' : timeText(oldestMs(channel));

function remarks(channel) {
  const missed = number(channel.dropped);
  return [ageText(channel) && `oldest ${ageText(channel)}`, missed > 0 && `${missed} missed`].filter(Boolean).join(
      ', ');
}

function channelView(node) {
  const {channel} = node;
  const [waiting, capacity] = [waitingIn(channel), number(channel.capacity)];
  const waits = `${waiting} of ${capacity} wait`;
  const counts =
      `${number(channel.sent)} sent, ${number(channel.received)} received, ${number(channel.dropped)} missed`;
  const full = `channel ${channelText(channel)}: ${waits}, ${sizeText(number(channel.queued_bytes))}; ${counts}`;
  const gauge = {x: node.x + 7, y: node.y + 24, width: node.width - 14, height: 8};
  const filling = {...gauge, width: gauge.width * Math.min(1, waiting / Math.max(1, capacity))};
  const grade = node.isBad ? 'bad' : isFull(channel) ? 'warn' : '';
  return svg(
      'g', {class: `node channel ${grade}`}, svg('title', {}, full), rectangle(node, {rx: 2}),
      line(node, 17, printable(channel.name), 'name'), rectangle(gauge, {class: 'gauge'}),
      rectangle(filling, {class: 'filling'}), line(node, 46, waits), line(node, 61, ratesText(channel), 'small'),
      line(node, 76, remarks(channel), 'small'));
}

// From left to right; on a page that is too narrow for that, downwards.
function picture(graph, width) {
  const wide = place(graph, false);
  const isDown = wide.width > width;
  const size = isDown ? place(graph, true) : wide;
  const attributes = {
    class: 'pipeline',
    viewBox: `0 0 ${size.width} ${size.height}`,
    ...size,
    role: 'img',
    'aria-label': 'Processes and channels. The table after it says the same.',
  };
  const views = graph.nodes.map((node) => node.kind === 'channel' ? channelView(node) : processView(node));
  return svg('svg', attributes, ...graph.links.map((link) => linkView(link, isDown)), ...views);
}

// --- The section

function endText(end) {
  const state = isOpen(end) ? '' : `, ended ${timeText(number(end.closed_ms))} ago`;
  return `${processText(end.client, end.process_id)}${state}`;
}

function channelRow(channel) {
  const names = (ends) => longCell(ends.map(endText).join('; '));
  return row(
      longCell(printable(channel.name)), longCell(printable(channel.namespace)), names(sendersOf(channel)),
      names(receiversOf(channel)), numberCell(`${waitingIn(channel)} of ${number(channel.capacity)}`),
      bytesCell(number(channel.queued_bytes)), numberCell(rateText(rateOf(channel, 'sent'))),
      numberCell(rateText(rateOf(channel, 'received'))), numberCell(number(channel.dropped)),
      numberCell(ageText(channel)));
}

const COLUMNS =
    ['channel', 'namespace', 'senders', 'receivers', '#waiting', '#bytes', '#in', '#out', '#missed', '#oldest'];

function summary() {
  const causes = standing().filter(isCause).slice(0, SENTENCES);
  if (causes.length > 0) return causes.map((each) => html('p', {class: 'bad'}, `Stands still: ${standsText(each)}`));
  const legend = 'Arrays move along the arrows. A rounded box is a process; the bar of a channel shows how full it is.';
  return [html('p', {}, legend)];
}

function undrawn(drawn, all) {
  if (drawn.length === all.length && !seen.channels.more) return null;
  const text =
      `${drawn.length} of ${number(seen.stats.channels)} channels are drawn: those in which something stands ` +
      'still, the full ones, the busiest.';
  return html('p', {class: 'remark'}, text);
}

export function pipelineView(width) {
  const all = seen.channels.rows;
  if (all.length === 0) return section('pipeline', 'Pipeline', html('p', {}, 'No channel exists.'));
  const drawn = drawnChannels(all);
  const rows = table('Channels', COLUMNS, all.slice(0, ROWS_MAX).map(channelRow), '');
  return section(
      'pipeline', 'Pipeline', ...summary(), undrawn(drawn, all),
      scrolled('Pipeline', {class: 'scrolled whole'}, picture(graphOf(drawn), width)),
      html('details', {}, html('summary', {}, 'The same as a table'), rows));
}
