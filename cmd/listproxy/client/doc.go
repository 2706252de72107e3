// Package client has the commands for users of a running listproxy: listproxy kubeconfig makes a kubeconfig that leads
// to it (kubeconfig.go; incluster.go for pods), listproxy try asks it for a list and says where the answer came
// from, and listproxy status shows its status page in a terminal.
package client
