#pragma once

#include <array>

namespace replicant::env::raycast {

// Sines and cosines of the corners of MuJoCo's display lists.
struct Tables {
  static constexpr int kMaxSlices = 256;
  // padded: a whole vector may be read from any entry on
  static constexpr int kSize = kMaxSlices + 64;

  int num_slices = 0;
  int num_stacks = 0;
  int num_quads = 0;

  // rows of cells of half a sphere, rings of a disk
  int num_rows() const { return num_stacks / 2; }

  // of 2 pi k / num_slices, 0 <= k <= num_slices
  std::array<float, kSize> cos_azimuth{}, sin_azimuth{};
  // of pi / 2 * k / (num_stacks / 2), 0 <= k <= num_stacks / 2
  std::array<float, kSize> cos_elevation{}, sin_elevation{};
};

// Throws UnsupportedScene for more slices or stacks than kMaxSlices.
Tables MakeTables(int num_slices, int num_stacks, int num_quads);

}  // namespace replicant::env::raycast
