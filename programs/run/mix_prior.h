#pragma once

#include <cstdint>
#include <memory>

#include "agents/task_spec.h"
#include "base/disk_queue.h"
#include "programs/run/run_config.h"
#include "replay/prior/mixed_source.h"

namespace replicant::programs {

// Whether the run's batches hold prior data.
bool HasPrior(const RunConfig& config);
// The rows of a batch that actors' steps fill, and what a source of them draws
// at a time: at least 1, also where every row is prior data.
int64_t ActedRows(const RunConfig& config);

// Mixes prior data into the batches of `acted`, which outlives the result and
// draws ActedRows() at a time. `disk`, or null, is MixedSourceOptions::disk.
// Null for a run without prior data. Throws what PriorReplay's constructor
// throws, with the key.
std::unique_ptr<replay::MixedSource> MixPrior(const RunConfig& config,
                                              const agents::TaskSpec& task,
                                              replay::BatchSource* acted,
                                              DiskQueue* disk);

// Throws ConfigError if the run cannot use the prior data that it names.
void CheckPrior(const RunConfig& config, const agents::TaskSpec& task);

}  // namespace replicant::programs
