// Package proxytest holds what the tests of several packages of the proxy share: logs that are
// kept or thrown away, a clock, HTTP clients and servers, certificates, an API server in memory.
package proxytest
