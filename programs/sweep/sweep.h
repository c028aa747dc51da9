#pragma once

#include <filesystem>

#include "programs/run/commands.h"
#include "programs/run/registry.h"

namespace replicant::programs {

// Trains the runs of a sweep (SweepConfig), `jobs` at once, each with its own
// fleet, and prints a table of the results. The sweep's folder holds:
//
//   000.yaml, 000/, 000.log   the configuration, run folder and output of a run
//   000.stopped               why the median rule has stopped the run
//   results.csv               every evaluation of every run
//   curves.png                a line for each run, a colour for each settings
//   lock                      held while the sweep runs
//
// Complete runs are skipped and others resume, so the same command continues a
// stopped sweep. A signal ends the runs as it ends a fleet; a third one kills
// the fleets. A run that cannot start, or whose files cannot be read, has
// failed and holds up no other one. Returns 1 if a run has failed, or if the
// sweep was stopped; runs that the median rule has stopped count as complete.
//
// Throws ConfigError, before any training, for a sweep or a run with mistakes,
// and for one that differs from the contents of its folder; IoError if the
// folder cannot be written or is in use.
int RunSweep(const std::filesystem::path& file, const Registry& registry,
             const Commands& commands);

}  // namespace replicant::programs
