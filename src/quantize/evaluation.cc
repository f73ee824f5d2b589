#include "quantize/evaluation.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace fathom {
namespace {

void cut_document(std::span<const int32_t> ids, size_t begin, size_t end, const WindowOptions& options,
                  std::vector<TextWindow>& windows) {
  const bool has_bos = options.bos_token >= 0;
  size_t done = begin;  // tokens before are predicted, or begin the document
  for (size_t start = begin; start < end;) {
    TextWindow window{.begin = start, .has_bos_before = has_bos && ids[start] != options.bos_token};
    const size_t room = static_cast<size_t>(options.context_tokens) - (window.has_bos_before ? 1 : 0);
    window.end = std::min(end, start + room);
    window.first_target = std::max(done, window.has_bos_before ? start : start + 1);
    if (window.first_target < window.end) windows.push_back(window);
    done = window.end;
    if (done == end) break;
    const auto stride = static_cast<size_t>(options.stride_tokens);
    start = stride == 0 ? done : std::min(done, start + stride);
  }
}

// One run: two models go through the windows in pieces, so that only a piece's logits are held.
class Evaluation {
 public:
  Evaluation(Session& session, std::span<const int32_t> ids, const EvaluationOptions& options)
      : session_(session),
        ids_(ids),
        options_(options),
        vocab_(static_cast<size_t>(session.model().config().vocab_size)),
        meter_(options.reference != nullptr || options.stored != nullptr) {}

  Result<Quality> run() {
    FATHOM_ASSIGN(windows_, cut_windows(ids_, options_.windows));
    for (const TextWindow& window : windows_) total_ += window.targets();
    FATHOM_TRY(check_reference());
    if (!options_.save_path.empty()) {
      const ReferenceHeader header{.vocab_size = static_cast<int32_t>(vocab_),
                                   .rows = total_,
                                   .model = session_.model().fingerprint(),
                                   .text = text_fingerprint(ids_, windows_)};
      FATHOM_ASSIGN(writer_, ReferenceWriter::create(options_.save_path, header));
    }
    for (const TextWindow& window : windows_) FATHOM_TRY(run_window(window));
    FATHOM_TRY(tell());
    if (writer_) FATHOM_TRY(writer_->finish());
    return meter_.summary();
  }

 private:
  Result<void> check_reference() const {
    if (options_.reference != nullptr && options_.reference->model().config().vocab_size != session_vocab())
      return Error::invalid("the reference has a vocabulary of {}, expected {}",
                            options_.reference->model().config().vocab_size, vocab_);
    if (options_.stored == nullptr) return {};
    const ReferenceHeader& header = options_.stored->header();
    if (header.vocab_size != session_vocab())
      return Error::invalid("{}: vocabulary of {}, expected {}", options_.stored->path(), header.vocab_size,
                            vocab_);
    if (header.rows != total_ || header.text != text_fingerprint(ids_, windows_))
      return Error::invalid(
          "{}: {} predictions, expected {} of this text in these windows; it was made of "
          "another text, context or stride",
          options_.stored->path(), header.rows, total_);
    return {};
  }

  int session_vocab() const { return static_cast<int>(vocab_); }

  Result<void> tell() const {
    if (!options_.progress) return {};
    const Progress now{.stage = "evaluate", .unit = "tokens", .done = done_, .total = total_};
    if (options_.progress(now) || done_ == total_) return {};
    return Error::cancelled("evaluation cancelled after {} of {} tokens", done_, total_);
  }

