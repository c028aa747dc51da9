#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace replicant {

// One block of the Philox4x32-10 counter-based generator: 128 random bits as a
// pure function of a 128-bit counter and a 64-bit key.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC 2011), table 2 and its reference constants.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

// A named stream of random numbers.
//
// A stream is a pure function of (seed, name, position). It gives the same
// numbers on every machine and for any number of threads, and streams of
// different names are independent. Every random draw of the system comes from a
// stream named after its use ("actor-3/exploration"), never from a global.
//
// Every draw takes exactly one Philox block, whatever it returns, so that the
// n-th draw does not depend on the draws before it, and position() is the
// whole state.
//
// Thread-safety: one thread at a time; copying forks the state.
class RandomStream {
 public:
  using result_type = uint64_t;

  RandomStream(uint64_t seed, std::string_view name);

  // The stream of `name` below this one. Does not depend on position().
  RandomStream Substream(std::string_view name) const;

  // 64 random bits; with min() and max() a UniformRandomBitGenerator.
  uint64_t operator()();
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  // Uniform in [0, 1), a multiple of 2^-53.
  double Uniform();
  // Uniform in [low, high); low where rounding would give high.
  double Uniform(double low, double high);
  // Uniform in {0, ..., count - 1}. Throws InvalidArgument unless count > 0.
  // Bias below count / 2^64 (multiply-shift, no rejection).
  int64_t UniformInt(int64_t count);
  // Standard normal, by Box and Muller: one draw of two uniforms.
  double Normal();

  // Number of draws so far. set_position(position()) on another copy continues
  // there.
  uint64_t position() const { return position_; }
  void set_position(uint64_t position) { position_ = position; }

 private:
  explicit RandomStream(std::array<uint64_t, 2> id);

  // Next two 64-bit words.
  std::array<uint64_t, 2> Next();

  // 128-bit hash of seed and name: the key and the high half of the counter.
  std::array<uint64_t, 2> id_;
  uint64_t position_ = 0;
};

// Seed for member `member` >= 0 of a group that shares `seed`, such as the
// workers of a learner. Member 0 keeps `seed`, so it draws the same numbers
// with and without a group; any other takes the first draw of the stream
// "<group>-<member>/seed".
uint64_t MemberSeed(uint64_t seed, std::string_view group, int member);

}  // namespace replicant
