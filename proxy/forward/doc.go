// Package forward passes a request to kube-apiserver, and kube-apiserver's answer to the caller, both unchanged.
// [Forwarder] says what may differ.
//
//   - forward.go: the way of a request
//   - exchange.go: one request and its answer, and what the caller hears if there is none
//   - requestheaders.go: which headers of the caller are removed, and which are set
//   - upstreamurl.go: the target of the request; upload.go: its body
//   - endwatches.go: the end of watches when listproxy shuts down; eventframing.go: where their events end
package forward
