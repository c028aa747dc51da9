// Messages of replay/format/protocol.h come from any peer. Any bytes are
// refused with a MalformedMessage (IoError inside a segment) or can be read in
// full.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "replay/format/batch_message.h"
#include "replay/format/protocol.h"

namespace {

using replicant::rpc::Frame;
using replicant::rpc::Message;

volatile size_t sink;

// Up to three parts, whose lengths are the first bytes.
Message Parts(std::span<const std::byte> bytes) {
  Message message;
  size_t sizes[2] = {0, 0};
  for (size_t& size : sizes) {
    if (bytes.size() < 2) break;
    size = std::to_integer<size_t>(bytes[0]) +
           256 * std::to_integer<size_t>(bytes[1]);
    bytes = bytes.subspan(2);
  }
  for (const size_t size : sizes) {
    const size_t taken = std::min(size, bytes.size());
    message.push_back(Frame::Copy(bytes.first(taken)));
    bytes = bytes.subspan(taken);
  }
  message.push_back(Frame::Copy(bytes));
  return message;
}

void ReadBatch(Message message, const replicant::replay::StepShape& shape) {
  const replicant::replay::BatchMessage batch(std::move(message), shape);
  const auto row = batch.form().BytesOf(shape);
  std::vector<std::byte> frames(static_cast<size_t>(row.frames));
  std::vector<std::byte> next(static_cast<size_t>(row.next_frames));
  replicant::replay::FrameRoom room;
  for (int64_t i = 0; i < batch.size(); ++i) {
    sink = sink + batch.Observation(i).size() +
           batch.NextObservation(i).size() + batch.Action(i).size() +
           batch.StepRewards(i).size() + batch.StepDiscounts(i).size();
    if (shape.frame_bytes > 0) {
      const auto found = batch.LocateFrames(i, room, frames, next);
      for (const std::byte* frame : found.frames) {
        sink = sink + std::to_integer<size_t>(frame[shape.frame_bytes - 1]);
      }
    }
  }
}

template <typename Decode>
void Try(Decode decode) {
  try {
    decode();
  } catch (const replicant::rpc::MalformedMessage&) {
  } catch (const replicant::IoError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace replicant::replay;  // NOLINT(google-build-using-namespace)
  const auto bytes = std::as_bytes(std::span(data, size));
  Message one;
  one.push_back(Frame::Copy(bytes));
  Try([&] { replicant::rpc::DecodeMessage<ServiceInfo>(one); });
  Try([&] { replicant::rpc::DecodeMessage<InsertAck>(one); });
  Try([&] { replicant::rpc::DecodeMessage<CloseWriterRequest>(one); });
  Try([&] { replicant::rpc::DecodeMessage<SampleRequest>(one); });
  Try([&] { replicant::rpc::DecodeMessage<FramesRequest>(one); });
  Try([&] { UpdateRequest::Decode(one); });
  Try([&] { replicant::rpc::DecodeMessage<UpdateReply>(one); });
  Try([&] { replicant::rpc::DecodeMessage<StatusReply>(one); });

  Message parts = Parts(bytes);
  Try([&] {
    for (const auto block :
         InsertRequest::Decode(std::span(parts).first(2)).blocks) {
      sink = sink + block.size();
    }
  });
  Try([&] { ReadBatch(Parts(bytes), {.observation_bytes = 2}); });
  Try([&] { ReadBatch(Parts(bytes), {.action_bytes = 1, .frame_bytes = 16}); });
  return 0;
}
