// Package client has the commands for users of a running listproxy. listproxy kubeconfig prints a kubeconfig that leads
// to it, listproxy try requests a list through it and says where the answer came from, and listproxy status shows its
// status page in a terminal.
package client
