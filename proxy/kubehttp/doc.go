// Package kubehttp holds facts about HTTP requests for the Kubernetes API: what a request asks
// for, how long it may take, by which listener it came, what of it may be logged; and it writes
// the answers of listproxy's own, which look like those of kube-apiserver. It decides nothing.
package kubehttp
