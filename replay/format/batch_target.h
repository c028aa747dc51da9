#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/rpc/shared_memory.h"
#include "replay/format/batch_form.h"
#include "replay/format/protocol.h"

namespace replicant::replay {

// The place of a batch in memory that a reader shares.
struct BatchTarget {
  BatchPlace place;
  std::shared_ptr<rpc::SharedMemory> memory;

  // The batch's rows of the array at offset `array`, from its first row on.
  std::byte* Rows(uint64_t array, int64_t row_bytes) const {
    return memory->bytes().data() + array +
           place.first_row * static_cast<uint64_t>(row_bytes);
  }
  // Throws InvalidArgument unless `count` items fit at the place.
  void Check(uint32_t count, const StepShape& shape,
             const BatchForm& form) const;
};

}  // namespace replicant::replay
