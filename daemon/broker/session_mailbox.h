// A SessionMailbox is the mailbox of one session. Its pages are the broker's; what stands in them its door serves.
#pragma once

#include "daemon/memory/mailbox.h"

namespace arraybridge {

using SessionMailbox = Mailbox;

}  // namespace arraybridge
