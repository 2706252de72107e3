// Package observe reports what happens to requests, in metrics, traces, the access log and the audit log. The filter
// [Observer.Observe] puts a [Record] into the context of each request. Handlers write their decisions into the record, and
// read nothing from it but the time at which the request came. Only the audit log can stop an answer: an answer from memory
// is not written before its audit event, since kube-apiserver's own audit log does not have the answer.
//
//   - observer.go: the filter
//   - record.go: the record of one request; countingwriter.go: the status and the bytes of its answer
//   - metrics.go, labels.go: metrics and their labels
//   - spans.go: spans and their names
//   - instrumentsend.go: requests to the API server that ask about callers
//   - feedtransport.go: requests of feeds to the API server
//   - accesslog.go: the access log
//   - auditlog.go, auditevent.go, auditconfig.go: the audit log, with the events of k8s.io/apiserver and the files of
//     lumberjack
//   - refused.go: the reasons for which listproxy itself refuses requests
package observe
