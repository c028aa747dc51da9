#pragma once

#include "base/config/reader.h"
#include "base/log.h"

namespace replicant::config {

// Declares and reads section `log` within `parent`. main() sets the role, which
// is not a key.
LogOptions ReadLogOptions(Reader& parent);

}  // namespace replicant::config
