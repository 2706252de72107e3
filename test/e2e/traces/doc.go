// Package traces tests, with a real Jaeger, that a request is one trace from its caller through
// listproxy to kube-apiserver.
package traces
