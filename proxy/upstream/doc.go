// Package upstream reaches the API server, and knows its condition.
//
//   - transports.go: the choice of a connection for a request
//   - transportsets.go: the connections for callers' requests, without credentials of listproxy
//   - impersonation.go: the connections for users whom listproxy impersonates
//   - rotation.go: new connections when the files of certificates have changed
//   - baseurl.go: the API server's address
//   - withoutreuse.go: connections for one request each
//   - health.go: the API server's condition, found by probes; traffic.go: what other requests tell of it
//   - condition.go: the conditions, each with its meaning and advice
package upstream
