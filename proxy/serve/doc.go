// Package serve takes the requests of clients, and limits what they can do with connections, the same
// for all requests.
//
//   - server.go: the HTTPS server, its timeouts and bounds
//   - certificates.go, clientca.go, selfsigned.go: what clients are shown over TLS, and the CAs of their
//     certificates, read again when the files change
//   - onlypaths.go: the filter that lets in only requests for a path
//   - tunnel.go, targets.go: the port for CONNECT, and the names of the API server it leads to
//   - stall.go: clients that do not read their answer are cut off
//   - bodylimit.go: how long a body may take
//   - drain.go: graceful shutdown: requests may finish
//   - goaway.go: answers that make clients close their connections
package serve
