// Package observe tells what becomes of requests: in metrics, in traces, in the access log. The
// filter of [Observer.Observe] gives each request a [Record], in its context. Those who decide
// about the request note what they decided there. Nobody's decision depends on a record.
//
//   - record.go: what is known of one request
//   - metrics.go, labels.go, callers.go: what is counted, and by which labels
//   - tracing.go, spanname.go: spans and their names
//   - accesslog.go: the access log
//   - feedtransport.go: what feeds ask the upstream
//   - refused.go: why listproxy itself refuses requests
package observe
