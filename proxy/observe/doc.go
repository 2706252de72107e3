// Package observe reports what happens to requests, in metrics, traces, the access log and the audit log. The filter
// [Observer.Observe] puts a [Record] into the context of each request, in which the handlers note their decisions. No
// decision depends on a record. One depends on the audit log: an answer whose event cannot be written is not given,
// since kube-apiserver's own log does not have answers from memory.
//
//   - record.go: the record of one request
//   - metrics.go, labels.go: metrics and their labels
//   - spans.go: spans and their names
//   - reviews.go: the requests that ask about callers
//   - accesslog.go: the access log
//   - auditlog.go, auditevent.go, auditconfig.go: the audit log, whose events, lines and files are made by
//     k8s.io/apiserver and lumberjack
//   - feedtransport.go: the requests of feeds to the upstream
//   - refused.go: the reasons for which listproxy itself refuses requests
package observe
