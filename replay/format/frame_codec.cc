#include "replay/format/frame_codec.h"

#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "replay/format/lz4_dictionary_encoder.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMagic = 0x31474652;  // "RFG1"
constexpr size_t kHeaderBytes = 16;
// zstd's fastest level that still codes literals
constexpr int kZstdLevel = 1;

using Bytes = std::span<const std::byte>;

template <typename T>
T Load(Bytes block, size_t offset) {
  T value;
  std::memcpy(&value, block.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void Store(std::span<std::byte> block, size_t offset, T value) {
  std::memcpy(block.data() + offset, &value, sizeof(value));
}

const char* Chars(const std::byte* p) {
  return reinterpret_cast<const char*>(p);
}
char* Chars(std::byte* p) { return reinterpret_cast<char*>(p); }

// Writes the header and the table of ends; returns where the payload begins.
size_t WriteHeader(FrameCodec codec, int64_t frame_bytes,
                   std::span<const uint32_t> ends, std::span<std::byte> out) {
  Store<uint32_t>(out, 0, kMagic);
  Store<uint16_t>(out, 4, static_cast<uint16_t>(codec));
  Store<uint16_t>(out, 6, static_cast<uint16_t>(ends.size()));
  Store<uint32_t>(out, 8, static_cast<uint32_t>(frame_bytes));
  Store<uint32_t>(out, 12, 0);
  std::memcpy(out.data() + kHeaderBytes, ends.data(), ends.size_bytes());
  return kHeaderBytes + ends.size_bytes();
}

struct FreeZstd {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

std::string_view ToString(FrameCodec codec) {
  switch (codec) {
    case FrameCodec::kNone:
      return "none";
    case FrameCodec::kLz4:
      return "lz4";
    case FrameCodec::kZstd:
      return "zstd";
  }
  REPLICANT_CHECK(false, "unknown FrameCodec {}", static_cast<int>(codec));
}

struct FrameBlockEncoder::Impl {
  FrameCodec codec;
  int64_t frame_bytes;
  int64_t block_size;
  std::vector<uint32_t> ends;
  // [payload_capacity], of which ends.back() bytes are used
  std::unique_ptr<std::byte[]> payload;
  std::vector<std::byte> first;  // the dictionary
  // LZ4 for frames up to Lz4DictionaryEncoder::kMaxFrameBytes: the faster way
  std::optional<Lz4DictionaryEncoder> similar;
  // LZ4 for larger frames: the state after reading the dictionary. Copying it
  // for every frame costs less than reading the dictionary again
  LZ4_stream_t loaded;
  LZ4_stream_t working;
  std::unique_ptr<ZSTD_CCtx, FreeZstd> zstd;

  size_t PayloadBytes() const { return ends.empty() ? 0 : ends.back(); }
  // Returns the compressed size, or 0 if it would not be below frame_bytes.
  size_t Compress(Bytes frame, std::byte* out);
};

size_t FrameBlockEncoder::Impl::Compress(Bytes frame, std::byte* out) {
  const bool is_first = ends.empty();
  const auto limit = frame.size() - 1;
  switch (codec) {
    case FrameCodec::kNone:
      return 0;
    case FrameCodec::kLz4: {
      if (!is_first && similar) return similar->Compress(frame, out);
      if (is_first) {
        LZ4_initStream(&working, sizeof(working));
      } else {
        working = loaded;
      }
      const int size = LZ4_compress_fast_continue(
          &working, Chars(frame.data()), Chars(out),
          static_cast<int>(frame.size()), static_cast<int>(limit),
          /*acceleration=*/1);
      return static_cast<size_t>(size);
    }
    case FrameCodec::kZstd: {
      if (!is_first) {
        ZSTD_CCtx_refPrefix(zstd.get(), first.data(), first.size());
      }
      const size_t size =
          ZSTD_compress2(zstd.get(), out, limit, frame.data(), frame.size());
      // the only possible error: `limit` was too small
      return ZSTD_isError(size) ? 0 : size;
    }
  }
  REPLICANT_CHECK(false, "unknown FrameCodec {}", static_cast<int>(codec));
}

FrameBlockEncoder::FrameBlockEncoder(FrameCodec codec, int64_t frame_bytes,
                                     int64_t block_size)
    : impl_(std::make_unique<Impl>()) {
  if (frame_bytes < 1 || frame_bytes > kMaxFrameBytes) {
    throw InvalidArgument(
        fmt::format("FrameBlockEncoder: frame_bytes {} is outside [1, {}]",
                    frame_bytes, kMaxFrameBytes));
  }
  if (block_size < 1 || block_size > kMaxBlockFrames) {
    throw InvalidArgument(
        fmt::format("FrameBlockEncoder: block_size {} is outside [1, {}]",
                    block_size, kMaxBlockFrames));
  }
  impl_->codec = codec;
  impl_->frame_bytes = frame_bytes;
  impl_->block_size = block_size;
  // not initialised: pages that are never written take no memory
  impl_->payload.reset(
      new std::byte[static_cast<size_t>(block_size * frame_bytes) +
                    Lz4DictionaryEncoder::kSlackBytes]);
  if (codec == FrameCodec::kLz4 &&
      frame_bytes <=
          static_cast<int64_t>(Lz4DictionaryEncoder::kMaxFrameBytes)) {
    impl_->similar.emplace(static_cast<size_t>(frame_bytes));
  }
  if (codec == FrameCodec::kZstd) {
    impl_->zstd.reset(ZSTD_createCCtx());
    ZSTD_CCtx_setParameter(impl_->zstd.get(), ZSTD_c_compressionLevel,
                           kZstdLevel);
    // the length is known from the header
    ZSTD_CCtx_setParameter(impl_->zstd.get(), ZSTD_c_contentSizeFlag, 0);
  }
}

FrameBlockEncoder::~FrameBlockEncoder() = default;
FrameBlockEncoder::FrameBlockEncoder(FrameBlockEncoder&&) noexcept = default;
FrameBlockEncoder& FrameBlockEncoder::operator=(FrameBlockEncoder&&) noexcept =
    default;

int64_t FrameBlockEncoder::num_frames() const {
  return static_cast<int64_t>(impl_->ends.size());
}
bool FrameBlockEncoder::full() const {
  return num_frames() == impl_->block_size;
}

void FrameBlockEncoder::Add(std::span<const std::byte> frame) {
  REPLICANT_CHECK(!full(), "the block has {} frames", num_frames());
  if (static_cast<int64_t>(frame.size()) != impl_->frame_bytes) {
    throw InvalidArgument(
        fmt::format("FrameBlockEncoder::Add: a frame has {} bytes, expected {}",
                    frame.size(), impl_->frame_bytes));
  }
  const size_t begin = impl_->PayloadBytes();
  std::byte* const out = impl_->payload.get() + begin;
  size_t size = impl_->Compress(frame, out);
  if (size == 0) {
    std::memcpy(out, frame.data(), frame.size());
    size = frame.size();
  }
  if (impl_->ends.empty() && impl_->codec != FrameCodec::kNone) {
    impl_->first.assign(frame.begin(), frame.end());
    if (impl_->similar) {
      impl_->similar->SetDictionary(frame);
    } else if (impl_->codec == FrameCodec::kLz4) {
      LZ4_initStream(&impl_->loaded, sizeof(impl_->loaded));
      LZ4_loadDict(&impl_->loaded, Chars(impl_->first.data()),
                   static_cast<int>(impl_->first.size()));
    }
  }
  impl_->ends.push_back(static_cast<uint32_t>(begin + size));
}

std::vector<std::byte> FrameBlockEncoder::Finish() {
  REPLICANT_CHECK(num_frames() > 0, "an empty block");
  const size_t header_bytes =
      kHeaderBytes + impl_->ends.size() * sizeof(uint32_t);
  std::vector<std::byte> block;
  block.reserve(header_bytes + impl_->PayloadBytes());
  block.resize(header_bytes);
  WriteHeader(impl_->codec, impl_->frame_bytes, impl_->ends, block);
  block.insert(block.end(), impl_->payload.get(),
               impl_->payload.get() + impl_->PayloadBytes());
  impl_->ends.clear();
  return block;
}

size_t RawHeaderBytes(int64_t num_frames) {
  return kHeaderBytes + static_cast<size_t>(num_frames) * sizeof(uint32_t);
}

size_t RawBlockBytes(int64_t frame_bytes, int64_t num_frames) {
  return RawHeaderBytes(num_frames) +
         static_cast<size_t>(num_frames * frame_bytes);
}

void WriteRawHeader(int64_t frame_bytes, int64_t num_frames,
                    std::span<std::byte> block) {
  std::array<uint32_t, kMaxBlockFrames> ends;
  for (int64_t i = 0; i < num_frames; ++i) {
    ends[static_cast<size_t>(i)] = static_cast<uint32_t>((i + 1) * frame_bytes);
  }
  WriteHeader(FrameCodec::kNone, frame_bytes,
              std::span(ends).first(static_cast<size_t>(num_frames)), block);
}

FrameBlockView::FrameBlockView(std::span<const std::byte> block)
    : block_(block) {
  if (block.size() < kHeaderBytes || Load<uint32_t>(block, 0) != kMagic) {
    throw IoError(
        fmt::format("frame block: its {} bytes do not begin with the magic "
                    "'RFG1' and a header of {} bytes",
                    block.size(), kHeaderBytes));
  }
  const auto codec = Load<uint16_t>(block, 4);
  num_frames_ = Load<uint16_t>(block, 6);
  frame_bytes_ = Load<uint32_t>(block, 8);
  if (codec > static_cast<uint16_t>(FrameCodec::kZstd)) {
    throw IoError(fmt::format("frame block: unknown codec {}", codec));
  }
  codec_ = static_cast<FrameCodec>(codec);
  if (num_frames_ < 1 || num_frames_ > kMaxBlockFrames) {
    throw IoError(fmt::format("frame block: {} frames are outside [1, {}]",
                              num_frames_, kMaxBlockFrames));
  }
  if (frame_bytes_ < 1 || frame_bytes_ > kMaxFrameBytes) {
    throw IoError(fmt::format("frame block: frame_bytes {} is outside [1, {}]",
                              frame_bytes_, kMaxFrameBytes));
  }
  const size_t payload_begin =
      kHeaderBytes + static_cast<size_t>(num_frames_) * sizeof(uint32_t);
  if (Load<uint32_t>(block, 12) != 0 || block.size() < payload_begin) {
    throw IoError("frame block: the header is damaged");
  }
  uint32_t begin = 0;
  for (int64_t i = 0; i < num_frames_; ++i) {
    const uint32_t end = End(i);
    const bool is_raw = codec_ == FrameCodec::kNone;
    if (end <= begin || end - begin > frame_bytes_ ||
        (is_raw && end - begin != frame_bytes_)) {
      throw IoError(fmt::format(
          "frame block: frame {} of {} bytes takes the payload [{}, {})", i,
          frame_bytes_, begin, end));
    }
    begin = end;
  }
  if (block.size() - payload_begin != begin) {
    throw IoError(fmt::format(
        "frame block: the payload has {} bytes, but the header says {}",
        block.size() - payload_begin, begin));
  }
}

uint32_t FrameBlockView::End(int64_t index) const {
  return Load<uint32_t>(
      block_, kHeaderBytes + static_cast<size_t>(index) * sizeof(uint32_t));
}

std::span<const std::byte> FrameBlockView::Payload(int64_t index) const {
  REPLICANT_CHECK(index >= 0 && index < num_frames_, "frame {} of {}", index,
                  num_frames_);
  const size_t payload_begin =
      kHeaderBytes + static_cast<size_t>(num_frames_) * sizeof(uint32_t);
  const size_t begin = index == 0 ? 0 : End(index - 1);
  return block_.subspan(payload_begin + begin, End(index) - begin);
}

bool FrameBlockView::NeedsFirst(int64_t first) const {
  return first > 0 && codec_ != FrameCodec::kNone;
}

int64_t FrameBlockView::SubsetIndex(int64_t first) const {
  return NeedsFirst(first) ? 1 : 0;
}

size_t FrameBlockView::SubsetBytes(int64_t first, int64_t count) const {
  REPLICANT_CHECK(first >= 0 && count > 0 && first + count <= num_frames_,
                  "frames [{}, {}) of {}", first, first + count, num_frames_);
  const int64_t frames = count + SubsetIndex(first);
  size_t size = kHeaderBytes + static_cast<size_t>(frames) * sizeof(uint32_t);
  size += End(first + count - 1) - (first == 0 ? 0 : End(first - 1));
  if (NeedsFirst(first)) size += Payload(0).size();
  return size;
}

void FrameBlockView::WriteSubset(int64_t first, int64_t count,
                                 std::span<std::byte> out) const {
  REPLICANT_CHECK_EQ(out.size(), SubsetBytes(first, count));
  uint32_t ends[kMaxBlockFrames];
  size_t frames = 0;
  uint32_t end = 0;
  if (NeedsFirst(first)) ends[frames++] = end = End(0);
  for (int64_t i = first; i < first + count; ++i) {
    ends[frames++] = end += static_cast<uint32_t>(Payload(i).size());
  }
  size_t position = WriteHeader(codec_, frame_bytes_, {ends, frames}, out);
  if (NeedsFirst(first)) {
    std::memcpy(out.data() + position, Payload(0).data(), Payload(0).size());
    position += Payload(0).size();
  }
  // the frames of the range lie one after the other
  std::memcpy(out.data() + position, Payload(first).data(),
              out.size() - position);
}

struct FrameDecoder::Impl {
  std::vector<std::byte> first;
  std::unique_ptr<ZSTD_DCtx, FreeZstd> zstd;

  // Decodes one frame; `dictionary` is empty for the first of a block.
  void DecodeOne(const FrameBlockView& block, int64_t index, Bytes dictionary,
                 std::span<std::byte> out);
};

void FrameDecoder::Impl::DecodeOne(const FrameBlockView& block, int64_t index,
                                   Bytes dictionary, std::span<std::byte> out) {
  const Bytes payload = block.Payload(index);
  if (payload.size() == out.size()) {
    std::memcpy(out.data(), payload.data(), out.size());
    return;
  }
  size_t size = 0;
  if (block.codec() == FrameCodec::kLz4) {
    const int result = LZ4_decompress_safe_usingDict(
        Chars(payload.data()), Chars(out.data()),
        static_cast<int>(payload.size()), static_cast<int>(out.size()),
        Chars(dictionary.data()), static_cast<int>(dictionary.size()));
    size = result < 0 ? 0 : static_cast<size_t>(result);
  } else {
    if (zstd == nullptr) zstd.reset(ZSTD_createDCtx());
    ZSTD_DCtx_reset(zstd.get(), ZSTD_reset_session_only);
    ZSTD_DCtx_refPrefix(zstd.get(), dictionary.data(), dictionary.size());
    const size_t result = ZSTD_decompressDCtx(
        zstd.get(), out.data(), out.size(), payload.data(), payload.size());
    size = ZSTD_isError(result) ? 0 : result;
  }
  if (size != out.size()) {
    throw IoError(
        fmt::format("frame block: frame {} does not decode ({}) to "
                    "{} bytes",
                    index, ToString(block.codec()), out.size()));
  }
}

FrameDecoder::FrameDecoder() : impl_(std::make_unique<Impl>()) {}
FrameDecoder::~FrameDecoder() = default;
FrameDecoder::FrameDecoder(FrameDecoder&&) noexcept = default;
FrameDecoder& FrameDecoder::operator=(FrameDecoder&&) noexcept = default;

void FrameDecoder::Decode(const FrameBlockView& block,
                          std::span<const Target> targets) {
  const auto frame_bytes = static_cast<size_t>(block.frame_bytes());
  Bytes dictionary;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto& [index, out] = targets[i];
    REPLICANT_CHECK(index >= 0 && index < block.num_frames(), "frame {} of {}",
                    index, block.num_frames());
    if (i > 0 && targets[i - 1].index == index) {
      std::memcpy(out, targets[i - 1].out, frame_bytes);
      continue;
    }
    REPLICANT_CHECK(i == 0 || targets[i - 1].index < index,
                    "targets out of order");
    // decode the dictionary separately only if the first frame is not a target
    if (index > 0 && dictionary.empty() && block.codec() != FrameCodec::kNone) {
      impl_->first.resize(frame_bytes);
      impl_->DecodeOne(block, 0, {}, impl_->first);
      dictionary = impl_->first;
    }
    impl_->DecodeOne(block, index, dictionary, {out, frame_bytes});
    if (index == 0) dictionary = {out, frame_bytes};
  }
}

void FrameDecoder::Decode(const FrameBlockView& block, int64_t first,
                          int64_t count, std::span<std::byte> out) {
  REPLICANT_CHECK(count > 0 && count <= kMaxBlockFrames, "{} frames", count);
  const auto frame_bytes = static_cast<size_t>(block.frame_bytes());
  REPLICANT_CHECK_EQ(out.size(), static_cast<size_t>(count) * frame_bytes);
  Target targets[kMaxBlockFrames];
  for (int64_t i = 0; i < count; ++i) {
    targets[i] = {first + i, out.data() + static_cast<size_t>(i) * frame_bytes};
  }
  Decode(block, {targets, static_cast<size_t>(count)});
}

}  // namespace replicant::replay
