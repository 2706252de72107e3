// Package upstream reaches the API server, and knows its condition.
//
//   - transports.go, transportsets.go: the connections for callers' requests, without credentials of listproxy
//   - impersonation.go: the connections for users whom listproxy impersonates
//   - rotation.go: files of certificates that change
//   - baseurl.go: the API server's address
//   - withoutreuse.go: connections for one request each
//   - health.go: the API server's condition, by probes; traffic.go: by the answers to other requests
//   - condition.go: the conditions, with advice
package upstream
