// Package cluster runs a whole Kubernetes on one Linux machine: etcd and kube-apiserver of package controlplane,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy, containerd, runc, CoreDNS, Jaeger and Prometheus.
// All are built from Go modules that tools-* pin, and images are packed from programs: neither Docker nor a
// registry is needed, but root is. It is what make cluster shows, and what make test-cluster tests on.
//
// # Namespaces
//
// [Enter] runs its own program again, as the first process of a new network, mount, process and IPC namespace. Processes
// inside reach nothing outside. From outside, a port of loopback that [Forward] serves leads to a Service. When the
// first process ends, the kernel ends all others, and removes their mounts, interfaces and rules. Enter removes
// the rest: control groups and one directory. Kernel settings that kubelet writes are copies.
package cluster
