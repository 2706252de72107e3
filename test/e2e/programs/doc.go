// Package programs runs what other projects test their clients with, through listproxy with both
// switches on: controller-runtime's own suites of its client, cache and manager, and those of
// Kubernetes' end-to-end tests that need no nodes. Each runs twice, against an empty cluster each time:
// straight at kube-apiserver, and through listproxy. What passes straight must pass through it. (There is
// no controller manager and no node, so some fail either way.)
//
// That listproxy answered lists and watches from memory meanwhile is read from its metrics.
package programs
