// Package proxytest has what the tests of several packages of the proxy share: logs, a clock, HTTP clients and servers,
// and certificates.
package proxytest
