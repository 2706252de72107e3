// Package client has what a user runs beside the server: listproxy kubeconfig makes a kubeconfig that leads to a
// listproxy (kubeconfig.go; incluster.go for pods), listproxy try asks it for a list and says where the answer came
// from, and listproxy status shows its status page in a terminal.
package client
