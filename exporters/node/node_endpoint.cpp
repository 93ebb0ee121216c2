#include "exporters/node/node_endpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "exporters/files/own_descriptor.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/node/other_nodes.hpp"
#include "exporters/node/rank_question.hpp"
#include "exporters/node/rank_sockets.hpp"
#include "exporters/node/ranks_answer.hpp"
#include "exporters/prometheus/exposition.hpp"
#include "exporters/prometheus/merge_expositions.hpp"

namespace gradvane::exporters {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPatientEvery = 8;
constexpr std::string_view kRank = "/rank/";
constexpr const char* kRanks = "/api/v1/ranks";
constexpr const char* kNoRank = "no rank of this run answers on this node\n";

std::string with_query(const std::string& path, const std::string& query) {
  return query.empty() ? path : path + '?' + query;
}

/// /rank/N/rest
struct RankPath {
  std::int32_t rank = 0;
  std::string_view rest;  ///< from its slash on; empty: there is none
};

std::optional<RankPath> rank_path(std::string_view path) {
  if (!path.starts_with(kRank)) return std::nullopt;
  path.remove_prefix(kRank.size());
  const std::string_view digits = path.substr(0, path.find('/'));
  RankPath parts{.rest = path.substr(digits.size())};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parts.rank);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || parts.rank < 0 || (digits.size() > 1 && digits.front() == '0'))
    return std::nullopt;
  return parts;
}

}  // namespace

/// On the server's thread, but for open().
class NodeEndpoint::Ranks {
 public:
  Ranks(std::string node, Patience patience) : node_(std::move(node)), patience_(patience) {}

  /// Empty, or why not.
  std::string open(const std::filesystem::path& path) {
    auto opened = open_named_directory(path, ::geteuid(), Missing::stays);
    directory_ = std::move(opened.descriptor);
    return opened.error;
  }

  HttpResponse answer(const HttpRequest& request) {
    if (request.path == "/metrics") return metrics(request);
    if (request.path == kOwnRanks) return own_ranks(request);
    const auto asked = rank_path(request.path);
    if (!asked) return with_all_ranks(request.path, of_lowest(request));
    if (asked->rest.empty())
      return {.status = 308, .location = with_query(request.path + '/', request.query)};
    if (auto answer = of_rank(asked->rank, std::string(asked->rest), request, patience_.usual))
      return with_all_ranks(asked->rest, std::move(*answer));
    return {.status = 404,
            .body = "no rank " + std::to_string(asked->rank) + " here; there is " +
                    list_of_ranks() + '\n'};
  }

  void set_place(std::string url, std::string host) {
    const std::lock_guard lock(mutex_);
    url_ = std::move(url);
    host_ = std::move(host);
  }
  void ask_others(const std::string& token) {
    others_ = std::make_unique<OtherNodes>(
        OtherNodes::Settings{.token = token, .every = patience_.others_every});
  }
  /// Whoever looks gets no answer any more.
  void stop_asking() noexcept {
    if (others_) others_->finish(std::chrono::milliseconds(0));
  }
  void leave_to_parent() noexcept {
    if (others_) others_->leave_to_parent();
  }

 private:
  struct Answer {
    std::int32_t rank = 0;
    std::optional<HttpResponse> response;  ///< absent: it did not come in time
  };

  [[nodiscard]] std::vector<std::int32_t> ranks() const {
    return ranks_with_socket(directory_.get(), node_);
  }

  [[nodiscard]] RankQuestion ask(std::int32_t rank, const std::string& path,
                                 const HttpRequest& request) const {
    return {directory_.get(), rank_socket(rank, node_), with_query(path, request.query), request};
  }

  [[nodiscard]] std::string list_of_ranks() const {
    std::string list;
    for (const std::int32_t rank : ranks()) {
      if (ask(rank, "/-/healthy", {}).is_refused()) continue;
      list.append(list.empty() ? "" : ", ").append(std::to_string(rank));
    }
    return list.empty() ? "none" : list;
  }

