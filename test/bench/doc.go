// Package bench measures, with a real kube-apiserver, what listproxy costs kube-apiserver and how
// soon listproxy knows of a write. It holds benchmarks only; each starts the control plane that it
// needs. docs/benchmarks.md has the results, and how to run them.
package bench
