// Package kubehttp has what all packages that handle HTTP for the Kubernetes API share. It reads facts about requests:
// the resource, whether the request is long-running, the listener, and the words that may be logged. It writes listproxy's
// own answers, which look like kube-apiserver's, and the header that says where an answer came from. It also has what
// clients and servers of TLS connections need: clients that follow no redirects, and files that are read again when they
// change ([ReloadFiles]).
package kubehttp
