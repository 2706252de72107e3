// Package upstream reaches the API server: it has the address, the connections for callers'
// requests and for listproxy's own, and the condition of the API server.
//
//   - transports.go, transportsets.go: the connections for callers' requests, without credentials
//   - impersonation.go: those of users whom listproxy impersonates; rotation.go: files that change
//   - baseurl.go: the address; withoutreuse.go: connections of one request each
//   - health.go: the API server's condition by probes; traffic.go: and by listproxy's own requests;
//     condition.go: all conditions, with advice
package upstream
