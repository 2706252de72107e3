// Package operators tests what operators see of a real listproxy in front of a real kube-apiserver: the audit log, the pages
// of the admin port, and the commands of the README.
//
// listproxy's audit log is compared with kube-apiserver's: the same list, sent to both, must leave the same line in both
// logs, except for what only one of the two can know.
package operators
