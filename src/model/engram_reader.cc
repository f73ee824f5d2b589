#include "model/engram_reader.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "model/engram_table.h"

namespace fathom {
namespace {

// The current chunk's buffers and the next chunk's. More would only hold memory (100 MB a chunk of 2048).
constexpr size_t kKeptStates = 2;

// Batches a thread should get from one fetch, so that the last ones to finish are short.
constexpr int64_t kBatchesPerThread = 4;

constexpr int kMaxThreads = 1024;

struct Slot {
  int64_t row;
  int64_t place;  // token * columns + column
};

struct Batch {
  int table;
  int64_t first;  // into State::rows
  int64_t end;
};

}  // namespace

/// Everything about one fetch. What follows `// pool` is guarded by the reader's mutex.
struct EngramReader::Fetch::State {
  EngramReader::Impl* reader = nullptr;
  int64_t tokens = 0;

  std::unique_ptr<float[]> values;  // a table after the other, [tokens, columns * width] each
  size_t values_capacity = 0;
  std::vector<int64_t> value_begin;  // a table

  std::vector<Slot> slots;          // a table after the other, sorted by row
  std::vector<int64_t> rows;        // the distinct rows of `slots`, in that order
  std::vector<int64_t> slot_begin;  // of each distinct row, and one past the last
  std::vector<Batch> batches;

  // pool
  size_t next_batch = 0;
  int batches_under_way = 0;
  size_t failed_batch = 0;
  std::optional<Error> error;
  std::condition_variable done;
  bool finished() const { return next_batch == batches.size() && batches_under_way == 0; }
};

struct EngramReader::Impl {
  using State = Fetch::State;

  std::vector<EngramTable> tables;
  int64_t columns = 0;
  int64_t thread_count = 0;
  size_t scratch_array_bytes = 0;

  mutable std::mutex mutex;
  std::condition_variable_any work_arrived;
  std::vector<State*> queue;  // fetches with batches that nobody has taken yet, oldest first
  std::vector<std::unique_ptr<State>> kept;
  int live_fetches = 0;
  Statistics statistics;
  std::vector<std::jthread> threads;  // last: they stop before what they use goes

  std::unique_ptr<State> take_state();
  void plan(State& state, std::span<const int64_t> row_ids);
  void plan_table(State& state, std::span<const int64_t> row_ids, int table);
  void cut_batches(State& state, int table, int64_t first_row, int64_t batch_rows);
  void enqueue(State& state);
  void give_up_rest(State& state);  // with the mutex held
  void finish(std::unique_ptr<State> state);
  void serve(std::stop_token stop);
  Result<uint64_t> run(State& state, const Batch& batch, EngramScratch& scratch) const;
};

std::unique_ptr<EngramReader::Fetch::State> EngramReader::Impl::take_state() {
  std::unique_ptr<State> state;
  {
    const std::lock_guard lock(mutex);
    ++live_fetches;
    if (!kept.empty()) {
      state = std::move(kept.back());
      kept.pop_back();
    }
  }
  if (!state) state = std::make_unique<State>();
  state->reader = this;
  return state;
}

void EngramReader::Impl::plan(State& state, std::span<const int64_t> row_ids) {
  state.slots.clear();
  state.rows.clear();
  state.slot_begin.clear();
  state.batches.clear();
  state.value_begin.clear();
  state.next_batch = 0;
  state.error.reset();

  int64_t value_count = 0;
  for (const EngramTable& table : tables) {
    state.value_begin.push_back(value_count);
    value_count += state.tokens * columns * table.width();
  }
  if (static_cast<size_t>(value_count) > state.values_capacity) {
    state.values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(value_count));
    state.values_capacity = static_cast<size_t>(value_count);
  }
  std::vector<int64_t>& rows = state.rows;
  const int table_count = static_cast<int>(tables.size());
  // A decode step has so few rows that each thread gets one or two; a chunk gives full batches.
  const int64_t share = state.tokens * columns * table_count / (thread_count * kBatchesPerThread);
  const int64_t batch_rows = std::clamp<int64_t>(share, 1, EngramScratch::kMaxRows);
  for (int table = 0; table < table_count && !state.error; ++table) {
    const auto first_row = static_cast<int64_t>(rows.size());
    plan_table(state, row_ids, table);
    cut_batches(state, table, first_row, batch_rows);
  }
  state.slot_begin.push_back(static_cast<int64_t>(state.slots.size()));
  if (!state.error) return;
  state.slots.clear();
  state.batches.clear();
}

