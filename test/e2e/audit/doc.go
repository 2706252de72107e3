// Package audit holds listproxy's audit log against kube-apiserver's own: the same list, asked of
// both, must leave the same line in both logs, but for what only one of the two can know. It holds
// tests only.
package audit
