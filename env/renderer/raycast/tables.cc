#include "env/renderer/raycast/tables.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "env/renderer/scene.h"

namespace replicant::env::raycast {

Tables MakeTables(int num_slices, int num_stacks, int num_quads) {
  if (num_slices < 3 || num_slices > Tables::kMaxSlices || num_stacks < 2 ||
      num_stacks > Tables::kMaxSlices || num_quads < 1) {
    throw UnsupportedScene(
        fmt::format("raycast: visual quality of {} slices, {} stacks and {} "
                    "quads given; allowed: 3 to {}, 2 to {} and at least 1",
                    num_slices, num_stacks, num_quads, Tables::kMaxSlices,
                    Tables::kMaxSlices));
  }
  Tables tables;
  tables.num_slices = num_slices;
  tables.num_stacks = num_stacks;
  tables.num_quads = num_quads;
  for (size_t k = 0; k <= static_cast<size_t>(num_slices); ++k) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(k) / num_slices;
    tables.cos_azimuth[k] = static_cast<float>(std::cos(angle));
    tables.sin_azimuth[k] = static_cast<float>(std::sin(angle));
  }
  const int rows = num_stacks / 2;
  for (size_t k = 0; k <= static_cast<size_t>(rows); ++k) {
    const double angle = 0.5 * std::numbers::pi * static_cast<double>(k) / rows;
    tables.cos_elevation[k] = static_cast<float>(std::cos(angle));
    tables.sin_elevation[k] = static_cast<float>(std::sin(angle));
  }
  return tables;
}

}  // namespace replicant::env::raycast