// Sorts the ids of one table, writes zeros where there is no row, and appends the distinct rows.
void EngramReader::Impl::plan_table(State& state, std::span<const int64_t> row_ids, int table) {
  const EngramTable& rows_of = tables[static_cast<size_t>(table)];
  const auto stride = static_cast<int64_t>(tables.size()) * columns;
  float* const out = state.values.get() + state.value_begin[static_cast<size_t>(table)];
  const auto slots_before = static_cast<std::ptrdiff_t>(state.slots.size());
  for (int64_t token = 0; token < state.tokens; ++token) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t row = row_ids[static_cast<size_t>(token * stride + table * columns + column)];
      const int64_t place = token * columns + column;
      if (row >= rows_of.rows()) {
        state.error = Error::invalid("{}: row {} (token {}, column {}) is not in the Engram table of {} rows",
                                     rows_of.path(), row, token, column, rows_of.rows());
        return;
      }
      if (row < 0)
        std::fill_n(out + place * rows_of.width(), rows_of.width(), 0.0f);
      else
        state.slots.push_back({.row = row, .place = place});
    }
  }
  const auto begin = state.slots.begin() + slots_before;
  std::sort(begin, state.slots.end(), [](const Slot& a, const Slot& b) { return a.row < b.row; });
  for (auto slot = begin; slot != state.slots.end(); ++slot) {
    if (slot != begin && slot->row == (slot - 1)->row) continue;
    state.rows.push_back(slot->row);
    state.slot_begin.push_back(slot - state.slots.begin());
  }
}

void EngramReader::Impl::cut_batches(State& state, int table, int64_t first_row, int64_t batch_rows) {
  const auto end = static_cast<int64_t>(state.rows.size());
  for (int64_t first = first_row; first < end; first += batch_rows)
    state.batches.push_back({.table = table, .first = first, .end = std::min(first + batch_rows, end)});
}

void EngramReader::Impl::enqueue(State& state) {
  {
    const std::lock_guard lock(mutex);
    statistics.rows_asked += static_cast<int64_t>(state.slots.size());
    if (state.batches.empty()) return;
    queue.push_back(&state);
  }
  if (state.batches.size() == 1)
    work_arrived.notify_one();
  else
    work_arrived.notify_all();
}

void EngramReader::Impl::give_up_rest(State& state) {
  if (state.next_batch == state.batches.size()) return;
  state.next_batch = state.batches.size();
  queue.erase(std::find(queue.begin(), queue.end(), &state));
}

void EngramReader::Impl::finish(std::unique_ptr<State> state) {
  std::unique_lock lock(mutex);
  give_up_rest(*state);
  state->done.wait(lock, [&] { return state->finished(); });
  --live_fetches;
  if (kept.size() < kKeptStates) kept.push_back(std::move(state));
}

void EngramReader::Impl::serve(std::stop_token stop) {
  EngramScratch scratch(scratch_array_bytes);
  std::unique_lock lock(mutex);
  for (;;) {
    if (!work_arrived.wait(lock, stop, [&] { return !queue.empty(); })) return;
    State& state = *queue.front();
    const size_t index = state.next_batch++;
    const Batch batch = state.batches[index];
    if (state.next_batch == state.batches.size()) queue.erase(queue.begin());
    ++state.batches_under_way;
    lock.unlock();
    Result<uint64_t> read = run(state, batch, scratch);
    lock.lock();
    --state.batches_under_way;
    if (read.ok()) {
      statistics.rows_read += batch.end - batch.first;
      statistics.bytes_read += static_cast<int64_t>(read.value());
    } else if (!state.error || index < state.failed_batch) {
      // Batches are taken in order, so all earlier ones are under way: the first error is always the same.
      state.failed_batch = index;
      state.error = std::move(read).error();
      give_up_rest(state);
    }
    // Under the lock: the state may be taken for another fetch as soon as it is released.
    if (state.finished()) state.done.notify_all();
  }
}

