// Package analyze reads audit logs and says what listproxy would bring: for each client and resource
// how many lists and watches there were, and who would answer them.
//
// It reads events of audit.k8s.io/v1 as JSON, from kube-apiserver's audit log and from listproxy's own. There is one
// event on a line, or one inside the records that exporters of managed clusters write. Files may be compressed with
// gzip.
//
// # Design
//
// A log is read line by line (lines.go). The events of a line become requests (event.go) of clients
// (client.go), a request becomes a verdict (verdict.go), and verdicts are counted (tally.go). A
// [Report] is made from the counts (report.go, advice.go) and written as text or JSON (text.go).
//
// # Invariants
//
//   - Package policy parses the requests of events, as it does for the proxy. There is no second parser.
//   - Memory is bounded, whatever the log: lines, names, and the number of clients and rows.
//   - A line that cannot be read is counted, and is not an error. A log without any list or watch is an error, which
//     says what to do.
//   - Names that clients choose for themselves are bounded and masked before they are kept.
package analyze
