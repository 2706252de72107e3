// Package controlplane runs a real Kubernetes control plane (etcd and kube-apiserver, nothing else) on loopback, for tests,
// the demo and people.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{})
//	if err != nil { … }
//	defer cp.Stop()
//	out, err := cp.Kubectl(ctx, "", "get", "pods", "-n", controlplane.TeamA)
//
// There is no scheduler, controller manager or kubelet: pods stay Pending, nothing is garbage collected, and no controller
// changes an object behind a test's back.
//
// # Binaries
//
// [binaries.ControlPlane] builds etcd, kube-apiserver and kubectl, in the versions that the nested module in tools/ pins,
// and keeps them in bin/ of the repository. They are built again when that module's go.mod or go.sum, or the way of
// building, changed. A file lock makes parallel test packages wait for one build.
//
// Modules named tools-1.NN pin other versions of kube-apiserver, which the environment variable LISTPROXY_TEST_KUBERNETES
// chooses. These, and other tools ([binaries.Tool]), are built on demand.
//
// # Users
//
// Every user has a kubeconfig; see [Users] for what each may do. Most log in with a bearer token, and two have a client
// certificate ([ControlPlane.CertConfig]). Rights come from setup.yaml, with RBAC; tests add their own by
// [ControlPlane.Grant].
//
// # Faults
//
// The API server can be killed, stopped, paused and started again on the same port. etcd can be killed, compacted,
// defragmented, emptied, and put back to an earlier state so that revisions go back. A restarted API server has lost its
// memory, above all its watch caches.
//
// # Several API servers
//
// [ControlPlane.AddAPIServer] starts more API servers on the same etcd, with the same keys, of the same or of another
// version. (On one machine they share a Lease, since its name contains the host's.)
//
// # Invariants
//
//   - However the process that called [Start] ends, even by SIGKILL, no process and no directory stays behind. A reaper (a
//     shell in a session of its own) holds the reading end of a pipe. When the last writer is gone, the reaper kills the
//     processes in DIR/*.pid and removes DIR. [ControlPlane.Stop] uses the reaper, too.
//   - Control planes do not disturb each other: each has its own directory, certificates and ports. Ports lie below the
//     range that kernels give to outgoing connections, and are reserved by a file lock for the life of the process. So an
//     API server that was down finds its port free when it comes back.
//   - Everything listens on 127.0.0.1 only. Keys, tokens and kubeconfigs are in a directory with mode 0700, in files with
//     mode 0600.
//
// The package works on Linux and macOS.
package controlplane