  /// It has not answered lately, and this is not the time to give it all the time again.
  [[nodiscard]] bool is_silent(std::int32_t rank) const {
    const auto misses = misses_.find(rank);
    return misses != misses_.end() && misses->second % kPatientEvery != 0;
  }

  /// A rank that had less time than usual may only be slow: a scrape is to wait for it.
  void note(const Answer& answer, std::chrono::milliseconds patience) {
    if (answer.response)
      misses_.erase(answer.rank);
    else if (patience >= patience_.usual)
      ++misses_[answer.rank];
  }

  /// Of all ranks that are there, asked at once.
  std::vector<Answer> ask_all(const std::string& path, const HttpRequest& request,
                              std::chrono::milliseconds patience) {
    std::vector<std::int32_t> asked;
    std::vector<RankQuestion> questions;
    // The ranks that get less time come last.
    std::vector<std::int32_t> in_order = ranks();
    const auto silent = std::ranges::stable_partition(
        in_order, [this](std::int32_t rank) { return !is_silent(rank); });
    const auto silent_begin = std::ranges::begin(silent);
    std::size_t patient = 0;
    for (auto rank = in_order.begin(); rank != in_order.end(); ++rank) {
      RankQuestion question = ask(*rank, path, request);
      if (question.is_refused()) continue;
      asked.push_back(*rank);
      questions.push_back(std::move(question));
      if (rank < silent_begin) ++patient;
    }
    const auto begin = Clock::now();
    const std::span all(questions);
    wait_for(all.first(patient), begin + patience);
    wait_for(all.subspan(patient), std::max(Clock::now(), begin + patience_.of_silent));
    std::vector<Answer> answers;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      answers.push_back({.rank = asked[i], .response = questions[i].take_answer()});
      note(answers.back(), patience);
    }
    std::ranges::sort(answers, {}, &Answer::rank);
    return answers;
  }

  /// Absent if there is no such rank.
  std::optional<HttpResponse> of_rank(std::int32_t rank, const std::string& path,
                                      const HttpRequest& request,
                                      std::chrono::milliseconds patience) {
    std::vector<RankQuestion> question;
    question.push_back(ask(rank, path, request));
    if (question.front().is_refused()) return std::nullopt;
    wait_for(question, Clock::now() + (is_silent(rank) ? patience_.of_silent : patience));
    Answer answer{.rank = rank, .response = question.front().take_answer()};
    note(answer, patience);
    if (answer.response) return std::move(answer.response);
    return HttpResponse{.status = 504,
                        .body = "rank " + std::to_string(rank) + " does not answer\n"};
  }

  HttpResponse of_lowest(const HttpRequest& request) {
    for (const std::int32_t rank : ranks())
      if (auto answer = of_rank(rank, request.path, request, patience_.usual))
        return std::move(*answer);
    return {.status = 503, .body = kNoRank};
  }

  HttpResponse metrics(const HttpRequest& request) {
    const std::vector<Answer> answers = ask_all(request.path, request, patience_.usual);
    std::vector<std::string_view> parts;
    for (const Answer& answer : answers)
      if (answer.response && answer.response->status == 200)
        parts.emplace_back(answer.response->body);
    if (parts.empty()) return {.status = 503, .body = kNoRank};
    return {.content_type = std::string(content_type(negotiate(request.accept))),
            .body = merge_expositions(parts),
            .vary = "Accept, Accept-Encoding",
            .goes_first = true};
  }

  /// A rank knows where the others are. How they are is known here.
  HttpResponse with_all_ranks(std::string_view path, HttpResponse answer) {
    if (path != kRanks || answer.status != 200) return answer;
    auto ranks = read(answer.body);
    if (!ranks) return answer;
    ranks->add_statuses(statuses(patience_.usual));
    if (const auto nodes = ranks->other_nodes(); !nodes.empty()) ranks->add_others(look(nodes));
    answer.body = ranks->text();
    return answer;
  }

  [[nodiscard]] std::optional<RanksAnswer> read(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return RanksAnswer::read(text, url_, host_);
  }

  [[nodiscard]] std::map<std::string, OtherNodes::Answer> look(
      const std::vector<std::string>& nodes) {
    try {
      if (others_) return others_->look(nodes);
    } catch (const std::system_error&) {  // no thread could be started
    }
    return {};
  }

  /// Whoever asks waits a second, and no rank may take all of it. One list is enough: a rank reads the endpoint files of
  /// all ranks for it.
  HttpResponse own_ranks(HttpRequest request) {
    request.path = kRanks;
    HttpResponse answer = of_first(request, patience_.of_silent);
    auto ranks = answer.status == 200 ? read(answer.body) : std::nullopt;
    if (!ranks) return answer;
    ranks->leave_out_others();
    ranks->add_statuses(statuses(patience_.of_silent));
    answer.body = ranks->text();
    return answer;
  }

  /// Of the first rank that answers within `patience`; those that did not lately come last.
  HttpResponse of_first(const HttpRequest& request, std::chrono::milliseconds patience) {
    std::vector<std::int32_t> in_order = ranks();
    std::ranges::stable_partition(in_order, [this](std::int32_t rank) { return !is_silent(rank); });
    for (const std::int32_t rank : in_order)
      if (auto answer = of_rank(rank, request.path, request, patience);
          answer && answer->status != 504)
        return std::move(*answer);
    return {.status = 503, .body = kNoRank};
  }

  std::map<std::int32_t, std::string> statuses(std::chrono::milliseconds patience) {
    std::map<std::int32_t, std::string> statuses;
    for (Answer& rank : ask_all("/api/v1/status", {}, patience))
      if (rank.response && rank.response->status == 200)
        statuses[rank.rank] = std::move(rank.response->body);
    return statuses;
  }

  std::string node_;
  Patience patience_;
  OwnDescriptor directory_;
  std::mutex mutex_;  ///< of the next two, which are known only once the server runs
  std::string url_;
  std::string host_;
  std::map<std::int32_t, int> misses_;  ///< questions in a row that a rank did not answer
  std::unique_ptr<OtherNodes>
      others_;  ///< null: this endpoint has TLS or users, and so have the others
};