  Result<void> run_window(const TextWindow& window) {
    std::vector<int32_t> tokens;
    if (window.has_bos_before) tokens.push_back(options_.windows.bos_token);
    tokens.insert(tokens.end(), ids_.begin() + static_cast<ptrdiff_t>(window.begin),
                  ids_.begin() + static_cast<ptrdiff_t>(window.end));
    session_.invalidate();
    if (options_.reference != nullptr) options_.reference->invalidate();
    meter_.begin_window();
    int64_t piece_rows = session_.evaluate_rows();
    if (options_.reference != nullptr) piece_rows = std::min(piece_rows, options_.reference->evaluate_rows());
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(piece_rows)) {
      FATHOM_TRY(tell());
      const size_t count = std::min(tokens.size() - begin, static_cast<size_t>(piece_rows));
      FATHOM_TRY(run_piece(window, std::span(tokens).subspan(begin, count), begin));
    }
    return {};
  }

  // `offset`: of the piece in the window's tokens.
  Result<void> run_piece(const TextWindow& window, std::span<const int32_t> piece, size_t offset) {
    if (options_.reference != nullptr) {
      reference_.resize(piece.size() * vocab_);
      const auto keep = [&](int64_t position, std::span<const float> logits) -> Result<void> {
        std::copy(
            logits.begin(), logits.end(),
            reference_.begin() + (position - static_cast<int64_t>(offset)) * static_cast<int64_t>(vocab_));
        return {};
      };
      FATHOM_TRY(options_.reference->evaluate(piece, keep));
    }
    return session_.evaluate(piece, [&](int64_t position, std::span<const float> logits) -> Result<void> {
      const auto row = static_cast<size_t>(position);
      const size_t target = window.begin + row + (window.has_bos_before ? 0 : 1);
      if (target < window.first_target || target >= window.end) return {};
      return judge(logits, row - offset, ids_[target]);
    });
  }

  Result<void> judge(std::span<const float> logits, size_t piece_row, int32_t token) {
    std::span<const float> reference;
    if (options_.reference != nullptr) reference = std::span(reference_).subspan(piece_row * vocab_, vocab_);
    if (options_.stored != nullptr) {
      reference_.resize(vocab_);
      options_.stored->read(done_, reference_);
      reference = reference_;
    }
    meter_.add(judge_token(logits, reference, token));
    ++done_;
    return writer_ ? writer_->add(logits) : Result<void>();
  }

  Session& session_;
  std::span<const int32_t> ids_;
  const EvaluationOptions& options_;
  size_t vocab_;
  QualityMeter meter_;
  std::vector<TextWindow> windows_;
  std::optional<ReferenceWriter> writer_;
  std::vector<float> reference_;  // [rows of a piece, vocab], or one stored row
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace

Result<std::vector<TextWindow>> cut_windows(std::span<const int32_t> ids, const WindowOptions& options) {
  if (options.context_tokens < 2)
    return Error::invalid("context of {} tokens, expected at least 2", options.context_tokens);
  if (options.stride_tokens < 0 || options.stride_tokens > options.context_tokens)
    return Error::invalid("stride of {} tokens, expected 0 to {}, the context", options.stride_tokens,
                          options.context_tokens);
  std::vector<TextWindow> windows;
  for (size_t begin = 0; begin < ids.size();) {
    const auto next =
        std::find(ids.begin() + static_cast<ptrdiff_t>(begin) + 1, ids.end(), options.bos_token);
    const auto end = static_cast<size_t>(next - ids.begin());
    cut_document(ids, begin, end, options, windows);
    begin = end;
  }
  if (windows.empty())
    return Error::invalid("the text has {} tokens: there is nothing to predict", ids.size());
  return windows;
}

std::array<uint8_t, 32> text_fingerprint(std::span<const int32_t> ids, std::span<const TextWindow> windows) {
  Sha256 hash;
  hash.update(std::as_bytes(ids));
  for (const TextWindow& window : windows) {
    const uint64_t numbers[4] = {window.begin, window.end, window.first_target, window.has_bos_before};
    hash.update(std::as_bytes(std::span(numbers)));
  }
  return hash.finish();
}

Result<Quality> evaluate_text(Session& session, std::span<const int32_t> ids,
                              const EvaluationOptions& options) {
  return Evaluation(session, ids, options).run();
}

}  // namespace fathom
