#include "base/rng.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace replicant {
namespace {

std::array<uint32_t, 2> Split(uint64_t word) {
  return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
}

uint64_t Join(uint32_t low, uint32_t high) {
  return uint64_t{low} | uint64_t{high} << 32;
}

// Absorbs `bytes` into `id`, one Philox block per 8 bytes and one for the
// length, so that ("ab", "c") and ("a", "bc") differ.
std::array<uint64_t, 2> Absorb(std::array<uint64_t, 2> id,
                               std::string_view bytes) {
  const auto mix = [&id](uint64_t word) {
    const auto [w0, w1] = Split(word);
    const auto [c0, c1] = Split(id[1]);
    const auto block = Philox4x32({w0, w1, c0, c1}, Split(id[0]));
    id = {Join(block[0], block[1]), Join(block[2], block[3])};
  };
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    word |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * (i % 8));
    if (i % 8 == 7 || i + 1 == bytes.size()) {
      mix(word);
      word = 0;
    }
  }
  mix(bytes.size());
  return id;
}

// The top 53 bits as a double in [0, 1).
double ToUnit(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const auto [low0, high0] = Split(kMultiplier0 * counter[0]);
    const auto [low1, high1] = Split(kMultiplier1 * counter[2]);
    counter = {high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1],
               low0};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : RandomStream(Absorb({seed, 0}, name)) {}

RandomStream::RandomStream(std::array<uint64_t, 2> id) : id_(id) {}

RandomStream RandomStream::Substream(std::string_view name) const {
  return RandomStream(Absorb(id_, name));
}

std::array<uint64_t, 2> RandomStream::Next() {
  const auto [p0, p1] = Split(position_);
  const auto [c0, c1] = Split(id_[1]);
  ++position_;
  const auto block = Philox4x32({p0, p1, c0, c1}, Split(id_[0]));
  return {Join(block[0], block[1]), Join(block[2], block[3])};
}

uint64_t RandomStream::operator()() { return Next()[0]; }

double RandomStream::Uniform() { return ToUnit(Next()[0]); }

double RandomStream::Uniform(double low, double high) {
  const double value = low + (high - low) * Uniform();
  return value < high ? value : low;
}

int64_t RandomStream::UniformInt(int64_t count) {
  if (count <= 0) {
    throw InvalidArgument(
        fmt::format("UniformInt: count must be > 0, got {}", count));
  }
  // floor(word * count / 2^64)
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(
      (Wide{Next()[0]} * static_cast<uint64_t>(count)) >> 64);
}

double RandomStream::Normal() {
  const auto [word0, word1] = Next();
  // 1 - u lies in (0, 1], where the logarithm is finite
  const double radius = std::sqrt(-2.0 * std::log(1.0 - ToUnit(word0)));
  return radius * std::cos(2.0 * std::numbers::pi * ToUnit(word1));
}

uint64_t MemberSeed(uint64_t seed, std::string_view group, int member) {
  if (member == 0) return seed;
  return RandomStream(seed, fmt::format("{}-{}/seed", group, member))();
}

}  // namespace replicant
