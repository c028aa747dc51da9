#pragma once

#include "learner/learner_config.h"
#include "replay/client/batch_reader.h"

namespace replicant::learner {

// How an agent's learner reads: what follows from its configuration and the
// processors of this thread. The caller sets endpoints, shape, table and seed,
// and a smaller batch where a part of it is prior data.
replay::BatchReaderOptions ReaderOptionsOf(const LearnerConfig& learner);

}  // namespace replicant::learner
