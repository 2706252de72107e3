// Command speed measures what an answer from memory costs, beside kube-apiserver and beside a bare
// Go HTTPS handler that writes the same bytes (the limit). It is what make bench runs.
//
// Everything is a process of its own: kube-apiserver and etcd (package controlplane), listproxy as
// it is delivered, the limit (limit.go), and a client (client.go), which reads and throws away, on
// several connections. What counts is the CPU time of the server's process, which other work on
// the machine disturbs less than times. Each round asks each request of all three in turn, so that
// what disturbs one disturbs all.
//
// Before anything is measured, every answer of listproxy is held against kube-apiserver's. While it
// is measured, every answer must be a 200, of the right length and, from listproxy, from memory.
// Nothing fails because it took long.
package main
