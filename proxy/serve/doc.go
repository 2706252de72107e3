// Package serve has the HTTPS server for clients, and bounds their connections, whatever their requests ask for.
//
//   - server.go: the server, its timeouts and bounds
//   - certificates.go, selfsigned.go: the serving certificate and the CAs of clients, which are read again
//     when their files change
//   - onlypaths.go refuses requests that are not for a path
//   - connect.go, tunnel.go, targets.go: the CONNECT port, its tunnels, and the names of the API server to which they lead
//   - answerwriter.go ends answers that their clients do not read
//   - bodytimeout.go bounds the time that the body of a request may take
//   - drain.go shuts the server down gracefully
//   - goaway.go makes clients close their connections
//   - headervalues_before_go127.go, headervalues_go127.go: the number of header values
package serve
