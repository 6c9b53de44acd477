// SPDX-License-Identifier: Apache-2.0
// A treemap: boxes in boxes, whose areas are as their bytes.

import {rectangle, svg} from './document.js';
import {exactly, shortened, sizeText, sum} from './text.js';

const HUES = 6;  // classes hue0 … of the style sheet
const LETTER_WIDTH = {
  plain: 6.6,
  name: 7.9
};
const HEAD = 18;  // height of the label of a box with boxes
const EDGE = 3;
const SMALLEST = 1e-6;  // rounding leaves less than nothing

const areaOf = (items, scale) => scale * sum(items.map(({bytes}) => bytes));

// --- Places

// Places items in a box, as rectangles that are nearly squares: one row after another, along the shorter side of what
// is left. Returns [{item, x, y, width, height}].
function placed(items, box) {
  const places = [];
  const scale = box.width * box.height / sum(items.map(({bytes}) => bytes));
  let left = items;
  let room = box;
  while (left.length > 0) {
    const count = rowLength(left, Math.min(room.width, room.height), scale);
    room = placeRow(left.slice(0, count), room, scale, places);
    left = left.slice(count);
  }
  return places;
}

// A row grows while that makes its longest rectangle more like a square.
function rowLength(items, side, scale) {
  let count = 1;
  const elongation = (length) => longest(items.slice(0, length), side, scale);
  while (count < items.length && elongation(count + 1) <= elongation(count)) ++count;
  return count;
}

function longest(items, side, scale) {
  const thickness = areaOf(items, scale) / side;
  const ratios = items.map(({bytes}) => bytes * scale / (thickness * thickness));
  return Math.max(...ratios.map((ratio) => Math.max(ratio, 1 / ratio)));
}

// Returns the room that is left.
function placeRow(items, {x, y, width, height}, scale, places) {
  const isUpright = width >= height;
  const thickness = areaOf(items, scale) / (isUpright ? height : width);
  let along = isUpright ? y : x;
  for (const item of items) {
    const length = item.bytes * scale / thickness;
    const place =
        isUpright ? {x, y: along, width: thickness, height: length} : {x: along, y, width: length, height: thickness};
    places.push({item, ...place});
    along += length;
  }
  const rest = Math.max(SMALLEST, (isUpright ? width : height) - thickness);
  return isUpright ? {x: x + thickness, y, width: rest, height} : {x, y: y + thickness, width, height: rest};
}

// --- Drawing

function label(text, box, baseline, name = 'plain') {
  const letters = Math.floor((box.width - 8) / LETTER_WIDTH[name]);
  if (letters < 4 || box.height < baseline + 2) return null;
  return svg(
      'text', {x: (box.x + 4).toFixed(1), y: (box.y + baseline).toFixed(1), class: name}, shortened(text, letters));
}

const title = (...lines) => svg('title', {}, lines.join('\n'));

// A box of bytes without a name has its label in the title alone: they would not fit.
function leafView({item, ...box}, hue) {
  const full =
      title(`${item.label}: ${sizeText(item.bytes)} (${exactly(item.bytes)})`, `${item.process}, ${item.user}`);
  const texts = [label(item.kind === 'rest' ? 'no name' : item.label, box, 14), label(sizeText(item.bytes), box, 28)];
  return svg('g', {}, full, rectangle(box, {class: `${item.kind} ${hue}`}), ...texts);
}

// A box with a label above its boxes, if there is room for one.
function groupView({item, ...box}, kind, view) {
  const head = box.height > 2 * HEAD && box.width > 2 * HEAD ? HEAD : EDGE;
  const width = Math.max(1, box.width - 2 * EDGE);
  const height = Math.max(1, box.height - head - EDGE);
  const inside = placed(item.children, {x: box.x + EDGE, y: box.y + head, width, height});
  const name = head === HEAD ? label(`${item.label} ${sizeText(item.bytes)}`, box, 13, 'name') : null;
  const full = title(`${item.label}: ${sizeText(item.bytes)} (${exactly(item.bytes)})`);
  return svg('g', {}, full, rectangle(box, {class: kind}), name, ...inside.map(view));
}

// The picture, and the class of each process's colour.
export function treemap(users, width) {
  const height = width < 600 ? 420 : 340;
  const processes = users.flatMap((user) => user.children).sort((one, other) => other.bytes - one.bytes);
  const hues = new Map(processes.map((process, at) => [process, `hue${at % HUES}`]));
  const processView = (place) => groupView(place, 'process', (leaf) => leafView(leaf, hues.get(place.item)));
  const views = placed(users, {x: 0, y: 0, width, height}).map((place) => groupView(place, 'user', processView));
  const attributes = {
    class: 'treemap',
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    'aria-label': 'Memory by holder. The table after it says the same.',
  };
  return {picture: svg('svg', attributes, ...views), hues};
}
