// Package programs runs programs of other projects directly at kube-apiserver and through listproxy. The results must be the
// same.
//
//   - Tests: those of controller-runtime's client, cache and manager, and those of Kubernetes' end-to-end tests that need no
//     nodes, against an empty cluster each time, with --consistent-lists=always and --watches (or without:
//     -programs.switches=false). Tests that pass directly must pass through listproxy. Some fail in both ways, since there is
//     no controller manager and no node.
//   - Argo CD's cluster cache, with both switches on and off. While objects change, it must have the same as a cache directly
//     at kube-apiserver, and what kube-apiserver has.
//
// listproxy's metrics must show that lists and watches came from memory. LISTPROXY_TEST_KUBERNETES=1.37.2 chooses another
// kube-apiserver.
package programs
