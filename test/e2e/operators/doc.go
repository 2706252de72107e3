// Package operators tests what operators see, with a real listproxy in front of a real API server:
// the audit log, the pages of the admin port, what listproxy analyze forecasts, and whether the
// README and the pages tell commands that work.
//
// The audit log is compared with kube-apiserver's own: the same list, sent to both, must leave the
// same line in both logs, except for what only one of the two can know.
package operators
