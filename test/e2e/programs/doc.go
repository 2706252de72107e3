// Package programs runs programs of other projects through listproxy, and directly at
// kube-apiserver. Nothing may be different.
//
//   - Tests: controller-runtime's own suites of its client, cache and manager, and those of
//     Kubernetes' end-to-end tests that need no nodes, against an empty cluster each time, with
//     both switches on (or off: -programs.switches=false). Tests that pass directly must pass
//     through listproxy. (There is no controller manager and no node, so some fail in both ways.)
//   - Argo CD's cache of a cluster, with both switches on and off. While objects are created,
//     changed and deleted, it must know the same as one that asks kube-apiserver, and what
//     kube-apiserver has.
//
// LISTPROXY_TEST_KUBERNETES=1.37.2 chooses another kube-apiserver; the programs stay the same.
//
// listproxy's metrics show that it answered lists and watches from memory meanwhile.
package programs
