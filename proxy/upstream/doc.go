// Package upstream has what is needed to reach the API server: its address, the connections for
// callers' requests and for listproxy's own, and how the API server is.
//
//   - transports.go, transportsets.go: the connections for callers' requests, without credentials
//   - impersonation.go: those of users whom listproxy impersonates; rotation.go: files that change
//   - client.go, baseurl.go: listproxy's own requests, and the address
//   - health.go: how the API server is, by questions; traffic.go: and by listproxy's own requests;
//     condition.go: what is a trouble
package upstream
