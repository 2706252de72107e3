// Package kubehttp reads facts about HTTP requests to the Kubernetes API: the resource, whether the request is
// long-running, the listener, and the words that may be logged. It also writes listproxy's own answers, which look like
// kube-apiserver's.
package kubehttp
