// Command speed measures what an answer from memory costs, beside kube-apiserver and beside a bare
// Go HTTPS handler that writes the same bytes (the limit). It is what make bench runs.
//
// Everything is a process of its own: kube-apiserver and etcd (package controlplane), listproxy as
// it is released, the limit (limit.go), and a client (client.go), which reads and throws away, on
// several connections. The CPU time of the server's process counts, since other work on the machine
// disturbs it less than elapsed time. Each round sends each request to all three in turn, so that a
// disturbance affects all.
//
// Before anything is measured, every answer of listproxy is compared with kube-apiserver's. While
// it is measured, every answer must be a 200, of the right length and, from listproxy, from memory.
// Nothing fails because it took long.
package main
