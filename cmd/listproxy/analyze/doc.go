// Package analyze reads audit logs and predicts what listproxy would answer: for each client and resource, how many
// lists and watches there were, and who would answer them.
//
// It reads events of audit.k8s.io/v1 as JSON, from kube-apiserver's audit log and from listproxy's own. There is one
// event on a line, or one inside the records that exporters of managed clusters write. Files may be compressed with
// gzip.
//
// # Design
//
// A log is read line by line (lines.go), and each line is searched for events (unwrap.go, event.go). For each event it is
// predicted who would answer the request (prediction.go). The predictions are counted by client and resource (source.go,
// counter.go). A [Report] is made from the counts (report.go, advice.go) and written as text (text.go) or JSON.
//
// # Invariants
//
//   - Package policy parses the requests of events, as it does for the proxy. There is no second parser.
//   - Memory grows with the number of clients and resources, not with the length of the log. The length of a line is bounded.
//   - A line without an event is counted, and is no error. A log without a list or watch is an error that says what to do.
//   - Names that clients choose for themselves are bounded and masked before they are kept.
package analyze
