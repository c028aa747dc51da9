// Measures how frames could be stored, to choose the codec of
// replay/format/frame_codec.h. Prints one line per input, group size and
// method.
//
//   codec_study NAME=FILE.u8...   frames recorded by
//                                 bench/run/record_frames.py; noise is
//                                 added to the list
//
// Times are the least of several rounds over all frames, on one thread.
#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fs.h"
#include "base/rng.h"

namespace replicant::replay {
namespace {

constexpr size_t kSide = 84, kChannels = 3;
constexpr size_t kRow = kSide * kChannels;
constexpr size_t kFrame = kSide * kRow;
constexpr int kRounds = 3;

using Bytes = std::vector<uint8_t>;
using View = std::span<const uint8_t>;

// The change of a frame before it is compressed.
enum class Filter { kNone, kLeft, kUp, kXorFirst };

// In place, from the end, so that what is subtracted is still the original.
void Apply(Filter filter, const uint8_t* first, uint8_t* frame) {
  const size_t distance = filter == Filter::kLeft ? kChannels : kRow;
  if (filter == Filter::kXorFirst) {
    for (size_t i = 0; i < kFrame; ++i) frame[i] ^= first[i];
  } else if (filter != Filter::kNone) {
    for (size_t i = kFrame; i-- > distance;) {
      frame[i] = static_cast<uint8_t>(frame[i] - frame[i - distance]);
    }
  }
}

void Undo(Filter filter, const uint8_t* first, uint8_t* frame) {
  const size_t distance = filter == Filter::kLeft ? kChannels : kRow;
  if (filter == Filter::kXorFirst) {
    for (size_t i = 0; i < kFrame; ++i) frame[i] ^= first[i];
  } else if (filter != Filter::kNone) {
    for (size_t i = distance; i < kFrame; ++i) {
      frame[i] = static_cast<uint8_t>(frame[i] + frame[i - distance]);
    }
  }
}

// Compresses one frame with an optional dictionary of kFrame bytes.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual size_t Encode(const uint8_t* dictionary, const uint8_t* frame,
                        std::span<uint8_t> out) = 0;
  virtual void Decode(const uint8_t* dictionary, View encoded,
                      uint8_t* frame) = 0;
};

class Lz4Codec : public Codec {
 public:
  size_t Encode(const uint8_t* dictionary, const uint8_t* frame,
                std::span<uint8_t> out) override {
    LZ4_resetStream_fast(stream_);
    if (dictionary != nullptr) {
      LZ4_loadDict(stream_, Chars(dictionary), kFrame);
    }
    const int size = LZ4_compress_fast_continue(
        stream_, Chars(frame), reinterpret_cast<char*>(out.data()), kFrame,
        static_cast<int>(out.size()), 1);
    REPLICANT_CHECK_GT(size, 0);
    return static_cast<size_t>(size);
  }
  void Decode(const uint8_t* dictionary, View encoded,
              uint8_t* frame) override {
    const int size = LZ4_decompress_safe_usingDict(
        Chars(encoded.data()), reinterpret_cast<char*>(frame),
        static_cast<int>(encoded.size()), kFrame, Chars(dictionary),
        dictionary == nullptr ? 0 : kFrame);
    REPLICANT_CHECK_EQ(size, static_cast<int>(kFrame));
  }

 private:
  static const char* Chars(const uint8_t* p) {
    return reinterpret_cast<const char*>(p);
  }
  LZ4_stream_t* stream_ = LZ4_createStream();  // lives as long as the program
};

class ZstdCodec : public Codec {
 public:
  explicit ZstdCodec(int level) {
    ZSTD_CCtx_setParameter(encoder_, ZSTD_c_compressionLevel, level);
    // the size is known from the group
    ZSTD_CCtx_setParameter(encoder_, ZSTD_c_contentSizeFlag, 0);
  }
  size_t Encode(const uint8_t* dictionary, const uint8_t* frame,
                std::span<uint8_t> out) override {
    if (dictionary != nullptr) {
      ZSTD_CCtx_refPrefix(encoder_, dictionary, kFrame);
    }
    const size_t size =
        ZSTD_compress2(encoder_, out.data(), out.size(), frame, kFrame);
    REPLICANT_CHECK(!ZSTD_isError(size), "{}", ZSTD_getErrorName(size));
    return size;
  }
  void Decode(const uint8_t* dictionary, View encoded,
              uint8_t* frame) override {
    if (dictionary != nullptr) {
      ZSTD_DCtx_refPrefix(decoder_, dictionary, kFrame);
    }
    const size_t size = ZSTD_decompressDCtx(decoder_, frame, kFrame,
                                            encoded.data(), encoded.size());
    REPLICANT_CHECK_EQ(size, kFrame);
  }

 private:
  ZSTD_CCtx* encoder_ = ZSTD_createCCtx();
  ZSTD_DCtx* decoder_ = ZSTD_createDCtx();
};

double LeastSeconds(const std::function<void()>& work) {
  double least = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> spent =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, spent.count());
  }
  return least;
}

