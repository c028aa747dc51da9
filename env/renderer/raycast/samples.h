#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace replicant::env::raycast {

// Samples per pixel.
inline constexpr int kNumSamples = 4;
inline constexpr int kAllSamples = 15;  // a bit for each

template <typename T>
using PerSample = std::array<T, kNumSamples>;

// Where the samples of a pixel lie: distances from its left and top edge.
// (OpenGL counts rows from the bottom.)
struct SamplePlaces {
  PerSample<float> x, y;
  // of a row of pixels, pixel by pixel
  std::array<float, 64> spread_x{}, spread_y{};

  constexpr SamplePlaces(const PerSample<float>& places_x,
                         const PerSample<float>& places_y)
      : x(places_x), y(places_y) {
    for (size_t i = 0; i < spread_x.size(); ++i) {
      const size_t pixel = i / kNumSamples;
      spread_x[i] = static_cast<float>(pixel) + x[i % kNumSamples];
      spread_y[i] = y[i % kNumSamples];
    }
  }
};

// llvmpipe's.
inline constexpr SamplePlaces kFourSamples({.375f, .875f, .125f, .625f},
                                           {.875f, .625f, .375f, .125f});
// All in the centre: without multisampling a pixel has one sample.
inline constexpr SamplePlaces kOneSample({.5f, .5f, .5f, .5f},
                                         {.5f, .5f, .5f, .5f});

}  // namespace replicant::env::raycast
