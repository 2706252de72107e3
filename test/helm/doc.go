// Package helm tests the chart in charts/listproxy with the real Helm, and the Dockerfile.
//
// Without a cluster: what Helm renders is held to golden files (-update writes them), values that
// cannot be meant are refused, the rights that the chart gives are those that the policy needs, as
// package policy reads it, and the README has every value.
//
// With a real kube-apiserver: the chart is installed, upgraded and taken away again. There is no
// kubelet, so a test does what one would: it reads the Deployment that it installed and starts the
// program of the Dockerfile with its arguments and environment, as its user, in a root directory
// with nothing in it but what is mounted.
package helm
