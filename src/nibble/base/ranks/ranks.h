#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "nibble/base/function_ref.h"

namespace nibble {

// The processes that work on one job, numbered from 0. All members but the
// getters and abort() are collective: every process makes the same calls in the
// same order, from one thread.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  virtual ~Ranks() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int count() const = 0;
  // Processes of the job on this machine, this one among them: they share its
  // memory and its cores.
  [[nodiscard]] virtual int count_here() const = 0;

  // The text of every process, in the order of ranks.
  [[nodiscard]] virtual std::vector<std::string> gather(
      const std::string& text) = 0;

  // Ends every process of the job with this status.
  [[noreturn]] virtual void abort(int status) = 0;

  // Runs step in every process and waits for all. When it threw an Error
  // anywhere, the one of the lowest rank is thrown everywhere, so that the job
  // can end as one.
  void together(FunctionRef<void()> step);

  // Whether together() threw: all processes then know of the failure. After any
  // other error the rest of the job waits for this process in vain, and only
  // abort() ends it.
  [[nodiscard]] bool failed_together() const { return failed_together_; }

 private:
  bool failed_together_ = false;
};

// This process alone.
[[nodiscard]] std::unique_ptr<Ranks> single_rank();

// The processes that mpirun started together, or this one alone. Waiting for
// others throws kInterrupted once stop is true. kUnsupported when this process
// was started as one of several and cannot join them. One object a process.
[[nodiscard]] std::unique_ptr<Ranks> join_ranks(const std::atomic<bool>& stop);

}  // namespace nibble
