// Ranks by MPI: the processes that mpirun started.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <time.h>

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "nibble/base/error.h"
#include "nibble/base/ranks/ranks.h"
#include "nibble/base/ranks/started_together.h"

namespace nibble {
namespace {

// A failed call ends the job inside MPI (its default error handler), so none
// returns one here.
class MpiRanks final : public Ranks {
 public:
  explicit MpiRanks(const std::atomic<bool>& stop) : stop_(stop) {
    int provided = 0;
    // Other threads compute meanwhile and never call MPI.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(
        MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &count_here_);
    MPI_Comm_free(&here);
  }

  ~MpiRanks() override {
    // Finalizing waits for the others. When an error flies that they do not
    // know of, ending without it makes mpirun end them.
    if (std::uncaught_exceptions() == 0 || failed_together()) {
      MPI_Finalize();
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int count() const override { return count_; }

  [[nodiscard]] int count_here() const override { return count_here_; }

  std::vector<std::string> gather(const std::string& text) override;

  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  void wait(MPI_Request& request) const;

  const std::atomic<bool>& stop_;
  int rank_ = 0;
  int count_ = 1;
  int count_here_ = 1;
};

// MPI's own waiting burns a core, which others may need for hours.
void MpiRanks::wait(MPI_Request& request) const {
  timespec pause{0, 20'000};  // ns
  int done = 0;
  for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); done == 0;
       MPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
    if (stop_.load(std::memory_order_relaxed)) {
      fail_with_hint(ErrorCode::kInterrupted,
                     "run the same command again to go on from here",
                     "interrupted");
    }
    ::nanosleep(&pause, nullptr);
    pause.tv_nsec = std::min(2 * pause.tv_nsec, 5'000'000L);
  }
}

std::vector<std::string> MpiRanks::gather(const std::string& text) {
  const auto count = static_cast<std::size_t>(count_);
  const std::uint64_t own = text.size();
  std::vector<std::uint64_t> bytes(count);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&own,
                 1,
                 MPI_UINT64_T,
                 bytes.data(),
                 1,
                 MPI_UINT64_T,
                 MPI_COMM_WORLD,
                 &request);
  wait(request);
  std::vector<int> sizes(count);
  std::vector<int> offsets(count);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    offsets[i] = static_cast<int>(end);
    sizes[i] = static_cast<int>(bytes[i]);
    end += bytes[i];
    // MPI counts in int; what is gathered are lines about parts of the work.
    NIBBLE_CHECK(
        end <= static_cast<std::uint64_t>(std::numeric_limits<int>::max()),
        kInternal,
        "ranks: found more than 2 GiB to exchange");
  }
  std::string all(static_cast<std::size_t>(end), '\0');
  MPI_Iallgatherv(text.data(),
                  static_cast<int>(own),
                  MPI_CHAR,
                  all.data(),
                  sizes.data(),
                  offsets.data(),
                  MPI_CHAR,
                  MPI_COMM_WORLD,
                  &request);
  wait(request);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[i]),
                               static_cast<std::size_t>(sizes[i])));
  }
  return texts;
}

}  // namespace

std::unique_ptr<Ranks> join_ranks(const std::atomic<bool>& stop) {
  if (!started_by_launcher()) {
    return single_rank();  // starting MPI takes a tenth of a second
  }
  auto ranks = std::make_unique<MpiRanks>(stop);
  const int started = started_together();
  if (ranks->count() == 1 && started > 1) {
    fail_with_hint(ErrorCode::kUnsupported,
                   "use the mpirun of the MPI that nibble was built with",
                   "mpirun: found {} processes that do not see one another",
                   started);
  }
  return ranks;
}

}  // namespace nibble
