// Package proxytest has what the tests of several packages of the proxy share: logs, a clock, HTTP clients and servers,
// certificates, and an API server in memory.
package proxytest
