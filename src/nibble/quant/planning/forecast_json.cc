#include <nlohmann/json.hpp>

#include "nibble/quant/planning/forecast.h"

namespace nibble::quant {
namespace {

using nlohmann::json;

json time_json(const TimeEstimate& time) {
  json encode = json::array();
  for (const EncodeRate& rate : time.encode) {
    encode.push_back({{"scheme", rate.scheme},
                      {"input_major", rate.input_major},
                      {"bytes_per_second", rate.bytes_per_second}});
  }
  return {{"seconds", time.seconds},
          {"threads", time.threads},
          {"read_bytes_per_second", time.read_bytes_per_second},
          {"encode", std::move(encode)},
          {"write_bytes_per_second", time.write_bytes_per_second},
          {"check_bytes_per_second", time.check_bytes_per_second},
          {"measured",
           {{"read_bytes", time.read_bytes},
            {"written_bytes", time.written_bytes},
            {"written_to", time.written_to.string()},
            {"seconds", time.probe_seconds}}}};
}

json engine_json(const EngineReport& report) {
  json findings = json::array();
  for (const EngineFinding& finding : report.findings) {
    findings.push_back({{"verdict", verdict_name(finding.verdict)},
                        {"layers", finding.layers},
                        {"module", finding.module},
                        {"scheme", finding.scheme},
                        {"reason", finding.reason},
                        {"expected", finding.expected},
                        {"needs", finding.needs},
                        {"source", finding.source}});
  }
  return {{"engine", report.engine},
          {"verdict", verdict_name(report.verdict)},
          {"findings", std::move(findings)}};
}

json degrees_json(const EngineDegrees& parallel) {
  json refused = json::array();
  for (const RefusedDegree& one : parallel.degrees.refused) {
    refused.push_back({{"degree", one.degree},
                       {"module", one.module},
                       {"reason", one.reason}});
  }
  return {{"engine", parallel.engine},
          {"known", parallel.known},
          {"note", parallel.note},
          {"degrees", parallel.degrees.degrees},
          {"refused", std::move(refused)}};
}

}  // namespace

json to_json(const Forecast& forecast, const Plan& plan) {
  json engines = json::array();
  for (const EngineReport& report : forecast.engines) {
    engines.push_back(engine_json(report));
  }
  json parallel = json::array();
  for (const EngineDegrees& degrees : forecast.parallel) {
    parallel.push_back(degrees_json(degrees));
  }
  return {{"time", forecast.time ? time_json(*forecast.time) : json()},
          {"disk",
           {{"path", forecast.disk.string()},
            {"needed_bytes", plan.disk_bytes},
            {"free_bytes", forecast.free_bytes}}},
          {"engines", std::move(engines)},
          {"tensor_parallel", std::move(parallel)},
          {"expert_parallel", forecast.expert_degrees}};
}

}  // namespace nibble::quant
