#include "replicator/parameter_server/parameter_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace replicant::replicator {
namespace {

constexpr std::string_view kTable = R"(parameter_server 1
1 join
  request: header, text of the division of the steps
  reply: reply
2 pull
  request: header
  reply: reply, tensors
3 push
  request: header, tensors
  reply: reply
4 assign
  request: header, tensors
  reply: reply
5 end
  request: header
  reply: reply
header: u32 worker, u64 run, u64 sequence, u32 step
reply: u8 status (0 ok, 1 join first, 2 pull first, 3 ended), i64 version
)";

constexpr size_t kLargestPart = size_t{64} << 20;

template <typename View>
size_t SizeOf(const std::vector<View>& tensors) {
  size_t sum = 0;
  for (const View& tensor : tensors) sum += tensor.size_bytes();
  return sum;
}

}  // namespace

rpc::Protocol ParameterServerProtocol() {
  return rpc::Protocol::FromTable("parameter_server", 1, kTable);
}

void AddTensors(const std::vector<TensorView>& tensors, rpc::Message* message) {
  size_t left = SizeOf(tensors);
  size_t at = 0;
  std::span<std::byte> part;
  for (const TensorView& tensor : tensors) {
    std::span<const std::byte> bytes = tensor.bytes();
    while (!bytes.empty()) {
      if (at == part.size()) {
        message->emplace_back(std::min(left, kLargestPart));
        part = message->back().mutable_bytes();
        at = 0;
      }
      const size_t size = std::min(bytes.size(), part.size() - at);
      std::memcpy(part.data() + at, bytes.data(), size);
      bytes = bytes.subspan(size);
      at += size;
      left -= size;
    }
  }
}

void CheckTensors(std::span<const rpc::Frame> parts,
                  const std::vector<MutableTensorView>& tensors) {
  const size_t wanted = SizeOf(tensors);
  if (rpc::SizeBytes(parts) != wanted) {
    throw rpc::MalformedMessage(
        fmt::format("parameter_server: {} bytes of tensors, want {}",
                    rpc::SizeBytes(parts), wanted));
  }
}

void ReadTensors(std::span<const rpc::Frame> parts,
                 const std::vector<MutableTensorView>& tensors) {
  CheckTensors(parts, tensors);
  size_t part = 0;
  size_t at = 0;
  for (const MutableTensorView& tensor : tensors) {
    std::span<std::byte> bytes = tensor.bytes();
    while (!bytes.empty()) {
      const std::span<const std::byte> from = parts[part].bytes().subspan(at);
      const size_t size = std::min(bytes.size(), from.size());
      std::memcpy(bytes.data(), from.data(), size);
      bytes = bytes.subspan(size);
      at += size;
      if (size == from.size()) {
        ++part;
        at = 0;
      }
    }
  }
}

}  // namespace replicant::replicator
