// Package server listens for clients, and bounds what they do with connections, whatever they ask
// for.
//
//   - front.go: the HTTPS server, and the filter that lets only requests for a path in
//   - tunnel.go, target.go: the port for CONNECT, and the names of the API server it leads to
//   - tls.go: the TLS settings of both
//   - stall.go, stallbody.go: clients that do not read their answer or send their body are cut off
//   - bodylimit.go: how long a body may be
//   - drain.go, letgo.go: requests end in order, and connections are let go, while the process ends
package server
