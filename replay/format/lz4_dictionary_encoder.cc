// window_ holds the dictionary with the frame behind it, so that a match
// anywhere in the dictionary or in the frame so far is a position and a
// distance in one array. At each position the encoder tries the same position
// of the dictionary (distance frame_bytes), then the position that the hash
// table has for the next five bytes. After misses it takes longer steps; a
// match is extended forward and backward and written as a sequence of literals
// and match. Compress() gives up as soon as the block might not become smaller
// than the frame.
#include "replay/format/lz4_dictionary_encoder.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace replicant::replay {
namespace {

// Rules of the format: the shortest match; no match begins in the last 12
// bytes; the last 5 bytes are literals.
constexpr size_t kMinMatch = 4;
constexpr size_t kNoMatchBegins = 12;
constexpr size_t kLastLiterals = 5;
// Step between the positions of the dictionary that the table gets.
constexpr size_t kDictionaryStep = 3;
// Log2 of the number of successive misses after which the step grows by one.
constexpr int kMissesPerStepBits = 5;
// Literals are copied in blocks of this size.
constexpr size_t kCopyBytes = 32;

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

size_t Hash(const uint8_t* p, int bits) {
  // a prime; the low 5 bytes count
  const uint64_t product = (Load<uint64_t>(p) << 24) * 889523592379u;
  return static_cast<size_t>(product >> (64 - bits));
}

// Returns how many bytes from a on, up to `end`, equal those from b on; b < a.
size_t CountEqual(const uint8_t* a, const uint8_t* b, const uint8_t* end) {
  const uint8_t* const begin = a;
  for (; a + 8 <= end; a += 8, b += 8) {
    const uint64_t difference = Load<uint64_t>(a) ^ Load<uint64_t>(b);
    if (difference != 0) {
      return static_cast<size_t>(a - begin) +
             static_cast<size_t>(std::countr_zero(difference)) / 8;
    }
  }
  while (a < end && *a == *b) ++a, ++b;
  return static_cast<size_t>(a - begin);
}

// Writes the rest of a length; the token holds the first 15.
uint8_t* WriteLength(uint8_t* out, size_t rest) {
  for (; rest >= 255; rest -= 255) *out++ = 255;
  *out++ = static_cast<uint8_t>(rest);
  return out;
}

uint8_t* WriteLiterals(uint8_t* out, const uint8_t* literals, size_t count,
                       uint8_t* token) {
  *token = static_cast<uint8_t>((count < 15 ? count : 15) << 4);
  if (count >= 15) out = WriteLength(out, count - 15);
  // in whole blocks: most runs are short, and there is room behind the block
  for (size_t i = 0; i < count; i += kCopyBytes) {
    std::memcpy(out + i, literals + i, kCopyBytes);
  }
  return out + count;
}

uint8_t* WriteSequence(uint8_t* out, const uint8_t* literals, size_t count,
                       size_t offset, size_t match_bytes) {
  uint8_t* const token = out++;
  out = WriteLiterals(out, literals, count, token);
  const auto offset16 = static_cast<uint16_t>(offset);
  std::memcpy(out, &offset16, sizeof(offset16));
  out += sizeof(offset16);
  const size_t rest = match_bytes - kMinMatch;
  *token = static_cast<uint8_t>(*token | (rest < 15 ? rest : 15));
  return rest >= 15 ? WriteLength(out, rest - 15) : out;
}

// Upper bound of the bytes of a sequence.
size_t SequenceBound(size_t literals, size_t match_bytes) {
  return 8 + literals + literals / 255 + match_bytes / 255;
}

}  // namespace

Lz4DictionaryEncoder::Lz4DictionaryEncoder(size_t frame_bytes)
    : frame_bytes_(frame_bytes), window_(2 * frame_bytes + kCopyBytes) {
  REPLICANT_CHECK(frame_bytes >= 1 && frame_bytes <= kMaxFrameBytes,
                  "frames of {} bytes", frame_bytes);
}

void Lz4DictionaryEncoder::SetDictionary(
    std::span<const std::byte> dictionary) {
  REPLICANT_CHECK_EQ(dictionary.size(), frame_bytes_);
  std::memcpy(window_.data(), dictionary.data(), frame_bytes_);
  dictionary_table_.fill(0);
  for (size_t i = 0; i + sizeof(uint64_t) <= frame_bytes_;
       i += kDictionaryStep) {
    dictionary_table_[Hash(window_.data() + i, kHashBits)] =
        static_cast<uint16_t>(i);
  }
}

size_t Lz4DictionaryEncoder::Compress(std::span<const std::byte> frame,
                                      std::byte* out) {
  REPLICANT_CHECK_EQ(frame.size(), frame_bytes_);
  if (frame_bytes_ <= kNoMatchBegins) return 0;
  const uint8_t* const window = window_.data();
  uint8_t* const begin = window_.data() + frame_bytes_;
  std::memcpy(begin, frame.data(), frame_bytes_);
  table_ = dictionary_table_;

  const uint8_t* const end = begin + frame_bytes_;
  const uint8_t* const last_begin = end - kNoMatchBegins;
  const uint8_t* const last_end = end - kLastLiterals;
  auto* const first = reinterpret_cast<uint8_t*>(out);
  uint8_t* to = first;
  const auto has_room = [&](size_t literals, size_t match_bytes) {
    return static_cast<size_t>(to - first) +
               SequenceBound(literals, match_bytes) <
           frame_bytes_;
  };
  const uint8_t* anchor = begin;  // all before it is written
  const uint8_t* next = begin;
  size_t misses = 0;
  while (next < last_begin) {
    // the same position of the dictionary, or else the table's
    const uint8_t* match = next - frame_bytes_;
    if (Load<uint32_t>(match) != Load<uint32_t>(next)) {
      uint16_t& place = table_[Hash(next, kHashBits)];
      match = window + place;
      place = static_cast<uint16_t>(next - window);
      if (Load<uint32_t>(match) != Load<uint32_t>(next)) {
        next += 1 + (misses++ >> kMissesPerStepBits);
        continue;
      }
    }
    // extend the match forward and backward
    size_t match_bytes =
        kMinMatch + CountEqual(next + kMinMatch, match + kMinMatch, last_end);
    while (next > anchor && match > window && next[-1] == match[-1]) {
      --next, --match, ++match_bytes;
    }
    const auto literals = static_cast<size_t>(next - anchor);
    if (!has_room(literals, match_bytes)) return 0;
    to = WriteSequence(to, anchor, literals, static_cast<size_t>(next - match),
                       match_bytes);
    next += match_bytes;
    anchor = next;
    misses = 0;
    // note a position near the end of the match for later ones
    table_[Hash(next - 2, kHashBits)] =
        static_cast<uint16_t>(next - 2 - window);
  }
  const auto literals = static_cast<size_t>(end - anchor);
  if (!has_room(literals, 0)) return 0;
  uint8_t* const token = to++;
  to = WriteLiterals(to, anchor, literals, token);
  return static_cast<size_t>(to - first);
}

}  // namespace replicant::replay
