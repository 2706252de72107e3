// Package cluster runs a whole Kubernetes on one Linux machine: etcd and kube-apiserver of package controlplane,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy, containerd, runc, CoreDNS, Jaeger and Prometheus.
// All are built from Go modules that tools-* pin, and images are packed from programs: neither Docker nor a
// registry is needed, but root is. It is what make cluster shows, and what make test-cluster tests on.
//
// # Namespaces
//
// [Enter] runs its own program once more, as the first process of a network, a mount and a process namespace.
// In there nothing is reached but what is in there; outside, a port of loopback is a [Door] to it. When the
// first process ends, the kernel ends all others, and takes mounts, interfaces and rules with them. What is
// left are control groups and one directory, which Enter removes. What kubelet sets in the kernel is set in a
// copy.
package cluster
