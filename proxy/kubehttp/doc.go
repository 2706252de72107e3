// Package kubehttp reads facts about HTTP requests to the Kubernetes API: the resource, the duration, the listener,
// and the words that may be logged. It also writes listproxy's own answers, which look like those of kube-apiserver.
// It decides nothing.
package kubehttp
