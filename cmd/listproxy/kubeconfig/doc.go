// Package kubeconfig has the client's side: listproxy kubeconfig makes a kubeconfig that leads to
// listproxy (kubeconfig.go; incluster.go for pods), and the commands that ask a listproxy read
// theirs here (load.go).
//
// listproxy's own --kubeconfig is not read here, but in package main (upstream.go).
package kubeconfig
