// Package kubeconfig has the client's side: listproxy kubeconfig makes a kubeconfig that leads to
// listproxy, and the commands that ask a listproxy get their credentials and their connection here.
//
// listproxy's own --kubeconfig is not read here, but in package main (login.go, run.go).
package kubeconfig
