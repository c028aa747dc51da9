#include "replay/format/chunk.h"

#include <sys/mman.h>
#include <unistd.h>

namespace replicant::replay {

void Chunk::WillRead() const {
  if (!is_on_disk) return;
  // whole pages; any part not read ahead is read when needed
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(block.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(block.data()) + block.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace replicant::replay
