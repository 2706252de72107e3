// Package programs runs other projects' programs through listproxy. Each runs straight at
// kube-apiserver, too, and nothing may be different.
//
//   - Tests: controller-runtime's own suites of its client, cache and manager, and those of
//     Kubernetes' end-to-end tests that need no nodes, against an empty cluster each time, with both
//     switches on (or off: -programs.switches=false). What passes straight must pass through
//     listproxy. (There is no controller manager and no node, so some fail either way.)
//   - What follows a cluster: the cluster cache of Argo CD and Prometheus' discovery in Kubernetes,
//     with both switches on and off. While objects come, change and go, they must know the same as
//     the same program does that asks kube-apiserver, and what kube-apiserver has.
//
// LISTPROXY_TEST_KUBERNETES=1.37.2 takes another kube-apiserver; the programs stay the same.
//
// That listproxy answered lists and watches from memory meanwhile is read from its metrics.
package programs
