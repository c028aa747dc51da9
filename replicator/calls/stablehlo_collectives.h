#pragma once

#include "engine/export/stablehlo_forms.h"

namespace replicant::replicator {

// Forms of the placeholders of collective_ops.h: all_reduce, all_gather,
// reduce_scatter and, for Broadcast, the sum of the source's value and zeros.
// They span all replicas of the module; with one they are the identity.
const exporting::StableHloForms& CollectiveForms();

}  // namespace replicant::replicator
