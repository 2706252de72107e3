// Package analyze reads logs of requests and says what listproxy would bring: for each client and
// resource how many lists and watches there were, and who would answer them.
//
// It reads kube-apiserver's audit log (JSON lines of audit.k8s.io/v1), listproxy's own audit log,
// and listproxy's access log (--log-level=access, as text or JSON), plain or compressed with gzip.
//
// # Design
//
// A log is read line by line (lines.go). A line becomes a request (auditlog.go, accesslog.go), a
// request becomes a verdict (verdict.go), and verdicts are counted (tally.go). A [Report] is made
// from the counts (report.go, advice.go) and written as text, JSON or HTML (text.go, html.go).
//
// # Invariants
//
//   - What an audit event asks for is read by package policy, as the proxy reads a request; there
//     is no second parser. An access log already says what was decided.
//   - Memory is bounded, whatever the log: lines, names, and the number of clients and rows.
//   - A line that cannot be read is counted, and is not an error.
//   - What a client chose to call itself is bounded and masked before it is kept.
package analyze
