// Package server listens for clients, and bounds what they do with connections, whatever they ask
// for.
//
//   - server.go: the HTTPS server, its timeouts and bounds
//   - onlypaths.go: the filter that lets only requests for a path in
//   - tunnel.go, target.go: the port for CONNECT, and the names of the API server it leads to
//   - tls.go: the TLS settings of both
//   - stall.go, stallbody.go: clients that do not read their answer or send their body are cut off
//   - bodylimit.go: how long a body may be
//   - drain.go, drainclose.go: at the end of the process requests end in order, and clients give up
//     their connections
package server
