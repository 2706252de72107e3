// Package kubehttp holds facts about HTTP requests for the Kubernetes API: what a request asks for,
// how long it may take, by which listener it came, and what of it may be logged. It also writes
// listproxy's own answers, which look like those of kube-apiserver. It decides nothing.
package kubehttp