// Frames that a reader must decode for an item of `window` successive frames,
// in the mean over where in a group the window starts: the window, and the
// first frame of each group it touches, unless that is in the window.
double DecodedFrames(size_t group_size, size_t window) {
  size_t frames = 0;
  for (size_t start = 0; start < group_size; ++start) {
    frames += window + (start == 0 ? 0 : 1);
  }
  return static_cast<double>(frames) / static_cast<double>(group_size);
}

struct Method {
  std::string name;
  Codec* codec;
  Filter filter;
};

void Measure(const std::string& input, const Bytes& frames, size_t group_size,
             const Method& method) {
  const size_t count = frames.size() / kFrame;
  const bool has_dictionary =
      group_size > 1 && method.filter != Filter::kXorFirst;
  std::vector<Bytes> encoded(count, Bytes(kFrame * 2));
  std::vector<size_t> sizes(count);

  Bytes first(kFrame), frame(kFrame);
  const double encode_seconds = LeastSeconds([&] {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(frame.data(), &frames[i * kFrame], kFrame);
      const bool is_first = i % group_size == 0;
      // the first frame of a group is not xor-ed with itself
      if (!(is_first && method.filter == Filter::kXorFirst)) {
        Apply(method.filter, first.data(), frame.data());
      }
      if (is_first) first = frame;
      const bool uses_dictionary = has_dictionary && !is_first;
      sizes[i] = method.codec->Encode(uses_dictionary ? first.data() : nullptr,
                                      frame.data(), encoded[i]);
    }
  });
  size_t total = 0;
  for (const size_t size : sizes) total += size;

  Bytes decoded(kFrame);
  const double decode_seconds = LeastSeconds([&] {
    for (size_t i = 0; i < count; ++i) {
      const bool is_first = i % group_size == 0;
      uint8_t* out = is_first ? first.data() : decoded.data();
      const bool uses_dictionary = has_dictionary && !is_first;
      method.codec->Decode(uses_dictionary ? first.data() : nullptr,
                           {encoded[i].data(), sizes[i]}, out);
      // the dictionary stays as it was compressed, the frame is undone
      if (is_first && method.filter != Filter::kNone) {
        decoded = first;
        out = decoded.data();
      }
      if (!(is_first && method.filter == Filter::kXorFirst)) {
        Undo(method.filter, first.data(), out);
      }
      REPLICANT_CHECK_EQ(out[kFrame - 1], frames[(i + 1) * kFrame - 1]);
    }
  });

  const auto raw = static_cast<double>(frames.size());
  const double seconds_per_frame = decode_seconds / static_cast<double>(count);
  // 3 stacked frames and 3 steps on: 6 frames; with 5 steps on, two threes
  const double frames_per_item = DecodedFrames(group_size, 6);
  fmt::print(
      "{:<12} K={:<2} {:<12} ratio {:6.2f}  encode {:5.2f} GB/s {:6.1f} "
      "us/frame"
      "  decode {:5.2f} GB/s  item: {:5.2f} frames {:7.0f} bytes {:6.1f} us\n",
      input, group_size, method.name, raw / static_cast<double>(total),
      raw / encode_seconds / 1e9,
      encode_seconds / static_cast<double>(count) * 1e6,
      raw / decode_seconds / 1e9, frames_per_item, frames_per_item * kFrame,
      frames_per_item * seconds_per_frame * 1e6);
}

void Run(const std::vector<std::pair<std::string, Bytes>>& inputs) {
  Lz4Codec lz4;
  ZstdCodec zstd1(1), zstd_fast(-3);
  const Method methods[] = {
      {"lz4", &lz4, Filter::kNone},
      {"lz4+left", &lz4, Filter::kLeft},
      {"lz4+up", &lz4, Filter::kUp},
      {"lz4+xor", &lz4, Filter::kXorFirst},
      {"zstd1", &zstd1, Filter::kNone},
      {"zstd1+left", &zstd1, Filter::kLeft},
      {"zstd1+up", &zstd1, Filter::kUp},
      {"zstd1+xor", &zstd1, Filter::kXorFirst},
      {"zstd-3", &zstd_fast, Filter::kNone},
  };
  for (const auto& [name, frames] : inputs) {
    for (const size_t group_size : {1, 4, 8, 16}) {
      for (const Method& method : methods) {
        if (group_size == 1 && method.filter == Filter::kXorFirst) continue;
        Measure(name, frames, group_size, method);
      }
    }
  }
}

}  // namespace
}  // namespace replicant::replay

int main(int argc, char** argv) {
  using replicant::replay::Bytes;
  std::vector<std::pair<std::string, Bytes>> inputs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      fmt::print(stderr, "codec_study: expected NAME=FILE, got '{}'\n",
                 argument);
      return 2;
    }
    const std::string text = replicant::ReadFile(argument.substr(equals + 1));
    const size_t whole =
        text.size() / replicant::replay::kFrame * replicant::replay::kFrame;
    inputs.emplace_back(
        argument.substr(0, equals),
        Bytes(text.begin(), text.begin() + static_cast<ptrdiff_t>(whole)));
  }
  Bytes noise(64 * replicant::replay::kFrame);
  replicant::RandomStream random(1, "noise");
  for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
  inputs.emplace_back("noise", std::move(noise));
  replicant::replay::Run(inputs);
}
