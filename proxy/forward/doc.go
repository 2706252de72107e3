// Package forward passes a request to kube-apiserver, and kube-apiserver's answer to the caller, both unchanged.
// [Forwarder] says what may differ.
//
//   - forward.go: the way of a request
//   - exchange.go: one request and its answer, and what the caller gets if there is none
//   - requestheaders.go, upstreamurl.go, upload.go: the header, the target and the body of the request to kube-apiserver
//   - unflushed.go, copybuffers.go: how an answer is copied
//   - endwatches.go: the end of watches when listproxy shuts down
//   - eventframing.go: where the events of a watch end
package forward
