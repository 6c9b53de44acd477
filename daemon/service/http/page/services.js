// SPDX-License-Identifier: Apache-2.0
// Services, which are made of channels: all servers of a name receive from its queue of tickets, and all callers send
// into it.

import {seen} from './broker.js';
import {isOpen, oldestMs, receiversOf, sendersOf, waitingIn} from './channels.js';
import {html, longCell, numberCell, row, section, table} from './document.js';
import {number, printable, timeText} from './text.js';

const TICKETS = /^service\/(.+)\/tickets$/s;

function serviceRow(tickets) {
  const oldest = oldestMs(tickets);
  return row(
      longCell(printable(TICKETS.exec(tickets.name)[1])), longCell(printable(tickets.namespace)),
      numberCell(receiversOf(tickets).filter(isOpen).length), numberCell(sendersOf(tickets).filter(isOpen).length),
      numberCell(`${waitingIn(tickets)} of ${number(tickets.capacity)}`),
      numberCell(oldest === null ? '–' : timeText(oldest)));
}

// An empty element if there is no service.
export function servicesView() {
  const services = (seen.channels?.rows ?? []).filter(({name}) => TICKETS.test(name));
  if (services.length === 0) return html('section', {id: 'services', hidden: true});
  const columns = ['name', 'namespace', '#servers', '#callers', '#waiting', '#oldest'];
  return section('services', 'Services', table('Services', columns, services.map(serviceRow), ''));
}
