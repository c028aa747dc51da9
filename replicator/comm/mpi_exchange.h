#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "replicator/comm/process_exchange.h"

namespace replicant::comm {

// A ProcessExchange over MPI, which only moves bytes.
class MpiExchange : public ProcessExchange {
 public:
  // An exchange of all processes that one mpirun started. Several processes
  // watch each other. Throws CommError.
  static std::shared_ptr<MpiExchange> OfAllProcesses(
      const CommunicatorOptions& options);

  // Takes ownership of `comm`.
  MpiExchange(MPI_Comm comm, const CommunicatorOptions& options);
  ~MpiExchange() override;

  std::string_view transport() const override { return "mpi"; }
  std::shared_ptr<ProcessExchange> Split(bool is_member) override;

 private:
  void Move(std::span<const Message> messages) override;
  void OnEnd() override;

  MPI_Comm comm_;
  // kept so that calls allocate nothing
  std::vector<MPI_Request> requests_;
};

}  // namespace replicant::comm
