#include "engine/pjrt/compile_options.h"

#include "base/protobuf_writer.h"

namespace replicant::pjrt {

std::string Encode(const CompileOptions& options) {
  const auto num_replicas = static_cast<int64_t>(options.device_ids.size());
  // DeviceAssignmentProto, of one computation
  ProtobufWriter computation;
  computation.PackedInts(/*replica_device_ids*/ 1, options.device_ids);
  ProtobufWriter assignment;
  assignment.Int(/*replica_count*/ 1, num_replicas)
      .Int(/*computation_count*/ 2, 1)
      .Bytes(/*computation_devices*/ 3, computation.bytes());
  // ExecutableBuildOptionsProto
  ProtobufWriter build;
  build.Int(/*device_ordinal: none*/ 1, -1)
      .Int(/*num_replicas*/ 4, num_replicas)
      .Int(/*num_partitions*/ 5, 1)
      .Bytes(/*device_assignment*/ 9, assignment.bytes());
  return ProtobufWriter()
      .Bytes(/*executable_build_options*/ 3, build.bytes())
      .bytes();
}

}  // namespace replicant::pjrt