NodeEndpoint::NodeEndpoint(std::string node, Patience patience)
    : ranks_(std::make_shared<Ranks>(std::move(node), patience)) {}

EndpointStart NodeEndpoint::start(const EndpointOptions& options) noexcept try {
  if (const std::string error = ranks_->open(options.run_directory); !error.empty())
    return {.error = error};
  if (!options.http.web) ranks_->ask_others(options.http.token);
  HttpServerOptions http = options.http;
  http.hosts = host_rule(options.address, options.host, options.allowed_hosts);
  http.otherwise = [ranks = ranks_](const HttpRequest& request) { return ranks->answer(request); };
  server_ = std::make_unique<HttpServer>(std::map<std::string, HttpHandler>(), std::move(http));
  HttpStart started = server_->start(options.address, options.port, options.port_tries);
  if (!started.error.empty()) return {.error = std::move(started.error)};
  const std::string url = url_of(options, started);
  ranks_->set_place(url, options.host);
  return {.url = url, .port = started.port};
} catch (const std::exception& error) {
  return {.error = error.what()};
}

void NodeEndpoint::stop(std::chrono::milliseconds budget) noexcept {
  ranks_->stop_asking();
  if (server_) server_->stop(budget);
}

bool NodeEndpoint::leave_if_closed() noexcept {
  if (!server_ || !server_->leave_if_closed()) return false;
  ranks_->stop_asking();
  return true;
}

void NodeEndpoint::close_in_child() noexcept {
  if (server_) server_->close_in_child();
  ranks_->leave_to_parent();
}

}  // namespace gradvane::exporters