Result<uint64_t> EngramReader::Impl::run(State& state, const Batch& batch, EngramScratch& scratch) const {
  const EngramTable& table = tables[static_cast<size_t>(batch.table)];
  const std::span<const int64_t> rows(state.rows.data() + batch.first,
                                      static_cast<size_t>(batch.end - batch.first));
  FATHOM_ASSIGN(const uint64_t read_bytes, table.load(rows, scratch));
  float* const out = state.values.get() + state.value_begin[static_cast<size_t>(batch.table)];
  for (size_t index = 0; index < rows.size(); ++index) {
    const auto at = static_cast<size_t>(batch.first) + index;
    const Slot* slot = state.slots.data() + state.slot_begin[at];
    const Slot* const end = state.slots.data() + state.slot_begin[at + 1];
    float* const values = out + slot->place * table.width();
    FATHOM_TRY(table.decode(scratch, static_cast<int>(index), rows[index], values));
    while (++slot != end) std::copy_n(values, table.width(), out + slot->place * table.width());
  }
  return read_bytes;
}

int64_t engram_reader_bytes(const EngramConfig& config, int64_t tokens, int io_threads) {
  const int64_t places = tokens * static_cast<int64_t>(config.layer_ids.size()) * config.columns();
  const int64_t lists = static_cast<int64_t>(sizeof(Slot) + 2 * sizeof(int64_t));
  // A batch's rows, as bytes of at most one a value; the gaps between rows are read only where rows lie close.
  const int64_t batch = EngramScratch::kMaxRows * (int64_t{config.head_dim} + config.head_dim / 32);
  return static_cast<int64_t>(kKeptStates) * places * (config.head_dim * int64_t{sizeof(float)} + lists) +
         (places == 0 ? 0 : io_threads * batch);
}

EngramReader::EngramReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EngramReader::~EngramReader() {
  const std::lock_guard lock(impl_->mutex);
  FATHOM_CHECK(impl_->live_fetches == 0, "{} fetches outlive their reader", impl_->live_fetches);
}

Result<std::unique_ptr<EngramReader>> EngramReader::open(std::vector<EngramTableInfo> tables, int columns,
                                                         const EngramReaderOptions& options) {
  if (columns <= 0) return Error::invalid("Engram tables: expected at least one column, found {}", columns);
  if (options.io_threads < 1 || options.io_threads > kMaxThreads)
    return Error::invalid("Engram reader: expected 1 to {} I/O threads, found {}", kMaxThreads,
                          options.io_threads);
  auto impl = std::make_unique<Impl>();
  impl->columns = columns;
  impl->thread_count = options.io_threads;
  for (const EngramTableInfo& info : tables) {
    FATHOM_ASSIGN(EngramTable table, EngramTable::open(info));
    FATHOM_TRY(table.check_samples());
    impl->scratch_array_bytes = std::max(impl->scratch_array_bytes, table.scratch_array_bytes());
    impl->tables.push_back(std::move(table));
  }
  try {
    for (int thread = 0; thread < options.io_threads; ++thread)
      impl->threads.emplace_back([pool = impl.get()](std::stop_token stop) { pool->serve(stop); });
  } catch (const std::system_error& error) {
    return Error::no_memory("Engram reader: cannot start {} I/O threads: {}", options.io_threads,
                            error.what());
  }
  return std::unique_ptr<EngramReader>(new EngramReader(std::move(impl)));
}

std::unique_ptr<EngramReader::Fetch> EngramReader::start(std::span<const int64_t> row_ids, int64_t tokens) {
  const int64_t expected = tokens * static_cast<int64_t>(impl_->tables.size()) * impl_->columns;
  FATHOM_CHECK(tokens >= 0 && static_cast<int64_t>(row_ids.size()) == expected, "{} ids, expected {}",
               row_ids.size(), expected);
  std::unique_ptr<Fetch::State> state = impl_->take_state();
  state->tokens = tokens;
  impl_->plan(*state, row_ids);
  impl_->enqueue(*state);
  return std::make_unique<Fetch>(std::move(state));
}

EngramReader::Statistics EngramReader::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->statistics;
}

EngramReader::Fetch::Fetch(std::unique_ptr<State> state) : state_(std::move(state)) {}

EngramReader::Fetch::~Fetch() {
  Impl* const reader = state_->reader;
  reader->finish(std::move(state_));
}

Result<void> EngramReader::Fetch::wait() {
  std::unique_lock lock(state_->reader->mutex);
  state_->done.wait(lock, [&] { return state_->finished(); });
  if (state_->error) return *state_->error;
  return {};
}

const float* EngramReader::Fetch::rows(int table) const {
  FATHOM_CHECK(table >= 0 && static_cast<size_t>(table) < state_->value_begin.size(), "table {}", table);
  return state_->values.get() + state_->value_begin[static_cast<size_t>(table)];
}

int64_t EngramReader::Fetch::tokens() const { return state_->tokens; }

}  // namespace fathom
