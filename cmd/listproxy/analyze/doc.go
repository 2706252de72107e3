// Package analyze reads audit logs and says what listproxy would bring: for each client and resource
// how many lists and watches there were, and who would answer them.
//
// It reads events of audit.k8s.io/v1 as JSON: of kube-apiserver's audit log and of listproxy's own,
// one on a line or wrapped in what exporters of managed clusters write around them, plain or
// compressed with gzip.
//
// # Design
//
// A log is read line by line (lines.go). The events of a line become requests (event.go) of clients
// (client.go), a request becomes a verdict (verdict.go), and verdicts are counted (tally.go). A
// [Report] is made from the counts (report.go, advice.go) and written as text or JSON (text.go).
//
// # Invariants
//
//   - What an event asks for is read by package policy, as the proxy reads a request; there is no
//     second parser.
//   - Memory is bounded, whatever the log: lines, names, and the number of clients and rows.
//   - A line that cannot be read is counted, and is not an error. A log without any event is one, and
//     the error says what to do.
//   - What a client chose to call itself is bounded and masked before it is kept.
package analyze
