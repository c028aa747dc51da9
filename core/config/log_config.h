#pragma once

#include "core/base/log.h"
#include "core/config/reader.h"

namespace replicant::config {

// Declares and reads section `log` within `parent`. The role is no key: main()
// sets it.
LogOptions ReadLogOptions(Reader& parent);

}  // namespace replicant::config
