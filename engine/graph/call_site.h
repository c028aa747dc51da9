#pragma once

#include <string>

namespace replicant::graph {

// The place in the source that added a node. Error messages name it.
//
// Every public function that adds ops takes a call site as its last argument,
// defaulted to Here(): the place of the caller. A function that adds several
// ops opens a Graph::SiteScope with it; the ops inside then name the user's
// line and need no argument.
struct CallSite {
  // `file` must outlive the graph; a string literal does.
  static constexpr CallSite Here(const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return {file, line};
  }

  // "networks.cc:41". The path is the one that the compiler was given.
  std::string ToString() const;

  const char* file = "";
  int line = 0;
};

}  // namespace replicant::graph
