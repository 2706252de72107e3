// Package forward passes a request to kube-apiserver, and kube-apiserver's answer to the caller,
// both unchanged. [Forwarder] says what may differ. exchange.go has one request on its way,
// target.go its target, upload.go its body, and endwatches.go the watches that are ended when
// listproxy ends.
package forward
