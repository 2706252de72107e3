// Package serve has the HTTPS server for clients, and the bounds on their connections, in the same way for all
// requests.
//
//   - server.go: the server, its timeouts and bounds
//   - certificates.go, clientca.go, selfsigned.go: the serving certificate and the CAs of clients, which are read again
//     when their files change
//   - onlypaths.go refuses requests that are not for a path
//   - tunnel.go, targets.go: the port for CONNECT, and the names of the API server to which it leads
//   - stall.go ends answers that their clients do not read
//   - bodylimit.go bounds the time that the body of a request may take
//   - drain.go shuts the server down gracefully
//   - goaway.go makes clients close their connections
package serve
