// Package forward passes a request to kube-apiserver, and kube-apiserver's answer to the caller, both unchanged.
// [Forwarder] says what may differ. exchange.go forwards one request, upstreamurl.go has its target and upload.go its
// body. endwatches.go ends watches when listproxy shuts down.
package forward
