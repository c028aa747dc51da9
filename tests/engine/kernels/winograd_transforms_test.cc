#include "engine/kernels/cpu/winograd_transforms.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/rng.h"
#include "base/tensor/bfloat16.h"

namespace replicant::kernels::cpu {
namespace {

constexpr size_t kChannels = 2 * kWinogradChannels;
constexpr size_t kOut = kWinogradOutput;
constexpr size_t kIn = kWinogradInput;
constexpr size_t kTaps = 3;
constexpr PositionPlaces kPlaces{.stride = kChannels};

// Numbers around 1 that bf16 holds exactly, `size` pixels or taps of channels.
std::vector<float> Random(size_t size, const char* name) {
  RandomStream random(1, name);
  std::vector<float> result(size * kChannels);
  for (float& x : result) {
    x = static_cast<float>(BFloat16(static_cast<float>(random.Normal())));
  }
  return result;
}

template <typename T>
std::vector<const std::byte*> Pixels(const std::vector<T>& data) {
  std::vector<const std::byte*> result;
  for (size_t i = 0; i < data.size(); i += kChannels) {
    result.push_back(reinterpret_cast<const std::byte*>(data.data() + i));
  }
  return result;
}

// A tile of one image, whose channels do not mix.
struct Tile {
  std::vector<float> image = Random(kIn * kIn, "image");
  std::vector<float> weights = Random(kTaps * kTaps, "weights");
  std::vector<float> gradient = Random(kOut * kOut, "gradient");

  // The value of the image under pixel (i, j) and tap (u, v).
  double Seen(size_t i, size_t j, size_t u, size_t v, size_t c) const {
    return static_cast<double>(image[((i + u) * kIn + j + v) * kChannels + c]);
  }
};

using Positions = std::vector<float>;

Positions NoPositions() { return Positions(kWinogradPositions * kChannels); }

Positions Product(const Positions& a, const Positions& b) {
  Positions result = a;
  for (size_t i = 0; i < a.size(); ++i) result[i] *= b[i];
  return result;
}

Positions OfImage(const Tile& tile) {
  Positions result = NoPositions();
  TransformImage(Pixels(tile.image).data(), DType::kF32, kChannels,
                 result.data(), kPlaces);
  return result;
}

// Nine products of numbers around 1, and factors up to 4 on their way.
constexpr double kTolerance = 1e-5;

TEST(WinogradTransformsTest, ATileIsTheDirectConvolutionPlusTheBias) {
  const Tile tile;
  const std::vector<float> bias = Random(1, "bias");
  Positions weights = NoPositions();
  TransformWeights(tile.weights.data(), kChannels, weights.data(), kPlaces);
  const Positions product = Product(OfImage(tile), weights);
  std::vector<float> result(kOut * kOut * kChannels);
  std::array<float*, kOut * kOut> pixels{};
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = result.data() + i * kChannels;
  }
  TransformResult(product.data(), kPlaces, bias.data(), kChannels,
                  pixels.data());
  for (size_t i = 0; i < kOut; ++i) {
    for (size_t j = 0; j < kOut; ++j) {
      for (size_t c = 0; c < kChannels; ++c) {
        auto want = static_cast<double>(bias[c]);
        for (size_t u = 0; u < kTaps; ++u) {
          for (size_t v = 0; v < kTaps; ++v) {
            want += tile.Seen(i, j, u, v, c) *
                    static_cast<double>(
                        tile.weights[(u * kTaps + v) * kChannels + c]);
          }
        }
        EXPECT_NEAR(static_cast<double>(pixels[i * kOut + j][c]), want,
                    kTolerance);
      }
    }
  }
}

TEST(WinogradTransformsTest, TheGradientOfWeightsIsTheDirectOne) {
  const Tile tile;
  Positions gradient = NoPositions();
  TransformResultGradient(Pixels(tile.gradient).data(), DType::kF32, kChannels,
                          gradient.data(), kPlaces);
  const Positions product = Product(OfImage(tile), gradient);
  std::vector<float> result(kTaps * kTaps * kChannels);
  TransformWeightGradient(product.data(), kPlaces, kChannels, result.data());
  for (size_t u = 0; u < kTaps; ++u) {
    for (size_t v = 0; v < kTaps; ++v) {
      for (size_t c = 0; c < kChannels; ++c) {
        double want = 0.0;
        for (size_t i = 0; i < kOut; ++i) {
          for (size_t j = 0; j < kOut; ++j) {
            want += tile.Seen(i, j, u, v, c) *
                    static_cast<double>(
                        tile.gradient[(i * kOut + j) * kChannels + c]);
          }
        }
        EXPECT_NEAR(
            static_cast<double>(result[(u * kTaps + v) * kChannels + c]), want,
            kTolerance);
      }
    }
  }
}

TEST(WinogradTransformsTest, PixelsOfBF16AreReadAsTheFloatsThatTheyAre) {
  const Tile tile;
  std::vector<BFloat16> halves;
  for (const float x : tile.image) halves.push_back(BFloat16(x));
  Positions got = NoPositions();
  TransformImage(Pixels(halves).data(), DType::kBF16, kChannels, got.data(),
                 kPlaces);
  EXPECT_EQ(got, OfImage(tile));

  halves.clear();
  for (const float x : tile.gradient) halves.push_back(BFloat16(x));
  Positions want = NoPositions();
  TransformResultGradient(Pixels(tile.gradient).data(), DType::kF32, kChannels,
                          want.data(), kPlaces);
  TransformResultGradient(Pixels(halves).data(), DType::kBF16, kChannels,
                          got.data(), kPlaces);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace replicant::kernels::cpu
