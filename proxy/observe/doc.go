// Package observe reports what happens to requests: in metrics, in traces, in the access log and the audit log. The
// filter of [Observer.Observe] gives each request a [Record], in its context. The code that decides
// about the request notes the decision there. No decision depends on a record, but one on an audit event, which
// kube-apiserver's own log does not have of answers from memory: an answer whose event cannot be written is not given.
//
//   - record.go: what is known of one request
//   - metrics.go, labels.go: what is counted, and by which labels
//   - spans.go, spanname.go: spans and their names
//   - reviews.go: the requests that ask about callers
//   - accesslog.go: the access log
//   - auditlog.go, auditevent.go, auditconfig.go: the audit log; events, lines and files are those of
//     k8s.io/apiserver's log backend and of lumberjack
//   - feedtransport.go: the requests of feeds to the upstream
//   - refused.go: why listproxy itself refuses requests
package observe
