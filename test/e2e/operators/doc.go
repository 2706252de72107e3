// Package operators tests what operators see, with a real listproxy in front of a real API server:
// the audit log, traces, and the pages of the admin port. The program in page looks at the status
// page with a real browser.
//
// The audit log is compared with kube-apiserver's own: the same list, sent to both, must leave the
// same line in both logs, except for what only one of the two can know.
package operators
