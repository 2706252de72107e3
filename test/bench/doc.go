// Package bench measures, against a real kube-apiserver, what listproxy costs it and how soon
// listproxy knows what is new. It holds benchmarks only, and each starts the control plane that
// it needs; docs/benchmarks.md says how to run them and what came out.
package bench
